//! `compact`: removal of old raw attempts; their evidence stays.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::{bar, bytes, change};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note};
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::CompactOptions;
use fetchwise::rfc3339;

/// Remove old raw attempts and keep their evidence
///
/// If attempts have to go, takes snapshots first, so that evidence is the same before and after.
/// Also removes forgotten attempts, packs the others into columns and merges small segments. Works
/// alongside a running crawler, whose newest segment it does not touch. It can be interrupted at
/// any point.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise compact --dry-run\n  fetchwise compact --retain 30 --json"
)]
pub(crate) struct CompactArgs {
    /// Keep raw attempts for this many days [default: the config's log.retain_days, or 90]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(..=36_500))]
    pub(crate) retain: Option<u32>,
    /// Only report what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Trust the clock although it contradicts the times in the log or the file system's clock
    #[arg(long)]
    pub(crate) trust_clock: bool,
}

#[derive(Serialize)]
struct CompactJson {
    dry_run: bool,
    cutoff: String,
    attempts_before: u64,
    attempts_after: u64,
    forgotten: u64,
    segments_before: usize,
    segments_after: usize,
    bytes_before: u64,
    bytes_after: u64,
    snapshot_bytes: u64,
    weight_before: f64,
    weight_after: f64,
    writer_active: bool,
}

/// Runs the command.
pub(crate) fn run(
    args: &CompactArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let days =
        args.retain.or(settings.config.log.retain_days).unwrap_or(maintenance::DEFAULT_RETAIN_DAYS);
    let mut options = CompactOptions::default();
    let retain = Duration::from_secs(u64::from(days) * 86_400);
    (options.retain, options.trust_clock, options.dry_run) =
        (retain, args.trust_clock, args.dry_run);
    let dir = settings.existing_dir()?;
    let done = maintenance::compact(
        &dir,
        &settings.maintenance_selector()?,
        &options,
        settings.clock.now(),
        &mut bar(),
    )?;
    let cutoff = rfc3339::format(done.cutoff);
    if out.json {
        out.object(&CompactJson {
            dry_run: args.dry_run,
            cutoff,
            attempts_before: done.attempts.0,
            attempts_after: done.attempts.1,
            forgotten: done.forgotten,
            segments_before: done.segments.0,
            segments_after: done.segments.1,
            bytes_before: done.bytes.0,
            bytes_after: done.bytes.1,
            snapshot_bytes: done.snapshot_bytes,
            weight_before: done.weight.0,
            weight_after: done.weight.1,
            writer_active: done.writer_active,
        })?;
    } else {
        let would = if args.dry_run { " (dry run: nothing was changed)" } else { "" };
        out.line(format_args!("attempts  {}{would}", change(done.attempts.0, done.attempts.1)))?;
        out.line(format_args!(
            "segments  {}",
            change(done.segments.0 as u64, done.segments.1 as u64)
        ))?;
        out.line(format_args!("bytes     {} -> {}", bytes(done.bytes.0), bytes(done.bytes.1)))?;
        if done.snapshot_bytes > 0 {
            out.line(format_args!("snapshot  {}", bytes(done.snapshot_bytes)))?;
        }
        let removed = if args.dry_run { "would be removed" } else { "were removed" };
        let forgotten = match done.forgotten {
            0 => String::new(),
            count => format!(", {count} of them because they were forgotten"),
        };
        out.line(format_args!("attempts before {cutoff} {removed}{forgotten}"))?;
    }
    if done.writer_active {
        note("fetchwise: a crawler is running: the segment that it writes was not compacted");
    }
    Ok(Exit::Done)
}
