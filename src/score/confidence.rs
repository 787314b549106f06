//! Confidence: the published formula, and which heuristic's evidence it is worked out from.

use super::Settings;

/// `success_rate * min(1, sample / 10)`; zero without a sample.
///
/// ```
/// use fetchwise::score::confidence;
/// for (success, sample, want) in [(5.0, 5.0, 0.50), (8.0, 10.0, 0.80), (14.0, 20.0, 0.70), (3.0, 3.0, 0.30)] {
///     assert!((confidence(success, sample) - want).abs() < 1e-12);
/// }
/// ```
pub fn confidence(success: f64, sample: f64) -> f64 {
    if sample <= 0.0 { 0.0 } else { success / sample * (sample / 10.0).min(1.0) }
}

/// How specific a heuristic is, the least first. A user's own types rank below the flags, the first registered highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Specificity {
    /// A user's own type, by place of registration from the end.
    Own(u8),
    /// A flag of the path, by place from the end of the list.
    Flag(u8),
    /// The suffix.
    Suffix,
    /// The registrable domain.
    Site,
    /// The host.
    Domain,
    /// The section of the host.
    DomainPath,
}

/// The evidence that confidence is worked out from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    /// Of which heuristic.
    pub specificity: Specificity,
    /// Decayed successes, priors included.
    pub success: f64,
    /// Decayed attempts, priors included.
    pub sample: f64,
    /// The recent pair, where that heuristic keeps one.
    pub recent: Option<(f64, f64)>,
}

impl Basis {
    /// Whether it is the better one of two: the most specific with a full sample; without one, the one with the larger sample,
    /// the more specific at a tie. The order in which they are offered does not matter.
    #[inline]
    pub(crate) fn is_better(&self, other: &Self, settings: &Settings) -> bool {
        let full = |basis: &Self| basis.sample >= settings.min_sample;
        match (full(self), full(other)) {
            (true, true) => self.specificity > other.specificity,
            (true, false) => true,
            (false, true) => false,
            (false, false) => (self.sample, self.specificity) > (other.sample, other.specificity),
        }
    }

    /// The confidence it gives.
    pub fn confidence(&self) -> f64 {
        confidence(self.success, self.sample)
    }

    /// Whether it is enough to rely on: confidence and sample, and the recent attempts agree.
    pub fn is_confident(&self, settings: &Settings) -> bool {
        self.confidence() > settings.min_confidence
            && self.sample >= settings.min_sample
            && self.recent.is_none_or(|(success, total)| confidence(success, total) > settings.min_confidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(specificity: Specificity, sample: f64) -> Basis {
        Basis { specificity, success: sample, sample, recent: None }
    }

    #[test]
    fn the_most_specific_full_sample_wins_else_the_largest() {
        let settings = Settings::default();
        let better = |a: Basis, b: &Basis| if b.is_better(&a, &settings) { *b } else { a };
        let best = |list: &[Basis]| list[1..].iter().fold(list[0], better).specificity;
        use Specificity::{Domain, DomainPath, Flag, Own, Site, Suffix};
        assert_eq!(best(&[basis(DomainPath, 4.0), basis(Domain, 5.0), basis(Site, 900.0)]), Domain);
        assert_eq!(best(&[basis(Site, 900.0), basis(Domain, 5.0), basis(DomainPath, 4.5)]), DomainPath);
        assert_eq!(best(&[basis(DomainPath, 1.0), basis(Domain, 3.0), basis(Suffix, 3.0)]), Domain);
        assert_eq!(best(&[basis(Flag(0), 9.0), basis(Flag(3), 9.0), basis(Own(200), 90.0)]), Flag(3));
    }

    #[test]
    fn a_recent_collapse_takes_confidence_away_at_once() {
        let settings = Settings::default();
        let steady = Basis { recent: Some((60.0, 64.0)), ..basis(Specificity::Domain, 1000.0) };
        let collapsed = Basis { recent: Some((20.0, 64.0)), ..steady };
        assert!(steady.is_confident(&settings) && !collapsed.is_confident(&settings));
    }
}
