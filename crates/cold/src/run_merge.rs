//! A merge of buffers or runs into a new run, in steps.
//!
//! Owns: the unfinished run.
//!
//! Invariant: what was merged stays as it is until the new run is finished and takes its place.
//!
//! Must not know: which runs are merged, and when.

use crate::error::Result;
use crate::run::Run;
use crate::run_writer::RunWriter;
use crate::sorted_merge::SortedMerge;

/// A merge under way.
#[derive(Debug)]
pub(crate) struct RunMerge {
    entries: SortedMerge,
    writer: RunWriter,
    keeps_tombstones: bool,
}

impl RunMerge {
    /// Tombstones are needed as long as there are older runs than the merged ones.
    pub(crate) fn new(entries: SortedMerge, writer: RunWriter, keeps_tombstones: bool) -> Self {
        Self { entries, writer, keeps_tombstones }
    }

    /// Reads entries of about `bytes`; returns true at the end of the entries. After an error the
    /// merge is of no use.
    pub(crate) fn step(&mut self, bytes: u64) -> Result<bool> {
        let mut left = bytes.max(1);
        while left > 0 {
            let Some((key, value)) = self.entries.next()? else { return Ok(true) };
            left = left.saturating_sub(16 + value.map_or(0, <[u8]>::len) as u64);
            if value.is_some() || self.keeps_tombstones {
                self.writer.push(key, value)?;
            }
        }
        Ok(false)
    }

    /// Completes the run; none if there is no entry.
    pub(crate) fn finish(self) -> Result<Option<Run>> {
        self.writer.finish()
    }
}
