//! The command line's syntax: the options of every command, and the list of commands. What a command takes beside them stands
//! in its own file; `settings` says what it all means together.
//!
//! Must not read files, the environment or the clock.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{
    ban_rate, classify, demo, explain, export, fetch, import, importance, maintain, manual, query, replay_policy,
    select, simulate, stats,
};
use fetchwise::rfc3339;
use fetchwise::router::Mode;
use fetchwise::time::Timestamp;

/// Everything that can be written on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "fetchwise",
    version,
    about = "Learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned",
    long_about = "Learns which fetcher (a plain request, a browser, a stealth browser, an archive, ...) works for which URL, \
        from the attempts it makes or is told of, and keeps a crawler from getting its IP address banned.\n\n\
        Results go to stdout, progress and messages to stderr. With --json every result is one JSON object on one line.",
    after_help = "Examples:\n  \
        fetchwise fetch https://example.org/ --out pages      fetch a page and learn from it\n  \
        fetchwise select https://example.org/a.pdf            which fetcher would be used\n  \
        fetchwise explain https://example.org/a.pdf           why\n  \
        fetchwise import attempts.jsonl                       learn from attempts made elsewhere\n\n\
        Exit codes: 0 done, 1 failed, 2 bad usage or config, 3 refused (data directory locked, damaged, of a newer format).",
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

/// Options of every command, before or after its name.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GlobalArgs {
    /// Where the attempt log is [default: $FETCHWISE_DATA_DIR, the config's data_dir, or the system's place for data]
    #[arg(long, global = true, overrides_with = "data_dir", value_name = "DIR", help_heading = "Global options")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Settings
    #[arg(long, global = true, overrides_with = "config", value_name = "FILE.toml", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// The table of domains and fetchers for the modes legacy, shadow and split (TOML or CSV)
    #[arg(long, global = true, overrides_with = "router", value_name = "FILE", help_heading = "Global options")]
    pub(crate) router: Option<PathBuf>,
    /// More detection rules (TOML), beside the shipped ones
    #[arg(long, global = true, overrides_with = "rules", value_name = "FILE", help_heading = "Global options")]
    pub(crate) rules: Option<PathBuf>,
    /// Who decides: evidence, the router table, both, or a share each [default: learning]
    #[arg(long, global = true, overrides_with = "mode", value_name = "MODE", help_heading = "Global options")]
    pub(crate) mode: Option<ModeArg>,
    /// One JSON object a line on stdout
    #[arg(long, global = true, overrides_with = "json", help_heading = "Global options")]
    pub(crate) json: bool,
    /// What time it is, for tests
    #[arg(long, global = true, overrides_with = "now", hide = true, value_name = "RFC3339", value_parser = rfc3339::parse)]
    pub(crate) now: Option<Timestamp>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Fetch(fetch::FetchArgs),
    Select(select::SelectArgs),
    Explain(explain::ExplainArgs),
    Classify(classify::ClassifyArgs),
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    BanRate(ban_rate::BanRateArgs),
    Stats(stats::StatsArgs),
    Query(query::QueryArgs),
    Importance(importance::ImportanceArgs),
    ReplayPolicy(replay_policy::ReplayPolicyArgs),
    Demo(demo::DemoArgs),
    #[command(flatten)]
    Maintain(maintain::MaintainCommand),
    Simulate(simulate::SimulateArgs),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Evidence, with probes where there is none
    Learning,
    /// The router table only
    Legacy,
    /// The router table serves; what evidence would have said is logged
    Shadow,
    /// A share of the domains each
    Split,
}

impl From<ModeArg> for Mode {
    fn from(arg: ModeArg) -> Self {
        match arg {
            ModeArg::Learning => Self::Learning,
            ModeArg::Legacy => Self::Legacy,
            ModeArg::Shadow => Self::Shadow,
            ModeArg::Split => Self::Split,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_syntax_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in
            ["fetchwise --json --data-dir d select http://e.org", "fetchwise select http://e.org --data-dir d --json"]
        {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.global.json && cli.global.data_dir == Some(PathBuf::from("d")), "{line}");
        }
    }
}
