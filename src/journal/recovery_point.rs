//! Where a start begins: the newest good snapshot, and a reader of what came later.
//!
//! Owns: the order of opening both. Invariant: the reader is opened first, so that a compaction in between takes nothing away that
//! the snapshot lacks. Must not know what either teaches.

use std::path::Path;

use fetchwise_log::{Damage, Reader, Snapshot};

use super::error::JournalError;
use super::read::open;
use super::snapshot::{self, Contents};
use fetchwise_types::time::Timestamp;

/// The snapshot that a start began with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Started {
    /// It holds what the records up to here taught.
    pub covers_seq: u64,
    /// When it was taken.
    pub taken: Timestamp,
    /// The newer one, when that is damaged: nothing is lost by it, more was replayed.
    pub rejected: Vec<Damage>,
}

/// Where a fold begins.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// Opened before the snapshot was looked for, so that a compaction in between takes nothing away that the snapshot lacks.
    pub(super) reader: Option<Reader>,
    pub(super) contents: Option<Contents>,
    pub(super) started: Option<Started>,
}

impl Start {
    /// The newest good snapshot of `dir`.
    pub(super) fn newest(dir: &Path) -> Result<Self, JournalError> {
        let reader = Some(open(dir)?);
        let search = fetchwise_log::load_snapshot(dir)?;
        let Some(found) = search.snapshot else {
            // No snapshot is good, but no record is gone from the segments either. So all of them are replayed.
            let started =
                (!search.rejected.is_empty()).then(|| Started { rejected: search.rejected, ..Started::default() });
            return Ok(Self { reader, contents: None, started });
        };
        let started = Some(Started { rejected: search.rejected, ..Started::of(&found) });
        Ok(Self { reader, started, ..Self::of(&found)? })
    }

    /// This snapshot.
    pub(super) fn of(found: &Snapshot) -> Result<Self, JournalError> {
        Ok(Self { reader: None, contents: Some(snapshot::decode(found)?), started: Some(Started::of(found)) })
    }
}

impl Started {
    fn of(found: &Snapshot) -> Self {
        let meta = found.meta();
        Self { covers_seq: meta.covers_seq, taken: Timestamp::from_millis(meta.taken_ms), rejected: Vec::new() }
    }
}
