//! The command-line program.
//!
//! Each command is one file below `commands`, named after it. The file holds the command's
//! arguments (a struct for clap, with its help text), its work (`run`, which takes the arguments,
//! the settings and the output, and returns the exit code), and the JSON form of its results. To
//! add a command, write such a file, add it to the list of commands in `commands::args`, and call
//! it from `run` below.
//!
//! The commands share three modules: `setup` (settings, data directory, fetchers, listeners and
//! reloading), `parse` (global options, values and input lines) and `terminal` (results, messages,
//! progress and exit codes). Imports go one way: from `commands` to `setup`, and from there to
//! `parse` and `terminal`. Commands that only read take no lock, repair nothing and work alongside
//! a running crawler.

mod commands;
mod parse;
mod setup;
mod terminal;

use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};

use fetchwise::config::SigningMode;

use crate::commands::command_line::{Cli, Command};
use crate::parse::global::ColorArg;
use crate::setup::identity::signing_mode;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, is_plain, note, note_labelled};

fn main() -> ExitCode {
    let cli = match Cli::read_from(std::env::args_os()).map_err(with_best_suggestion) {
        Ok(cli) => cli,
        // The error repeats the invalid value. Its colours would be lost with the characters that
        // have to go.
        Err(error)
            if error.use_stderr()
                && !std::env::args_os().all(|arg| is_plain(&arg.to_string_lossy())) =>
        {
            note(error.render());
            return ExitCode::from(Exit::Usage as u8);
        }
        Err(error) => error.exit(),
    };
    match cli.global.color {
        ColorArg::Auto => {}
        ColorArg::Always => anstream::ColorChoice::Always.write_global(),
        ColorArg::Never => anstream::ColorChoice::Never.write_global(),
    }
    setup::file_size_limit::report();
    let mut out = Output::new(cli.global.json);
    let ended = traced(&cli, &mut out).and_then(|exit| out.flush().map(|()| exit));
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

/// Keeps the most similar name of those that an error suggests for a misspelt command. clap puts it
/// last.
fn with_best_suggestion(mut error: clap::Error) -> clap::Error {
    let best = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.last().cloned(),
        _ => None,
    };
    if let Some(best) = best {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![best]));
    }
    error
}

/// Runs the command and sends its traces to a collector if one is configured.
fn traced(cli: &Cli, out: &mut Output) -> Result<Exit, Failure> {
    #[cfg(feature = "otlp")]
    let sending = setup::otlp::start(cli.global.otlp.as_deref())?;
    let ended = run(cli, out);
    #[cfg(feature = "otlp")]
    if let Some(sending) = sending {
        sending.finish();
    }
    ended
}

fn run(cli: &Cli, out: &mut Output) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Completions(args) => {
            return commands::completions::completions(args, Cli::command(), out);
        }
        Command::Man(args) => return commands::completions::man(args, Cli::command(), out),
        Command::Demo(_) => return commands::lab::run("demo"),
        Command::Testbed(_) => return commands::lab::run("testbed"),
        Command::Simulate(_) => return commands::lab::run("simulate"),
        // `config` reports every problem of the settings, not only the first one.
        Command::Config(args) => return commands::config::run(args, &cli.global, out),
        _ => {}
    }
    let mut global = cli.global.clone();
    // Every other command reads the table of `--router`; this one writes it.
    let table = if matches!(cli.command, Command::Export(_)) { global.router.take() } else { None };
    let mut settings = Settings::resolve(&global)?;
    settings.config.signing = match &cli.command {
        // Without --sign, the crawlers of a server sign nothing.
        Command::Serve(args) if !args.sign => Some(SigningMode::Never),
        _ => Some(signing_mode(&settings)?),
    };
    match &cli.command {
        Command::Fetch(args) => commands::fetch::run(args, &settings, out),
        Command::Fetchers(args) => commands::fetchers::run(args, &settings, out),
        Command::Try(args) => commands::try_url::run(args, &settings, out),
        Command::Select(args) => commands::select::run(args, &settings, out),
        Command::Explain(args) => commands::explain::run(args, &settings, out),
        Command::Attempts(args) => commands::attempts::run(args, &settings, out),
        Command::Hosts(args) => commands::hosts::run(args, &settings, out),
        Command::Links(args) => commands::links::run(args, &settings, out),
        Command::Reload(_) => commands::reload::run(&settings, out),
        Command::Unpause(args) => commands::unpause::run(args, &settings, out),
        Command::Classify(args) => commands::classify::run(args, &settings, out),
        Command::Detect(args) => commands::detect::run(args, &settings, out),
        Command::Import(args) => commands::import::run(args, &settings, out),
        Command::Export(args) => commands::export::run(args, table.as_deref(), &settings, out),
        Command::BanRate(args) => commands::ban_rate::run(args, &settings, out),
        Command::Stats(args) => commands::stats::run(args, &settings, out),
        Command::Query(args) => commands::query::run(args, &settings, out),
        Command::Importance(args) => commands::importance::run(args, &settings, out),
        Command::Priors(args) => commands::priors::run(args, &settings, out),
        Command::ReplayPolicy(args) => commands::replay_policy::run(args, &settings, out),
        Command::Rollout(args) => commands::rollout::run(args, &settings, out),
        Command::Serve(args) => commands::serve::run(args, &settings, out),
        Command::Fleet(args) => commands::fleet::run(args, &settings, out),
        Command::Identity(args) => commands::identity::run(args, &settings, out),
        Command::Maintain(command) => commands::maintenance::run(command, &settings, out),
        Command::Completions(_)
        | Command::Config(_)
        | Command::Man(_)
        | Command::Demo(_)
        | Command::Simulate(_)
        | Command::Testbed(_) => Ok(Exit::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each feature, whether this build has it, and a command line that needs it.
    const LINES: &[(&str, bool, &str)] = &[
        ("fleet", cfg!(feature = "fleet"), "fleet status --fleet nats://127.0.0.1:4222"),
        (
            "fleet",
            cfg!(feature = "fleet"),
            "fetch --no-browser --fleet nats://127.0.0.1:4222 http://127.0.0.1:1/",
        ),
        (
            "fleet",
            cfg!(feature = "fleet"),
            "serve --listen 127.0.0.1:0 --fleet nats://127.0.0.1:4222",
        ),
        (
            "fleet",
            cfg!(feature = "fleet"),
            "import --fleet nats://127.0.0.1:4222 no-such-file.jsonl",
        ),
        (
            "fleet",
            cfg!(feature = "fleet"),
            "forget --domain example.org --fleet nats://127.0.0.1:4222",
        ),
        ("identity", cfg!(feature = "identity"), "identity show"),
        ("parquet", cfg!(feature = "parquet"), "export --format parquet"),
        ("sqlite", cfg!(feature = "sqlite"), "export --sqlite attempts.db"),
        ("sqlite", cfg!(feature = "sqlite"), "import --pocketbase data.db"),
    ];

    #[test]
    fn a_misspelt_command_gets_one_suggestion() {
        let error =
            with_best_suggestion(Cli::read_from(["fetchwise", "fecth"]).unwrap_err()).to_string();
        assert!(
            error.contains("'fetch'")
                && !error.contains("'fleet'")
                && !error.contains("'fetchers'"),
            "{error}"
        );
    }

    #[test]
    fn a_missing_feature_is_exit_2_and_names_the_build_that_has_it() {
        for (feature, is_here, line) in LINES {
            let data = tempfile::tempdir().unwrap();
            let words = ["fetchwise", "--data-dir", data.path().to_str().unwrap()];
            let cli = Cli::read_from(words.into_iter().chain(line.split(' ')));
            let cli = cli.unwrap_or_else(|error| panic!("every build parses `{line}`: {error}"));
            if *is_here {
                continue;
            }
            let failure = run(&cli, &mut Output::new(false)).unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage, "{line}: {failure}");
            assert!(
                failure.to_string().contains(&format!("--features {feature}`")),
                "{line}: {failure}"
            );
        }
    }
}
