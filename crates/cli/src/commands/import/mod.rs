//! `import`: learning from attempts of another crawler.
//!
//! `directory` is the data directory to write, and the fleet that is notified. `lines` reads JSON
//! lines and, with `csv_rows` and `parquet_rows`, CSV and Parquet; `pocketbase` reads a PocketBase
//! database. Both pass attempts to `target`.
//!
//! Invariants: an invalid record is reported and does not keep others from being imported. A second
//! import of the same input changes nothing.

use std::path::PathBuf;

use clap::Args;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Output;

mod csv_rows;
mod data_dir;
mod lines;
#[cfg(feature = "parquet")]
mod parquet_rows;
#[cfg(feature = "sqlite")]
mod pocketbase;
mod target;

/// Learn from attempts in a file of JSON lines, CSV or Parquet, or in a PocketBase database
///
/// Each line needs `url`, `fetcher`, `success` and `attempted_at` (RFC 3339, or milliseconds since 1970);
/// all other fields are optional. CSV and Parquet have columns of the same names, as `export`
/// writes them. The first bytes of the file tell its format. An invalid line is reported, and the
/// rest is imported. A second import changes nothing. With --fleet, all nodes learn from the
/// imported attempts as from this node's own.
#[derive(Debug, Args)]
#[command(after_help = "Example line:\n  \
    {\"url\": \"https://example.org/\", \"fetcher\": \"playwright\", \"success\": true, \"attempted_at\": \
    \"2026-01-31T12:00:00Z\"}\n\n\
    Examples:\n  fetchwise import attempts.jsonl\n  fetchwise import attempts.parquet\n  zcat old.jsonl.gz | fetchwise import -\n  \
    fetchwise import --pocketbase pb_data/data.db\n  \
    fetchwise import --fleet nats://127.0.0.1:4222 attempts.jsonl")]
pub(crate) struct ImportArgs {
    /// Read attempts from this file; - reads stdin
    #[arg(
        value_name = "FILE",
        required_unless_present = "pocketbase",
        conflicts_with = "pocketbase"
    )]
    pub(crate) file: Option<PathBuf>,

    /// Import a PocketBase database, or the one in this directory
    ///
    /// Reads the tables fetcher_attempts, attempt_heuristics, links and fetcher_router, and never
    /// writes the database. Writes the router table to pocketbase-router.csv (for --router) and
    /// links with their own mode to pocketbase-links.jsonl (for fetch --input), both in the data
    /// directory.
    #[arg(long, value_name = "DATA.db")]
    pub(crate) pocketbase: Option<PathBuf>,

    /// Name links by their record ids instead of their URLs, for a crawler that uses these ids
    #[arg(long, requires = "pocketbase")]
    pub(crate) link_ids: bool,

    #[command(flatten)]
    pub(crate) fleet: super::fleet::FleetArgs,
}

/// Runs the command.
pub(crate) fn run(
    args: &ImportArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    super::fleet::check(settings, &args.fleet)?;
    match (&args.pocketbase, &args.file) {
        #[cfg(feature = "sqlite")]
        (Some(database), _) => pocketbase::run(database, args, settings, out),
        #[cfg(not(feature = "sqlite"))]
        (Some(_), _) => Err(Failure::missing_feature("import --pocketbase", "sqlite")),
        (None, Some(file)) => lines::run(file, args, settings, out),
        (None, None) => Err(Failure::usage("missing input: expected FILE or --pocketbase DATA.db")),
    }
}
