//! The command line program.
//!
//! Each command is one file, named after it: what can be written behind it (a struct for clap, with its help text), what it does
//! (`run`, which takes that, the settings and where results go, and returns how it ended), and what its results look like as
//! JSON. To add a command, write such a file, name it in the list of commands in `args`, and call it from `run` below.
//!
//! What commands share: `settings` (the command line, the environment and the config brought together), `available` (the fetchers
//! that are to be had), `decide` (one decision, for `select` and `explain`), `pacing` (a host's pace, for `explain` and `hosts`), `input` (lines and URLs), `pass` (all attempts of the
//! log), `reload` (what can change while a crawler runs), `upkeep` (of the log, beside a crawl), `out` (results and messages),
//! `progress`, and `failure` (exit codes). Commands that only read take no lock, repair
//! nothing and work beside a running crawler.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use failure::{Exit, Failure};
use out::Out;
use settings::Settings;

mod args;
mod attempts;
mod available;
mod ban_rate;
mod beside;
mod classify;
mod config;
mod decide;
mod demo;
mod explain;
mod export;
mod failure;
mod fetch;
mod fetchers;
#[cfg(feature = "fleet")]
mod fleet;
mod foreign;
mod global;
mod hosts;
mod import;
mod importance;
mod input;
mod learned_table;
mod links;
mod listen;
mod maintain;
mod manual;
#[cfg(feature = "otlp")]
mod otlp;
mod out;
mod pacing;
mod parquet;
mod pass;
mod past;
mod patient;
mod progress;
mod query;
mod release;
mod reload;
mod replay_policy;
mod rollout;
mod select;
mod serve;
mod settings;
mod simulate;
mod sqlite;
mod stats;
mod town;
mod try_url;
mod upkeep;
mod when;
mod why;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Out::new(cli.global.json);
    let ended = traced(&cli, &mut out).and_then(|exit| out.flush().map(|()| exit));
    let exit = ended.unwrap_or_else(|failure| {
        // What was found before it failed is still worth having.
        let _ = out.flush();
        if !failure.is_quiet() {
            let label = out::styled(out::ERROR, "error");
            out::note(format_args!("{label}: {failure}"));
        }
        failure.exit()
    });
    ExitCode::from(exit as u8)
}

/// Runs the command, and sends what it tells to a collector where there is one.
fn traced(cli: &Cli, out: &mut Out) -> Result<Exit, Failure> {
    #[cfg(feature = "otlp")]
    let sending = otlp::start(cli.global.otlp.as_deref())?;
    let ended = run(cli, out);
    #[cfg(feature = "otlp")]
    if let Some(sending) = sending {
        sending.finish();
    }
    ended
}

fn run(cli: &Cli, out: &mut Out) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Completions(args) => return manual::completions(args, Cli::command(), out),
        Command::Man(args) => return manual::man(args, Cli::command(), out),
        Command::Simulate(args) => return simulate::run(args, out),
        Command::Town(args) => return town::run(args, out),
        // Whoever asks what is wrong with the settings wants more than the first thing.
        Command::Config(args) => return config::run(args, &cli.global, out),
        _ => {}
    }
    let mut global = cli.global.clone();
    // Every other command reads that table; this one writes it.
    let table = if matches!(cli.command, Command::Export(_)) { global.router.take() } else { None };
    let settings = Settings::resolve(&global)?;
    match &cli.command {
        Command::Fetch(args) => fetch::run(args, &settings, out),
        Command::Fetchers(args) => fetchers::run(args, &settings, out),
        Command::Try(args) => try_url::run(args, &settings, out),
        Command::Select(args) => select::run(args, &settings, out),
        Command::Explain(args) => explain::run(args, &settings, out),
        Command::Attempts(args) => attempts::run(args, &settings, out),
        Command::Hosts(args) => hosts::run(args, &settings, out),
        Command::Links(args) => links::run(args, &settings, out),
        Command::Release(args) => release::run(args, &settings, out),
        Command::Classify(args) => classify::run(args, &settings, out),
        Command::Import(args) => import::run(args, &settings, out),
        Command::Export(args) => export::run(args, table.as_deref(), &settings, out),
        Command::BanRate(args) => ban_rate::run(args, &settings, out),
        Command::Stats(args) => stats::run(args, &settings, out),
        Command::Query(args) => query::run(args, &settings, out),
        Command::Importance(args) => importance::run(args, &settings, out),
        Command::ReplayPolicy(args) => replay_policy::run(args, &settings, out),
        Command::Rollout(args) => rollout::run(args, &settings, out),
        Command::Serve(args) => serve::run(args, &settings, out),
        #[cfg(feature = "fleet")]
        Command::Fleet(args) => fleet::run(args, &settings, out),
        Command::Demo(args) => demo::run(args, &settings, out),
        Command::Maintain(command) => maintain::run(command, &settings, out),
        Command::Completions(_) | Command::Config(_) | Command::Man(_) | Command::Simulate(_) | Command::Town(_) => {
            Ok(Exit::Done)
        }
    }
}
