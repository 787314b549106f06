//! `snapshot`: the evidence of all records in one file, so that the next start need not read them.

use clap::Args;
use serde::Serialize;

use super::{bar, bytes};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Output;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::SnapshotOptions;

/// Save the evidence of all attempts, so that the next start is fast
///
/// A start reads the newest snapshot and the later attempts. Two snapshots are kept; if the newest
/// one is damaged, the one before it is used and nothing is lost. Works alongside a running
/// crawler.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise snapshot")]
pub(crate) struct SnapshotArgs {
    /// Trust the clock although it contradicts the times in the log
    #[arg(long)]
    pub(crate) trust_clock: bool,
}

#[derive(Serialize)]
struct SnapshotJson {
    covers_seq: u64,
    records: u64,
    entries: u64,
    cells: u64,
    links: u64,
    hosts: u64,
    file: Option<String>,
    bytes: u64,
}

/// Runs the command.
pub(crate) fn run(
    args: &SnapshotArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut options = SnapshotOptions::default();
    options.trust_clock = args.trust_clock;
    let taken = maintenance::snapshot_with(
        &settings.existing_dir()?,
        &settings.maintenance_selector()?,
        &options,
        settings.clock.now(),
        &mut bar(),
    )?;
    let file = taken
        .file
        .as_deref()
        .and_then(|path| path.file_name())
        .map(|name| name.to_string_lossy().into_owned());
    if out.json {
        out.object(&SnapshotJson {
            covers_seq: taken.covers_seq,
            records: taken.records,
            entries: taken.entries,
            cells: taken.cells,
            links: taken.links,
            hosts: taken.hosts,
            file,
            bytes: taken.bytes,
        })?;
        return Ok(Exit::Done);
    }
    match file {
        Some(file) => out.line(format_args!(
            "{file}: {} keys, {} cells, {} links, {} hosts; covers records up to {}, {} of them new ({})",
            taken.entries,
            taken.cells,
            taken.links,
            taken.hosts,
            taken.covers_seq,
            taken.records,
            bytes(taken.bytes)
        ))?,
        None if taken.covers_seq == 0 => out.line("nothing has been learned yet")?,
        None => out.line(format_args!("nothing new since the snapshot that covers record {}", taken.covers_seq))?,
    }
    Ok(Exit::Done)
}
