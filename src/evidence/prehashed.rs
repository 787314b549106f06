//! A hasher for keys that are hashes already.

use std::hash::Hasher;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A hasher that returns 64-bit keys unchanged.
#[derive(Default)]
pub(crate) struct PrehashedHasher(u64);

impl Hasher for PrehashedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
