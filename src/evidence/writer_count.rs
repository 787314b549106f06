//! Who writes to an entry that may be evicted: nothing that is added to it may miss the copy that
//! an eviction makes.
//!
//! Owns: the count of writers in each entry, and the mark that ends it.
//!
//! A writer adds itself to the count, then looks at the mark in the same atomic step. An eviction
//! sets the mark only in the step in which the count is zero. These steps have one order, since
//! they are changes of one atomic. So either the writer came first, and the eviction takes another
//! entry; or the mark came first, and the writer leaves the entry alone and looks the key up again,
//! behind the lock under which keys are evicted and brought back.
//!
//! Invariants: with the mark set, nobody changes the entry. The eviction sees all that earlier
//! writers changed: each leaves with a Release, all later steps are changes of the same atomic and
//! continue its release sequence, and the mark is set with an Acquire.
//!
//! Must not know: where copies go, and which entries are evicted.

use std::sync::atomic::{AtomicU16, Ordering};

/// The mark of an entry that is being evicted or has been. The count is below it: a thread writes
/// to at most three entries at once, and no process has ten thousand threads that record.
const EVICTED: u16 = 1 << 15;

/// The number of threads that write to an entry, and the mark.
#[derive(Debug, Default)]
pub(super) struct WriterCount(AtomicU16);

impl WriterCount {
    /// Counts a writer. Returns false, and counts nobody, if the entry is evicted.
    pub(super) fn enter(&self) -> bool {
        // Acquire: what the writer does next stays behind this.
        let is_open = self.0.fetch_add(1, Ordering::Acquire) < EVICTED;
        if !is_open {
            self.leave();
        }
        is_open
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Sets the mark if nobody writes. Returns whether it did.
    pub(super) fn close(&self) -> bool {
        self.0.compare_exchange(0, EVICTED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Removes the mark: the entry stays. Writers may be on their way out, so the count stays as it
    /// is.
    pub(super) fn reopen(&self) {
        self.0.fetch_and(!EVICTED, Ordering::Release);
    }
}
