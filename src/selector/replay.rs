//! What a journal needs of a selector to bring back what was learned. Nothing here decides.

use super::Selector;
use crate::evidence::{Evidence, Voice};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::time::Timestamp;

impl Selector {
    /// Learns from an attempt where it lies, what domains share apart; the policy does not see it. What it says about the tags of its
    /// host is returned, for [`hear`](Self::hear).
    pub(crate) fn learn(&self, shared: &Evidence, attempt: &impl crate::evidence::Observed) -> Option<Voice> {
        self.evidence.observe_apart(shared, attempt, &self.registry)
    }

    /// So many attempts of this outcome were found: counts go on from there.
    #[cfg(feature = "metrics")]
    pub(crate) fn found(&self, fetcher: &str, outcome: usize, attempts: u64) {
        self.meter().found(self.registry.intern(fetcher), outcome, attempts);
    }

    /// Learns what attempts say about tags; in the order of the log.
    pub(crate) fn hear(&self, voices: impl IntoIterator<Item = Voice>) {
        voices.into_iter().for_each(|voice| self.evidence.hear(&voice));
    }

    /// Says that attempts of sites with these hashes come next.
    pub(crate) fn expect(&self, hashes: &[u64]) {
        self.evidence.touch(hashes);
    }

    /// A place for what domains share, for one of several threads that learn at once.
    pub(crate) fn apart(&self) -> Evidence {
        self.evidence.empty_like()
    }

    /// Adds what one of them has learned there.
    pub(crate) fn merge(&self, shared: &Evidence) {
        self.evidence.merge(shared);
    }

    /// Takes back what an attempt had shown. `with_domain` says whether its domain's own evidence still has it.
    pub(crate) fn take_back(&self, attempt: &impl crate::evidence::Observed, with_domain: bool) {
        self.evidence.take_back(attempt, &self.registry, with_domain);
    }

    /// Counts an attempt among the days of its domain only.
    pub(crate) fn count_day(&self, domain: &str, at: Timestamp, is_banned: bool) {
        self.evidence.count_day(domain, at, is_banned);
    }

    /// Attempts before `since` are missing among the days.
    pub(crate) fn set_days_since(&self, since: Option<Timestamp>) {
        self.evidence.set_days_since(since);
    }

    /// All evidence that has not faded by `as_of`.
    pub(crate) fn image(&self, as_of: Timestamp, fetchers: &[String]) -> crate::evidence::columns::Image {
        self.evidence.image(&self.registry, as_of, fetchers)
    }

    /// Adds an image's evidence.
    pub(crate) fn absorb(&self, image: &crate::evidence::columns::Image) {
        self.evidence.absorb(image, &self.registry);
    }

    /// Whether the policy keeps a memory of its own.
    pub(crate) fn policy_remembers(&self) -> bool {
        self.policy.remembers()
    }

    /// Shows the policy an attempt that evidence has already.
    pub(crate) fn show_policy(&self, attempt: &Attempt) {
        self.policy.observe(attempt);
    }
}
