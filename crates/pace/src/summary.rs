//! The paces of all hosts in a few numbers.
//!
//! Must not change anything, nor name any host.

use super::Pace;
use fetchwise_types::time::Timestamp;

/// The hosts that were asked within the hour.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The requests a second that each of them may be asked by what is known of it alone, the slowest first.
    pub rates: Vec<f32>,
    /// Those of them that are held.
    pub held: usize,
    /// Their requests under way.
    pub in_flight: usize,
}

impl Summary {
    /// The rate that so large a share of the hosts, from 0 to 1, does not exceed; none without hosts.
    pub fn quantile(&self, share: f64) -> Option<f32> {
        let last = self.rates.len().checked_sub(1)?;
        self.rates.get((share.clamp(0.0, 1.0) * last as f64).round() as usize).copied()
    }
}

impl Pace {
    /// Looks at every host: some tens of nanoseconds each.
    pub fn summary(&self, now: Timestamp) -> Summary {
        let mut summary = Summary::default();
        for entry in &self.hosts {
            let Some(hot) = entry.hot() else { continue };
            summary.rates.push(hot.rate);
            summary.in_flight += usize::from(hot.in_flight);
            summary.held += usize::from(hot.trouble.as_ref().is_some_and(|trouble| trouble.hold > now.as_millis()));
        }
        summary.rates.sort_unstable_by(f32::total_cmp);
        summary
    }
}
