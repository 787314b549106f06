//! Snapshots of a journal.
//!
//! Owns: what a snapshot is taken of.
//!
//! Invariants: a snapshot covers only records that are on disk.
//!
//! Must not know: the layout of its file.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fetchwise_log::{
    Error as LogError, Maintenance, PreparedSnapshot, SectionWriter, SnapshotMeta,
};

use crate::journal::cold_tier::ScratchFolder;
use crate::journal::entry_groups::EncodedGroup;
use crate::journal::error::JournalError;
use crate::journal::fold::{Fold, WithoutGroups};
use crate::journal::maintenance::clock_check::{ClockUse, check_own_times};
use crate::journal::maintenance::progress::{Phase, ProgressFn};
use crate::journal::recovery_point::FoldStart;
use crate::journal::snapshot::{SnapshotContents, check, group_section, section};
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// Report of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotReport {
    /// Last record whose effect the snapshot holds.
    pub covers_seq: u64,
    /// Records folded since the previous snapshot.
    pub records: u64,
    /// Keys with evidence.
    pub entries: u64,
    /// Cells: one for each key, kind of page and fetcher.
    pub cells: u64,
    /// Links at risk or paused.
    pub links: u64,
    /// Hosts that are or were paused.
    pub hosts: u64,
    /// File of the snapshot; `None` if there was nothing new to write.
    pub file: Option<PathBuf>,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Options of a snapshot.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotOptions {
    /// Whether to trust a clock that contradicts the log's own times.
    pub trust_clock: bool,
    /// The last record that the snapshot must cover, such as `Journal::durable_seq` after a flush.
    /// Waits up to five seconds for a live writer to prove that it is on disk. With 0, the snapshot
    /// covers what is proven by now.
    pub await_seq: u64,
}

/// Takes a snapshot of the journal in `dir`, so that the next start reads it and only the records
/// after it. `selector` is a new one with the half-life and priors to use. If it has a limit on
/// keys, those beyond it are on disk meanwhile, in a folder of `dir`. Does nothing if there is no
/// record after the newest snapshot.
///
/// # Errors
/// [`JournalError::is_refusal`] when the journal is damaged, when another maintenance command runs,
/// or when the clock contradicts the log's own times. Also I/O errors.
pub fn snapshot(
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
    on_progress: ProgressFn<'_>,
) -> Result<SnapshotReport, JournalError> {
    snapshot_with(dir, selector, &SnapshotOptions::default(), now, on_progress)
}

/// Takes a snapshot as [`snapshot`] does, with options.
///
/// # Errors
/// As [`snapshot`]. Also when five seconds pass without a proof of [`SnapshotOptions::await_seq`].
pub fn snapshot_with(
    dir: &Path,
    selector: &Selector,
    options: &SnapshotOptions,
    now: Timestamp,
    on_progress: ProgressFn<'_>,
) -> Result<SnapshotReport, JournalError> {
    let maintenance = Maintenance::lock(dir)?;
    let _folder = ScratchFolder::keep_evicted(dir, selector.learned(), &Arc::default())?;
    let start = FoldStart::newest(dir)?;
    let last = start.last_present();
    let clock_use = if options.trust_clock { ClockUse::Trust } else { ClockUse::Check };
    let present = clock_use.present(now, last);
    let known = start.contents.as_ref().map(|contents| contents.meta());
    let mut fold = Fold::begin(start, selector.learned(), present)?;
    if options.await_seq > 0 {
        maintenance.await_durable(options.await_seq)?;
    }
    // Without a number to wait for, the next snapshot covers records that a live writer has not
    // synced yet.
    let upto = fetchwise_log::durable_seq(dir)?;
    fold.advance(dir, selector.learned(), upto, present, &mut |progress| {
        on_progress(Phase::Folding, progress)
    })?;
    let folded = FoldedEvidence { fold: &fold, selector, present };
    let meta = folded.meta();
    let is_same = known.is_some_and(|known| {
        known.covers_seq == meta.covers_seq && known.config_hash == meta.config_hash
    });
    if fold.covers_seq == 0 || is_same {
        return Ok(taken(&folded.totals(), fold.replayed.entries));
    }
    if !options.trust_clock {
        check_own_times(dir, fold.latest, last, now)?;
    }
    let written = write(&maintenance, &folded)?;
    Ok(SnapshotReport {
        file: Some(written.file),
        bytes: written.bytes,
        ..taken(&written.contents, fold.replayed.entries)
    })
}

fn taken(contents: &SnapshotContents, records: u64) -> SnapshotReport {
    SnapshotReport {
        covers_seq: contents.covers_seq,
        records,
        entries: contents.image.entries.len() as u64 + contents.grouped.entries,
        cells: contents.image.cells.len() as u64 + contents.grouped.cells,
        links: contents.links.len() as u64,
        hosts: contents.hosts.len() as u64,
        file: None,
        bytes: 0,
    }
}

/// What a snapshot is taken of.
#[derive(Clone, Copy)]
pub(super) struct FoldedEvidence<'f> {
    pub(super) fold: &'f Fold,
    /// Has the evidence of the fold.
    pub(super) selector: &'f Selector,
    /// Time that counts as the present.
    pub(super) present: Timestamp,
}

/// A snapshot that was written.
pub(super) struct Written {
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
    /// What it holds, with the totals of the groups of entries.
    pub(super) contents: SnapshotContents,
}

impl FoldedEvidence<'_> {
    fn meta(&self) -> SnapshotMeta {
        self.fold.snapshot_meta(self.selector.learned(), self.selector.priors())
    }

    fn in_groups<E>(
        &self,
        sink: &mut dyn FnMut(EncodedGroup) -> Result<(), E>,
    ) -> Result<WithoutGroups, E> {
        let (learned, priors) = (self.selector.learned(), self.selector.priors());
        self.fold.encoded((learned, priors), self.present, sink)
    }

    /// Returns what a snapshot would hold, with the totals of the groups of entries.
    pub(super) fn totals(&self) -> SnapshotContents {
        let Ok(all) = self.in_groups(&mut |_| Ok::<(), Infallible>(()));
        all.contents
    }

    /// Writes the sections of a snapshot: those of the groups come first, since what the others
    /// name is in them.
    fn fill(&self, to: &mut SectionWriter<'_>) -> Result<SnapshotContents, LogError> {
        let WithoutGroups { contents, is_finite, is_whole } =
            self.in_groups(&mut |group| to.put(group_section(&group)))?;
        let refused = |why| Err(LogError::Invalid(format!("cannot take a snapshot: {why}")));
        if !is_whole {
            return refused("evicted evidence could not be read");
        }
        if !is_finite {
            return refused("its weights are not finite");
        }
        for (kind, bytes) in contents.encode() {
            to.put(section(kind, &bytes))?;
        }
        Ok(contents)
    }
}

/// Writes a snapshot.
pub(super) fn write(
    maintenance: &Maintenance,
    folded: &FoldedEvidence<'_>,
) -> Result<Written, JournalError> {
    let mut contents = SnapshotContents::default();
    let (file, bytes) = maintenance.fill_snapshot(
        &folded.meta(),
        &mut |to| {
            contents = folded.fill(to)?;
            Ok(())
        },
        &check,
    )?;
    Ok(Written { file, bytes, contents })
}

/// Writes a snapshot that gets its name later.
pub(super) fn prepare(
    maintenance: &Maintenance,
    folded: &FoldedEvidence<'_>,
) -> Result<PreparedSnapshot, JournalError> {
    Ok(maintenance.prepare_snapshot(&folded.meta(), &mut |to| folded.fill(to).map(drop), &check)?)
}
