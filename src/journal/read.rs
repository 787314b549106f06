//! Passes over the raw records of a log, in order, alongside a running writer.
//!
//! Owns: passes over the log, and the retries when a compaction or a live writer changes it
//! meanwhile.
//!
//! Invariants: damage is never skipped silently. Entries that a tombstone covers are left out.
//!
//! Must not know: what attempts teach.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise_log::{Error as LogError, Reader, RecordRef, ResumeMark, TornTail};
use uuid::Uuid;

use super::entry::Entry;
use super::error::JournalError;
use super::schema::{self, SchemaError};
use crate::journal::tombstones::TombstoneSet;

/// Time after which a torn tail is no longer taken for the unfinished write of a live writer.
pub(super) const SETTLE: Duration = Duration::from_millis(25);
/// Number of times that a reader starts again after a compaction removed a file that it was
/// reading.
pub(super) const MAX_REOPENINGS: u32 = 8;

/// Result of a pass over the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Attempts delivered.
    pub attempts: u64,
    /// Entries of all kinds delivered.
    pub entries: u64,
    /// Attempts and other entries that a tombstone covers.
    pub forgotten: u64,
    /// Torn tail, if the last writer died in the middle of a write. No acknowledged entry is
    /// missing.
    pub torn_tail: Option<TornTail>,
}

/// Calls `f` with every entry in `dir`, in order, without those that a tombstone covers. A
/// directory that does not exist is an empty journal.
///
/// # Errors
/// [`JournalError::is_refusal`] when the log is damaged (reported after `f` received everything
/// readable) or newer than this release.
pub fn replay(dir: &Path, mut f: impl FnMut(u64, Entry)) -> Result<ReplayReport, JournalError> {
    let forgotten = tombstones(dir, &mut |_| {})?;
    let mut found = ReplayReport::default();
    let torn_tail = pass(dir, |seq, record| {
        let entry = schema::decode(record.kind, record.schema, record.payload)?;
        if forgotten.covers(seq, &entry) {
            found.forgotten += 1;
            return Ok(());
        }
        found.entries += 1;
        found.attempts += u64::from(matches!(entry, Entry::Attempt(_)));
        f(seq, entry);
        Ok(())
    })?;
    Ok(ReplayReport { torn_tail, ..found })
}

/// Returns all tombstones. Calls `f` with the sequence number of each attempt on the way.
pub(super) fn tombstones(dir: &Path, f: &mut dyn FnMut(u64)) -> Result<TombstoneSet, JournalError> {
    let mut forgotten = TombstoneSet::default();
    pass(dir, |seq, record| {
        match record.kind {
            schema::kind::ATTEMPT => f(seq),
            _ => forgotten.add_record(seq, &record)?,
        }
        Ok(())
    })?;
    Ok(forgotten)
}

/// Calls `f` with the id of every attempt in `dir`.
///
/// # Errors
/// As [`replay`].
pub fn ids(dir: &Path, mut f: impl FnMut(Uuid)) -> Result<(), JournalError> {
    pass(dir, |_, record| {
        if let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)? {
            f(attempt.id());
        }
        Ok(())
    })
    .map(|_| ())
}

/// Passes over all records once. Returns the torn tail, if there is one.
pub(super) fn pass(
    dir: &Path,
    mut f: impl FnMut(u64, RecordRef<'_>) -> Result<(), SchemaError>,
) -> Result<Option<TornTail>, JournalError> {
    let (mut next, mut failed, mut reopenings, mut settled) = (0, None, 0, false);
    loop {
        let reader = open(dir)?;
        let read = reader.for_each_from(next, |seq, record| {
            next = seq + 1;
            if failed.is_none()
                && let Err(error) = f(seq, record)
            {
                failed = Some(JournalError::Record { seq, source: Arc::new(error) });
            }
        });
        let summary = match read {
            Err(LogError::Replaced { .. }) if reopenings < MAX_REOPENINGS => {
                reopenings += 1;
                continue;
            }
            other => other?,
        };
        if !summary.damage.is_empty() {
            return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if summary.torn.is_none() || settled {
            return Ok(summary.torn);
        }
        // A live writer finishes its write within this time. The torn tail of a dead one stays.
        std::thread::sleep(SETTLE);
        settled = true;
    }
}

/// Calls `f` with the records from `from` up to `upto`. Starts at `mark` if that is on the way.
pub(super) fn pass_range(
    dir: &Path,
    from: u64,
    mut f: impl FnMut(u64, RecordRef<'_>) -> Result<(), SchemaError>,
    upto: u64,
    mark: &mut ResumeMark,
) -> Result<(), JournalError> {
    let (mut next, mut failed) = (from, None);
    for _ in 0..=MAX_REOPENINGS {
        let reader = open(dir)?;
        let segments: Vec<_> = reader.segments().collect();
        let mut is_replaced = false;
        for (index, segment) in segments.iter().enumerate() {
            if segment.first_seq > upto || segment.next_seq.is_some_and(|end| end <= next) {
                continue;
            }
            let read = reader.segment_for_each_marked(index, (next, upto), mark, |seq, record| {
                next = seq + 1;
                if failed.is_none()
                    && let Err(error) = f(seq, record)
                {
                    failed = Some(JournalError::Record { seq, source: Arc::new(error) });
                }
            });
            match read {
                Err(LogError::Replaced { .. }) => {
                    is_replaced = true;
                    break;
                }
                Ok(summary) if !summary.damage.is_empty() => {
                    return Err(
                        LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into()
                    );
                }
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(error) = failed.take() {
                return Err(error);
            }
        }
        if !is_replaced {
            return Ok(());
        }
    }
    Err(LogError::Replaced { file: dir.to_owned() }.into())
}

/// Returns a reader, after it has checked that this release can read the segments.
pub(super) fn open(dir: &Path) -> Result<Reader, JournalError> {
    let reader = Reader::open(dir)?.with_blocks(&schema::BLOCKS);
    reader.check_fingerprints(&[schema::fingerprint()])?;
    Ok(reader)
}
