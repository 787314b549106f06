//! Evidence as of an earlier time, rebuilt from the log.
//!
//! Owns: the starting point of such a rebuild, and which part of it is missing for good.
//!
//! Invariants: the result holds nothing that was recorded later, and nothing that has been
//! forgotten since.
//!
//! Must not know: what the evidence is used for.

use std::path::Path;

use fetchwise_log::{Progress, Snapshot};

use super::error::JournalError;
use super::fold::Fold;
use super::load::{LoadReport, into_report};
use super::read::{open, tombstones};
use super::snapshot;
use crate::journal::recovery_point::{FoldStart, newest_snapshot};
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// Point in time of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// Everything made or changed until then, by the times of the records. An imported attempt
    /// counts from its own time, not from the time of its import.
    At(Timestamp),
    /// Everything before the record with this sequence number.
    Before(u64),
}

/// Loads into `selector`, a new one, what was known in `dir` at `moment`: the newest snapshot that
/// holds nothing later, and the records after it up to that point. Entries that have been forgotten
/// since stay forgotten. `now` is the current time at that point.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn load_at(
    dir: &Path,
    selector: &Selector,
    moment: AsOf,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<LoadReport, JournalError> {
    let reader = open(dir)?;
    let newest = newest_snapshot(dir)?;
    let previous = fetchwise_log::load_previous_snapshot(dir)?;
    let cutoff = match &newest {
        Some(newest) => snapshot::decode_without_entries(newest)?.cutoff,
        None => None,
    };
    let mut start = FoldStart::default();
    for (found, is_checked) in
        newest.map(|found| (found, true)).into_iter().chain(previous.map(|found| (found, false)))
    {
        if !is_checked && snapshot::check(&found)?.is_some() {
            continue;
        }
        if let Some(fits) = before(found, moment)? {
            start = fits;
            break;
        }
    }
    let started = start.started.clone();
    let is_whole = start.contents.is_some() || reader.floor_seq() == 0;
    let missing_before = if is_whole { None } else { cutoff };
    let mut fold =
        Fold::begin(FoldStart { reader: Some(reader), ..start }, selector.learned(), now)?;
    let (upto, until) = match moment {
        AsOf::At(at) => (u64::MAX, Some(at)),
        AsOf::Before(seq) => (seq.saturating_sub(1), None),
    };
    fold.restrict_to(until);
    fold.advance(dir, selector.learned(), upto, now, progress)?;
    // Asking for an earlier time does not bring back what was forgotten after it.
    fold.forget(dir, selector.learned(), &tombstones(dir, &mut |_| {})?.after(upto), now)?;
    let loaded = into_report(fold, selector, started, now);
    selector.restore_links(loaded.links.iter().map(|(link, state)| (link.clone(), *state)));
    selector.restore_host_levels(
        loaded.host_levels.iter().map(|(domain, level)| (domain.clone(), *level)),
    );
    Ok(LoadReport { missing_before, ..loaded })
}

/// Returns a start from this snapshot, unless the snapshot holds something later than `moment`.
fn before(found: Snapshot, moment: AsOf) -> Result<Option<FoldStart>, JournalError> {
    let start = FoldStart::of(found)?;
    let fits = match (moment, &start.contents) {
        (AsOf::At(at), Some(contents)) => contents.image.as_of <= at,
        (AsOf::Before(seq), Some(contents)) => contents.covers_seq < seq,
        (_, None) => false,
    };
    Ok(fits.then_some(start))
}
