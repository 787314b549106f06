//! What a request of a candidate costs here, where that is measured by how long requests take.
//!
//! Pure arithmetic; the walk brings the durations. Must not know which candidate is taken.

use super::Scored;
use fetchwise_types::registry::Class;

/// With fewer decayed plain requests than this their mean duration is no unit.
const PLAIN_REQUESTS_MIN: f64 = 10.0;
/// A measured cost is no less than this share of the configured one, and no more than so many times it.
const COST_LEAST: f64 = 0.25;
const COST_MOST: f64 = 4.0;

/// Begins with the costs of the candidates that measure theirs: how long a request takes in all, the configured cost counting for
/// `weight` requests. The mean plain request is the unit.
pub(super) fn start_costs(candidates: &mut [Scored<'_>], weight: f64) {
    if !candidates.iter().any(|c| c.spec.measures_cost) {
        return;
    }
    let plain = candidates.iter().find(|c| c.spec.class == Class::Plain && c.spent_on >= PLAIN_REQUESTS_MIN);
    let Some(unit) = plain.map(|c| c.spent_ms / c.spent_on).filter(|unit| *unit > 0.0) else { return };
    for c in candidates.iter_mut().filter(|c| c.spec.measures_cost) {
        c.plain_ms = unit;
        c.spent_ms += weight * c.spec.cost * unit;
        c.spent_on += weight;
    }
}

/// What a request of a candidate costs here, in plain requests.
#[inline]
pub(super) fn measured_cost(c: &Scored<'_>) -> f64 {
    if c.plain_ms <= 0.0 {
        return c.spec.cost;
    }
    (c.spent_ms / c.spent_on / c.plain_ms).clamp(COST_LEAST * c.spec.cost, COST_MOST * c.spec.cost)
}
