//! From evidence to numbers: for each candidate the chance of success, the chance of a block, confidence and index.
//!
//! Owns the formulas and their constants. `estimate` walks the evidence, `confidence` and `index` are pure. Must not
//! know which candidate is taken: that is the policy's.

use crate::registry::{FetcherId, FetcherSpec};

mod confidence;
pub(crate) mod estimate;
pub(crate) mod importance;
pub(crate) mod index;
mod met;

pub use confidence::{Basis, Specificity, confidence};
pub use importance::ImportanceUse;

/// The constants of estimate and choice. Each can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// V: what a page is worth, in plain requests.
    pub value: f64,
    /// What a blocked response costs on top of the request.
    pub blocked_cost: f64,
    /// φ: how much of an estimate is doubted.
    pub phi: f64,
    /// Confidence must be above this.
    pub min_confidence: f64,
    /// The decayed sample that five attempts of last week still make.
    pub min_sample: f64,
    /// The share of first attempts that explore; 0 switches exploration off.
    pub explore: f64,
    /// How eagerly a host that has had a rest is looked at again for something cheaper that failed there; looks a day where
    /// what it saves a day comes to what a look costs. 0 for no more than `explore`.
    pub explore_rested: f64,
    /// The share of first attempts that explore at most, after a long rest.
    pub explore_most: f64,
    /// The chance of one more try by a fetcher that is new on the domain, when about to give up.
    pub last_ditch: f64,
    /// Attempts for a URL in all; a transient failure's retry is not among them.
    pub max_attempts: u32,
    /// How many pseudo-attempts the prior counts against the global cell.
    pub global_weight: f64,
    /// How many the less specific estimate counts against a cell.
    pub level_weight: f64,
    /// The same for a section of a domain.
    pub path_weight: f64,
    /// How many pseudo-attempts a fetcher's own general estimate counts against what the plain fetcher met on the same site; 0
    /// to leave that out.
    pub met_weight: f64,
    /// What recorded importance does to the evidence of general heuristics.
    pub importance: ImportanceUse,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            value: 100.0,
            blocked_cost: 2.0,
            phi: 0.1,
            min_confidence: 0.6,
            min_sample: 4.5,
            explore: 0.02,
            explore_rested: 0.03,
            explore_most: 0.2,
            last_ditch: 0.2,
            max_attempts: 4,
            global_weight: 20.0,
            level_weight: 2.0,
            path_weight: 1.0,
            met_weight: 0.5,
            importance: ImportanceUse::Off,
        }
    }
}

/// One candidate with all its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Scored<'a> {
    /// Which fetcher.
    pub id: FetcherId,
    /// Its costs.
    pub spec: &'a FetcherSpec,
    /// Whether it may not be taken: tried for this URL, or not to be had.
    pub tried: bool,
    /// Whether its breaker on this domain is open.
    pub open: bool,
    /// Chance of success.
    pub p: f64,
    /// Chance of success as it looks without site, domain and section.
    pub p_general: f64,
    /// Chance of a block.
    pub b: f64,
    /// The index while more than one attempt is left.
    pub z: f64,
    /// The worth as the last attempt.
    pub u: f64,
    /// The index without site, domain and section, and without blocks: what exploration goes by.
    pub z_general: f64,
    /// What confidence is worked out from, if there is anything.
    pub basis: Option<Basis>,
    /// Decayed attempts on this domain.
    pub domain_attempts: f64,
    /// When it was last tried on this domain, in seconds since 1970; 0 when that is not known.
    pub domain_newest_s: u32,
}

impl Scored<'_> {
    /// Its confidence, 0 without evidence.
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
