//! Limits that are known beforehand or declared by the host: `Crawl-delay`, and rate limits in
//! headers.
//!
//! Must not know: what is learned from blocks.

use super::headers::{MAX_RESET_S, RateLimit};
use crate::limiter::active_state::Trial;
use crate::limiter::rate_gate::{MIN_RATE, RateGate};
use crate::limiter::window::{SECONDS, WINDOWS};
use crate::persistence::float16::PositiveF16;
use crate::signals::response::Cause;

/// Share of the declared limit that is used.
const USED: f64 = 0.9;
/// Below this share of a quota that is a rate, the rest is spread over the time until the reset.
const LOW: f64 = 0.1;
/// A quota over a longer window is no pace unless the host says how much of it is left.
const MAX_WINDOW_S: f64 = 3600.0;
/// Up to this window a quota is a rate: what is saved by spending it at once is less than what a
/// refusal costs.
const RATE_WINDOW_S: f64 = 60.0;

impl RateGate<'_> {
    /// Applies a declared limit. Returns whether that changed a ceiling.
    pub(crate) fn apply_declared_limit(&mut self, limit: &RateLimit) -> bool {
        if self.rules.is_fixed {
            return false;
        }
        let left = limit
            .remaining
            .zip(limit.reset_s.filter(|reset| *reset > 0.0 && *reset <= MAX_RESET_S));
        // A budget is there to be spent: a list that fits into it need not wait.
        let is_budget = left.is_some()
            && limit.window_s.or(limit.reset_s).is_some_and(|span| span > RATE_WINDOW_S);
        let changed = if is_budget { self.lift_declared_cap() } else { self.apply_policy(limit) };
        let Some((left, reset)) = left else { return changed };
        self.note_budget(is_budget.then_some(left));
        if left < 1.0 {
            if self.hold().is_none() {
                let trial = self.active.trouble.as_ref().map_or(Trial::No, |trouble| trouble.trial);
                self.hold_for(reset, trial);
            }
        } else if !is_budget && left < LOW * limit.quota.unwrap_or(0.0) {
            self.set_rate(self.rate().min(left / reset));
        }
        changed
    }

    /// Remembers what is left of a budget, once that may be fewer requests than go out at once. All
    /// of it is spent: a list that fits need not wait, and a longer one waits for the reset in any
    /// case.
    fn note_budget(&mut self, left: Option<f64>) {
        let cost = f64::from(self.persisted.render_cost.max(1));
        let is_bound = |left: &f64| *left >= 1.0 && *left < cost * f64::from(self.active.max_par);
        let pages = left.filter(is_bound).map(|left| (left / cost).max(1.0) as u8);
        if pages.is_some() || self.active.trouble.is_some() {
            self.active.trouble().left = pages;
        }
    }

    /// Applies the declared gap between requests, in seconds; with `is_start` it only gives the
    /// initial rate of an unknown host. Returns whether the gap is new.
    pub(crate) fn apply_min_interval(&mut self, gap_s: f64, is_start: bool) -> bool {
        let declared_gap = PositiveF16::new(gap_s);
        let is_new = self.persisted.declared_gap != declared_gap
            || self.persisted.kept_gap().is_none() && !is_start;
        if !is_start {
            self.persisted.keep_declared_gap(declared_gap);
            return is_new;
        }
        self.persisted.declared_gap = declared_gap;
        if self.persisted.limit_hit_at == 0
            && self.persisted.rate.is_none()
            && self.active.has_no_response()
        {
            self.set_rate(1.0 / gap_s.min(self.rules.max_crawl_delay_s));
        }
        is_new
    }

    /// Removes the ceiling of an earlier declaration without a budget.
    fn lift_declared_cap(&mut self) -> bool {
        let Some(window) = self.persisted.declared_window() else { return false };
        if self.persisted.cause() != Cause::Declared || self.persisted.cap[window].is_none() {
            return false;
        }
        self.persisted.cap[window] = PositiveF16::NONE;
        true
    }

    fn apply_policy(&mut self, limit: &RateLimit) -> bool {
        let (Some(quota), Some(seconds)) = (limit.quota, limit.window_s) else { return false };
        let Some(window) = (0..WINDOWS).find(|window| SECONDS[*window] >= seconds) else {
            return false;
        };
        if seconds > MAX_WINDOW_S || quota <= 0.0 {
            return false;
        }
        let cap = PositiveF16::new((USED * quota / seconds).max(MIN_RATE));
        if self.persisted.declared_window() == Some(window) && self.persisted.cap[window] == cap {
            return false;
        }
        self.persisted.set_declared_window(window);
        self.persisted.cap[window] = cap;
        self.persisted.set_blame(Some(window), Cause::Declared);
        self.set_rate(self.rate());
        true
    }
}
