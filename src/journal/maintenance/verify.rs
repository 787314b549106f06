//! Checking a journal, and mending it.
//!
//! Owns: what a check compares beside checksums: that every record can be read, and that the newest snapshot is what the records
//! teach. Invariant: a check changes nothing. Must not know how files are mended.

use std::path::Path;

use fetchwise_log::{RepairOptions, RepairReport, VerifyReport};

use crate::journal::error::JournalError;
use crate::journal::fold::Fold;
use crate::journal::maintenance::progress::{Phase, ProgressFn};
use crate::journal::read::pass;
use crate::journal::recovery_point::Start;
use crate::journal::schema;
use crate::selector::Selector;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Verified {
    /// Checksums, chain, continuity, manifests, snapshots.
    pub log: VerifyReport,
    /// Attempts.
    pub attempts: u64,
    /// Whether the newest snapshot is what its records teach.
    pub refold: RefoldReport,
}

/// Whether a snapshot is what the records teach, folded anew from the snapshot before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefoldReport {
    /// There is no snapshot, or damage keeps it from being tried.
    #[default]
    NotTried,
    /// The records behind the older snapshot are all that can be folded anew, and that one is gone.
    NoBase,
    /// It is, over so many records.
    Same {
        /// How many were folded anew.
        records: u64,
    },
    /// It is not.
    Differs {
        /// Where, and what.
        what: String,
    },
}

impl Verified {
    /// True when nothing is damaged, and the snapshot is what the records teach.
    pub fn is_sound(&self) -> bool {
        self.log.is_sound() && !matches!(self.refold, RefoldReport::Differs { .. })
    }
}

/// Checks the journal in `dir`: every checksum, link and number; that every record can be read; that the newest snapshot is what
/// the records teach, to 1e-9. Reads only, takes no lock.
///
/// # Errors
/// [`JournalError::Record`] for a record whose bytes are whole and mean nothing; newer formats; or what the system says. Damage
/// is in the report.
pub fn verify(dir: &Path, tell: ProgressFn<'_>) -> Result<Verified, JournalError> {
    let log = fetchwise_log::verify_showing(dir, &mut |progress| tell(Phase::Reading, progress))?;
    let mut verified = Verified { log, ..Verified::default() };
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
    verified.refold = refold(dir, verified.log.floor_seq, tell)?;
    Ok(verified)
}

fn refold(dir: &Path, floor_seq: u64, tell: ProgressFn<'_>) -> Result<RefoldReport, JournalError> {
    let Some(mut stored) = Start::newest(dir)?.contents else { return Ok(RefoldReport::NotTried) };
    let Some(decay) = stored.image.decay else { return Ok(RefoldReport::NotTried) };
    let base = match fetchwise_log::load_previous_snapshot(dir)? {
        Some(found) if found.meta().covers_seq <= stored.covers_seq => Start::of(&found)?,
        _ if floor_seq == 0 => Start::default(),
        _ => return Ok(RefoldReport::NoBase),
    };
    let days = decay.half_life().as_secs_f64() / 86_400.0;
    let builder = Selector::builder().half_life_days(days).around(decay.landmark()).no_priors();
    let Ok(selector) = builder.build() else { return Ok(RefoldReport::NoBase) };
    // Where one of them is of a release that kept no days, there is nothing to hold these against.
    let lacks_days = stored.lacks_days || base.contents.as_ref().is_some_and(|contents| contents.lacks_days);
    let mut fold = Fold::begin(base, &selector);
    fold.advance(dir, &selector, stored.covers_seq, stored.now, &mut |progress| tell(Phase::Folding, progress))?;
    let mut folded = fold.contents(&selector, stored.now);
    if lacks_days {
        (stored.image.days, folded.image.days) = (Vec::new(), Vec::new());
    }
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

/// Mends the journal in `dir`, as far as `options` ask for it; see [`fetchwise_log::repair`].
///
/// # Errors
/// Locked by a crawler or another maintenance command, newer formats, or what the system says.
pub fn repair(dir: &Path, options: RepairOptions) -> Result<RepairReport, JournalError> {
    Ok(fetchwise_log::repair(dir, options)?)
}
