//! Verification of a whole directory, without changes.
//!
//! Owns: `verify`.
//!
//! Invariant: reads only, takes no lock.
//!
//! Must not know: what a record means, how damage is repaired.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Damage, Error};
use crate::fs::{Fs, RealFs};
use crate::read::progress::Progress;
use crate::read::reader::{Reader, Summary};
use crate::read::snapshot::{SnapshotCheck, find_snapshot, unchecked};

/// The result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Segments in the log.
    pub segments: usize,
    /// The findings of a pass over every record: damage of segments and manifests, and a torn tail.
    pub log: Summary,
    /// The newest good snapshot covers the records up to here.
    pub snapshot_seq: Option<u64>,
    /// Snapshots that are named but not good; the log is still usable.
    pub snapshots_rejected: Vec<Damage>,
    /// Records below the floor that no good snapshot covers, or other damage of snapshots that
    /// loses records.
    pub snapshot_damage: Vec<Damage>,
    /// Records up to here may be gone from the segments.
    pub floor_seq: u64,
}

impl VerifyReport {
    /// Returns true if nothing is damaged. A torn tail and left-over files are not damage.
    pub fn is_sound(&self) -> bool {
        self.log.damage.is_empty()
            && self.snapshots_rejected.is_empty()
            && self.snapshot_damage.is_empty()
    }
}

/// Checks everything in `dir`: checksums, chain, continuity, manifests, snapshots. Reads only,
/// takes no lock.
///
/// # Errors
///
/// [`Error::NewerFormat`], or the system's error. Damage is in the report.
pub fn verify(dir: &Path) -> Result<VerifyReport, Error> {
    verify_with(Arc::new(RealFs), dir)
}

/// As [`verify`], on another file system.
pub fn verify_with(fs: Arc<dyn Fs>, dir: &Path) -> Result<VerifyReport, Error> {
    check_all(fs, dir, &unchecked, &mut |_| {})
}

/// As [`verify`], reporting `progress` after each segment.
///
/// # Errors
///
/// As [`verify`].
pub fn verify_with_progress(
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<VerifyReport, Error> {
    check_all(Arc::new(RealFs), dir, &unchecked, progress)
}

/// As [`verify_with_progress`], with a check of the content of snapshots: one that fails it counts
/// as damaged.
///
/// # Errors
///
/// As [`verify`].
pub fn verify_checked(
    dir: &Path,
    check: &SnapshotCheck<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<VerifyReport, Error> {
    check_all(Arc::new(RealFs), dir, check, progress)
}

pub(crate) fn check_all(
    fs: Arc<dyn Fs>,
    dir: &Path,
    check: &SnapshotCheck<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<VerifyReport, Error> {
    let reader = Reader::open_with(fs.clone(), dir)?;
    let mut log = Summary { damage: reader.damage().to_vec(), ..Summary::default() };
    let total = reader.segments().map(|segment| segment.bytes).sum();
    let mut done = 0;
    for (index, segment) in reader.segments().enumerate() {
        log.merge(reader.check_segment(index)?);
        done += segment.bytes;
        progress(Progress { done, total });
    }
    let mut report =
        VerifyReport { segments: reader.segments().len(), log, ..VerifyReport::default() };
    report.floor_seq = reader.floor_seq();
    match find_snapshot(&*fs, dir, check) {
        Ok(search) => {
            report.snapshot_seq = search.snapshot.map(|s| s.meta().covers_seq);
            report.snapshots_rejected = search.rejected;
        }
        Err(Error::Corrupt { damage, .. }) => report.snapshot_damage = damage,
        Err(e) => return Err(e),
    }
    Ok(report)
}
