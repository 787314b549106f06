//! Eviction priority: keys that only peers over their quota introduced are evicted first.
//!
//! Owns: the part of each key's weight that came from these peers.
//!
//! Invariants: a key that any other node attempted has normal priority; there are never more low-priority keys than
//! keys; only evictions read priorities.
//!
//! Must not know: which peers are over their quota.

use papaya::HashMap;

use super::{Entry, Evidence, HOST_SHOWED, HOST_SHOWS, Key, Observation, SITE_SATURATED};
use crate::evidence::evidence_image::{EntryAddress, EvidenceImage};
use fetchwise_types::registry::Registry;

/// Relative difference below which weights differ only by the order of summation.
const ROUNDING: f64 = 1e-9;

/// The weight that peers over their quota added to each key, on the scale of the evidence.
#[derive(Debug, Default)]
pub(super) struct OverQuotaWeights(HashMap<u64, f64>);

impl OverQuotaWeights {
    /// Returns whether no other node has attempted a key of this weight.
    fn covers(&self, key: u64, weight: f64) -> bool {
        self.0.pin().get(&key).is_some_and(|brought| weight <= brought * (1.0 + ROUNDING))
    }

    fn add(&self, key: u64, weight: f64) {
        self.0.pin().update_or_insert(key, |known| known + weight, weight);
    }
}

impl Evidence {
    /// Returns whether a key of this weight is evicted before all others.
    pub(super) fn is_low_priority(&self, key: u64, weight: f64) -> bool {
        !self.key_limit.over_quota().0.is_empty() && self.key_limit.over_quota().covers(key, weight)
    }

    /// Returns the largest number of keys, if there is a limit.
    pub(crate) fn max_keys(&self) -> Option<usize> {
        self.key_limit.max()
    }

    /// Returns the number of low-priority keys.
    #[cfg(test)]
    pub(crate) fn low_priority_keys(&self) -> usize {
        self.key_limit.over_quota().0.len()
    }

    /// Removes low priority from keys that are gone or that other nodes have attempted since.
    pub(super) fn prune_low_priority(&self) {
        let guard = self.guard();
        let weight = |key: &u64| self.entries.get(key, &guard).map(Entry::weight);
        let over_quota = self.key_limit.over_quota();
        over_quota.0.pin().retain(|key, _| weight(key).is_some_and(|weight| over_quota.covers(*key, weight)));
    }

    /// Gives low priority to all keys of an image that is part of this evidence, unless another node has attempted
    /// them.
    pub(crate) fn mark_low_priority(&self, image: &EvidenceImage) {
        let Some(from) = image.decay.filter(|_| self.key_limit.max().is_some()) else { return };
        let (scale, guard) = (self.decay().rebase(&from), self.guard());
        let mut cells = &image.cells[..];
        for row in &image.entries {
            let (own, rest) = cells.split_at_checked(row.cells as usize).unwrap_or((cells, &[]));
            cells = rest;
            let brought = own.iter().map(|cell| cell.raw.total).sum::<f64>() * scale;
            let is_alone = |entry: &Entry| entry.weight() <= brought * (1.0 + ROUNDING);
            if row.address.kind == EntryAddress::MAP && self.entry(Key(row.address.key), &guard).is_some_and(is_alone) {
                self.key_limit.over_quota().0.pin().insert(row.address.key, brought);
            }
        }
    }

    /// Learns from `attempt` as [`observe`](Self::observe) does, and gives low priority to new keys. An attempt that
    /// another thread adds to one of them at the same time may be counted as this one's.
    pub(crate) fn observe_low_priority(&self, attempt: &impl Observation, registry: &Registry) {
        if self.key_limit.max().is_none() {
            return self.observe(attempt, registry);
        }
        let guard = self.guard();
        let weight = |key: Key| self.entry(key, &guard).map_or(0.0, Entry::weight);
        let mut keys = Vec::new();
        attempt.each_heuristic(&mut |kind, value| {
            // The entry of the domain holds the last two.
            let has_key = !matches!(kind, HOST_SHOWED | HOST_SHOWS | SITE_SATURATED | "domain_path" | "domain_suffix");
            let key = Key::of(kind, value);
            if has_key && self.fixed(kind, value).is_none() && keys.iter().all(|(known, _)| *known != key) {
                keys.push((key, weight(key)));
            }
        });
        self.observe(attempt, registry);
        for (key, before) in keys {
            if before <= 0.0 || self.is_low_priority(key.0, before) {
                self.key_limit.over_quota().add(key.0, weight(key) - before);
            }
        }
    }
}
