//! Reading a journal for replication: its attempts as remote attempts, and its evidence as a snapshot.
//!
//! Owns: which records become remote attempts.
//!
//! Invariants: a record that a tombstone covers is never replicated, nor one that moves no weight. A record that a
//! compaction dropped is distinguished from one that has nothing to replicate.
//!
//! Must not know: where remote attempts are sent.

use std::path::Path;

use fetchwise_log::Mark;
use xxhash_rust::xxh3::xxh3_64;

use super::entry::{Entry, LinkEntry, Release, ReleaseTarget};
use super::error::JournalError;
use super::fold::Fold;
use super::read::{open, pass};
use super::schema::{self, Clamped};
use super::snapshot::{Contents, decode_sections};
use crate::backoff::LinkState;
use crate::evidence::columns::FADED;
use crate::evidence::decay::Decay;
use crate::evidence::{Fact, Observed, Share};
use crate::journal::recovery_point::Start;
use crate::journal::tombstones::Forgotten;
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// Latest possible time.
const NO_LIMIT: Timestamp = Timestamp::from_millis(i64::MAX);

/// State of a link, as far as other nodes use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFact<'a> {
    /// xxh3-64 of the link's name.
    pub link: u64,
    /// Domain of the link's URL. Empty if an operator ended the pause of a link whose domain is unknown.
    pub domain: &'a str,
    /// State of the link, without the time of its last attempt.
    pub state: LinkState,
    /// Time of the change.
    pub at: Timestamp,
}

/// Content of one position of a log.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Attempt that other nodes can learn from, and the hash of its link.
    Fact(Fact<'a>, u64),
    /// State of a link.
    Link(LinkFact<'a>),
    /// Nothing that other nodes can learn from.
    Nothing,
    /// Domain that was forgotten, and when.
    Forgotten(&'a str, Timestamp),
    /// Record that a compaction dropped.
    Gone,
}

/// Cached tombstones of a log for a repeated reader, and the position at which its last pass ended.
#[derive(Clone, Debug, Default)]
pub struct Stones {
    known: Forgotten,
    /// First position of the known range.
    from: u64,
    /// Last position of the known range.
    upto: u64,
    /// Position from which on the caller knows that there is no tombstone, if any.
    none_from: Option<u64>,
    /// Position at which the last pass over attempts ended.
    mark: Mark,
}

impl Stones {
    /// Declares that there are no tombstones from `seq` on, so that none are searched for there.
    pub fn none_from(&mut self, seq: u64) {
        self.none_from = Some(seq);
    }

    /// Reads the tombstones from `from` up to `upto`.
    fn learn(&mut self, dir: &Path, from: u64, upto: u64) -> Result<(), JournalError> {
        if self.none_from.is_some_and(|none| from >= none) {
            return Ok(());
        }
        let is_first = self.upto == 0;
        let wanted = |seq: u64| seq >= from && seq <= upto && (is_first || seq < self.from || seq > self.upto);
        if is_first || from < self.from || upto > self.upto {
            let start = if is_first || from < self.from { from } else { self.upto + 1 };
            let mut found = Forgotten::default();
            walk(
                dir,
                start,
                |seq, record| if wanted(seq) { found.look(seq, &record) } else { Ok(()) },
                upto,
                &mut Mark::default(),
            )?;
            for (seq, target) in found.after(0) {
                self.known.add(seq, target);
            }
            self.from = if is_first { from } else { self.from.min(from) };
            self.upto = self.upto.max(upto);
        }
        Ok(())
    }
}

/// Calls `f` with the content of each position from `from` to `upto`, in order, once each.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn facts(
    dir: &Path,
    (from, upto): (u64, u64),
    selector: &Selector,
    stones: &mut Stones,
    mut f: impl FnMut(u64, Place<'_>),
) -> Result<(), JournalError> {
    if from > upto {
        return Ok(());
    }
    // A tombstone after the range may cover records in it.
    let end = upto.max(stones.upto);
    stones.learn(dir, from, end)?;
    let mut next = from;
    let known = &stones.known;
    walk(
        dir,
        from,
        |seq, record| {
            if seq < next || seq > upto {
                return Ok(());
            }
            (next..seq).for_each(|gone| f(gone, Place::Gone));
            next = seq + 1;
            if record.kind == schema::kind::TOMBSTONE {
                match schema::decode(record.kind, record.schema, record.payload)? {
                    super::Entry::Tombstone(super::Tombstone { target: super::TombstoneTarget::Domain(name), at }) => {
                        f(seq, Place::Forgotten(&name, at));
                    }
                    _ => f(seq, Place::Nothing),
                }
                return Ok(());
            }
            if matches!(record.kind, schema::kind::LINK_STATE | schema::kind::RELEASE) {
                let entry = schema::decode(record.kind, record.schema, record.payload)?;
                match of_link(&entry).filter(|_| !known.covers(seq, &entry)) {
                    Some(link) => f(seq, Place::Link(link)),
                    None => f(seq, Place::Nothing),
                }
                return Ok(());
            }
            let Some(view) = schema::attempt(record.kind, record.schema, record.payload)? else {
                f(seq, Place::Nothing);
                return Ok(());
            };
            let (link, is_file) = (view.link(), selector.is_file(view.url()));
            let is_forgotten = known.covers_link(seq, link) || known.covers_domain(seq, view.domain());
            let link = xxh3_64(link.as_bytes());
            let whole = Clamped(view, NO_LIMIT);
            let facts = whole.facts();
            if is_forgotten || facts.weight <= 0.0 || !facts.weight.is_finite() {
                f(seq, Place::Nothing);
                return Ok(());
            }
            let mut heuristics = Vec::with_capacity(16);
            whole.each_heuristic(&mut |kind, value| heuristics.push((kind, value)));
            let fact = Fact {
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
            f(seq, Place::Fact(fact, link));
            Ok(())
        },
        upto,
        &mut stones.mark,
    )?;
    (next..=upto).for_each(|gone| f(gone, Place::Gone));
    Ok(())
}

/// Returns the link state of an entry, if the entry is about a link.
fn of_link(entry: &Entry) -> Option<LinkFact<'_>> {
    match entry {
        Entry::Link(entry) => Some(LinkFact::of(entry)),
        Entry::Release(Release { target: ReleaseTarget::Link(link), at }) => {
            Some(LinkFact { link: xxh3_64(link.as_bytes()), domain: "", state: LinkState::default(), at: *at })
        }
        _ => None,
    }
}

impl<'a> LinkFact<'a> {
    /// Returns the part of the entry that other nodes use.
    pub fn of(entry: &'a LinkEntry) -> Self {
        let state = LinkState { last_attempt_at: None, ..entry.state };
        Self { link: xxh3_64(entry.link.as_bytes()), domain: &entry.domain, state, at: entry.at }
    }
}

/// Calls `f` with the records from `from` up to `upto`. Starts at `mark` if that is on the way.
fn walk(
    dir: &Path,
    from: u64,
    mut f: impl FnMut(u64, fetchwise_log::RecordRef<'_>) -> Result<(), schema::SchemaError>,
    upto: u64,
    mark: &mut Mark,
) -> Result<(), JournalError> {
    use fetchwise_log::Error as LogError;
    let (mut next, mut failed) = (from, None);
    for _ in 0..=super::read::MAX_REOPENINGS {
        let reader = open(dir)?;
        let segments: Vec<_> = reader.segments().collect();
        let mut is_replaced = false;
        for (index, segment) in segments.iter().enumerate() {
            if segment.first_seq > upto || segment.next_seq.is_some_and(|end| end <= next) {
                continue;
            }
            let read = reader.segment_for_each_marked(index, (next, upto), mark, |seq, record| {
                next = seq + 1;
                if failed.is_none()
                    && let Err(error) = f(seq, record)
                {
                    failed = Some(JournalError::Record { seq, source: std::sync::Arc::new(error) });
                }
            });
            match read {
                Err(LogError::Replaced { .. }) => {
                    is_replaced = true;
                    break;
                }
                Ok(summary) if !summary.damage.is_empty() => {
                    return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
                }
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(error) = failed.take() {
                return Err(error);
            }
        }
        if !is_replaced {
            return Ok(());
        }
    }
    Err(LogError::Replaced { file: dir.to_owned() }.into())
}

/// Evidence of a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Folded {
    /// Last record that is included. It may lie after the requested one if a snapshot of the log covers more.
    pub upto: u64,
    /// Evidence of the attempts.
    pub share: Share,
    /// Last state of each link, with its position; 0 for states from a snapshot.
    pub links: Vec<(u64, LinkEntry)>,
}

/// Folds the records up to `upto`, without forgotten ones and without those for which `leaves_out` returns true.
/// `blank` is a new selector, which is used up. The newest record decides what has faded, or `now` if that record is
/// later.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn fold(
    dir: &Path,
    blank: &Selector,
    upto: u64,
    leaves_out: Option<&dyn Fn(u64) -> bool>,
    now: Timestamp,
) -> Result<Folded, JournalError> {
    let mut fold = Fold::begin(Start::newest(dir)?, blank);
    // A record dated years ahead would fade all other weights of its keys to zero before it is retracted.
    let limit = if leaves_out.is_some() { now } else { NO_LIMIT };
    fold.advance(dir, blank, upto, limit, &mut |_| {})?;
    let covers = fold.covers_seq;
    if let Some(leaves_out) = leaves_out {
        let mut forgotten = Forgotten::default();
        pass(dir, |seq, record| if seq <= covers { forgotten.look(seq, &record) } else { Ok(()) })?;
        pass(dir, |seq, record| {
            if seq > covers || !leaves_out(seq) {
                return Ok(());
            }
            if let Some(view) = schema::attempt(record.kind, record.schema, record.payload)?
                && !forgotten.covers_link(seq, view.link())
                && !forgotten.covers_domain(seq, view.domain())
            {
                blank.take_back(&Clamped(view, limit), true);
            }
            Ok(())
        })?;
    }
    let share = blank.share(fold.newest.min(now), FADED);
    Ok(Folded { upto: covers.max(upto), share, links: fold.links.into_values().collect() })
}

/// Retracts from shared evidence the attempts of a domain before the record `before`, and returns their number. The
/// caller forgets the domain's own evidence. Attempts that an older tombstone covers are not in evidence any more, and
/// compacted attempts cannot be retracted.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn take_back_domain(dir: &Path, selector: &Selector, domain: &str, before: u64) -> Result<u64, JournalError> {
    let mut older = Forgotten::default();
    pass(dir, |seq, record| if seq < before { older.look(seq, &record) } else { Ok(()) })?;
    let mut taken = 0;
    pass(dir, |seq, record| {
        if seq >= before {
            return Ok(());
        }
        if let Some(view) = schema::attempt(record.kind, record.schema, record.payload)?
            && view.domain() == Some(domain)
            && !older.covers_link(seq, view.link())
            && !older.covers_domain(seq, Some(domain))
        {
            selector.take_back(&Clamped(view, NO_LIMIT), false);
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

/// Returns the landmark, the half-life and the numbered sections of an evidence snapshot. The sections are those of a
/// journal snapshot that hold evidence.
pub fn encode(share: &Share) -> (i64, u64, Vec<(u32, Vec<u8>)>) {
    let contents = Contents { image: share.0.clone(), ..Contents::default() };
    let meta = contents.meta();
    (meta.landmark_ms, meta.half_life_ms, contents.encode())
}

/// Decodes an evidence snapshot. Returns `None` for invalid sections.
pub fn decode(landmark_ms: i64, half_life_ms: u64, sections: &[(u32, &[u8])]) -> Option<Share> {
    let mut image = decode_sections(sections, 0)?.image;
    let half_life = std::time::Duration::from_millis(half_life_ms);
    image.decay = Decay::at_landmark(half_life, Timestamp::from_millis(landmark_ms));
    (image.decay.is_some() || image.entries.is_empty()).then_some(Share(image))
}
