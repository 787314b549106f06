//! Reading a journal for replication: its attempts as remote attempts, and its evidence as a
//! snapshot.
//!
//! Owns: which records become remote attempts.
//!
//! Invariants: a record that a tombstone covers is never replicated, nor one that moves no weight.
//! A record that a compaction dropped is distinguished from one that has nothing to replicate.
//!
//! Must not know: where remote attempts are sent.

use std::path::Path;

use fetchwise_log::RecordRef;
use xxhash_rust::xxh3::xxh3_64;

use super::entry::{Entry, LinkEntry, Release, ReleaseTarget, Tombstone, TombstoneTarget};
use super::error::JournalError;
use super::fold::Fold;
use super::read::{open, pass, pass_range};
use super::schema::{self, ClampedAttempt, SchemaError};
use super::snapshot::{SnapshotContents, decode_sections};
use crate::backoff::LinkState;
use crate::evidence::decay::Decay;
use crate::evidence::evidence_snapshot::FADED;
use crate::evidence::{EvidenceSnapshot, Learned, Observation, RemoteAttempt};
use crate::journal::recovery_point::FoldStart;
pub use crate::journal::tombstone_cache::Tombstones;
use crate::journal::tombstones::TombstoneSet;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// Latest possible time.
const NO_LIMIT: Timestamp = Timestamp::from_millis(i64::MAX);

/// State of a link, as far as other nodes use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteLinkState<'a> {
    /// xxh3-64 of the link's name.
    pub link: u64,
    /// Domain of the link's URL. Empty if an operator ended the pause of a link whose domain is
    /// unknown.
    pub domain: &'a str,
    /// State of the link, without the time of its last attempt.
    pub state: LinkState,
    /// Time of the change.
    pub at: Timestamp,
}

/// Content of one position of a log.
#[derive(Clone, Copy, Debug)]
pub enum PositionContent<'a> {
    /// Attempt that other nodes can learn from, and the hash of its link.
    RemoteAttempt(RemoteAttempt<'a>, u64),
    /// State of a link.
    Link(RemoteLinkState<'a>),
    /// Nothing that other nodes can learn from.
    Nothing,
    /// Domain that was forgotten, and when.
    ForgottenDomain(&'a str, Timestamp),
    /// Record that a compaction dropped.
    Gone,
}

/// Calls `f` with the content of each position from `from` to `upto`, in order, once each.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn read_positions(
    dir: &Path,
    (from, upto): (u64, u64),
    learned: &Learned,
    tombstones: &mut Tombstones,
    mut f: impl FnMut(u64, PositionContent<'_>),
) -> Result<(), JournalError> {
    if from > upto {
        return Ok(());
    }
    // A tombstone after the range may cover records in it.
    let end = upto.max(tombstones.upto);
    tombstones.read_range(dir, from, end)?;
    let mut next = from;
    let known = &tombstones.known;
    pass_range(
        dir,
        from,
        |seq, record| {
            if seq < next || seq > upto {
                return Ok(());
            }
            (next..seq).for_each(|gone| f(gone, PositionContent::Gone));
            next = seq + 1;
            content_of((seq, record), learned, known, &mut f)
        },
        upto,
        &mut tombstones.mark,
    )?;
    (next..=upto).for_each(|gone| f(gone, PositionContent::Gone));
    Ok(())
}

/// Calls `f` once with the content of a record.
fn content_of(
    (seq, record): (u64, RecordRef<'_>),
    learned: &Learned,
    known: &TombstoneSet,
    f: &mut impl FnMut(u64, PositionContent<'_>),
) -> Result<(), SchemaError> {
    if record.kind == schema::kind::TOMBSTONE {
        match schema::decode(record.kind, record.schema, record.payload)? {
            Entry::Tombstone(Tombstone { target: TombstoneTarget::Domain(name), at }) => {
                f(seq, PositionContent::ForgottenDomain(&name, at));
            }
            _ => f(seq, PositionContent::Nothing),
        }
        return Ok(());
    }
    if matches!(record.kind, schema::kind::LINK_STATE | schema::kind::RELEASE) {
        let entry = schema::decode(record.kind, record.schema, record.payload)?;
        match of_link(&entry).filter(|_| !known.covers(seq, &entry)) {
            Some(link) => f(seq, PositionContent::Link(link)),
            None => f(seq, PositionContent::Nothing),
        }
        return Ok(());
    }
    let Some(view) = schema::attempt(record.kind, record.schema, record.payload)? else {
        f(seq, PositionContent::Nothing);
        return Ok(());
    };
    let link = xxh3_64(view.link().as_bytes());
    let is_forgotten = known.covers_attempt(seq, &view);
    let whole = ClampedAttempt(view, NO_LIMIT);
    let (facts, is_file) = (whole.fields(), learned.evidence.kind_of(&whole) == ContentKind::File);
    if is_forgotten || facts.weight <= 0.0 || !facts.weight.is_finite() {
        f(seq, PositionContent::Nothing);
        return Ok(());
    }
    let mut heuristics = Vec::with_capacity(16);
    whole.each_heuristic(&mut |kind, value| heuristics.push((kind, value)));
    let fact = RemoteAttempt {
        at: facts.at,
        fetcher: facts.fetcher,
        // Capped as in evidence.
        weight: facts.weight.min(1.0),
        success: facts.success,
        is_banned: facts.is_banned,
        duration_ms: facts.duration_ms,
        hint: facts.hint,
        is_file,
        heuristics: &heuristics,
    };
    f(seq, PositionContent::RemoteAttempt(fact, link));
    Ok(())
}

/// Returns the link state of an entry, if the entry is about a link.
fn of_link(entry: &Entry) -> Option<RemoteLinkState<'_>> {
    match entry {
        Entry::Link(entry) => Some(RemoteLinkState::of(entry)),
        Entry::Release(Release { target: ReleaseTarget::Link(link), at }) => {
            Some(RemoteLinkState {
                link: xxh3_64(link.as_bytes()),
                domain: "",
                state: LinkState::default(),
                at: *at,
            })
        }
        _ => None,
    }
}

impl<'a> RemoteLinkState<'a> {
    /// Returns the part of the entry that other nodes use.
    pub fn of(entry: &'a LinkEntry) -> Self {
        let state = LinkState { last_attempt_at: None, ..entry.state };
        Self { link: xxh3_64(entry.link.as_bytes()), domain: &entry.domain, state, at: entry.at }
    }
}

/// Evidence of a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogEvidence {
    /// Last record that is included. It may lie after the requested one if a snapshot of the log
    /// covers more.
    pub upto: u64,
    /// Evidence of the attempts.
    pub share: EvidenceSnapshot,
    /// Last state of each link, with its position; 0 for states from a snapshot.
    pub links: Vec<(u64, LinkEntry)>,
}

/// Folds the records up to `upto`, without forgotten ones and without those for which `leaves_out`
/// returns true. `blank` has learned nothing yet, and is used up. The newest record decides what
/// has faded, or `now` if that record is later.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn fold(
    dir: &Path,
    blank: &Learned,
    upto: u64,
    leaves_out: Option<&dyn Fn(u64) -> bool>,
    now: Timestamp,
) -> Result<LogEvidence, JournalError> {
    let mut fold = Fold::begin(FoldStart::newest(dir)?, blank, now)?;
    // A record dated years ahead would fade all other weights of its keys to zero before it is
    // retracted.
    let limit = if leaves_out.is_some() { now } else { NO_LIMIT };
    fold.advance(dir, blank, upto, limit, &mut |_| {})?;
    let covers = fold.covers_seq;
    if let Some(leaves_out) = leaves_out {
        let mut forgotten = TombstoneSet::default();
        pass(
            dir,
            |seq, record| if seq <= covers { forgotten.add_record(seq, &record) } else { Ok(()) },
        )?;
        pass(dir, |seq, record| {
            if seq > covers || !leaves_out(seq) {
                return Ok(());
            }
            if let Some(view) = schema::attempt(record.kind, record.schema, record.payload)?
                && !forgotten.covers_attempt(seq, &view)
            {
                blank.evidence.retract(&ClampedAttempt(view, limit), &blank.registry, true);
            }
            Ok(())
        })?;
    }
    let share = blank.evidence_snapshot(fold.newest.min(now), FADED);
    Ok(LogEvidence { upto: covers.max(upto), share, links: fold.links.into_values().collect() })
}

/// Retracts from shared evidence the attempts of a domain before the record `before`, and returns
/// their number. The caller forgets the domain's own evidence. Attempts that an older tombstone
/// covers are not in evidence any more, and compacted attempts cannot be retracted.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn retract_domain(
    dir: &Path,
    learned: &Learned,
    domain: &str,
    before: u64,
) -> Result<u64, JournalError> {
    let mut older = TombstoneSet::default();
    pass(dir, |seq, record| if seq < before { older.add_record(seq, &record) } else { Ok(()) })?;
    let mut taken = 0;
    pass(dir, |seq, record| {
        if seq >= before {
            return Ok(());
        }
        if let Some(view) = schema::attempt(record.kind, record.schema, record.payload)?
            && (view.domain() == Some(domain) || view.redirected_by() == Some(domain))
            && !older.covers_attempt(seq, &view)
        {
            let is_of_another = view.domain() != Some(domain);
            learned.evidence.retract(
                &ClampedAttempt(view, NO_LIMIT),
                &learned.registry,
                is_of_another,
            );
            taken += 1;
        }
        Ok(())
    })?;
    Ok(taken)
}

/// Returns the last record that may be gone from the segments because snapshots hold its effect.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn floor_seq(dir: &Path) -> Result<u64, JournalError> {
    Ok(open(dir)?.floor_seq())
}

/// Returns the landmark, the half-life and the numbered sections of an evidence snapshot. The
/// sections are those of a journal snapshot that hold evidence.
pub fn encode(share: &EvidenceSnapshot) -> (i64, u64, Vec<(u32, Vec<u8>)>) {
    let contents = SnapshotContents { image: share.clone(), ..SnapshotContents::default() };
    let meta = contents.meta();
    (meta.landmark_ms, meta.half_life_ms, contents.encode())
}

/// Decodes an evidence snapshot. Returns `None` for invalid sections.
pub fn decode(
    landmark_ms: i64,
    half_life_ms: u64,
    sections: &[(u32, &[u8])],
) -> Option<EvidenceSnapshot> {
    let mut image = decode_sections(sections, 0)?.image;
    let half_life = std::time::Duration::from_millis(half_life_ms);
    image.decay = Decay::at_landmark(half_life, Timestamp::from_millis(landmark_ms));
    (image.decay.is_some() || image.entries.is_empty()).then_some(image)
}
