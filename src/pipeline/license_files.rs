//! The files of RSL that were read, by their address.
//!
//! Invariants: of all concurrent links that need a file, one requests it: the holder of its slot.
//! At most [`MAX_FILES`] are kept; beyond that the least recently needed ones are read again.
//!
//! Must not know: how a file is requested, and what it says.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use tokio::sync::Mutex as AsyncMutex;

use fetchwise_fetchers::robots::Unknown;
use fetchwise_types::consent::RslTerms;
use fetchwise_types::time::Timestamp;

/// The most files that are kept.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// The files so far.
#[derive(Debug)]
pub(super) struct LicenseFiles {
    slots: Mutex<LruCache<String, Arc<LicenseSlot>>>,
}

impl Default for LicenseFiles {
    fn default() -> Self {
        Self { slots: Mutex::new(LruCache::sparse(MAX_FILES)) }
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
        Arc::clone(slots.get_or_insert_ref(address, Arc::default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_the_least_recently_needed_file_goes() {
        let files = LicenseFiles::default();
        let slot = |n: usize| files.slot(&n.to_string());
        let [first, second] = [slot(0), slot(1)];
        (2..MAX_FILES.get()).for_each(|n| drop(slot(n)));
        assert!(Arc::ptr_eq(&first, &slot(0)));
        slot(MAX_FILES.get());
        assert!(Arc::ptr_eq(&first, &slot(0)) && !Arc::ptr_eq(&second, &slot(1)));
    }
}
