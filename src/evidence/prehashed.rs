//! Hashers for keys that are hashes already.

use std::hash::{BuildHasher, Hasher, RandomState};

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

/// Makes hashers that spread 64-bit keys by a secret of the process.
///
/// A site can name hosts whose hashes have equal bits, as many as it likes. In a map that uses them
/// unchanged they all want one slot. papaya gives up a slot after some steps, and with a table that
/// is half empty it then makes tables of the same size without end.
#[derive(Clone, Debug)]
pub(crate) struct SpreadingState {
    /// An odd number. The high bits of a product with it depend on all bits of the key.
    factor: u64,
}

/// A hasher of [`SpreadingState`].
pub(crate) struct SpreadingHasher {
    factor: u64,
    hash: u64,
}

impl Default for SpreadingState {
    fn default() -> Self {
        Self { factor: RandomState::new().hash_one(0_u8) | 1 }
    }
}

impl BuildHasher for SpreadingState {
    type Hasher = SpreadingHasher;

    #[inline]
    fn build_hasher(&self) -> SpreadingHasher {
        SpreadingHasher { factor: self.factor, hash: 0 }
    }
}

impl Hasher for SpreadingHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(xxh3_64_with_seed(bytes, self.hash));
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        // A map takes the low bits.
        self.hash = hash.wrapping_mul(self.factor).swap_bytes();
    }
}
