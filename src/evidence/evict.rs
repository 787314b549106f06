//! The bound on memory: beyond a configured number of keys the least attempted ones are evicted, low-priority keys
//! first.
//!
//! Invariants: a paused host is never evicted; one thread evicts at a time and no thread waits for it; readers are not
//! affected.
//!
//! Cost: a pass over all keys for each tenth of the limit that is added, so a constant number of steps for each new
//! key.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Evidence, Key};
use fetchwise_types::time::Timestamp;

/// The limit on the number of keys, and the number of evictions.
#[derive(Debug)]
pub(super) struct KeyLimit {
    max_keys: usize,
    evicting: AtomicBool,
    evicted: AtomicU64,
    #[cfg(feature = "journal")]
    over_quota: crate::evidence::eviction_priority::OverQuotaWeights,
}

impl KeyLimit {
    pub(super) fn new(max_keys: Option<usize>) -> Self {
        Self {
            max_keys: max_keys.unwrap_or(usize::MAX),
            evicting: AtomicBool::new(false),
            evicted: AtomicU64::new(0),
            #[cfg(feature = "journal")]
            over_quota: crate::evidence::eviction_priority::OverQuotaWeights::default(),
        }
    }

    /// Returns the limit, if there is one.
    #[cfg(feature = "journal")]
    pub(super) fn max(&self) -> Option<usize> {
        Some(self.max_keys).filter(|max| *max < usize::MAX)
    }

    #[cfg(feature = "journal")]
    pub(super) fn over_quota(&self) -> &crate::evidence::eviction_priority::OverQuotaWeights {
        &self.over_quota
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

    /// Evicts keys after `newest` was added: a tenth of the limit, so that the next keys cost nothing. `at` is the
    /// present; hosts that are paused beyond it stay.
    pub(super) fn make_room(&self, newest: Key, at: Timestamp) {
        let max_keys = self.key_limit.max_keys;
        // Acquire pairs with the Release at the end: the next thread to evict sees what this one has removed.
        if max_keys == usize::MAX
            || self.entries.len() <= max_keys
            || self.key_limit.evicting.swap(true, Ordering::Acquire)
        {
            return;
        }
        let guard = self.guard();
        let is_free = |until: Option<Timestamp>| until.is_none_or(|until| until <= at);
        // All weights are on one scale, so the least weight now is the least at any time.
        let mut weights: Vec<(bool, f64, u64)> = (self.entries.iter(&guard))
            .filter(|(key, entry)| **key != newest.bits() && is_free(entry.paused_until()))
            .map(|(key, entry)| (*key, entry.weight()))
            .map(|(key, weight)| (!self.is_low_priority(key, weight), weight, key))
            .collect();
        let surplus = self.entries.len().saturating_sub(max_keys - max_keys / 10).min(weights.len());
        if surplus > 0 {
            weights.select_nth_unstable_by(surplus - 1, |a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            for (_, _, key) in &weights[..surplus] {
                self.entries.remove(key, &guard);
            }
            // Suffixes and depths may be among them.
            self.shared_version.change();
            #[cfg(feature = "journal")]
            self.prune_low_priority();
            // Relaxed: a statistic.
            self.key_limit.evicted.fetch_add(surplus as u64, Ordering::Relaxed);
        }
        // Release pairs with the Acquire at the beginning.
        self.key_limit.evicting.store(false, Ordering::Release);
    }

    /// Returns false: without other nodes no key has low priority.
    #[cfg(not(feature = "journal"))]
    fn is_low_priority(&self, _: u64, _: f64) -> bool {
        false
    }
}
