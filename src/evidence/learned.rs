//! What a process has learned: evidence, and the registry that gives its fetchers their numbers.
//!
//! Owns: the pair. Evidence stores numbers of fetchers, which mean nothing without the registry
//! that it was filled with.
//!
//! Invariants: a process learns from the evidence of another by the same rules as from its own
//! attempts.
//!
//! Must not know: where evidence comes from, and which process to believe. Nothing here decides.

use super::decay::Decay;
use super::evidence_snapshot::{CombineMode, EvidenceSnapshot};
use super::{Evidence, RemoteAttempt};

use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::heuristic::url::{ContentKind, suffix_of};
use fetchwise_types::registry::{Registry, RegistryError};
use fetchwise_types::time::Timestamp;

/// Evidence with its registry. A selector has one, and each fold of a log fills one.
///
/// The public methods exchange evidence with other processes. The log is not involved: a caller
/// that replicates evidence stores it itself. All of them may run while other threads decide and
/// record.
#[derive(Debug)]
pub struct Learned {
    pub(crate) evidence: Evidence,
    pub(crate) registry: Registry,
}

impl Learned {
    /// Returns nothing learned, on this scale. `max_keys` and `is_exact` are as for
    /// [`Evidence::new`].
    pub(crate) fn new(
        decay: Decay,
        max_keys: Option<usize>,
        suffixes: FileSuffixes,
        is_exact: bool,
        registry: Registry,
    ) -> Self {
        let evidence =
            Evidence::new(decay, max_keys, suffixes, is_exact).with_signed(registry.signed());
        Self { evidence, registry }
    }

    /// Returns nothing learned, with the same fetchers, half-life and kinds of files and without a
    /// limit: to fold evidence separately.
    ///
    /// # Errors
    /// [`RegistryError`], which the fetchers of this registry never cause.
    pub fn empty_copy(&self) -> Result<Self, RegistryError> {
        self.empty_copy_of(None)
    }

    /// Returns nothing learned, with a limit on keys, for a fold of the log that is to find what
    /// this evidence has: it shares the registrations at vendors.
    ///
    /// # Errors
    /// As [`empty_copy`](Self::empty_copy).
    pub(crate) fn empty_copy_within(&self, max_keys: usize) -> Result<Self, RegistryError> {
        let Self { evidence, registry } = self.empty_copy_of(Some(max_keys))?;
        Ok(Self { evidence: evidence.with_registrations_of(&self.evidence), registry })
    }

    fn empty_copy_of(&self, max_keys: Option<usize>) -> Result<Self, RegistryError> {
        let specs = self.registry.candidates().map(|(_, spec)| spec.clone()).collect();
        let suffixes = self.evidence.file_suffixes().clone();
        Ok(Self::new(self.evidence.decay(), max_keys, suffixes, false, Registry::new(specs)?))
    }

    /// Returns the half-life of its evidence, in milliseconds. Only evidence with the same
    /// half-life can be added.
    pub fn half_life_ms(&self) -> u64 {
        self.evidence.decay().half_life().as_millis() as u64
    }

    /// Returns whether an attempt at this URL counts as one at a file.
    pub fn is_file(&self, url: &str) -> bool {
        self.evidence.file_suffixes().kind(suffix_of(url)) == ContentKind::File
    }

    /// Returns the maximum number of keys, if there is a limit.
    pub fn max_keys(&self) -> Option<usize> {
        self.evidence.max_keys()
    }

    /// Returns the number of keys that were ever new here, with those that were evicted since. It
    /// grows by the keys that another process brings.
    pub fn keys_seen(&self) -> u64 {
        self.evidence.keys_seen()
    }

    /// Learns from an attempt of another process.
    pub fn receive_attempt(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe(attempt, &self.registry);
    }

    /// Learns like [`receive_attempt`](Self::receive_attempt), but a late attempt counts as one in
    /// order: for a test that it must not.
    pub fn receive_attempt_in_order(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe(&attempt.as_in_order(), &self.registry);
    }

    /// Learns like [`receive_attempt`](Self::receive_attempt), from a process that adds more keys
    /// than its quota. If there are too many keys, those that no other process has attempted are
    /// evicted first.
    pub fn receive_attempt_low_priority(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe_low_priority(attempt, &self.registry);
    }

    /// Learns only what an attempt says beyond its domain.
    pub fn receive_global_part(&self, attempt: &RemoteAttempt<'_>) {
        self.evidence.observe_global(attempt, &self.registry);
    }

    /// Retracts an attempt of another process. `with_domain` says whether its domain's own evidence
    /// still contains it.
    pub fn retract_attempt(&self, attempt: &RemoteAttempt<'_>, with_domain: bool) {
        self.evidence.retract(attempt, &self.registry, with_domain);
    }

    /// Adds the evidence of another process. Cost: linear in its entries.
    pub fn add_snapshot(&self, snapshot: &EvidenceSnapshot) {
        self.evidence.combine(snapshot, &self.registry, CombineMode::Add);
    }

    /// Retracts evidence that [`add_snapshot`](Self::add_snapshot) added. Cost: linear in its
    /// entries.
    pub fn retract_snapshot(&self, snapshot: &EvidenceSnapshot) {
        self.evidence.combine(snapshot, &self.registry, CombineMode::Subtract);
    }

    /// Marks all keys of a snapshot for early eviction, as
    /// [`receive_attempt_low_priority`](Self::receive_attempt_low_priority) does.
    pub fn mark_low_priority(&self, snapshot: &EvidenceSnapshot) {
        self.evidence.mark_low_priority(snapshot);
    }

    /// Returns all its evidence, without entries whose weight at `as_of` is below `min_weight`.
    /// Cost: linear in its keys.
    pub fn evidence_snapshot(&self, as_of: Timestamp, min_weight: f64) -> EvidenceSnapshot {
        self.evidence.image_over(&self.registry, as_of, &[], min_weight)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::evidence::Weights;
    use crate::selector::Selector;
    use fetchwise_types::attempt::Attempt;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn attempt(domain: &str, at: Timestamp) -> Attempt {
        Attempt::new(&url::Url::parse(&format!("https://{domain}/")).unwrap(), "direct_access", at)
            .unwrap()
            .delivered()
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
            brings(
                &selector,
                &attempt(&format!("flood{n}.net"), NOW.saturating_add(Duration::from_millis(n))),
            );
        }
        let left = (0..200).filter(|n| of(&selector, &format!("own{n}.org")).total > 0.0).count();
        (selector, left)
    }

    #[test]
    fn keys_over_quota_are_evicted_first() {
        let (_, left) = flooded(|selector, attempt| selector.observe(attempt));
        assert!(left < 100, "without marks the least attempted keys go: {left}");
        let (selector, left) = flooded(|selector, attempt| {
            selector.learned().evidence.observe_low_priority(attempt, &selector.learned().registry)
        });
        assert_eq!(left, 200);
        assert!(selector.key_count() <= 400 && selector.evicted_keys() > 1500);
        assert!(
            selector.learned().evidence.low_priority_keys() <= 400,
            "evicted keys are not kept"
        );
        // A key that another process attempts too is like any other key.
        selector.observe(&attempt("flood1999.net", NOW));
        for n in 0..3000 {
            selector.learned().evidence.observe_low_priority(
                &attempt(&format!("more{n}.net"), NOW),
                &selector.learned().registry,
            );
        }
        assert!(of(&selector, "flood1999.net").total > 1.9);
    }

    #[test]
    fn keys_can_be_marked_after_they_were_added() {
        let (selector, apart) = [400, 10_000]
            .map(|max| Selector::builder().around(NOW).max_keys(max).build().unwrap())
            .into();
        for n in 0..300 {
            let brought = attempt(&format!("flood{n}.net"), NOW);
            selector.observe(&brought);
            apart.observe(&brought);
        }
        selector.observe(&attempt("flood7.net", NOW));
        selector.learned().evidence.mark_low_priority(&apart.learned().evidence_snapshot(NOW, 0.0));
        let long_ago = Timestamp::from_millis(NOW.as_millis() - 30 * 86_400_000);
        (0..250).for_each(|n| selector.observe(&attempt(&format!("own{n}.org"), long_ago)));
        let left = (0..250).filter(|n| of(&selector, &format!("own{n}.org")).total > 0.0).count();
        assert_eq!((left, of(&selector, "flood7.net").total > 1.9), (250, true));
    }
}
