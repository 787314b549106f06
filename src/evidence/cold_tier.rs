//! The evidence about keys that left memory: kept elsewhere, and brought back before anything is
//! added to it.
//!
//! Owns: how entries leave memory and come back.
//!
//! Keys are evicted and brought back under the lock of their pool. Without it, a thread could read
//! a copy, another one could bring the entry back, add to it and have it evicted, and the first one
//! would put the older copy into memory. Writers to entries in memory take no lock: see
//! [`writer_count`](super::writer_count).
//!
//! Invariants: an entry is in memory or in the tier, and if in both, the one in memory is newer or
//! equal. An entry that cannot be written stays in memory. Decisions read memory only.
//!
//! Must not know: how the tier stores entries.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry_writers::EntryWriter;
use super::{Entry, Evidence, Guard, Key};
use fetchwise_types::time::Timestamp;

/// Where evicted entries are kept.
pub(crate) trait ColdTier: fmt::Debug + Send + Sync {
    /// Keeps a copy of an entry that nobody changes meanwhile. It replaces an earlier one.
    fn put(&self, key: u64, entry: &Entry) -> io::Result<()>;

    /// Returns the last copy.
    fn get(&self, key: u64) -> io::Result<Option<Entry>>;

    /// Calls `f` with the last copy of each key, by ascending key, as of the call, until it breaks.
    fn each_sorted(&self, f: &mut dyn FnMut(u64, Entry) -> ControlFlow<()>) -> io::Result<()>;

    /// Returns the tier itself, for who has set it.
    fn as_any(&self) -> &dyn Any;
}

/// The tier of some evidence, and counts of what happened there.
#[derive(Debug)]
pub(super) struct Cold {
    tier: Box<dyn ColdTier>,
    /// Number of keys that the tier began with.
    inherited: AtomicU64,
    brought_back: AtomicU64,
    failed_writes: AtomicU64,
    failed_reads: AtomicU64,
}

/// Counts of a tier that keeps evicted evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColdCounts {
    /// Entries that came back into memory.
    pub(crate) brought_back: u64,
    /// Entries that could not be written and stayed in memory.
    pub(crate) failed_writes: u64,
    /// Reads that failed: what they should have found is missing until the log is replayed.
    pub(crate) failed_reads: u64,
}

impl Cold {
    /// Writes an entry that is marked as evicted. Returns whether it may leave memory.
    pub(super) fn take(&self, key: u64, entry: &Entry) -> bool {
        // What came back and was not changed is there already.
        let is_taken = entry.writers.is_copied() || self.tier.put(key, entry).is_ok();
        if !is_taken {
            // Relaxed here and below: statistics.
            self.failed_writes.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Returns the copy of an entry that is not in memory.
    fn read(&self, key: u64) -> Option<Entry> {
        self.tier.get(key).unwrap_or_else(|_| {
            self.failed_reads.fetch_add(1, Ordering::Relaxed);
            None
        })
    }
}

impl Evidence {
    /// Keeps evicted entries in `tier` from now on, which has none yet. Call it before anything is
    /// learned. Changes nothing without a limit on the number of keys.
    pub(crate) fn keep_evicted_in(&self, tier: Box<dyn ColdTier>) {
        let none = || AtomicU64::new(0);
        let cold = Cold {
            tier,
            inherited: none(),
            brought_back: none(),
            failed_writes: none(),
            failed_reads: none(),
        };
        if self.max_keys().is_some() {
            let _ = self.cold.set(cold);
        }
    }

    /// Returns whether evicted entries are kept.
    #[inline]
    pub(crate) fn keeps_evicted(&self) -> bool {
        self.cold.get().is_some()
    }

    /// Returns the tier, if it is of this type.
    pub(crate) fn tier<T: ColdTier + 'static>(&self) -> Option<&T> {
        self.cold.get()?.tier.as_any().downcast_ref()
    }

    /// Takes note that the tier has `keys` entries already.
    pub(crate) fn inherit(&self, keys: u64) {
        if let Some(cold) = self.cold.get() {
            // Relaxed: nothing is learned yet.
            cold.inherited.store(keys, Ordering::Relaxed);
        }
    }

    /// Brings all entries of the tier into memory, which has room for them and no other ones.
    pub(crate) fn bring_all_back(&self) -> io::Result<()> {
        let Some(cold) = self.cold.get() else { return Ok(()) };
        let guard = self.guard();
        cold.tier.each_sorted(&mut |key, entry| {
            entry.writers.set_copied();
            self.add_copy(key, entry, &guard);
            cold.brought_back.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
    }

    /// Writes a copy of each entry in memory that has no equal one to the tier, which then has
    /// everything. Nobody may
    /// learn meanwhile.
    pub(crate) fn write_all_copies(&self) -> io::Result<()> {
        let Some(cold) = self.cold.get() else { return Ok(()) };
        let guard = self.guard();
        let mut changed = self.entries.iter(&guard).filter(|(_, entry)| !entry.writers.is_copied());
        changed.try_for_each(|(key, entry)| cold.tier.put(*key, entry))
    }

    /// Returns the counts of the tier.
    pub(crate) fn cold_counts(&self) -> ColdCounts {
        let Some(cold) = self.cold.get() else { return ColdCounts::default() };
        ColdCounts {
            brought_back: cold.brought_back.load(Ordering::Relaxed),
            failed_writes: cold.failed_writes.load(Ordering::Relaxed),
            failed_reads: cold.failed_reads.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of keys that were ever new, with those that were evicted and forgotten.
    pub(crate) fn keys_seen(&self) -> u64 {
        let inherited = self.cold.get().map_or(0, |cold| cold.inherited.load(Ordering::Relaxed));
        (self.keys() as u64 + self.evicted() + inherited)
            .saturating_sub(self.cold_counts().brought_back)
    }

    /// Returns the entry of `key`, brought back into memory if it was evicted. Not for decisions:
    /// it may take a lock and read a file.
    pub(crate) fn known<'g>(&'g self, key: Key, guard: &'g Guard<'_>) -> Option<&'g Entry> {
        self.entry(key, guard)
            .or_else(|| self.brought_back(key, guard).map(EntryWriter::into_unchanged))
    }

    /// Returns the entry of `key` for a change, as [`entry_or_new`](Self::entry_or_new) does, if
    /// there is one.
    pub(crate) fn entry_to_change<'g>(
        &'g self,
        key: Key,
        guard: &'g Guard<'_>,
    ) -> Option<EntryWriter<'g>> {
        self.entry(key, guard)
            .and_then(|entry| self.writer_of(entry))
            .or_else(|| self.brought_back(key, guard))
    }

    fn brought_back<'g>(&'g self, key: Key, guard: &'g Guard<'_>) -> Option<EntryWriter<'g>> {
        if !self.keeps_evicted() {
            return None;
        }
        // At the beginning of time no host that is or was paused has to go for this one.
        self.add_within_limit(key, Timestamp::default(), guard, || None)
    }

    /// Returns the copy of a key that is not in memory, to put it there. Called with the lock of
    /// the key's pool.
    pub(super) fn read_back(&self, key: Key) -> Option<Entry> {
        let cold = self.cold.get()?;
        let entry = cold.read(key.0)?;
        entry.writers.set_copied();
        cold.brought_back.fetch_add(1, Ordering::Relaxed);
        Some(entry)
    }

    /// Returns the writer of an entry in memory; `None` if the entry is being evicted.
    #[inline]
    pub(super) fn writer_of<'g>(&self, entry: &'g Entry) -> Option<EntryWriter<'g>> {
        if self.keeps_evicted() {
            EntryWriter::counted(entry)
        } else {
            Some(EntryWriter::uncounted(entry))
        }
    }

    /// Calls `f` with the entry of a key, in memory or not, and leaves it where it is. Returns
    /// nothing if there is no entry.
    pub(super) fn peek<T>(&self, key: u64, f: impl FnOnce(&Entry) -> T) -> Option<T> {
        if let Some(entry) = self.entries.get(&key, &self.guard()) {
            return Some(f(entry));
        }
        Some(f(&self.cold.get()?.read(key)?))
    }

    /// Calls `f` with each entry in memory and in the tier, by ascending key, until it breaks.
    pub(super) fn each_entry(&self, f: &mut dyn FnMut(u64, &Entry) -> ControlFlow<()>) {
        // Memory is listed first. An entry is in the tier before it leaves memory, so each is found
        // in one of them.
        let mut keys: Vec<u64> = self.entries.keys(&self.guard()).copied().collect();
        keys.sort_unstable();
        let mut keys = keys.into_iter().peekable();
        let peek = |key, f: &mut dyn FnMut(u64, &Entry) -> ControlFlow<()>| {
            self.peek(key, |entry| f(key, entry)).unwrap_or(ControlFlow::Continue(()))
        };
        if let Some(cold) = self.cold.get() {
            let mut ended = ControlFlow::Continue(());
            let read = cold.tier.each_sorted(&mut |key, copy| {
                while let Some(earlier) =
                    keys.next_if(|earlier| *earlier < key).filter(|_| ended.is_continue())
                {
                    ended = peek(earlier, f);
                }
                if ended.is_break() {
                    return ended;
                }
                // An entry that was in memory and has left it since is newer in the tier than this
                // copy.
                let was_in_memory = keys.next_if_eq(&key).is_some();
                ended = match self.entries.get(&key, &self.guard()) {
                    Some(entry) => f(key, entry),
                    None if was_in_memory => peek(key, f),
                    None => f(key, &copy),
                };
                ended
            });
            if read.is_err() {
                cold.failed_reads.fetch_add(1, Ordering::Relaxed);
            }
            if ended.is_break() {
                return;
            }
        }
        let _ = keys.try_for_each(|key| peek(key, f));
    }
}
