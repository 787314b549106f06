//! Eviction priority: keys that only peers over their quota introduced are evicted first.
//!
//! Owns: the part of each key's weight that came from these peers.
//!
//! Invariants: a key that any other node attempted has normal priority; evicted keys are not kept;
//! only evictions read priorities. Each eviction draws from the low-priority keys too, so they go
//! first however few they are.
//!
//! Must not know: which peers are over their quota.

use std::sync::{Mutex, PoisonError};

use papaya::HashMap;

use super::{Entry, Evidence, Guard, Key, Observation};
use crate::evidence::evidence_snapshot::{EntryAddress, EvidenceSnapshot};
use crate::evidence::key_pool::KeyPool;
use fetchwise_types::heuristic::is_mark;
use fetchwise_types::registry::Registry;

/// Relative difference below which weights differ only by the order of summation.
const ROUNDING: f64 = 1e-9;

/// The weight that peers over their quota added to each key, on the scale of the evidence.
#[derive(Debug, Default)]
pub(super) struct OverQuotaWeights {
    weights: HashMap<u64, f64>,
    /// The keys of the weights, of which random ones are drawn. Some may be gone.
    keys: Mutex<KeyPool>,
}

impl OverQuotaWeights {
    /// Returns whether no other node has attempted a key of this weight.
    fn covers(&self, key: u64, weight: f64) -> bool {
        self.weights.pin().get(&key).is_some_and(|brought| weight <= brought * (1.0 + ROUNDING))
    }

    /// Sets the weight of a key, given the one that it had.
    fn set(&self, key: u64, weight: impl Fn(f64) -> f64) {
        // The pool is consistent even if a thread panicked with it.
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let weights = self.weights.pin();
        let known = weights.get(&key).copied();
        if known.is_none() {
            keys.add(key);
        }
        weights.insert(key, weight(known.unwrap_or(0.0)));
    }
}

impl Evidence {
    /// Returns whether a key of this weight is evicted before all others.
    pub(super) fn is_low_priority(&self, key: u64, weight: f64) -> bool {
        !self.key_limit.over_quota().weights.is_empty()
            && self.key_limit.over_quota().covers(key, weight)
    }

    /// Returns the largest number of keys, if there is a limit.
    pub(crate) fn max_keys(&self) -> Option<usize> {
        self.key_limit.max()
    }

    /// Returns the number of low-priority keys.
    #[cfg(test)]
    pub(crate) fn low_priority_keys(&self) -> usize {
        self.key_limit.over_quota().weights.len()
    }

    /// Calls `visit` with random low-priority keys. Those of them that are gone, or that other
    /// nodes have attempted since, lose their low priority.
    pub(super) fn draw_low_priority(&self, guard: &Guard<'_>, visit: &mut dyn FnMut(u64)) {
        let over_quota = self.key_limit.over_quota();
        if over_quota.weights.is_empty() {
            return;
        }
        let mut keys = over_quota.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.draw().iter().for_each(|key| visit(*key));
        keys.drop_drawn(|key| {
            let weight = self.entries.get(&key, guard).map(Entry::weight);
            let has_lost = weight.is_none_or(|weight| !over_quota.covers(key, weight));
            if has_lost {
                self.forget_priority(key);
            }
            has_lost
        });
    }

    /// Forgets the priority of an evicted key.
    pub(super) fn forget_priority(&self, key: u64) {
        let over_quota = self.key_limit.over_quota();
        if !over_quota.weights.is_empty() {
            over_quota.weights.pin().remove(&key);
        }
    }

    /// Gives low priority to all keys of an image that is part of this evidence, unless another
    /// node has attempted them.
    pub(crate) fn mark_low_priority(&self, image: &EvidenceSnapshot) {
        let Some(from) = image.decay.filter(|_| self.key_limit.max().is_some()) else { return };
        let (scale, guard) = (self.decay().rebase(&from), self.guard());
        let mut cells = &image.cells[..];
        for row in &image.entries {
            let (own, rest) = cells.split_at_checked(row.cells as usize).unwrap_or((cells, &[]));
            cells = rest;
            let brought = own.iter().map(|cell| cell.raw.total).sum::<f64>() * scale;
            let is_alone = |entry: &Entry| entry.weight() <= brought * (1.0 + ROUNDING);
            if row.address.kind == EntryAddress::MAP
                && self.entry(Key(row.address.key), &guard).is_some_and(is_alone)
            {
                self.key_limit.over_quota().set(row.address.key, |_| brought);
            }
        }
    }

    /// Learns from `attempt` as [`observe`](Self::observe) does, and gives low priority to new
    /// keys. An attempt that another thread adds to one of them at the same time may be counted as
    /// this one's.
    pub(crate) fn observe_low_priority(&self, attempt: &impl Observation, registry: &Registry) {
        if self.key_limit.max().is_none() {
            return self.observe(attempt, registry);
        }
        let guard = self.guard();
        let weight = |key: Key| self.known(key, &guard).map_or(0.0, Entry::weight);
        let mut keys = Vec::new();
        attempt.each_heuristic(&mut |kind, value| {
            // The entry of the domain holds the last two.
            let has_key = !is_mark(kind) && !matches!(kind, "domain_path" | "domain_suffix");
            let key = Key::of(kind, value);
            if has_key
                && self.fixed(kind, value).is_none()
                && keys.iter().all(|(known, _)| *known != key)
            {
                keys.push((key, weight(key)));
            }
        });
        self.observe(attempt, registry);
        for (key, before) in keys {
            // A later key may have evicted an earlier one.
            if let Some(entry) = self.entry(key, &guard)
                && (before <= 0.0 || self.is_low_priority(key.0, before))
            {
                let brought = entry.weight() - before;
                self.key_limit.over_quota().set(key.0, |known| known + brought);
            }
        }
    }
}
