//! The functions with which a journal restores evidence. Nothing here decides.

use super::Selector;
use crate::evidence::{Evidence, SignalObservation};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::SHORT_PAGE;
use fetchwise_types::time::Timestamp;

impl Selector {
    /// Learns from an attempt. The evidence that domains share goes to `shared`, and the policy does not see it.
    /// Returns what the attempt says about the signals of its host, for [`observe_signals`](Self::observe_signals).
    pub(crate) fn observe_apart(
        &self,
        shared: &Evidence,
        attempt: &impl crate::evidence::Observation,
    ) -> Option<SignalObservation> {
        self.restore_complete_short_page(attempt);
        self.evidence.observe_apart(shared, attempt, &self.registry)
    }

    /// Remembers that the attempt's host has short pages that are complete, if the attempt's tag says so. Without it
    /// each process would render one page of the host again.
    fn restore_complete_short_page(&self, attempt: &impl crate::evidence::Observation) {
        if !attempt.fields().success {
            return;
        }
        let (mut is_short, mut domain) = (false, None);
        attempt.each_heuristic(&mut |kind, value| match kind {
            SHORT_PAGE => is_short = true,
            "domain" => domain = Some(value),
            _ => {}
        });
        if let Some(domain) = domain.filter(|_| is_short) {
            self.state().hosts.set_complete_short_page(domain);
        }
    }

    /// Remembers the hosts of a snapshot that have short pages that are complete.
    pub(crate) fn restore_short_page_hosts(&self, domains: &[String]) {
        domains.iter().for_each(|domain| self.state().hosts.set_complete_short_page(domain));
    }

    /// Returns the hosts that have short pages that are complete, in no order.
    pub(crate) fn short_page_hosts(&self) -> Vec<String> {
        self.state().hosts.with_complete_short_pages()
    }

    /// Adds attempts of this outcome that the log has, so that counters continue from there.
    #[cfg(feature = "metrics")]
    pub(crate) fn add_logged_attempts(&self, fetcher: &str, outcome: usize, attempts: u64) {
        self.recorder().add_logged_attempts(self.registry.intern(fetcher), outcome, attempts);
    }

    /// Learns what attempts say about host signals, in the order of the log.
    pub(crate) fn observe_signals(&self, observations: impl IntoIterator<Item = SignalObservation>) {
        observations.into_iter().for_each(|observation| self.evidence.observe_signals(&observation));
    }

    /// Prefetches the entries of the sites with these hashes.
    pub(crate) fn prefetch_sites(&self, hashes: &[u64]) {
        self.evidence.touch(hashes);
    }

    /// Makes room for that many keys in one step.
    pub(crate) fn reserve_keys(&self, keys: usize) {
        self.evidence.reserve_up_to(keys);
    }

    /// Returns empty evidence for what domains share, for one of several threads that learn at once.
    pub(crate) fn empty_shared_evidence(&self) -> Evidence {
        self.evidence.empty_like()
    }

    /// Adds the evidence that one of these threads collected.
    pub(crate) fn merge_shared_evidence(&self, shared: &Evidence) {
        self.evidence.merge(shared);
    }

    /// Retracts an attempt. `with_domain` says whether its domain's own evidence still contains it.
    pub(crate) fn retract(&self, attempt: &impl crate::evidence::Observation, with_domain: bool) {
        self.evidence.retract(attempt, &self.registry, with_domain);
    }

    /// Returns whether the URL that responded to an attempt led to a file.
    pub(crate) fn is_of_file(&self, attempt: &impl crate::evidence::Observation) -> bool {
        self.evidence.kind_of(attempt) == fetchwise_types::heuristic::url::ContentKind::File
    }

    /// Returns all evidence that has not faded by `as_of`.
    pub(crate) fn image(
        &self,
        as_of: Timestamp,
        fetchers: &[String],
    ) -> crate::evidence::evidence_image::EvidenceImage {
        self.evidence.image(&self.registry, as_of, fetchers)
    }

    /// Returns the evidence that is in no map, and the results of `f` for groups of all other entries.
    pub(crate) fn image_in_groups<T: Send>(
        &self,
        as_of: Timestamp,
        fetchers: &[String],
        threads: usize,
        f: impl Fn(&crate::evidence::evidence_image::EvidenceImage) -> T + Sync,
    ) -> (crate::evidence::evidence_image::EvidenceImage, Vec<T>) {
        self.evidence.image_in_groups(&self.registry, as_of, fetchers, threads, f)
    }

    /// Returns whether an image has an entry of this domain.
    pub(crate) fn is_in_image(&self, domain: &str, as_of: Timestamp) -> bool {
        self.evidence.is_in_image(domain, as_of)
    }

    /// Adds the evidence of an image and of groups of entries, which `read` turns into rows.
    pub(crate) fn absorb_groups<G: Sync>(
        &self,
        from: (&crate::evidence::evidence_image::EvidenceImage, &[G], usize),
        present: Timestamp,
        read: impl Fn(&G, &mut crate::evidence::evidence_image::EvidenceImage) + Sync,
    ) {
        self.evidence.absorb_groups(from, &self.registry, present, read);
    }

    /// Adds the evidence of an image. Times after `present` count as `present`.
    pub(crate) fn absorb(&self, image: &crate::evidence::evidence_image::EvidenceImage, present: Timestamp) {
        self.evidence.absorb(image, &self.registry, present);
    }

    /// Moves the landmark of empty evidence near `present` if it is far away.
    pub(crate) fn move_landmark_near(&self, present: Timestamp) {
        self.evidence.move_landmark_near(present);
    }

    /// Returns whether the policy keeps a memory.
    pub(crate) fn has_policy_memory(&self) -> bool {
        self.policy.remembers()
    }

    /// Passes an attempt to the policy that evidence already contains.
    pub(crate) fn observe_with_policy(&self, attempt: &Attempt) {
        self.policy.observe(attempt);
    }
}
