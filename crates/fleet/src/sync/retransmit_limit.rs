//! The limit of retransmissions: what requests of peers may make this node publish again.
//!
//! Owns: what was published again recently, and the budget for more.
//!
//! Invariants: however many requests arrive, no position is published again twice within a moment,
//! and no more than the budget per minute. A request that is refused is repeated by a node that
//! really misses something.
//!
//! Must not know: the content of positions, or who requests them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::position_set::Intervals;

/// The number of positions that may be published again per minute, and at once after a quiet
/// minute.
pub(crate) const MAX_PER_MINUTE: u64 = 500_000;
const MINUTE: Duration = Duration::from_secs(60);
/// The number of positions that a request costs at least, because each reads the log.
const MIN_COST: u64 = 32;
/// The time between evidence snapshots that are published because of requests, in times of the age
/// at which a gap is requested.
const SNAPSHOT_GAPS: u32 = 12;

/// The limit of one node.
#[derive(Debug)]
pub(crate) struct RetransmitLimit {
    /// The age at which a gap is requested.
    gap: Duration,
    /// What was published again, by epoch: since the last change of these two, and before that.
    recent: [BTreeMap<u32, Intervals>; 2],
    changed_at: Instant,
    budget: f64,
    filled_at: Instant,
    snapshot_at: Option<Instant>,
}

impl RetransmitLimit {
    pub(crate) fn new(gap: Duration) -> Self {
        let now = Instant::now();
        let recent = [BTreeMap::new(), BTreeMap::new()];
        Self {
            gap,
            recent,
            changed_at: now,
            budget: MAX_PER_MINUTE as f64,
            filled_at: now,
            snapshot_at: None,
        }
    }

    /// Returns the parts of a range that are to be published again now, and counts them.
    pub(crate) fn admit(
        &mut self,
        epoch: u32,
        (first, last): (u64, u64),
        now: Instant,
    ) -> Vec<(u64, u64)> {
        // A node that gets nothing asks again after a gap's age or later: then it is no longer
        // recent.
        if now.duration_since(self.changed_at) >= self.gap / 4 {
            self.recent.swap(0, 1);
            self.recent[0].clear();
            if now.duration_since(self.changed_at) >= self.gap / 2 {
                self.recent[1].clear();
            }
            self.changed_at = now;
        }
        let passed = now.duration_since(std::mem::replace(&mut self.filled_at, now)).as_secs_f64();
        let rate = MAX_PER_MINUTE as f64 / MINUTE.as_secs_f64();
        self.budget = (self.budget + passed * rate).min(MAX_PER_MINUTE as f64);
        let none = Intervals::default();
        let [newer, older] = [0, 1].map(|n| self.recent[n].get(&epoch).unwrap_or(&none));
        let missing = newer.holes(first, last).flat_map(|(from, to)| older.holes(from, to));
        let mut admitted = Vec::new();
        for (from, to) in missing {
            if self.budget < MIN_COST as f64 {
                break;
            }
            let to = to.min(from.saturating_add(self.budget as u64 - 1));
            self.budget -= (to - from + 1).max(MIN_COST) as f64;
            admitted.push((from, to));
        }
        if !admitted.is_empty() {
            let recent = self.recent[0].entry(epoch).or_default();
            admitted.iter().for_each(|(from, to)| recent.insert(*from, *to));
        }
        admitted
    }

    /// Returns whether an evidence snapshot may be published because of a request, and counts it.
    pub(crate) fn admits_snapshot(&mut self, now: Instant) -> bool {
        let is_due =
            self.snapshot_at.is_none_or(|at| now.duration_since(at) >= self.gap * SNAPSHOT_GAPS);
        if is_due {
            self.snapshot_at = Some(now);
        }
        is_due
    }

    /// Forgets what was published again: the stream is a different one.
    pub(crate) fn clear(&mut self) {
        self.recent.iter_mut().for_each(BTreeMap::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_secs(5);

    fn positions(ranges: &[(u64, u64)]) -> u64 {
        ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    #[test]
    fn overlapping_requests_are_merged() {
        let (mut limit, now) = (RetransmitLimit::new(GAP), Instant::now());
        assert_eq!(limit.admit(1, (10, 20), now), [(10, 20)]);
        assert_eq!(limit.admit(1, (11, 20), now), []);
        assert_eq!(limit.admit(1, (5, 25), now), [(5, 9), (21, 25)]);
        assert_eq!(limit.admit(2, (10, 20), now), [(10, 20)], "of another epoch");
        // The same node asks again after the age of a gap.
        assert_eq!(limit.admit(1, (5, 25), now + GAP), [(5, 25)]);
        limit.clear();
        assert_eq!(limit.admit(1, (5, 25), now + GAP), [(5, 25)]);
    }

    #[test]
    fn a_minute_has_a_budget() {
        let (mut limit, begun) = (RetransmitLimit::new(GAP), Instant::now());
        let mut sent = 0;
        // A request for the whole log, each time a little different, for two minutes.
        for n in 0..24_000u64 {
            sent += positions(&limit.admit(
                1,
                (1 + n, 3_000_000 + n),
                begun + Duration::from_millis(5 * n),
            ));
        }
        assert!(sent <= 3 * MAX_PER_MINUTE, "{sent}");
        assert!(sent >= 2 * MAX_PER_MINUTE, "the budget is not used: {sent}");
        // Single positions cost more than they weigh.
        let mut limit = RetransmitLimit::new(GAP);
        let reads = (0..100_000)
            .filter(|n| !limit.admit(1, (n * 2, n * 2), begun).is_empty())
            .count() as u64;
        assert_eq!(reads, MAX_PER_MINUTE / MIN_COST);
    }

    #[test]
    fn requested_snapshots_are_rare() {
        let (mut limit, begun) = (RetransmitLimit::new(GAP), Instant::now());
        let times = (0..3600)
            .filter(|second| limit.admits_snapshot(begun + Duration::from_secs(*second)))
            .count();
        assert_eq!(times, 60);
    }
}
