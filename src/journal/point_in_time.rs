//! What was known at an earlier time: evidence rebuilt from the log as it was then.
//!
//! Owns: where such a rebuilding begins, and what of it is missing for good. Invariant: nothing that was recorded later is in it, and
//! nothing that was forgotten since. Must not know what is asked of it.

use std::path::Path;

use fetchwise_log::{Progress, Snapshot};

use super::error::JournalError;
use super::fold::Fold;
use super::load::{Loaded, into_loaded};
use super::read::{open, tombstones};
use super::snapshot;
use crate::journal::recovery_point::Start;
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// A moment in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// With everything that was made or came to be until then, by the times that records bear: what was imported later counts from the
    /// times of its attempts.
    At(Timestamp),
    /// Before the record with this sequence number was written.
    Before(u64),
}

/// Teaches `selector`, a new one, what was known in `dir` at `moment`: the newest snapshot that holds nothing later, and the records
/// behind it up to then. What has been forgotten since is not brought back. `now` is the time that it was then.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn load_at(
    dir: &Path,
    selector: &Selector,
    moment: Moment,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<Loaded, JournalError> {
    let reader = open(dir)?;
    let newest = fetchwise_log::load_snapshot(dir)?.snapshot;
    let previous = fetchwise_log::load_previous_snapshot(dir)?;
    let cutoff = match &newest {
        Some(newest) => snapshot::decode(newest)?.cutoff,
        None => None,
    };
    let mut start = Start::default();
    for found in [newest, previous].into_iter().flatten() {
        if let Some(fits) = before(&found, moment)? {
            start = fits;
            break;
        }
    }
    let started = start.started.clone();
    let is_whole = start.contents.is_some() || reader.floor_seq() == 0;
    let missing_before = if is_whole { None } else { cutoff };
    let mut fold = Fold::begin(Start { reader: Some(reader), ..start }, selector);
    let (upto, until) = match moment {
        Moment::At(at) => (u64::MAX, Some(at)),
        Moment::Before(seq) => (seq.saturating_sub(1), None),
    };
    fold.look_at_the_past(until);
    fold.advance(dir, selector, upto, now, progress)?;
    // What was forgotten after the moment is not brought back by asking for an earlier time.
    fold.forget(dir, selector, &tombstones(dir, &mut |_| {})?.after(upto), now)?;
    let loaded = into_loaded(fold, selector, started, now);
    selector.restore_links(loaded.links.iter().map(|(link, state)| (link.clone(), *state)));
    selector.restore_host_levels(loaded.host_levels.iter().map(|(domain, level)| (domain.clone(), *level)));
    Ok(Loaded { missing_before, ..loaded })
}

/// A start with this snapshot, if it holds nothing later than `moment`.
fn before(found: &Snapshot, moment: Moment) -> Result<Option<Start>, JournalError> {
    let start = Start::of(found)?;
    let fits = match (moment, &start.contents) {
        (Moment::At(at), Some(contents)) => contents.image.as_of <= at,
        (Moment::Before(seq), Some(contents)) => contents.covers_seq < seq,
        (_, None) => false,
    };
    Ok(fits.then_some(start))
}
