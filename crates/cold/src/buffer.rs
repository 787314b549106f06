//! Entries in memory that are in no run yet.
//!
//! Owns: their order and how much memory they count for.
//!
//! Invariant: the newest value of a key replaces the older one.
//!
//! Must not know: when a buffer is full.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A value, or a tombstone.
pub(crate) type BufferedValue = Option<Arc<[u8]>>;

/// What an entry takes besides its value: its slot in the map, and the head of an allocation.
const ENTRY_BYTES: usize = 64;

/// Sorted entries.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    entries: BTreeMap<u64, BufferedValue>,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn insert(&mut self, key: u64, value: BufferedValue) {
        let len_of = |value: &BufferedValue| value.as_ref().map_or(0, |value| value.len());
        self.bytes += len_of(&value);
        match self.entries.insert(key, value) {
            Some(old) => self.bytes -= len_of(&old),
            None => self.bytes += ENTRY_BYTES,
        }
    }

    pub(crate) fn get(&self, key: u64) -> Option<&BufferedValue> {
        self.entries.get(&key)
    }

    /// Returns the first entry from `key` on.
    pub(crate) fn from(&self, key: u64) -> Option<(u64, &BufferedValue)> {
        self.entries.range(key..).next().map(|(key, value)| (*key, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The memory that it counts for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
