//! Evidence of other processes: the functions with which a fleet adds it to a selector and retracts it.
//!
//! Nothing here decides; the rules are those of evidence.

use super::Selector;
use crate::error::Error;
use crate::evidence::columns::CombineMode;
use crate::evidence::{RemoteAttempt, EvidenceSnapshot};
use fetchwise_types::heuristic::url::{ContentKind, suffix_of};
use fetchwise_types::time::Timestamp;

impl Selector {
    /// Returns a selector without evidence that has the same fetchers, half-life and kinds of files: to fold evidence
    /// separately.
    #[doc(hidden)]
    pub fn blank(&self) -> Result<Self, Error> {
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

    /// Returns the half-life of its evidence, in milliseconds.
    #[doc(hidden)]
    pub fn half_life_ms(&self) -> u64 {
        self.evidence.decay().half_life().as_millis() as u64
    }

    /// Returns whether an attempt at this URL counts as one at a file.
    #[doc(hidden)]
    pub fn is_file(&self, url: &str) -> bool {
        self.evidence.file_suffixes().kind(suffix_of(url)) == ContentKind::File
    }

    /// Learns from an attempt of another process.
    #[doc(hidden)]
    pub fn learn_fact(&self, fact: &RemoteAttempt<'_>) {
        self.evidence.observe(fact, &self.registry);
    }

    /// Learns like [`learn_fact`](Self::learn_fact), but late attempts count as new: for a test that they must not.
    #[doc(hidden)]
    pub fn learn_fact_as_news(&self, fact: &RemoteAttempt<'_>) {
        self.evidence.observe(&fact.as_in_order(), &self.registry);
    }

    /// Learns only what an attempt says beyond its domain.
    #[doc(hidden)]
    pub fn learn_general(&self, fact: &RemoteAttempt<'_>) {
        self.evidence.observe_global(fact, &self.registry);
    }

    /// Learns like [`learn_fact`](Self::learn_fact), from a process that adds more keys than its quota. If there are
    /// too many keys, those that no other process has attempted are evicted first.
    #[doc(hidden)]
    pub fn learn_fact_doubted(&self, fact: &RemoteAttempt<'_>) {
        self.evidence.observe_low_priority(fact, &self.registry);
    }

    /// Gives all keys of a snapshot that this process has learned from the same eviction priority.
    #[doc(hidden)]
    pub fn doubt_share(&self, share: &EvidenceSnapshot) {
        self.evidence.mark_low_priority(&share.0);
    }

    /// Returns the maximum number of keys, if there is a limit.
    #[doc(hidden)]
    pub fn max_keys(&self) -> Option<usize> {
        self.evidence.max_keys()
    }

    /// Retracts an attempt of another process. `with_domain` says whether its domain's own evidence still contains it.
    #[doc(hidden)]
    pub fn take_back_fact(&self, fact: &RemoteAttempt<'_>, with_domain: bool) {
        self.evidence.retract(fact, &self.registry, with_domain);
    }

    /// Adds another process's evidence.
    #[doc(hidden)]
    pub fn take_share(&self, share: &EvidenceSnapshot) {
        self.evidence.combine(&share.0, &self.registry, CombineMode::Add);
    }

    /// Retracts another process's evidence.
    #[doc(hidden)]
    pub fn give_share_back(&self, share: &EvidenceSnapshot) {
        self.evidence.combine(&share.0, &self.registry, CombineMode::Subtract);
    }

    /// Returns all its evidence, without entries whose weight at `as_of` is below `least`.
    #[doc(hidden)]
    pub fn share(&self, as_of: Timestamp, least: f64) -> EvidenceSnapshot {
        EvidenceSnapshot(self.evidence.image_over(&self.registry, as_of, &[], least))
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
        assert!(selector.keys() <= 400 && selector.evicted_keys() > 1500);
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
        selector.evidence.mark_low_priority(&apart.share(NOW, 0.0).0);
        let long_ago = Timestamp::from_millis(NOW.as_millis() - 30 * 86_400_000);
        (0..250).for_each(|n| selector.observe(&attempt(&format!("own{n}.org"), long_ago)));
        let left = (0..250).filter(|n| of(&selector, &format!("own{n}.org")).total > 0.0).count();
        assert_eq!((left, of(&selector, "flood7.net").total > 1.9), (250, true));
    }
}
