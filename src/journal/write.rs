//! Writing entries.
//!
//! Owns: [`Journal`], a [`Sink`] of the selector, and its options. Invariant: what cannot be written is counted. Must not know:
//! how entries are read back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fetchwise_log::{
    Acknowledgement, Durability, Error as LogError, Health, Log, LogOptions, Lost, Metrics, OnFull, OpenCheck, Record,
    Recovery, Ticket,
};

use super::entry::{ImportanceEntry, LinkEntry, PaceEntry, Release, ReleaseTarget, Tombstone, domain_of_url};
use super::error::JournalError;
use super::schema::{self, Encoded, SchemaError};
use crate::backoff::LinkState;
use crate::selector::{Released, Sink, SinkError};
use fetchwise_pace::{PaceStore, PaceRecord};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::time::Timestamp;

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

    /// How much is read at open. [`OpenCheck::Tail`] is enough for a caller who [`load`](super::load())s the journal right after.
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
    /// Attempts that were blocked, for whoever must know of them at once.
    blocks: AtomicU64,
    /// Tombstones, and the first entry that it could take.
    stones: AtomicU64,
    opened_at: u64,
}

impl Journal {
    /// Opens the journal in `dir`, which is created when there is none. A torn tail is repaired and reported.
    ///
    /// # Errors
    /// [`JournalError::is_refusal`] when somebody else is writing there, or it is damaged or newer than this release.
    pub fn open(dir: &Path, options: JournalOptions) -> Result<(Self, Recovery), JournalError> {
        let (log, recovery) = Log::open(dir, options.log)?;
        let (not_taken, blocks, stones) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Ok((Self { log, not_taken, blocks, stones, opened_at: recovery.next_seq }, recovery))
    }

    /// Takes an attempt, made to fit the [limits](crate::attempt::bounds) within which it can be exported and imported again.
    ///
    /// # Errors
    /// When its URL cannot be fetched or it names no fetcher; or when memory for what waits is used up.
    pub fn append_attempt(&self, attempt: &Attempt) -> Result<Ticket, JournalError> {
        if attempt.is_banned {
            // Relaxed: a count that somebody looks at now and then.
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
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

    /// Takes what is remembered of a pace.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_pace(&self, entry: &PaceEntry) -> Result<Ticket, JournalError> {
        self.append(schema::encode_pace(entry))
    }

    /// Takes what analytics worked out about a heuristic.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_importance(&self, entry: &ImportanceEntry) -> Result<Ticket, JournalError> {
        self.append(schema::encode_importance(entry))
    }

    /// Takes that an operator has ended a pause.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_release(&self, release: &Release) -> Result<Ticket, JournalError> {
        self.append(schema::encode_release(release))
    }

    /// Takes a wish to forget.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_tombstone(&self, tombstone: &Tombstone) -> Result<Ticket, JournalError> {
        // Before the append, so that nobody reads the tombstone and a count without it.
        self.stones.fetch_add(1, Ordering::SeqCst);
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

    /// The last entry that is known to be on disk, whatever becomes of the machine; 0 before the first.
    pub fn durable_seq(&self) -> u64 {
        self.log.durable_seq()
    }

    /// The position that the next entry gets.
    pub fn next_seq(&self) -> u64 {
        self.log.next_seq()
    }

    /// What an acknowledgement means.
    pub fn durability(&self) -> Durability {
        self.log.durability()
    }

    /// From here on there is no tombstone yet, as far as it knows without a look into the log.
    #[doc(hidden)]
    pub fn no_stones_from(&self) -> u64 {
        if self.stones.load(Ordering::SeqCst) == 0 { self.opened_at } else { u64::MAX }
    }

    /// How many blocked attempts have been given to it since it was opened.
    #[doc(hidden)]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
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
            schema: schema::version_of(encoded.kind),
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
        let domain = domain_of_url(url).unwrap_or_default();
        let _ = self.append_link(&LinkEntry { link: link.to_owned(), domain, state: *state, at });
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        let _ = self.append_host(domain, until, at);
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        let target = match what {
            Released::Host(domain) => ReleaseTarget::Host(domain.to_owned()),
            Released::Link(link) => ReleaseTarget::Link(link.to_owned()),
        };
        let _ = self.append_release(&Release { target, at });
    }
}

impl PaceStore for Journal {
    fn keep(&self, note: &PaceRecord<'_>) {
        let (level, cause) = (note.level as u8, note.cause as u8);
        let entry = PaceEntry { level, name: note.name.to_owned(), state: note.state.0, cause, at: note.at };
        // As for pauses: the log says itself what it does not take, and memory has it all the same.
        let _ = self.append_pace(&entry);
    }
}
