//! Health of the files with evicted evidence.
//!
//! Owns: which operation on them fails now, how often each has failed, and the advice.
//!
//! Invariants: an operation fails until it succeeds again. Who reads or writes evidence on a disk
//! that works takes no lock for it.
//!
//! Must not know: what is read and written.

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fetchwise_cold::Error as ColdError;
use fetchwise_log::Health;

/// An operation on the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Entries that leave memory are written.
    Write,
    /// An entry is read back.
    Read,
    /// Files are merged.
    Merge,
}

impl Operation {
    const COUNT: usize = 3;

    /// Returns its name, as a verb.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Merge => "merge",
        }
    }

    /// Returns what its failure means, and what to do.
    fn advice(self, is_full: bool) -> &'static str {
        match (self, is_full) {
            (Self::Read, _) => {
                "decisions miss what cannot be read; restart fetchwise, which reads it from the log"
            }
            (_, true) => {
                "it stays in memory; free space in the data directory, and it is written then"
            }
            (_, false) => "it stays in memory until the disk accepts it; check the disk",
        }
    }
}

/// Failure of an operation.
#[derive(Debug)]
struct Failure {
    reason: Arc<str>,
    is_full: bool,
}

/// What fails at the files with evicted evidence.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    failing: Mutex<[Option<Failure>; Operation::COUNT]>,
    /// A bit for each operation that fails.
    marks: AtomicU64,
    failed_merges: AtomicU64,
}

impl StoreHealth {
    /// Takes note of a failure. Returns whether the operation worked before.
    pub(super) fn failed(&self, what: Operation, error: &ColdError) -> bool {
        let is_full = is_full(error);
        let advice = what.advice(is_full);
        let reason = format!("evidence on disk: {error}: {advice}").into();
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed, here and below: the mark is set and removed under the lock. Who sees an earlier
        // one takes the lock in vain, or removes the failure with its next success.
        let before = self.marks.fetch_or(1 << what as u64, Ordering::Relaxed);
        if what == Operation::Merge {
            self.failed_merges.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(slot) = failing.get_mut(what as usize) {
            *slot = Some(Failure { reason, is_full });
        }
        before & 1 << what as u64 == 0
    }

    /// Takes note of a success.
    pub(super) fn succeeded(&self, what: Operation) {
        if self.marks.load(Ordering::Relaxed) & 1 << what as u64 == 0 {
            return;
        }
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        self.marks.fetch_and(!(1 << what as u64), Ordering::Relaxed);
        if let Some(slot) = failing.get_mut(what as usize) {
            *slot = None;
        }
    }

    /// Returns the health.
    pub(super) fn get(&self) -> Health {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match failing.iter().flatten().next() {
            Some(Failure { reason, is_full }) => {
                Health::Degraded { reason: Arc::clone(reason), storage_full: *is_full }
            }
            None => Health::Good,
        }
    }

    /// Returns how many merges have failed.
    #[cfg(feature = "metrics")]
    pub(super) fn failed_merges(&self) -> u64 {
        self.failed_merges.load(Ordering::Relaxed)
    }
}

fn is_full(error: &ColdError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| {
        matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    })
}
