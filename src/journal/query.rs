//! Indexed lookup of attempts by time, link or domain, without a pass over the whole log.
//!
//! Reading takes no lock.
//!
//! Owns: the choice of the segments that a query has to read.
//!
//! Invariants: a query returns what a [`replay`](super::replay) would have returned for it,
//! tombstones included. A segment is skipped only if its seal rules out a match.
//!
//! Must not know: what the attempts are used for.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use fetchwise_log::{Damage, Error as LogError, Reader, RecordRef, TornTail};
use rkyv::util::AlignedVec;
use uuid::Uuid;

use super::entry::Entry;
use super::error::JournalError;
use super::query_key::query_hash;
use super::read::{MAX_REOPENINGS, open};
use super::schema::{self, SchemaError};
use crate::journal::maintenance;
use crate::journal::tombstones::TombstoneSet;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::query_hash::QueryHash;
use fetchwise_types::time::Timestamp;

/// Query for attempts. An attempt matches if it fits every field that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptQuery {
    /// Id of the attempt.
    pub id: Option<Uuid>,
    /// URL, as attempts have it: without user info and fragment.
    pub url: Option<String>,
    /// Link: the caller's id for it.
    pub link: Option<String>,
    /// Domain, as the heuristic has it.
    pub domain: Option<String>,
    /// Earliest time.
    pub since: Option<Timestamp>,
    /// Latest time.
    pub until: Option<Timestamp>,
    /// Outcome.
    pub ended: Option<OutcomeFilter>,
    /// A heuristic that it is tagged with.
    pub heuristic: Option<Heuristic>,
    /// Only attempts recorded before this sequence number: the last one of the page before, newest
    /// first.
    pub before_seq: Option<u64>,
    /// Only attempts recorded after this sequence number: the last one of the page before, oldest
    /// first.
    pub after_seq: Option<u64>,
}

/// Filter on the outcome of attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutcomeFilter {
    /// Attempts that returned content.
    Content,
    /// Attempts that did not.
    Failed,
    /// Attempts that ended with a block of any kind.
    Blocked,
    /// Attempts that ended with this error type.
    Error(String),
}

/// Order of the results, by the order in which attempts were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Newest attempt first.
    #[default]
    NewestFirst,
    /// Oldest attempt first.
    OldestFirst,
}

/// Statistics of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryStats {
    /// Attempts returned.
    pub shown: u64,
    /// Segments of the log, and those that were read.
    pub segments: (u64, u64),
    /// Bytes of all segments, and of those that were read.
    pub bytes: (u64, u64),
    /// Attempts before this may have been compacted away. `None` if the log has not been compacted.
    pub compacted_before: Option<Timestamp>,
    /// Torn tail, if the last writer died in the middle of a write. No acknowledged entry is
    /// missing.
    pub torn_tail: Option<TornTail>,
}

impl AttemptQuery {
    /// Returns whether a part of the time range may have been compacted away.
    pub fn reaches_before(&self, cutoff: Timestamp) -> bool {
        self.since.is_none_or(|since| since < cutoff)
    }

    /// Returns whether a segment with these times may hold a match.
    fn may_be_in(&self, earliest: Option<i64>, latest: Option<i64>) -> bool {
        let Some(latest) = latest else { return false };
        self.since.is_none_or(|since| latest >= since.as_millis())
            && self
                .until
                .zip(earliest)
                .is_none_or(|(until, earliest)| earliest <= until.as_millis())
    }

    /// Returns whether a match may have one of these sequence numbers, the second of which is after
    /// the last.
    fn may_be_between(&self, first_seq: u64, next_seq: Option<u64>) -> bool {
        self.before_seq.is_none_or(|before| first_seq < before)
            && self
                .after_seq
                .zip(next_seq)
                .is_none_or(|(after, next)| next.saturating_sub(1) > after)
    }

    /// Returns whether a record is a matching attempt that no known tombstone covers. Copies
    /// nothing, except for an error type.
    fn fits(
        &self,
        seq: u64,
        record: &RecordRef<'_>,
        forgotten: &TombstoneSet,
    ) -> Result<bool, SchemaError> {
        if self.before_seq.is_some_and(|before| seq >= before)
            || self.after_seq.is_some_and(|after| seq <= after)
        {
            return Ok(false);
        }
        if self
            .domain
            .as_deref()
            .is_some_and(|domain| schema::key_of_domain(domain) != record.key_hash)
        {
            return Ok(false);
        }
        let Some(view) = schema::attempt(record.kind, record.schema, record.payload)? else {
            return Ok(false);
        };
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        let fits = self.id.is_none_or(|id| id == view.id())
            && self.since.is_none_or(|since| view.at() >= since)
            && self.until.is_none_or(|until| view.at() <= until)
            && is(&self.url, view.url())
            && is(&self.link, view.link())
            && self.heuristic.as_ref().is_none_or(|heuristic| view.has(heuristic))
            && (self.domain.is_none() || self.domain.as_deref() == view.domain())
            && !forgotten.covers_attempt(seq, &view);
        Ok(fits
            && match &self.ended {
                None => true,
                Some(OutcomeFilter::Content) => view.is_success(),
                Some(OutcomeFilter::Failed) => !view.is_success(),
                Some(OutcomeFilter::Blocked) => view.is_banned(),
                Some(OutcomeFilter::Error(name)) => decode(record)?
                    .and_then(|attempt| attempt.error_type)
                    .is_some_and(|error| error.name() == name),
            })
    }
}

/// A query of a log in which the values of query strings may be hashed.
struct WantedAttempts<'w> {
    query: &'w AttemptQuery,
    /// The query as the log names its URL or its link; none if that makes no difference.
    hashed: Option<AttemptQuery>,
}

impl<'w> WantedAttempts<'w> {
    fn new(query: &'w AttemptQuery, hash: Option<QueryHash>) -> Self {
        let hashed = hash.map(|hash| {
            let name =
                |text: &Option<String>| text.as_deref().map(|text| hash.url(text).into_owned());
            AttemptQuery { url: name(&query.url), link: name(&query.link), ..query.clone() }
        });
        Self { query, hashed: hashed.filter(|hashed| hashed != query) }
    }

    /// As [`AttemptQuery::fits`]. The log may have older attempts whose values are not hashed.
    fn fits(
        &self,
        seq: u64,
        record: &RecordRef<'_>,
        forgotten: &TombstoneSet,
    ) -> Result<bool, SchemaError> {
        let hashed = self.hashed.as_ref();
        Ok(self.query.fits(seq, record, forgotten)?
            || hashed.map_or(Ok(false), |query| query.fits(seq, record, forgotten))?)
    }
}

fn decode(record: &RecordRef<'_>) -> Result<Option<Attempt>, SchemaError> {
    match schema::decode(record.kind, record.schema, record.payload)? {
        Entry::Attempt(attempt) => Ok(Some(attempt)),
        _ => Ok(None),
    }
}

/// Returns whether a matching attempt is still not covered by a tombstone.
fn is_not_forgotten(
    seq: u64,
    record: &RecordRef<'_>,
    forgotten: &TombstoneSet,
) -> Result<bool, SchemaError> {
    let view = schema::attempt(record.kind, record.schema, record.payload)?;
    Ok(view.is_some_and(|view| !forgotten.covers_attempt(seq, &view)))
}

/// Copy of a record, kept until it is clear whether the query returns it. On the way to the newest,
/// most copies are discarded.
struct HeldRecord {
    seq: u64,
    kind: u16,
    schema: u16,
    payload: AlignedVec,
}

impl HeldRecord {
    fn of(seq: u64, record: &RecordRef<'_>, mut spare: AlignedVec) -> Self {
        spare.clear();
        spare.extend_from_slice(record.payload);
        Self { seq, kind: record.kind, schema: record.schema, payload: spare }
    }

    fn as_ref(&self) -> RecordRef<'_> {
        RecordRef { kind: self.kind, schema: self.schema, key_hash: 0, payload: &self.payload }
    }
}

/// Calls `f` with the attempts in `dir` that match the query, with their sequence numbers: at most
/// `limit`, or until `f` breaks.
///
/// Newest first needs memory for the matches of one segment, or for `limit` of them; oldest first
/// needs none. Cost: a short read per segment, and a pass over the segments that may hold a match.
/// Oldest first, or with an `until`, the pass covers all later segments too, because tombstones
/// come after what they cover.
///
/// # Errors
/// As [`replay`](super::replay). Damage in a segment that was read is reported after `f` received
/// everything readable.
pub fn attempts(
    dir: &Path,
    query: &AttemptQuery,
    order: Order,
    limit: Option<u64>,
    mut f: impl FnMut(u64, Attempt) -> ControlFlow<()>,
) -> Result<QueryStats, JournalError> {
    let wanted = WantedAttempts::new(query, query_hash(dir)?);
    let mut running = RunningQuery {
        wanted: &wanted,
        limit: limit.unwrap_or(u64::MAX),
        next: None,
        found: QueryStats::default(),
        damage: Vec::new(),
    };
    let mut reopenings = 0;
    loop {
        let reader = open(dir)?;
        let read = match order {
            Order::NewestFirst => running.newest_first(&reader, &mut f),
            Order::OldestFirst => running.oldest_first(&reader, &mut f),
        };
        match read {
            // The next round continues after the last attempt that `f` received.
            Err(JournalError::Log(LogError::Replaced { .. })) if reopenings < MAX_REOPENINGS => {
                reopenings += 1
            }
            other => break other?,
        }
    }
    let RunningQuery { mut found, damage, .. } = running;
    if !damage.is_empty() {
        return Err(LogError::Corrupt { dir: dir.to_owned(), damage }.into());
    }
    if found.torn_tail.is_some() {
        // A live writer finishes its write within this time.
        found.torn_tail = maintenance::torn_tail(dir)?;
    }
    found.compacted_before = maintenance::cutoff(dir)?;
    Ok(found)
}

/// Query in progress.
struct RunningQuery<'w> {
    wanted: &'w WantedAttempts<'w>,
    limit: u64,
    /// Last record that `f` received.
    next: Option<u64>,
    found: QueryStats,
    damage: Vec<Damage>,
}

/// Segments of the log, as far as a query needs to know them.
struct SegmentPlan {
    /// Whether each segment may hold a match.
    may_hold: Vec<bool>,
    bytes: Vec<u64>,
    read: Vec<bool>,
}

impl RunningQuery<'_> {
    fn plan(&mut self, reader: &Reader) -> Result<SegmentPlan, JournalError> {
        self.damage = reader.damage().to_vec();
        let mut plan = SegmentPlan { may_hold: Vec::new(), bytes: Vec::new(), read: Vec::new() };
        for (index, segment) in reader.segments().enumerate() {
            let times = reader.segment_times(index)?;
            let is_in_time =
                times.is_none_or(|times| self.wanted.query.may_be_in(times.earliest, times.latest));
            plan.may_hold.push(
                is_in_time && self.wanted.query.may_be_between(segment.first_seq, segment.next_seq),
            );
            plan.bytes.push(segment.bytes);
            plan.read.push(false);
        }
        Ok(plan)
    }

    /// Reads one segment.
    fn read(
        &mut self,
        reader: &Reader,
        plan: &mut SegmentPlan,
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

    /// Sums up the segments that were read.
    fn count(&mut self, plan: &SegmentPlan) {
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
        // Tombstones come after what they cover, so they are collected first. The same pass finds
        // the segments that hold a match.
        let mut forgotten = TombstoneSet::default();
        for index in first..plan.may_hold.len() {
            let (may_hold, mut holds) = (plan.may_hold[index], false);
            self.read(reader, &mut plan, index, |seq, record| {
                forgotten.add_record(seq, record)?;
                holds = holds || may_hold && wanted.fits(seq, record, &forgotten)?;
                Ok(())
            })?;
            plan.may_hold[index] = holds;
        }
        self.count(&plan);
        let (mut shown, limit, mut last, mut is_enough) =
            (self.found.shown, self.limit, self.next, self.limit == 0);
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
        let mut forgotten = TombstoneSet::default();
        for index in (first..plan.may_hold.len()).rev() {
            if self.found.shown >= self.limit {
                break;
            }
            let mut held = self.newest_of(reader, &mut plan, index, &mut forgotten)?;
            self.count(&plan);
            while let Some(one) = held.pop_back() {
                let record = one.as_ref();
                let failed =
                    |source| JournalError::Record { seq: one.seq, source: Arc::new(source) };
                if !is_not_forgotten(one.seq, &record, &forgotten).map_err(failed)? {
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

    /// Returns the last matching attempts of one segment that `f` has not received, at most as many
    /// as the limit allows. Collects the tombstones of the segment.
    fn newest_of(
        &mut self,
        reader: &Reader,
        plan: &mut SegmentPlan,
        index: usize,
        forgotten: &mut TombstoneSet,
    ) -> Result<VecDeque<HeldRecord>, JournalError> {
        let wanted = self.wanted;
        let room = usize::try_from(self.limit - self.found.shown).unwrap_or(usize::MAX);
        let (may_hold, below) = (plan.may_hold[index], self.next.unwrap_or(u64::MAX));
        let mut held = VecDeque::new();
        let (mut tombstones, mut fell_out) = (0, false);
        self.read(reader, plan, index, |seq, record| {
            tombstones += u64::from(record.kind == schema::kind::TOMBSTONE);
            forgotten.add_record(seq, record)?;
            if may_hold && seq < below && wanted.fits(seq, record, forgotten)? {
                fell_out |= held.len() == room;
                keep(&mut held, room, seq, record);
            }
            Ok(())
        })?;
        if tombstones > 0 && fell_out {
            // A tombstone may cover some of the attempts kept. Then older ones, which were dropped
            // for them, match again.
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

/// Keeps the last `room` records.
fn keep(held: &mut VecDeque<HeldRecord>, room: usize, seq: u64, record: &RecordRef<'_>) {
    let spare =
        if held.len() == room { held.pop_front().map(|oldest| oldest.payload) } else { None };
    held.push_back(HeldRecord::of(seq, record, spare.unwrap_or_default()));
}

/// Returns the attempt with this id and its sequence number, or `None` if it is missing or
/// forgotten. The id of a live attempt contains its time, so the query first reads the part of the
/// log around it.
///
/// # Errors
/// As [`attempts`].
pub fn attempt(dir: &Path, id: Uuid) -> Result<Option<(u64, Attempt)>, JournalError> {
    let mut found = None;
    let mut search = |query: &AttemptQuery| {
        attempts(dir, query, Order::NewestFirst, Some(1), |seq, attempt| {
            found = Some((seq, attempt));
            ControlFlow::Break(())
        })
        .map(|_| found.is_some())
    };
    let by_id = AttemptQuery { id: Some(id), ..AttemptQuery::default() };
    let near = id
        .get_timestamp()
        .map(|at| at.to_unix())
        .and_then(|(seconds, _)| i64::try_from(seconds).ok());
    if let Some(seconds) = near {
        let at = |seconds: i64| Some(Timestamp::from_millis(seconds.saturating_mul(1000)));
        let query = AttemptQuery {
            since: at(seconds - NEAR_S),
            until: at(seconds + NEAR_S),
            ..by_id.clone()
        };
        if search(&query)? {
            return Ok(found);
        }
    }
    search(&by_id)?;
    Ok(found)
}

/// Seconds around the time of an id within which its attempt is recorded, unless the attempt was
/// imported.
const NEAR_S: i64 = 3600;

/// Returns the attempts of the fetch that the attempt `of` belongs to, including itself, in order.
/// These are the consecutively numbered attempts of its link.
///
/// # Errors
/// As [`attempts`].
pub fn fetch_of(dir: &Path, of: &(u64, Attempt)) -> Result<Vec<(u64, Attempt)>, JournalError> {
    let (own, attempt) = of;
    let day = 86_400_000;
    let at = attempt.attempted_at.as_millis();
    let query = AttemptQuery {
        link: Some(attempt.link.clone()),
        domain: attempt.heuristic("domain").map(str::to_owned),
        since: Some(Timestamp::from_millis(at.saturating_sub(day))),
        until: Some(Timestamp::from_millis(at.saturating_add(day))),
        ..AttemptQuery::default()
    };
    let mut fetch: Vec<(u64, Attempt)> = Vec::new();
    attempts(dir, &query, Order::OldestFirst, None, |seq, attempt| {
        let begins_again = fetch.last().is_some_and(|(_, before)| attempt.try_no <= before.try_no);
        if begins_again && fetch.iter().any(|(seq, _)| seq == own) {
            return ControlFlow::Break(());
        }
        if begins_again {
            fetch.clear();
        }
        fetch.push((seq, attempt));
        ControlFlow::Continue(())
    })?;
    Ok(fetch)
}
