//! The start from a checkpoint of evidence on disk: which one fits the log and the selector, and
//! how it becomes evidence.
//!
//! Owns: the conditions under which a checkpoint may stand for the records that it covers.
//!
//! A checkpoint is a fold of the log up to a record, and a start goes on from there as it does from
//! a snapshot. It fits if it is of this log, if the log still has the record that it ends with and
//! all later ones, and if evidence is learned by the same rules: half-life, file suffixes, kinds of
//! fetchers.
//!
//! Invariants: evidence is restored as a whole or not at all. A checkpoint that does not fit
//! changes nothing; the start then reads the snapshot and the log.
//!
//! Must not know: how a checkpoint is made.

use std::path::Path;

use fetchwise_cold::ColdStore;
use fetchwise_log::{Reader, ResumeMark};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::checkpoint_state::{self, State, Tag};
use super::cold_tier::{StoreTier, checkpoint_folder, open_checkpoint};
use super::fetcher_numbers::FetcherNumbers;
use super::read::open;
use super::snapshot::SnapshotContents;
use crate::evidence::Learned;
use crate::journal::recovery_point::FoldStart;
use fetchwise_types::time::Timestamp;

/// Largest number of keys that a start reads into memory at once. The evidence of more comes back
/// key by key.
const READ_AT_START: u64 = 1 << 20;

/// The reason why a checkpoint does not fit.
pub(super) type Unfit = String;

/// A checkpoint that became evidence.
#[derive(Debug)]
pub(super) struct Restored {
    /// What a snapshot has besides evidence, and the record that it covers.
    pub(super) contents: SnapshotContents,
    /// Reader of the log, opened before the checkpoint was compared with it.
    pub(super) reader: Reader,
    pub(super) fetchers: FetcherNumbers,
    pub(super) keys: u64,
}

/// Starts from the checkpoint of `dir`, if there is one that fits, in evidence that keeps what it
/// evicts and has learned nothing. Reports a checkpoint that does not fit.
pub(super) fn restore(dir: &Path, learned: &Learned, date: Timestamp) -> Option<Restored> {
    let evidence = &learned.evidence;
    let tier = evidence.tier::<StoreTier>().filter(|_| evidence.is_blank())?;
    if !exists(dir) {
        return None;
    }
    let begin = || -> Result<Restored, Unfit> {
        let store = open_checkpoint(dir).map_err(|error| error.to_string())?;
        let restored = restore_from(&store, dir, learned, date)?;
        tier.adopt(&store, restored.fetchers.clone());
        Ok(restored)
    };
    let restored = begin().inspect_err(|why| crate::trace::checkpoint_unfit(why)).ok()?;
    evidence.inherit(restored.keys);
    if restored.keys <= READ_AT_START.min(learned.max_keys().unwrap_or(usize::MAX) as u64) {
        // What cannot be read now is read again when it is needed, and counts as a failure then.
        let _ = evidence.bring_all_back();
    }
    Some(restored)
}

/// Returns whether `dir` has a checkpoint.
pub(super) fn exists(dir: &Path) -> bool {
    tag(dir).is_ok_and(|tag| tag.is_some())
}

/// Returns the last record that the checkpoint of `dir` covers; `None` without a checkpoint that
/// this release can read.
pub(super) fn covers_seq(dir: &Path) -> Option<u64> {
    Some(Tag::decode(&tag(dir).ok()??)?.covers_seq)
}

fn tag(dir: &Path) -> Result<Option<Vec<u8>>, Unfit> {
    ColdStore::read_tag(&checkpoint_folder(dir)).map_err(|error| error.to_string())
}

/// Returns a start with what the checkpoint of `dir` has besides evidence, if it is one of the log.
/// Takes no lock and changes nothing.
pub(super) fn start_without_evidence(dir: &Path) -> Option<FoldStart> {
    let tag = Tag::decode(&tag(dir).ok()??)?;
    let reader = open(dir).ok()?;
    fits_log(&tag, &reader).ok()?;
    let contents = read_state(dir, &tag).ok()?.contents;
    Some(FoldStart { reader: Some(reader), contents: Some(contents), ..FoldStart::default() })
}

/// Restores evidence from the checkpoint of an open store, except for the entries that the store
/// itself has.
pub(super) fn restore_from(
    store: &ColdStore,
    dir: &Path,
    learned: &Learned,
    date: Timestamp,
) -> Result<Restored, Unfit> {
    let tag = store.tag().ok_or("there is none")?;
    let tag = Tag::decode(tag).ok_or("another release wrote it")?;
    let reader = open(dir).map_err(|error| error.to_string())?;
    fits_log(&tag, &reader)?;
    if (tag.half_life_ms, tag.suffixes) != rules(learned) {
        return Err("the half-life or the suffixes of files have changed".into());
    }
    let state = read_state(dir, &tag)?;
    let present = state.contents.now.max(date);
    if !learned.evidence.decay().with_landmark(state.landmark.as_millis()).is_near(present) {
        return Err("its weights are too old".into());
    }
    let fetchers = FetcherNumbers::of(&state.fetchers, &learned.registry)
        .ok_or("the kinds of fetchers have changed")?;
    state.restore(&learned.evidence, &fetchers).ok_or("its state is not valid")?;
    Ok(Restored { contents: state.contents, reader, fetchers, keys: tag.keys })
}

/// Returns the half-life and a hash of the file suffixes, by which evidence is learned.
fn rules(learned: &Learned) -> (u64, u64) {
    let suffixes = format!("{:?}", learned.evidence.file_suffixes());
    (learned.half_life_ms(), xxh3_64(suffixes.as_bytes()))
}

/// Returns the tag of a checkpoint of the log that `reader` reads, without its state.
pub(super) fn tag_of(reader: &Reader, learned: &Learned, covers_seq: u64) -> Tag {
    let (half_life_ms, suffixes) = rules(learned);
    let keys = learned.evidence.keys_seen();
    // Without that record the log has none before it either: a snapshot covers them.
    let (log, record) =
        (reader.store().unwrap_or_default(), hash_of_record(reader, covers_seq).unwrap_or(0));
    Tag { log, covers_seq, record, half_life_ms, suffixes, keys, ..Tag::default() }
}

fn fits_log(tag: &Tag, reader: &Reader) -> Result<(), Unfit> {
    if reader.store() != Some(tag.log) {
        return Err("it belongs to another log".into());
    }
    if reader.floor_seq() > tag.covers_seq {
        return Err("a compaction has removed records that follow it".into());
    }
    match hash_of_record(reader, tag.covers_seq) {
        Some(hash) if hash == tag.record => Ok(()),
        // A compaction may have removed that record, but none behind it.
        None if reader.floor_seq() == tag.covers_seq => Ok(()),
        _ => Err("the log does not have its last record".into()),
    }
}

/// Returns a hash of a record. Cost: a pass over the part of a segment before it.
fn hash_of_record(reader: &Reader, seq: u64) -> Option<u64> {
    let holds = |segment: &fetchwise_log::SegmentInfo| {
        segment.first_seq <= seq && segment.next_seq.is_none_or(|next| next > seq)
    };
    let index = reader.segments().position(|segment| holds(&segment))?;
    let mut hash = None;
    let read = reader.segment_for_each_marked(
        index,
        (seq, seq),
        &mut ResumeMark::default(),
        |_, record| {
            hash =
                Some(xxh3_64_with_seed(record.payload, record.key_hash ^ u64::from(record.kind)));
        },
    );
    read.ok().and(hash)
}

fn read_state(dir: &Path, tag: &Tag) -> Result<State, Unfit> {
    let file = checkpoint_folder(dir).join(state_name(tag.covers_seq));
    let bytes =
        std::fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if !tag.is_of(&bytes) {
        return Err(format!("{} is damaged", file.display()));
    }
    checkpoint_state::decode(&bytes, tag.covers_seq)
        .ok_or_else(|| format!("{} is not valid", file.display()))
}

/// Prefix of the names of states.
pub(super) const STATE_PREFIX: &str = "state-";

/// Returns the name of the state that covers this record.
pub(super) fn state_name(covers_seq: u64) -> String {
    format!("{STATE_PREFIX}{covers_seq:016x}")
}
