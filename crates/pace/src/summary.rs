//! The paces of all hosts in a few numbers.
//!
//! Invariants: reading changes nothing.
//!
//! Must not know: the name of any host.

use super::Pace;
use fetchwise_types::time::Timestamp;

/// Summary of the hosts with a request in the last hour.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PaceSummary {
    /// The rates of the hosts themselves (without their sites and addresses), in requests per
    /// second, in ascending order.
    pub rates: Vec<f32>,
    /// The number of hosts on hold.
    pub held: usize,
    /// Their requests in flight.
    pub in_flight: usize,
}

impl PaceSummary {
    /// Returns the quantile `share` (from 0 to 1) of the rates; `None` without hosts.
    pub fn quantile(&self, share: f64) -> Option<f32> {
        let last = self.rates.len().checked_sub(1)?;
        self.rates.get((share.clamp(0.0, 1.0) * last as f64).round() as usize).copied()
    }
}

impl Pace {
    /// Reads every host, at some tens of nanoseconds each.
    pub fn summary(&self, now: Timestamp) -> PaceSummary {
        let mut summary = PaceSummary::default();
        self.hosts.for_each(|entry| {
            let Some(active) = entry.active() else { return };
            summary.rates.push(active.rate);
            summary.in_flight += usize::from(active.in_flight);
            summary.held += usize::from(
                active.trouble.as_ref().is_some_and(|trouble| trouble.hold > now.as_millis()),
            );
        });
        summary.rates.sort_unstable_by(f32::total_cmp);
        summary
    }
}
