//! Verification and repair of a journal.
//!
//! Owns: what is verified besides checksums: that every record can be read, and that the newest
//! snapshot equals a fold of its records.
//!
//! Invariants: verification changes nothing.
//!
//! Must not know: how files are repaired.

use std::path::Path;

use fetchwise_log::{RepairOptions, RepairReport, VerifyReport};

use crate::evidence::Learned;
use crate::evidence::decay::Decay;
use crate::journal::error::JournalError;
use crate::journal::fold::Fold;
use crate::journal::maintenance::checkpoint::discard;
use crate::journal::maintenance::progress::{Phase, ProgressFn};
use crate::journal::read::pass;
use crate::journal::recovery_point::FoldStart;
use crate::journal::schema;
use crate::journal::snapshot::check;
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
/// that the newest snapshot equals a fold of its records, to 1e-9. Only reads, and takes no lock.
///
/// # Errors
/// [`JournalError::Record`] for a record whose bytes are intact but mean nothing; newer formats;
/// I/O errors. Damage is in the report.
pub fn verify(dir: &Path, on_progress: ProgressFn<'_>) -> Result<VerificationReport, JournalError> {
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
    verified.refold = refold(dir, verified.log.floor_seq, on_progress)?;
    Ok(verified)
}

fn refold(
    dir: &Path,
    floor_seq: u64,
    on_progress: ProgressFn<'_>,
) -> Result<RefoldReport, JournalError> {
    let Some(stored) = FoldStart::newest(dir)?.whole()? else { return Ok(RefoldReport::NotTried) };
    let Some(decay) = stored.image.decay else { return Ok(RefoldReport::NotTried) };
    let base = match fetchwise_log::load_previous_snapshot(dir)? {
        Some(found) if found.meta().covers_seq <= stored.covers_seq && check(&found).is_ok() => {
            FoldStart::of(&found)?
        }
        _ if floor_seq == 0 => FoldStart::default(),
        _ => return Ok(RefoldReport::NoBase),
    };
    let days = decay.half_life().as_secs_f64() / 86_400.0;
    let (Ok(decay), Ok(registry)) = (Decay::new(days, decay.landmark()), Registry::new(Vec::new()))
    else {
        return Ok(RefoldReport::NoBase);
    };
    let learned = Learned::new(decay, None, FileSuffixes::default(), false, registry);
    let mut fold = Fold::begin(base, &learned, stored.now);
    fold.advance(dir, &learned, stored.covers_seq, stored.now, &mut |progress| {
        on_progress(Phase::Folding, progress)
    })?;
    let folded = fold.contents(&learned, &[], stored.now);
    let what = if let Some((key, what)) = stored.image.difference(&folded.image) {
        format!("key {key:016x}: {what}")
    } else if stored.links != folded.links {
        "the states of links differ".to_owned()
    } else if stored.hosts != folded.hosts {
        "the pauses of hosts differ".to_owned()
    } else if stored.paces != folded.paces {
        "the paces of hosts differ".to_owned()
    } else if stored.importance != folded.importance {
        "importance differs".to_owned()
    } else {
        return Ok(RefoldReport::Same { records: fold.replayed.entries });
    };
    Ok(RefoldReport::Differs { what })
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
