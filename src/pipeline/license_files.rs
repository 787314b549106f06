//! The files of RSL that were read, by their address.
//!
//! Invariants: of all concurrent links that need a file, one requests it: the holder of its slot.
//! At most [`MAX_FILES`] are kept, and those that are being read; beyond that the least recently
//! needed ones are read again.
//!
//! Must not know: how a file is requested, and what it says.

use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use tokio::sync::Mutex as AsyncMutex;

use fetchwise_fetchers::robots::Unknown;
use fetchwise_types::consent::RslTerms;
use fetchwise_types::time::Timestamp;

/// The most files that are kept.
const MAX_FILES: usize = 1000;
/// The most slots that are looked at for one that nobody uses.
const MAX_LOOKS: usize = 8;

/// The files so far.
#[derive(Debug)]
pub(super) struct LicenseFiles {
    slots: Mutex<LruCache<String, Arc<LicenseSlot>>>,
}

impl Default for LicenseFiles {
    fn default() -> Self {
        Self { slots: Mutex::new(LruCache::unbounded()) }
    }
}

/// One file. The holder of the lock requests it; the others wait.
pub(super) type LicenseSlot = AsyncMutex<Option<LicenseFile>>;

/// The terms of a file, and the time at which they expire.
#[derive(Clone, Debug)]
pub(super) struct LicenseFile {
    pub(super) terms: Arc<RslTerms>,
    pub(super) until: Timestamp,
    /// The reason if its terms are unknown.
    pub(super) unknown: Option<Unknown>,
}

impl LicenseFiles {
    /// Returns the slot of the file at `address`.
    pub(super) fn slot(&self, address: &str) -> Arc<LicenseSlot> {
        // The map is consistent even if a thread panicked with it.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Arc::clone(slots.get_or_insert_ref(address, Arc::default));
        for _ in 0..MAX_LOOKS {
            if slots.len() <= MAX_FILES {
                break;
            }
            // The slot of a file that is being read stays: without it, another link would read the
            // file once more.
            if let Some((address, oldest)) = slots.pop_lru()
                && Arc::strong_count(&oldest) > 1
            {
                slots.put(address, oldest);
            }
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_the_least_recently_needed_file_goes() {
        let files = LicenseFiles::default();
        let slot = |n: usize| files.slot(&n.to_string());
        let is_known = |n: usize| files.slots.lock().unwrap().contains(&n.to_string());
        (0..MAX_FILES).for_each(|n| drop(slot(n)));
        drop(slot(0));
        drop(slot(MAX_FILES));
        assert!(is_known(0) && !is_known(1) && is_known(2));
    }

    /// The bug: a file that was being read lost its slot to others, and the next link read it at
    /// the same time.
    #[test]
    fn a_file_that_is_being_read_keeps_its_slot() {
        let files = LicenseFiles::default();
        let slot = |n: usize| files.slot(&n.to_string());
        let first = slot(0);
        (1..3 * MAX_FILES).for_each(|n| drop(slot(n)));
        assert!(Arc::ptr_eq(&first, &slot(0)));
        assert_eq!(files.slots.lock().unwrap().len(), MAX_FILES);
    }
}
