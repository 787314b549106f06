//! Syncs of a store's directory, which make the names of its files durable.
//!
//! Invariant: a name counts as durable only if no sync has failed since it was made. A failed one
//! may have given it up, and then no later sync makes it durable.
//!
//! Must not know: what is synced.

use std::io;
use std::sync::{Mutex, PoisonError};

/// The syncs of one directory, one at a time.
#[derive(Debug, Default)]
pub(crate) struct DirSyncs {
    failed: Mutex<u64>,
}

impl DirSyncs {
    /// Returns how many syncs have failed: the time at which a name is made, by this clock. Ask
    /// before it is made.
    pub(crate) fn failed(&self) -> u64 {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a name durable that was made at this time, by `sync`, which ends with a sync of the
    /// directory.
    pub(crate) fn sync(
        &self,
        made_at: u64,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        sync().inspect_err(|_| *failed += 1)?;
        match *failed == made_at {
            true => Ok(()),
            false => Err(io::Error::other("an earlier sync of the directory has failed")),
        }
    }
}
