//! Limits that are known beforehand or declared by the host: `Crawl-delay`, and rate limits in headers.
//!
//! Must not know: what is learned from blocks.

use super::headers::RateLimit;
use crate::limiter::active_state::Trial;
use crate::limiter::rate_gate::{Live, RATE_MIN};
use crate::limiter::window::{SECONDS, WINDOWS};
use crate::persistence::float16::Small;
use crate::signals::response::Cause;

/// Share of the declared limit that is used.
const USED: f64 = 0.9;
/// Below this share of its quota, the rest is spread over the time until the reset.
const LOW: f64 = 0.1;
/// Quotas over longer windows (a day, a month) are no pace.
const MAX_WINDOW_S: f64 = 3600.0;
/// Longer times until the reset are ignored.
const MAX_RESET_S: f64 = 3600.0;

impl Live<'_> {
    /// Applies a declared limit. Returns whether that changed a ceiling.
    pub(crate) fn told(&mut self, limit: &RateLimit) -> bool {
        if self.rules.is_fixed {
            return false;
        }
        let changed = self.told_policy(limit);
        let (Some(left), Some(reset)) = (limit.remaining, limit.reset_s.filter(|reset| *reset <= MAX_RESET_S)) else {
            return changed;
        };
        if left < 1.0 && reset > 0.0 {
            if self.hold().is_none() {
                let trial = self.hot.trouble.as_ref().map_or(Trial::No, |trouble| trouble.trial);
                self.hold_for(reset, trial);
            }
        } else if left < LOW * limit.quota.unwrap_or(0.0) && reset > 0.0 {
            self.set_rate(self.rate().min(left / reset));
        }
        changed
    }

    /// Applies the declared gap between requests, in seconds; with `is_start` it only gives the initial rate of an
    /// unknown host. Returns whether the gap is new.
    pub(crate) fn floor(&mut self, gap_s: f64, is_start: bool) -> bool {
        let wish = Small::new(gap_s);
        let is_new = self.cold.wish != wish || self.cold.kept_wish().is_none() && !is_start;
        if !is_start {
            self.cold.keep_wish(wish);
            return is_new;
        }
        self.cold.wish = wish;
        if self.cold.event == 0 && self.cold.rate.is_none() && self.hot.answered_never() {
            self.set_rate(1.0 / gap_s.min(self.rules.max_crawl_delay_s));
        }
        is_new
    }

    fn told_policy(&mut self, limit: &RateLimit) -> bool {
        let (Some(quota), Some(seconds)) = (limit.quota, limit.window_s) else { return false };
        let Some(window) = (0..WINDOWS).find(|window| SECONDS[*window] >= seconds) else { return false };
        if seconds > MAX_WINDOW_S || quota <= 0.0 {
            return false;
        }
        let cap = Small::new((USED * quota / seconds).max(RATE_MIN));
        if self.cold.given() == Some(window) && self.cold.cap[window] == cap {
            return false;
        }
        self.cold.set_given(window);
        self.cold.cap[window] = cap;
        self.cold.set_why(Some(window), Cause::Told);
        self.set_rate(self.rate());
        true
    }
}
