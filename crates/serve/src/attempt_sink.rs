//! The attempt store: the selector's sink, with the ids and figures of the attempts in the log.
//!
//! Owns: the path of an attempt into the log. [`AttemptStore`] forwards to the journal and counts
//! what the journal accepted.
//!
//! Invariant: each record in the log is counted once. A scan counts the records before it, and the
//! sink counts the records after it.
//!
//! Must not know: HTTP.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::attempt_id_set::{AttemptIdSet, ScannedIds};
use crate::event_marks::{EventKind, EventMarks};
use crate::time_series::Series;
use crate::unavailable_fetchers::UnavailableFetchers;
use fetchwise::analytics::{By, Stats};
use fetchwise::attempt::Attempt;
use fetchwise::backoff::LinkState;
use fetchwise::journal;
use fetchwise::journal::{AttemptContent, Entry, Journal, JournalError, Tombstone, maintenance};
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::{Released, Sink, SinkError};
use fetchwise::time::{Clock, Timestamp};

/// The groupings of rows.
const GROUPINGS: [By; 6] = [By::All, By::Domain, By::Fetcher, By::Day, By::Week, By::Outcome];

/// The sink of attempts, with the ids and figures of the log.
#[derive(Debug)]
pub(crate) struct AttemptStore {
    journal: Arc<Journal>,
    /// The directory of the counted log: that of the journal, or of another process.
    dir: PathBuf,
    unavailable: Arc<UnavailableFetchers>,
    clock: Arc<Clock>,
    counts: Mutex<AttemptCounts>,
    /// The number of the last scan of the log that is complete; zero before the first.
    last_scan: watch::Sender<u64>,
    /// The number of the current scan. Earlier scans are void, because the log has changed since.
    current_scan: AtomicU64,
    /// The number of attempts that the journal rejected.
    failures: AtomicU64,
    /// The newest events.
    marks: EventMarks,
    /// The fetchers with a known cost.
    specs: Mutex<Vec<FetcherSpec>>,
}

/// Figures of the attempts since the current scan and, once it is complete, of those before it.
#[derive(Debug)]
struct AttemptCounts {
    ids: AttemptIdSet,
    figures: [Stats; GROUPINGS.len()],
    series: Series,
    /// Attempts before this may have been compacted away, and their ids with them.
    cutoff: Option<Timestamp>,
}

impl AttemptCounts {
    /// Adds the id of an attempt. One without content is not in the log either.
    fn know(&mut self, id: Uuid, content: Option<AttemptContent>) {
        if let Some(content) = content {
            self.ids.insert(id, content);
        }
    }
}

/// The error of a scan that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanFailed;

fn blank(specs: &[FetcherSpec]) -> [Stats; GROUPINGS.len()] {
    GROUPINGS.map(|by| Stats::with_costs(by, specs))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AttemptStore {
    /// Returns the known cost of a request by a fetcher, in plain requests.
    pub(crate) fn request_cost(&self, name: &str) -> f64 {
        lock(&self.specs)
            .iter()
            .find(|spec| *spec.name == *name)
            .map_or_else(|| FetcherSpec::by_name(name).cost, |spec| spec.cost)
    }

    /// Creates an empty store; a [`rescan`](Self::rescan) has to follow.
    pub(crate) fn new(
        journal: Arc<Journal>,
        dir: PathBuf,
        unavailable: Arc<UnavailableFetchers>,
        specs: Vec<FetcherSpec>,
        clock: Arc<Clock>,
    ) -> Self {
        let mut seed = [0; 8];
        // Without randomness the set of ids still works, but its seed is not secret.
        let _ = getrandom::fill(&mut seed);
        Self {
            journal,
            dir,
            unavailable,
            clock,
            counts: Mutex::new(AttemptCounts {
                ids: AttemptIdSet::new(u64::from_ne_bytes(seed)),
                figures: blank(&specs),
                series: Series::default(),
                cutoff: None,
            }),
            last_scan: watch::Sender::new(0),
            current_scan: AtomicU64::new(1),
            failures: AtomicU64::new(0),
            marks: EventMarks::default(),
            specs: Mutex::new(specs),
        }
    }

    /// Returns the directory of the counted log.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The journal.
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Returns the end of the records that a scan has to count: every record before this position
    /// and none from it on. Nothing may be recorded between this call and the scan.
    pub(crate) fn end(&self) -> Result<u64, JournalError> {
        // After this wait, the system has all accepted records: they are readable, and their
        // numbers are known.
        let _ = self.journal.settled().wait();
        Ok(self.journal.metrics().written_seq + 1)
    }

    /// Scans the log up to the position `end` and counts its records. Takes as long as reading the
    /// log, so no thread that serves requests may call it.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) fn rescan(&self, end: u64) -> Result<(), JournalError> {
        let number = self.current_scan.load(Ordering::Acquire);
        let dir = &self.dir;
        let mut found = lock(&self.counts).ids.begin_scan();
        journal::attempt_contents(dir, |id, content| found.add(id, content))?;
        let (mut figures, mut series, now) =
            (blank(&lock(&self.specs)), Series::default(), self.clock.date());
        journal::replay(dir, |seq, entry| {
            if seq < end
                && let Entry::Attempt(attempt) = entry
            {
                self.unavailable.seen(&attempt.fetcher);
                figures.iter_mut().for_each(|stats| stats.observe(&attempt));
                series.observe(&attempt, now);
            }
        })?;
        let cutoff = maintenance::cutoff(dir)?;
        self.finish_scan(number, found.sorted(), (figures, series), cutoff);
        Ok(())
    }

    fn finish_scan(
        &self,
        number: u64,
        found: ScannedIds,
        (figures, series): ([Stats; GROUPINGS.len()], Series),
        cutoff: Option<Timestamp>,
    ) {
        let mut counts = lock(&self.counts);
        if self.current_scan.load(Ordering::Acquire) != number {
            return;
        }
        counts.ids.finish_scan(found);
        counts.cutoff = cutoff;
        for (all, before) in counts.figures.iter_mut().zip(figures) {
            all.merge(before);
        }
        counts.series.merge(series, self.clock.date());
        drop(counts);
        self.last_scan.send_replace(number);
    }

    /// Writes a tombstone, after which the log needs another scan. Returns the position up to which
    /// that scan counts.
    ///
    /// # Errors
    /// If the journal rejects it.
    pub(crate) fn append_tombstone(&self, tombstone: &Tombstone) -> Result<u64, JournalError> {
        let mut counts = lock(&self.counts);
        let ticket = self.journal.append_tombstone(tombstone)?;
        counts.figures = blank(&lock(&self.specs));
        counts.series = Series::default();
        self.current_scan.fetch_add(1, Ordering::AcqRel);
        // The queue may have shed the tombstone. Then the scan counts everything.
        Ok(ticket.seq().unwrap_or(u64::MAX))
    }

    /// Returns the newest events.
    pub(crate) fn marks(&self) -> &EventMarks {
        &self.marks
    }

    /// Takes the costs of these fetchers from now on; the figures need another scan for it.
    pub(crate) fn set_costs<'s>(&self, changed: impl Iterator<Item = &'s FetcherSpec>) {
        let mut specs = lock(&self.specs);
        for spec in changed {
            specs
                .iter_mut()
                .filter(|known| known.name == spec.name)
                .for_each(|known| *known = spec.clone());
        }
    }

    /// Clears the figures, because the log has dropped old attempts; it then needs another scan.
    /// Returns the position up to which that scan counts. Blocks recording for some milliseconds,
    /// until the journal has written its queue.
    ///
    /// # Errors
    /// If the journal does not report its end.
    pub(crate) fn reset(&self) -> Result<u64, JournalError> {
        let mut counts = lock(&self.counts);
        let end = self.end()?;
        counts.figures = blank(&lock(&self.specs));
        counts.series = Series::default();
        self.current_scan.fetch_add(1, Ordering::AcqRel);
        Ok(end)
    }

    /// Counts an attempt of a followed log, which has it already.
    pub(crate) fn count(&self, attempt: &Attempt) {
        self.unavailable.seen(&attempt.fetcher);
        let content = AttemptContent::of(attempt);
        let mut counts = lock(&self.counts);
        counts.know(attempt.id, content.ok());
        counts.figures.iter_mut().for_each(|stats| stats.observe(attempt));
        counts.series.observe(attempt, self.clock.date());
    }

    /// Clears the figures of a followed log, because something was forgotten; it then needs another
    /// scan.
    pub(crate) fn restart(&self) {
        let mut counts = lock(&self.counts);
        counts.figures = blank(&lock(&self.specs));
        counts.series = Series::default();
        self.current_scan.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits for the current scan.
    ///
    /// # Errors
    /// If no scan will complete.
    pub(crate) async fn scanned(&self) -> Result<(), ScanFailed> {
        let mut last_scan = self.last_scan.subscribe();
        let done = last_scan
            .wait_for(|done| {
                *done == u64::MAX || *done >= self.current_scan.load(Ordering::Acquire)
            })
            .await;
        match done {
            Ok(done) if *done != u64::MAX => Ok(()),
            _ => Err(ScanFailed),
        }
    }

    /// Returns whether the current scan is complete.
    pub(crate) fn is_scanned(&self) -> bool {
        *self.last_scan.borrow() >= self.current_scan.load(Ordering::Acquire)
    }

    /// Records that the log cannot be scanned.
    pub(crate) fn set_scan_failed(&self) {
        self.last_scan.send_replace(u64::MAX);
    }

    /// Returns the statistics. Callers wait for [`scanned`](Self::scanned) first.
    pub(crate) fn stats(&self, by: By) -> Stats {
        let place = GROUPINGS.iter().position(|grouping| *grouping == by).unwrap_or_default();
        // The copy lets other threads record while this one sorts.
        lock(&self.counts).figures[place].clone()
    }

    /// Returns whether there are figures for `key`.
    pub(crate) fn has_row(&self, by: By, key: &str) -> bool {
        let place = GROUPINGS.iter().position(|grouping| *grouping == by).unwrap_or_default();
        lock(&self.counts).figures[place].row(key).is_some()
    }

    /// Calls `f` with the figures over time. Recording is blocked meanwhile, so `f` must be short.
    pub(crate) fn with_series<T>(&self, f: impl FnOnce(&Series) -> T) -> T {
        f(&lock(&self.counts).series)
    }

    /// Calls `f` with the figures per domain and over time; as [`with_series`](Self::with_series).
    pub(crate) fn with_domains<T>(&self, f: impl FnOnce(&Stats, &Series) -> T) -> T {
        let place =
            GROUPINGS.iter().position(|grouping| *grouping == By::Domain).unwrap_or_default();
        let counts = lock(&self.counts);
        f(&counts.figures[place], &counts.series)
    }

    /// Returns what the attempt with this id says, if it is in the log. Callers wait for
    /// [`scanned`](Self::scanned) first.
    pub(crate) fn known(&self, id: Uuid) -> Option<AttemptContent> {
        lock(&self.counts).ids.get(id)
    }

    /// Returns what an attempt says once the log has it.
    pub(crate) fn content_of(&self, attempt: &Attempt) -> Option<AttemptContent> {
        AttemptContent::of(&self.journal.recorded(attempt)).ok()
    }

    /// Returns the number of attempts that the journal rejected.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Attempts before this may have been compacted away.
    pub(crate) fn cutoff(&self) -> Option<Timestamp> {
        lock(&self.counts).cutoff
    }
}

impl Sink for AttemptStore {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.unavailable.seen(&attempt.fetcher);
        let content = self.content_of(attempt);
        // The lock is held during the append, so that no reader sees the record without its counts.
        let mut counts = lock(&self.counts);
        if let Err(error) = Sink::append(&*self.journal, attempt) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(error);
        }
        counts.know(attempt.id, content);
        counts.figures.iter_mut().for_each(|stats| stats.observe(attempt));
        counts.series.observe(attempt, self.clock.date());
        Ok(())
    }

    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        self.journal.link_state(link, url, state, at);
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        if until.is_some() {
            self.marks.add(at, EventKind::Paused, domain);
        }
        self.journal.host_pause(domain, until, at);
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        let (Released::Host(name) | Released::Link(name)) = what;
        self.marks.add(at, EventKind::Unpaused, name);
        self.journal.released(what, at);
    }
}
