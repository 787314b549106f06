//! Scores of candidates, computed from evidence: the probability of success and of a block,
//! confidence and index.
//!
//! `estimate` reads the evidence from the general to the specific; `confidence` and
//! `weitzman_index` are pure arithmetic.
//!
//! Owns: the formulas and their constants.
//!
//! Must not know: which candidate is taken, which the policy decides.

use fetchwise_types::registry::{FetcherId, FetcherSpec};

mod confidence;
mod cost;
pub(crate) mod estimate;
pub(crate) mod general_cache;
mod host_signal_level;
mod host_signal_lookup;
pub(crate) mod importance;
mod plain_outcome_prior;
pub(crate) mod priors;
pub(crate) mod weitzman_index;

pub use confidence::{Basis, Specificity, confidence};
pub use importance::ImportanceUse;

/// The constants of estimate and choice. Each can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The value of a page, in plain requests.
    pub page_value: f64,
    /// The cost of a blocked response on top of the request, in plain requests.
    pub blocked_cost: f64,
    /// The discount of an estimate, φ in the formula: if one fetcher has failed, another one fails
    /// more often than its own success rate says.
    pub success_discount: f64,
    /// The confidence above which a fetcher is confident.
    pub min_confidence: f64,
    /// The decayed attempts from which on a fetcher can be confident. The default equals five
    /// attempts of last week.
    pub min_sample: f64,
    /// The fraction of first attempts that explore; 0 switches exploration off.
    pub explore_rate: f64,
    /// The rate at which a cheaper fetcher that failed on a host is tried there again after a
    /// pause: tries per day if the savings of a day would pay for one try. With 0, `explore_rate`
    /// is the limit.
    pub explore_stale_rate: f64,
    /// The largest fraction of first attempts that explore, after a long pause.
    pub max_explore_rate: f64,
    /// The probability of one more try by a fetcher that is new on the domain, before giving up.
    pub last_ditch: f64,
    /// The largest number of attempts for a URL, without retries of transient failures.
    pub max_attempts: u32,
    /// Weight of a fetcher's prior against its attempts on all hosts, in attempts.
    pub global_weight: f64,
    /// Weight of the less specific estimate against the evidence of the next level, in attempts.
    pub level_weight: f64,
    /// The same weight for the most specific level, a section of a domain.
    pub path_weight: f64,
    /// Weight of a fetcher's estimate against the outcomes of the plain fetcher on the same site,
    /// in attempts. 0 ignores these outcomes.
    pub plain_outcome_weight: f64,
    /// Weight of the estimate against the evidence of other hosts that showed the same vendor or
    /// framework, in attempts. 0 ignores host signals, and no visit gives up before its first
    /// attempt.
    pub host_signal_weight: f64,
    /// The fraction of first attempts that are made although every fetcher fails behind the host's
    /// vendor.
    pub impassable_try_rate: f64,
    /// The effect of recorded importance on the evidence of general heuristics.
    pub importance: ImportanceUse,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            page_value: 100.0,
            blocked_cost: 2.0,
            success_discount: 0.1,
            min_confidence: 0.6,
            min_sample: 4.5,
            explore_rate: 0.02,
            explore_stale_rate: 0.03,
            max_explore_rate: 0.2,
            last_ditch: 0.2,
            max_attempts: 4,
            global_weight: 20.0,
            level_weight: 2.0,
            path_weight: 1.0,
            plain_outcome_weight: 0.5,
            host_signal_weight: 5.0,
            impassable_try_rate: 0.05,
            importance: ImportanceUse::Off,
        }
    }
}

/// One candidate with all its numbers, as a policy sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scored<'a> {
    /// The fetcher.
    pub id: FetcherId,
    /// Its name, class and cost.
    pub spec: &'a FetcherSpec,
    /// Whether it may not be taken: it was tried for this URL, or is unavailable.
    pub tried: bool,
    /// Whether its breaker on this domain is open.
    pub open: bool,
    /// Whether it is the one that probes.
    pub(crate) is_probe: bool,
    /// The cost of a request here, in plain requests: as configured, or as measured.
    pub cost: f64,
    /// The probability of success, 0 to 1.
    pub success: f64,
    /// The probability of success by general evidence alone: without site, domain and section.
    pub general_success: f64,
    /// The probability of a block, 0 to 1.
    pub block: f64,
    /// The index, which orders candidates while more than one attempt is left: the value of a page
    /// less the expected cost of getting it with this fetcher, in plain requests.
    pub index: f64,
    /// The expected worth of this attempt if it is the last one allowed, in plain requests.
    pub last_worth: f64,
    /// The index by general evidence alone, without blocks. Exploration uses it.
    pub general_index: f64,
    /// The evidence that confidence rests on, if there is any.
    pub basis: Option<Basis>,
    /// Decayed attempts on this domain.
    pub domain_attempts: f64,
    /// Time of the last attempt on this domain, in seconds since 1970; 0 if unknown.
    pub domain_newest_s: u32,
    /// Whether it has delivered on this domain.
    pub(crate) has_delivered_here: bool,
    /// Whether it has only failed on this domain, each time so that it said little.
    pub(crate) is_hardly_tried_here: bool,
    /// Weight of the estimate so far against this host's own evidence, in attempts.
    pub(crate) host_weight: f64,
    /// Time at which the host's vendor changed its policy for it, in seconds since 1970; 0 for
    /// never.
    pub(crate) turned_s: u32,
    /// Milliseconds spent on `spent_on` requests, for a measured cost.
    pub(crate) spent_ms: f64,
    pub(crate) spent_on: f64,
    /// The mean plain request in milliseconds; 0 if no cost is measured.
    pub(crate) plain_ms: f64,
}

impl<'a> Scored<'a> {
    /// Returns a candidate of which nothing is known but its spec.
    #[inline]
    pub(crate) fn unknown(id: FetcherId, spec: &'a FetcherSpec) -> Self {
        Self {
            id,
            spec,
            tried: false,
            open: false,
            is_probe: false,
            success: spec.prior,
            general_success: spec.prior,
            block: 0.1,
            index: 0.0,
            last_worth: 0.0,
            general_index: 0.0,
            basis: None,
            domain_attempts: 0.0,
            domain_newest_s: 0,
            has_delivered_here: false,
            is_hardly_tried_here: false,
            host_weight: 0.0,
            turned_s: 0,
            cost: spec.cost,
            spent_ms: 0.0,
            spent_on: 0.0,
            plain_ms: 0.0,
        }
    }
}

impl Scored<'_> {
    /// Returns its confidence, 0 to 1; 0 without evidence.
    pub fn confidence(&self) -> f64 {
        self.basis.map_or(0.0, |basis| basis.confidence())
    }

    /// Returns the decayed sample that its confidence rests on.
    pub fn sample_size(&self) -> f64 {
        self.basis.map_or(0.0, |basis| basis.sample)
    }

    /// Returns whether its confidence is sufficient.
    pub fn is_confident(&self, settings: &Settings) -> bool {
        self.basis.is_some_and(|basis| basis.is_confident(settings))
    }
}
