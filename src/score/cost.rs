//! The cost of a candidate's request on this host, if it is measured by request durations.
//!
//! Pure arithmetic; the walk provides the durations.
//!
//! Must not know: which candidate is taken.

use super::Scored;
use fetchwise_types::registry::Class;

/// Decayed plain requests below which their mean duration is not used as the unit.
const MIN_PLAIN_REQUESTS: f64 = 10.0;
/// Bounds of a measured cost, as multiples of the configured one.
const MIN_COST_RATIO: f64 = 0.25;
const MAX_COST_RATIO: f64 = 4.0;

/// Initializes the measured costs of candidates: the total duration and number of their requests,
/// with the configured cost as `weight` pseudo-requests. The mean plain request is the unit.
pub(super) fn start_costs(candidates: &mut [Scored<'_>], weight: f64) {
    if !candidates.iter().any(|c| c.spec.measures_cost) {
        return;
    }
    let plain = candidates
        .iter()
        .find(|c| c.spec.class == Class::Plain && c.spent_on >= MIN_PLAIN_REQUESTS);
    let Some(unit) = plain.map(|c| c.spent_ms / c.spent_on).filter(|unit| *unit > 0.0) else {
        return;
    };
    for c in candidates.iter_mut().filter(|c| c.spec.measures_cost) {
        c.plain_ms = unit;
        c.spent_ms += weight * c.spec.cost * unit;
        c.spent_on += weight;
    }
}

/// Returns the cost of a candidate's request here, in plain requests.
#[inline]
pub(super) fn measured_cost(c: &Scored<'_>) -> f64 {
    if c.plain_ms <= 0.0 {
        return c.spec.cost;
    }
    (c.spent_ms / c.spent_on / c.plain_ms)
        .clamp(MIN_COST_RATIO * c.spec.cost, MAX_COST_RATIO * c.spec.cost)
}
