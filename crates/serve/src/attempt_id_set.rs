//! The set of the ids of all attempts in the log, eight bytes per id, so that a repeated attempt is recorded once.
//!
//! The set keeps a 64-bit hash of each id with a secret seed. Among ten million ids, two collide with a chance of one
//! in four hundred thousand. Clients do not know the seed and cannot construct collisions.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The set of known ids.
#[derive(Debug, Default)]
pub(crate) struct AttemptIdSet {
    seed: u64,
    /// The hashes that the last scan of the log found, sorted.
    old: Box<[u64]>,
    new: HashSet<u64, BuildHasherDefault<Unhashed>>,
}

impl AttemptIdSet {
    /// Creates an empty set.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds an id.
    pub(crate) fn insert(&mut self, id: Uuid) {
        let hash = self.hash(id);
        self.new.insert(hash);
    }

    /// Returns whether the id is known.
    pub(crate) fn contains(&self, id: Uuid) -> bool {
        let hash = self.hash(id);
        self.new.contains(&hash) || self.old.binary_search(&hash).is_ok()
    }

    /// Takes over the ids that a scan of the log found.
    pub(crate) fn finish_scan(&mut self, old: ScannedIds) {
        self.old = old.hashes.into_boxed_slice();
    }

    /// Returns a collection for the ids that a scan of the log finds.
    pub(crate) fn begin_scan(&self) -> ScannedIds {
        ScannedIds { seed: self.seed, hashes: Vec::new() }
    }

    fn hash(&self, id: Uuid) -> u64 {
        xxh3_64_with_seed(id.as_bytes(), self.seed)
    }
}

/// The ids that a scan of the log found.
#[derive(Debug)]
pub(crate) struct ScannedIds {
    seed: u64,
    hashes: Vec<u64>,
}

impl ScannedIds {
    /// Adds one.
    pub(crate) fn add(&mut self, id: Uuid) {
        self.hashes.push(xxh3_64_with_seed(id.as_bytes(), self.seed));
    }

    /// Sorts the ids. This takes a moment, so callers do it before they lock anything.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.hashes.shrink_to_fit();
        self
    }
}

/// Keys are hashes already.
#[derive(Debug, Default)]
pub(crate) struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, 0);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_ids_are_known_and_others_are_not() {
        let mut ids = AttemptIdSet::new(7);
        let id = |n: u128| Uuid::from_u128(n);
        ids.insert(id(1));
        let mut found = ids.begin_scan();
        (10..1000).for_each(|n| found.add(id(n)));
        ids.finish_scan(found.sorted());
        assert!([1, 10, 999].iter().all(|n| ids.contains(id(*n))));
        assert!([2, 9, 1000].iter().all(|n| !ids.contains(id(*n))));
    }
}
