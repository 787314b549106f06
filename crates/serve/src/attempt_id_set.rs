//! The ids of all attempts in the log, eight bytes each: an attempt that is told of twice is recorded once.
//!
//! What is kept of an id is a hash of 64 bits with a secret seed. Two of ten million ids share one with a chance of one in four hundred
//! thousand, and nobody outside can make ids that do.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The ids that are known.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    seed: u64,
    /// Those that were in the log at the last look, in order.
    old: Box<[u64]>,
    new: HashSet<u64, BuildHasherDefault<Unhashed>>,
}

impl Ids {
    /// None yet.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Keeps one.
    pub(crate) fn insert(&mut self, id: Uuid) {
        let hash = self.hash(id);
        self.new.insert(hash);
    }

    /// Whether it is known.
    pub(crate) fn contains(&self, id: Uuid) -> bool {
        let hash = self.hash(id);
        self.new.contains(&hash) || self.old.binary_search(&hash).is_ok()
    }

    /// Takes over what a look at the log has found.
    pub(crate) fn found(&mut self, old: Found) {
        self.old = old.hashes.into_boxed_slice();
    }

    /// A place for what a look at the log finds.
    pub(crate) fn look(&self) -> Found {
        Found { seed: self.seed, hashes: Vec::new() }
    }

    fn hash(&self, id: Uuid) -> u64 {
        xxh3_64_with_seed(id.as_bytes(), self.seed)
    }
}

/// What a look at the log has found.
#[derive(Debug)]
pub(crate) struct Found {
    seed: u64,
    hashes: Vec<u64>,
}

impl Found {
    /// Adds one.
    pub(crate) fn add(&mut self, id: Uuid) {
        self.hashes.push(xxh3_64_with_seed(id.as_bytes(), self.seed));
    }

    /// Puts them in order, which takes a moment: before anything is locked.
    #[must_use]
    pub(crate) fn in_order(mut self) -> Self {
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
        let mut ids = Ids::new(7);
        let id = |n: u128| Uuid::from_u128(n);
        ids.insert(id(1));
        let mut found = ids.look();
        (10..1000).for_each(|n| found.add(id(n)));
        ids.found(found.in_order());
        assert!([1, 10, 999].iter().all(|n| ids.contains(id(*n))));
        assert!([2, 9, 1000].iter().all(|n| !ids.contains(id(*n))));
    }
}
