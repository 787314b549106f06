//! Short inspections of a journal: torn tail, records to fold at the next start, compaction cutoff.
//!
//! Owns: the inspections.
//!
//! Invariants: they only read.
//!
//! Must not know: how their results are used.

use std::path::Path;

use fetchwise_log::TornTail;

use crate::journal::error::JournalError;
use crate::journal::read::{SETTLE, open};
use crate::journal::recovery_point::{FoldStart, newest_snapshot};
use fetchwise_types::time::Timestamp;

/// Returns the torn tail that the last writer left, if it died in the middle of a write. It holds
/// no acknowledged entry. Cost: a pass over the last segment.
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
    // A live writer finishes its write within this time.
    std::thread::sleep(SETTLE);
    look()
}

/// Returns the number of records that the next start has to fold: those after the newest snapshot.
/// Cost: a pass over the last segment.
///
/// # Errors
/// As [`snapshot`](super::snapshot).
pub fn unsnapshotted_records(dir: &Path) -> Result<u64, JournalError> {
    let covered = newest_snapshot(dir)?.map_or(0, |found| found.meta().covers_seq);
    let reader = open(dir)?;
    let Some(last) = reader.segments().last() else { return Ok(0) };
    let index = reader.segments().len() - 1;
    let newest = match last.next_seq {
        Some(next) => next - 1,
        None => reader
            .segment_for_each(index, 0, |_, _| {})?
            .last_seq
            .unwrap_or(last.first_seq.saturating_sub(1)),
    };
    Ok(newest.saturating_sub(covered))
}

/// Returns the time before which attempts in `dir` may have been compacted away. A snapshot holds
/// their effect. Returns `None` if the log has not been compacted.
///
/// # Errors
/// When no snapshot can be read.
pub fn cutoff(dir: &Path) -> Result<Option<Timestamp>, JournalError> {
    Ok(FoldStart::newest(dir)?.contents.and_then(|contents| contents.cutoff))
}
