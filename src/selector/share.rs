//! What a fleet asks of a selector: to learn from what other processes have seen, and to take it back.
//!
//! Owns nothing: the rules are those of evidence. Nothing here decides.

use super::Selector;
use crate::error::Error;
use crate::evidence::image::How;
use crate::evidence::{Fact, Share};
use crate::heuristic::url::{ContentKind, suffix_of};
use crate::time::Timestamp;

impl Selector {
    /// A new one that knows nothing, with this one's fetchers, half-life and kinds of files: to fold evidence apart.
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

    /// The half-life of its evidence, in milliseconds.
    #[doc(hidden)]
    pub fn half_life_ms(&self) -> u64 {
        self.evidence.decay().half_life().as_millis() as u64
    }

    /// Whether an attempt at this URL counts among files.
    #[doc(hidden)]
    pub fn is_file(&self, url: &str) -> bool {
        self.evidence.file_suffixes().kind(suffix_of(url)) == ContentKind::File
    }

    /// Learns from an attempt of another process.
    #[doc(hidden)]
    pub fn learn_fact(&self, fact: &Fact<'_>) {
        self.evidence.observe(fact, &self.registry);
    }

    /// As [`learn_fact`](Self::learn_fact), but late facts count as news: for a test that they must not.
    #[doc(hidden)]
    pub fn learn_fact_as_news(&self, fact: &Fact<'_>) {
        self.evidence.observe(&fact.as_news(), &self.registry);
    }

    /// Learns from an attempt what belongs to no one domain, and nothing else.
    #[doc(hidden)]
    pub fn learn_general(&self, fact: &Fact<'_>) {
        self.evidence.observe_general(fact, &self.registry);
    }

    /// Takes back what another process's attempt had shown. `with_domain` says whether its domain's own evidence still has it.
    #[doc(hidden)]
    pub fn take_back_fact(&self, fact: &Fact<'_>, with_domain: bool) {
        self.evidence.take_back(fact, &self.registry, with_domain);
    }

    /// Adds another process's evidence.
    #[doc(hidden)]
    pub fn take_share(&self, share: &Share) {
        self.evidence.combine(&share.0, &self.registry, How::TakeIn);
    }

    /// Takes another process's evidence back.
    #[doc(hidden)]
    pub fn give_share_back(&self, share: &Share) {
        self.evidence.combine(&share.0, &self.registry, How::GiveBack);
    }

    /// All that it knows, but for entries whose weight at `as_of` is under `least`.
    #[doc(hidden)]
    pub fn share(&self, as_of: Timestamp, least: f64) -> Share {
        Share(self.evidence.image_over(&self.registry, as_of, &[], least))
    }
}
