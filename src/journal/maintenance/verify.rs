//! Verification and repair of a journal.
//!
//! Owns: what is verified besides checksums: that every record can be read, and that the newest
//! snapshot equals a fold of its records.
//!
//! Invariants: verification changes nothing. Memory is bounded: entries are compared in the order
//! of their keys, some at a time.
//!
//! Must not know: how files are repaired.

use std::path::Path;
use std::sync::Arc;

use fetchwise_log::{
    Error as LogError, RepairOptions, RepairReport, Snapshot, StoredSection, VerifyReport,
};

use crate::evidence::Learned;
use crate::evidence::decay::Decay;
use crate::evidence::evidence_snapshot::EvidenceSnapshot;
use crate::journal::cold_tier::ScratchFolder;
use crate::journal::error::JournalError;
use crate::journal::fold::Fold;
use crate::journal::maintenance::checkpoint::discard;
use crate::journal::maintenance::progress::{Phase, ProgressFn};
use crate::journal::read::pass;
use crate::journal::recovery_point::FoldStart;
use crate::journal::schema;
use crate::journal::snapshot::{SnapshotContents, check, groups, read_group};
use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::registry::Registry;

/// Report of a verification.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct VerificationReport {
    /// Checksums, chain, continuity, manifests, snapshots.
    pub log: VerifyReport,
    /// Number of attempts.
    pub attempts: u64,
    /// Comparison of the newest snapshot with its records.
    pub refold: RefoldReport,
}

/// Comparison of a snapshot with its records, folded again from the previous snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefoldReport {
    /// There is no snapshot, or damage prevents the comparison.
    #[default]
    NotTried,
    /// The previous snapshot that the records would be folded into is gone.
    NoBase,
    /// The snapshot equals the fold.
    Same {
        /// Number of records folded.
        records: u64,
    },
    /// The snapshot differs from the fold.
    Differs {
        /// Place and kind of the difference.
        what: String,
    },
}

impl VerificationReport {
    /// Returns true if nothing is damaged and the snapshot equals the fold of its records.
    pub fn is_sound(&self) -> bool {
        self.log.is_sound() && !matches!(self.refold, RefoldReport::Differs { .. })
    }
}

/// Verifies the journal in `dir`: every checksum, link and number; that every record can be read;
/// that the newest snapshot equals a fold of its records, to 1e-9. Changes nothing, and takes no
/// lock. The evidence of more than a million keys is in a folder of `dir` meanwhile, or in memory
/// if `dir` cannot be written.
///
/// # Errors
/// [`JournalError::Record`] for a record whose bytes are intact but mean nothing; newer formats;
/// I/O errors. Damage is in the report.
pub fn verify(dir: &Path, on_progress: ProgressFn<'_>) -> Result<VerificationReport, JournalError> {
    verify_within(dir, KEYS_IN_MEMORY, on_progress)
}

/// Does the same with this number of keys in memory.
pub(in crate::journal) fn verify_within(
    dir: &Path,
    max_keys: usize,
    on_progress: ProgressFn<'_>,
) -> Result<VerificationReport, JournalError> {
    let log = fetchwise_log::verify_checked(dir, &check, &mut |progress| {
        on_progress(Phase::Reading, progress)
    })?;
    let mut verified = VerificationReport { log, ..VerificationReport::default() };
    if !verified.log.log.damage.is_empty() || !verified.log.snapshot_damage.is_empty() {
        return Ok(verified);
    }
    pass(dir, |_, record| {
        if schema::attempt(record.kind, record.schema, record.payload)?.is_some() {
            verified.attempts += 1;
        } else {
            schema::decode(record.kind, record.schema, record.payload)?;
        }
        Ok(())
    })?;
    verified.refold = refold(dir, verified.log.floor_seq, (max_keys, on_progress))?;
    Ok(verified)
}

/// Largest number of keys that a check has in memory. The evidence of more is on disk meanwhile.
const KEYS_IN_MEMORY: usize = 1 << 20;
/// Most keys that a record adds, roughly.
const KEYS_PER_RECORD: u64 = 4;

fn refold(
    dir: &Path,
    floor_seq: u64,
    (max_keys, on_progress): (usize, ProgressFn<'_>),
) -> Result<RefoldReport, JournalError> {
    let newest = FoldStart::newest(dir)?;
    let (Some(stored), Some(found)) = (newest.contents, newest.snapshot) else {
        return Ok(RefoldReport::NotTried);
    };
    let Some(decay) = stored.image.decay else { return Ok(RefoldReport::NotTried) };
    let base = match previous(dir, &stored)? {
        Some(base) => base,
        None if floor_seq == 0 => FoldStart::default(),
        None => return Ok(RefoldReport::NoBase),
    };
    let days = decay.half_life().as_secs_f64() / 86_400.0;
    let Ok(decay) = Decay::new(days, decay.landmark()) else { return Ok(RefoldReport::NoBase) };
    let (known, covered) =
        base.contents.as_ref().map_or((0, 0), |base| (base.grouped.entries, base.covers_seq));
    let keys = known + KEYS_PER_RECORD * stored.covers_seq.saturating_sub(covered);
    let (learned, _folder) = blank(dir, decay, (keys > max_keys as u64).then_some(max_keys))?;
    let mut fold = Fold::begin(base, &learned, stored.now)?;
    fold.advance(dir, &learned, stored.covers_seq, stored.now, &mut |progress| {
        on_progress(Phase::Folding, progress)
    })?;
    let mut entries = EntryComparison::new(&stored, &found);
    let compared = fold.contents_in_groups(
        (&learned, &[]),
        stored.now,
        (|group: &EvidenceSnapshot| group.clone(), &mut |group| entries.compare(&group)),
    );
    let folded = match compared {
        Ok(folded) => entries.compare_rest().map(|()| folded),
        Err(ended) => Err(ended),
    };
    if learned.evidence.cold_counts().failed_reads > 0 {
        let why = "cannot recompute the snapshot: evicted evidence could not be read";
        return Err(LogError::Invalid(why.into()).into());
    }
    let what = match folded {
        Err(StoppedBy::Failed(error)) => return Err(error),
        Err(StoppedBy::Different(what)) => what,
        Ok(folded) => match difference(&stored, &folded) {
            Some(what) => what,
            None => return Ok(RefoldReport::Same { records: fold.replayed.entries }),
        },
    };
    Ok(RefoldReport::Differs { what })
}

/// Returns a start from the snapshot before `stored`, if it is good.
fn previous(dir: &Path, stored: &SnapshotContents) -> Result<Option<FoldStart>, JournalError> {
    let found = fetchwise_log::load_previous_snapshot(dir)?;
    let Some(found) = found.filter(|found| found.meta().covers_seq <= stored.covers_seq) else {
        return Ok(None);
    };
    if check(&found)?.is_some() {
        return Ok(None);
    }
    FoldStart::of(found).map(Some)
}

/// Returns evidence that has learned nothing. Beyond a limit on keys it is kept in a folder of
/// `dir`, if one can be made there.
fn blank(
    dir: &Path,
    decay: Decay,
    max_keys: Option<usize>,
) -> Result<(Learned, Option<ScratchFolder>), JournalError> {
    let learned = |max_keys| {
        let registry = Registry::new(Vec::new())
            .map_err(|error| LogError::Invalid(format!("invalid fetchers: {error}")))?;
        Ok::<_, JournalError>(Learned::new(
            decay,
            max_keys,
            FileSuffixes::default(),
            false,
            registry,
        ))
    };
    let bounded = learned(max_keys)?;
    match ScratchFolder::keep_evicted(dir, &bounded, &Arc::default()) {
        Ok(folder) => Ok((bounded, folder)),
        // A directory that cannot be written can be verified, too.
        Err(_) => Ok((learned(None)?, None)),
    }
}

/// Returns the difference of two snapshots, apart from the entries of the map.
fn difference(stored: &SnapshotContents, folded: &SnapshotContents) -> Option<String> {
    if let Some((key, what)) = stored.image.difference(&folded.image) {
        return Some(format!("key {key:016x}: {what}"));
    }
    let parts = [
        (stored.links == folded.links, "the states of links differ"),
        (stored.hosts == folded.hosts, "the pauses of hosts differ"),
        (stored.paces == folded.paces, "the paces of hosts differ"),
        (stored.importance == folded.importance, "importance differs"),
    ];
    parts.iter().find(|(is_same, _)| !is_same).map(|(_, what)| (*what).to_owned())
}

/// Why a comparison ended early.
enum StoppedBy {
    Different(String),
    Failed(JournalError),
}

/// Comparison of the entries of a snapshot with those of a fold, both in the order of their keys.
struct EntryComparison<'s> {
    found: &'s Snapshot,
    groups: std::vec::IntoIter<StoredSection>,
    /// What was read of the snapshot and is not compared yet.
    rows: EvidenceSnapshot,
}

impl<'s> EntryComparison<'s> {
    fn new(stored: &SnapshotContents, found: &'s Snapshot) -> Self {
        Self { found, groups: groups(found).into_iter(), rows: stored.image.without_rows() }
    }

    /// Compares the next entries of the fold with those of the snapshot up to the same key.
    fn compare(&mut self, folded: &EvidenceSnapshot) -> Result<(), StoppedBy> {
        let Some(last) = folded.last_key() else { return Ok(()) };
        while self.rows.last_key().is_none_or(|read| read <= last) && self.read()? {}
        same(&self.rows.take_up_to(last), folded)
    }

    /// Compares what the snapshot has behind all entries of the fold.
    fn compare_rest(&mut self) -> Result<(), StoppedBy> {
        let none = self.rows.without_rows();
        loop {
            same(&self.rows, &none)?;
            self.rows.clear_rows();
            if !self.read()? {
                return Ok(());
            }
        }
    }

    /// Reads a group of the snapshot. Returns false if there is no more.
    fn read(&mut self) -> Result<bool, StoppedBy> {
        let Some(group) = self.groups.next() else { return Ok(false) };
        read_group(self.found, &group, &mut self.rows)
            .map_err(|error| StoppedBy::Failed(error.into()))?;
        self.rows.days.sort_unstable();
        Ok(true)
    }
}

fn same(stored: &EvidenceSnapshot, folded: &EvidenceSnapshot) -> Result<(), StoppedBy> {
    match stored.difference(folded) {
        None => Ok(()),
        Some((key, what)) => Err(StoppedBy::Different(format!("key {key:016x}: {what}"))),
    }
}

/// Repairs the journal in `dir`, as far as `options` request it; see [`fetchwise_log::repair`].
///
/// # Errors
/// Locked by a crawler or another maintenance command, newer formats, or I/O errors.
pub fn repair(dir: &Path, options: RepairOptions) -> Result<RepairReport, JournalError> {
    let report = fetchwise_log::repair_checked(dir, options, &check)?;
    // It may have records that the log has lost.
    discard(dir);
    Ok(report)
}
