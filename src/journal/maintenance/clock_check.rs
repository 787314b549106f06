//! Plausibility check of the clock before a snapshot is taken or attempts are dropped for their
//! age.
//!
//! A log that has been idle, perhaps on a machine that was switched off, looks as old as a log
//! whose clock has jumped ahead. The file system tells them apart: its own clock, and the times at
//! which the log's files were last written.
//!
//! Owns: the rule.
//!
//! Invariants: the check changes nothing.
//!
//! Must not know: what depends on its result.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::journal::error::{ClockWitness, JournalError};
use fetchwise_types::time::Timestamp;

/// How maintenance uses the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockUse {
    /// An implausible clock is an error.
    Check,
    /// Maintenance that cannot wait, because the disk is full: instead of an implausible clock's
    /// time, the present of the last snapshot counts.
    Replace,
    /// Somebody has confirmed the clock.
    Trust,
}

impl ClockUse {
    /// Returns the time that counts as the present, given that of the last snapshot.
    pub(super) fn present(self, now: Timestamp, last: Option<Timestamp>) -> Timestamp {
        match (self, last) {
            (Self::Trust, _) | (_, None) => now,
            (Self::Replace, Some(last)) if last >= EARLIEST && now.since(last) > MAX_IDLE => last,
            (Self::Check | Self::Replace, Some(last)) => last.max(now),
        }
    }
}

/// 2020, before the first release: an earlier time is that of a machine whose clock was not set,
/// and says nothing about when a log was used.
const EARLIEST: Timestamp = Timestamp::from_millis(1_577_836_800_000);

/// Age of the newest record above which the clock is checked, and the largest plausible difference
/// between two clocks.
const MAX_JUMP: Duration = Duration::from_secs(48 * 3600);
/// Time without a write after which a log does not count as idle.
const MAX_IDLE: Duration = Duration::from_secs(400 * 86_400);

/// Lock file of maintenance. The caller has just locked it and written to it.
const MAINT_LOCK: &str = "MAINT.LOCK";

/// Rejects an implausible `now`. The caller holds the maintenance lock of `dir`, and has changed
/// nothing else yet.
///
/// The clock is plausible if the newest record is at most two days old. It is also plausible if it
/// agrees with that of the file system and the log's files have been written within the last 400
/// days: then the log was idle. Every crawl writes some file, and so does every compaction of a log
/// with two snapshots, so a timer keeps a log plausible for as long as the machine runs.
pub(super) fn check(dir: &Path, newest: Timestamp, now: Timestamp) -> Result<(), JournalError> {
    if newest == Timestamp::default() || now.since(newest) <= MAX_JUMP {
        // The log is empty, or the newest record is recent.
        return Ok(());
    }
    let refused = |witness: ClockWitness| {
        Err(JournalError::ClockJump { hours: now.since(newest).as_secs() / 3600, witness })
    };
    match modified(&dir.join(MAINT_LOCK)) {
        Some(disk) if now.since(disk) <= MAX_JUMP => {}
        _ => return refused(ClockWitness::FileSystem),
    }
    let seen = files(dir).chain([newest]).max().unwrap_or(newest);
    if now.since(seen) > MAX_IDLE {
        return refused(ClockWitness::Idle { days: MAX_IDLE.as_secs() / 86_400 });
    }
    Ok(())
}

/// Rejects a `now` that contradicts the log's own times: those of its records (`latest` is the
/// newest, even if it is in the future), and the present of the last snapshot. Records count only
/// if the files were written as late, because a record may be imported with any time.
pub(super) fn check_own_times(
    dir: &Path,
    latest: Timestamp,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), JournalError> {
    let by_records = files(dir).max().map_or(latest, |written| written.min(latest));
    let seen = last.map_or(by_records, |last| last.max(by_records));
    if seen.since(now) > MAX_JUMP {
        return Err(JournalError::ClockBehind { hours: seen.since(now).as_secs() / 3600 });
    }
    let idle = last
        .filter(|last| *last >= EARLIEST)
        .map_or(Duration::ZERO, |last| latest.min(now).since(last));
    if idle > MAX_IDLE {
        return Err(JournalError::ClockAhead { days: idle.as_secs() / 86_400 });
    }
    Ok(())
}

/// Returns the times at which the log's segments, snapshots and manifests were written. Locks do
/// not count, because a rejected process touches them, too.
fn files(dir: &Path) -> impl Iterator<Item = Timestamp> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_ours = |name: &str| {
        name.ends_with(".fwl") || name.ends_with(".fws") || name == "SNAPSHOT" || name == "SEGMENTS"
    };
    entries
        .filter(move |entry| entry.file_name().to_str().is_some_and(is_ours))
        .filter_map(|entry| modified(&entry.path()))
}

fn modified(path: &Path) -> Option<Timestamp> {
    let since = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}
