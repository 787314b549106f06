//! `import`: learning from attempts that were made elsewhere.
//!
//! `directory` is the place that is imported into, and the fleet that hears of it. `lines` reads JSON lines, `pocketbase` a database of the system that keeps its attempts in PocketBase, `target` is where both put
//! what they read. Invariant: what cannot be used is named and keeps nothing else from being imported; importing the same again
//! changes nothing.

use std::path::PathBuf;

use clap::Args;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Out;

mod directory;
mod lines;
mod pocketbase;
mod target;

/// Learn from attempts in a JSON lines file or in a PocketBase database
///
/// Needs `url`, `fetcher`, `success` and `attempted_at` (RFC 3339, or milliseconds since 1970) on each line; everything else may
/// be left out. A line that cannot be used is named and the rest imported. Importing twice changes nothing. With --fleet all nodes learn
/// from what is imported, as from this node's own attempts.
#[derive(Debug, Args)]
#[command(after_help = "Example line:\n  \
    {\"url\": \"https://example.org/\", \"fetcher\": \"playwright\", \"success\": true, \"attempted_at\": \"2026-01-31T12:00:00Z\"}\n\n\
    Examples:\n  fetchwise import attempts.jsonl\n  zcat old.jsonl.gz | fetchwise import -\n  \
    fetchwise import --pocketbase pb_data/data.db\n  \
    fetchwise import --fleet nats://127.0.0.1:4222 attempts.jsonl")]
pub(crate) struct ImportArgs {
    /// The attempts; - reads stdin
    #[arg(value_name = "FILE.jsonl", required_unless_present = "pocketbase", conflicts_with = "pocketbase")]
    pub(crate) file: Option<PathBuf>,

    /// A PocketBase database, or the directory it is in: its fetcher_attempts, attempt_heuristics, links and fetcher_router
    ///
    /// The database is only read. Its router table and the links that have a mode of their own are written to the data directory, as
    /// pocketbase-router.csv (for --router) and pocketbase-links.jsonl (for fetch --input).
    #[arg(long, value_name = "DATA.db")]
    pub(crate) pocketbase: Option<PathBuf>,

    /// Name links by their record ids, for a crawler that goes on naming them so; otherwise a link is its URL
    #[arg(long, requires = "pocketbase")]
    pub(crate) link_ids: bool,

    #[cfg(feature = "fleet")]
    #[command(flatten)]
    pub(crate) fleet: super::fleet::FleetArgs,
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    match (&args.pocketbase, &args.file) {
        (Some(database), _) => pocketbase::run(database, args, settings, out),
        (None, Some(file)) => lines::run(file, args, settings, out),
        (None, None) => Err(Failure::usage("name a file of attempts, or a database with --pocketbase")),
    }
}
