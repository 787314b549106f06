//! Checkpoints of evidence on disk, from which a start with a limit on keys goes on: it then takes
//! as long as the records since the last checkpoint, however many sites the log knows.
//!
//! A checkpoint is a fold apart from what a process has learned: it goes on from the last one,
//! reads the records since, and is made durable as a whole. So no recorder is stopped, an attempt
//! counts once whatever happens in between, and a crash at any step leaves the checkpoint before.
//!
//! Owns: how a checkpoint is brought up to the end of the log, and when that is due.
//!
//! Invariants: a checkpoint covers only records that are on disk. The state and the store of one
//! are durable before the tag names both.
//!
//! Must not know: how a start uses it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fetchwise_cold::{ColdStore, Error as ColdError};
use fetchwise_log::fs::{RealFs, SyncSite, publish};
use fetchwise_log::{Error as LogError, Maintenance, Throttle};

use super::clock_check::{ClockUse, check_own_times};
use crate::evidence::Learned;
use crate::journal::checkpoint_restore::{
    self, Restored, STATE_PREFIX, restore_from, state_name, tag_of,
};
use crate::journal::checkpoint_state;
use crate::journal::cold_tier::{
    StoreTier, checkpoint_folder, keep_in_checkpoint, open_checkpoint, unusable,
};
use crate::journal::error::JournalError;
use crate::journal::fetcher_numbers::FetcherNumbers;
use crate::journal::fold::Fold;
use crate::journal::read::open;
use crate::journal::recovery_point::FoldStart;
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// Number of records after which a new checkpoint is due: a start reads that many in about a
/// second.
pub(super) const DUE_AFTER: u64 = 500_000;
/// The part of the limit on keys that a checkpoint has in memory, since the process has its own
/// evidence there.
const PART_OF_KEYS: usize = 4;
const FEWEST_KEYS: usize = 256;
/// Name of the file that says what a store has (`crates/cold/FORMAT.md`).
const MANIFEST: &str = "MANIFEST";

/// Report of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Last record whose effect the checkpoint has.
    pub covers_seq: u64,
    /// Records folded since the previous checkpoint.
    pub records: u64,
    /// Keys with evidence.
    pub keys: u64,
    /// Why the previous checkpoint could not be continued, if there was one. Then this one began
    /// with the snapshot and the log.
    pub replaced: Option<String>,
}

/// Makes a checkpoint of the evidence of the journal in `dir`, so that the next start of a selector
/// with a limit on keys reads only the records after it. `selector` is a new one with the
/// half-life, the file suffixes and the fetchers to use; of its limit, a quarter is used. Without a
/// limit it does nothing. Works alongside a running crawler.
///
/// # Errors
/// As [`snapshot`](super::snapshot), and when the folder cannot be written.
pub fn checkpoint(
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
) -> Result<CheckpointReport, JournalError> {
    let _maintenance = Maintenance::lock(dir)?;
    advance(dir, selector.learned(), now, None)
}

/// Does the same as [`checkpoint`], for a caller that has the lock of maintenance and evidence of
/// the same rules.
pub(super) fn advance(
    dir: &Path,
    like: &Learned,
    now: Timestamp,
    throttle: Option<&Arc<Throttle>>,
) -> Result<CheckpointReport, JournalError> {
    let Some(learned) = blank_like(like) else { return Ok(CheckpointReport::default()) };
    let Begun { mut fold, present, last, is_new, replaced } = begin(dir, &learned, now)?;
    let before = fold.covers_seq;
    fold.throttle = throttle.cloned();
    fold.advance(dir, &learned, fetchwise_log::durable_seq(dir)?, present, &mut |_| {})?;
    if fold.covers_seq > before || is_new && before > 0 {
        check_own_times(dir, fold.latest, last, now)?;
        write(dir, &fold, &learned, present, throttle.map(|throttle| &**throttle))?;
    }
    let (records, keys) = (fold.replayed.entries, learned.evidence.keys_seen());
    Ok(CheckpointReport { covers_seq: fold.covers_seq, records, keys, replaced })
}

/// Makes a checkpoint at the end of a session. A failure costs only time at the next start, so it
/// is reported and ends nothing.
pub(in crate::journal) fn checkpoint_at_end(dir: &Path, like: &Learned, now: Timestamp) {
    let made = Maintenance::lock(dir)
        .map_err(JournalError::from)
        .and_then(|_lock| advance(dir, like, now, None));
    if let Err(error) = made {
        crate::trace::checkpoint_failed(&error);
    }
}

/// Returns empty evidence for a checkpoint; `None` without a limit on keys.
fn blank_like(like: &Learned) -> Option<Learned> {
    let keys = like.max_keys()? / PART_OF_KEYS;
    like.empty_copy_within(keys.max(FEWEST_KEYS)).ok()
}

/// Returns the number of records in `dir` that are on disk and that no checkpoint covers. Cost: a
/// pass over the last segment.
///
/// # Errors
/// As [`snapshot`](super::snapshot).
pub(super) fn records_since(dir: &Path) -> Result<u64, JournalError> {
    Ok(fetchwise_log::durable_seq(dir)?
        .saturating_sub(checkpoint_restore::covers_seq(dir).unwrap_or(0)))
}

/// Removes the checkpoint of `dir`, for a caller that has removed records from its log. Nobody may
/// make one meanwhile.
pub(super) fn discard(dir: &Path) {
    // Without its manifest a store is empty, and the next process that opens it removes the rest.
    let _ = std::fs::remove_file(checkpoint_folder(dir).join(MANIFEST));
}

/// A fold that becomes a checkpoint.
struct Begun {
    fold: Fold,
    /// Time that counts as the present.
    present: Timestamp,
    /// Time that counted as the present before.
    last: Option<Timestamp>,
    /// Whether it goes on from no checkpoint.
    is_new: bool,
    /// Why there is a checkpoint that it does not go on from.
    replaced: Option<String>,
}

/// Begins with the last checkpoint, or else with the snapshot.
fn begin(dir: &Path, learned: &Learned, now: Timestamp) -> Result<Begun, JournalError> {
    let (store, damage) = open_or_replace(dir)?;
    let had_one = store.tag().is_some();
    match restore_from(&store, dir, learned, now) {
        Ok(Restored { contents, reader, fetchers, keys }) => {
            keep_in_checkpoint(store, learned, fetchers, keys)?;
            remove_states_but(dir, contents.covers_seq);
            let (last, present) = (Some(contents.now), contents.now.max(now));
            let fold = Fold::of(contents, Some(reader), present);
            Ok(Begun { fold, present, last, is_new: false, replaced: None })
        }
        Err(why) => {
            let replaced = damage.or(had_one.then_some(why));
            replaced.iter().for_each(|why| crate::trace::checkpoint_unfit(why));
            store.clear();
            keep_in_checkpoint(store, learned, FetcherNumbers::default(), 0)?;
            let start = FoldStart::newest(dir)?;
            let last = start.last_present();
            let present = ClockUse::Check.present(now, last);
            Ok(Begun {
                fold: Fold::begin(start, learned, present)?,
                present,
                last,
                is_new: true,
                replaced,
            })
        }
    }
}

/// Opens the store, as an empty one if it is damaged: then the damage is returned.
fn open_or_replace(dir: &Path) -> Result<(ColdStore, Option<String>), JournalError> {
    let is_damage = |error: &ColdError| match error {
        ColdError::Damaged { .. } | ColdError::NewerFormat { .. } => true,
        ColdError::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    };
    match open_checkpoint(dir) {
        Err(error) if is_damage(&error) => {
            discard(dir);
            Ok((open_checkpoint(dir).map_err(unusable)?, Some(error.to_string())))
        }
        opened => Ok((opened.map_err(unusable)?, None)),
    }
}

fn write(
    dir: &Path,
    fold: &Fold,
    learned: &Learned,
    present: Timestamp,
    throttle: Option<&Throttle>,
) -> Result<(), JournalError> {
    let refused = |why| LogError::Invalid(format!("cannot make a checkpoint of evidence: {why}"));
    let evidence = &learned.evidence;
    let Some(tier) = evidence.tier::<StoreTier>() else { return Ok(()) };
    evidence.write_all_copies().map_err(|error| refused(error.to_string()))?;
    if evidence.cold_counts().failed_reads > 0 {
        return Err(refused("some of it could not be read".to_owned()).into());
    }
    let contents = fold.contents_without_evidence(present);
    let state = checkpoint_state::encode(&contents, learned, tier.fetchers());
    let state = state.ok_or_else(|| refused("its weights are not finite".to_owned()))?;
    let tag = tag_of(&open(dir)?, learned, fold.covers_seq).with_state(&state);
    let (folder, name) = (checkpoint_folder(dir), state_name(fold.covers_seq));
    let sites = [SyncSite::Snapshot, SyncSite::SnapshotDir];
    publish(&RealFs, &folder, &name, &state, sites).map_err(|error| refused(error.to_string()))?;
    tier.checkpoint(&tag.encode(), throttle)?;
    remove_states_but(dir, fold.covers_seq);
    Ok(())
}

/// Removes the states that no tag names any more, and unfinished ones.
fn remove_states_but(dir: &Path, covers_seq: u64) {
    let name = state_name(covers_seq);
    for entry in std::fs::read_dir(checkpoint_folder(dir)).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let of_state =
            found.to_str().filter(|of| of.trim_start_matches("tmp-").starts_with(STATE_PREFIX));
        if of_state.is_some_and(|of| of != name) {
            // What stays takes room until the next checkpoint.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
