//! Following a log that another process writes: entry by entry, without a lock.
//!
//! Owns: the position that was reached, and how an entry changes a selector.
//!
//! Invariants: each entry is handed out once, in order. Nothing is written.
//!
//! Must not know: what else is done with the entries.

use std::path::{Path, PathBuf};

use fetchwise_log::{Error as LogError, ResumeMark};

use super::entry::{Entry, ReleaseTarget, TombstoneTarget};
use super::error::JournalError;
use super::load::{LoadReport, level_after};
use super::read::{open, pass_range};
use super::schema;
use crate::selector::Selector;
use fetchwise_pace::{Level, PaceState};
use fetchwise_types::time::Timestamp;

/// A reader that continues where it stopped, in a log that grows.
///
/// ```
/// use fetchwise::attempt::Attempt;
/// use fetchwise::journal::{self, Follower, Journal, JournalOptions};
/// use fetchwise::selector::Selector;
/// use fetchwise::time::Timestamp;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
/// let (selector, now) = (Selector::builder().build().unwrap(), Timestamp::now());
/// let loaded = journal::load(dir, &selector, now).unwrap();
/// let mut follower = Follower::after(dir, &loaded);
///
/// let url = url::Url::parse("https://example.org/").unwrap();
/// journal.append_attempt(&Attempt::new(&url, "playwright", now).unwrap().delivered()).unwrap();
/// journal.flush().wait().unwrap();
/// let mut entries = 0;
/// follower.read(|_, _| entries += 1).unwrap();
/// follower.read(|_, _| entries += 1).unwrap();
/// assert_eq!(entries, 1);
/// ```
#[derive(Debug)]
pub struct Follower {
    dir: PathBuf,
    next: u64,
    mark: ResumeMark,
}

impl Follower {
    /// Creates a follower of the log in `dir` that begins after what `loaded` has.
    pub fn after(dir: &Path, loaded: &LoadReport) -> Self {
        Self { dir: dir.to_owned(), next: loaded.last_seq + 1, mark: ResumeMark::default() }
    }

    /// Returns the directory of the log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the sequence number of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    /// Calls `f` with each new entry. An entry that a later tombstone covers is handed out too; the
    /// tombstone follows.
    ///
    /// # Errors
    /// As [`replay`](super::replay). The next call continues after the last entry that `f`
    /// received.
    pub fn read(&mut self, mut f: impl FnMut(u64, Entry)) -> Result<(), JournalError> {
        // A log that has entries is never without segments, so this is another directory.
        if self.next > 1 && open(&self.dir)?.segments().len() == 0 {
            return Err(
                LogError::Invalid(format!("the log in {} is gone", self.dir.display())).into()
            );
        }
        let (from, next) = (self.next, &mut self.next);
        let take = |seq: u64, record: fetchwise_log::RecordRef<'_>| {
            let entry = schema::decode(record.kind, record.schema, record.payload)?;
            *next = seq + 1;
            f(seq, entry);
            Ok(())
        };
        pass_range(&self.dir, from, take, u64::MAX, &mut self.mark)
    }
}

/// Applies an entry of a followed log to a selector that has loaded everything before it, at the
/// time `now`. Dates in the future count as the present one.
pub fn apply(entry: &Entry, selector: &Selector, now: Timestamp) {
    let clock = selector.clock();
    // The log has dates, and the selector has times.
    let to_time_ms = clock.ahead_ms().saturating_neg();
    match entry {
        Entry::Attempt(attempt) if attempt.attempted_at > clock.date_of(now) => {
            let mut attempt = attempt.clone();
            attempt.attempted_at = clock.date_of(now);
            selector.observe(&attempt);
        }
        Entry::Attempt(attempt) => selector.observe(attempt),
        Entry::Link(of) => {
            selector.restore_links([(of.link.clone(), of.state.moved_by(to_time_ms))])
        }
        Entry::Host(of) => {
            selector.set_host_pause(
                &of.domain,
                of.paused_until.map(|until| until.moved_by(to_time_ms)),
            );
            let base = selector.backoff().blocked_base;
            let level = of.paused_until.map_or(0, |until| level_after(until.since(of.at), base));
            selector.restore_host_levels([(of.domain.clone(), level)]);
        }
        Entry::Pace(of) => {
            if let (Some(pace), Some(level)) = (selector.pace(), Level::from_repr(of.level)) {
                pace.restore(level, &of.name, &PaceState(of.state).moved_by(to_time_ms), now);
            }
        }
        Entry::Importance(of) => {
            selector.set_importance(&of.kind, of.value.as_deref(), f64::from(of.importance))
        }
        Entry::Release(of) => match &of.target {
            ReleaseTarget::Host(domain) => selector.set_host_pause(domain, None),
            ReleaseTarget::Link(link) => {
                let mut state = selector.link_state(link);
                state.paused_until = None;
                selector.restore_links([(link.clone(), state)]);
            }
        },
        // Candidates do not change while a selector lives.
        Entry::Fetcher(_) => {}
        Entry::Tombstone(of) => match &of.target {
            TombstoneTarget::Domain(domain) => selector.forget_domain(domain),
            TombstoneTarget::Link(link) => selector.forget_link(link),
        },
    }
}
