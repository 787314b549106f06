//! What the log holds, as the server has to know it without reading it again: figures and ids.
//!
//! Owns the way of an attempt into the log: [`Kept`] is the selector's sink, hands on to the journal, and counts what the journal took.
//! Invariant: what is counted is what lies in the log: the records before a look at it are counted by the look, those after it here,
//! each once. Must not know about HTTP.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::attempt_id_set::{Found, Ids};
use crate::time_series::Series;
use crate::unavailable_fetchers::Missing;
use fetchwise::analytics::{By, Row, Stats};
use fetchwise::attempt::Attempt;
use fetchwise::backoff::LinkState;
use fetchwise::journal;
use fetchwise::journal::{Entry, Journal, JournalError, Tombstone, maintenance};
use fetchwise::selector::{Released, Sink, SinkError};
use fetchwise::time::{Clock, Timestamp};

/// How rows can be grouped.
const GROUPINGS: [By; 5] = [By::All, By::Domain, By::Fetcher, By::Day, By::Week];

/// What the log holds.
#[derive(Debug)]
pub(crate) struct Kept {
    journal: Arc<Journal>,
    missing: Arc<Missing>,
    clock: Arc<Clock>,
    seen: Mutex<Seen>,
    /// The number of the last look at the log that is done; zero before the first.
    looked: watch::Sender<u64>,
    /// The look that counts. Those before it are of a log that has changed since.
    look: AtomicU64,
    /// Attempts that the journal did not take.
    failures: AtomicU64,
}

/// Attempts since the look that counts, and, once it is done, those before it.
#[derive(Debug)]
struct Seen {
    ids: Ids,
    figures: [Stats; 5],
    series: Series,
    /// Attempts before this may have been compacted away, and their ids with them.
    cutoff: Option<Timestamp>,
}

/// The look at the log does not succeed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotLooked;

fn blank() -> [Stats; 5] {
    GROUPINGS.map(Stats::new)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Knows nothing yet: a [`look`](Self::look) has to follow.
    pub(crate) fn new(journal: Arc<Journal>, missing: Arc<Missing>, clock: Arc<Clock>, seed: u64) -> Self {
        Self {
            journal,
            missing,
            clock,
            seen: Mutex::new(Seen { ids: Ids::new(seed), figures: blank(), series: Series::default(), cutoff: None }),
            looked: watch::Sender::new(0),
            look: AtomicU64::new(1),
            failures: AtomicU64::new(0),
        }
    }

    /// The journal.
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Where the records end that a look now would have to count: all before this place, and none from it on. Nothing may be recorded
    /// between this and the look that it is for.
    pub(crate) fn end(&self) -> Result<u64, JournalError> {
        // The system has what was taken: then it can be read, and its number is known.
        let _ = self.journal.settled().wait();
        Ok(self.journal.metrics().written_seq + 1)
    }

    /// Goes through the log, up to the place `end`, and counts. Takes as long as reading it: not for a thread that has to answer.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn look(&self, end: u64) -> Result<(), JournalError> {
        let number = self.look.load(Ordering::Acquire);
        let dir = self.journal.dir();
        let mut found = lock(&self.seen).ids.look();
        journal::ids(dir, |id| found.add(id))?;
        let (mut figures, mut series, now) = (blank(), Series::default(), self.clock.now());
        journal::replay(dir, |seq, entry| {
            if seq < end
                && let Entry::Attempt(attempt) = entry
            {
                self.missing.seen(&attempt.fetcher);
                figures.iter_mut().for_each(|stats| stats.observe(&attempt));
                series.observe(&attempt, now);
            }
        })?;
        let cutoff = maintenance::cutoff(dir)?;
        self.looked_at(number, found.in_order(), (figures, series), cutoff);
        Ok(())
    }

    fn looked_at(&self, number: u64, found: Found, (figures, series): ([Stats; 5], Series), cutoff: Option<Timestamp>) {
        let mut seen = lock(&self.seen);
        if self.look.load(Ordering::Acquire) != number {
            return;
        }
        seen.ids.found(found);
        seen.cutoff = cutoff;
        for (all, before) in seen.figures.iter_mut().zip(figures) {
            all.merge(before);
        }
        seen.series.merge(series, self.clock.now());
        drop(seen);
        self.looked.send_replace(number);
    }

    /// Writes a tombstone, after which the log is due for another look. Gives back the place up to which that look is to count.
    ///
    /// # Errors
    /// When the journal does not take it.
    pub(crate) fn bury(&self, tombstone: &Tombstone) -> Result<u64, JournalError> {
        let mut seen = lock(&self.seen);
        let ticket = self.journal.append_tombstone(tombstone)?;
        seen.figures = blank();
        seen.series = Series::default();
        self.look.fetch_add(1, Ordering::AcqRel);
        // A log without room for a record that sheds others has no place for it either: then all is counted that there is.
        Ok(ticket.seq().unwrap_or(u64::MAX))
    }

    /// Forgets the figures, since the log has lost old attempts, after which it is due for another look. Gives back the place up to
    /// which that look is to count. Nobody can record meanwhile: some milliseconds, as long as the journal needs for what it has.
    ///
    /// # Errors
    /// When the journal does not say where it ends.
    pub(crate) fn renew(&self) -> Result<u64, JournalError> {
        let mut seen = lock(&self.seen);
        let end = self.end()?;
        seen.figures = blank();
        seen.series = Series::default();
        self.look.fetch_add(1, Ordering::AcqRel);
        Ok(end)
    }

    /// Waits for the look that counts.
    ///
    /// # Errors
    /// When there will be none.
    pub(crate) async fn looked(&self) -> Result<(), NotLooked> {
        let mut looked = self.looked.subscribe();
        let done = looked.wait_for(|done| *done == u64::MAX || *done >= self.look.load(Ordering::Acquire)).await;
        match done {
            Ok(done) if *done != u64::MAX => Ok(()),
            _ => Err(NotLooked),
        }
    }

    /// Whether the look that counts is done.
    pub(crate) fn has_looked(&self) -> bool {
        *self.looked.borrow() >= self.look.load(Ordering::Acquire)
    }

    /// Says that the log cannot be looked at.
    pub(crate) fn cannot_look(&self) {
        self.looked.send_replace(u64::MAX);
    }

    /// The rows of statistics. Ask once it was [`looked`](Self::looked) at.
    pub(crate) fn rows(&self, by: By) -> Vec<(String, Row)> {
        let place = GROUPINGS.iter().position(|grouping| *grouping == by).unwrap_or_default();
        // Sorting is nobody's business who wants to record meanwhile.
        let stats = lock(&self.seen).figures[place].clone();
        stats.rows()
    }

    /// What `f` makes of the figures over time. Nobody can record meanwhile, so it has to be short.
    pub(crate) fn with_series<T>(&self, f: impl FnOnce(&Series) -> T) -> T {
        f(&lock(&self.seen).series)
    }

    /// The same with the figures of each domain.
    pub(crate) fn with_domains<T>(&self, f: impl FnOnce(&Stats, &Series) -> T) -> T {
        let place = GROUPINGS.iter().position(|grouping| *grouping == By::Domain).unwrap_or_default();
        let seen = lock(&self.seen);
        f(&seen.figures[place], &seen.series)
    }

    /// Whether an attempt is in the log. Ask once it was [`looked`](Self::looked) at.
    pub(crate) fn knows(&self, id: Uuid) -> bool {
        lock(&self.seen).ids.contains(id)
    }

    /// How many attempts the journal has not taken.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Attempts before this may have been compacted away.
    pub(crate) fn cutoff(&self) -> Option<Timestamp> {
        lock(&self.seen).cutoff
    }
}

impl Sink for Kept {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.missing.seen(&attempt.fetcher);
        // Held while the journal takes it, so that nobody finds the one without the other.
        let mut seen = lock(&self.seen);
        if let Err(error) = Sink::append(&*self.journal, attempt) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(error);
        }
        seen.ids.insert(attempt.id);
        seen.figures.iter_mut().for_each(|stats| stats.observe(attempt));
        seen.series.observe(attempt, self.clock.now());
        Ok(())
    }

    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        self.journal.link_state(link, url, state, at);
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        self.journal.host_pause(domain, until, at);
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        self.journal.released(what, at);
    }
}
