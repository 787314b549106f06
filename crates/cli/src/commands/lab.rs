//! `demo`, `testbed` and `simulate`: commands of another program, `fetchwise-lab`, which shows and
//! measures fetchwise.
//!
//! Owns: finding that program next to this one, and what to say where it is missing.
//!
//! Must not know: the options of its commands. They reach it as they were typed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::shown;

/// The name of the other program.
const LAB: &str = "fetchwise-lab";

/// The words of a command of the other program.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    /// Words for fetchwise-lab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    #[allow(
        dead_code,
        reason = "they are passed on as they were typed, with the options before the command"
    )]
    words: Vec<OsString>,
}

/// Becomes the other program, with the words of this command line.
pub(crate) fn run(command: &str) -> Result<Exit, Failure> {
    let own = std::env::current_exe().map_err(Failure::failed)?;
    start(&program(&own, command)?)
}

/// Returns the program next to `own`.
fn program(own: &Path, command: &str) -> Result<PathBuf, Failure> {
    let program = own.with_file_name(format!("{LAB}{}", std::env::consts::EXE_SUFFIX));
    if program.is_file() {
        return Ok(program);
    }
    Err(Failure::usage(format_args!(
        "{command} is a command of {LAB}: in a clone of fetchwise, run `cargo run --release -p {LAB} -- {command}`"
    )))
}

/// Runs the program in the place of this one, so that it gets all signals.
#[cfg(unix)]
fn start(program: &Path) -> Result<Exit, Failure> {
    use std::os::unix::process::CommandExt;
    let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
    Err(Failure::failed(format_args!("cannot run {}: {error}", shown(program))))
}

/// Runs the program and ends with its exit code.
#[cfg(not(unix))]
fn start(program: &Path) -> Result<Exit, Failure> {
    let ended = Command::new(program).args(std::env::args_os().skip(1)).status();
    match ended {
        Ok(status) => std::process::exit(status.code().unwrap_or(Exit::Failed as i32)),
        Err(error) => Err(Failure::failed(format_args!("cannot run {}: {error}", shown(program)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_lab_says_in_one_line_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("fetchwise");
        let failure = program(&own, "demo").unwrap_err();
        assert_eq!(failure.exit(), Exit::Usage);
        let text = failure.to_string();
        assert!(
            text.ends_with("`cargo run --release -p fetchwise-lab -- demo`")
                && text.lines().count() == 1,
            "{text}"
        );
        let lab = own.with_file_name(format!("fetchwise-lab{}", std::env::consts::EXE_SUFFIX));
        std::fs::write(&lab, "").unwrap();
        assert_eq!(program(&own, "demo").unwrap(), lab);
    }
}
