//! Evidence: the outcomes of attempts per heuristic and fetcher, as decayed weights in a lock-free
//! map.
//!
//! Readers take no lock: a map look-up never waits (papaya with blocking resize, whose readers go
//! on in the old table), and weights are atomic loads. Evidence does not promise that a reader sees
//! an attempt whole: it may see the domain's cell before the site's.
//!
//! Owns: `Evidence::observe`, the one place that learns from attempts, whether live, replayed or
//! imported.
//!
//! Must not know: how weights become a decision.
#![cfg_attr(
    not(feature = "journal"),
    allow(dead_code, reason = "only a journal restores evidence and takes images of it")
)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use papaya::{HashMap, ResizeMode};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::evidence::daily_block_counts::Day;
use crate::evidence::decayed_counts::{DecayedCounts, Increment, Writers};
use crate::evidence::observation::domain_of;
pub use daily_block_counts::BanRate;
pub use decayed_counts::Weights;
use entry::SharedEntry;
pub(crate) use entry::{Breaker, Entry, Group, Level};
pub(crate) use entry_writers::EntryWriter;
#[doc(hidden)]
pub use evidence_snapshot::EvidenceSnapshot;
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::heuristic::url::{ContentKind, FLAGS, UrlFeatures, suffix_of};
use fetchwise_types::heuristic::{REDIRECTED_BY, SHORT_PAGE, SHORT_PAGE_TRUE, is_mark};
use fetchwise_types::registry::{FetcherId, FetcherSet, Registry};
use fetchwise_types::time::Timestamp;
pub(crate) use host_signal_counts::SignalCounts;
pub(crate) use host_signal_counts::SignalObservation;
pub(crate) use host_signal_slots::{SignalId, SignalSide, day_of};
pub(crate) use host_signals::{
    ANY_BLOCK, ANY_PAGE, HostSignals, SignalRow, VENDOR_PREFIX, signal_key,
};
#[doc(hidden)]
pub use learned::Learned;
pub(crate) use observation::{Observation, ObservedFields};
pub(crate) use prehashed::PrehashedHasher;
use prehashed::SpreadingState;
#[doc(hidden)]
pub use remote::{FetcherTotals, RemoteAttempt};
use shared_reach::SharedReach;
use shared_version::SharedVersion;
pub(crate) use signal_attribution::ShownSignals;

pub mod decay;

pub(crate) mod block_rates;
pub(crate) mod cold_tier;
pub(crate) mod daily_block_counts;
pub(crate) mod decayed_counts;
pub(crate) mod entry;
mod entry_writers;
mod evict;
mod eviction_priority;
pub(crate) mod evidence_snapshot;
pub(crate) mod host_signal_counts;
pub(crate) mod host_signal_slots;
pub(crate) mod host_signals;
mod key_pool;
mod learned;
mod observation;
mod prehashed;
mod remote;
mod retract;
mod shared_reach;
mod shared_version;
mod signal_attribution;
mod site_proof;
mod site_quota;
mod snapshot_diff;
pub(crate) mod snapshot_groups;
mod unkeyed;
mod writer_count;

/// Path depths that have their entry in an array; deeper ones are looked up.
const DEPTHS: usize = 16;

/// The hash that identifies a heuristic. Two heuristics with the same hash share their evidence:
/// with a million domains the chance of any collision is one in thirty million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// Returns the key of a domain and of the site of that name: one entry has the cells of both.
    /// The log files a record under its site's hash, which is this one.
    pub(crate) fn domain(value: &str) -> Self {
        Self(xxh3_64(value.as_bytes()))
    }

    pub(crate) fn suffix(value: &str) -> Self {
        Self(xxh3_64_with_seed(value.as_bytes(), 3))
    }

    /// Returns the key of any heuristic. Built-in types get the keys of the functions above.
    pub(crate) fn of(kind: &str, value: &str) -> Self {
        match kind {
            "domain" | "site" => Self::domain(value),
            "suffix" => Self::suffix(value),
            "path_depth" => value.parse().map_or(Self::user(kind, value), Self::depth),
            _ => Self::user(kind, value),
        }
    }

    /// Returns the key of a path depth by its number, so that `select` need not format it.
    pub(crate) fn depth(depth: u32) -> Self {
        Self(xxh3_64_with_seed(&depth.to_le_bytes(), 4))
    }

    fn user(kind: &str, value: &str) -> Self {
        Self(xxh3_64_with_seed(value.as_bytes(), xxh3_64(kind.as_bytes()) | 1 << 63))
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// Returns the hash of a section or suffix within a domain's entry.
pub(crate) fn part_hash(part: &str) -> u64 {
    xxh3_64(part.as_bytes())
}

/// The kind of key that a cell belongs to, as an attempt that changes it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellRole {
    /// The domain.
    Domain,
    /// The path on the domain.
    Path,
    /// The suffix on the domain.
    Suffix,
    /// The site, if the domain is not the site itself.
    Site,
    /// A key that all domains share.
    Plain,
}

impl CellRole {
    /// Returns whether the credit for a short page changes the cell: a site's short pages say
    /// nothing about other sites.
    fn is_credited(self) -> bool {
        self != Self::Plain
    }

    /// Returns whether the cell keeps the recent pair, so that a change of the site shows within a
    /// few attempts.
    fn is_recent(self) -> bool {
        matches!(self, Self::Domain | Self::Path | Self::Site)
    }
}

/// The change that an attempt makes to its cells, computed once.
struct AttemptChange {
    fetcher: FetcherId,
    kind: ContentKind,
    up: f64,
    what: Increment,
    /// Where it counts at the levels that all sites share.
    reach: SharedReach,
}

/// Evidence of all attempts.
#[derive(Debug)]
pub(crate) struct Evidence {
    /// The half-life, with the first landmark.
    scale: decay::Decay,
    landmark_ms: AtomicI64,
    entries: HashMap<u64, Entry, SpreadingState>,
    global: SharedEntry,
    flags: [SharedEntry; 4],
    hints: [SharedEntry; 4],
    depths: [SharedEntry; DEPTHS],
    shared_version: SharedVersion,
    signals: HostSignals,
    key_limit: evict::KeyLimit,
    /// Where evicted entries are kept. Without it they are forgotten.
    cold: OnceLock<cold_tier::Cold>,
    suffixes: FileSuffixes,
    /// Time in milliseconds before which attempts may be missing in the daily counts; `i64::MIN` if
    /// none are missing.
    days_since_ms: AtomicI64,
}

/// Memory of one key (a domain, a suffix ...), by the sizes of its types, without the map's own
/// slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// Bytes of a cell: the evidence about one fetcher under one key.
    pub cell_bytes: usize,
    /// Bytes of an entry, including its inline cells.
    pub entry_bytes: usize,
    /// Number of inline cells of an entry. Further cells need an allocation.
    pub entry_cells: usize,
}

/// Returns the layout of this build, for planning and measuring memory.
pub const fn layout() -> Layout {
    Layout {
        cell_bytes: size_of::<DecayedCounts>(),
        entry_bytes: size_of::<Entry>(),
        entry_cells: entry::INLINE_CELLS,
    }
}

/// A guard that keeps entries alive while they are read. It is cheap and takes no lock.
pub(crate) type Guard<'e> = papaya::LocalGuard<'e>;

impl Evidence {
    /// Returns empty evidence. With `max_keys`, the least attempted keys are evicted beyond that
    /// number. With `is_exact`, the version of the shared evidence changes with every change.
    pub(crate) fn new(
        decay: decay::Decay,
        max_keys: Option<usize>,
        suffixes: FileSuffixes,
        is_exact: bool,
    ) -> Self {
        let resize = match max_keys {
            // Incremental resizing makes each read check two tables while it lasts, which was
            // measured to be ten times slower.
            None => ResizeMode::Blocking,
            // A bounded map has a new table again and again, because papaya does not reuse the
            // slots of removed keys. No call may wait until all keys are in it.
            Some(_) => ResizeMode::Incremental(64),
        };
        let entries =
            HashMap::builder().hasher(SpreadingState::default()).resize_mode(resize).build();
        Self {
            landmark_ms: AtomicI64::new(decay.landmark().as_millis()),
            scale: decay,
            entries,
            global: SharedEntry::default(),
            flags: Default::default(),
            hints: Default::default(),
            depths: Default::default(),
            shared_version: SharedVersion::new(is_exact),
            signals: HostSignals::new(),
            key_limit: evict::KeyLimit::new(max_keys),
            cold: OnceLock::new(),
            suffixes,
            days_since_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// Sets which candidates sign: registrations at vendors are about them.
    pub(crate) fn with_signed(self, signed: FetcherSet) -> Self {
        Self { signals: self.signals.with_signed(signed), ..self }
    }

    /// Learns by the registrations of `others` from now on, and by those that they get later.
    pub(crate) fn with_registrations_of(self, others: &Self) -> Self {
        Self { signals: self.signals.with_registrations_of(&others.signals), ..self }
    }

    /// Returns the scale of the weights.
    pub(crate) fn decay(&self) -> decay::Decay {
        // Relaxed: the landmark moves only while there is no evidence and no other thread has the
        // evidence.
        self.scale.with_landmark(self.landmark_ms.load(Ordering::Relaxed))
    }

    /// Moves the landmark near `present` if it is far away and there is no evidence yet: a process
    /// may have been started under a wrong clock, and weights far from the landmark leave the range
    /// of `f32`.
    pub(crate) fn move_landmark_near(&self, present: Timestamp) {
        if !self.decay().is_near(present) && self.entries.is_empty() && self.global.weight() == 0.0
        {
            self.landmark_ms.store(self.scale.landmark_before(present), Ordering::Relaxed);
            self.shared_version.change();
        }
    }

    pub(crate) fn file_suffixes(&self) -> &FileSuffixes {
        &self.suffixes
    }

    /// Returns whether the URL is a file or a page: each has its own cells.
    #[inline]
    pub(crate) fn kind(&self, features: &UrlFeatures<'_>) -> ContentKind {
        self.suffixes.kind(features.suffix)
    }

    pub(crate) fn guard(&self) -> Guard<'_> {
        self.entries.guard()
    }

    pub(crate) fn entry<'g>(&self, key: Key, guard: &'g Guard<'_>) -> Option<&'g Entry> {
        self.entries.get(&key.0, guard)
    }

    /// Returns the entry of `key` for a change: brought back if it was evicted, created if there is
    /// none. `at` is the present.
    pub(crate) fn entry_or_new<'g>(
        &'g self,
        key: Key,
        at: Timestamp,
        guard: &'g Guard<'_>,
    ) -> EntryWriter<'g> {
        loop {
            let known = self.entry(key, guard).and_then(|entry| self.writer_of(entry));
            if let Some(writer) =
                known.or_else(|| self.add_within_limit(key, at, guard, || Some(Entry::default())))
            {
                return writer;
            }
        }
    }

    /// Makes room for more keys in one step, as far as the limit allows, because each doubling
    /// would move every entry.
    fn reserve(&self, keys: usize) {
        let room = self.key_limit.max().map_or(keys, |max| max.saturating_sub(self.keys()));
        self.entries.reserve(keys.min(room), &self.guard());
    }

    /// As [`reserve`](Self::reserve), for a total of `keys`.
    pub(crate) fn reserve_up_to(&self, keys: usize) {
        if let Some(more) = keys.checked_sub(self.keys()).filter(|more| *more > 0) {
            self.reserve(more);
        }
    }

    /// Returns the version of the evidence that all hosts share: flags, depths, suffixes, hints and
    /// the evidence of all attempts, but not user-defined types. Read it before that evidence.
    #[inline]
    pub(crate) fn shared_version(&self) -> u64 {
        self.shared_version.get()
    }

    pub(crate) fn global(&self) -> &Entry {
        &self.global
    }

    /// Calls `f` with the names and cells of all host signals.
    pub(crate) fn each_signal_cell(
        &self,
        mut f: impl FnMut(&str, FetcherId, ContentKind, &SignalCounts),
    ) {
        for (row, name) in self.signals.names().iter().enumerate() {
            self.signals.each_cell(row, |id, content, cell| f(name, id, content, cell));
        }
    }

    pub(crate) fn flag(&self, index: usize) -> &Entry {
        &self.flags[index]
    }

    pub(crate) fn hint(&self, hint: Hint) -> &Entry {
        &self.hints[hint as usize]
    }

    pub(crate) fn depth<'g>(&'g self, depth: u32, guard: &'g Guard<'_>) -> Option<&'g Entry> {
        match self.depths.get(depth as usize) {
            Some(entry) => Some(entry),
            None => self.entry(Key::depth(depth), guard),
        }
    }

    /// Learns from `attempt`. An attempt of weight 0 changes no weight, but the daily counts of its
    /// domain include it.
    ///
    /// Cost: a map look-up for each heuristic and an atomic addition for each weight. It allocates
    /// only for the first attempt of a key.
    pub(crate) fn observe(&self, attempt: &impl Observation, registry: &Registry) {
        if let Some(observation) = self.learn(self, attempt, registry, Writers::Many) {
            self.observe_signals(&observation);
        }
    }

    /// Learns from `attempt` as [`observe`](Self::observe) does, for one of several threads that
    /// learn in bulk.
    ///
    /// Each thread has all attempts of its domains, and no other thread has any of them, so few
    /// steps need to be atomic. The cells that domains share are in `shared`. Returns the attempt's
    /// observation for the signals of its host, because signals learn from attempts in the order of
    /// the log.
    pub(crate) fn observe_apart(
        &self,
        shared: &Self,
        attempt: &impl Observation,
        registry: &Registry,
    ) -> Option<SignalObservation> {
        self.learn(shared, attempt, registry, Writers::One)
    }

    fn learn(
        &self,
        shared: &Self,
        attempt: &impl Observation,
        registry: &Registry,
        writers: Writers,
    ) -> Option<SignalObservation> {
        let Some(change) = self.change_by(attempt, registry) else {
            self.count_day_of(attempt);
            return None;
        };
        let carried = self.carried(attempt);
        let (mut observation, is_remote, decay) = (None, attempt.is_remote(), self.decay());
        let ObservedFields { at, success, is_banned, .. } = attempt.fields();
        self.each_cell_of(
            shared,
            attempt,
            &change,
            |_| true,
            |entry, cell, role| {
                // The domain may have belonged to another site when the attempt was recorded.
                let writers = if role == CellRole::Site { Writers::Many } else { writers };
                let is_late = is_remote && cell.is_older(at);
                if role == CellRole::Domain && carried.had_signals() && !is_late {
                    observation = carried.observation(cell, &change);
                }
                let (before, after) = cell.add(
                    &decay,
                    change.up,
                    &change.what,
                    role.is_recent() && !is_late,
                    writers,
                );
                if role == CellRole::Domain {
                    if let Some(day) = Day::of(at, is_banned) {
                        entry.days().add(day);
                    }
                    // Relaxed: the counter seeds a hash, and a stale value gives the seed before.
                    writers.count(&entry.attempts);
                    if (is_banned || success) && !is_late {
                        entry.update_breaker(change.fetcher, at, is_banned);
                    }
                }
                shared.shared_version.is_crossed(before, after)
            },
        );
        self.add_proofs(shared, attempt, registry, &change);
        if let Some(credit) = Self::credited(attempt, registry, &change) {
            self.each_cell_of(shared, attempt, &credit, CellRole::is_credited, |_, cell, role| {
                let writers = if role == CellRole::Site { Writers::Many } else { writers };
                cell.credit(
                    credit.up,
                    role.is_recent() && !(is_remote && cell.is_older(at)),
                    writers,
                );
                false
            });
        }
        self.store_shown_signals(attempt, &carried, &change, registry);
        observation
    }

    /// Learns from `attempt` only what belongs to no single domain. The attempt's domain and site
    /// learn nothing, and neither do host signals, which concern what the host showed before.
    pub(crate) fn observe_global(&self, attempt: &impl Observation, registry: &Registry) {
        let Some(change) = self.change_by(attempt, registry) else { return };
        self.add_to_shared(self, attempt, &change);
        self.add_proofs(self, attempt, registry, &change);
    }

    /// Adds a change to the cells that belong to no single domain.
    fn add_to_shared(&self, shared: &Self, attempt: &impl Observation, change: &AttemptChange) {
        let is_plain = |role| role == CellRole::Plain;
        self.each_cell_of(shared, attempt, change, is_plain, |_, cell, _| {
            let (before, after) =
                cell.add(&self.decay(), change.up, &change.what, false, Writers::Many);
            shared.shared_version.is_crossed(before, after)
        });
    }

    /// Adds the earlier failures that count for other sites from this attempt on.
    fn add_proofs(
        &self,
        shared: &Self,
        attempt: &impl Observation,
        registry: &Registry,
        change: &AttemptChange,
    ) {
        Self::each_proof(attempt, registry, change, |proof| {
            self.add_to_shared(shared, attempt, proof)
        });
    }

    /// Returns the credit for the fetcher whose response a later rendering proved complete: the
    /// attempt rendered a short page and found no more text. The earlier attempt was recorded as a
    /// failure; the credit makes it a success on this domain, path, suffix and site.
    fn credited(
        attempt: &impl Observation,
        registry: &Registry,
        change: &AttemptChange,
    ) -> Option<AttemptChange> {
        let mut credited = None;
        attempt.each_heuristic(&mut |kind, value| {
            if kind == SHORT_PAGE && value != SHORT_PAGE_TRUE {
                credited = registry.find(value);
            }
        });
        let fetcher = credited.filter(|id| *id != change.fetcher && change.what.success)?;
        let what = Increment { weight: 1.0, blocked: false, duration_ms: 0.0, ..change.what };
        Some(AttemptChange { fetcher, what, ..*change })
    }

    /// Prefetches what attempts of the domains (and sites) with these hashes change into the
    /// processor's cache. With many domains it is in no cache, and fetching all of it at once takes
    /// as long as fetching one line.
    pub(crate) fn touch(&self, hashes: &[u64]) {
        let guard = self.guard();
        hashes.iter().filter_map(|hash| self.entries.get(hash, &guard)).for_each(Entry::touch);
    }

    fn change_by(&self, attempt: &impl Observation, registry: &Registry) -> Option<AttemptChange> {
        let facts = attempt.fields();
        if facts.weight <= 0.0 || !facts.weight.is_finite() {
            return None;
        }
        Some(AttemptChange {
            fetcher: registry.intern(facts.fetcher)?,
            kind: self.kind_of(attempt),
            up: self.decay().up(facts.at),
            reach: SharedReach::of(attempt),
            what: Increment {
                at: facts.at,
                weight: facts.weight.min(1.0),
                success: facts.success,
                blocked: facts.is_banned,
                duration_ms: facts.duration_ms as f64,
            },
        })
    }

    /// Returns whether the URL that responded to an attempt led to a file or a page.
    pub(crate) fn kind_of(&self, attempt: &impl Observation) -> ContentKind {
        let facts = attempt.fields();
        if let Some(kind) = facts.kind {
            return kind;
        }
        let (mut is_redirected, mut suffix) = (false, None);
        attempt.each_heuristic(&mut |kind, value| match kind {
            "suffix" => suffix = Some(value),
            REDIRECTED_BY => is_redirected = true,
            _ => {}
        });
        // The log has the requested URL only; the tags are those of the other one.
        let suffix = match is_redirected {
            false => suffix_of(facts.url),
            true => suffix.and_then(|suffix| suffix_of(&format!("http://redirected/file{suffix}"))),
        };
        self.suffixes.kind(suffix)
    }

    /// Calls `f` with each cell that `attempt` changes and whose role `wants` it. Creates missing
    /// cells. `f` returns whether the version changes if the cell is one of those that it stands
    /// for.
    fn each_cell_of(
        &self,
        shared: &Self,
        attempt: &impl Observation,
        change: &AttemptChange,
        wants: impl Fn(CellRole) -> bool,
        mut f: impl FnMut(&Entry, &DecayedCounts, CellRole) -> bool,
    ) {
        let mut visit_group = |entry: &Entry, group: Group, role: CellRole| {
            entry.claim(group, change.fetcher).is_some_and(|cell| f(entry, cell, role))
        };
        let mut is_changed = false;
        let (guard, shared_guard, at) = (self.guard(), shared.guard(), change.what.at);
        let in_shared = change.reach.group(change.kind);
        if wants(CellRole::Plain) {
            // All attempts are counted; those beyond a quota apart, where no decision reads them.
            let group = in_shared.unwrap_or(Group::new(Level::Site, change.kind, 0));
            is_changed |= visit_group(&shared.global, group, CellRole::Plain);
        }
        let in_shared = in_shared.filter(|_| wants(CellRole::Plain));
        if let (Some(hint), Some(group)) = (attempt.fields().hint, in_shared) {
            is_changed |= visit_group(shared.hint(hint), group, CellRole::Plain);
        }
        // Domain, path and suffix share one entry, because looking up a large map is slow.
        let domain = domain_of(attempt);
        let own = domain
            .filter(|_| wants(CellRole::Domain))
            .map(|name| self.entry_or_new(Key::domain(name), at, &guard));
        let of_domain = |level, part| Group::new(level, change.kind, part);
        if let Some(entry) = &own {
            visit_group(entry, of_domain(Level::Own, 0), CellRole::Domain);
        }
        let mut site = None;
        attempt.each_heuristic(&mut |kind, value| {
            // Only an import can have sections and suffixes of another domain than the attempt's;
            // they are ignored.
            let mut part = |level, role| {
                if let (Some(entry), Some((of, part))) = (&own, value.split_once('|'))
                    && domain == Some(of)
                {
                    visit_group(entry, of_domain(level, part_hash(part)), role);
                }
            };
            match kind {
                "domain" => {}
                "domain_path" => part(Level::Path, CellRole::Path),
                "domain_suffix" => part(Level::Suffix, CellRole::Suffix),
                "site" => site = Some(value),
                // The host's entry and the signal rows hold what it showed, and the host that
                // redirected has refused nothing.
                _ if is_mark(kind) => {}
                _ => {
                    let Some(group) = in_shared else { return };
                    let (entry, is_versioned) =
                        shared.shared_entry((kind, value), at, &shared_guard);
                    is_changed |= visit_group(&entry, group, CellRole::Plain) && is_versioned;
                }
            }
        });
        if wants(CellRole::Site) {
            self.each_site_entry((domain, site), at, own.as_deref(), &guard, |entry| {
                visit_group(entry, of_domain(Level::Site, 0), CellRole::Site);
            });
        }
        if is_changed {
            shared.shared_version.change();
        }
    }

    /// Calls `f` with the entries in which an attempt counts for the quotas and the site of its
    /// domain.
    #[inline]
    fn each_site_entry(
        &self,
        (domain, site): (Option<&str>, Option<&str>),
        at: Timestamp,
        own: Option<&Entry>,
        guard: &Guard<'_>,
        mut f: impl FnMut(&Entry),
    ) {
        // Addresses of one network have no site in common, but a quota.
        if let Some(network) = domain.and_then(site_quota::network_of) {
            f(&self.entry_or_new(Key::domain(&network), at, guard));
        }
        if let Some(name) = site.or(domain).and_then(site_quota::registered_above) {
            f(&self.entry_or_new(Key::domain(name), at, guard));
        }
        // A site's weights are in two parts: those of the domain of its name, and those of its
        // other domains.
        if let Some(site) = site.filter(|_| site != domain) {
            let key = Key::domain(site);
            f(&self.entry_or_new(key, at, guard));
            if let Some(entry) = own {
                entry.set_site(key.0);
            }
        }
    }

    /// Returns the entry of a key that sites share, and whether it is one of those that the version
    /// stands for.
    fn shared_entry<'g>(
        &'g self,
        (kind, value): (&str, &str),
        at: Timestamp,
        guard: &'g Guard<'_>,
    ) -> (EntryWriter<'g>, bool) {
        match self.fixed(kind, value) {
            Some(entry) => (EntryWriter::uncounted(entry), true),
            None => (
                self.entry_or_new(Key::of(kind, value), at, guard),
                matches!(kind, "suffix" | "path_depth"),
            ),
        }
    }

    /// Returns the statically allocated entry of the few keys that have one.
    fn fixed(&self, kind: &str, value: &str) -> Option<&Entry> {
        let shared = match kind {
            "domain" | "site" => None,
            "path_depth" => {
                value.parse::<u32>().ok().and_then(|depth| self.depths.get(depth as usize))
            }
            _ => FLAGS
                .iter()
                .position(|flag| *flag == kind && value == "true")
                .map(|flag| &self.flags[flag]),
        };
        shared.map(|shared| &**shared)
    }

    /// Returns the exact weights of one heuristic and fetcher as of `now`, over files or pages.
    /// Source: `observe`.
    pub(crate) fn weights(
        &self,
        heuristic: (&str, &str),
        kind: ContentKind,
        fetcher: FetcherId,
        now: Timestamp,
    ) -> Weights {
        let guard = self.guard();
        let Some((entry, group)) = self.locate(heuristic, kind, &guard) else {
            return Weights::default();
        };
        let also = (heuristic.0 == "site").then(|| Group::new(Level::Site, kind, 0));
        let mut weights = Weights::default();
        entry.each_weights(group, also, self.decay().down(now), |id, read| {
            if id == fetcher {
                weights = *read;
            }
        });
        // Keys that sites share have the failures of unproven sites apart.
        entry.for_each(Group::unproven(kind), |id, cell| {
            if id == fetcher && group == Group::new(Level::Own, kind, 0) {
                weights = weights.plus(&cell.read(self.decay().down(now)));
            }
        });
        weights
    }

    /// Returns the entry and group of a heuristic's cells.
    fn locate<'g>(
        &'g self,
        (kind, value): (&str, &str),
        page: ContentKind,
        guard: &'g Guard<'_>,
    ) -> Option<(&'g Entry, Group)> {
        let own = Group::new(Level::Own, page, 0);
        match kind {
            "global" => Some((&self.global, own)),
            "hint" => Some((self.hint(Hint::from_name(value)?), own)),
            "domain_path" | "domain_suffix" => {
                let (domain, part) = value.split_once('|')?;
                let level = if kind == "domain_path" { Level::Path } else { Level::Suffix };
                Some((
                    self.known(Key::domain(domain), guard)?,
                    Group::new(level, page, part_hash(part)),
                ))
            }
            _ => match self.fixed(kind, value) {
                Some(entry) => Some((entry, own)),
                None => Some((self.known(Key::of(kind, value), guard)?, own)),
            },
        }
    }
}
