//! Short looks at a journal: how its last writer ended, how much the next start has to fold, what may be gone.
//!
//! Owns: nothing but the answers. Invariant: reads only. Must not know what is done about them.

use std::path::Path;

use fetchwise_log::TornTail;

use crate::journal::error::JournalError;
use crate::journal::read::{SETTLE, open};
use crate::journal::recovery_point::Start;
use fetchwise_types::time::Timestamp;

/// The torn tail that the last writer left, if it died in the middle of a write. Nothing that was acknowledged is in it. Cost: a
/// pass over the last segment.
///
/// # Errors
/// As [`snapshot`](super::snapshot).
pub fn torn_tail(dir: &Path) -> Result<Option<TornTail>, JournalError> {
    let look = || {
        let reader = open(dir)?;
        match reader.segments().len().checked_sub(1) {
            Some(last) => Ok(reader.segment_for_each(last, 0, |_, _| {})?.torn),
            None => Ok(None),
        }
    };
    let seen: Result<_, JournalError> = look();
    if seen?.is_none() {
        return Ok(None);
    }
    // A writer that is alive will have finished its write by then.
    std::thread::sleep(SETTLE);
    look()
}

/// How many records the next start has to fold: those behind the newest snapshot. Cost: a pass over the last
/// segment.
///
/// # Errors
/// As [`snapshot`](super::snapshot).
pub fn unsnapshotted_records(dir: &Path) -> Result<u64, JournalError> {
    let covered = fetchwise_log::load_snapshot(dir)?.snapshot.map_or(0, |found| found.meta().covers_seq);
    let reader = open(dir)?;
    let Some(last) = reader.segments().last() else { return Ok(0) };
    let index = reader.segments().len() - 1;
    let newest = match last.next_seq {
        Some(next) => next - 1,
        None => reader.segment_for_each(index, 0, |_, _| {})?.last_seq.unwrap_or(last.first_seq.saturating_sub(1)),
    };
    Ok(newest.saturating_sub(covered))
}

/// Whether the newest snapshot was taken by a release that kept less: a start makes up for that by reading the whole log, until the
/// next snapshot is taken. Cost: the snapshot is read.
///
/// # Errors
/// When no snapshot can be read.
pub fn needs_snapshot(dir: &Path) -> Result<bool, JournalError> {
    Ok(Start::newest(dir)?.contents.is_some_and(|contents| contents.lacks_days))
}

/// Attempts in `dir` that are older than this may have been compacted away: what they taught is in a snapshot. None where no
/// compaction has been.
///
/// # Errors
/// When no snapshot can be read.
pub fn cutoff(dir: &Path) -> Result<Option<Timestamp>, JournalError> {
    Ok(Start::newest(dir)?.contents.and_then(|contents| contents.cutoff))
}
