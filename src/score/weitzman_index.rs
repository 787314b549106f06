//! Weitzman's index: the worth of trying a fetcher at some cost, as pure arithmetic without state
//! or clock.

use super::Settings;
use fetchwise_types::registry::FetcherSpec;

/// The smallest probability of success in calculations, so that an index stays finite.
const MIN_SUCCESS: f64 = 1e-6;

/// Returns the probability of success, lowered by the configured discount.
#[inline]
pub(crate) fn discounted(success: f64, settings: &Settings) -> f64 {
    ((success - settings.success_discount) / (1.0 - settings.success_discount)).max(MIN_SUCCESS)
}

/// Returns the cost of one try: the request, the expected cost of a block, and a charge for the
/// probability of false content.
fn charge(spec: &FetcherSpec, cost: f64, success: f64, block: f64, settings: &Settings) -> f64 {
    cost + settings.blocked_cost * block
        + spec.false_success * (1.0 - success) * settings.page_value
}

/// Returns Weitzman's index, used while more than one attempt is left: trying fetchers in order of
/// descending index has the least expected cost until one succeeds.
pub(crate) fn index(
    spec: &FetcherSpec,
    cost: f64,
    success: f64,
    block: f64,
    settings: &Settings,
) -> f64 {
    spec.quality * settings.page_value - expected_cost(spec, cost, success, block, settings)
}

/// Returns the mean cost of a page when this fetcher is tried until it delivers. The index is the
/// page's value less this cost.
pub(crate) fn expected_cost(
    spec: &FetcherSpec,
    cost: f64,
    success: f64,
    block: f64,
    settings: &Settings,
) -> f64 {
    charge(spec, cost, success, block, settings) / discounted(success, settings)
}

/// Returns the expected worth of the last attempt allowed.
pub(crate) fn last_worth(
    spec: &FetcherSpec,
    cost: f64,
    success: f64,
    block: f64,
    settings: &Settings,
) -> f64 {
    spec.quality * settings.page_value * discounted(success, settings)
        - charge(spec, cost, success, block, settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_weighs_chance_against_cost_as_written() {
        let settings = Settings::default();
        let direct = FetcherSpec::by_name("direct_access");
        // index = 100 - (1 + 2 * 0.1 + 0.05 * 0.2 * 100) / ((0.8 - 0.1) / 0.9)
        assert!(
            (index(&direct, 1.0, 0.8, 0.1, &settings) - (100.0 - 2.2 / (0.7 / 0.9))).abs() < 1e-9
        );
        // last worth = 100 * (0.7 / 0.9) - 2.2
        assert!((last_worth(&direct, 1.0, 0.8, 0.1, &settings) - (70.0 / 0.9 - 2.2)).abs() < 1e-9);
        let browser = FetcherSpec::by_name("playwright");
        assert!(
            (index(&browser, 20.0, 0.95, 0.0, &settings) - (100.0 - 20.0 / (0.85 / 0.9))).abs()
                < 1e-9
        );
    }

    #[test]
    fn a_hopeless_fetcher_stays_finite() {
        let settings = Settings::default();
        assert!(
            index(&FetcherSpec::by_name("direct_access"), 1.0, 0.0, 1.0, &settings).is_finite()
        );
    }
}
