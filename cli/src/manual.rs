//! `completions` and `man`: the command line described for shells and readers, made from its syntax.

use std::fs;

use clap::CommandFactory;

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::failure::{Exit, Failure};
use super::out::Out;

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs, out: &mut Out) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fetchwise", &mut script);
    out.raw(&script)?;
    Ok(Exit::Done)
}

/// Prints the manual page, or writes all of them.
pub(crate) fn man(args: &ManArgs, out: &mut Out) -> Result<Exit, Failure> {
    let Some(dir) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::failed)?;
        out.raw(&page)?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), dir))
        .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", dir.display())))?;
    Ok(Exit::Done)
}
