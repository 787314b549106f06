//! Reading the raw records: in order, without what a tombstone covers, beside a running writer.
//!
//! Owns: passes over the log, and what to do when a compaction or a living writer moves it meanwhile. Invariant: damage is never
//! skipped in silence. Must not know what attempts teach.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise_log::{Error as LogError, Reader, RecordRef, TornTail};
use uuid::Uuid;

use super::entry::Entry;
use super::error::JournalError;
use super::schema::{self, SchemaError};
use crate::journal::tombstones::Forgotten;

/// How long a torn tail is given to turn out as the unfinished write of a living writer.
pub(super) const SETTLE: Duration = Duration::from_millis(25);
/// How often a reader that compaction took a file away from starts anew.
pub(super) const REOPENINGS_MAX: u32 = 8;

/// What a pass over the log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Attempts delivered.
    pub attempts: u64,
    /// Entries of all kinds delivered.
    pub entries: u64,
    /// Attempts and other entries that a tombstone covers.
    pub forgotten: u64,
    /// Present when the last writer died in the middle of a write. Nothing that was acknowledged is missing.
    pub torn_tail: Option<TornTail>,
}

/// Shows every entry in `dir` to `f`, in order, those that a tombstone covers left out. A directory that does not exist is
/// an empty journal.
///
/// # Errors
/// [`JournalError::is_refusal`] when the log is damaged (reported after everything readable was shown) or newer than this
/// release.
pub fn replay(dir: &Path, mut f: impl FnMut(u64, Entry)) -> Result<Replayed, JournalError> {
    let forgotten = tombstones(dir, &mut |_| {})?;
    let mut found = Replayed::default();
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
    Ok(Replayed { torn_tail, ..found })
}

/// Every tombstone there is. Shows each attempt's place in the log to `f` on the way.
pub(super) fn tombstones(dir: &Path, f: &mut dyn FnMut(u64)) -> Result<Forgotten, JournalError> {
    let mut forgotten = Forgotten::default();
    pass(dir, |seq, record| {
        match record.kind {
            schema::kind::ATTEMPT => f(seq),
            _ => forgotten.look(seq, &record)?,
        }
        Ok(())
    })?;
    Ok(forgotten)
}

/// Shows the id of every attempt in `dir` to `f`.
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

/// One pass over all records. Says how the log ended.
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
            Err(LogError::Replaced { .. }) if reopenings < REOPENINGS_MAX => {
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
        // A writer that is alive will have finished its write by then. What a dead one left does not change.
        std::thread::sleep(SETTLE);
        settled = true;
    }
}

/// A reader of segments that this release can read.
pub(super) fn open(dir: &Path) -> Result<Reader, JournalError> {
    let reader = Reader::open(dir)?;
    reader.check_fingerprints(&schema::readable())?;
    Ok(reader)
}
