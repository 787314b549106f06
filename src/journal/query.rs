//! Looking back: the attempts of a time, a link, a domain, without a pass over all of the log.
//!
//! Owns: which segments have to be read for what is wanted. Invariants: what is shown is what a [`replay`](super::replay) would have
//! shown of it, tombstones heeded; a segment is left out only when its seal says that it holds nothing wanted. Reading takes no
//! lock. Must not know how attempts are shown.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use fetchwise_log::{Damage, Error as LogError, Reader, RecordRef, TornTail};
use rkyv::util::AlignedVec;
use uuid::Uuid;

use super::entry::Entry;
use super::error::JournalError;
use super::read::{REOPENINGS_MAX, open};
use super::schema::{self, SchemaError};
use crate::journal::maintenance;
use crate::journal::tombstones::Forgotten;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::time::Timestamp;

/// Which attempts are wanted: those that fit everything that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptQuery {
    /// The attempt with this id.
    pub id: Option<Uuid>,
    /// At this URL, as attempts have it: without user info and fragment.
    pub url: Option<String>,
    /// Of this link: the caller's name for it.
    pub link: Option<String>,
    /// Of this domain, as the heuristic has it.
    pub domain: Option<String>,
    /// Made then or later.
    pub since: Option<Timestamp>,
    /// Made then or earlier.
    pub until: Option<Timestamp>,
    /// That ended in this way.
    pub ended: Option<OutcomeFilter>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutcomeFilter {
    /// With content.
    Content,
    /// Without.
    Failed,
    /// With a block of any kind.
    Blocked,
    /// With this error type.
    Error(String),
}

/// Which attempt comes first. The order is that in which they were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest.
    #[default]
    NewestFirst,
    /// The oldest.
    OldestFirst,
}

/// What a look back took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryStats {
    /// Attempts shown.
    pub shown: u64,
    /// Segments that the log has, and those that were read.
    pub segments: (u64, u64),
    /// Bytes of the same.
    pub bytes: (u64, u64),
    /// Attempts before this may have been compacted away. None where no compaction has been.
    pub compacted_before: Option<Timestamp>,
    /// Present when the last writer died in the middle of a write. Nothing that was acknowledged is missing.
    pub torn_tail: Option<TornTail>,
}

impl AttemptQuery {
    /// Whether any time that is wanted may be compacted away.
    pub fn reaches_before(&self, cutoff: Timestamp) -> bool {
        self.since.is_none_or(|since| since < cutoff)
    }

    /// Whether a segment may hold any of them.
    fn may_be_in(&self, earliest: Option<i64>, latest: Option<i64>) -> bool {
        let Some(latest) = latest else { return false };
        self.since.is_none_or(|since| latest >= since.as_millis())
            && self.until.zip(earliest).is_none_or(|(until, earliest)| earliest <= until.as_millis())
    }

    /// Whether a record is an attempt that is wanted and that nothing seen until now has forgotten. Copies nothing, but for an error type.
    fn fits(&self, seq: u64, record: &RecordRef<'_>, forgotten: &Forgotten) -> Result<bool, SchemaError> {
        if self.domain.as_deref().is_some_and(|domain| schema::key_of_domain(domain) != record.key_hash) {
            return Ok(false);
        }
        let Some(view) = schema::attempt(record.kind, record.schema, record.payload)? else { return Ok(false) };
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let fits = self.id.is_none_or(|id| id == view.id())
            && self.since.is_none_or(|since| view.at() >= since)
            && self.until.is_none_or(|until| view.at() <= until)
            && is(&self.url, view.url())
            && is(&self.link, view.link())
            && (self.domain.is_none() || self.domain.as_deref() == view.domain())
            && !forgotten.covers_link(seq, view.link())
            && !forgotten.covers_domain(seq, view.domain());
        Ok(fits
            && match &self.ended {
                None => true,
                Some(OutcomeFilter::Content) => view.is_success(),
                Some(OutcomeFilter::Failed) => !view.is_success(),
                Some(OutcomeFilter::Blocked) => view.is_banned(),
                Some(OutcomeFilter::Error(name)) => {
                    decode(record)?.and_then(|attempt| attempt.error_type).is_some_and(|error| error.name() == name)
                }
            })
    }
}

fn decode(record: &RecordRef<'_>) -> Result<Option<Attempt>, SchemaError> {
    match schema::decode(record.kind, record.schema, record.payload)? {
        Entry::Attempt(attempt) => Ok(Some(attempt)),
        _ => Ok(None),
    }
}

/// Whether an attempt that was wanted is not forgotten after all.
fn still_fits(seq: u64, record: &RecordRef<'_>, forgotten: &Forgotten) -> Result<bool, SchemaError> {
    let view = schema::attempt(record.kind, record.schema, record.payload)?;
    Ok(view
        .is_some_and(|view| !forgotten.covers_link(seq, view.link()) && !forgotten.covers_domain(seq, view.domain())))
}

/// An attempt's record, kept until it is known whether it is shown: most of those that are kept on the way to the newest are not.
struct Held {
    seq: u64,
    kind: u16,
    schema: u16,
    payload: AlignedVec,
}

impl Held {
    fn of(seq: u64, record: &RecordRef<'_>, mut spare: AlignedVec) -> Self {
        spare.clear();
        spare.extend_from_slice(record.payload);
        Self { seq, kind: record.kind, schema: record.schema, payload: spare }
    }

    fn as_ref(&self) -> RecordRef<'_> {
        RecordRef { kind: self.kind, schema: self.schema, key_hash: 0, payload: &self.payload }
    }
}

/// Shows the attempts in `dir` that are `wanted` to `f`, with their sequence numbers, as many as `limit`, until `f` has enough. Newest
/// first takes memory for the wanted attempts of one segment, or for `limit` of them; oldest first for none. Cost: a short read for
/// each segment, and a pass over those that may hold what is wanted; oldest first, or with an `until`, over those behind them, too,
/// since what is forgotten stands there.
///
/// # Errors
/// As [`replay`](super::replay): damage in what was read is reported after everything readable was shown.
pub fn attempts(
    dir: &Path,
    wanted: &AttemptQuery,
    order: Order,
    limit: Option<u64>,
    mut f: impl FnMut(u64, Attempt) -> ControlFlow<()>,
) -> Result<QueryStats, JournalError> {
    let mut look =
        Look { wanted, limit: limit.unwrap_or(u64::MAX), next: None, found: QueryStats::default(), damage: Vec::new() };
    let mut reopenings = 0;
    loop {
        let reader = open(dir)?;
        let read = match order {
            Order::NewestFirst => look.newest_first(&reader, &mut f),
            Order::OldestFirst => look.oldest_first(&reader, &mut f),
        };
        match read {
            // It goes on behind what was shown.
            Err(JournalError::Log(LogError::Replaced { .. })) if reopenings < REOPENINGS_MAX => reopenings += 1,
            other => break other?,
        }
    }
    let Look { mut found, damage, .. } = look;
    if !damage.is_empty() {
        return Err(LogError::Corrupt { dir: dir.to_owned(), damage }.into());
    }
    if found.torn_tail.is_some() {
        // A writer that is alive will have finished its write by then.
        found.torn_tail = maintenance::torn_tail(dir)?;
    }
    found.compacted_before = maintenance::cutoff(dir)?;
    Ok(found)
}

/// A look back under way.
struct Look<'w> {
    wanted: &'w AttemptQuery,
    limit: u64,
    /// The last record that was shown.
    next: Option<u64>,
    found: QueryStats,
    damage: Vec<Damage>,
}

/// What the segments of a log are, as far as a look needs to know.
struct Plan {
    /// Whether each may hold what is wanted.
    may_hold: Vec<bool>,
    bytes: Vec<u64>,
    read: Vec<bool>,
}

impl Look<'_> {
    fn plan(&mut self, reader: &Reader) -> Result<Plan, JournalError> {
        self.damage = reader.damage().to_vec();
        let mut plan = Plan { may_hold: Vec::new(), bytes: Vec::new(), read: Vec::new() };
        for (index, segment) in reader.segments().enumerate() {
            let times = reader.segment_times(index)?;
            plan.may_hold.push(times.is_none_or(|times| self.wanted.may_be_in(times.earliest, times.latest)));
            plan.bytes.push(segment.bytes);
            plan.read.push(false);
        }
        Ok(plan)
    }

    /// Reads one segment.
    fn read(
        &mut self,
        reader: &Reader,
        plan: &mut Plan,
        index: usize,
        mut f: impl FnMut(u64, &RecordRef<'_>) -> Result<(), SchemaError>,
    ) -> Result<(), JournalError> {
        let mut failed = None;
        let summary = reader.segment_for_each(index, 0, |seq, record| {
            if failed.is_none()
                && let Err(error) = f(seq, &record)
            {
                failed = Some(JournalError::Record { seq, source: Arc::new(error) });
            }
        })?;
        if !std::mem::replace(&mut plan.read[index], true) {
            self.damage.extend(summary.damage);
            self.found.torn_tail = summary.torn.or(self.found.torn_tail.take());
        }
        failed.map_or(Ok(()), Err)
    }

    /// What the segments that were read come to.
    fn count(&mut self, plan: &Plan) {
        let read = || plan.read.iter().zip(&plan.bytes).filter(|(read, _)| **read);
        self.found.segments = (plan.bytes.len() as u64, read().count() as u64);
        self.found.bytes = (plan.bytes.iter().sum(), read().map(|(_, bytes)| bytes).sum());
    }

    fn oldest_first(
        &mut self,
        reader: &Reader,
        f: &mut impl FnMut(u64, Attempt) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        let wanted = self.wanted;
        let mut plan = self.plan(reader)?;
        let first = plan.may_hold.iter().position(|may| *may).unwrap_or(plan.may_hold.len());
        // What forgets an attempt stands behind it. On the way it is seen which segments hold anything.
        let mut forgotten = Forgotten::default();
        for index in first..plan.may_hold.len() {
            let (may_hold, mut holds) = (plan.may_hold[index], false);
            self.read(reader, &mut plan, index, |seq, record| {
                forgotten.look(seq, record)?;
                holds = holds || may_hold && wanted.fits(seq, record, &forgotten)?;
                Ok(())
            })?;
            plan.may_hold[index] = holds;
        }
        self.count(&plan);
        let (mut shown, limit, mut last, mut is_enough) = (self.found.shown, self.limit, self.next, self.limit == 0);
        for index in first..plan.may_hold.len() {
            if is_enough || !plan.may_hold[index] {
                continue;
            }
            let read = self.read(reader, &mut plan, index, |seq, record| {
                let is_next = !is_enough && last.is_none_or(|last| seq > last);
                if is_next
                    && wanted.fits(seq, record, &forgotten)?
                    && let Some(attempt) = decode(record)?
                {
                    (shown, last) = (shown + 1, Some(seq));
                    is_enough = f(seq, attempt).is_break() || shown >= limit;
                }
                Ok(())
            });
            (self.found.shown, self.next) = (shown, last);
            read?;
        }
        Ok(())
    }

    fn newest_first(
        &mut self,
        reader: &Reader,
        f: &mut impl FnMut(u64, Attempt) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        let mut plan = self.plan(reader)?;
        let first = plan.may_hold.iter().position(|may| *may).unwrap_or(plan.may_hold.len());
        let mut forgotten = Forgotten::default();
        for index in (first..plan.may_hold.len()).rev() {
            if self.found.shown >= self.limit {
                break;
            }
            let mut held = self.newest_of(reader, &mut plan, index, &mut forgotten)?;
            self.count(&plan);
            while let Some(one) = held.pop_back() {
                let record = one.as_ref();
                let failed = |source| JournalError::Record { seq: one.seq, source: Arc::new(source) };
                if !still_fits(one.seq, &record, &forgotten).map_err(failed)? {
                    continue;
                }
                let Some(attempt) = decode(&record).map_err(failed)? else { continue };
                (self.found.shown, self.next) = (self.found.shown + 1, Some(one.seq));
                if f(one.seq, attempt).is_break() {
                    return Ok(());
                }
            }
        }
        self.count(&plan);
        Ok(())
    }

    /// The last wanted attempts of one segment that are not shown yet, as many as there is room for, and what is forgotten there.
    fn newest_of(
        &mut self,
        reader: &Reader,
        plan: &mut Plan,
        index: usize,
        forgotten: &mut Forgotten,
    ) -> Result<VecDeque<Held>, JournalError> {
        let wanted = self.wanted;
        let room = usize::try_from(self.limit - self.found.shown).unwrap_or(usize::MAX);
        let (may_hold, below) = (plan.may_hold[index], self.next.unwrap_or(u64::MAX));
        let mut held = VecDeque::new();
        let (mut stones, mut fell_out) = (0, false);
        self.read(reader, plan, index, |seq, record| {
            stones += u64::from(record.kind == schema::kind::TOMBSTONE);
            forgotten.look(seq, record)?;
            if may_hold && seq < below && wanted.fits(seq, record, forgotten)? {
                fell_out |= held.len() == room;
                keep(&mut held, room, seq, record);
            }
            Ok(())
        })?;
        if stones > 0 && fell_out {
            // Some of those kept may be forgotten by what stands behind them, so that others have their place.
            held.clear();
            self.read(reader, plan, index, |seq, record| {
                if seq < below && wanted.fits(seq, record, forgotten)? {
                    keep(&mut held, room, seq, record);
                }
                Ok(())
            })?;
        }
        Ok(held)
    }
}

/// Keeps the last `room` of them.
fn keep(held: &mut VecDeque<Held>, room: usize, seq: u64, record: &RecordRef<'_>) {
    let spare = if held.len() == room { held.pop_front().map(|oldest| oldest.payload) } else { None };
    held.push_back(Held::of(seq, record, spare.unwrap_or_default()));
}

/// The attempt with this id, and its place in the log; none when there is none, or none any more. The id of a live attempt tells when it
/// was made, so that a part of the log is read first.
///
/// # Errors
/// As [`attempts`].
pub fn attempt(dir: &Path, id: Uuid) -> Result<Option<(u64, Attempt)>, JournalError> {
    let mut found = None;
    let mut look = |wanted: &AttemptQuery| {
        attempts(dir, wanted, Order::NewestFirst, Some(1), |seq, attempt| {
            found = Some((seq, attempt));
            ControlFlow::Break(())
        })
        .map(|_| found.is_some())
    };
    let by_id = AttemptQuery { id: Some(id), ..AttemptQuery::default() };
    let near = id.get_timestamp().map(|at| at.to_unix()).and_then(|(seconds, _)| i64::try_from(seconds).ok());
    if let Some(seconds) = near {
        let at = |seconds: i64| Some(Timestamp::from_millis(seconds.saturating_mul(1000)));
        let wanted = AttemptQuery { since: at(seconds - NEAR_S), until: at(seconds + NEAR_S), ..by_id.clone() };
        if look(&wanted)? {
            return Ok(found);
        }
    }
    look(&by_id)?;
    Ok(found)
}

/// An attempt is recorded within so many seconds of the time that its id tells, unless it was imported.
const NEAR_S: i64 = 3600;

/// The attempts of the fetch that the attempt `of` was made in, itself among them, in their order: those of its link, numbered on from the
/// first.
///
/// # Errors
/// As [`attempts`].
pub fn fetch_of(dir: &Path, of: &(u64, Attempt)) -> Result<Vec<(u64, Attempt)>, JournalError> {
    let (own, attempt) = of;
    let day = 86_400_000;
    let at = attempt.attempted_at.as_millis();
    let wanted = AttemptQuery {
        link: Some(attempt.link.clone()),
        domain: attempt.heuristic("domain").map(str::to_owned),
        since: Some(Timestamp::from_millis(at.saturating_sub(day))),
        until: Some(Timestamp::from_millis(at.saturating_add(day))),
        ..AttemptQuery::default()
    };
    let mut fetch: Vec<(u64, Attempt)> = Vec::new();
    attempts(dir, &wanted, Order::OldestFirst, None, |seq, attempt| {
        let begins_anew = fetch.last().is_some_and(|(_, before)| attempt.try_no <= before.try_no);
        if begins_anew && fetch.iter().any(|(seq, _)| seq == own) {
            return ControlFlow::Break(());
        }
        if begins_anew {
            fetch.clear();
        }
        fetch.push((seq, attempt));
        ControlFlow::Continue(())
    })?;
    Ok(fetch)
}
