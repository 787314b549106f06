//! A merge of buffers or runs into new runs, in steps.
//!
//! Owns: the unfinished runs, and their removal if the merge does not end.
//!
//! Invariant: what was merged stays as it is until the new runs are finished and take its place.
//!
//! Must not know: which runs are merged, and when.

use std::sync::Arc;

use fetchwise_log::fs::Fs;

use crate::error::Result;
use crate::run::Run;
use crate::run_part::{PARTS, part_of};
use crate::run_set::Placed;
use crate::run_writer::RunWriter;
use crate::sorted_merge::SortedMerge;

/// Creates the file of a run.
pub(crate) type NewRun<'n> = &'n mut dyn FnMut() -> Result<RunWriter>;

/// A merge under way.
#[derive(Debug)]
pub(crate) struct RunMerge {
    fs: Arc<dyn Fs>,
    entries: SortedMerge,
    /// Whether each new run has keys of one part.
    splits: bool,
    /// Tombstones are needed as long as there are older runs than the merged ones.
    keeps_tombstones: [bool; PARTS],
    writer: Option<(Option<usize>, RunWriter)>,
    /// Finished runs, until all are.
    done: Vec<(Option<usize>, Run)>,
}

impl RunMerge {
    /// Merges entries into one run with keys of every part.
    pub(crate) fn young(fs: Arc<dyn Fs>, entries: SortedMerge, keeps_tombstones: bool) -> Self {
        let keeps_tombstones = [keeps_tombstones; PARTS];
        Self { fs, entries, splits: false, keeps_tombstones, writer: None, done: Vec::new() }
    }

    /// Merges entries into a run for each part. `has_older` says which parts have older runs.
    pub(crate) fn into_parts(
        fs: Arc<dyn Fs>,
        entries: SortedMerge,
        has_older: [bool; PARTS],
    ) -> Self {
        let (splits, keeps_tombstones) = (true, has_older);
        Self { fs, entries, splits, keeps_tombstones, writer: None, done: Vec::new() }
    }

    /// Reads entries of about `bytes`; returns true at the end of the entries. After an error the
    /// merge is of no use.
    pub(crate) fn step(&mut self, bytes: u64, new_run: NewRun<'_>) -> Result<bool> {
        let mut left = bytes.max(1);
        while left > 0 {
            let Some((key, value)) = self.entries.next()? else { return Ok(true) };
            left = left.saturating_sub(16 + value.map_or(0, <[u8]>::len) as u64);
            let part = part_of(key);
            if value.is_none() && !self.keeps_tombstones.get(part).is_some_and(|keeps| *keeps) {
                continue;
            }
            let part = self.splits.then_some(part);
            if self.writer.as_ref().is_none_or(|(of, _)| *of != part) {
                finish_writer(&mut self.writer, &mut self.done)?;
                self.writer = Some((part, new_run()?));
            }
            if let Some((_, writer)) = &mut self.writer {
                writer.push(key, value)?;
            }
        }
        Ok(false)
    }

    /// Completes the runs; none if there is no entry.
    pub(crate) fn finish(mut self) -> Result<Vec<Placed>> {
        finish_writer(&mut self.writer, &mut self.done)?;
        let done = std::mem::take(&mut self.done);
        Ok(done.into_iter().map(|(part, run)| (part, Arc::new(run))).collect())
    }
}

fn finish_writer(
    writer: &mut Option<(Option<usize>, RunWriter)>,
    done: &mut Vec<(Option<usize>, Run)>,
) -> Result<()> {
    if let Some((part, writer)) = writer.take()
        && let Some(run) = writer.finish()?
    {
        done.push((part, run));
    }
    Ok(())
}

impl Drop for RunMerge {
    fn drop(&mut self) {
        for (_, run) in &self.done {
            // What stays is removed when the store is opened.
            let _ = self.fs.remove(&run.path);
        }
    }
}
