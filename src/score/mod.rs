//! From evidence to numbers: for each candidate the chance of success, the chance of a block, confidence and index.
//!
//! Owns the formulas and their constants. `estimate` reads the evidence from the general to the specific; `confidence` and
//! `index` are pure arithmetic. Must not know which candidate is taken: the policy decides that.

use fetchwise_types::registry::{FetcherId, FetcherSpec};

mod confidence;
mod cost;
pub(crate) mod estimate;
mod host_signal_level;
mod host_signal_lookup;
pub(crate) mod importance;
mod plain_outcome_prior;
pub(crate) mod weitzman_index;

pub use confidence::{Basis, Specificity, confidence};
pub use importance::ImportanceUse;

/// The constants of estimate and choice. Each can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What a page is worth, in plain requests.
    pub page_value: f64,
    /// What a blocked response costs on top of the request.
    pub blocked_cost: f64,
    /// How much of an estimate is doubted, φ in the formula: where one fetcher has failed, another one fails more often than its
    /// own success rate says.
    pub success_discount: f64,
    /// A fetcher is confident only above this confidence.
    pub min_confidence: f64,
    /// A fetcher is confident only with at least so many decayed attempts. The default is what five attempts of last week come to.
    pub min_sample: f64,
    /// The share of first attempts that explore; 0 switches exploration off.
    pub explore_rate: f64,
    /// How eagerly a cheaper fetcher that failed on a host is tried there again after a rest: how many times a day, where the
    /// savings of a day would pay for one such try. 0 for no more than `explore_rate`.
    pub explore_stale_rate: f64,
    /// The share of first attempts that explore at most, after a long rest.
    pub max_explore_rate: f64,
    /// The chance of one more try by a fetcher that is new on the domain, when about to give up.
    pub last_ditch: f64,
    /// Attempts for a URL in all; a transient failure's retry is not among them.
    pub max_attempts: u32,
    /// For how many attempts a fetcher's prior counts against its attempts everywhere.
    pub global_weight: f64,
    /// For how many attempts the less specific estimate counts against the evidence of the next level.
    pub level_weight: f64,
    /// The same at the most specific level, a section of a domain.
    pub path_weight: f64,
    /// For how many attempts a fetcher's estimate counts against what the plain fetcher met on the same site. 0 leaves out what
    /// it met.
    pub plain_outcome_weight: f64,
    /// For how many attempts the estimate counts against what is known of other hosts that showed the same vendor or framework. 0
    /// leaves out what hosts showed, and nobody is given up before the first attempt.
    pub host_signal_weight: f64,
    /// The share of first attempts that are made although everybody fails behind the host's vendor.
    pub impassable_try_rate: f64,
    /// What recorded importance does to the evidence of general heuristics.
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
    /// Which fetcher.
    pub id: FetcherId,
    /// Its name, class and cost.
    pub spec: &'a FetcherSpec,
    /// Whether it may not be taken: tried for this URL, or not to be had.
    pub tried: bool,
    /// Whether its breaker on this domain is open.
    pub open: bool,
    /// What a request costs here, in plain requests: as configured, or as measured.
    pub cost: f64,
    /// The chance of success, 0 to 1.
    pub success: f64,
    /// The chance of success by general evidence alone: without site, domain and section.
    pub general_success: f64,
    /// The chance of a block, 0 to 1.
    pub block: f64,
    /// The index, for choosing while more than one attempt is left: the worth of a page less the expected cost of getting it with
    /// this fetcher, in plain requests.
    pub index: f64,
    /// The expected worth of this attempt when it is the last one allowed, in plain requests.
    pub last_worth: f64,
    /// The index by general evidence alone, blocks left out. Exploration goes by it.
    pub general_index: f64,
    /// The evidence that confidence rests on, if there is any.
    pub basis: Option<Basis>,
    /// Decayed attempts on this domain.
    pub domain_attempts: f64,
    /// When it was last tried on this domain, in seconds since 1970; 0 when that is not known.
    pub domain_newest_s: u32,
    /// For how many attempts the estimate so far counts against what this host has shown of it.
    pub(crate) host_weight: f64,
    /// When the host's vendor changed its mind about it, in seconds since 1970; 0 for never.
    pub(crate) turned_s: u32,
    /// Milliseconds spent on so many requests, from which a cost is measured.
    pub(crate) spent_ms: f64,
    pub(crate) spent_on: f64,
    /// The mean plain request in milliseconds; 0 where no cost is measured.
    pub(crate) plain_ms: f64,
}

impl Scored<'_> {
    /// Its confidence, 0 to 1; 0 without evidence.
    pub fn confidence(&self) -> f64 {
        self.basis.map_or(0.0, |basis| basis.confidence())
    }

    /// The decayed sample that its confidence rests on.
    pub fn sample_size(&self) -> f64 {
        self.basis.map_or(0.0, |basis| basis.sample)
    }

    /// Whether its confidence is enough to rely on.
    pub fn is_confident(&self, settings: &Settings) -> bool {
        self.basis.is_some_and(|basis| basis.is_confident(settings))
    }
}
