//! Looking after a journal: snapshots, compaction, checking, repair, forgetting.
//!
//! Owns: what a snapshot is taken of, which records a compaction may drop, and what a check compares. Invariants: a record is
//! dropped only when both snapshots hold what it taught; what is forgotten is gone from evidence before its records go.
//! Snapshots, compaction and checks work beside a running crawler; repair and forgetting need the directory for themselves.
//! Must not know how files are replaced: that is `fetchwise-log`.
//!
//! ```
//! use fetchwise::attempt::Attempt;
//! use fetchwise::journal::{Journal, JournalOptions, maintain};
//! use fetchwise::selector::Selector;
//! use fetchwise::time::Timestamp;
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
//! let (url, now) = (url::Url::parse("https://example.org/").unwrap(), Timestamp::now());
//! journal.append_attempt(&Attempt::new(&url, "playwright", now).unwrap().delivered()).unwrap();
//! journal.close().unwrap();
//!
//! let selector = Selector::builder().build().unwrap();
//! let taken = maintain::snapshot(dir, &selector, now, &mut |_, _| {}).unwrap();
//! assert_eq!(taken.covers_seq, 1);
//! assert!(maintain::verify(dir, &mut |_, _| {}).unwrap().is_sound());
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use fetchwise_log::{Maintenance, Progress, RecordRef};
pub use fetchwise_log::{RepairOptions, RepairReport, VerifyReport};

use super::entry::{Entry, Forgotten, Tombstone, TombstoneTarget};
use super::fold::{Fold, Start};
use super::read::{SETTLE, pass, replay};
use super::snapshot::{Contents, sections};
use super::{Journal, JournalError, JournalOptions, LogError, OpenCheck, TornTail, schema};
use crate::selector::Selector;
use crate::time::Timestamp;

/// Raw attempts are kept for so long unless a caller says otherwise.
pub const RETAIN_DAYS_DEFAULT: u32 = 90;

/// The newest record may be older than this before somebody has to say that the clock is right.
const CLOCK_JUMP_MAX: Duration = Duration::from_secs(48 * 3600);

/// What maintenance is doing, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Learning from records.
    Folding,
    /// Reading records to check them, or to see what can go.
    Reading,
    /// Deciding what goes.
    Compacting,
}

/// Is told what is being done, and how far it is.
pub type Tell<'t> = &'t mut dyn FnMut(Phase, Progress);

/// A snapshot that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// It holds what the records up to here taught.
    pub covers_seq: u64,
    /// Records folded since the snapshot before it.
    pub records: u64,
    /// Keys with evidence.
    pub entries: u64,
    /// Cells: one for each key, kind of page and fetcher.
    pub cells: u64,
    /// Links at risk or paused.
    pub links: u64,
    /// Hosts that are or were paused.
    pub hosts: u64,
    /// The file; none when there was nothing new to write.
    pub file: Option<PathBuf>,
    /// Its size.
    pub bytes: u64,
}

/// Takes a snapshot of the journal in `dir`, so that the next start reads it and what came later only. `selector` is a new one
/// with the half-life and priors to be used. Does nothing when there is no record behind the newest snapshot.
///
/// # Errors
/// [`JournalError::is_refusal`] when the journal is damaged, or another maintenance command runs; or what the system says.
pub fn snapshot(dir: &Path, selector: &Selector, now: Timestamp, tell: Tell<'_>) -> Result<Taken, JournalError> {
    let maintenance = Maintenance::lock(dir)?;
    let start = Start::newest(dir)?;
    let known = start.contents.as_ref().map(|contents| contents.meta());
    let mut fold = Fold::begin(start, selector);
    // What a living writer has not synced yet is left to the next one.
    let upto = fetchwise_log::durable_seq(dir)?;
    fold.advance(dir, selector, upto, now, &mut |progress| tell(Phase::Folding, progress))?;
    let contents = Contents::of(&fold, selector, now);
    let meta = contents.meta();
    let is_same =
        known.is_some_and(|known| known.covers_seq == meta.covers_seq && known.config_hash == meta.config_hash);
    if fold.covers_seq == 0 || is_same {
        return Ok(taken(&contents, fold.replayed.entries));
    }
    let (file, bytes) = write(&maintenance, &contents)?;
    Ok(Taken { file: Some(file), bytes, ..taken(&contents, fold.replayed.entries) })
}

fn taken(contents: &Contents, records: u64) -> Taken {
    Taken {
        covers_seq: contents.covers_seq,
        records,
        entries: contents.image.entries.len() as u64,
        cells: contents.image.cells.len() as u64,
        links: contents.links.len() as u64,
        hosts: contents.hosts.len() as u64,
        file: None,
        bytes: 0,
    }
}

fn write(maintenance: &Maintenance, contents: &Contents) -> Result<(PathBuf, u64), JournalError> {
    let encoded = contents.encode();
    Ok(maintenance.write_snapshot(&contents.meta(), &sections(&encoded))?)
}

/// How to compact.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CompactOptions {
    /// Raw attempts that are older are dropped; what they taught stays.
    pub retain: Duration,
    /// Whether to believe a clock that is far ahead of the newest record.
    pub trust_clock: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl Default for CompactOptions {
    fn default() -> Self {
        let retain = Duration::from_secs(u64::from(RETAIN_DAYS_DEFAULT) * 86_400);
        Self { retain, trust_clock: false, dry_run: false }
    }
}

/// What a compaction did, or would do. Pairs are before and after.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Compacted {
    /// Attempts before this were dropped.
    pub cutoff: Timestamp,
    /// Attempts.
    pub attempts: (u64, u64),
    /// Attempts among those dropped that a tombstone covered.
    pub forgotten: u64,
    /// Segments.
    pub segments: (usize, usize),
    /// Bytes of segments.
    pub bytes: (u64, u64),
    /// Bytes of the newest snapshot.
    pub snapshot_bytes: u64,
    /// The decayed mass of all evidence, which compaction does not change: of what was folded, and of the snapshot written.
    pub mass: (f64, f64),
    /// Whether a crawler has the directory open: the segment it is writing was left alone.
    pub beside_writer: bool,
}

/// Drops raw attempts that are too old or forgotten, and merges small segments, after taking the snapshots that keep what they
/// taught. Works beside a running crawler, whose last segment is left alone. `selector` as for [`snapshot`].
///
/// # Errors
/// [`JournalError::ClockJump`] when the newest record is so old that the clock is probably wrong; otherwise as [`snapshot`].
/// Killed or failed at any step, it leaves a journal that opens and has lost nothing.
pub fn compact(
    dir: &Path,
    selector: &Selector,
    options: &CompactOptions,
    now: Timestamp,
    tell: Tell<'_>,
) -> Result<Compacted, JournalError> {
    let maintenance = Maintenance::lock(dir)?;
    let beside_writer = maintenance.has_writer()?;
    let start = Start::newest(dir)?;
    let mut covered = Covered::now(dir, &start)?;
    let sealed_seq = sealed_seq(dir)?;
    let mut fold = Fold::begin(start, selector);
    let cutoff = Timestamp::from_millis(now.as_millis().saturating_sub_unsigned(options.retain.as_millis() as u64));
    fold.cutoff = fold.cutoff.max(Some(cutoff));
    let mut at_seal = None;
    if beside_writer && sealed_seq > fold.covers_seq {
        fold.advance(dir, selector, sealed_seq, now, &mut |progress| tell(Phase::Folding, progress))?;
        at_seal = Some(Contents::of(&fold, selector, now));
    }
    fold.advance(dir, selector, fetchwise_log::durable_seq(dir)?, now, &mut |done| tell(Phase::Folding, done))?;
    check_clock(fold.newest, options, now)?;
    if !beside_writer && !options.dry_run {
        begin_segment(dir)?;
        // What a writer that died had not synced is on disk now.
        fold.advance(dir, selector, fetchwise_log::durable_seq(dir)?, now, &mut |_| {})?;
    }
    if fold.covers_seq == 0 {
        return Ok(Compacted { cutoff, ..Compacted::default() });
    }
    let at_end = Contents::of(&fold, selector, now);
    let floor_seq = if beside_writer { sealed_seq } else { fold.covers_seq };
    let mut report = Compacted { cutoff, beside_writer, ..Compacted::default() };
    report.mass.0 = at_end.image.mass();
    if !options.dry_run {
        if let Some(contents) = at_seal {
            write(&maintenance, &contents)?;
            covered.push(contents.covers_seq);
        }
        // Both snapshots must hold what is dropped, and the newest one says from when on attempts may be gone.
        loop {
            (_, report.snapshot_bytes) = write(&maintenance, &at_end)?;
            covered.push(at_end.covers_seq);
            if covered.previous >= floor_seq {
                break;
            }
        }
    }
    let written = if options.dry_run { None } else { Start::newest(dir)?.contents };
    report.mass.1 = written.map_or(report.mass.0, |contents| contents.image.mass());
    drop(at_end);
    Drops::find(dir, floor_seq, cutoff, tell)?.carry_out(&maintenance, options, now, report, tell)
}

/// What the two snapshots cover.
#[derive(Clone, Copy, Debug)]
struct Covered {
    current: u64,
    previous: u64,
}

impl Covered {
    fn now(dir: &Path, start: &Start) -> Result<Self, JournalError> {
        let current = start.contents.as_ref().map_or(0, |contents| contents.covers_seq);
        let previous = fetchwise_log::load_previous_snapshot(dir)?.map_or(0, |found| found.meta().covers_seq);
        Ok(Self { current, previous })
    }

    fn push(&mut self, covers_seq: u64) {
        *self = Self { current: covers_seq, previous: self.current };
    }
}

/// The last record that is in a segment which nobody writes to any more.
fn sealed_seq(dir: &Path) -> Result<u64, JournalError> {
    let reader = super::read::open(dir)?;
    Ok(reader.segments().last().map_or(0, |last| last.first_seq.saturating_sub(1)))
}

/// Begins a segment, so that the one before it can be compacted. Nothing to be done where a crawler came first.
fn begin_segment(dir: &Path) -> Result<(), JournalError> {
    let options = JournalOptions::default().begin_segment().check(OpenCheck::Tail);
    match Journal::open(dir, options) {
        Ok((journal, _)) => journal.close(),
        Err(JournalError::Log(LogError::Locked { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

fn check_clock(newest: Timestamp, options: &CompactOptions, now: Timestamp) -> Result<(), JournalError> {
    let age = now.since(newest);
    if newest == Timestamp::default() {
        // Nothing has been recorded.
        return Ok(());
    }
    if age > CLOCK_JUMP_MAX && !options.trust_clock {
        return Err(JournalError::ClockJump { hours: age.as_secs() / 3600 });
    }
    Ok(())
}

/// Which records a compaction may drop.
struct Drops {
    floor_seq: u64,
    cutoff: Timestamp,
    /// Tombstones that both snapshots know of.
    done: Forgotten,
    /// Those that one of them does not: what they cover is still to be taken back from a snapshot.
    pending: Forgotten,
    attempts: u64,
}

enum Verdict {
    Keep,
    Drop,
    DropAttempt { forgotten: bool },
}

impl Drops {
    fn find(dir: &Path, floor_seq: u64, cutoff: Timestamp, tell: Tell<'_>) -> Result<Self, JournalError> {
        let (done, pending) = (Forgotten::default(), Forgotten::default());
        let mut drops = Self { floor_seq, cutoff, done, pending, attempts: 0 };
        let total = super::read::open(dir)?.segments().map(|segment| segment.bytes).sum();
        let mut read = 0;
        pass(dir, |seq, record| {
            drops.attempts += u64::from(record.kind == schema::kind::ATTEMPT);
            let side = if seq <= floor_seq { &mut drops.done } else { &mut drops.pending };
            read += record.stored_len();
            if seq % 65_536 == 0 {
                tell(Phase::Reading, Progress::new(read, total));
            }
            side.look(seq, &record)
        })?;
        Ok(drops)
    }

    /// What cannot be read, because a newer release wrote it, is kept.
    fn judge(&self, seq: u64, record: &RecordRef<'_>) -> Verdict {
        if record.schema != schema::VERSION {
            return Verdict::Keep;
        }
        match record.kind {
            schema::kind::ATTEMPT => {
                let Ok(Some(attempt)) = schema::attempt(record.kind, record.schema, record.payload) else {
                    return Verdict::Keep;
                };
                let by =
                    |all: &Forgotten| all.covers_link(seq, attempt.link()) || all.covers_domain(seq, attempt.domain());
                match (by(&self.done), by(&self.pending)) {
                    (true, _) => Verdict::DropAttempt { forgotten: true },
                    (false, false) if attempt.at() < self.cutoff => Verdict::DropAttempt { forgotten: false },
                    _ => Verdict::Keep,
                }
            }
            // The snapshots have the last of each.
            schema::kind::LINK_STATE | schema::kind::HOST_STATE | schema::kind::IMPORTANCE => Verdict::Drop,
            // It goes when all it covers has gone long ago.
            schema::kind::TOMBSTONE => match schema::decode(record.kind, record.schema, record.payload) {
                Ok(Entry::Tombstone(stone)) if stone.at < self.cutoff => Verdict::Drop,
                _ => Verdict::Keep,
            },
            _ => Verdict::Keep,
        }
    }

    fn carry_out(
        self,
        maintenance: &Maintenance,
        options: &CompactOptions,
        now: Timestamp,
        mut report: Compacted,
        tell: Tell<'_>,
    ) -> Result<Compacted, JournalError> {
        let mut log_options = fetchwise_log::CompactOptions::new(self.floor_seq, now.as_millis());
        // It was checked before anything was written.
        log_options.max_jump = None;
        log_options.dry_run = options.dry_run;
        log_options.suppose_covered = self.floor_seq;
        log_options.suppose_sealed = !report.beside_writer;
        // Records are shown to be counted, and some once more to be written.
        let (mut counted, mut dropped) = (0, 0);
        let mut keep = |seq: u64, record: RecordRef<'_>| {
            let verdict = self.judge(seq, &record);
            if seq > counted {
                counted = seq;
                if let Verdict::DropAttempt { forgotten } = verdict {
                    dropped += 1;
                    report.forgotten += u64::from(forgotten);
                }
            }
            matches!(verdict, Verdict::Keep)
        };
        let done = maintenance.compact(&log_options, &mut keep, &mut |progress| tell(Phase::Compacting, progress))?;
        Ok(Compacted {
            attempts: (self.attempts, self.attempts - dropped),
            segments: done.segments,
            bytes: done.bytes,
            ..report
        })
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Verified {
    /// Checksums, chain, continuity, manifests, snapshots.
    pub log: VerifyReport,
    /// Attempts.
    pub attempts: u64,
    /// Whether the newest snapshot is what its records teach.
    pub refold: Refold,
}

/// Whether a snapshot is what the records teach, folded anew from the snapshot before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refold {
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
        self.log.is_sound() && !matches!(self.refold, Refold::Differs { .. })
    }
}

/// Checks the journal in `dir`: every checksum, link and number; that every record can be read; that the newest snapshot is what
/// the records teach, to 1e-9. Reads only, takes no lock.
///
/// # Errors
/// [`JournalError::Record`] for a record whose bytes are whole and mean nothing; newer formats; or what the system says. Damage
/// is in the report.
pub fn verify(dir: &Path, tell: Tell<'_>) -> Result<Verified, JournalError> {
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

fn refold(dir: &Path, floor_seq: u64, tell: Tell<'_>) -> Result<Refold, JournalError> {
    let Some(stored) = Start::newest(dir)?.contents else { return Ok(Refold::NotTried) };
    let Some(decay) = stored.image.decay else { return Ok(Refold::NotTried) };
    let base = match fetchwise_log::load_previous_snapshot(dir)? {
        Some(found) if found.meta().covers_seq <= stored.covers_seq => Start::of(&found)?,
        _ if floor_seq == 0 => Start::default(),
        _ => return Ok(Refold::NoBase),
    };
    let days = decay.half_life().as_secs_f64() / 86_400.0;
    let builder = Selector::builder().half_life_days(days).around(decay.landmark()).no_priors();
    let Ok(selector) = builder.build() else { return Ok(Refold::NoBase) };
    let mut fold = Fold::begin(base, &selector);
    fold.advance(dir, &selector, stored.covers_seq, stored.now, &mut |progress| tell(Phase::Folding, progress))?;
    let folded = Contents::of(&fold, &selector, stored.now);
    let what = if let Some((key, what)) = stored.image.difference(&folded.image) {
        format!("key {key:016x}: {what}")
    } else if stored.links != folded.links {
        "the states of links differ".to_owned()
    } else if stored.hosts != folded.hosts {
        "the pauses of hosts differ".to_owned()
    } else if stored.importance != folded.importance {
        "importance differs".to_owned()
    } else {
        return Ok(Refold::Same { records: fold.replayed.entries });
    };
    Ok(Refold::Differs { what })
}

/// Mends the journal in `dir`, as far as `options` ask for it; see [`fetchwise_log::repair`].
///
/// # Errors
/// Locked by a crawler or another maintenance command, newer formats, or what the system says.
pub fn repair(dir: &Path, options: RepairOptions) -> Result<RepairReport, JournalError> {
    Ok(fetchwise_log::repair(dir, options)?)
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forgot {
    /// Attempts that are still in the log, and go at the next compaction.
    pub attempts: u64,
    /// Records of pauses and risk.
    pub states: u64,
    /// Whether a snapshot had evidence of the domain.
    pub in_snapshot: bool,
}

impl Forgot {
    /// Whether there was anything to forget.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Forgets a domain or a link: its evidence at once, its raw attempts at the next compaction. Writes nothing when nothing is
/// known of it.
///
/// # Errors
/// Locked by a crawler, damaged, or what the system says.
pub fn forget(dir: &Path, target: TombstoneTarget, now: Timestamp) -> Result<Forgot, JournalError> {
    let (journal, _) = Journal::open(dir, JournalOptions::default().check(OpenCheck::Tail))?;
    let mut forgot = Forgot::default();
    let mut seen = Forgotten::default();
    seen.add(u64::MAX, target.clone());
    replay(dir, |seq, entry| {
        if seen.covers(seq, &entry) {
            match entry {
                Entry::Attempt(_) => forgot.attempts += 1,
                _ => forgot.states += 1,
            }
        }
    })?;
    if let Some(contents) = Start::newest(dir)?.contents {
        match &target {
            TombstoneTarget::Domain(domain) => {
                forgot.in_snapshot = contents.image.has_domain(domain)
                    || contents.hosts.iter().any(|host| host.domain == *domain)
                    || contents.links.iter().any(|link| link.domain == *domain);
            }
            TombstoneTarget::Link(link) => {
                forgot.in_snapshot = contents.links.iter().any(|known| known.link == *link);
            }
        }
    }
    if !forgot.is_nothing() {
        journal.append_tombstone(&Tombstone { target, at: now })?;
    }
    journal.close()?;
    Ok(forgot)
}

/// The torn tail that the last writer left, if it died in the middle of a write. Nothing that was acknowledged is in it. Cost: a
/// pass over the last segment.
///
/// # Errors
/// As [`snapshot`].
pub fn torn_tail(dir: &Path) -> Result<Option<TornTail>, JournalError> {
    let look = || {
        let reader = super::read::open(dir)?;
        match reader.segments().len().checked_sub(1) {
            Some(last) => Ok(reader.segment_for_each(last, 0, |_, _| {})?.torn),
            None => Ok(None),
        }
    };
    let seen: Result<_, JournalError> = look();
    if seen?.is_none() {
        return Ok(None);
    }
    // A writer that is alive will have finished by then.
    std::thread::sleep(SETTLE);
    look()
}

/// How many records the next start has to fold: those behind the newest snapshot. Cost: a pass over the last
/// segment.
///
/// # Errors
/// As [`snapshot`].
pub fn unfolded(dir: &Path) -> Result<u64, JournalError> {
    let covered = fetchwise_log::load_snapshot(dir)?.snapshot.map_or(0, |found| found.meta().covers_seq);
    let reader = super::read::open(dir)?;
    let Some(last) = reader.segments().last() else { return Ok(0) };
    let index = reader.segments().len() - 1;
    let newest = match last.next_seq {
        Some(next) => next - 1,
        None => reader.segment_for_each(index, 0, |_, _| {})?.last_seq.unwrap_or(last.first_seq.saturating_sub(1)),
    };
    Ok(newest.saturating_sub(covered))
}

/// Attempts in `dir` that are older than this may have been compacted away: what they taught is in a snapshot. None where no
/// compaction has been.
///
/// # Errors
/// When no snapshot can be read.
pub fn cutoff(dir: &Path) -> Result<Option<Timestamp>, JournalError> {
    Ok(Start::newest(dir)?.contents.and_then(|contents| contents.cutoff))
}
