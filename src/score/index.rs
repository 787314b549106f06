//! The worth of trying a fetcher, as pure arithmetic: no state, no time.

use super::Settings;
use crate::registry::FetcherSpec;

/// The least chance of success that is reckoned with, so that an index stays finite.
const CHANCE_MIN: f64 = 1e-6;

/// The chance of success after the doubt that one fetcher's failure casts on the next.
#[inline]
pub(crate) fn doubted(p: f64, settings: &Settings) -> f64 {
    ((p - settings.phi) / (1.0 - settings.phi)).max(CHANCE_MIN)
}

/// What a try costs: the request, a block's share, and the charge for a success that may be none.
fn charge(spec: &FetcherSpec, p: f64, b: f64, settings: &Settings) -> f64 {
    spec.cost + settings.blocked_cost * b + spec.false_success * (1.0 - p) * settings.value
}

/// Weitzman's index while more than one attempt is left: opening boxes in falling order of it is the cheapest expected way
/// to a success.
pub(crate) fn index(spec: &FetcherSpec, p: f64, b: f64, settings: &Settings) -> f64 {
    spec.quality * settings.value - expected_cost(spec, p, b, settings)
}

/// What a page costs through this fetcher, tried until it comes: what the index is below the page's worth.
pub(crate) fn expected_cost(spec: &FetcherSpec, p: f64, b: f64, settings: &Settings) -> f64 {
    charge(spec, p, b, settings) / doubted(p, settings)
}

/// The expected worth of the last attempt allowed.
pub(crate) fn last(spec: &FetcherSpec, p: f64, b: f64, settings: &Settings) -> f64 {
    spec.quality * settings.value * doubted(p, settings) - charge(spec, p, b, settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_weighs_chance_against_cost_as_written() {
        let settings = Settings::default();
        let direct = FetcherSpec::by_name("direct_access");
        // z = 100 - (1 + 2 * 0.1 + 0.05 * 0.2 * 100) / ((0.8 - 0.1) / 0.9)
        assert!((index(&direct, 0.8, 0.1, &settings) - (100.0 - 2.2 / (0.7 / 0.9))).abs() < 1e-9);
        // u = 100 * (0.7 / 0.9) - 2.2
        assert!((last(&direct, 0.8, 0.1, &settings) - (70.0 / 0.9 - 2.2)).abs() < 1e-9);
        let browser = FetcherSpec::by_name("playwright");
        assert!((index(&browser, 0.95, 0.0, &settings) - (100.0 - 20.0 / (0.85 / 0.9))).abs() < 1e-9);
    }

    #[test]
    fn a_hopeless_fetcher_stays_finite() {
        let settings = Settings::default();
        assert!(index(&FetcherSpec::by_name("direct_access"), 0.0, 1.0, &settings).is_finite());
    }
}
