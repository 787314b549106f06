//! The program `fetchwise-lab`: a demo, web sites to compare crawlers on, and simulated webs.
//!
//! Each command is a folder: `args` has its syntax, `run` its work. A command returns its exit
//! code, and prints results to `output`. Everything that it crawls or serves is on this machine.
//!
//! Must not know: the program `fetchwise`. The demo puts a crawler together from the library, as
//! anybody can.

mod demo;
mod failure;
mod output;
mod shutdown;
mod simulate;
mod testbed;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use fetchwise_terminal::note_labelled;

use crate::failure::{Exit, Failure};
use crate::output::Output;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "fetchwise-lab",
    version,
    about = "Shows and measures fetchwise: a demo, web sites to compare crawlers on, and simulated webs",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
struct Cli {
    /// Print one JSON object per line on stdout
    #[arg(long, global = true, overrides_with = "json", help_heading = "Global options")]
    json: bool,
    /// Colour the output: auto means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, overrides_with = "color", value_name = "auto|always|never", value_enum,
        hide_possible_values = true, default_value_t = ColorArg::Auto, help_heading = "Global options")]
    color: ColorArg,
    #[command(subcommand)]
    command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Testbed(testbed::TestbedArgs),
    Simulate(simulate::SimulateArgs),
}

/// When the output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ColorArg {
    #[default]
    Auto,
    Always,
    Never,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.color {
        ColorArg::Auto => {}
        ColorArg::Always => anstream::ColorChoice::Always.write_global(),
        ColorArg::Never => anstream::ColorChoice::Never.write_global(),
    }
    let mut out = Output::new(cli.json);
    let ended = run(&cli.command, &mut out).and_then(|exit| out.flush().map(|()| exit));
    let exit = ended.unwrap_or_else(|failure| {
        // Print the results that were complete before the failure.
        let _ = out.flush();
        if !failure.is_quiet() {
            note_labelled("error", &failure);
        }
        failure.exit()
    });
    ExitCode::from(exit as u8)
}

fn run(command: &Command, out: &mut Output) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => demo::run(args, out),
        Command::Testbed(args) => testbed::run(args, out),
        Command::Simulate(args) => simulate::run(args, out),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_syntax_is_consistent() {
        Cli::command().debug_assert();
    }
}
