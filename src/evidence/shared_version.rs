//! The version of the evidence that all hosts share. Estimates made from that evidence are kept
//! until it changes.
//!
//! Writers change the version, because they know by how much a cell grows; a reader then needs a
//! single load. The version changes when the undecayed total of a shared cell crosses a line of a
//! grid whose lines lie 1/128 to 1/64 apart. A cell of 50 attempts therefore changes it with each
//! attempt, and one of a million with each ten thousand.
//!
//! Invariants: while the version is the same, no shared cell has grown by 1/64 or more, and none
//! has shrunk. With an exact version, no shared cell has changed at all.
//!
//! Must not know: what is made from the evidence.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a total below the lines of the grid: six bits of the mantissa stay.
const GRID_BITS: u32 = f64::MANTISSA_DIGITS - 1 - 6;

/// The version. It has separate cache lines, since every decision reads it and few attempts change
/// it.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct SharedVersion {
    value: AtomicU64,
    ignored_bits: u32,
}

impl SharedVersion {
    /// Returns the first version; an exact one changes with every change of a shared cell.
    pub(super) fn new(is_exact: bool) -> Self {
        Self { value: AtomicU64::new(0), ignored_bits: if is_exact { 0 } else { GRID_BITS } }
    }

    /// Returns whether a total has crossed a line of the grid.
    #[inline]
    pub(super) fn is_crossed(&self, before: f64, after: f64) -> bool {
        (before.to_bits() ^ after.to_bits()) >> self.ignored_bits != 0
    }

    /// Returns the version. Read it before the evidence.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        // Acquire pairs with the Release in `change`: a reader of the new version sees the change
        // that it is for.
        self.value.load(Ordering::Acquire)
    }

    /// Changes the version. Call it after the evidence has changed.
    pub(super) fn change(&self) {
        self.value.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_totals_cross_with_each_attempt_and_large_ones_after_a_sixty_fourth_at_the_latest() {
        let version = SharedVersion::new(false);
        for unit in [1.0, 0.37, 123.4] {
            assert!(
                (0..64).all(|n| version.is_crossed(f64::from(n) * unit, f64::from(n + 1) * unit))
            );
            let mut crossed = 64.0 * unit;
            for n in 64..100_000 {
                let (before, after) = (f64::from(n) * unit, f64::from(n + 1) * unit);
                assert!(after <= crossed * (1.0 + 1.0 / 64.0) + unit, "{crossed} to {after}");
                if version.is_crossed(before, after) {
                    crossed = after;
                }
            }
            assert!(crossed > 99_000.0 * unit * (1.0 - 1.0 / 64.0));
        }
        assert!(SharedVersion::new(true).is_crossed(1e6, 1e6 + 1e-9));
    }
}
