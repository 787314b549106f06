//! Compaction: dropping raw attempts that are too old or forgotten.
//!
//! Owns: which records a compaction may drop.
//!
//! Invariants: a record is dropped only when both snapshots hold its effect.
//!
//! Must not know: how files are replaced.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise_log::{
    Error as LogError, Maintenance, OpenCheck, PreparedSnapshot, Progress, RecordRef, Throttle,
};

use crate::journal::checkpoint_restore::covers_seq;
use crate::journal::cold_tier::ScratchFolder;
use crate::journal::entry::Entry;
use crate::journal::error::JournalError;
use crate::journal::fold::Fold;
use crate::journal::maintenance::checkpoint::advance;
use crate::journal::maintenance::clock_check::{ClockUse, check, check_own_times};
use crate::journal::maintenance::disk_usage;
use crate::journal::maintenance::progress::{Phase, ProgressFn};
use crate::journal::maintenance::snapshot::{FoldedEvidence, prepare, write};
use crate::journal::query::{AttemptQuery, Order, attempts};
use crate::journal::read::{open, pass};
use crate::journal::recovery_point::FoldStart;
use crate::journal::schema;
use crate::journal::snapshot::check as is_decodable;
use crate::journal::tombstones::TombstoneSet;
use crate::journal::write::{Journal, JournalOptions};
use crate::selector::Selector;
use crate::trace::Span;
use fetchwise_types::time::Timestamp;

/// Default number of days for which raw attempts are kept.
pub const DEFAULT_RETAIN_DAYS: u32 = 90;

/// Default share of expired raw attempts from which on a crawl compacts in the background.
pub const DEFAULT_COMPACT_THRESHOLD: f64 = 0.25;

/// Options of a compaction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompactOptions {
    /// Age above which raw attempts are dropped. Their effect stays in evidence.
    pub retain: Duration,
    /// Whether to trust a clock that contradicts the log's own times.
    pub trust_clock: bool,
    /// Whether to report only, and change nothing.
    pub dry_run: bool,
    /// Bytes of raw attempts above which the oldest are dropped, whatever their age. With
    /// `trust_clock`, the clock is not checked, but what the last snapshot says counts instead of a
    /// clock that contradicts it.
    pub keep_bytes: Option<u64>,
    /// Size that segments are merged up to, in bytes; 64 MiB by default.
    pub segment_bytes: Option<u64>,
    /// Whether to pack attempts into columns, which take a fraction of the space; by default it
    /// does. Otherwise only segments that are packed already stay so.
    pub pack: bool,
    /// Throttle. With one, the compaction uses one thread, rests when the throttle requires it, and
    /// stops on request.
    pub throttle: Option<Arc<Throttle>>,
}

impl CompactOptions {
    /// Rests if the throttle requires it. Returns whether to stop.
    fn is_stopped(&self) -> bool {
        self.throttle.as_deref().is_some_and(|throttle| !throttle.checkpoint())
    }
}

impl Default for CompactOptions {
    fn default() -> Self {
        let retain = Duration::from_secs(u64::from(DEFAULT_RETAIN_DAYS) * 86_400);
        Self {
            retain,
            trust_clock: false,
            dry_run: false,
            keep_bytes: None,
            segment_bytes: None,
            pack: true,
            throttle: None,
        }
    }
}

/// Report of a compaction or of a dry run. Pairs are values before and after.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Attempts before this were dropped.
    pub cutoff: Timestamp,
    /// Number of attempts.
    pub attempts: (u64, u64),
    /// Number of dropped attempts that a tombstone covered.
    pub forgotten: u64,
    /// Number of segments.
    pub segments: (usize, usize),
    /// Bytes of segments.
    pub bytes: (u64, u64),
    /// Bytes of the newest snapshot; 0 if none was taken, because no attempt had to go.
    pub snapshot_bytes: u64,
    /// Decayed weight of all evidence, in the fold and in the snapshot. Compaction does not change
    /// it.
    pub weight: (f64, f64),
    /// Whether a crawler has the directory open. Then the segment that it is writing was not
    /// compacted.
    pub writer_active: bool,
}

/// Drops raw attempts that are too old or forgotten, after it has taken the snapshots that keep
/// their effect, and merges small segments. It adds no snapshot if no attempt has to go. Works
/// alongside a running crawler, whose last segment it does not touch. `selector` is as for
/// [`snapshot`](super::snapshot).
///
/// # Errors
/// [`JournalError::ClockJump`], [`JournalError::ClockBehind`] and [`JournalError::ClockAhead`] when
/// the clock is probably wrong; [`LogError::Stopped`] when the throttle was stopped; otherwise as
/// [`snapshot`](super::snapshot). Killed, stopped or failed at any step, it leaves a journal that
/// opens and has lost nothing.
pub fn compact(
    dir: &Path,
    selector: &Selector,
    options: &CompactOptions,
    now: Timestamp,
    on_progress: ProgressFn<'_>,
) -> Result<CompactReport, JournalError> {
    let span = Span::compaction(dir);
    let _entered = span.enter();
    let maintenance = Maintenance::lock(dir)?;
    let _folder = ScratchFolder::keep_evicted(dir, selector.learned(), &Arc::default())?;
    let writer_active = maintenance.has_writer()?;
    let start = FoldStart::newest(dir)?;
    let (covered, sealed_seq) = (SnapshotCoverage::now(dir, &start)?, sealed_seq(dir)?);
    let (last, clock) = (start.last_present(), now);
    let now = options.clock_use().present(now, last);
    let mut fold = Fold::begin(start, selector.learned(), now)?;
    fold.throttle.clone_from(&options.throttle);
    let cutoff = cutoff(dir, if writer_active { sealed_seq } else { u64::MAX }, options, now)?;
    // Nobody misses what was never there.
    let expires = has_attempts_before(dir, cutoff)?;
    if expires {
        fold.cutoff = fold.cutoff.max(Some(cutoff));
    }
    let drops = expires || has_tombstones(dir, options)?;
    let mut at_seal = None;
    if writer_active && sealed_seq > fold.covers_seq && drops {
        fold.advance(dir, selector.learned(), sealed_seq, now, &mut |progress| {
            on_progress(Phase::Folding, progress)
        })?;
        let folded = FoldedEvidence { fold: &fold, selector, present: now };
        at_seal = prepare_unless_dry(&maintenance, &folded, options)?;
    }
    fold.advance(dir, selector.learned(), fetchwise_log::durable_seq(dir)?, now, &mut |done| {
        on_progress(Phase::Folding, done)
    })?;
    options.check_clock(dir, &fold, last, (clock, now))?;
    if !writer_active && !options.dry_run {
        begin_segment(dir)?;
        // Opening the journal has rewritten what an earlier writer had not synced before it died.
        // That is on disk now.
        fold.advance(dir, selector.learned(), fetchwise_log::durable_seq(dir)?, now, &mut |_| {})?;
    }
    if fold.covers_seq == 0 {
        return Ok(CompactReport { cutoff, ..CompactReport::default() });
    }
    let at_end = FoldedEvidence { fold: &fold, selector, present: now };
    let mut report = CompactReport { cutoff, writer_active, ..CompactReport::default() };
    // Where no attempt goes, snapshots are renewed and none is added: it would take more room than
    // the compaction makes.
    let drops_to = if writer_active { sealed_seq } else { fold.covers_seq };
    let floor_seq = covered.floor_seq(drops.then_some(drops_to));
    if !options.dry_run && (drops || covered.previous > 0) {
        advance_checkpoint(dir, selector, floor_seq, options, now)?;
        (report.snapshot_bytes, report.weight) =
            write_both(&maintenance, at_seal, &at_end, covered, floor_seq)?;
    } else {
        report.weight = [at_end.totals().weight(); 2].into();
    }
    drop(fold);
    let done = DropRules::find(dir, floor_seq, cutoff, options, on_progress)?.apply(
        &maintenance,
        options,
        now,
        report,
        on_progress,
    )?;
    span.compacted(done.attempts, done.bytes);
    Ok(done)
}

/// Brings the checkpoint, if there is one, behind the records that may go from now on: it could not
/// go on from an earlier one.
fn advance_checkpoint(
    dir: &Path,
    selector: &Selector,
    floor_seq: u64,
    options: &CompactOptions,
    now: Timestamp,
) -> Result<(), JournalError> {
    if covers_seq(dir).is_none_or(|covered| covered >= floor_seq) {
        return Ok(());
    }
    match advance(dir, selector.learned(), now, options.throttle.as_ref()) {
        Err(JournalError::Log(LogError::Stopped)) => Err(LogError::Stopped.into()),
        // The next checkpoint begins with the snapshot.
        Err(error) => {
            crate::trace::checkpoint_failed(&error);
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

impl CompactOptions {
    /// Rejects an implausible clock, unless it is trusted. `clock` is what it says, and `now` what
    /// counts.
    fn check_clock(
        &self,
        dir: &Path,
        fold: &Fold,
        last: Option<Timestamp>,
        (clock, now): (Timestamp, Timestamp),
    ) -> Result<(), JournalError> {
        if self.trust_clock {
            return Ok(());
        }
        check_own_times(dir, fold.latest, last, clock)?;
        check(dir, fold.newest, now)
    }

    fn clock_use(&self) -> ClockUse {
        match (self.trust_clock, self.keep_bytes) {
            (false, _) => ClockUse::Check,
            (true, Some(_)) => ClockUse::Replace,
            (true, None) => ClockUse::Trust,
        }
    }
}

/// Puts a snapshot on disk that gets its name later. Returns it with the last record that it
/// covers.
fn prepare_unless_dry(
    maintenance: &Maintenance,
    folded: &FoldedEvidence<'_>,
    options: &CompactOptions,
) -> Result<Option<(PreparedSnapshot, u64)>, JournalError> {
    if options.dry_run {
        return Ok(None);
    }
    Ok(Some((prepare(maintenance, folded)?, folded.fold.covers_seq)))
}

/// Writes the snapshots until both hold every record up to `floor_seq`, and the newest one records
/// the cutoff. `at_seal` is on disk already, and covers the records up to its number. Returns the
/// size of the newest one, and its weight before it was written and as it is read back.
fn write_both(
    maintenance: &Maintenance,
    at_seal: Option<(PreparedSnapshot, u64)>,
    at_end: &FoldedEvidence<'_>,
    mut covered: SnapshotCoverage,
    floor_seq: u64,
) -> Result<(u64, (f64, f64)), JournalError> {
    if let Some((snapshot, covers_seq)) = at_seal {
        maintenance.publish_snapshot(snapshot, &is_decodable)?;
        covered.push(covers_seq);
    }
    let written = loop {
        let written = write(maintenance, at_end)?;
        covered.push(at_end.fold.covers_seq);
        if covered.previous >= floor_seq {
            break written;
        }
    };
    let folded = written.contents.weight();
    let dir = written.file.parent().unwrap_or(Path::new(""));
    let stored = FoldStart::newest(dir)?.contents.map_or(folded, |stored| stored.weight());
    Ok((written.bytes, (folded, stored)))
}

/// Last records that the two snapshots cover.
#[derive(Clone, Copy, Debug)]
struct SnapshotCoverage {
    current: u64,
    previous: u64,
}

impl SnapshotCoverage {
    fn now(dir: &Path, start: &FoldStart) -> Result<Self, JournalError> {
        let current = start.contents.as_ref().map_or(0, |contents| contents.covers_seq);
        let previous =
            fetchwise_log::load_previous_snapshot(dir)?.map_or(0, |found| found.meta().covers_seq);
        Ok(Self { current, previous })
    }

    /// Returns the last record that both have to hold, with the last one in whose range attempts
    /// are dropped.
    fn floor_seq(self, drops_to: Option<u64>) -> u64 {
        drops_to.unwrap_or(if self.previous > 0 { self.current } else { 0 })
    }

    fn push(&mut self, covers_seq: u64) {
        debug_assert!(self.current <= covers_seq, "a snapshot covers less than the one before");
        *self = Self { current: covers_seq, previous: self.current };
    }
}

/// Returns the last record in a segment that has no writer any more.
fn sealed_seq(dir: &Path) -> Result<u64, JournalError> {
    let reader = open(dir)?;
    Ok(reader.segments().last().map_or(0, |last| last.first_seq.saturating_sub(1)))
}

/// Begins a segment, so that the one before it can be compacted. Does nothing if a crawler came
/// first.
fn begin_segment(dir: &Path) -> Result<(), JournalError> {
    let options = JournalOptions::default().begin_segment().check(OpenCheck::Tail);
    match Journal::open(dir, options) {
        Ok((journal, _)) => journal.close(),
        Err(JournalError::Log(LogError::Locked { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the time from which on attempts are kept.
fn cutoff(
    dir: &Path,
    floor_seq: u64,
    options: &CompactOptions,
    now: Timestamp,
) -> Result<Timestamp, JournalError> {
    let by_age = Timestamp::from_millis(
        now.as_millis().saturating_sub_unsigned(options.retain.as_millis() as u64),
    );
    let Some(keep) = options.keep_bytes else { return Ok(by_age) };
    let by_room =
        disk_usage::cutoff(dir, floor_seq, keep, options.pack, options.throttle.as_deref())?;
    Ok(by_room.map_or(by_age, |by_room| by_room.max(by_age)))
}

/// Returns whether the log has an attempt from before `cutoff`.
fn has_attempts_before(dir: &Path, cutoff: Timestamp) -> Result<bool, JournalError> {
    let until = Timestamp::from_millis(cutoff.as_millis().saturating_sub(1));
    let query = AttemptQuery { until: Some(until), ..AttemptQuery::default() };
    let found =
        attempts(dir, &query, Order::OldestFirst, Some(1), |_, _| ControlFlow::Continue(()))?;
    Ok(found.shown > 0)
}

/// Returns whether the log has a tombstone: what it covers may have to go.
fn has_tombstones(dir: &Path, options: &CompactOptions) -> Result<bool, JournalError> {
    let mut found = false;
    pass(dir, |seq, record| {
        found |= record.kind == schema::kind::TOMBSTONE
            || seq.is_multiple_of(256) && options.is_stopped();
        Ok(())
    })?;
    Ok(found)
}

/// Rules for the records that a compaction may drop.
struct DropRules {
    floor_seq: u64,
    cutoff: Timestamp,
    /// Tombstones that both snapshots include.
    done: TombstoneSet,
    /// Tombstones that one snapshot lacks. What they cover still has to be retracted from that
    /// snapshot.
    pending: TombstoneSet,
    attempts: u64,
}

enum DropDecision {
    Keep,
    Drop,
    DropAttempt { forgotten: bool },
}

impl DropRules {
    fn find(
        dir: &Path,
        floor_seq: u64,
        cutoff: Timestamp,
        options: &CompactOptions,
        on_progress: ProgressFn<'_>,
    ) -> Result<Self, JournalError> {
        let (done, pending) = (TombstoneSet::default(), TombstoneSet::default());
        let total = open(dir)?.segments().map(|segment| segment.bytes).sum();
        let mut drops = Self { floor_seq, cutoff, done, pending, attempts: 0 };
        let mut read = 0;
        pass(dir, |seq, record| {
            if seq.is_multiple_of(256) && options.is_stopped() {
                return Ok(());
            }
            drops.attempts += u64::from(record.kind == schema::kind::ATTEMPT);
            let side = if seq <= floor_seq { &mut drops.done } else { &mut drops.pending };
            read += record.stored_len();
            if seq % 65_536 == 0 {
                on_progress(Phase::Reading, Progress::new(read, total));
            }
            side.add_record(seq, &record)
        })?;
        match options.throttle.as_deref().is_some_and(Throttle::is_stopped) {
            // The pass may have skipped tombstones.
            true => Err(LogError::Stopped.into()),
            false => Ok(drops),
        }
    }

    /// Decides about a record. Keeps whatever cannot be read because a newer release wrote it.
    fn decide(&self, seq: u64, record: &RecordRef<'_>) -> DropDecision {
        if record.schema > schema::VERSION {
            return DropDecision::Keep;
        }
        match record.kind {
            schema::kind::ATTEMPT => {
                let Ok(Some(attempt)) = schema::attempt(record.kind, record.schema, record.payload)
                else {
                    return DropDecision::Keep;
                };
                let by = |all: &TombstoneSet| all.covers_attempt(seq, &attempt);
                match (by(&self.done), by(&self.pending)) {
                    (true, _) => DropDecision::DropAttempt { forgotten: true },
                    (false, false) if attempt.at() < self.cutoff => {
                        DropDecision::DropAttempt { forgotten: false }
                    }
                    _ => DropDecision::Keep,
                }
            }
            // Both snapshots hold the last state of each link, host, heuristic, pace and fetcher.
            schema::kind::LINK_STATE
            | schema::kind::HOST_STATE
            | schema::kind::IMPORTANCE
            | schema::kind::PACE
            | schema::kind::FETCHER => DropDecision::Drop,
            // Earlier compactions dropped everything that an old tombstone covers.
            schema::kind::TOMBSTONE => {
                match schema::decode(record.kind, record.schema, record.payload) {
                    Ok(Entry::Tombstone(tombstone)) if tombstone.at < self.cutoff => {
                        DropDecision::Drop
                    }
                    _ => DropDecision::Keep,
                }
            }
            // The snapshots hold its effect. It stays as long as attempts are kept, so that a query
            // can show it.
            schema::kind::RELEASE => {
                match schema::decode(record.kind, record.schema, record.payload) {
                    Ok(Entry::Release(release)) if release.at < self.cutoff => DropDecision::Drop,
                    _ => DropDecision::Keep,
                }
            }
            _ => DropDecision::Keep,
        }
    }

    fn apply(
        self,
        maintenance: &Maintenance,
        options: &CompactOptions,
        now: Timestamp,
        mut report: CompactReport,
        on_progress: ProgressFn<'_>,
    ) -> Result<CompactReport, JournalError> {
        let mut log_options = fetchwise_log::CompactOptions::new(self.floor_seq, now.as_millis());
        // The check ran before anything was written.
        log_options.max_jump = None;
        log_options.throttle.clone_from(&options.throttle);
        if let Some(bytes) = options.segment_bytes {
            (log_options.segment_bytes, log_options.small_bytes) =
                (bytes, log_options.small_bytes.min(bytes / 4));
        }
        log_options.blocks = Some(&schema::BLOCKS);
        log_options.pack = options.pack;
        log_options.dry_run = options.dry_run;
        log_options.suppose_covered = self.floor_seq;
        log_options.suppose_sealed = !report.writer_active;
        // Each record passes once to be counted. Records of a segment that is rewritten pass a
        // second time.
        let (mut counted, mut dropped) = (0, 0);
        let mut keep = |seq: u64, record: RecordRef<'_>| {
            let decision = self.decide(seq, &record);
            if seq > counted {
                counted = seq;
                if let DropDecision::DropAttempt { forgotten } = decision {
                    dropped += 1;
                    report.forgotten += u64::from(forgotten);
                }
            }
            matches!(decision, DropDecision::Keep)
        };
        let done = maintenance.compact(&log_options, &mut keep, &mut |progress| {
            on_progress(Phase::Compacting, progress)
        })?;
        Ok(CompactReport {
            attempts: (self.attempts, self.attempts - dropped),
            segments: done.segments,
            bytes: done.bytes,
            ..report
        })
    }
}
