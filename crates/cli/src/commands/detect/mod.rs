//! `detect`: work on detection rules. `check` compares verdicts with labels and with a baseline;
//! `labelled_pages` finds the pages, and `baseline` is the file of earlier verdicts.

mod baseline;
mod check;
mod labelled_pages;

use clap::{Args, Subcommand};

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Output;

/// Check detection rules on labelled pages
#[derive(Debug, Args)]
pub(crate) struct DetectArgs {
    #[command(subcommand)]
    command: DetectCommand,
}

#[derive(Debug, Subcommand)]
enum DetectCommand {
    Check(check::CheckArgs),
}

/// Runs the command.
pub(crate) fn run(
    args: &DetectArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match &args.command {
        DetectCommand::Check(args) => check::run(args, settings, out),
    }
}
