//! Which runs are merged: those of about the same size.
//!
//! Owns: the tiers of sizes.
//!
//! Invariants: merged runs follow each other in age; below [`FANOUT`] runs of a tier nothing is
//! due, so there are few runs, and each byte is written again once for each tier.
//!
//! Must not know: what is in a run.

use std::ops::Range;

/// The number of runs of one tier that are merged, and the ratio of sizes of two tiers.
pub(crate) const FANOUT: usize = 4;

/// Returns which runs to merge next, given their sizes from the oldest to the newest. Runs up to
/// `unit` bytes are in the lowest tier. A run has at least the tier of each newer run. Otherwise a
/// small old run would never be merged.
pub(crate) fn due_merge(sizes: &[u64], unit: u64) -> Option<Range<usize>> {
    let tier_of = |size: u64| (size / unit.max(1)).max(1).ilog(FANOUT as u64);
    let (mut end, mut tier) = (sizes.len(), 0);
    for at in (0..sizes.len()).rev() {
        let own = tier_of(sizes[at]);
        if own > tier {
            if end - (at + 1) >= FANOUT {
                return Some(at + 1..end);
            }
            (end, tier) = (at + 1, own);
        }
    }
    (end >= FANOUT).then_some(0..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_tier_are_merged_from_the_newest_tier_up() {
        for (sizes, due) in [
            (vec![], None),
            (vec![1, 1, 1], None),
            (vec![1, 1, 1, 1], Some(0..4)),
            (vec![40, 9, 3, 2, 1, 3], Some(2..6)),
            (vec![40, 9, 9, 3, 2, 1], None),
            (vec![20, 17, 16, 63, 5, 1, 1], Some(0..4)),
            // A small old run goes with the larger ones after it.
            (vec![1, 16, 17, 18, 1], Some(0..4)),
            (vec![300, 1, 16, 17, 1], None),
        ] {
            assert_eq!(due_merge(&sizes, 1), due, "{sizes:?}");
        }
    }

    #[test]
    fn few_runs_stay_and_each_byte_is_written_a_few_times() {
        let (mut sizes, mut written) = (Vec::new(), 0);
        for _ in 0..4096 {
            sizes.push(100);
            while let Some(range) = due_merge(&sizes, 100) {
                let size: u64 = sizes[range.clone()].iter().sum();
                written += size;
                sizes.splice(range, [size]);
            }
            assert!(sizes.len() <= 3 * 7, "{sizes:?}");
        }
        assert_eq!(written, 4096 * 100 * 6, "once for each tier");
    }
}
