//! The syntax of the command line: the list of commands.
//!
//! The arguments of a command are in its own file, the global ones in `parse::global`. `setup::settings` resolves them.
//!
//! Must not know: files, the environment and the clock.

use clap::{Parser, Subcommand};

use super::{
    attempts, ban_rate, classify, completions, config, demo, explain, export, fetch, fetchers, fleet, hosts, identity,
    import, importance, links, maintenance, priors, query, replay_policy, rollout, select, serve, simulate, stats,
    testbed, try_url, unpause,
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
        newer format).",
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
    Fleet(fleet::FleetCommand),
    Identity(identity::IdentityCommand),
    Demo(demo::DemoArgs),
    Testbed(testbed::TestbedArgs),
    #[command(flatten)]
    Maintain(maintenance::MaintainCommand),
    Simulate(simulate::SimulateArgs),
    Config(config::ConfigArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_syntax_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_work_before_and_after_the_command() {
        for line in
            ["fetchwise --json --data-dir d select http://e.org", "fetchwise select http://e.org --data-dir d --json"]
        {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.global.json && cli.global.data_dir == Some("d".into()), "{line}");
        }
    }
}
