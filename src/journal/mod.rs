//! The journal: attempts, pauses and what else must outlive the process, bound to the log.
//!
//! Owns: writing entries ([`Journal`], a [`Sink`] of the selector), reading them back ([`replay`], [`load`], [`survey`]) and
//! telling apart what a caller has to do about a failure. Invariant: what is read back is what was taken, in order, without
//! what a tombstone covers; damage is never skipped in silence. Reading takes no lock and repairs nothing, so that commands
//! work beside a running crawler. Must not know how bytes get to disk (that is `fetchwise-log`) nor what attempts teach.
//!
//! ```
//! use fetchwise::attempt::Attempt;
//! use fetchwise::journal::{self, Journal, Options};
//! use fetchwise::selector::Selector;
//! use fetchwise::time::Timestamp;
//! use std::sync::Arc;
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let (journal, _) = Journal::open(dir, Options::default()).unwrap();
//! let journal = Arc::new(journal);
//! let mut selector = Selector::builder().build().unwrap();
//! journal::load(dir, &selector, Timestamp::now()).unwrap();
//! selector.set_sink(Box::new(journal.clone()));
//!
//! let now = Timestamp::now();
//! let url = url::Url::parse("https://example.org/").unwrap();
//! selector.record(Attempt::new(&url, "playwright", now).unwrap().delivered(), now).unwrap();
//! journal.flush().wait().unwrap();
//! assert_eq!(journal::survey(dir).unwrap().attempts, 1);
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise_log::{Log, Reader, Record, RecordRef};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::backoff::{LinkState, RISK_LEVEL_MAX, pause};
use crate::selector::{Selector, Sink, SinkError};
use crate::time::Timestamp;
use entry::Forgotten;
use schema::Encoded;

mod entry;
mod schema;

pub use entry::{Entry, HostEntry, ImportanceEntry, LinkEntry, Tombstone, TombstoneTarget};
pub use fetchwise_log::{
    AppendError, Check, Damage, Durability, Error as LogError, Flush, Metrics, OnFull, Recovery, State, Ticket,
    TornTail, WaitError,
};
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
            Self::Record { .. } => true,
            Self::Encode(_) | Self::Append(_) => false,
        }
    }
}

/// How to open a journal for writing.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What an acknowledgement means.
    pub durability: Durability,
    /// The size at which a segment of the log is full, in bytes; the log's default when none.
    pub segment_bytes: Option<u64>,
    /// What happens when entries come faster than the disk takes them.
    pub on_full: OnFull,
    /// How much is read at open. [`Check::Tail`] is enough for a caller who [`load`]s the journal right after.
    pub check: Check,
}

/// A data directory opened for writing. Shared by reference; dropping it writes and syncs what is left.
#[derive(Debug)]
pub struct Journal {
    log: Log,
}

impl Journal {
    /// Opens the journal in `dir`, which is created when there is none. A torn tail is repaired and reported.
    ///
    /// # Errors
    /// [`JournalError::is_refusal`] when somebody else is writing there, or it is damaged or newer than this release.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Recovery), JournalError> {
        let mut log_options = fetchwise_log::Options::default();
        log_options.durability = options.durability;
        log_options.on_full = options.on_full;
        log_options.check = options.check;
        log_options.fingerprint = schema::fingerprint();
        log_options.segment_bytes = options.segment_bytes.unwrap_or(log_options.segment_bytes);
        let (log, recovery) = Log::open(dir, log_options)?;
        Ok((Self { log }, recovery))
    }

    /// Takes an attempt.
    ///
    /// # Errors
    /// When the log does not take it: memory for what waits is used up, or it is too large.
    pub fn append_attempt(&self, attempt: &Attempt) -> Result<Ticket, JournalError> {
        self.append(schema::encode_attempt(attempt))
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
    pub fn flush(&self) -> Flush {
        self.log.flush()
    }

    /// Waits (or lets wait) until everything taken so far is acknowledged at the journal's durability: at
    /// [`Durability::Os`] and [`Durability::Interval`] it then outlives the process.
    pub fn settled(&self) -> Flush {
        self.log.settled()
    }

    /// Whether entries reach the disk.
    pub fn state(&self) -> State {
        self.log.state()
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
        Ok(self.log.close()?)
    }

    fn append(&self, encoded: Result<Encoded, SchemaError>) -> Result<Ticket, JournalError> {
        let encoded = encoded.map_err(|error| JournalError::Encode(Arc::new(error)))?;
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
}

impl Sink for Arc<Journal> {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        Sink::append(&**self, attempt)
    }
}

#[cfg(feature = "fetch")]
impl crate::pipeline::StateLog for Journal {
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

/// What a pass over the log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Attempts delivered.
    pub attempts: u64,
    /// Entries of all kinds delivered.
    pub entries: u64,
    /// Entries that a tombstone covers.
    pub forgotten: u64,
    /// Present when the last writer died in the middle of a write. Nothing that was acknowledged is missing.
    pub torn_tail: Option<TornTail>,
}

/// Shows every entry in `dir` to `f`, in order, those that a tombstone covers left out. A directory that does not exist is
/// an empty journal.
///
/// # Errors
/// [`JournalError::is_refusal`] when the log is damaged (reported after everything readable was shown) or newer than this
/// release.
pub fn replay(dir: &Path, f: impl FnMut(u64, Entry)) -> Result<Replayed, JournalError> {
    let mut forgotten = Forgotten::default();
    pass(dir, |seq, record| forgotten.look(seq, &record))?;
    replay_without(dir, &forgotten, f)
}

fn replay_without(dir: &Path, forgotten: &Forgotten, mut f: impl FnMut(u64, Entry)) -> Result<Replayed, JournalError> {
    let mut found = Replayed::default();
    let torn_tail = pass(dir, |seq, record| {
        let entry = schema::decode(record.kind, record.schema, record.payload)?;
        if forgotten.covers(seq, &entry) {
            found.forgotten += 1;
            return Ok(());
        }
        found.entries += 1;
        found.attempts += u64::from(matches!(entry, Entry::Attempt(_)));
        f(seq, entry);
        Ok(())
    })?;
    Ok(Replayed { torn_tail, ..found })
}

/// What a first look at the log shows, before there is a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    forgotten: Forgotten,
    /// Attempts in the log, those that a tombstone covers among them.
    pub attempts: u64,
    /// The fetchers that made them, in the order of their first attempt.
    pub fetchers: Vec<String>,
    /// As in [`Replayed`].
    pub torn_tail: Option<TornTail>,
}

/// Looks through the log in `dir` for the names that a selector's candidates may need.
///
/// # Errors
/// As [`replay`].
pub fn survey(dir: &Path) -> Result<Survey, JournalError> {
    let mut survey = Survey::default();
    survey.torn_tail = pass(dir, |seq, record| {
        survey.forgotten.look(seq, &record)?;
        if let Some(attempt) = schema::glance(record.kind, record.schema, record.payload)? {
            survey.attempts += 1;
            if !survey.fetchers.iter().any(|name| name == attempt.fetcher) {
                survey.fetchers.push(attempt.fetcher.to_owned());
            }
        }
        Ok(())
    })?;
    Ok(survey)
}

impl Survey {
    /// As [`load`], without a further look at what this survey of `dir` has found.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn load(&self, dir: &Path, selector: &Selector, now: Timestamp) -> Result<Loaded, JournalError> {
        load_without(dir, &self.forgotten, selector, now)
    }
}

impl Forgotten {
    /// Takes a record that is a tombstone.
    fn look(&mut self, seq: u64, record: &RecordRef<'_>) -> Result<(), SchemaError> {
        if record.kind == schema::kind::TOMBSTONE
            && let Entry::Tombstone(tombstone) = schema::decode(record.kind, record.schema, record.payload)?
        {
            self.add(seq, tombstone.target);
        }
        Ok(())
    }
}

/// Shows the id of every attempt in `dir` to `f`.
///
/// # Errors
/// As [`replay`].
pub fn ids(dir: &Path, mut f: impl FnMut(Uuid)) -> Result<(), JournalError> {
    pass(dir, |_, record| {
        if let Some(attempt) = schema::glance(record.kind, record.schema, record.payload)? {
            f(attempt.id);
        }
        Ok(())
    })
    .map(|_| ())
}

/// What [`load`] brought back.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Loaded {
    /// Counts.
    pub replayed: Replayed,
    /// The state of every link that is at risk or was paused.
    pub links: HashMap<String, LinkState>,
    /// How often each host has been paused in a row.
    pub host_levels: HashMap<String, u8>,
}

/// Teaches `selector` everything in `dir`: evidence, and the pauses of hosts. What bears a time after `now` counts as of now.
///
/// # Errors
/// As [`replay`].
pub fn load(dir: &Path, selector: &Selector, now: Timestamp) -> Result<Loaded, JournalError> {
    let mut forgotten = Forgotten::default();
    pass(dir, |seq, record| forgotten.look(seq, &record))?;
    load_without(dir, &forgotten, selector, now)
}

fn load_without(
    dir: &Path,
    forgotten: &Forgotten,
    selector: &Selector,
    now: Timestamp,
) -> Result<Loaded, JournalError> {
    let (mut links, mut host_levels) = (HashMap::new(), HashMap::new());
    let backoff = selector.backoff();
    // What was written while the clock was wrong counts as of now, and pauses nothing for longer than it could.
    let longest = backoff.retry_after_max.max(pause(backoff.blocked_base.max(backoff.failed_base), RISK_LEVEL_MAX));
    let within = |until: Timestamp| until.min(now.saturating_add(longest));
    let replayed = replay_without(dir, forgotten, |_, entry| match entry {
        Entry::Attempt(mut attempt) => {
            attempt.attempted_at = attempt.attempted_at.min(now);
            selector.observe(&attempt);
        }
        Entry::Link(LinkEntry { link, mut state, .. }) => {
            state.paused_until = state.paused_until.map(within);
            // A link without risk is as good as one that was never seen.
            match state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some() {
                true => drop(links.insert(link, state)),
                false => drop(links.remove(&link)),
            }
        }
        Entry::Host(host) => {
            selector.set_host_pause(&host.domain, host.paused_until.map(within));
            match host.paused_until {
                Some(until) => {
                    drop(host_levels.insert(host.domain, level_after(until.since(host.at), backoff.blocked_base)));
                }
                None => drop(host_levels.remove(&host.domain)),
            }
        }
        _ => {}
    })?;
    Ok(Loaded { replayed, links, host_levels })
}

/// The level of a host after a pause of `paused`: it was `base * 2^level`, and the level rose after it.
fn level_after(paused: Duration, base: Duration) -> u8 {
    let times = (paused.as_millis() / base.as_millis().max(1)).max(1);
    (times.ilog2() as u8 + 1).min(RISK_LEVEL_MAX)
}

/// How long a torn tail is given to turn out as the unfinished write of a living writer.
const SETTLE: Duration = Duration::from_millis(25);
/// How often a reader that compaction took a file away from starts anew.
const REOPENINGS_MAX: u32 = 8;

/// One pass over all records. Says how the log ended.
fn pass(
    dir: &Path,
    mut f: impl FnMut(u64, RecordRef<'_>) -> Result<(), SchemaError>,
) -> Result<Option<TornTail>, JournalError> {
    let (mut next, mut failed, mut reopenings, mut settled) = (0, None, 0, false);
    loop {
        let reader = Reader::open(dir)?;
        reader.check_fingerprints(&[schema::fingerprint()])?;
        let read = reader.for_each_from(next, |seq, record| {
            next = seq + 1;
            if failed.is_none()
                && let Err(error) = f(seq, record)
            {
                failed = Some(JournalError::Record { seq, source: Arc::new(error) });
            }
        });
        let summary = match read {
            Err(LogError::Replaced { .. }) if reopenings < REOPENINGS_MAX => {
                reopenings += 1;
                continue;
            }
            other => other?,
        };
        if !summary.damage.is_empty() {
            return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if summary.torn.is_none() || settled {
            return Ok(summary.torn);
        }
        // A writer that is alive will have finished by then; one that died leaves what it left.
        std::thread::sleep(SETTLE);
        settled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::outcome::ErrorKind;
    use crate::heuristic::url::Kind;
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
        let (journal, _) = Journal::open(dir.path(), Options::default()).unwrap();
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
        assert_eq!(survey(dir.path()).unwrap().fetchers, ["playwright", "mine"]);
    }

    #[test]
    fn pauses_come_back_and_links_without_risk_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), Options::default()).unwrap();
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
        let (journal, _) = Journal::open(dir.path(), Options::default()).unwrap();
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
        let (journal, _) = Journal::open(dir.path(), Options::default()).unwrap();
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
        let (journal, _) = Journal::open(dir.path(), Options::default()).unwrap();
        journal.append_attempt(&attempt("https://e.org/", "f", T0).delivered()).unwrap();
        journal.flush().wait().unwrap();
        let error = Journal::open(dir.path(), Options::default()).unwrap_err();
        assert!(error.is_refusal() && error.to_string().contains("locked"), "{error}");
        assert_eq!(survey(dir.path()).unwrap().attempts, 1);
    }

    #[test]
    fn an_absent_directory_is_an_empty_journal_and_stays_absent() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        assert_eq!(survey(&absent).unwrap(), Survey::default());
        assert!(!absent.exists());
    }

    /// The one segment of a journal with `attempts` attempts that was closed in good order.
    fn written(dir: &Path, attempts: usize) -> std::path::PathBuf {
        let (journal, _) = Journal::open(dir, Options::default()).unwrap();
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
        assert!(Journal::open(dir.path(), Options::default()).unwrap_err().is_refusal());
    }
}
