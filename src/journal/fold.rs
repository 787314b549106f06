//! Fold of records into evidence, which snapshots are taken of and which a start continues.
//!
//! Owns: the fold.
//!
//! Invariants: one thread folds the records of a site, in order. A fold continues where it stopped.
//! Whatever a tombstone covers is retracted from all evidence that it entered.
//!
//! Must not know: how a snapshot becomes bytes.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

use fetchwise_log::{
    BlockFold, BlockRecord, Error as LogError, OwnedBlock, Progress, Reader, RecordRef,
    SnapshotMeta, Throttle, TornTail, UnpackError,
};

use super::entry::{
    Entry, FetcherEntry, HostEntry, ImportanceEntry, LinkEntry, PaceEntry, ReleaseTarget,
    TombstoneTarget, is_at_risk,
};
use super::error::JournalError;
use super::read::{ReplayReport, SETTLE, open, pass};
use super::schema::{
    self, AttemptColumns, ClampedAttempt, ColumnsRecord, RowBuffer, RowError, SchemaError,
};
use super::snapshot::{self, SnapshotContents};
use crate::evidence::evidence_snapshot::EvidenceSnapshot;
use crate::evidence::snapshot_groups::GroupSink;
use crate::evidence::{Evidence, Learned, Observation, SignalObservation};
use crate::journal::entry_groups::{EncodedGroup, GroupTotals, encode_group};
use crate::journal::key_estimate::KeyEstimate;
use crate::journal::outcome_counts::OutcomeCounts;
use crate::journal::recovery_point::FoldStart;
use crate::journal::tombstones::TombstoneSet;
use crate::score::priors::Prior;
use fetchwise_types::heuristic::SHORT_PAGE;
use fetchwise_types::registry::MAX_FETCHERS;
use fetchwise_types::time::Timestamp;

/// Largest number of threads of a fold. With more, the single thread that reads and checks is the
/// bottleneck.
const MAX_THREADS: usize = 8;

/// Bytes of an attempt in a segment, roughly.
const USUAL_BYTES: u64 = 400;

/// Number of attempts of a block whose sites are prefetched together.
const AHEAD: usize = 16;

/// Fold in progress: everything that it has learned, except for evidence, which a [`Learned`]
/// holds.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// Reader of the [`FoldStart`], until it has been read.
    reader: Option<Reader>,
    /// Last record that has been folded.
    pub(super) covers_seq: u64,
    /// Time of the newest record, at most the present.
    pub(super) newest: Timestamp,
    /// Time of the newest record, even if it is in the future.
    pub(super) latest: Timestamp,
    /// Attempts before this may be gone from the log.
    pub(super) cutoff: Option<Timestamp>,
    /// Entries with a later time are left out, and the fold may begin after records that are gone.
    past: Option<Timestamp>,
    is_past: bool,
    /// Names of all fetchers, including those whose attempts moved no evidence.
    fetchers: BTreeSet<String>,
    /// Last link states, with the sequence numbers of their records.
    pub(super) links: LastBySeq<String, LinkEntry>,
    pub(super) hosts: LastBySeq<String, HostEntry>,
    pub(super) importance: LastBySeq<(String, Option<String>), ImportanceEntry>,
    pub(super) paces: LastBySeq<(u8, String), PaceEntry>,
    /// Fetchers whose class and cost the log knows.
    pub(super) registered: LastBySeq<String, FetcherEntry>,
    /// Whether a host has short pages that are complete: not any more after its domain was
    /// forgotten.
    short_page_hosts: LastBySeq<String, bool>,
    pub(super) replayed: ReplayReport,
    pub(super) outcome_counts: OutcomeCounts,
    /// Throttle of a fold that runs alongside a live crawl. Such a fold uses one thread and pauses
    /// now and then.
    pub(super) throttle: Option<Arc<Throttle>>,
}

/// What a snapshot has besides the groups of entries, which were passed on.
pub(super) struct WithoutGroups {
    /// Everything but the entries of domains, and the totals of those.
    pub(super) contents: SnapshotContents,
    /// Whether all weights are finite.
    pub(super) is_finite: bool,
    /// Whether all evidence that left memory was read.
    pub(super) is_whole: bool,
}

/// Last value of each key, with its sequence number; 0 for values from a snapshot.
pub(super) type LastBySeq<K, V> = HashMap<K, (u64, V)>;

/// Tombstones with their sequence numbers.
type Tombstones = Vec<(u64, TombstoneTarget)>;

fn keep_last<K: Eq + Hash, V>(all: &mut LastBySeq<K, V>, key: K, seq: u64, value: V) {
    match all.entry(key) {
        std::collections::hash_map::Entry::Occupied(mut known) if known.get().0 <= seq => {
            drop(known.insert((seq, value)))
        }
        std::collections::hash_map::Entry::Occupied(_) => {}
        std::collections::hash_map::Entry::Vacant(free) => drop(free.insert((seq, value))),
    }
}

impl Fold {
    /// Begins with a snapshot, or with nothing. Loads the snapshot into `learned`. Times after
    /// `present` come from a wrong clock and count as `present`.
    ///
    /// # Errors
    /// When the snapshot cannot be read. Then a part of it may be in `learned`.
    pub(super) fn begin(
        start: FoldStart,
        learned: &Learned,
        present: Timestamp,
    ) -> Result<Self, JournalError> {
        let reader = start.reader;
        learned.evidence.move_landmark_near(present);
        let Some(contents) = start.contents else { return Ok(Self { reader, ..Self::default() }) };
        match &start.snapshot {
            Some(found) => {
                let (groups, keys) = (snapshot::groups(found), contents.grouped.entries as usize);
                let from = (&contents.image, &groups[..], keys);
                learned.evidence.absorb_groups(
                    from,
                    &learned.registry,
                    present,
                    |group, rows| snapshot::read_group(found, group, rows),
                )?;
            }
            None => learned.evidence.absorb(&contents.image, &learned.registry, present),
        }
        Ok(Self::of(contents, reader, present))
    }

    /// Returns the fold that these contents are of, whose evidence is there already. `reader` was
    /// opened before them.
    pub(super) fn of(
        contents: SnapshotContents,
        reader: Option<Reader>,
        present: Timestamp,
    ) -> Self {
        Self {
            reader,
            covers_seq: contents.covers_seq,
            newest: contents.image.as_of.min(present),
            latest: contents.image.as_of,
            cutoff: contents.cutoff,
            past: None,
            is_past: false,
            fetchers: contents.image.fetchers.into_iter().collect(),
            links: contents.links.into_iter().map(|link| (link.link.clone(), (0, link))).collect(),
            hosts: contents
                .hosts
                .into_iter()
                .map(|host| (host.domain.clone(), (0, host)))
                .collect(),
            importance: contents
                .importance
                .into_iter()
                .map(|of| ((of.kind.clone(), of.value.clone()), (0, of)))
                .collect(),
            short_page_hosts: contents
                .short_page_hosts
                .into_iter()
                .map(|host| (host, (0, true)))
                .collect(),
            registered: contents
                .registered
                .into_iter()
                .map(|of| (of.name.clone(), (0, of)))
                .collect(),
            paces: contents
                .paces
                .into_iter()
                .map(|pace| ((pace.level, pace.name.clone()), (0, pace)))
                .collect(),
            replayed: ReplayReport::default(),
            outcome_counts: contents.outcome_counts,
            throttle: None,
        }
    }

    /// Restricts the fold to an earlier time, whose records may be gone in part. Leaves out
    /// everything after `until`.
    pub(super) fn restrict_to(&mut self, until: Option<Timestamp>) {
        (self.past, self.is_past) = (until, true);
    }

    /// Returns what the fold has learned, as a snapshot holds it, with these priors.
    #[cfg(test)]
    pub(super) fn contents(
        &self,
        learned: &Learned,
        priors: &[Prior],
        now: Timestamp,
    ) -> SnapshotContents {
        let fetchers: Vec<String> = self.fetchers.iter().cloned().collect();
        let image = learned.evidence.image(&learned.registry, self.newest, &fetchers);
        self.contents_with(image, priors, now).without_unknown_hosts(learned)
    }

    /// Returns what it has learned besides evidence.
    pub(super) fn contents_without_evidence(&self, now: Timestamp) -> SnapshotContents {
        let (as_of, fetchers) = (self.newest, self.fetchers.iter().cloned().collect());
        self.contents_with(
            EvidenceSnapshot { as_of, fetchers, ..EvidenceSnapshot::default() },
            &[],
            now,
        )
    }

    /// Returns the same without the entries of domains: the results of `f` for these, in groups,
    /// are passed to `sink`. An error of `sink` ends it. Memory holds a few groups at a time.
    pub(super) fn contents_in_groups<T: Send, E>(
        &self,
        (learned, priors): (&Learned, &[Prior]),
        now: Timestamp,
        (f, sink): (impl Fn(&EvidenceSnapshot) -> T + Sync, GroupSink<'_, T, E>),
    ) -> Result<SnapshotContents, E> {
        let fetchers: Vec<String> = self.fetchers.iter().cloned().collect();
        let threads = if self.throttle.is_some() { 1 } else { threads() };
        let image = learned.evidence.image_in_groups(
            &learned.registry,
            (self.newest, &fetchers),
            threads,
            (f, sink),
        )?;
        Ok(self.contents_with(image, priors, now).without_unknown_hosts(learned))
    }

    /// Returns the same as it is written, with the totals of the groups, which are encoded for
    /// `sink`.
    pub(super) fn encoded<E>(
        &self,
        (learned, priors): (&Learned, &[Prior]),
        now: Timestamp,
        sink: &mut dyn FnMut(EncodedGroup) -> Result<(), E>,
    ) -> Result<WithoutGroups, E> {
        let (mut grouped, mut is_finite) = (GroupTotals::default(), true);
        let mut pass_on = |group: EncodedGroup| {
            grouped = grouped.plus(group.totals);
            is_finite &= group.is_finite;
            sink(group)
        };
        let contents =
            self.contents_in_groups((learned, priors), now, (encode_group, &mut pass_on))?;
        let contents = SnapshotContents { grouped, ..contents };
        is_finite &= contents.is_finite();
        let is_whole = learned.evidence.cold_counts().failed_reads == 0;
        Ok(WithoutGroups { contents, is_finite, is_whole })
    }

    /// Returns the header of a snapshot of what the fold has learned.
    pub(super) fn snapshot_meta(&self, learned: &Learned, priors: &[Prior]) -> SnapshotMeta {
        let image = EvidenceSnapshot {
            decay: Some(learned.evidence.decay()),
            ..EvidenceSnapshot::default()
        };
        SnapshotContents {
            covers_seq: self.covers_seq,
            image,
            priors: priors.to_vec(),
            ..SnapshotContents::default()
        }
        .meta()
    }

    fn contents_with(
        &self,
        image: EvidenceSnapshot,
        priors: &[Prior],
        now: Timestamp,
    ) -> SnapshotContents {
        let mut links: Vec<LinkEntry> = self.links.values().map(|(_, link)| link.clone()).collect();
        links.retain(|link| is_at_risk(&link.state));
        links.sort_by(|a, b| a.link.cmp(&b.link));
        let mut hosts: Vec<HostEntry> = self.hosts.values().map(|(_, host)| host.clone()).collect();
        hosts.retain(|host| host.paused_until.is_some());
        hosts.sort_by(|a, b| a.domain.cmp(&b.domain));
        let mut importance: Vec<ImportanceEntry> =
            self.importance.values().map(|(_, of)| of.clone()).collect();
        importance.sort_by(|a, b| (&a.kind, &a.value).cmp(&(&b.kind, &b.value)));
        let mut paces: Vec<PaceEntry> = self.paces.values().map(|(_, pace)| pace.clone()).collect();
        paces.sort_by(|a, b| (a.level, &a.name).cmp(&(b.level, &b.name)));
        let registered = self.registered();
        let mut short_page_hosts: Vec<String> =
            self.short_page_hosts().map(str::to_owned).collect();
        short_page_hosts.sort();
        SnapshotContents {
            covers_seq: self.covers_seq,
            now,
            cutoff: self.cutoff,
            image,
            grouped: GroupTotals::default(),
            links,
            hosts,
            short_page_hosts,
            importance,
            paces,
            registered,
            outcome_counts: self.outcome_counts.clone(),
            priors: priors.to_vec(),
        }
    }

    /// Returns the fetchers whose class and cost the log knows, by name.
    pub(super) fn registered(&self) -> Vec<FetcherEntry> {
        let mut registered: Vec<FetcherEntry> =
            self.registered.values().map(|(_, of)| of.clone()).collect();
        registered.sort_by(|a, b| a.name.cmp(&b.name));
        registered
    }

    /// Returns the hosts that have short pages that are complete, in no order.
    pub(super) fn short_page_hosts(&self) -> impl Iterator<Item = &str> {
        self.short_page_hosts
            .iter()
            .filter(|(_, (_, is_complete))| *is_complete)
            .map(|(domain, _)| &**domain)
    }

    /// Continues up to the record `upto`. Times after `now` count as `now`.
    pub(super) fn advance(
        &mut self,
        dir: &Path,
        learned: &Learned,
        upto: u64,
        now: Timestamp,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), JournalError> {
        let from = self.covers_seq;
        let (mut torn, mut tombstones) = self.advance_once(dir, learned, (upto, now), progress)?;
        if torn.is_some() && upto == u64::MAX {
            // A live writer finishes its write within this time. The torn tail of a dead one stays.
            std::thread::sleep(SETTLE);
            let (still_torn, more) = self.advance_once(dir, learned, (upto, now), &mut |_| {})?;
            torn = still_torn;
            tombstones.extend(more);
        }
        self.replayed.torn_tail = torn;
        if !tombstones.is_empty() {
            self.retract(dir, learned, &tombstones, from, now)?;
        }
        Ok(())
    }

    /// Forgets what is covered by tombstones that the fold did not reach.
    pub(super) fn forget(
        &mut self,
        dir: &Path,
        learned: &Learned,
        tombstones: &[(u64, TombstoneTarget)],
        now: Timestamp,
    ) -> Result<(), JournalError> {
        for (_, target) in tombstones {
            if let TombstoneTarget::Domain(domain) = target {
                learned.evidence.forget_domain(domain);
                self.short_page_hosts.remove(domain);
            }
        }
        if tombstones.is_empty() {
            Ok(())
        } else {
            self.retract(dir, learned, tombstones, self.covers_seq, now)
        }
    }

    /// Continues once. Returns the torn tail and the tombstones that it met.
    fn advance_once(
        &mut self,
        dir: &Path,
        learned: &Learned,
        (upto, now): (u64, Timestamp),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Option<TornTail>, Tombstones), JournalError> {
        if self.covers_seq >= upto {
            return Ok((None, Vec::new()));
        }
        let threads = if self.throttle.is_some() { 1 } else { threads() };
        let shards = (0..threads).map(|_| Shard::new(learned, self.past)).collect();
        let throttle = self.throttle.as_deref();
        let reader = self.reader.take().map_or_else(|| open(dir), Ok)?;
        if reader.floor_seq() > self.covers_seq && !self.is_past {
            return Err(LogError::Replaced { file: dir.to_owned() }.into());
        }
        let records = records_up_to(&reader, upto).saturating_sub(self.covers_seq);
        let estimate = KeyEstimate::new(self.covers_seq + 1, records, learned.evidence.keys());
        let turn = Turn { learned, upto, now, throttle, estimate };
        let take = |shard: &mut Shard, seq: u64, record: RecordRef<'_>| {
            if turn.wants(shard, seq) {
                shard.last_seq = seq;
                let taken = shard.take(learned, seq, &record, now);
                shard.note(seq, taken);
            }
        };
        let ahead = |_: &Shard, keys: &[u64]| learned.evidence.touch(keys);
        let (shards, summary) =
            reader.fold_sharded(self.covers_seq + 1, shards, ahead, take, &turn, progress)?;
        if throttle.is_some_and(Throttle::is_stopped) {
            // The pass skipped records, so that this fold is useless from here on.
            return Err(LogError::Stopped.into());
        }
        if !summary.damage.is_empty() {
            return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
        }
        if let Some((seq, source)) =
            shards.iter().filter_map(|shard| shard.failed.clone()).min_by_key(|(seq, _)| *seq)
        {
            return Err(JournalError::Record { seq, source });
        }
        let (mut voices, mut releases, mut tombstones) = (Vec::new(), Vec::new(), Vec::new());
        for mut shard in shards {
            releases.append(&mut shard.releases);
            learned.evidence.merge(&shard.shared);
            voices.append(&mut shard.voices);
            self.merge(shard, &mut tombstones);
        }
        self.end_pauses(&releases);
        voices.sort_unstable_by_key(|(seq, _)| *seq);
        voices.iter().for_each(|(_, voice)| learned.evidence.observe_signals(voice));
        self.latest = self.latest.max(self.newest);
        self.newest = self.newest.min(now);
        Ok((summary.torn, tombstones))
    }

    /// Ends the pauses that began before an operator ended them. The pause and its end may have
    /// been read by different threads.
    fn end_pauses(&mut self, releases: &[(u64, ReleaseTarget)]) {
        for (seq, target) in releases {
            match target {
                ReleaseTarget::Host(domain) => {
                    if let Some((_, host)) =
                        self.hosts.get_mut(domain).filter(|(last, _)| last < seq)
                    {
                        host.paused_until = None;
                    }
                }
                ReleaseTarget::Link(link) => {
                    if let Some((_, link)) = self.links.get_mut(link).filter(|(last, _)| last < seq)
                    {
                        link.state.paused_until = None;
                    }
                }
            }
        }
    }

    fn merge(&mut self, shard: Shard, tombstones: &mut Tombstones) {
        self.covers_seq = self.covers_seq.max(shard.last_seq);
        self.newest = self.newest.max(shard.newest);
        self.replayed.attempts += shard.attempts;
        self.replayed.entries += shard.entries;
        self.outcome_counts.merge(&shard.outcome_counts);
        shard.fetchers.iter().for_each(|name| add_fetcher_name(&mut self.fetchers, name));
        for (key, (seq, value)) in shard.links {
            keep_last(&mut self.links, key, seq, value);
        }
        for (key, (seq, value)) in shard.hosts {
            keep_last(&mut self.hosts, key, seq, value);
        }
        for (key, (seq, value)) in shard.importance {
            keep_last(&mut self.importance, key, seq, value);
        }
        for (key, (seq, value)) in shard.paces {
            keep_last(&mut self.paces, key, seq, value);
        }
        for (key, (seq, value)) in shard.registered {
            if self.registered.len() < MAX_FETCHERS || self.registered.contains_key(&key) {
                keep_last(&mut self.registered, key, seq, value);
            }
        }
        for (key, (seq, value)) in shard.short_page_hosts {
            keep_last(&mut self.short_page_hosts, key, seq, value);
        }
        tombstones.extend(shard.tombstones);
    }

    /// Retracts what the tombstones `new` cover. The evidence of a forgotten domain was removed
    /// when the fold met its tombstone. The domain's part of shared evidence is found by reading
    /// its attempts again, as far as they are still there. Attempts that an older tombstone covers
    /// are not in the snapshot any more.
    fn retract(
        &mut self,
        dir: &Path,
        learned: &Learned,
        new: &[(u64, TombstoneTarget)],
        from: u64,
        now: Timestamp,
    ) -> Result<(), JournalError> {
        let (mut recent, mut older) = (TombstoneSet::default(), TombstoneSet::default());
        pass(dir, |seq, record| {
            if seq <= from && record.kind == schema::kind::TOMBSTONE {
                older.add_record(seq, &record)?;
            }
            Ok(())
        })?;
        for (seq, target) in new {
            recent.add(*seq, target.clone());
        }
        let mut retracted = 0;
        let outcome_counts = &mut self.outcome_counts;
        pass(dir, |seq, record| {
            let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)? else {
                return Ok(());
            };
            let by_domain = recent.covers_domain(seq, attempt.domain());
            let is_later =
                seq > self.covers_seq || self.past.is_some_and(|until| attempt.at() > until);
            if recent.covers_attempt(seq, &attempt)
                && !is_later
                && !older.covers_attempt(seq, &attempt)
            {
                learned.evidence.retract(
                    &ClampedAttempt(attempt, now),
                    &learned.registry,
                    !by_domain,
                );
                outcome_counts.subtract(attempt.fetcher(), attempt.outcome());
                retracted += 1;
            }
            Ok(())
        })?;
        self.replayed.forgotten += retracted;
        let before = self.links.len() + self.hosts.len();
        self.links.retain(|link, (seq, entry)| {
            !recent.covers_link(*seq, link) && !recent.covers_domain(*seq, Some(&entry.domain))
        });
        self.hosts.retain(|domain, (seq, _)| !recent.covers_domain(*seq, Some(domain)));
        self.replayed.forgotten += (before - self.links.len() - self.hosts.len()) as u64;
        // Paces that a domain shares with others stay: they belong to it no more than evidence
        // about suffixes does.
        self.paces.retain(|(level, name), (seq, _)| {
            *level != 0 || !recent.covers_domain(*seq, Some(name))
        });
        Ok(())
    }
}

/// What the threads of one pass have in common.
struct Turn<'f> {
    learned: &'f Learned,
    upto: u64,
    now: Timestamp,
    throttle: Option<&'f Throttle>,
    estimate: KeyEstimate,
}

impl Turn<'_> {
    /// Returns whether to fold a record. Rests if the throttle requires it, and makes room for the
    /// keys to come.
    fn wants(&self, shard: &mut Shard, seq: u64) -> bool {
        let uncounted = shard.attempts - shard.counted;
        if uncounted >= KeyEstimate::STEP {
            shard.counted = shard.attempts;
            if let Some(keys) = self.estimate.count(uncounted, seq, || self.learned.evidence.keys())
            {
                self.learned.evidence.reserve_up_to(keys);
            }
        }
        if seq.is_multiple_of(256) && self.throttle.is_some_and(|throttle| !throttle.checkpoint()) {
            return false;
        }
        seq <= self.upto && shard.failed.is_none()
    }
}

impl BlockFold<Shard> for Turn<'_> {
    type Prepared = AttemptColumns;

    fn prepare(&self, block: OwnedBlock) -> Result<AttemptColumns, UnpackError> {
        AttemptColumns::parse(block)
    }

    fn keys<'p>(&self, block: &'p AttemptColumns) -> &'p [u64] {
        block.keys()
    }

    fn fold(
        &self,
        shard: &mut Shard,
        block: &AttemptColumns,
        records: &[BlockRecord],
    ) -> Result<(), UnpackError> {
        let (mut reader, mut buffer) = (block.reader()?, RowBuffer::default());
        let mut keys = Vec::with_capacity(AHEAD);
        for records in records.chunks(AHEAD) {
            keys.clear();
            keys.extend(records.iter().map(|record| record.key_hash));
            self.learned.evidence.touch(&keys);
            for &BlockRecord { seq, place, .. } in records {
                if !self.wants(shard, seq) {
                    continue;
                }
                shard.last_seq = seq;
                let taken = match reader.read(place, &mut buffer) {
                    Ok(ColumnsRecord::Attempt(attempt)) => {
                        let (at, fetcher, outcome) =
                            (attempt.at(), attempt.fetcher(), attempt.outcome());
                        shard.learn(
                            self.learned,
                            (seq, at),
                            (fetcher, outcome),
                            &attempt.clamped(self.now),
                        );
                        Ok(())
                    }
                    Ok(ColumnsRecord::Whole(record)) => {
                        shard.take(self.learned, seq, &record, self.now)
                    }
                    Err(RowError::Record(error)) => Err(error),
                    Err(RowError::Block(error)) => return Err(error),
                };
                shard.note(seq, taken);
            }
        }
        Ok(())
    }
}

/// State of one thread of a fold.
struct Shard {
    /// Evidence about keys that the domains of other threads share.
    shared: Evidence,
    /// Entries with a later time are left out.
    until: Option<Timestamp>,
    /// Host signals of the attempts, with their sequence numbers. Signals depend on the order of
    /// the attempts of all domains, so they are applied when all threads are done.
    voices: Vec<(u64, SignalObservation)>,
    last_seq: u64,
    newest: Timestamp,
    attempts: u64,
    /// Number of attempts that the estimate of keys knows of.
    counted: u64,
    outcome_counts: OutcomeCounts,
    entries: u64,
    fetchers: BTreeSet<String>,
    links: LastBySeq<String, LinkEntry>,
    hosts: LastBySeq<String, HostEntry>,
    importance: LastBySeq<(String, Option<String>), ImportanceEntry>,
    paces: LastBySeq<(u8, String), PaceEntry>,
    registered: LastBySeq<String, FetcherEntry>,
    short_page_hosts: LastBySeq<String, bool>,
    tombstones: Tombstones,
    releases: Vec<(u64, ReleaseTarget)>,
    failed: Option<(u64, Arc<SchemaError>)>,
}

impl Shard {
    fn new(learned: &Learned, until: Option<Timestamp>) -> Self {
        Self {
            until,
            shared: learned.evidence.empty_like(),
            voices: Vec::new(),
            last_seq: 0,
            newest: Timestamp::default(),
            attempts: 0,
            counted: 0,
            outcome_counts: OutcomeCounts::default(),
            entries: 0,
            fetchers: BTreeSet::new(),
            links: HashMap::new(),
            hosts: HashMap::new(),
            importance: HashMap::new(),
            paces: HashMap::new(),
            registered: HashMap::new(),
            short_page_hosts: HashMap::new(),
            tombstones: Vec::new(),
            releases: Vec::new(),
            failed: None,
        }
    }

    fn is_later(&self, at: Timestamp) -> bool {
        self.until.is_some_and(|until| at > until)
    }

    fn note(&mut self, seq: u64, taken: Result<(), SchemaError>) {
        if let Err(error) = taken {
            self.failed = Some((seq, Arc::new(error)));
        }
    }

    /// Learns from an attempt that was made at `at`.
    fn learn(
        &mut self,
        learned: &Learned,
        (seq, at): (u64, Timestamp),
        (fetcher, outcome): (&str, usize),
        attempt: &impl Observation,
    ) {
        if self.is_later(at) {
            return;
        }
        (self.entries, self.attempts) = (self.entries + 1, self.attempts + 1);
        self.outcome_counts.add(fetcher, outcome, 1);
        self.newest = self.newest.max(at);
        add_fetcher_name(&mut self.fetchers, fetcher);
        if let Some(domain) = complete_short_page(attempt) {
            self.short_page_hosts.insert(domain.to_owned(), (seq, true));
        }
        if let Some(voice) =
            learned.evidence.observe_apart(&self.shared, attempt, &learned.registry)
        {
            self.voices.push((seq, voice));
        }
    }

    fn take(
        &mut self,
        learned: &Learned,
        seq: u64,
        record: &RecordRef<'_>,
        now: Timestamp,
    ) -> Result<(), SchemaError> {
        if let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)? {
            let (at, outcome) = (attempt.at(), (attempt.fetcher(), attempt.outcome()));
            self.learn(learned, (seq, at), outcome, &ClampedAttempt(attempt, now));
            return Ok(());
        }
        let entry = schema::decode(record.kind, record.schema, record.payload)?;
        // Forgotten entries stay forgotten, whatever time the fold is restricted to.
        if !matches!(entry, Entry::Tombstone(_)) && self.is_later(entry.at()) {
            return Ok(());
        }
        self.entries += 1;
        match entry {
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
            Entry::Pace(entry) => {
                self.newest = self.newest.max(entry.at);
                self.paces.insert((entry.level, entry.name.clone()), (seq, entry));
            }
            Entry::Fetcher(entry) => {
                if self.registered.len() < MAX_FETCHERS || self.registered.contains_key(&entry.name)
                {
                    self.registered.insert(entry.name.clone(), (seq, entry));
                }
            }
            Entry::Release(release) => {
                self.newest = self.newest.max(release.at);
                self.releases.push((seq, release.target));
            }
            Entry::Tombstone(tombstone) => {
                if let TombstoneTarget::Domain(domain) = &tombstone.target {
                    // This thread folds the whole domain, in order. It learns from the records
                    // after the tombstone again.
                    learned.evidence.forget_domain(domain);
                    self.short_page_hosts.insert(domain.clone(), (seq, false));
                }
                self.tombstones.push((seq, tombstone.target));
            }
        }
        Ok(())
    }
}

/// Returns about how many records a log has up to `upto`. The last segment may be growing: it is
/// taken to be like the others, or to have records of the usual size.
fn records_up_to(reader: &Reader, upto: u64) -> u64 {
    let (mut records, mut bytes, mut last) = (0, 0, 0);
    for segment in reader.segments() {
        last = match segment.next_seq {
            Some(next) => {
                (records, bytes) =
                    (records + next.saturating_sub(segment.first_seq), bytes + segment.bytes);
                next
            }
            None if records > 0 => {
                segment.first_seq + (segment.bytes as f64 * records as f64 / bytes as f64) as u64
            }
            None => segment.first_seq + segment.bytes / USUAL_BYTES,
        };
    }
    last.saturating_sub(1).min(upto)
}

/// Returns the attempt's host if the attempt says that the host has short pages that are complete.
/// Without this, each process would render one page of the host again.
fn complete_short_page(attempt: &impl Observation) -> Option<&str> {
    let (mut is_short, mut domain) = (false, None);
    if attempt.fields().success {
        attempt.each_heuristic(&mut |kind, value| match kind {
            SHORT_PAGE => is_short = true,
            "domain" => domain = Some(value),
            _ => {}
        });
    }
    domain.filter(|_| is_short)
}

/// Adds a fetcher's name to `names`. It is called for each attempt, and reports can bring any
/// number of names.
pub(super) fn add_fetcher_name(names: &mut BTreeSet<String>, name: &str) {
    if !names.contains(name) && names.len() < MAX_FETCHERS {
        names.insert(name.to_owned());
    }
}

/// Returns the number of threads of a fold.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MAX_THREADS)
}
