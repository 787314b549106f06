//! `config`: a check of the settings, and a list of them with their origins.
//!
//! Invariants: a value that may be a secret is never shown.

use clap::{Args, Subcommand};
use fetchwise::config::EXAMPLE;

use crate::parse::global::GlobalArgs;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Output;

mod check;
mod show;

/// Check the settings, or show the origin of each
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Check(check::CheckArgs),
    Show(show::ShowArgs),
    /// Print a config file with every key, its default and its meaning
    #[command(after_help = "Example:\n  fetchwise config example > fetchwise.toml")]
    Example,
}

/// Runs the command.
pub(crate) fn run(
    args: &ConfigArgs,
    global: &GlobalArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match &args.command {
        ConfigCommand::Check(args) => check::run(args, global, out),
        ConfigCommand::Show(args) => show::run(args, global, out),
        ConfigCommand::Example => {
            out.raw(EXAMPLE.as_bytes())?;
            Ok(Exit::Done)
        }
    }
}
