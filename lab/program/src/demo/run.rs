//! Chooses how the demo is shown.

use std::io::IsTerminal;

use super::args::DemoArgs;
use super::{plain, rounds};
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, out: &mut Output) -> Result<Exit, Failure> {
    if args.plain || out.json || !can_draw() {
        plain::run(args, out)
    } else {
        rounds::run(args, out)
    }
}

/// Returns whether there is a terminal to draw on, and a keyboard.
fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !is_dumb
}
