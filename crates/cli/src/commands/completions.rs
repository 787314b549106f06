//! `completions` and `man`: shell completions and manual pages, generated from the syntax of the
//! command line.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, shown};

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fetchwise completions bash > ~/.local/share/bash-completion/completions/fetchwise"
)]
pub(crate) struct CompletionsArgs {
    /// Choose the shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Print the manual page, or write one for each command
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise man | man -l -\n  fetchwise man --out ~/.local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Prints a completion script for `syntax`.
pub(crate) fn completions(
    args: &CompletionsArgs,
    mut syntax: Command,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut syntax, "fetchwise", &mut script);
    out.raw(&script)?;
    Ok(Exit::Done)
}

/// Prints the manual page, or writes all of them.
pub(crate) fn man(args: &ManArgs, syntax: Command, out: &mut Output) -> Result<Exit, Failure> {
    let Some(dir) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(syntax).render(&mut page).map_err(Failure::failed)?;
        out.raw(&page)?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(syntax, dir))
        .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", shown(dir))))?;
    Ok(Exit::Done)
}
