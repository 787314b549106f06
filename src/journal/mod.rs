//! The journal: attempts, pauses and what else must outlive the process, bound to the log.
//!
//! Owns: writing entries ([`Journal`], a [`Sink`] of the selector), reading them back ([`replay`]), starting from what they
//! taught ([`load`]), maintenance ([`maintain`]) and telling apart what a caller has to do about a failure. Invariant: what is
//! read back is what was taken, in order, without what a tombstone covers; damage is never skipped in silence. Reading takes
//! no lock and repairs nothing, so that commands work beside a running crawler. Must not know how bytes get to disk (that is
//! `fetchwise-log`) nor what attempts teach.
//!
//! ```
//! use fetchwise::attempt::Attempt;
//! use fetchwise::journal::{self, Journal, JournalOptions};
//! use fetchwise::selector::Selector;
//! use fetchwise::time::Timestamp;
//! use std::sync::Arc;
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
//! let journal = Arc::new(journal);
//! let mut selector = Selector::builder().build().unwrap();
//! journal::load(dir, &selector, Timestamp::now()).unwrap();
//! selector.set_sink(Box::new(journal.clone()));
//!
//! let now = Timestamp::now();
//! let url = url::Url::parse("https://example.org/").unwrap();
//! selector.record(Attempt::new(&url, "playwright", now).unwrap().delivered(), now).unwrap();
//! journal.flush().wait().unwrap();
//! assert_eq!(journal::replay(dir, |_, _| {}).unwrap().attempts, 1);
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fetchwise_log::{Log, LogOptions, Record};

use crate::attempt::Attempt;
use crate::attempt::bounds::Unrecordable;
use crate::backoff::LinkState;
use crate::selector::{Sink, SinkError};
use crate::time::Timestamp;
use schema::Encoded;

mod entry;
mod fold;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod maintain;
mod read;
mod schema;
mod snapshot;
mod start;

pub use entry::{Entry, HostEntry, ImportanceEntry, LinkEntry, Tombstone, TombstoneTarget};
pub use fetchwise_log::{
    Acknowledgement, AppendError, Damage, Durability, Error as LogError, Health, Lost, Metrics, OnFull, OpenCheck,
    Progress, Recovery, Ticket, TornTail, UnknownName, WaitError,
};
pub use fold::{Importances, Loaded, Started, Survey, importances, load, load_showing, survey, survey_showing};
pub use read::{Replayed, ids, replay};
pub use schema::SchemaError;

/// Why the journal cannot be written or read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The log says no: locked, damaged, of a newer format, or the system failed it.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record whose bytes are whole does not hold what this release can read.
    #[error("record {seq} of the log: {source}")]
    Record {
        /// Its sequence number.
        seq: u64,
        /// What is wrong with it.
        source: Arc<SchemaError>,
    },
    /// A snapshot whose bytes are whole does not hold what this release can read.
    #[error("the snapshot {file}: {what}")]
    Snapshot {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The newest record is so old that the clock is probably wrong, and with it what "too old" means.
    #[error("the newest record is {hours} hours old: has the clock jumped?")]
    ClockJump {
        /// How old.
        hours: u64,
    },
    /// An attempt says nothing that could be recorded.
    #[error("cannot be recorded: {0}")]
    Unrecordable(#[from] Unrecordable),
    /// An entry cannot be encoded: it is too large.
    #[error("cannot be recorded: {0}")]
    Encode(Arc<SchemaError>),
    /// The log did not take an entry.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl JournalError {
    /// True when trying again without doing something about it is useless: locked, damaged, of a newer format. Commands end
    /// with exit code 3.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Log(error) => error.is_refusal(),
            Self::Record { .. } | Self::Snapshot { .. } | Self::ClockJump { .. } => true,
            Self::Unrecordable(_) | Self::Encode(_) | Self::Append(_) => false,
        }
    }
}

/// How to open a journal for writing.
///
/// ```
/// use fetchwise::journal::{Durability, JournalOptions};
///
/// let options = JournalOptions::default().durability(Durability::Sync).segment_bytes(8 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct JournalOptions {
    log: LogOptions,
}

impl Default for JournalOptions {
    fn default() -> Self {
        let mut log = LogOptions::default();
        log.fingerprint = schema::fingerprint();
        log.accepts = schema::readable();
        Self { log }
    }
}

impl JournalOptions {
    /// What an acknowledgement means.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.log.durability = durability;
        self
    }

    /// How long entries that nobody waits for may be gathered before they are written together; zero gathers nothing. See
    /// [`LogOptions::linger`](fetchwise_log::LogOptions::linger).
    #[must_use]
    pub fn linger(mut self, time: Duration) -> Self {
        self.log.linger = time;
        self
    }

    /// The size at which a segment of the log is full, in bytes.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.log.segment_bytes = bytes;
        self
    }

    /// What happens when entries come faster than the disk takes them.
    #[must_use]
    pub fn on_full(mut self, policy: OnFull) -> Self {
        self.log.on_full = policy;
        self
    }

    /// How much is read at open. [`OpenCheck::Tail`] is enough for a caller who [`load`]s the journal right after.
    #[must_use]
    pub fn check(mut self, check: OpenCheck) -> Self {
        self.log.check = check;
        self
    }

    /// Begins a new segment of the log now, so that all there was before can be compacted.
    #[must_use]
    pub fn begin_segment(mut self) -> Self {
        self.log.begin_segment = true;
        self
    }
}

/// A data directory opened for writing. Shared by reference; dropping it writes and syncs what is left.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    /// Entries that could not be encoded.
    not_taken: AtomicU64,
}

impl Journal {
    /// Opens the journal in `dir`, which is created when there is none. A torn tail is repaired and reported.
    ///
    /// # Errors
    /// [`JournalError::is_refusal`] when somebody else is writing there, or it is damaged or newer than this release.
    pub fn open(dir: &Path, options: JournalOptions) -> Result<(Self, Recovery), JournalError> {
        let (log, recovery) = Log::open(dir, options.log)?;
        Ok((Self { log, not_taken: AtomicU64::new(0) }, recovery))
    }

    /// Takes an attempt, made to fit the [limits](crate::attempt::bounds) within which it can be exported and imported again.
    ///
    /// # Errors
    /// When its URL cannot be fetched or it names no fetcher; or when memory for what waits is used up.
    pub fn append_attempt(&self, attempt: &Attempt) -> Result<Ticket, JournalError> {
        match attempt.bounded() {
            Ok(attempt) => self.append(schema::encode_attempt(&attempt)),
            Err(error) => Err(self.not_taken(error.into())),
        }
    }

    /// Takes a link's state.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_link(&self, entry: &LinkEntry) -> Result<Ticket, JournalError> {
        self.append(schema::encode_link(entry))
    }

    /// Takes a host's pause as of `at`; none lifts it.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_host(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) -> Result<Ticket, JournalError> {
        self.append(schema::encode_host(domain, until, at))
    }

    /// Takes what analytics worked out about a heuristic.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_importance(&self, entry: &ImportanceEntry) -> Result<Ticket, JournalError> {
        self.append(schema::encode_importance(entry))
    }

    /// Takes a wish to forget.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_tombstone(&self, tombstone: &Tombstone) -> Result<Ticket, JournalError> {
        self.append(schema::encode_tombstone(tombstone))
    }

    /// Asks that everything taken so far be synced to disk; the result can be awaited, or waited for.
    pub fn flush(&self) -> Acknowledgement {
        self.log.flush()
    }

    /// Waits (or lets wait) until everything taken so far is acknowledged at the journal's durability: at
    /// [`Durability::Os`] and [`Durability::Interval`] it then outlives the process.
    pub fn settled(&self) -> Acknowledgement {
        self.log.settled()
    }

    /// Whether entries reach the disk.
    pub fn health(&self) -> Health {
        self.log.health()
    }

    /// How many entries since the journal was opened are not in it and will not be: those that it did not take, and those that
    /// went with a directory which somebody deleted. What waits in memory is not among them: the error of
    /// [`close`](Self::close) has all.
    pub fn lost(&self) -> Lost {
        self.log.lost().and(Lost::new(self.not_taken.load(Ordering::Relaxed)))
    }

    /// Counts and gauges.
    pub fn metrics(&self) -> Metrics {
        self.log.metrics()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.log.dir()
    }

    /// Writes and syncs what is left and closes the log. Dropping does the same and says nothing.
    ///
    /// # Errors
    /// When entries could not be written: they are lost with this process.
    pub fn close(self) -> Result<(), JournalError> {
        let not_taken = Lost::new(self.not_taken.into_inner());
        self.log.close().map_err(|error| match error {
            LogError::Unsaved { lost, source } => LogError::Unsaved { lost: lost.and(not_taken), source }.into(),
            other => other.into(),
        })
    }

    /// Counts an entry that did not get as far as the log.
    fn not_taken(&self, error: JournalError) -> JournalError {
        // Relaxed: a count for people.
        self.not_taken.fetch_add(1, Ordering::Relaxed);
        error
    }

    fn append(&self, encoded: Result<Encoded, SchemaError>) -> Result<Ticket, JournalError> {
        let encoded = encoded.map_err(|error| self.not_taken(JournalError::Encode(Arc::new(error))))?;
        Ok(self.log.append(Record {
            kind: encoded.kind,
            schema: schema::VERSION,
            key_hash: encoded.key_hash,
            time_ms: encoded.time.as_millis(),
            payload: &encoded.payload,
        })?)
    }
}

impl Sink for Journal {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.append_attempt(attempt).map(|_| ()).map_err(|error| SinkError(Arc::new(error)))
    }

    // An entry that the log does not take is counted by the log ([`Journal::metrics`]), which says so itself; the pause
    // holds in memory all the same.
    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        let domain = entry::domain_of_url(url).unwrap_or_default();
        let _ = self.append_link(&LinkEntry { link: link.to_owned(), domain, state: *state, at });
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        let _ = self.append_host(domain, until, at);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::*;
    use crate::attempt::outcome::ErrorKind;
    use crate::backoff::LinkState;
    use crate::heuristic::url::Kind;
    use crate::selector::Selector;
    use crate::selector::Situation;

    const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn minutes(n: u64) -> Timestamp {
        T0.saturating_add(Duration::from_secs(60 * n))
    }

    fn attempt(text: &str, fetcher: &str, at: Timestamp) -> Attempt {
        Attempt::new(&url::Url::parse(text).unwrap(), fetcher, at).unwrap()
    }

    fn selector() -> Selector {
        Selector::builder().around(T0).build().unwrap()
    }

    #[test]
    fn a_second_start_knows_what_the_first_learned() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let mut live = selector();
        live.set_sink(Box::new(Arc::new(journal)));
        for n in 0..200 {
            let a = attempt(&format!("https://e.org/s{}/{n}", n % 3), ["playwright", "mine"][n % 2], minutes(n as u64));
            let a = if n % 5 == 0 { a.failed(ErrorKind::BlockedCaptcha) } else { a.delivered() };
            live.record(a, minutes(500)).unwrap();
        }
        drop(std::mem::replace(&mut live, selector()));
        let again = selector();
        let loaded = load(dir.path(), &again, minutes(500)).unwrap();
        assert_eq!((loaded.replayed.attempts, loaded.replayed.torn_tail), (200, None));
        let masses = again.masses(("domain", "e.org"), Kind::Page, "mine", minutes(500));
        assert_eq!(masses.attempts, 100);
        let url = url::Url::parse("https://e.org/s1/new").unwrap();
        let take = again.select(&url, &Situation::first(minutes(500))).unwrap().taken().unwrap();
        assert!(take.confidence > 0.5, "{take:?}");
        assert_eq!(survey(dir.path()).unwrap().fetchers, ["mine", "playwright"]);
    }

    #[test]
    fn pauses_come_back_and_links_without_risk_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let paused = LinkState { paused_until: Some(minutes(10)), risk_level: 1, ..LinkState::default() };
        for (link, state) in [("a", paused), ("b", paused), ("b", LinkState::default())] {
            let (link, domain) = (link.to_owned(), "e.org".to_owned());
            journal.append_link(&LinkEntry { link, domain, state, at: T0 }).unwrap();
        }
        journal.append_host("e.org", Some(minutes(30)), T0).unwrap();
        journal.append_host("f.org", Some(minutes(30)), T0).unwrap();
        journal.append_host("f.org", None, minutes(1)).unwrap();
        journal.close().unwrap();
        let selector = selector();
        let loaded = load(dir.path(), &selector, T0).unwrap();
        assert_eq!(loaded.host_levels, HashMap::from([("e.org".to_owned(), 2)]));
        assert_eq!(loaded.links, HashMap::from([("a".to_owned(), paused)]));
        assert_eq!(selector.host_pause("e.org"), Some(minutes(30)));
        assert_eq!(selector.host_pause("f.org"), None);
    }

    #[test]
    fn what_a_wrong_clock_wrote_counts_as_of_now() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let years_ahead = minutes(4 * 365 * 24 * 60);
        journal.append_attempt(&attempt("https://e.org/1", "playwright", years_ahead).delivered()).unwrap();
        journal.append_host("e.org", Some(years_ahead), years_ahead).unwrap();
        journal.close().unwrap();
        let selector = selector();
        load(dir.path(), &selector, T0).unwrap();
        let masses = selector.masses(("domain", "e.org"), Kind::Page, "playwright", T0);
        assert!((masses.total - 1.0).abs() < 1e-9, "{masses:?}");
        assert_eq!(selector.host_pause("e.org"), Some(minutes(24 * 60)));
    }

    #[test]
    fn a_tombstone_covers_what_came_before_it_only() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let write = |text: &str| journal.append_attempt(&attempt(text, "f", T0).delivered()).unwrap();
        write("https://www.gone.org/1");
        write("https://kept.org/1");
        write("https://kept.org/2");
        journal.append_host("gone.org", Some(minutes(5)), T0).unwrap();
        for target in
            [TombstoneTarget::Domain("gone.org".to_owned()), TombstoneTarget::Link("https://kept.org/2".to_owned())]
        {
            journal.append_tombstone(&Tombstone { target, at: T0 }).unwrap();
        }
        write("https://www.gone.org/2");
        journal.close().unwrap();
        let mut urls = Vec::new();
        let replayed = replay(dir.path(), |_, entry| {
            if let Entry::Attempt(attempt) = entry {
                urls.push(attempt.url);
            }
        });
        assert_eq!(urls, ["https://kept.org/1", "https://www.gone.org/2"]);
        assert_eq!(replayed.unwrap().forgotten, 3);
    }

    #[test]
    fn there_is_one_writer_and_readers_do_not_mind() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        journal.append_attempt(&attempt("https://e.org/", "f", T0).delivered()).unwrap();
        journal.flush().wait().unwrap();
        let error = Journal::open(dir.path(), JournalOptions::default()).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("locked"), "{error}");
        assert_eq!(replay(dir.path(), |_, _| {}).unwrap().attempts, 1);
    }

    #[test]
    fn an_embedder_says_how_long_attempts_are_gathered() {
        let dir = tempfile::tempdir().unwrap();
        let options = JournalOptions::default().linger(Duration::from_secs(60)).durability(Durability::Os);
        let (journal, _) = Journal::open(dir.path(), options).unwrap();
        for n in 0..3 {
            journal.append_attempt(&attempt(&format!("https://e.org/{n}"), "f", T0).delivered()).unwrap();
            // Longer than the log would gather them by itself.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(journal.metrics().written_seq, 0, "nobody has asked for them yet");
        journal.flush().wait().unwrap();
        assert_eq!(journal.metrics().written_seq, 3);
    }

    #[test]
    fn an_absent_directory_is_an_empty_journal_and_stays_absent() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        assert!(survey(&absent).unwrap().fetchers.is_empty());
        assert!(!absent.exists());
    }

    /// The one segment of a journal with `attempts` attempts that was closed in good order.
    fn written(dir: &Path, attempts: usize) -> std::path::PathBuf {
        let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
        for n in 0..attempts {
            journal.append_attempt(&attempt(&format!("https://e.org/{n}"), "f", T0).delivered()).unwrap();
            // Each in a frame of its own.
            journal.flush().wait().unwrap();
        }
        journal.close().unwrap();
        let mut segments: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        segments.retain(|path| path.extension().is_some_and(|extension| extension == "fwl"));
        segments.pop().unwrap()
    }

    #[test]
    fn a_flipped_bit_in_the_middle_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let segment = written(dir.path(), 20);
        let mut bytes = std::fs::read(&segment).unwrap();
        let at = 4096 + 2000;
        bytes[at] ^= 4;
        std::fs::write(&segment, bytes).unwrap();
        let error = survey(dir.path()).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("damaged"), "{error}");
        assert!(Journal::open(dir.path(), JournalOptions::default()).unwrap_err().is_refusal());
    }
}
