//! Confidence: the published formula, and the choice of the evidence level that it applies to.
//!
//! Pure arithmetic.
//!
//! Must not know: which candidate is taken.

use super::Settings;

/// Smallest sample of a level that agrees with the one before it for the next level to be compared
/// with it. Almost any rate of fewer attempts agrees with any other. One attempt of a few days ago
/// is more.
const LEAST_COMPARED: f64 = 0.75;

/// Returns `success_rate * min(1, sample / 10)`; zero without a sample.
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

/// The specificity of a heuristic, least specific first. User-defined types rank below the flags,
/// the first registered highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Specificity {
    /// A user-defined type, by its position from the end of the registration order.
    Own(u8),
    /// A flag of the path, by its position from the end of the list.
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

/// The evidence that confidence is computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    /// The specificity of its heuristic.
    pub specificity: Specificity,
    /// Decayed successes, priors included.
    pub success: f64,
    /// Decayed attempts, priors included.
    pub sample: f64,
    /// The recent pair, if that heuristic keeps one.
    pub recent: Option<(f64, f64)>,
    /// Successes and attempts that the next level is compared with: those of the most specific
    /// level that agreed with this one, or its own if none did.
    pub(crate) agreed: (f64, f64),
}

impl Basis {
    /// Returns one level's evidence: decayed successes and attempts, priors included, and the
    /// recent pair.
    pub(crate) fn new(
        specificity: Specificity,
        success: f64,
        sample: f64,
        recent: Option<(f64, f64)>,
    ) -> Self {
        Self { specificity, success, sample, recent, agreed: (success, sample) }
    }

    /// Returns the evidence of the level that confidence rests on, out of two.
    ///
    /// If the specific one disagrees, it counts alone: its success rate is lower than the general
    /// one's by more than chance explains, over all attempts or over the recent ones. While it
    /// agrees, the larger confidence counts, so that a few successes on a new host never lower the
    /// confidence that all such files have earned elsewhere. In each case the next level is
    /// compared with the specific one, unless that agrees and has too few attempts to say so. A
    /// site's quota can leave a general level with fewer than the specific one has.
    #[inline]
    pub(crate) fn stronger(self, other: Self, settings: &Settings) -> Self {
        let (general, specific) =
            if self.specificity < other.specificity { (self, other) } else { (other, self) };
        if specific.sample <= 0.0 {
            // A level without attempts gives no information.
            return general;
        }
        if specific.speaks_against(&general) {
            return specific;
        }
        let is_full = |basis: &Self| basis.sample >= settings.min_sample;
        let prefers_general = match is_full(&specific) {
            // A success that counts for its site only must not end the confidence of a general
            // level either.
            true => {
                let keeps = || general.is_confident(settings) && !specific.is_confident(settings);
                general.confidence() > specific.confidence() || keeps()
            }
            false => general.sample > specific.sample,
        };
        let agreed = match specific.sample < LEAST_COMPARED {
            true => general.agreed,
            false => specific.agreed,
        };
        Self { agreed, ..if prefers_general { general } else { specific } }
    }

    /// Returns whether this level's rate is below that of the next general one by more than one
    /// standard deviation of a fair coin tossed as often.
    fn speaks_against(&self, general: &Self) -> bool {
        let (general_success, general_total) = general.agreed;
        // general rate - rate > 0.5 / sqrt(total), without a root and without a division.
        let is_below = |(success, total): (f64, f64)| {
            let gap = general_success * total - success * general_total;
            gap > 0.0 && gap * gap > 0.25 * general_total * general_total * total
        };
        is_below(self.agreed) || self.recent.is_some_and(is_below)
    }

    /// Returns the confidence.
    pub fn confidence(&self) -> f64 {
        confidence(self.success, self.sample)
    }

    /// Returns whether the evidence is sufficient: confidence and sample are large enough, and the
    /// recent attempts agree.
    pub fn is_confident(&self, settings: &Settings) -> bool {
        self.confidence() > settings.min_confidence
            && self.sample >= settings.min_sample
            && self
                .recent
                .is_none_or(|(success, total)| confidence(success, total) > settings.min_confidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(specificity: Specificity, sample: f64) -> Basis {
        Basis::new(specificity, sample, sample, None)
    }

    fn strongest(list: &[Basis]) -> Basis {
        let settings = Settings::default();
        list[1..].iter().fold(list[0], |strongest, level| strongest.stronger(*level, &settings))
    }

    #[test]
    fn the_most_specific_full_sample_wins_among_equals_else_the_largest() {
        use Specificity::{Domain, DomainPath, Flag, Own, Site, Suffix};
        let best = |list: &[Basis]| strongest(list).specificity;
        assert_eq!(
            best(&[basis(Site, 90.0), basis(Domain, 90.0), basis(DomainPath, 40.0)]),
            DomainPath
        );
        assert_eq!(best(&[basis(Suffix, 3.0), basis(Domain, 3.0), basis(DomainPath, 1.0)]), Domain);
        assert_eq!(
            best(&[basis(Flag(0), 9.0), basis(Flag(3), 9.0), basis(Own(200), 90.0)]),
            Own(200)
        );
    }

    #[test]
    fn an_agreeing_specific_level_never_lowers_confidence() {
        let suffix = Basis::new(Specificity::Suffix, 19.5, 20.0, None);
        for n in 0..30 {
            let host = basis(Specificity::Domain, f64::from(n));
            assert!(
                strongest(&[suffix, host]).confidence() >= suffix.confidence(),
                "{n} successes"
            );
        }
        let one_failure = Basis::new(Specificity::Domain, 4.0, 5.0, None);
        assert_eq!(
            strongest(&[suffix, one_failure]).specificity,
            Specificity::Suffix,
            "one of five may be chance"
        );
    }

    #[test]
    fn a_specific_level_with_significant_failures_counts_alone() {
        let suffix = Basis::new(Specificity::Suffix, 950.0, 1000.0, None);
        for (success, sample) in [(2.0, 5.0), (0.0, 2.0), (12.0, 20.0)] {
            let host = Basis::new(Specificity::Domain, success, sample, None);
            assert_eq!(strongest(&[suffix, host]), host);
        }
        let collapsed = Basis { recent: Some((1.0, 12.0)), ..basis(Specificity::Domain, 500.0) };
        assert_eq!(strongest(&[suffix, collapsed]), collapsed, "the recent attempts are failures");
    }

    /// The bug: two failures on a host lowered nothing, because a suffix with half an attempt, a
    /// failure, agreed with all such files elsewhere and then with the host. The first success then
    /// lowered the confidence.
    #[test]
    fn a_level_that_hardly_knows_anything_hides_no_failures_of_the_next() {
        let flag = Basis::new(Specificity::Flag(0), 3.0, 4.25, None);
        let suffix = Basis::new(Specificity::Suffix, 0.0, 0.5, None);
        let host = Basis::new(Specificity::Domain, 0.0, 2.0, None);
        assert_eq!(strongest(&[flag, suffix]).confidence(), flag.confidence());
        assert_eq!(strongest(&[flag, suffix, host]).confidence(), 0.0);
    }

    #[test]
    fn a_recent_collapse_takes_confidence_away_at_once() {
        let settings = Settings::default();
        let steady = Basis { recent: Some((60.0, 64.0)), ..basis(Specificity::Domain, 1000.0) };
        let collapsed = Basis { recent: Some((20.0, 64.0)), ..steady };
        assert!(steady.is_confident(&settings) && !collapsed.is_confident(&settings));
    }
}
