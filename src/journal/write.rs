//! Writer of the journal.
//!
//! Owns: [`Journal`], a [`Sink`] of the selector, and its options.
//!
//! Invariants: every entry that cannot be written is counted.
//!
//! Must not know: how entries are read back.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fetchwise_log::{
    Acknowledgement, Durability, Error as LogError, Health, Log, LogOptions, Lost, Metrics, OnFull,
    OpenCheck, Record, Recovery, Ticket,
};

use super::entry::{
    FetcherEntry, ImportanceEntry, LinkEntry, PaceEntry, Release, ReleaseTarget, Tombstone,
    domain_of_url,
};
use super::error::JournalError;
use super::maintenance::checkpoint::checkpoint_at_end;
use super::query_key;
use super::schema::{self, EncodedRecord, SchemaError};
use super::store_health::StoreHealth;
use crate::backoff::LinkState;
use crate::evidence::Learned;
use crate::selector::{Released, Selector, Sink, SinkError};
use fetchwise_pace::{PaceRecord, PaceStore};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::query_hash::QueryHash;
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::time::{Clock, Timestamp};

/// Options for opening a journal for writing.
///
/// ```
/// use fetchwise::journal::{Durability, JournalOptions};
///
/// let options = JournalOptions::default().durability(Durability::Sync).segment_bytes(8 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct JournalOptions {
    log: LogOptions,
    hashes_queries: Option<bool>,
}

impl Default for JournalOptions {
    fn default() -> Self {
        let mut log = LogOptions::default();
        log.fingerprint = schema::fingerprint();
        log.blocks = Some(&schema::BLOCKS);
        Self { log, hashes_queries: None }
    }
}

impl JournalOptions {
    /// Sets what an acknowledgement guarantees.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.log.durability = durability;
        self
    }

    /// Sets how long entries that nobody waits for may be collected before they are written
    /// together. Zero collects nothing. See
    /// [`LogOptions::linger`](fetchwise_log::LogOptions::linger).
    #[must_use]
    pub fn linger(mut self, time: Duration) -> Self {
        self.log.linger = time;
        self
    }

    /// Sets the size in bytes at which a segment of the log is full.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.log.segment_bytes = bytes;
        // Small batches are packed before the segment is full.
        self.log.repack_bytes = LogOptions::default().repack_bytes.min(bytes / 8);
        self
    }

    /// Sets what happens when entries arrive faster than the disk takes them.
    #[must_use]
    pub fn on_full(mut self, policy: OnFull) -> Self {
        self.log.on_full = policy;
        self
    }

    /// Sets how much is read at open. [`OpenCheck::Tail`] is enough for a caller who
    /// [`load`](super::load())s the journal right after.
    #[must_use]
    pub fn check(mut self, check: OpenCheck) -> Self {
        self.log.check = check;
        self
    }

    /// Sets whether entries are packed into columns, which take a fraction of the space. By default
    /// they are: 256 entries or more that are written together at once, smaller batches once they
    /// take 512 KiB, and at a close. Releases that cannot read columns refuse the segments of a
    /// journal that packs.
    #[must_use]
    pub fn pack(mut self, packs: bool) -> Self {
        self.log.blocks = if packs { Some(&schema::BLOCKS) } else { None };
        self
    }

    /// Sets whether the values of query strings are stored as hashes with the directory's own key,
    /// so that no file of the directory has them. By default they are if they were before. Without
    /// it a selector needs [`query_hash`](crate::selector::SelectorBuilder::query_hash) to know the
    /// links of the log again.
    #[must_use]
    pub fn hash_queries(mut self, hashes: bool) -> Self {
        self.hashes_queries = Some(hashes);
        self
    }

    /// Begins a new segment of the log now, so that everything before it can be compacted.
    #[must_use]
    pub fn begin_segment(mut self) -> Self {
        self.log.begin_segment = true;
        self
    }
}

/// Data directory that is open for writing. It is shared by reference. Dropping it writes and syncs
/// what is left.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    /// Hashes the query values of URLs, if the directory does that.
    query_hash: Option<QueryHash>,
    /// Entries that could not be encoded.
    rejected: AtomicU64,
    /// Blocked attempts, for callers that react to them at once.
    blocks: AtomicU64,
    /// Tombstones appended since the open.
    tombstones: AtomicU64,
    opened_at: u64,
    /// What fails at the evidence that a selector keeps on disk in the directory.
    store_health: Arc<StoreHealth>,
    keeper: Arc<Keeper>,
}

/// Empty evidence like that of the selector that keeps what it evicts in the directory, and its
/// clock.
pub(super) type Keeper = OnceLock<(Learned, Arc<Clock>)>;

impl Journal {
    /// Opens the journal in `dir`, which is created if it does not exist. A torn tail is repaired
    /// and reported.
    ///
    /// # Errors
    /// [`JournalError::is_refusal`] when another process writes there, or when the journal is
    /// damaged or newer than this release.
    pub fn open(dir: &Path, options: JournalOptions) -> Result<(Self, Recovery), JournalError> {
        let (log, recovery) = Log::open(dir, options.log)?;
        let query_hash = match options.hashes_queries {
            Some(true) => Some(query_key::open_or_create(dir)?),
            Some(false) => None,
            None => query_key::query_hash(dir)?,
        };
        let (rejected, blocks, tombstones) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Ok((
            Self {
                log,
                query_hash,
                rejected,
                blocks,
                tombstones,
                opened_at: recovery.next_seq,
                store_health: Arc::default(),
                keeper: Arc::default(),
            },
            recovery,
        ))
    }

    /// Appends an attempt. It is cut to the [limits](crate::attempt::bounds) within which it can be
    /// exported and imported again.
    ///
    /// # Errors
    /// When its URL cannot be fetched, when it names no fetcher, or when the memory for waiting
    /// entries is used up.
    pub fn append_attempt(&self, attempt: &Attempt) -> Result<Ticket, JournalError> {
        if attempt.is_banned {
            // Relaxed: readers poll the count, and a late one reacts a moment later.
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
        match self.recorded(attempt).bounded() {
            Ok(attempt) => self.append(schema::encode_attempt(&attempt)),
            Err(error) => Err(self.rejected(error.into())),
        }
    }

    /// Returns an attempt with its URL and its link as the directory names them.
    pub fn recorded<'a>(&self, attempt: &'a Attempt) -> Cow<'a, Attempt> {
        let Some(hash) = self.query_hash else { return Cow::Borrowed(attempt) };
        let (url, link) = (hash.url(&attempt.url), hash.url(&attempt.link));
        match (&url, &link) {
            (Cow::Borrowed(_), Cow::Borrowed(_)) => Cow::Borrowed(attempt),
            _ => Cow::Owned(Attempt {
                url: url.into_owned(),
                link: link.into_owned(),
                ..attempt.clone()
            }),
        }
    }

    /// Appends the state of a link.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_link(&self, entry: &LinkEntry) -> Result<Ticket, JournalError> {
        match self.query_hash.map(|hash| hash.url(&entry.link).into_owned()) {
            Some(link) => self.append(schema::encode_link(&LinkEntry { link, ..entry.clone() })),
            None => self.append(schema::encode_link(entry)),
        }
    }

    /// Appends the pause of a host as of `at`. `None` ends the pause.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_host(
        &self,
        domain: &str,
        until: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<Ticket, JournalError> {
        self.append(schema::encode_host(domain, until, at))
    }

    /// Appends a persisted pace.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_pace(&self, entry: &PaceEntry) -> Result<Ticket, JournalError> {
        self.append(schema::encode_pace(entry))
    }

    /// Appends the importance of a heuristic.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_importance(&self, entry: &ImportanceEntry) -> Result<Ticket, JournalError> {
        self.append(schema::encode_importance(entry))
    }

    /// Appends the end of a pause by an operator.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_release(&self, release: &Release) -> Result<Ticket, JournalError> {
        let target = query_key::released(self.query_hash.as_ref(), &release.target);
        self.append(schema::encode_release(&Release { target, at: release.at }))
    }

    /// Appends the class and the cost of a fetcher.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_fetcher(&self, entry: &FetcherEntry) -> Result<Ticket, JournalError> {
        self.append(schema::encode_fetcher(entry))
    }

    /// Appends the class and the cost of those candidates of `selector` of which a reader of the
    /// log would assume others: the last ones in `known`
    /// ([`LoadReport::registered`](super::LoadReport::registered)), or those of the name.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn register_fetchers(
        &self,
        selector: &Selector,
        known: &[FetcherEntry],
    ) -> Result<(), JournalError> {
        let at = selector.clock().date_of(selector.now());
        for (_, spec) in selector.candidates() {
            let entry = FetcherEntry::of(spec, at);
            let assumed = match known.iter().find(|of| of.name == entry.name) {
                Some(of) => of.clone(),
                None => FetcherEntry::of(&FetcherSpec::by_name(&entry.name), at),
            };
            if !entry.says_the_same(&assumed) {
                self.append_fetcher(&entry)?;
            }
        }
        Ok(())
    }

    /// Appends a tombstone.
    ///
    /// # Errors
    /// As [`Journal::append_attempt`].
    pub fn append_tombstone(&self, tombstone: &Tombstone) -> Result<Ticket, JournalError> {
        // Before the append, so that nobody reads the tombstone together with a count that lacks
        // it.
        self.tombstones.fetch_add(1, Ordering::SeqCst);
        let target = query_key::forgotten(self.query_hash.as_ref(), &tombstone.target);
        self.append(schema::encode_tombstone(&Tombstone { target, at: tombstone.at }))
    }

    /// Requests a sync of everything appended so far. The result can be awaited, or waited for.
    pub fn flush(&self) -> Acknowledgement {
        self.log.flush()
    }

    /// Returns an acknowledgement for everything appended so far, at the journal's durability. At
    /// [`Durability::Os`] and [`Durability::Interval`] the entries then outlive the process.
    pub fn settled(&self) -> Acknowledgement {
        self.log.settled()
    }

    /// Returns the last entry that is known to survive a crash of the machine; 0 before the first.
    pub fn durable_seq(&self) -> u64 {
        self.log.durable_seq()
    }

    /// Returns the position of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.log.next_seq()
    }

    /// Returns what an acknowledgement guarantees.
    pub fn durability(&self) -> Durability {
        self.log.durability()
    }

    /// Returns a position from which on there is no tombstone, as far as the journal knows without
    /// reading the log.
    #[doc(hidden)]
    pub fn no_tombstones_from(&self) -> u64 {
        if self.tombstones.load(Ordering::SeqCst) == 0 { self.opened_at } else { u64::MAX }
    }

    /// Returns the number of blocked attempts since the open.
    #[doc(hidden)]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Returns whether entries reach the disk, and whether evidence that is kept on disk
    /// ([`keep_evicted`](crate::selector::SelectorBuilder::keep_evicted)) can be written and read.
    /// The reason of a failure says which of them, and what to do.
    pub fn health(&self) -> Health {
        match self.log.health() {
            Health::Good => self.store_health.get(),
            of_log => of_log,
        }
    }

    /// Returns whether entries reach the disk, whatever else fails.
    pub fn log_health(&self) -> Health {
        self.log.health()
    }

    /// Returns whether evidence that is kept on disk can be written and read, whatever else fails.
    pub fn evidence_health(&self) -> Health {
        self.store_health.get()
    }

    /// Returns where the health of evidence on disk is noted.
    pub(super) fn store_health(&self) -> &Arc<StoreHealth> {
        &self.store_health
    }

    /// Returns where a selector is noted that keeps what it evicts in the directory.
    pub(super) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Returns how many merges of the files with evidence have failed.
    #[cfg(feature = "metrics")]
    pub(crate) fn failed_merges(&self) -> u64 {
        self.store_health.failed_merges()
    }

    /// Returns how many entries since the open are lost for good: entries that were not accepted,
    /// and entries that went with a deleted directory. Entries that wait in memory are not
    /// included; the error of [`close`](Self::close) counts them as well.
    pub fn lost(&self) -> Lost {
        self.log.lost().and(Lost::new(self.rejected.load(Ordering::Relaxed)))
    }

    /// Returns the counts and gauges of the log.
    pub fn metrics(&self) -> Metrics {
        self.log.metrics()
    }

    /// Returns the hash of the query values of URLs, if the directory does not keep them.
    pub fn query_hash(&self) -> Option<QueryHash> {
        self.query_hash
    }

    /// Returns the data directory.
    pub fn dir(&self) -> &Path {
        self.log.dir()
    }

    /// Writes and syncs what is left and closes the log. Dropping does the same, but reports no
    /// error.
    ///
    /// If a selector [keeps](crate::selector::SelectorBuilder::keep_evicted) what it evicts here,
    /// this also makes a [checkpoint](super::maintenance::checkpoint()), from which the next start
    /// goes on. That takes as long as reading what was recorded since the last one.
    ///
    /// # Errors
    /// When entries could not be written. They are lost with this process.
    pub fn close(self) -> Result<(), JournalError> {
        let (rejected, dir) = (Lost::new(self.rejected.into_inner()), self.log.dir().to_owned());
        self.log.close().map_err(|error| match error {
            LogError::Unsaved { lost, source } => {
                JournalError::from(LogError::Unsaved { lost: lost.and(rejected), source })
            }
            other => other.into(),
        })?;
        if let Some((like, clock)) = self.keeper.get() {
            checkpoint_at_end(&dir, like, clock.date());
        }
        Ok(())
    }

    /// Counts an entry that did not reach the log.
    fn rejected(&self, error: JournalError) -> JournalError {
        // Relaxed: the count is for reports only.
        self.rejected.fetch_add(1, Ordering::Relaxed);
        error
    }

    fn append(&self, encoded: Result<EncodedRecord, SchemaError>) -> Result<Ticket, JournalError> {
        let encoded =
            encoded.map_err(|error| self.rejected(JournalError::Encode(Arc::new(error))))?;
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

    // The log itself counts and reports an entry that it rejects ([`Journal::metrics`]). The pause
    // holds in memory anyway.
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
        let entry = PaceEntry {
            level,
            name: note.name.to_owned(),
            state: note.state.0,
            cause,
            at: note.at,
        };
        // The log itself reports an entry that it rejects. The pace holds in memory anyway.
        let _ = self.append_pace(&entry);
    }
}
