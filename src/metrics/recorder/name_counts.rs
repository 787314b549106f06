//! Counts by a name from outside, such as a vendor's: a hash table of fixed size, without locks or
//! allocation.
//!
//! Invariants: a name keeps its slot. Names that find no slot, or are too long, are counted
//! together as "other".
//!
//! Must not know: what is counted.

use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

/// Longest name that gets a slot, in bytes.
const MAX_LENGTH: usize = 56;
const WORDS: usize = MAX_LENGTH / 8;
/// Name for all names without a slot.
const OTHER: &str = "other";
/// Length of a slot whose name is being written.
const WRITING: u64 = 0;

/// Counts by name.
#[derive(Debug)]
pub(crate) struct NameCounts<const N: usize> {
    slots: [NameSlot; N],
    other: AtomicU64,
}

/// Slot of a name.
#[derive(Debug, Default)]
struct NameSlot {
    /// Hash of the name; 0 while the slot is free.
    hash: AtomicU64,
    /// Length of the name, plus one; [`WRITING`] until the name is written.
    length: AtomicU64,
    name: [AtomicU64; WORDS],
    count: AtomicU64,
}

impl<const N: usize> Default for NameCounts<N> {
    fn default() -> Self {
        Self { slots: std::array::from_fn(|_| NameSlot::default()), other: AtomicU64::new(0) }
    }
}

impl<const N: usize> NameCounts<N> {
    /// Adds one to the count of `name`.
    pub(crate) fn add(&self, name: &str) {
        self.find(name).map_or(&self.other, |slot| &slot.count).fetch_add(1, Ordering::Relaxed);
    }

    fn find(&self, name: &str) -> Option<&NameSlot> {
        if name.len() > MAX_LENGTH || name == OTHER {
            return None;
        }
        let hash = xxh3_64(name.as_bytes()).max(1);
        let begin = (hash % N as u64) as usize;
        (0..N).map(|step| &self.slots[(begin + step) % N]).find(|slot| slot.is_of(hash, name))
    }

    /// Returns all names with their counts. The common count of names without a slot comes last.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.slots.iter().filter_map(NameSlot::read).collect();
        all.sort();
        match self.other.load(Ordering::Relaxed) {
            0 => {}
            other => all.push((OTHER.to_owned(), other)),
        }
        all
    }
}

impl NameSlot {
    /// Returns whether this is the slot of the name with this hash. A free slot is taken for it.
    /// Two names with the same 64-bit hash count as one.
    fn is_of(&self, hash: u64, name: &str) -> bool {
        match self.hash.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Err(taken) => taken == hash,
            Ok(_) => {
                for (word, bytes) in self.name.iter().zip(name.as_bytes().chunks(8)) {
                    let mut eight = [0; 8];
                    eight[..bytes.len()].copy_from_slice(bytes);
                    word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
                }
                // Release pairs with the Acquire in `read`: a reader that sees the length sees the
                // name.
                self.length.store(name.len() as u64 + 1, Ordering::Release);
                true
            }
        }
    }

    /// Returns the name, with control characters replaced, and its count.
    fn read(&self) -> Option<(String, u64)> {
        let length = self.length.load(Ordering::Acquire);
        if length == WRITING {
            return None;
        }
        let mut bytes: Vec<u8> =
            self.name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(length as usize - 1);
        let name = String::from_utf8_lossy(&bytes).replace(char::is_control, "\u{fffd}");
        Some((name, self.count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn names_without_a_slot_count_together() {
        let names = NameCounts::<4>::default();
        for name in ["a", "b", "a", "c", "d", "e", "f", "a"] {
            names.add(name);
        }
        names.add(&"x".repeat(MAX_LENGTH + 1));
        names.add("other");
        let all = names.all();
        assert_eq!(all.len(), 5);
        assert_eq!(all[0], ("a".to_owned(), 3));
        assert_eq!(all[4], ("other".to_owned(), 4));
    }

    #[test]
    fn names_come_back_whole_and_without_control_characters() {
        let names = NameCounts::<8>::default();
        let long = "ß".repeat(MAX_LENGTH / 2);
        for name in ["", "12345678", "a\"} 1\n# evil\r\u{7}", &long] {
            names.add(name);
        }
        let all: Vec<String> = names.all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(all, ["", "12345678", "a\"} 1\u{fffd}# evil\u{fffd}\u{fffd}", &long]);
    }

    #[test]
    fn concurrent_adds_lose_no_count() {
        let names = NameCounts::<16>::default();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..8_000).for_each(|n| names.add(&format!("vendor-{}", n % 20))));
            }
        });
        let all = names.all();
        assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>(), 64_000);
        assert_eq!(all.len(), 17);
        assert!(
            all[..16].iter().all(|(name, count)| name.starts_with("vendor-") && *count == 3_200),
            "{all:?}"
        );
    }
}
