//! Outages: a host that is down fails at any rate, and its ceiling stays.
//!
//! Invariants: a host that has said that it has a limit is not down, unless it says so to the first
//! requests. One that fails again soon, or after as many requests as before, has a limit.
//!
//! Must not know: how long a hold lasts.

use super::window::{Counts, SECONDS, WINDOWS};
use crate::limiter::limit_hit::{CUTS_MS, LimitHit, is_ambiguous};
use crate::limiter::rate_gate::{RateGate, rate_of};
use crate::signals::response::Cause;

/// Time for which the host has served at this rate before, in seconds: few limits count over more.
const STEADY_S: f64 = 300.0;
/// Number of requests up to which a first refusal says nothing of a limit, even if it says for how
/// long: the host is being maintained, or warms up.
const FIRST: f64 = 4.0;
/// Remaining share of the rate: a host that comes back has much to do.
const RESUMED: f64 = 0.5;

impl RateGate<'_> {
    /// Returns whether the host has most likely gone down: it only fails, and it did not serve
    /// before, or has served at this rate for minutes. `last_hit_at` is the time of the limit hit
    /// before, in seconds since the epoch.
    pub(crate) fn is_outage(&self, hit: &LimitHit, last_hit_at: u32) -> bool {
        if last_hit_at == 0 && hit.retry_after.is_some() && hit.cause != Cause::Block {
            return hit.counts[WINDOWS - 1].get() <= FIRST;
        }
        let may_be = is_ambiguous(hit) && hit.cause != Cause::SomeBlocks;
        if !may_be || self.is_near_a_limit(&hit.counts) {
            return false;
        }
        let since_ms = self.now.saturating_sub(i64::from(last_hit_at) * 1000);
        self.active.has_no_response() || since_ms > CUTS_MS && self.is_steady(&hit.counts)
    }

    /// Returns whether a window contains as many requests as when the host refused before.
    fn is_near_a_limit(&self, counts: &Counts) -> bool {
        (0..WINDOWS).any(|window| {
            let before = self.persisted.hi[window].get() * SECONDS[window];
            let count = counts[window].get();
            before > 0.0 && (count - before).abs() <= (0.05 * before).max(1.5)
        })
    }

    /// Returns whether the windows of minutes have been as full before, and the host has served.
    fn is_steady(&self, counts: &Counts) -> bool {
        (0..WINDOWS)
            .filter(|window| SECONDS[*window] <= STEADY_S)
            .all(|window| rate_of(counts, window) <= self.persisted.clean[window].get())
    }

    /// Applies a limit hit of a host that is down: only its rate falls.
    pub(crate) fn note_outage(&mut self, hit: &LimitHit) {
        // If a limit over a longer time was hit, the same count will tell.
        for window in (0..WINDOWS).filter(|window| SECONDS[*window] > STEADY_S) {
            self.lower_hi(window, rate_of(&hit.counts, window));
        }
        self.active.trouble().probe = None;
        self.persisted.set_blame(None, hit.cause);
        self.set_rate(RESUMED * self.rate());
    }
}
