//! Recovery point of a start: the newest good snapshot, and a reader of the records after it.
//!
//! Owns: the order in which both are opened, and what counts as the present of a start.
//!
//! Invariants: the reader is opened first, so that a compaction in between removes nothing that the
//! snapshot lacks.
//!
//! Must not know: what either teaches.

use std::cell::Cell;
use std::path::Path;

use fetchwise_log::{Damage, Reader, Snapshot, SnapshotSearch};

use super::error::JournalError;
use super::read::open;
use super::snapshot::{self, SnapshotContents};
use fetchwise_types::time::Timestamp;

/// Snapshot that a start began with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryPoint {
    /// Last record whose effect the snapshot holds.
    pub covers_seq: u64,
    /// Time at which the snapshot was taken, or that counted as the present for a checkpoint.
    pub taken: Timestamp,
    /// Newer snapshots that are damaged. They cost no data, only a longer replay.
    pub rejected: Vec<Damage>,
}

/// Starting point of a fold.
#[derive(Debug, Default)]
pub(super) struct FoldStart {
    /// Reader that was opened before the search for the snapshot, so that a compaction in between
    /// removes nothing that the snapshot lacks.
    pub(super) reader: Option<Reader>,
    /// What the snapshot holds, without its groups of entries if `snapshot` has them.
    pub(super) contents: Option<SnapshotContents>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) started: Option<RecoveryPoint>,
}

impl FoldStart {
    /// Returns the newest good snapshot of `dir`, with a reader.
    pub(super) fn newest(dir: &Path) -> Result<Self, JournalError> {
        let reader = Some(open(dir)?);
        let (search, contents) = load_decoded(dir)?;
        let Some(found) = search.snapshot else {
            // No snapshot is good, but the segments still hold every record. So all of them are
            // replayed.
            let started = (!search.rejected.is_empty())
                .then(|| RecoveryPoint { rejected: search.rejected, ..RecoveryPoint::default() });
            return Ok(Self { reader, contents: None, snapshot: None, started });
        };
        let started =
            Some(RecoveryPoint { rejected: search.rejected, ..RecoveryPoint::of(&found) });
        Ok(Self { reader, contents, snapshot: Some(found), started })
    }

    /// Returns the time that counted as the present when the snapshot was taken.
    pub(super) fn last_present(&self) -> Option<Timestamp> {
        self.contents.as_ref().map(|contents| contents.now)
    }

    /// Returns the time that counts as the present: the clock's, but never earlier than that of the
    /// snapshot. Otherwise a board that boots in 1970 would regard all evidence as made in the
    /// future.
    pub(super) fn present(&self, now: Timestamp) -> Timestamp {
        self.last_present().map_or(now, |last| last.max(now))
    }

    /// Returns a start from this snapshot, without a reader.
    pub(super) fn of(found: Snapshot) -> Result<Self, JournalError> {
        let contents = Some(snapshot::decode_without_groups(&found)?);
        let started = Some(RecoveryPoint::of(&found));
        Ok(Self { reader: None, contents, snapshot: Some(found), started })
    }

    /// Returns whether the snapshot has evidence of this domain. Cost: a pass over all entries.
    pub(super) fn has_domain(&self, domain: &str) -> Result<bool, JournalError> {
        let Some(contents) = &self.contents else { return Ok(false) };
        let mut rows = contents.image.without_rows();
        for group in self.snapshot.iter().flat_map(snapshot::groups) {
            rows.clear_rows();
            if let Some(found) = &self.snapshot {
                snapshot::read_group(found, &group, &mut rows)?;
            }
            if rows.has_domain(domain) {
                return Ok(true);
            }
        }
        Ok(contents.image.has_domain(domain))
    }

    /// Returns everything that the snapshot holds.
    #[cfg(test)]
    pub(super) fn whole(self) -> Result<Option<SnapshotContents>, JournalError> {
        match &self.snapshot {
            Some(found) => Ok(Some(snapshot::decode(found)?)),
            None => Ok(self.contents),
        }
    }
}

/// Returns the newest good snapshot that this release can decode, with its contents. Any other
/// counts as damaged, except for one of a newer release, which is left to that release.
fn load_decoded(dir: &Path) -> Result<(SnapshotSearch, Option<SnapshotContents>), JournalError> {
    let (contents, newer) = (Cell::new(None), Cell::new(None));
    let check = |found: &Snapshot| match snapshot::decode_without_groups(found) {
        Ok(decoded) => {
            contents.set(Some(decoded));
            Ok(None)
        }
        Err(error) if error.is_newer() => {
            newer.set(Some(error));
            Ok(Some(snapshot::NEWER))
        }
        Err(error) => error.content().map(Some),
    };
    let search = fetchwise_log::load_snapshot_checked(dir, &check);
    match newer.take() {
        Some(error) => Err(error.into()),
        None => Ok((search?, contents.take())),
    }
}

/// Loads the newest good snapshot that this release can decode.
pub(super) fn newest_snapshot(dir: &Path) -> Result<Option<Snapshot>, JournalError> {
    Ok(load_decoded(dir)?.0.snapshot)
}

impl RecoveryPoint {
    /// Returns the point of a checkpoint with these contents.
    pub(super) fn of_checkpoint(contents: &SnapshotContents) -> Self {
        Self { covers_seq: contents.covers_seq, taken: contents.now, rejected: Vec::new() }
    }

    fn of(found: &Snapshot) -> Self {
        let meta = found.meta();
        Self {
            covers_seq: meta.covers_seq,
            taken: Timestamp::from_millis(meta.taken_ms),
            rejected: Vec::new(),
        }
    }
}
