//! Replication of evidence: a selector receives the evidence of other processes, and retracts it.
//!
//! Owns: [`Replication`], the interface between a selector and a fleet.
//!
//! Must not know: where the evidence comes from, and which process to believe. Nothing here decides; the rules are
//! those of evidence.

use super::Selector;
use crate::error::Error;
use crate::evidence::evidence_image::CombineMode;
use crate::evidence::{EvidenceSnapshot, RemoteAttempt};
use fetchwise_types::heuristic::url::{ContentKind, suffix_of};
use fetchwise_types::time::Timestamp;

/// Exchanges evidence with other processes. [`Selector`] implements it; the crate `fetchwise-fleet` uses it.
///
/// The log is not involved: a caller that replicates evidence stores it itself. All functions may run while other
/// threads decide and record.
pub trait Replication: Sized {
    /// Returns a selector without evidence that has the same fetchers, half-life and kinds of files: to fold evidence
    /// separately.
    ///
    /// # Errors
    /// [`Error`], as [`SelectorBuilder::build`](super::SelectorBuilder::build).
    fn empty_copy(&self) -> Result<Self, Error>;

    /// Returns the half-life of its evidence, in milliseconds. Only evidence with the same half-life can be added.
    fn half_life_ms(&self) -> u64;

    /// Returns whether an attempt at this URL counts as one at a file.
    fn is_file(&self, url: &str) -> bool;

    /// Returns the maximum number of keys, if there is a limit.
    fn max_keys(&self) -> Option<usize>;

    /// Learns from an attempt of another process.
    fn receive_attempt(&self, attempt: &RemoteAttempt<'_>);

    /// Learns like [`receive_attempt`](Self::receive_attempt), but a late attempt counts as one in order: for a test
    /// that it must not.
    fn receive_attempt_in_order(&self, attempt: &RemoteAttempt<'_>);

    /// Learns like [`receive_attempt`](Self::receive_attempt), from a process that adds more keys than its quota. If
    /// there are too many keys, those that no other process has attempted are evicted first.
    fn receive_attempt_low_priority(&self, attempt: &RemoteAttempt<'_>);

    /// Learns only what an attempt says beyond its domain.
    fn receive_global_part(&self, attempt: &RemoteAttempt<'_>);

    /// Retracts an attempt of another process. `with_domain` says whether its domain's own evidence still contains it.
    fn retract_attempt(&self, attempt: &RemoteAttempt<'_>, with_domain: bool);

    /// Adds the evidence of another process. Cost: linear in its entries.
    fn add_snapshot(&self, snapshot: &EvidenceSnapshot);

    /// Retracts evidence that [`add_snapshot`](Self::add_snapshot) added. Cost: linear in its entries.
    fn retract_snapshot(&self, snapshot: &EvidenceSnapshot);

    /// Marks all keys of a snapshot for early eviction, as
    /// [`receive_attempt_low_priority`](Self::receive_attempt_low_priority) does.
    fn mark_low_priority(&self, snapshot: &EvidenceSnapshot);

    /// Returns all its evidence, without entries whose weight at `as_of` is below `min_weight`. Cost: linear in its
    /// keys.
    fn evidence_snapshot(&self, as_of: Timestamp, min_weight: f64) -> EvidenceSnapshot;
}

impl Replication for Selector {
    fn empty_copy(&self) -> Result<Self, Error> {
        let decay = self.evidence.decay();
        let mut builder = Self::builder()
            .half_life_days(decay.half_life().as_millis() as f64 / 86_400_000.0)
            .around(decay.landmark())
            .file_suffixes(self.evidence.file_suffixes().clone())
            .no_priors();
        for (_, spec) in self.candidates() {
            builder = builder.fetcher(spec.clone());
        }
        builder.build()
    }

    fn half_life_ms(&self) -> u64 {
        self.evidence.decay().half_life().as_millis() as u64
    }

    fn is_file(&self, url: &str) -> bool {
        self.evidence.file_suffixes().kind(suffix_of(url)) == ContentKind::File
    }

    fn max_keys(&self) -> Option<usize> {
        self.evidence.max_keys()
    }

    fn receive_attempt(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe(attempt, &self.registry);
    }

    fn receive_attempt_in_order(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe(&attempt.as_in_order(), &self.registry);
    }

    fn receive_attempt_low_priority(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe_low_priority(attempt, &self.registry);
    }

    fn receive_global_part(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe_global(attempt, &self.registry);
    }

    fn retract_attempt(&self, attempt: &RemoteAttempt<'_>, with_domain: bool) {
        self.evidence.retract(attempt, &self.registry, with_domain);
    }

    fn add_snapshot(&self, snapshot: &EvidenceSnapshot) {
        self.evidence.combine(&snapshot.0, &self.registry, CombineMode::Add);
    }

    fn retract_snapshot(&self, snapshot: &EvidenceSnapshot) {
        self.evidence.combine(&snapshot.0, &self.registry, CombineMode::Subtract);
    }

    fn mark_low_priority(&self, snapshot: &EvidenceSnapshot) {
        self.evidence.mark_low_priority(&snapshot.0);
    }

    fn evidence_snapshot(&self, as_of: Timestamp, min_weight: f64) -> EvidenceSnapshot {
        EvidenceSnapshot(self.evidence.image_over(&self.registry, as_of, &[], min_weight))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::evidence::Weights;
    use fetchwise_types::attempt::Attempt;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn attempt(domain: &str, at: Timestamp) -> Attempt {
        Attempt::new(&url::Url::parse(&format!("https://{domain}/")).unwrap(), "direct_access", at).unwrap().delivered()
    }

    fn of(selector: &Selector, domain: &str) -> Weights {
        selector.weights(("domain", domain), ContentKind::Page, "direct_access", NOW)
    }

    /// Fills a selector with old keys, then with many from a peer over its quota.
    fn flooded(brings: impl Fn(&Selector, &Attempt)) -> (Selector, usize) {
        let selector = Selector::builder().around(NOW).max_keys(400).build().unwrap();
        let long_ago = Timestamp::from_millis(NOW.as_millis() - 30 * 86_400_000);
        (0..200).for_each(|n| selector.observe(&attempt(&format!("own{n}.org"), long_ago)));
        for n in 0..2000 {
            brings(&selector, &attempt(&format!("flood{n}.net"), NOW.saturating_add(Duration::from_millis(n))));
        }
        let left = (0..200).filter(|n| of(&selector, &format!("own{n}.org")).total > 0.0).count();
        (selector, left)
    }

    #[test]
    fn keys_over_quota_are_evicted_first() {
        let (_, left) = flooded(|selector, attempt| selector.observe(attempt));
        assert!(left < 100, "without marks the least attempted keys go: {left}");
        let (selector, left) =
            flooded(|selector, attempt| selector.evidence.observe_low_priority(attempt, &selector.registry));
        assert_eq!(left, 200);
        assert!(selector.key_count() <= 400 && selector.evicted_keys() > 1500);
        assert!(selector.evidence.low_priority_keys() <= 400, "evicted keys are not kept");
        // A key that another process attempts too is like any other key.
        selector.observe(&attempt("flood1999.net", NOW));
        for n in 0..3000 {
            selector.evidence.observe_low_priority(&attempt(&format!("more{n}.net"), NOW), &selector.registry);
        }
        assert!(of(&selector, "flood1999.net").total > 1.9);
    }

    #[test]
    fn keys_can_be_marked_after_they_were_added() {
        let (selector, apart) =
            [400, 10_000].map(|max| Selector::builder().around(NOW).max_keys(max).build().unwrap()).into();
        for n in 0..300 {
            let brought = attempt(&format!("flood{n}.net"), NOW);
            selector.observe(&brought);
            apart.observe(&brought);
        }
        selector.observe(&attempt("flood7.net", NOW));
        selector.evidence.mark_low_priority(&apart.evidence_snapshot(NOW, 0.0).0);
        let long_ago = Timestamp::from_millis(NOW.as_millis() - 30 * 86_400_000);
        (0..250).for_each(|n| selector.observe(&attempt(&format!("own{n}.org"), long_ago)));
        let left = (0..250).filter(|n| of(&selector, &format!("own{n}.org")).total > 0.0).count();
        assert_eq!((left, of(&selector, "flood7.net").total > 1.9), (250, true));
    }
}
