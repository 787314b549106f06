//! Estimate of how many keys a replay will find, from how many its first attempts brought. The map
//! of evidence is made that large in one step, because each doubling moves every key.
//!
//! Owns: the estimate, and when it is made.
//!
//! Invariants: one thread makes each estimate, and no thread waits for it. Attempts at few sites
//! lead to a small one: it assumes that all sites are attempted equally often, which is never too
//! much for a crawl that prefers some. A log that begins with a list of new sites cannot make it
//! more than a few times the keys that there are.
//!
//! Must not know: what a key is, who holds the keys.

use std::sync::atomic::{AtomicU64, Ordering};

/// The part of a replay after which the first estimate is made.
const FIRST_PART: u64 = 32;
/// Fewer attempts than this say too little.
const LEAST: u64 = 32_768;
/// The most keys that are expected, as a multiple of those that there are. Later estimates can
/// raise it.
const MOST_TIMES: f64 = 4.0;

/// Progress of a replay, and when the next estimate is due.
#[derive(Debug)]
pub(super) struct KeyEstimate {
    first_seq: u64,
    records: u64,
    keys_before: u64,
    attempts: AtomicU64,
    /// Number of attempts at which the next estimate is due.
    due: AtomicU64,
}

impl KeyEstimate {
    /// Number of attempts that a thread counts by itself before it reports them.
    pub(super) const STEP: u64 = 256;

    /// Begins with a replay of about `records` records from `first_seq` on, and that many keys that
    /// are known already.
    pub(super) fn new(first_seq: u64, records: u64, keys_before: usize) -> Self {
        let due = AtomicU64::new((records / FIRST_PART).max(LEAST));
        Self {
            first_seq,
            records,
            keys_before: keys_before as u64,
            attempts: AtomicU64::new(0),
            due,
        }
    }

    /// Counts attempts that a thread has folded up to the record `seq`. Returns how many keys there
    /// will be, if it is time for that; `keys` returns how many there are.
    pub(super) fn count(
        &self,
        attempts: u64,
        seq: u64,
        keys: impl FnOnce() -> usize,
    ) -> Option<usize> {
        // Relaxed: the counts are approximate anyway, and only one thread gets past the exchange.
        let so_far = self.attempts.fetch_add(attempts, Ordering::Relaxed) + attempts;
        let due = self.due.load(Ordering::Relaxed);
        let is_due = so_far >= due
            && self
                .due
                .compare_exchange(due, so_far * 2, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        let read = seq.saturating_sub(self.first_seq).max(1);
        if !is_due || read >= self.records {
            return None;
        }
        let total = so_far as f64 * (self.records as f64 / read as f64);
        let (keys, before) = (keys() as f64, self.keys_before as f64);
        let expected = before + expected_keys(so_far as f64, (keys - before).max(0.0), total);
        Some(expected.min(MOST_TIMES * keys) as usize)
    }
}

/// Returns how many keys `total` attempts have, if `attempts` of them had `found`.
fn expected_keys(attempts: f64, found: f64, total: f64) -> f64 {
    let part = found / attempts;
    if part >= 1.0 {
        return part * total;
    }
    // Attempts that choose among `sites` at random find `sites * (1 - exp(-attempts / sites))` of
    // them. Solved for `attempts / sites` by halving: the part that is new falls from 1 to 0 as
    // that rises.
    let (mut low, mut high) = (0.0, 1.0 / part);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match new_part(middle) > part {
            true => low = middle,
            false => high = middle,
        }
    }
    let sites = attempts / high;
    sites * -(-total / sites).exp_m1()
}

/// Part of the attempts that were the first at their site, when there are `per_site` attempts per
/// site.
fn new_part(per_site: f64) -> f64 {
    if per_site == 0.0 { 1.0 } else { -(-per_site).exp_m1() / per_site }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Numbers in an unpredictable order, the same in each run (SplitMix64).
    struct Random(u64);

    impl Random {
        /// Returns a number from 0 to 1.
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Replays attempts at the sites that `site` draws. Returns the estimates, made after 1/32,
    /// 1/16, 1/8 and so on of the attempts, and the truth.
    fn replay(total: u64, mut site: impl FnMut(u64) -> u64) -> (Vec<f64>, f64) {
        let estimate = KeyEstimate::new(1, total, 0);
        let (mut seen, mut made) = (HashSet::new(), Vec::new());
        for n in 0..total {
            seen.insert(site(n));
            if (n + 1) % KeyEstimate::STEP == 0 {
                made.extend(
                    estimate.count(KeyEstimate::STEP, n + 1, || seen.len()).map(|keys| keys as f64),
                );
            }
        }
        (made, seen.len() as f64)
    }

    #[test]
    fn the_estimate_after_a_small_part_is_near_the_truth_for_sites_drawn_at_random() {
        let mut random = Random(1);
        for (sites, total) in [(1e6, 2 << 20), (65e3, 1 << 20), (5e5, 1 << 20)] {
            let (made, truth) = replay(total, |_| (random.unit() * sites) as u64);
            // The first ones may be too low, by design.
            let early = made[2];
            assert!((early / truth - 1.0).abs() < 0.1, "{sites}: {made:?} and {truth}");
        }
    }

    #[test]
    fn every_site_once_is_expected_to_go_on() {
        let (made, truth) = replay(1 << 20, |n| n);
        // A quarter of the way suffices, and half of the room is made before.
        assert!(
            made[2] > truth * 0.49
                && made[3..].iter().all(|keys| (keys / truth - 1.0).abs() < 0.01),
            "{made:?}"
        );
    }

    #[test]
    fn a_list_of_new_sites_at_the_beginning_does_not_ask_for_too_much() {
        let (made, truth) = replay(1 << 20, |n| n % (1 << 15));
        assert!(made.iter().all(|keys| *keys <= 4.0 * truth), "{made:?} and {truth}");
    }

    #[test]
    fn a_crawl_that_prefers_some_sites_reserves_no_more_than_it_needs() {
        let mut random = Random(2);
        // Few sites have most attempts.
        let (made, truth) = replay(1 << 20, |_| (random.unit().powi(4) * 1e6) as u64);
        assert!(made.iter().all(|keys| *keys <= truth * 1.02), "{made:?} {truth}");
        assert!(made[made.len() - 1] > truth / 2.0, "{made:?} {truth}");
        // Always the same hosts.
        let (made, _) = replay(1 << 20, |n| n % 1000);
        assert!(made.iter().all(|keys| *keys < 1100.0), "{made:?}");
    }

    #[test]
    fn a_short_replay_makes_no_estimate() {
        let estimate = KeyEstimate::new(1, 20_000, 0);
        assert_eq!(estimate.count(20_000, 20_000, || panic!("not asked for")), None);
    }
}
