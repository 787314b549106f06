//! The files of RSL that were read, by their address.
//!
//! Invariants: of all concurrent links that need a file, one requests it: the holder of its slot. At most [`MAX_FILES`] are
//! kept; beyond that all are read again.
//!
//! Must not know: how a file is requested, and what it says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Mutex as AsyncMutex;

use fetchwise_fetchers::robots::Unknown;
use fetchwise_types::consent::RslTerms;
use fetchwise_types::time::Timestamp;

/// The most files that are kept.
const MAX_FILES: usize = 1000;

/// The files so far.
#[derive(Debug, Default)]
pub(super) struct LicenseFiles {
    slots: Mutex<HashMap<Box<str>, Arc<LicenseSlot>>>,
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
        if slots.len() >= MAX_FILES && !slots.contains_key(address) {
            slots.clear();
        }
        Arc::clone(slots.entry(address.into()).or_default())
    }
}
