//! What the log teaches: the newest good snapshot, and every record behind it.
//!
//! Owns: [`load`], and the fold that snapshots are taken of. Invariants: records of one site are folded in order, by one thread;
//! a fold goes on from where it stopped; what a tombstone covers is taken back from wherever it has gone. Must not know how a
//! snapshot becomes bytes.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise_log::{Damage, Error as LogError, Progress, Reader, RecordRef, Snapshot, TornTail};

use super::entry::{Entry, Forgotten, HostEntry, ImportanceEntry, LinkEntry, TombstoneTarget};
use super::read::{Replayed, SETTLE, open, pass, replay};
use super::snapshot::{self, Contents};
use super::{JournalError, schema};
use crate::backoff::{LinkState, RISK_LEVEL_MAX, pause};
use crate::evidence::Evidence;
use crate::registry::FETCHERS_MAX;
use crate::selector::Selector;
use crate::time::Timestamp;
use schema::{Clamped, SchemaError};

/// Threads of a fold; beyond these the one that reads and checks is what it waits for.
const THREADS_MAX: usize = 8;

/// What [`load`] brought back.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Loaded {
    /// Counts of what was read behind the snapshot.
    pub replayed: Replayed,
    /// The snapshot that it began with, if any.
    pub snapshot: Option<Started>,
    /// The state of every link that is at risk or was paused.
    pub links: HashMap<String, LinkState>,
    /// How often each host has been paused in a row.
    pub host_levels: HashMap<String, u8>,
    /// What analytics last wrote back about heuristics.
    pub importance: Vec<ImportanceEntry>,
}

/// The snapshot that a start began with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Started {
    /// It holds what the records up to here taught.
    pub covers_seq: u64,
    /// When it was taken.
    pub taken: Timestamp,
    /// The newer one, when that is damaged: nothing is lost by it, more was replayed.
    pub rejected: Vec<Damage>,
}

/// What a first look at the log shows, before there is a selector.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    start: Start,
    /// The fetchers of all attempts, in alphabetical order.
    pub fetchers: Vec<String>,
}

/// Where a fold begins.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// Opened before the snapshot was looked for, so that a compaction in between takes nothing away that the snapshot lacks.
    reader: Option<Reader>,
    pub(super) contents: Option<Contents>,
    pub(super) started: Option<Started>,
}

impl Start {
    /// The newest good snapshot of `dir`.
    pub(super) fn newest(dir: &Path) -> Result<Self, JournalError> {
        let reader = Some(open(dir)?);
        let search = fetchwise_log::load_snapshot(dir)?;
        let Some(found) = search.snapshot else {
            // Neither is good, and nothing is gone from the segments: everything is replayed.
            let started =
                (!search.rejected.is_empty()).then(|| Started { rejected: search.rejected, ..Started::default() });
            return Ok(Self { reader, contents: None, started });
        };
        let started = Some(Started { rejected: search.rejected, ..Started::of(&found) });
        Ok(Self { reader, started, ..Self::of(&found)? })
    }

    /// This snapshot.
    pub(super) fn of(found: &Snapshot) -> Result<Self, JournalError> {
        Ok(Self { reader: None, contents: Some(snapshot::decode(found)?), started: Some(Started::of(found)) })
    }
}

impl Started {
    fn of(found: &Snapshot) -> Self {
        let meta = found.meta();
        Self { covers_seq: meta.covers_seq, taken: Timestamp::from_millis(meta.taken_ms), rejected: Vec::new() }
    }
}

/// Looks through the log in `dir` for the names that a selector's candidates may need.
///
/// # Errors
/// As [`replay`].
pub fn survey(dir: &Path) -> Result<Survey, JournalError> {
    survey_showing(dir, &mut |_| {})
}

/// As [`survey`], telling `progress` how far it is.
///
/// # Errors
/// As [`replay`].
pub fn survey_showing(dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Survey, JournalError> {
    let start = Start::newest(dir)?;
    let mut names: BTreeSet<String> = start.contents.iter().flat_map(|c| c.image.fetchers.iter().cloned()).collect();
    let from = start.contents.as_ref().map_or(0, |contents| contents.covers_seq + 1);
    let shards = vec![Names::default(); threads()];
    let reader = start.reader.as_ref().ok_or_else(|| LogError::Invalid("a start without a reader".into()))?;
    let (shards, summary) = reader.for_each_sharded(from, shards, |_, _| {}, Names::take, progress)?;
    if !summary.damage.is_empty() {
        return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
    }
    for shard in shards {
        if let Some((seq, error)) = shard.failed {
            return Err(JournalError::Record { seq, source: error });
        }
        names.extend(shard.names);
    }
    Ok(Survey { start, fetchers: names.into_iter().collect() })
}

/// Importance by type and value; without a value that of the type.
pub type Importances = HashMap<(String, Option<String>), f32>;

/// The importance of each type and heuristic in `dir`, as it was written back last.
///
/// # Errors
/// As [`replay`].
pub fn importances(dir: &Path) -> Result<Importances, JournalError> {
    let known = Start::newest(dir)?.contents.map(|contents| contents.importance).unwrap_or_default();
    let mut found: Importances = known.into_iter().map(|of| ((of.kind, of.value), of.importance)).collect();
    pass(dir, |_, record| {
        if record.kind == schema::kind::IMPORTANCE
            && let Entry::Importance(of) = schema::decode(record.kind, record.schema, record.payload)?
        {
            found.insert((of.kind, of.value), of.importance);
        }
        Ok(())
    })?;
    Ok(found)
}

#[derive(Clone, Default)]
struct Names {
    names: Vec<String>,
    failed: Option<(u64, Arc<SchemaError>)>,
}

impl Names {
    fn take(&mut self, seq: u64, record: RecordRef<'_>) {
        match schema::attempt(record.kind, record.schema, record.payload) {
            Ok(Some(attempt)) => note(&mut self.names, attempt.fetcher()),
            Ok(None) => {}
            Err(error) if self.failed.is_none() => self.failed = Some((seq, Arc::new(error))),
            Err(_) => {}
        }
    }
}

fn note(names: &mut Vec<String>, name: &str) {
    if names.len() < FETCHERS_MAX && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

impl Survey {
    /// As [`load`], without a further look at what this survey of `dir` has found.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn load(
        self,
        dir: &Path,
        selector: &Selector,
        now: Timestamp,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Loaded, JournalError> {
        load_from(self.start, dir, selector, now, progress)
    }
}

/// Teaches `selector` everything in `dir`: evidence, and the pauses of links and hosts. What bears a time after `now` counts as of now.
/// Nobody may record attempts in `selector` meanwhile: the threads of a load share nothing, so none of them waits for another.
///
/// # Errors
/// As [`replay`].
pub fn load(dir: &Path, selector: &Selector, now: Timestamp) -> Result<Loaded, JournalError> {
    load_showing(dir, selector, now, &mut |_| {})
}

/// As [`load`], telling `progress` how far it is.
///
/// # Errors
/// As [`replay`].
pub fn load_showing(
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<Loaded, JournalError> {
    load_from(Start::newest(dir)?, dir, selector, now, progress)
}

fn load_from(
    start: Start,
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<Loaded, JournalError> {
    let started = start.started.clone();
    let mut fold = Fold::begin(start, selector);
    fold.advance(dir, selector, u64::MAX, now, progress)?;
    if selector.policy_remembers() {
        // A snapshot holds evidence, not what a policy makes of attempts: it sees all that are still there.
        replay(dir, |_, entry| {
            if let Entry::Attempt(mut attempt) = entry {
                attempt.attempted_at = attempt.attempted_at.min(now);
                selector.show_policy(&attempt);
            }
        })?;
    }
    let loaded = fold.into_loaded(selector, started, now);
    selector.restore_links(loaded.links.iter().map(|(link, state)| (link.clone(), *state)));
    selector.restore_host_levels(loaded.host_levels.iter().map(|(domain, level)| (domain.clone(), *level)));
    Ok(loaded)
}

/// A fold under way: what it has learned besides evidence, which is in its selector.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// As in [`Start`], until it has been read.
    reader: Option<Reader>,
    /// What the records up to here taught.
    pub(super) covers_seq: u64,
    /// The time of the newest record.
    pub(super) newest: Timestamp,
    /// Attempts before this may be gone from the log.
    pub(super) cutoff: Option<Timestamp>,
    /// Names of fetchers, in attempts that moved evidence or not.
    pub(super) fetchers: Vec<String>,
    /// With the sequence numbers of their last records.
    pub(super) links: Last<String, LinkEntry>,
    pub(super) hosts: Last<String, HostEntry>,
    pub(super) importance: Last<(String, Option<String>), ImportanceEntry>,
    pub(super) replayed: Replayed,
}

/// The last of each, with its sequence number; 0 for what comes from a snapshot.
pub(super) type Last<K, V> = HashMap<K, (u64, V)>;

fn keep_last<K: Eq + Hash, V>(all: &mut Last<K, V>, key: K, seq: u64, value: V) {
    match all.entry(key) {
        std::collections::hash_map::Entry::Occupied(mut known) if known.get().0 <= seq => {
            drop(known.insert((seq, value)))
        }
        std::collections::hash_map::Entry::Occupied(_) => {}
        std::collections::hash_map::Entry::Vacant(free) => drop(free.insert((seq, value))),
    }
}

impl Fold {
    /// Begins with a snapshot, or with nothing; `selector` learns what is in it.
    pub(super) fn begin(start: Start, selector: &Selector) -> Self {
        let reader = start.reader;
        let Some(contents) = start.contents else { return Self { reader, ..Self::default() } };
        selector.absorb(&contents.image);
        Self {
            reader,
            covers_seq: contents.covers_seq,
            newest: contents.image.as_of,
            cutoff: contents.cutoff,
            fetchers: contents.image.fetchers,
            links: contents.links.into_iter().map(|link| (link.link.clone(), (0, link))).collect(),
            hosts: contents.hosts.into_iter().map(|host| (host.domain.clone(), (0, host))).collect(),
            importance: contents
                .importance
                .into_iter()
                .map(|of| ((of.kind.clone(), of.value.clone()), (0, of)))
                .collect(),
            replayed: Replayed::default(),
        }
    }

    /// Goes on up to the record `upto`. What bears a time after `now` counts as of now.
    pub(super) fn advance(
        &mut self,
        dir: &Path,
        selector: &Selector,
        upto: u64,
        now: Timestamp,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), JournalError> {
        let from = self.covers_seq;
        let mut stones = Vec::new();
        let mut torn = self.advance_once(dir, selector, upto, now, &mut stones, progress)?;
        if torn.is_some() && upto == u64::MAX {
            // A writer that is alive will have finished by then; one that died leaves what it left.
            std::thread::sleep(SETTLE);
            torn = self.advance_once(dir, selector, upto, now, &mut stones, &mut |_| {})?;
        }
        self.replayed.torn_tail = torn;
        if !stones.is_empty() {
            self.take_back(dir, selector, &stones, from, now)?;
        }
        Ok(())
    }

    fn advance_once(
        &mut self,
        dir: &Path,
        selector: &Selector,
        upto: u64,
        now: Timestamp,
        stones: &mut Vec<(u64, TombstoneTarget)>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<TornTail>, JournalError> {
        if self.covers_seq >= upto {
            return Ok(None);
        }
        let shards = (0..threads()).map(|_| Shard::new(selector)).collect();
        let take = |shard: &mut Shard, seq: u64, record: RecordRef<'_>| {
            if seq <= upto && shard.failed.is_none() {
                shard.last_seq = seq;
                if let Err(error) = shard.take(selector, seq, &record, now) {
                    shard.failed = Some((seq, Arc::new(error)));
                }
            }
        };
        let reader = self.reader.take().map_or_else(|| open(dir), Ok)?;
        if reader.floor_seq() > self.covers_seq {
            return Err(LogError::Replaced { file: dir.to_owned() }.into());
        }
        let ahead = |_: &Shard, keys: &[u64]| selector.expect(keys);
        let (shards, summary) = reader.for_each_sharded(self.covers_seq + 1, shards, ahead, take, progress)?;
        if !summary.damage.is_empty() {
            return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
        }
        if let Some((seq, source)) = shards.iter().filter_map(|shard| shard.failed.clone()).min_by_key(|(seq, _)| *seq)
        {
            return Err(JournalError::Record { seq, source });
        }
        for shard in shards {
            selector.merge(&shard.shared);
            self.merge(shard, stones);
        }
        self.newest = self.newest.min(now);
        Ok(summary.torn)
    }

    fn merge(&mut self, shard: Shard, stones: &mut Vec<(u64, TombstoneTarget)>) {
        self.covers_seq = self.covers_seq.max(shard.last_seq);
        self.newest = self.newest.max(shard.newest);
        self.replayed.attempts += shard.attempts;
        self.replayed.entries += shard.entries;
        shard.fetchers.iter().for_each(|name| note(&mut self.fetchers, name));
        for (key, (seq, value)) in shard.links {
            keep_last(&mut self.links, key, seq, value);
        }
        for (key, (seq, value)) in shard.hosts {
            keep_last(&mut self.hosts, key, seq, value);
        }
        for (key, (seq, value)) in shard.importance {
            keep_last(&mut self.importance, key, seq, value);
        }
        stones.extend(shard.stones);
    }

    /// Takes back what the tombstones `new` cover. What they cover of a domain's own evidence went when the fold met them; its
    /// share of evidence that domains have in common is found by reading its attempts again, as far as they are still there.
    /// Those that an older tombstone covers, in the snapshot already, were taken back then.
    fn take_back(
        &mut self,
        dir: &Path,
        selector: &Selector,
        new: &[(u64, TombstoneTarget)],
        from: u64,
        now: Timestamp,
    ) -> Result<(), JournalError> {
        let (mut recent, mut older) = (Forgotten::default(), Forgotten::default());
        pass(dir, |seq, record| {
            if seq <= from && record.kind == schema::kind::TOMBSTONE {
                older.look(seq, &record)?;
            }
            Ok(())
        })?;
        for (seq, target) in new {
            recent.add(*seq, target.clone());
        }
        let mut taken_back = 0;
        pass(dir, |seq, record| {
            let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)? else { return Ok(()) };
            let (link, domain) = (attempt.link(), attempt.domain());
            let by_domain = recent.covers_domain(seq, domain);
            if (by_domain || recent.covers_link(seq, link))
                && !older.covers_link(seq, link)
                && !older.covers_domain(seq, domain)
            {
                selector.take_back(&Clamped(attempt, now), !by_domain);
                taken_back += 1;
            }
            Ok(())
        })?;
        self.replayed.forgotten += taken_back;
        let before = self.links.len() + self.hosts.len();
        self.links.retain(|link, (seq, entry)| {
            !recent.covers_link(*seq, link) && !recent.covers_domain(*seq, Some(&entry.domain))
        });
        self.hosts.retain(|domain, (seq, _)| !recent.covers_domain(*seq, Some(domain)));
        self.replayed.forgotten += (before - self.links.len() - self.hosts.len()) as u64;
        Ok(())
    }

    fn into_loaded(self, selector: &Selector, snapshot: Option<Started>, now: Timestamp) -> Loaded {
        let backoff = selector.backoff();
        // What was written while the clock was wrong counts as of now, and pauses nothing for longer than it could.
        let longest = backoff.retry_after_max.max(pause(backoff.blocked_base.max(backoff.failed_base), RISK_LEVEL_MAX));
        let within = |until: Timestamp| until.min(now.saturating_add(longest));
        let mut links = HashMap::new();
        for (link, (_, LinkEntry { mut state, .. })) in self.links {
            state.paused_until = state.paused_until.map(within);
            // A link without risk is as good as one that was never seen.
            if is_at_risk(&state) {
                links.insert(link, state);
            }
        }
        let mut host_levels = HashMap::new();
        for (domain, (_, host)) in self.hosts {
            selector.set_host_pause(&domain, host.paused_until.map(within));
            if let Some(until) = host.paused_until {
                host_levels.insert(domain, level_after(until.since(host.at), backoff.blocked_base));
            }
        }
        let mut importance: Vec<ImportanceEntry> = self.importance.into_values().map(|(_, of)| of).collect();
        importance.sort_by(|a, b| (&a.kind, &a.value).cmp(&(&b.kind, &b.value)));
        for of in &importance {
            selector.set_importance(&of.kind, of.value.as_deref(), f64::from(of.importance));
        }
        Loaded { replayed: self.replayed, snapshot, links, host_levels, importance }
    }
}

/// Whether a link's state is more than that of one that was never seen.
pub(super) fn is_at_risk(state: &LinkState) -> bool {
    state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some()
}

/// What one thread of a fold has seen.
struct Shard {
    /// What its attempts show of keys that the other threads' domains have too.
    shared: Evidence,
    last_seq: u64,
    newest: Timestamp,
    attempts: u64,
    entries: u64,
    fetchers: Vec<String>,
    links: Last<String, LinkEntry>,
    hosts: Last<String, HostEntry>,
    importance: Last<(String, Option<String>), ImportanceEntry>,
    stones: Vec<(u64, TombstoneTarget)>,
    failed: Option<(u64, Arc<SchemaError>)>,
}

impl Shard {
    fn new(selector: &Selector) -> Self {
        Self {
            shared: selector.apart(),
            last_seq: 0,
            newest: Timestamp::default(),
            attempts: 0,
            entries: 0,
            fetchers: Vec::new(),
            links: HashMap::new(),
            hosts: HashMap::new(),
            importance: HashMap::new(),
            stones: Vec::new(),
            failed: None,
        }
    }

    fn take(
        &mut self,
        selector: &Selector,
        seq: u64,
        record: &RecordRef<'_>,
        now: Timestamp,
    ) -> Result<(), SchemaError> {
        self.entries += 1;
        if let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)? {
            self.attempts += 1;
            self.newest = self.newest.max(attempt.at());
            note(&mut self.fetchers, attempt.fetcher());
            selector.learn(&self.shared, &Clamped(attempt, now));
            return Ok(());
        }
        match schema::decode(record.kind, record.schema, record.payload)? {
            Entry::Attempt(_) => {}
            Entry::Link(entry) => {
                self.newest = self.newest.max(entry.at);
                self.links.insert(entry.link.clone(), (seq, entry));
            }
            Entry::Host(entry) => {
                self.newest = self.newest.max(entry.at);
                self.hosts.insert(entry.domain.clone(), (seq, entry));
            }
            Entry::Importance(entry) => {
                self.importance.insert((entry.kind.clone(), entry.value.clone()), (seq, entry));
            }
            Entry::Tombstone(stone) => {
                if let TombstoneTarget::Domain(domain) = &stone.target {
                    // This thread folds all of the domain, in order: what comes later is learned anew.
                    selector.forget_domain(domain);
                }
                self.stones.push((seq, stone.target));
            }
        }
        Ok(())
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX)
}

/// The level of a host after a pause of `paused`: it was `base * 2^level`, and the level rose after it.
fn level_after(paused: Duration, base: Duration) -> u8 {
    let times = (paused.as_millis() / base.as_millis().max(1)).max(1);
    (times.ilog2() as u8 + 1).min(RISK_LEVEL_MAX)
}
