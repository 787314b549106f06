//! Who writes to an entry that may be evicted: nothing that is added to it may miss the copy that
//! an eviction makes.
//!
//! Owns: the count of writers in each entry, the mark that ends it, and the mark that the copy in
//! the tier is equal.
//!
//! A writer adds itself to the count, then looks at the mark in the same atomic step. An eviction
//! sets the mark only in the step in which the count is zero. These steps have one order, since
//! they are changes of one atomic. So either the writer came first, and the eviction takes another
//! entry; or the mark came first, and the writer leaves the entry alone and looks the key up again,
//! behind the lock under which keys are evicted and brought back.
//!
//! Invariants: with the mark set, nobody changes the entry. The eviction sees all that earlier
//! writers changed: each leaves with a Release, all later steps are changes of the same atomic and
//! continue its release sequence, and the mark is set with an Acquire. An entry with an equal copy
//! was not changed since it came back: who may have changed it removes that mark before it leaves,
//! so while somebody writes the entry is not evicted, and afterwards the mark is gone.
//!
//! Must not know: where copies go, and which entries are evicted.

use std::sync::atomic::{AtomicU16, Ordering};

/// The mark of an entry that is being evicted or has been.
const EVICTED: u16 = 1 << 15;
/// The mark of an entry whose copy in the tier is equal. The count is below it: a thread writes to
/// at most three entries at once, and no process has five thousand threads that record.
const COPIED: u16 = 1 << 14;

/// The number of threads that write to an entry, and the marks.
#[derive(Debug, Default)]
pub(super) struct WriterCount(AtomicU16);

impl WriterCount {
    /// Counts a writer. Returns whether there is an equal copy; `None`, and counts nobody, if the
    /// entry is evicted.
    pub(super) fn enter(&self) -> Option<bool> {
        // Acquire: what the writer does next stays behind this.
        let before = self.0.fetch_add(1, Ordering::Acquire);
        if before & EVICTED != 0 {
            self.leave();
            return None;
        }
        Some(before & COPIED != 0)
    }

    /// Says that the copy is no longer equal. Called by a writer, before it leaves.
    pub(super) fn outdate_copy(&self) {
        // Relaxed: an eviction looks at the mark in the atomic step in which it finds no writer,
        // and that comes after this writer's leave.
        self.0.fetch_and(!COPIED, Ordering::Relaxed);
    }

    /// Says that there is an equal copy of an entry that nobody else has yet.
    pub(super) fn set_copied(&self) {
        self.0.fetch_or(COPIED, Ordering::Relaxed);
    }

    /// Returns whether there is an equal copy. Called when nobody writes.
    pub(super) fn is_copied(&self) -> bool {
        self.0.load(Ordering::Relaxed) & COPIED != 0
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Marks the entry as evicted if nobody writes. Returns whether it did.
    pub(super) fn close(&self) -> bool {
        // Relaxed: the exchange compares again.
        let seen = self.0.load(Ordering::Relaxed);
        let nobody_writes = seen & !COPIED == 0;
        nobody_writes
            && self
                .0
                .compare_exchange(seen, seen | EVICTED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Removes that mark: the entry stays. Writers may be on their way out, so the count stays as
    /// it is.
    pub(super) fn reopen(&self) {
        self.0.fetch_and(!EVICTED, Ordering::Release);
    }
}
