//! When to look through a table for entries that it no longer needs.
//!
//! Invariants: a table is due when it has doubled since the last look, so a new entry costs a
//! constant number of steps, also while all entries are needed.
//!
//! Must not know: which entries a table needs.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Says when a table is due.
#[derive(Debug)]
pub struct SweepTrigger {
    least: usize,
    /// Number of entries above which the table is due. Relaxed everywhere: any thread may look, and
    /// some entries later is fine.
    above: AtomicUsize,
}

impl SweepTrigger {
    /// Returns the trigger of a table that may have `least` entries without any look.
    pub const fn new(least: usize) -> Self {
        Self { least, above: AtomicUsize::new(least) }
    }

    /// Returns whether a table of this length is due; of several threads that ask at once, one gets
    /// `true`. It calls [`done`](Self::done) after its look.
    pub fn is_due(&self, len: usize) -> bool {
        let above = self.above.load(Ordering::Relaxed);
        let next = len.saturating_mul(2);
        len > above
            && self
                .above
                .compare_exchange(above, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Records that the table has this length after a look.
    pub fn done(&self, len: usize) {
        self.above.store(len.saturating_mul(2).max(self.least), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_due_when_it_has_doubled() {
        let sweep = SweepTrigger::new(100);
        let (mut len, mut looked_at) = (0, 0);
        for _ in 0..10_000 {
            len += 1;
            if sweep.is_due(len) {
                looked_at += len;
                sweep.done(len);
            }
        }
        assert!((10_000..20_000).contains(&looked_at), "{looked_at}");
        assert!(!sweep.is_due(len));
        sweep.done(10);
        assert_eq!((sweep.is_due(100), sweep.is_due(101), sweep.is_due(101)), (false, true, false));
    }
}
