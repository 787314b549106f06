//! The gate of a host, site or address at one moment: whether a request may go out, and the
//! bookkeeping of those that do.
//!
//! Owns: the gate, and the gap between requests.
//!
//! Invariants: requests go out evenly; at most `par` in parallel; none before a hold has ended, and
//! then one alone.
//!
//! The rules that change its rate are further methods in other files.

use super::permit::wrapped;
use super::window::{Counts, SECONDS, WINDOWS};
use crate::limiter::active_state::{ActiveState, Trial};
use crate::persistence::persisted_state::PersistedState;
use crate::signals::response::Level;

/// Minimum learned rate, in requests per second: the host is held for rarer limits.
pub(crate) const MIN_RATE: f64 = 0.005;
/// Parallel requests that any latency allows.
const PAR_LEAST: u8 = 2;
/// Parallel requests before the first response.
const PAR_FIRST: f64 = 4.0;
/// Share of the ceiling from which the rate counts as at the ceiling.
const AT_CEILING: f64 = 0.97;

/// Ratio to the latency of its pages from which on a host that answers nothing is silent, and the
/// least latency that counts, in seconds.
const SILENT: f64 = 10.0;
const QUICK_S: f64 = 0.02;
/// Gap from which on a configured one is the time between two requests, rather than a rate, in
/// milliseconds.
const LONG_GAP_MS: f64 = 1000.0;
/// Requests up to which a host is hardly known: later, its slowest pages are part of what it is.
const HARDLY_KNOWN: f64 = 200.0;

/// Settings for a host, site or address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) level: Level,
    /// The rate is configured: only holds are learned.
    pub(crate) is_fixed: bool,
    pub(crate) max_rate: f64,
    /// Errors alone lower no rate below this.
    pub(crate) min_rate: f64,
    pub(crate) max_retry_after_s: f64,
    pub(crate) max_crawl_delay_s: f64,
}

/// The decision of a gate about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateDecision {
    Go,
    /// The request may go out, as the trial.
    Trial,
    /// Not before this time.
    Wait(i64),
    AtCapacity,
}

/// The gate of one host, site or address.
#[derive(Debug)]
pub(crate) struct RateGate<'l> {
    pub(crate) persisted: &'l mut PersistedState,
    pub(crate) active: &'l mut ActiveState,
    pub(crate) rules: &'l Rules,
    pub(crate) now: i64,
}

impl RateGate<'_> {
    /// Returns the lowest rate that a window allows, with that window; `max_rate` if no window is
    /// lower.
    pub(crate) fn ceiling(&self) -> (f64, Option<usize>) {
        let mut least = (self.rules.max_rate, None);
        for (window, cap) in self.persisted.cap.iter().enumerate() {
            if let Some(cap) = cap.some()
                && cap < least.0
            {
                least = (cap, Some(window));
            }
        }
        least
    }

    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.active.rate)
    }

    /// Sets the rate, clamped to the ceiling and to what can be stored.
    pub(crate) fn set_rate(&mut self, rate: f64) {
        if !self.rules.is_fixed {
            self.active.rate = rate.max(MIN_RATE).min(self.ceiling().0.max(MIN_RATE)) as f32;
        }
    }

    /// Sets the maximum of parallel requests, and the rate: the given one, or what is learned
    /// within its limits. The next request waits for no longer gap than that of the new rate.
    pub(crate) fn reconfigure(&mut self, max_par: u8, rate: Option<f64>) {
        self.active.max_par = max_par;
        self.active.rate = rate.unwrap_or_else(|| self.rate().min(self.rules.max_rate)) as f32;
        let gap_ms = self.gap_ms(1).round() as i64;
        self.active.next = self.active.next.min(self.now.saturating_add(gap_ms));
    }

    /// Returns the window that limits the rate, if the rate is at the ceiling.
    pub(crate) fn at_ceiling(&self) -> Option<usize> {
        let (ceiling, window) = self.ceiling();
        window.filter(|_| self.rate() >= AT_CEILING * ceiling)
    }

    /// Returns the maximum of parallel requests.
    pub(crate) fn par(&self) -> u8 {
        if self.persisted.kept_gap().is_some() {
            return 1;
        }
        let cap = match self.persisted.par_cap {
            0 => self.active.max_par,
            cap => self.active.max_par.min(cap),
        };
        if self.rules.is_fixed || self.rules.level != Level::Host {
            return cap;
        }
        let needed = match self.active.fast {
            fast if fast.is_nan() => PAR_FIRST,
            fast => (1.5 * self.rate() * f64::from(fast).exp()).ceil() + f64::from(PAR_LEAST),
        };
        cap.min(needed.clamp(1.0, 255.0) as u8).max(1)
    }

    /// Returns the end of the hold, if it is in the future.
    pub(crate) fn hold(&self) -> Option<i64> {
        self.active.trouble.as_ref().map(|trouble| trouble.hold).filter(|hold| *hold > self.now)
    }

    /// Returns whether one more request in flight is allowed.
    fn has_room(&self, cost: u16) -> bool {
        let left = self.active.trouble.as_ref().and_then(|trouble| trouble.left);
        if left.is_some_and(|left| self.active.in_flight >= left) {
            return false;
        }
        // The latency matters from the third one on: without it, most checks need no exponential.
        let cap = if self.persisted.par_cap == 0 { u8::MAX } else { self.persisted.par_cap };
        let is_clear = self.persisted.kept_gap().is_none()
            && self.active.in_flight < PAR_LEAST.min(self.active.max_par).min(cap);
        is_clear || self.active.in_flight < self.par() && !(cost <= 1 && self.is_silent())
    }

    /// Returns whether a host that is hardly known keeps its requests waiting far longer than its
    /// pages take: a limit may do so, and would do the same to one more. Rendered pages take their
    /// time.
    fn is_silent(&self) -> bool {
        let is_unknown = self.active.trouble.is_none() && self.persisted.render_cost == 0;
        let is_unknown = is_unknown && self.active.in_flight >= PAR_LEAST && !self.rules.is_fixed;
        let Some(last) = self.active.last_good_response().filter(|_| is_unknown) else {
            return false;
        };
        let waited_s = f64::from(wrapped(self.now).wrapping_sub(last)) / 1000.0;
        let usual_s = f64::from(self.active.fast).exp().max(QUICK_S);
        waited_s > SILENT * usual_s && self.active.rings.count(WINDOWS - 1, self.now) < HARDLY_KNOWN
    }

    pub(crate) fn decide(&mut self, cost: u16) -> GateDecision {
        if let Some(trouble) = &self.active.trouble {
            if trouble.hold > self.now {
                return GateDecision::Wait(trouble.hold);
            }
            match trouble.trial {
                Trial::No => {}
                Trial::Wanted if self.active.next > self.now => {
                    return GateDecision::Wait(self.active.next);
                }
                Trial::Wanted => return GateDecision::Trial,
                Trial::Out => return GateDecision::AtCapacity,
            }
        }
        if !self.has_room(cost) {
            if let Some(trouble) = &mut self.active.trouble {
                trouble.is_crowded = true;
            }
            return GateDecision::AtCapacity;
        }
        if self.active.next > self.now {
            GateDecision::Wait(self.active.next)
        } else {
            GateDecision::Go
        }
    }

    /// Books a request that the gate admitted. `even` is a number from 0.9 to 1.1. A gap that the
    /// host or the user has set is never shorter. Returns whether the caller had more requests than
    /// went out: this one came as soon as it could.
    pub(crate) fn book(&mut self, cost: u16, is_trial: bool, even: f64) -> bool {
        let gap_ms = self.gap_ms(cost);
        let is_set = self.min_gap_s().is_some() || self.rules.is_fixed && gap_ms >= LONG_GAP_MS;
        let gap_ms = gap_ms * if is_set { 0.5 * (even + 1.1) } else { even };
        let idle = self.now.saturating_sub(self.active.next) as f64;
        let is_paced = idle <= 2.0 * gap_ms;
        // A late caller catches up at most a fifth of a gap: saved requests would go out as a
        // burst. After a hold nobody is late.
        let is_exact = is_set || is_trial && self.ceiling().1 == Some(0);
        let late_ms = if is_exact { 0 } else { (gap_ms / 5.0) as i64 };
        let from = self.active.next.max(self.now.saturating_sub(late_ms));
        self.active.next = from.saturating_add(gap_ms.round() as i64);
        self.touch();
        self.active.rings.add(cost, self.now);
        self.active.in_flight = self.active.in_flight.saturating_add(1);
        if let Some(trouble) = &mut self.active.trouble {
            trouble.resumed = trouble.resumed.saturating_add(u32::from(cost));
        }
        if is_trial {
            self.active.trouble().trial = Trial::Out;
        }
        is_paced
    }

    /// Records that the request has ended, or never went out.
    pub(crate) fn unbook(&mut self, is_trial: bool) {
        self.active.in_flight = self.active.in_flight.saturating_sub(1);
        if is_trial {
            let trouble = self.active.trouble();
            if trouble.trial == Trial::Out {
                trouble.trial = Trial::Wanted;
            }
        }
    }

    /// Frees the turn of a request that was booked at `sent`, with the next one at `next`, and
    /// never went out. If others were booked after it, their turns stay, so that requests still go
    /// out evenly.
    pub(crate) fn free_turn(&mut self, next: u32, sent: i64) {
        if wrapped(self.active.next) == next {
            self.active.next = self.active.next.min(sent);
        }
    }

    /// Counts the actual cost of a request instead of the admitted one. A cheaper request gives
    /// back the part of its gap that is still ahead.
    pub(crate) fn correct(&mut self, admitted_cost: u16, cost: u16) {
        self.touch();
        if cost > admitted_cost {
            self.active.rings.add(cost - admitted_cost, self.now);
            let gap = self.gap_ms(cost - admitted_cost);
            self.active.next = self.active.next.max(self.now).saturating_add(gap as i64);
        } else {
            self.active.rings.subtract(admitted_cost - cost, self.now);
            let excess_ms = (self.gap_ms(admitted_cost) - self.gap_ms(cost)) as i64;
            let earliest = self.active.next.min(self.now);
            self.active.next = self.active.next.saturating_sub(excess_ms).max(earliest);
        }
    }

    /// Takes a request that never went out from the counts. [`free_turn`](Self::free_turn) decides
    /// about its gap.
    pub(crate) fn uncount(&mut self, cost: u16) {
        self.touch();
        self.active.rings.subtract(cost, self.now);
    }

    /// Advances the rings to now.
    pub(crate) fn touch(&mut self) {
        // A clock that goes back counts as standing still.
        self.now = self.now.max(self.active.at);
        self.active.rings.advance(self.active.at, self.now);
        self.active.at = self.now;
        self.persisted.last_request_day =
            u16::try_from(self.now.div_euclid(86_400_000)).unwrap_or(0);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.active.rings.counts(self.now)
    }

    /// Returns the duration of `cost` requests at the current rate, in milliseconds.
    pub(crate) fn gap_ms(&self, cost: u16) -> f64 {
        let gap = f64::from(cost.max(1)) / self.rate();
        // Infinite rates have no gap; no gap is longer than a day.
        (gap.max(self.min_gap_s().unwrap_or(0.0) * f64::from(cost.min(1))) * 1000.0)
            .clamp(0.0, 86_400_000.0)
    }

    /// Returns the minimum gap between requests that is kept, in seconds.
    pub(crate) fn min_gap_s(&self) -> Option<f64> {
        self.persisted.kept_gap().map(|declared_gap| declared_gap.min(self.rules.max_crawl_delay_s))
    }

    /// Returns whether a request went out before the last limit hit, so that its response proves
    /// nothing new.
    pub(crate) fn is_before_limit_hit(&self, sent: i64) -> bool {
        self.active
            .trouble
            .as_ref()
            .is_some_and(|trouble| trouble.limit_hit_at > 0 && sent <= trouble.limit_hit_at)
    }

    /// Returns the seconds since the last good response, and records this one.
    pub(crate) fn seconds_since_response(&mut self) -> f64 {
        let now = wrapped(self.now);
        let since = now.wrapping_sub(self.active.seconds_since_response);
        self.active.seconds_since_response = now;
        f64::from(since) / 1000.0
    }
}

/// Returns the rate of a count within a window.
pub(crate) fn rate_of(counts: &Counts, window: usize) -> f64 {
    counts[window].get() / SECONDS[window]
}
