//! The bound on memory: beyond a configured number of keys, each new key evicts a few of the least
//! attempted ones, low-priority keys first.
//!
//! Owns: which keys are evicted.
//!
//! Invariants: a paused host is never evicted, and with a [cold tier](super::cold_tier) neither is
//! an entry that somebody writes to; a new key looks at a constant number of keys, and waits at
//! most for other new keys that do the same; readers are not affected; the same keys in the same
//! order evict the same ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use arrayvec::ArrayVec;

use super::entry_writers::EntryWriter;
use super::{Entry, Evidence, Guard, Key};
use crate::evidence::key_pool::{DRAWN, KeyPool};
use fetchwise_types::time::Timestamp;

/// Number of keys that are evicted at once, if there are too many. Each new key is one too many,
/// and some draws may find paused hosts only.
const EVICTED: usize = 3;
/// Number of keys for which a pool is made, so that threads rarely wait for each other.
const KEYS_PER_POOL: usize = 1024;
const MAX_POOLS: usize = 64;

/// The limit on the number of keys, and the number of evictions.
#[derive(Debug)]
pub(super) struct KeyLimit {
    max_keys: usize,
    /// The keys by their hash; none without a limit.
    pools: Box<[Mutex<KeyPool>]>,
    evicted: AtomicU64,
    #[cfg(test)]
    looked_at: AtomicU64,
    over_quota: crate::evidence::eviction_priority::OverQuotaWeights,
}

/// An entry could not be written to the cold tier. The next one could not either.
struct CannotWrite;

/// A key that may go.
struct Candidate {
    key: u64,
    is_low_priority: bool,
    weight: f64,
}

impl KeyLimit {
    pub(super) fn new(max_keys: Option<usize>) -> Self {
        let pools = max_keys.map_or(0, |keys| (keys / KEYS_PER_POOL).clamp(1, MAX_POOLS));
        Self {
            max_keys: max_keys.unwrap_or(usize::MAX),
            pools: (0..pools).map(|_| Mutex::default()).collect(),
            evicted: AtomicU64::new(0),
            #[cfg(test)]
            looked_at: AtomicU64::new(0),
            over_quota: crate::evidence::eviction_priority::OverQuotaWeights::default(),
        }
    }

    /// Returns the limit, if there is one.
    pub(super) fn max(&self) -> Option<usize> {
        Some(self.max_keys).filter(|max| *max < usize::MAX)
    }

    pub(super) fn over_quota(&self) -> &crate::evidence::eviction_priority::OverQuotaWeights {
        &self.over_quota
    }

    /// Returns the pool of a key; none without a limit.
    fn pool(&self, key: u64) -> Option<&Mutex<KeyPool>> {
        let pools = self.pools.len().max(1) as u64;
        self.pools.get((key % pools) as usize)
    }

    fn is_one_pool(&self, a: u64, b: u64) -> bool {
        let pools = self.pools.len().max(1) as u64;
        a % pools == b % pools
    }
}

impl Evidence {
    /// Returns the number of keys in the map.
    pub(crate) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of evicted keys.
    pub(crate) fn evicted(&self) -> u64 {
        // Relaxed: a statistic.
        self.key_limit.evicted.load(Ordering::Relaxed)
    }

    /// Returns the entry of a key that was not in memory a moment ago, for a change. If it still is
    /// not, adds the one that was evicted, or else the one of `new`, and evicts a few keys if there
    /// are too many. `at` is the present; hosts that are paused beyond it stay.
    pub(super) fn add_within_limit<'g>(
        &'g self,
        key: Key,
        at: Timestamp,
        guard: &'g Guard<'_>,
        new: impl FnOnce() -> Option<Entry>,
    ) -> Option<EntryWriter<'g>> {
        let Some(pool) = self.key_limit.pool(key.bits()) else {
            let added = self.entries.try_insert(key.bits(), new()?, guard);
            return self.writer_of(added.unwrap_or_else(|taken| taken.current));
        };
        // The pool is consistent even if a thread panicked with it.
        let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.entry(key, guard) {
            return self.writer_of(known);
        }
        let copy = self.read_back(key);
        let is_shared = copy.as_ref().is_some_and(Entry::may_be_shared);
        // Of papaya's ways to add a key, only this one helps along with a resize.
        let added = self.entries.try_insert(key.bits(), copy.or_else(new)?, guard);
        let writer = self.writer_of(added.unwrap_or_else(|taken| taken.current));
        let is_shared = self.make_room(&mut pool, key, at, guard) || is_shared;
        drop(pool);
        if is_shared {
            self.shared_version.change();
        }
        writer
    }

    /// Adds an entry that is not in memory, while there is room.
    pub(super) fn add_copy(&self, key: u64, copy: Entry, guard: &Guard<'_>) {
        let pool = self
            .key_limit
            .pool(key)
            .map(|pool| pool.lock().unwrap_or_else(PoisonError::into_inner));
        if self.entries.try_insert(key, copy, guard).is_ok()
            && let Some(mut pool) = pool
        {
            pool.add(key);
        }
    }

    /// Evicts a few keys after `newest` was added, if there are too many. Returns whether one of
    /// them may be a key that sites share.
    fn make_room(&self, pool: &mut KeyPool, newest: Key, at: Timestamp, guard: &Guard<'_>) -> bool {
        pool.add(newest.bits());
        if self.entries.len() <= self.key_limit.max_keys {
            return false;
        }
        let mut candidates = ArrayVec::<Candidate, { 2 * DRAWN }>::new();
        let mut look_at = |key: u64| {
            candidates.extend(self.candidate(key, at, guard).filter(|_| key != newest.bits()))
        };
        pool.draw().iter().for_each(|key| look_at(*key));
        self.draw_low_priority(guard, &mut look_at);
        // All weights are on one scale, so the least weight now is the least at any time.
        candidates.sort_unstable_by(|a, b| {
            b.is_low_priority.cmp(&a.is_low_priority).then(a.weight.total_cmp(&b.weight))
        });
        let evicted = candidates
            .iter()
            .map_while(|candidate| self.evict(candidate.key, newest, guard).ok())
            .flatten();
        let (count, is_shared) =
            evicted.take(EVICTED).fold((0, false), |(n, any), of_one| (n + 1, any | of_one));
        pool.drop_drawn(|key| self.entries.get(&key, guard).is_none());
        // Relaxed: a statistic.
        self.key_limit.evicted.fetch_add(count, Ordering::Relaxed);
        is_shared
    }

    /// Evicts a key. `newest` is the one for which there must be room: the lock of its pool is
    /// held. Returns whether the key may be one that sites share; nothing if it has to stay because
    /// others have to do with it now.
    fn evict(&self, key: u64, newest: Key, guard: &Guard<'_>) -> Result<Option<bool>, CannotWrite> {
        let Some(cold) = self.cold.get() else {
            self.forget_priority(key);
            return Ok(self.entries.remove(&key, guard).map(Entry::may_be_shared));
        };
        // A key of low priority may belong to another pool. Two threads that waited for each
        // other's would wait forever.
        let _other = match self
            .key_limit
            .pool(key)
            .filter(|_| !self.key_limit.is_one_pool(key, newest.bits()))
        {
            None => None,
            Some(pool) => match pool.try_lock() {
                Ok(held) => Some(held),
                Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => return Ok(None),
            },
        };
        let Some(entry) = self.entries.get(&key, guard).filter(|entry| entry.writers.close())
        else {
            return Ok(None);
        };
        if !cold.take(key, entry) {
            entry.writers.reopen();
            return Err(CannotWrite);
        }
        self.entries.remove(&key, guard);
        self.forget_priority(key);
        Ok(Some(entry.may_be_shared()))
    }

    /// Returns a key as a candidate; none if it is no longer there, or if its host is paused.
    fn candidate(&self, key: u64, at: Timestamp, guard: &Guard<'_>) -> Option<Candidate> {
        #[cfg(test)]
        self.key_limit.looked_at.fetch_add(1, Ordering::Relaxed);
        let entry = self.entries.get(&key, guard)?;
        if entry.paused_until().is_some_and(|until| until > at) {
            return None;
        }
        let weight = entry.weight();
        Some(Candidate { key, is_low_priority: self.is_low_priority(key, weight), weight })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::evidence::decay::Decay;
    use crate::evidence::{Entry, Group, Level};
    use crate::selector::{SelectContext, Selector};
    use fetchwise_types::attempt::Attempt;
    use fetchwise_types::heuristic::files::FileSuffixes;
    use fetchwise_types::heuristic::url::ContentKind;
    use fetchwise_types::registry::FetcherId;
    use url::Url;
    use xxhash_rust::xxh3::xxh3_64;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const MAX_KEYS: usize = 2000;

    fn bounded() -> Selector {
        Selector::builder().around(NOW).max_keys(MAX_KEYS).build().unwrap()
    }

    fn url(site: usize) -> Url {
        Url::parse(&format!("https://site{site}.org/")).unwrap()
    }

    /// Observes some attempts at each of these sites.
    fn visit(selector: &Selector, sites: Range<usize>, times: usize) {
        for site in sites {
            let attempt = Attempt::new(&url(site), "direct_access", NOW).unwrap().delivered();
            (0..times).for_each(|_| selector.observe(&attempt));
        }
    }

    fn known(selector: &Selector, sites: Range<usize>) -> Vec<usize> {
        let weight = |site: &usize| {
            let domain = ("domain", &*format!("site{site}.org"));
            selector.weights(domain, ContentKind::Page, "direct_access", NOW).total
        };
        sites.filter(|site| weight(site) > 0.0).collect()
    }

    #[test]
    fn ten_times_as_many_sites_as_the_limit_take_no_more_memory() {
        let selector = bounded();
        for site in 0..10 * MAX_KEYS {
            visit(&selector, site..site + 1, 2);
            assert!(selector.key_count() <= MAX_KEYS);
        }
        assert!(
            selector.key_count() > MAX_KEYS - 2 * EVICTED,
            "no more are evicted than necessary"
        );
        assert!(selector.evicted_keys() + selector.key_count() as u64 >= 10 * MAX_KEYS as u64);
    }

    /// With twice as many keys as its table had slots, a bounded map made new tables without end. A
    /// pass evicted keys of equal weight in the order of the map, so those that stayed were all in
    /// one part of it. papaya gives up a slot after some steps, and does not grow a table that is
    /// half empty. Small tables have no part that is long enough.
    #[test]
    fn a_large_map_takes_ten_times_as_many_keys_as_its_limit() {
        let max_keys = 10 * MAX_KEYS;
        let evidence = Evidence::new(
            Decay::new(30.0, NOW).unwrap(),
            Some(max_keys),
            FileSuffixes::default(),
            false,
        );
        for n in 0..10 * max_keys as u64 {
            evidence.entry_or_new(Key(xxh3_64(&n.to_le_bytes())), NOW, &evidence.guard());
        }
        assert!((max_keys - EVICTED..=max_keys).contains(&evidence.keys()));
        let looked_at = evidence.key_limit.looked_at.load(Ordering::Relaxed);
        assert!(
            looked_at <= (10 * max_keys * DRAWN) as u64,
            "a new key looks at {DRAWN}: {looked_at}"
        );
        let places: usize =
            evidence.key_limit.pools.iter().map(|pool| pool.lock().unwrap().len()).sum();
        assert_eq!(places, evidence.keys(), "evicted keys are not kept");
    }

    #[test]
    fn many_threads_keep_the_limit_alongside_pauses_and_readers() {
        let (selector, until) = (bounded(), NOW.saturating_add(Duration::from_secs(3600)));
        let paused = |n: usize| format!("paused{n}.org");
        (0..50).for_each(|n| selector.set_host_pause(&paused(n), Some(until)));
        let is_done = AtomicBool::new(false);
        let is_running = || !is_done.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|part| {
                    let sites = part * 5000..(part + 1) * 5000;
                    let selector = &selector;
                    scope.spawn(move || visit(selector, sites, 2))
                })
                .collect();
            scope.spawn(|| {
                for site in (0..20_000).cycle().take_while(|_| is_running()) {
                    selector.select(&url(site), &SelectContext::first_attempt(NOW)).unwrap();
                    assert_eq!(selector.host_pause(&paused(site % 50)), Some(until));
                }
            });
            scope.spawn(|| {
                for site in (0..20_000).cycle().take_while(|_| is_running()) {
                    let host = format!("site{site}.org");
                    selector.set_host_pause(&host, Some(until));
                    selector.set_host_pause(&host, None);
                }
            });
            let joined: Vec<_> =
                writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(joined.iter().all(Result::is_ok));
        });
        // Each thread may have added a key that the others did not see.
        assert!(selector.key_count() <= MAX_KEYS + 5, "{}", selector.key_count());
        assert!(
            (0..50).all(|n| selector.host_pause(&paused(n)) == Some(until)),
            "a paused host is never evicted"
        );
    }

    #[test]
    fn sites_with_more_attempts_stay() {
        let selector = bounded();
        visit(&selector, 0..200, 20);
        visit(&selector, 200..10 * MAX_KEYS, 1);
        assert_eq!(known(&selector, 0..200).len(), 200);
    }

    #[test]
    fn the_same_attempts_evict_the_same_sites() {
        let kept = || {
            let selector = bounded();
            visit(&selector, 0..3 * MAX_KEYS, 1);
            known(&selector, 0..3 * MAX_KEYS)
        };
        assert_eq!(kept(), kept());
    }

    /// Names can be made whose hashes begin alike: a hundred of them made new tables without end.
    #[test]
    fn keys_with_equal_bits_find_room() {
        for max_keys in [None, Some(MAX_KEYS)] {
            let evidence = Evidence::new(
                Decay::new(30.0, NOW).unwrap(),
                max_keys,
                FileSuffixes::default(),
                false,
            );
            let guard = evidence.guard();
            for n in 0..1000 {
                evidence.entry_or_new(Key(n << 40 | 7), NOW, &guard);
            }
            assert_eq!(evidence.keys(), 1000);
        }
    }

    #[test]
    fn a_domain_is_no_key_that_hosts_share() {
        let [domain, site, suffix] = [Entry::default(), Entry::default(), Entry::default()];
        domain.attempts.store(1, Ordering::Relaxed);
        site.claim(Group::new(Level::Site, ContentKind::Page, 0), FetcherId(0));
        suffix.claim(Group::new(Level::Own, ContentKind::Page, 0), FetcherId(0));
        assert_eq!([domain, site, suffix].map(|entry| entry.may_be_shared()), [false, false, true]);
    }
}
