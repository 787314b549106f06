//! Evidence: what attempts have shown, per heuristic and fetcher, as decayed weights in a lock-free map.
//!
//! Owns `Evidence::observe`, the one place where attempts are learned from: live ones, those of a replay and imported ones. Reading
//! takes no lock: a map look-up that never waits (papaya with blocking resize, whose readers go on in the old table) and atomic
//! loads. Not promised: that a reader sees an attempt whole; it may see its domain's cell before its site's. Must not know how
//! weights become a decision.

use std::hash::BuildHasherDefault;
use std::sync::atomic::AtomicI64;

use papaya::{HashMap, ResizeMode};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use crate::evidence::daily_block_counts::BanRate;
use crate::evidence::daily_block_counts::Day;
pub use crate::evidence::decayed_counts::Weights;
use crate::evidence::decayed_counts::{Cell, Increment, Writers};
pub(crate) use crate::evidence::host_signal_counts::Voice;
pub(crate) use crate::evidence::host_signal_slots::{Side, TagId, day_of};
pub(crate) use crate::evidence::host_signals::{Row, Tags, WALLED};
use crate::evidence::observation::domain_of;
pub(crate) use crate::evidence::observation::{Facts, Observed};
#[cfg(feature = "journal")]
#[doc(hidden)]
pub use crate::evidence::remote::{Fact, Said, Share};
pub(crate) use crate::evidence::signal_attribution::Known;
use entry::Shared;
pub(crate) use entry::{Breaker, Entry, Group, Level};
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::heuristic::url::{ContentKind, FLAGS, UrlFeatures, suffix_of};
use fetchwise_types::heuristic::{HOST_SHOWED, HOST_SHOWS, SHORT_PAGE, SHORT_PAGE_TRUE};
use fetchwise_types::registry::{FetcherId, Registry};
use fetchwise_types::time::Timestamp;
pub(crate) use keys::Hashed;

pub mod decay;

mod block_days;
#[cfg(feature = "journal")]
pub(crate) mod columns;
#[cfg(feature = "journal")]
mod columns_diff;
pub(crate) mod daily_block_counts;
pub(crate) mod decayed_counts;
pub(crate) mod entry;
mod evict;
#[cfg(feature = "journal")]
mod eviction_priority;
pub(crate) mod host_signal_counts;
pub(crate) mod host_signal_slots;
pub(crate) mod host_signals;
mod keys;
mod observation;
#[cfg(feature = "journal")]
mod remote;
mod retract;
mod signal_attribution;

/// Path depths that have their entry in an array; deeper ones are looked up.
const DEPTHS: usize = 16;

/// The hash that a heuristic is found by. Two that share one share their evidence: with a million domains the chance that
/// any two do is one in thirty million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl Key {
    /// A domain, and the site of that name: one entry has the cells of both. A record of the log is filed under its site's hash,
    /// which is this one.
    pub(crate) fn domain(value: &str) -> Self {
        Self(xxh3_64(value.as_bytes()))
    }

    pub(crate) fn suffix(value: &str) -> Self {
        Self(xxh3_64_with_seed(value.as_bytes(), 3))
    }

    /// Any heuristic, the built-in types under the key they have above.
    pub(crate) fn of(kind: &str, value: &str) -> Self {
        match kind {
            "domain" | "site" => Self::domain(value),
            "suffix" => Self::suffix(value),
            "path_depth" => value.parse().map_or(Self::user(kind, value), Self::depth),
            _ => Self::user(kind, value),
        }
    }

    /// A depth by its number, so that `select` need not write it out.
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

/// The hash of a section or suffix within a domain's entry.
pub(crate) fn part_hash(part: &str) -> u64 {
    xxh3_64(part.as_bytes())
}

/// What a cell stands for, seen from an attempt that changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The domain's own.
    Domain,
    /// Its path's on the domain.
    Path,
    /// Its suffix's on the domain.
    Suffix,
    /// That of its site, when the domain is not the site itself.
    Site,
    /// One that every domain shares.
    Plain,
}

impl Role {
    /// Whether the credit for a short page changes it: a site's short pages say nothing about other sites.
    fn is_credited(self) -> bool {
        self != Self::Plain
    }

    /// Whether the recent pair is kept, so that a change of the site shows within a few attempts.
    fn is_recent(self) -> bool {
        matches!(self, Self::Domain | Self::Path | Self::Site)
    }
}

/// What an attempt changes and by how much, worked out once.
struct Moved {
    fetcher: FetcherId,
    kind: ContentKind,
    up: f64,
    what: Increment,
}

/// What attempts have shown.
#[derive(Debug)]
pub(crate) struct Evidence {
    decay: decay::Decay,
    entries: HashMap<u64, Entry, BuildHasherDefault<Hashed>>,
    global: Shared,
    flags: [Shared; 4],
    hints: [Shared; 4],
    depths: [Shared; DEPTHS],
    tags: Tags,
    cap: evict::Cap,
    suffixes: FileSuffixes,
    /// Attempts before this may be missing among the days, in milliseconds; `i64::MIN` when none are.
    days_since_ms: AtomicI64,
}

/// What one key (a domain, a suffix ...) takes in memory, by the sizes of its types; the map's slot comes on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// Bytes of a cell: what is known of one fetcher under one key.
    pub cell_bytes: usize,
    /// Bytes of an entry with the cells in itself.
    pub entry_bytes: usize,
    /// How many cells an entry has in itself before it asks for more memory.
    pub entry_cells: usize,
}

/// The layout of this build, for whoever plans or measures memory.
pub const fn layout() -> Layout {
    Layout { cell_bytes: size_of::<Cell>(), entry_bytes: size_of::<Entry>(), entry_cells: entry::INLINE_CELLS }
}

/// Keeps the entries that were found from being freed while they are read. Cheap to take, and no lock.
pub(crate) type Guard<'e> = papaya::LocalGuard<'e>;

impl Evidence {
    /// Without anything in it. With `keys_max`, the least attempted keys go beyond so many.
    pub(crate) fn new(decay: decay::Decay, keys_max: Option<usize>, suffixes: FileSuffixes) -> Self {
        let entries = HashMap::builder()
            .hasher(BuildHasherDefault::default())
            // Incremental resizing makes each read check two tables for as long as it lasts; measured ten times slower.
            .resize_mode(ResizeMode::Blocking)
            .build();
        Self {
            decay,
            entries,
            global: Shared::default(),
            flags: Default::default(),
            hints: Default::default(),
            depths: Default::default(),
            tags: Tags::new(),
            cap: evict::Cap::new(keys_max),
            suffixes,
            days_since_ms: AtomicI64::new(i64::MIN),
        }
    }

    pub(crate) fn decay(&self) -> &decay::Decay {
        &self.decay
    }

    #[cfg(feature = "journal")]
    pub(crate) fn file_suffixes(&self) -> &FileSuffixes {
        &self.suffixes
    }

    /// File or page: which of the two kinds of cells tell of a URL.
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

    /// The entry of `key`, made if there is none; `at` is the present.
    pub(crate) fn entry_or_new<'g>(&self, key: Key, at: Timestamp, guard: &'g Guard<'_>) -> &'g Entry {
        if let Some(entry) = self.entry(key, guard) {
            return entry;
        }
        let entry = self.entries.get_or_insert_with(key.0, Entry::default, guard);
        self.make_room(key, at);
        entry
    }

    pub(crate) fn global(&self) -> &Entry {
        &self.global
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

    /// Adds what `attempt` shows. An attempt of weight 0 moves no weight; the days of its domain count it. Cost: a map look-up for each heuristic and an atomic addition
    /// for each weight; allocates only where it is the first of its key.
    pub(crate) fn observe(&self, attempt: &impl Observed, registry: &Registry) {
        if let Some(voice) = self.learn(self, attempt, registry, Writers::Many) {
            self.hear(&voice);
        }
    }

    /// As [`observe`](Self::observe), for one of several threads that learn much at once, each from all attempts of its domains
    /// and nobody else from any: the cells that domains share are in `shared`, and little has to be done in one step. What the attempt
    /// says about the tags of its host is returned: tags listen to attempts in the order of the log.
    #[cfg(feature = "journal")]
    pub(crate) fn observe_apart(&self, shared: &Self, attempt: &impl Observed, registry: &Registry) -> Option<Voice> {
        self.learn(shared, attempt, registry, Writers::One)
    }

    fn learn(&self, shared: &Self, attempt: &impl Observed, registry: &Registry, writers: Writers) -> Option<Voice> {
        let Some(moved) = self.moved_by(attempt, registry) else {
            self.count_day_of(attempt);
            return None;
        };
        let showing = self.showing(attempt);
        let (mut voice, is_foreign) = (None, attempt.is_foreign());
        let Facts { at, success, is_banned, .. } = attempt.facts();
        self.each_cell_of(
            shared,
            attempt,
            &moved,
            |_| true,
            |entry, cell, role| {
                // Which site a domain is of may have been known otherwise when the attempt was recorded.
                let writers = if role == Role::Site { Writers::Many } else { writers };
                let is_late = is_foreign && cell.is_past(at);
                if role == Role::Domain && showing.was_tagged() && !is_late {
                    voice = showing.voice(cell, &moved);
                }
                cell.add(&self.decay, moved.up, &moved.what, role.is_recent() && !is_late, writers);
                if role == Role::Domain {
                    if let Some(day) = Day::of(at, is_banned) {
                        entry.days.add(day);
                    }
                    // A counter that seeds a hash; a stale value seeds it with the value before.
                    writers.count(&entry.attempts);
                    if (is_banned || success) && !is_late {
                        entry.update_breaker(moved.fetcher, at, is_banned);
                    }
                }
            },
        );
        if let Some(credit) = Self::credited(attempt, registry, &moved) {
            self.each_cell_of(shared, attempt, &credit, Role::is_credited, |_, cell, role| {
                let writers = if role == Role::Site { Writers::Many } else { writers };
                cell.credit(credit.up, role.is_recent() && !(is_foreign && cell.is_past(at)), writers);
            });
        }
        self.remember(attempt, &showing, &moved, registry);
        voice
    }

    /// As [`observe`](Self::observe), of what belongs to no one domain alone: neither the attempt's domain nor its site learns, nor do
    /// tags, which speak of what a host showed before.
    #[cfg(feature = "journal")]
    pub(crate) fn observe_general(&self, attempt: &impl Observed, registry: &Registry) {
        let Some(moved) = self.moved_by(attempt, registry) else { return };
        self.each_cell_of(
            self,
            attempt,
            &moved,
            |role| role == Role::Plain,
            |_, cell, role| cell.add(&self.decay, moved.up, &moved.what, role.is_recent(), Writers::Many),
        );
    }

    /// Who is credited by an attempt that rendered a page and found no more text than the plain answer before it: the fetcher that had
    /// brought that answer. Its attempt was recorded as a failure, and is turned into a success on this domain, path, suffix and
    /// site.
    fn credited(attempt: &impl Observed, registry: &Registry, moved: &Moved) -> Option<Moved> {
        let mut credited = None;
        attempt.each_heuristic(&mut |kind, value| {
            if kind == SHORT_PAGE && value != SHORT_PAGE_TRUE {
                credited = registry.find(value);
            }
        });
        let fetcher = credited.filter(|id| *id != moved.fetcher && moved.what.success)?;
        let what = Increment { weight: 1.0, blocked: false, duration_ms: 0.0, ..moved.what };
        Some(Moved { fetcher, what, ..*moved })
    }

    /// Reads a little of the entries of the domains (and sites) with these hashes, so that the processor fetches them from memory.
    /// With many domains they are in no cache, and to ask for all of them at once takes the time of one.
    #[cfg(feature = "journal")]
    pub(crate) fn touch(&self, hashes: &[u64]) {
        let guard = self.guard();
        hashes.iter().filter_map(|hash| self.entries.get(hash, &guard)).for_each(Entry::touch);
    }

    fn moved_by(&self, attempt: &impl Observed, registry: &Registry) -> Option<Moved> {
        let facts = attempt.facts();
        if facts.weight <= 0.0 || !facts.weight.is_finite() {
            return None;
        }
        Some(Moved {
            fetcher: registry.intern(facts.fetcher)?,
            kind: facts.kind.unwrap_or_else(|| self.suffixes.kind(suffix_of(facts.url))),
            up: self.decay.up(facts.at),
            what: Increment {
                at: facts.at,
                weight: facts.weight.min(1.0),
                success: facts.success,
                blocked: facts.is_banned,
                duration_ms: facts.duration_ms as f64,
            },
        })
    }

    /// Calls `f` with each cell that `attempt` moves and whose role `wants` it, made where there is none yet.
    fn each_cell_of(
        &self,
        shared: &Self,
        attempt: &impl Observed,
        moved: &Moved,
        wants: impl Fn(Role) -> bool,
        mut f: impl FnMut(&Entry, &Cell, Role),
    ) {
        let mut visit = |entry: &Entry, level: Level, part: u64, role: Role| {
            if let Some(cell) = entry.claim(Group::new(level, moved.kind, part), moved.fetcher) {
                f(entry, cell, role);
            }
        };
        let (guard, shared_guard, at) = (self.guard(), shared.guard(), moved.what.at);
        if wants(Role::Plain) {
            visit(&shared.global, Level::Own, 0, Role::Plain);
            if let Some(hint) = attempt.facts().hint {
                visit(shared.hint(hint), Level::Own, 0, Role::Plain);
            }
        }
        // Domain, path and suffix are in one entry, which a map of many is slow to find.
        let domain = domain_of(attempt);
        let own = domain.filter(|_| wants(Role::Domain)).map(|name| self.entry_or_new(Key::domain(name), at, &guard));
        if let Some(entry) = own {
            visit(entry, Level::Own, 0, Role::Domain);
        }
        let mut site = None;
        attempt.each_heuristic(&mut |kind, value| {
            // Sections and suffixes of another domain than the attempt's, which only an import can have, teach nothing.
            let mut part = |level, role| {
                if let (Some(entry), Some((of, part))) = (own, value.split_once('|'))
                    && domain == Some(of)
                {
                    visit(entry, level, part_hash(part), role);
                }
            };
            match kind {
                "domain" => {}
                "domain_path" => part(Level::Path, Role::Path),
                "domain_suffix" => part(Level::Suffix, Role::Suffix),
                "site" => site = Some(value),
                // What a host showed is kept in its entry and in the rows of tags.
                HOST_SHOWED | HOST_SHOWS => {}
                _ if !wants(Role::Plain) => {}
                _ => match shared.fixed(kind, value) {
                    Some(entry) => visit(entry, Level::Own, 0, Role::Plain),
                    None => {
                        visit(shared.entry_or_new(Key::of(kind, value), at, &shared_guard), Level::Own, 0, Role::Plain)
                    }
                },
            }
        });
        // A site's weights are kept in two parts: those of the domain of its name, and those of its other domains.
        if let Some(site) = site.filter(|_| site != domain && wants(Role::Site)) {
            let key = Key::domain(site);
            visit(self.entry_or_new(key, at, &guard), Level::Site, 0, Role::Site);
            if let Some(entry) = own {
                entry.set_site(key.0);
            }
        }
    }

    /// The entry at a fixed place, for the few keys that have one.
    fn fixed(&self, kind: &str, value: &str) -> Option<&Entry> {
        let shared = match kind {
            "domain" | "site" => None,
            "path_depth" => value.parse::<u32>().ok().and_then(|depth| self.depths.get(depth as usize)),
            _ => FLAGS.iter().position(|flag| *flag == kind && value == "true").map(|flag| &self.flags[flag]),
        };
        shared.map(|shared| &**shared)
    }

    /// The exact weights of one heuristic and fetcher as of `now`, over files or pages. Source: `observe`.
    pub(crate) fn weights(
        &self,
        heuristic: (&str, &str),
        kind: ContentKind,
        fetcher: FetcherId,
        now: Timestamp,
    ) -> Weights {
        let guard = self.guard();
        let Some((entry, group)) = self.locate(heuristic, kind, &guard) else { return Weights::default() };
        let also = (heuristic.0 == "site").then(|| Group::new(Level::Site, kind, 0));
        let mut weights = Weights::default();
        entry.each_weights(group, also, self.decay.down(now), |id, read| {
            if id == fetcher {
                weights = *read;
            }
        });
        weights
    }

    /// The entry and group that a heuristic's cells are in.
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
                Some((self.entry(Key::domain(domain), guard)?, Group::new(level, page, part_hash(part))))
            }
            _ => match self.fixed(kind, value) {
                Some(entry) => Some((entry, own)),
                None => Some((self.entry(Key::of(kind, value), guard)?, own)),
            },
        }
    }
}
