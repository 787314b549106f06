//! The set of the ids of all attempts in the log, with what each says: sixteen bytes per attempt. A
//! repeated attempt is recorded once, and another attempt with a known id is noticed.
//!
//! The set keeps a 64-bit hash of each id with a secret seed. Among ten million ids, two collide
//! with a chance of one in four hundred thousand. Clients do not know the seed and cannot construct
//! collisions.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use fetchwise::journal::AttemptContent;

/// The set of known ids.
#[derive(Debug, Default)]
pub(crate) struct AttemptIdSet {
    seed: u64,
    /// The hashes that the last scan of the log found, sorted.
    old: Box<[(u64, AttemptContent)]>,
    new: HashMap<u64, AttemptContent, BuildHasherDefault<Unhashed>>,
}

impl AttemptIdSet {
    /// Creates an empty set.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds an id, unless it is known.
    pub(crate) fn insert(&mut self, id: Uuid, content: AttemptContent) {
        let hash = self.hash(id);
        self.new.entry(hash).or_insert(content);
    }

    /// Returns what the attempt with this id says, if it is known.
    pub(crate) fn get(&self, id: Uuid) -> Option<AttemptContent> {
        let hash = self.hash(id);
        let old = || {
            self.old
                .binary_search_by_key(&hash, |(hash, _)| *hash)
                .ok()
                .map(|place| self.old[place].1)
        };
        self.new.get(&hash).copied().or_else(old)
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
    hashes: Vec<(u64, AttemptContent)>,
}

impl ScannedIds {
    /// Adds one.
    pub(crate) fn add(&mut self, id: Uuid, content: AttemptContent) {
        self.hashes.push((xxh3_64_with_seed(id.as_bytes(), self.seed), content));
    }

    /// Sorts the ids. This takes a moment, so callers do it before they lock anything.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        // Stable: of two attempts with one id, the first one counts.
        self.hashes.sort_by_key(|(hash, _)| *hash);
        self.hashes.dedup_by_key(|(hash, _)| *hash);
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
    use fetchwise::attempt::Attempt;
    use fetchwise::time::Timestamp;

    #[test]
    fn old_and_new_ids_are_known_with_what_they_say_and_others_are_not() {
        let url = url::Url::parse("https://example.org/").unwrap();
        let content = |at: i64| {
            let attempt =
                Attempt::new(&url, "mine", Timestamp::from_millis(at * 1_000_000_000)).unwrap();
            AttemptContent::of(&attempt).unwrap()
        };
        let mut ids = AttemptIdSet::new(7);
        let id = |n: u128| Uuid::from_u128(n);
        ids.insert(id(1), content(1));
        ids.insert(id(1), content(9));
        let mut found = ids.begin_scan();
        (10..1000).for_each(|n| found.add(id(n), content(2)));
        found.add(id(20), content(9));
        ids.finish_scan(found.sorted());
        assert_eq!(ids.get(id(1)), Some(content(1)));
        assert!([10, 20, 999].iter().all(|n| ids.get(id(*n)) == Some(content(2))));
        assert!([2, 9, 1000].iter().all(|n| ids.get(id(*n)).is_none()));
    }
}
