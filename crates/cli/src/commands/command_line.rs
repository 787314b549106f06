//! The syntax of the command line: the list of commands.
//!
//! The arguments of a command are in its own file, the global ones in `parse::global`.
//! `setup::settings` resolves them.
//!
//! Must not know: files, the environment and the clock.

use clap::{CommandFactory, Parser, Subcommand};

use super::{
    attempts, ban_rate, classify, completions, config, detect, explain, export, fetch, fetchers,
    fleet, hosts, identity, import, importance, lab, links, maintenance, priors, query, reload,
    replay_policy, rollout, select, serve, stats, try_url, unpause,
};
use crate::parse::global::GlobalArgs;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "fetchwise",
    version,
    about = "Learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned",
    long_about = "Learns which fetcher (a plain request, a browser, a stealth browser, an archive, ...) works for \
        which URL, from the attempts that it makes or receives, and keeps a crawler from getting its IP address \
        banned.\n\n\
        Results go to stdout, progress and messages to stderr. With --json, each result is one JSON object on one \
        line.",
    after_help = "Examples:\n  \
        fetchwise fetch https://example.org/ --out pages      fetch a page and learn from it\n  \
        fetchwise select https://example.org/a.pdf            show the fetcher that would be used\n  \
        fetchwise explain https://example.org/a.pdf           show why\n  \
        fetchwise import attempts.jsonl                       learn from attempts of another crawler\n\n\
        Exit codes: 0 done, 1 failed, 2 invalid usage or config, 3 refused (data directory locked, damaged or of a \
        newer format), 4 some URLs were not delivered (`fetch`).",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Fetch(Box<fetch::FetchArgs>),
    Fetchers(fetchers::FetchersArgs),
    Try(try_url::TryArgs),
    Select(select::SelectArgs),
    Explain(explain::ExplainArgs),
    Attempts(attempts::AttemptsArgs),
    Hosts(hosts::HostsArgs),
    Links(links::LinksArgs),
    Unpause(unpause::UnpauseArgs),
    Classify(classify::ClassifyArgs),
    Detect(detect::DetectArgs),
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    BanRate(ban_rate::BanRateArgs),
    Stats(stats::StatsArgs),
    Query(query::QueryArgs),
    Importance(importance::ImportanceArgs),
    Priors(priors::PriorsArgs),
    ReplayPolicy(replay_policy::ReplayPolicyArgs),
    Rollout(rollout::RolloutArgs),
    Serve(serve::ServeArgs),
    Reload(reload::ReloadArgs),
    Fleet(fleet::FleetCommand),
    Identity(identity::IdentityCommand),
    /// Crawl demo sites on this machine and watch learning happen (needs fetchwise-lab)
    Demo(lab::LabArgs),
    /// Serve web sites on this machine that any crawler can be tested on (needs fetchwise-lab)
    Testbed(lab::LabArgs),
    #[command(flatten)]
    Maintain(maintenance::MaintainCommand),
    /// Compare policies in synthetic worlds, with a virtual clock and no network (needs
    /// fetchwise-lab)
    Simulate(lab::LabArgs),
    Config(config::ConfigArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

/// The commands as the help of the program lists them.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Crawl", &["fetch", "try", "fetchers", "serve", "reload"]),
    (
        "Look",
        &[
            "stats", "hosts", "links", "attempts", "explain", "select", "query", "ban-rate",
            "classify", "detect", "unpause",
        ],
    ),
    ("Log", &["import", "export", "snapshot", "compact", "verify", "repair", "forget"]),
    ("Many crawlers", &["fleet", "identity", "priors", "rollout"]),
    ("Try out", &["demo", "testbed", "simulate", "replay-policy", "importance"]),
    ("Set up", &["config", "completions", "man", "help"]),
];

/// Returns the command line whose help lists the commands in groups.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    let about = |name: &str| {
        let found = command.find_subcommand(name)?;
        let about = found.get_about()?.to_string();
        about.lines().next().map(str::to_owned)
    };
    let mut list = String::new();
    for (title, names) in GROUPS {
        list.push_str(&format!("{title}:\n"));
        for name in names {
            list.push_str(&format!("  {name:<15}{}\n", about(name).unwrap_or_default()));
        }
        list.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{{options}}{{after-help}}"
    );
    Cli::command().help_template(template)
}

impl Cli {
    /// Reads a command line, whose first word is the program's name.
    pub(crate) fn read_from<W: Into<std::ffi::OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(words)?;
        <Self as clap::FromArgMatches>::from_arg_matches(&matches)
            .map_err(|error| error.format(&mut command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let mut command = Cli::command();
        command.build();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let help = super::command().render_help().to_string();
        assert!(help.contains("\nLook:\n  stats          Sum up pages"), "{help}");
    }

    #[test]
    fn the_syntax_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_work_before_and_after_the_command() {
        for line in [
            "fetchwise --json --data-dir d select http://e.org",
            "fetchwise select http://e.org --data-dir d --json",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.global.json && cli.global.data_dir == Some("d".into()), "{line}");
        }
    }
}
