//! Growth up to the ceiling, and the rare looks whether the ceiling could be higher.
//!
//! Invariant: a look is not begun before it is due, and what it costs when it fails is a small share of the time until the next.
//! Must not know what an event is.

use super::permit::{PACED, Permit, SHARED_PACED};
use super::window::{Counts, SECONDS};
use crate::limiter::active_state::Look;
use crate::limiter::limit_hit::{in_order, safe, seconds};
use crate::limiter::rate_gate::{Live, RATE_MIN, rate_of};
use crate::persistence::float16::Small;
use crate::signals::response::{Cause, Level};

/// Latency that is higher than this share of the quiet host's keeps the rate from growing.
pub(crate) const CALM: f64 = 1.3;
/// The rate doubles in so many seconds.
const DOUBLING_S: f64 = 10.0;
/// A ceiling that nothing is known to speak against is raised by this.
const RAISED: f64 = 1.5;
/// Looks at one more at once are this far apart, and further with each that fails: one request is refused, and little gained.
const PAR_PAUSE_S: f64 = 1800.0;

impl Live<'_> {
    /// What went out with this one is known to be allowed.
    pub(crate) fn clean(&mut self, counts: &Counts, in_flight: u8) {
        for (window, clean) in self.cold.clean.iter_mut().enumerate() {
            *clean = (*clean).max(Small::new(rate_of(counts, window)));
        }
        // Those that are refused come back sooner: while there are such, fewer are under way at the host than here.
        if self.hot.trouble.as_ref().is_none_or(|trouble| trouble.errors == 0.0) {
            self.cold.par_clean = self.cold.par_clean.max(in_flight);
        }
    }

    /// A good answer to a request of the pace's own making: the rate grows, or the ceiling is looked at. Returns what happened to it.
    pub(crate) fn grow(&mut self, permit: &Permit, counts: &Counts) -> Option<Cause> {
        let since = self.answered();
        if self.rules.is_fixed {
            return None;
        }
        let looked = self.look_at_the_ceiling(permit, counts);
        if permit.has(self.paced()) && self.is_calm() && !self.is_crowded(permit) && self.rate().is_finite() {
            let grown = self.rate() * (since / DOUBLING_S).min(0.1).exp2();
            self.set_rate(grown.min(self.usable().max(self.rate())));
        }
        looked
    }

    /// When the next look is due, from what one would cost and gain.
    pub(crate) fn schedule(&mut self) {
        let Some(window) = self.ceiling().1 else {
            let pause = PAR_PAUSE_S.max(20.0 * (self.cold.penalty.get() + 20.0));
            self.cold.probe_at = self.after(self.cold.fails(self.now), pause);
            return;
        };
        let cap = self.cold.cap[window].get();
        let cost = self.cold.penalty.get() + 20.0;
        // If the window turns out not to be to blame, the next suspect's ceiling is what is gained.
        let next = self.next_suspect(window).map_or(0.0, |next| safe(0.9, self.cold.hi[next].get(), next));
        let gain = (self.next_cap(window).max(next) / cap - 1.0).clamp(0.1, 3.0);
        let pause = if self.cold.is_sure(self.now) {
            (20.0 * 60.0_f64).max(20.0 * cost)
        } else {
            (4.0 * cost / gain).max(SECONDS[window].min(300.0)).max(60.0)
        };
        self.cold.probe_at = self.after(self.cold.fails(self.now), pause);
    }

    /// The look at `window` met the limit again.
    pub(crate) fn look_failed(&mut self, window: usize, before: f64, rate: f64) {
        self.lower_hi(window, rate);
        let hi = self.cold.hi[window].get();
        self.cold.failed = self.cold.failed.saturating_add(1);
        if hi < 1.3 * before {
            self.cold.set_sure(true);
        }
        let cap = if self.cold.is_sure(self.now) {
            before.min(hi).max(safe(0.94, hi, window))
        } else {
            before.min(safe(0.9, hi, window))
        };
        self.cold.cap[window] = Small::new(cap.max(RATE_MIN));
        self.set_rate(self.rate());
    }

    /// The mark of a permit whose request had to wait for this level.
    fn paced(&self) -> u8 {
        if self.rules.level == Level::Host { PACED } else { SHARED_PACED }
    }

    /// The window that would be blamed if this one were not.
    fn next_suspect(&self, window: usize) -> Option<usize> {
        let is_suspect = |other: &usize| {
            *other != window
                && !self.cold.hi[*other].is_none()
                && self.cold.cap[*other].is_none()
                && self.cold.hi[*other] >= self.cold.clean[*other]
                // What this one allows will clear those that are lower.
                && self.cold.hi[*other] > self.cold.cap[window]
        };
        in_order(window).find(is_suspect)
    }

    fn after(&self, fails: u8, pause_s: f64) -> u32 {
        let pause = pause_s * f64::from(1_u32 << fails.min(6));
        seconds(self.now.saturating_add((pause * 1000.0) as i64))
    }

    /// What a look at this window would try.
    pub(crate) fn next_cap(&self, window: usize) -> f64 {
        let (cap, hi) = (self.cold.cap[window].get(), self.cold.hi[window].get());
        match hi {
            0.0 => RAISED * cap,
            hi if hi > 1.3 * cap => (cap * hi).sqrt(),
            // A count cannot grow by less than one request.
            hi => (1.15 * hi).max(hi + 1.0 / SECONDS[window]),
        }
    }

    /// Twice the rate at which all that may be under way is under way: more would say nothing of the host.
    fn usable(&self) -> f64 {
        match f64::from(self.hot.fast).exp() {
            latency if latency.is_nan() => f64::INFINITY,
            latency => 2.0 * f64::from(self.hot.max_par) / latency,
        }
    }

    /// The number of those at once, not the rate, was what held the request back.
    fn is_crowded(&self, permit: &Permit) -> bool {
        let most = if self.cold.par_cap > 0 { self.cold.par_cap.min(self.hot.max_par) } else { self.hot.max_par };
        permit.in_flight >= most
    }

    fn look_at_the_ceiling(&mut self, permit: &Permit, counts: &Counts) -> Option<Cause> {
        if let Some(look) = self.hot.trouble.as_ref().and_then(|trouble| trouble.look) {
            return self.look_on(look, permit, counts);
        }
        let due = seconds(self.now) >= self.cold.probe_at;
        let now = self.now;
        let is_crowded = self.hot.trouble.as_mut().is_some_and(|trouble| std::mem::take(&mut trouble.is_crowded));
        let Some(window) = self.at_ceiling() else {
            if let Some(trouble) = &mut self.hot.trouble {
                trouble.top_since = 0;
            }
            // The rate has room: it is the number of those at once that holds requests back.
            if self.cold.par_cap > 0 && due && is_crowded && permit.in_flight >= self.cold.par_cap {
                let before = f64::from(self.cold.par_cap);
                self.hot.trouble().look = Some(Look { window: None, tried: before + 1.0, before, since: now });
                self.cold.par_cap = self.cold.par_cap.saturating_add(1);
            }
            return None;
        };
        let cap = self.cold.cap[window].get();
        let trouble = self.hot.trouble();
        if trouble.top_since == 0 {
            trouble.top_since = now;
        } else if now - trouble.top_since >= (2000.0 * SECONDS[window].max(60.0)) as i64 {
            self.cold.lo = self.cold.lo.max(Small::new(cap));
        }
        if due && permit.has(self.paced()) && self.cold.given() != Some(window) && self.is_calm() {
            let tried = self.next_cap(window).min(self.rules.max_rate);
            let trouble = self.hot.trouble();
            trouble.look = Some(Look { window: Some(window), tried, before: cap, since: now });
            trouble.top_since = 0;
            self.cold.cap[window] = Small::new(tried);
        }
        None
    }

    /// Whether a look under way has passed, and what that means. It lasts two windows: a limiter whose windows begin with the clock
    /// must have had one of them whole.
    fn look_on(&mut self, look: Look, permit: &Permit, counts: &Counts) -> Option<Cause> {
        let long_s = |window: Option<usize>| window.map_or(60.0, |window| 2.0 * SECONDS[window].max(60.0));
        let is_over = self.now - look.since >= (1000.0 * long_s(look.window)) as i64;
        let Some(window) = look.window else {
            if is_over && f64::from(permit.in_flight) >= look.tried {
                self.hot.trouble().look = None;
                self.schedule();
            }
            return None;
        };
        let (ceiling, top) = self.ceiling();
        if !is_over {
            return None;
        }
        if rate_of(counts, window) < 0.96 * look.tried.min(ceiling) {
            if self.is_crowded(permit) {
                // The rate cannot follow, so that this says nothing.
                self.hot.trouble().look = None;
                self.schedule();
            }
            return None;
        }
        self.hot.trouble().look = None;
        let is_beyond = self.cold.hi[window].some().is_none_or(|hi| look.tried.min(self.cold.cap[window].get()) > hi);
        let has_followed = top == Some(window) || look.tried <= ceiling;
        let is_known = self.cold.is_sure(self.now) || self.cold.hi[window].is_none();
        if is_beyond && has_followed && is_known {
            self.raised(window);
            return Some(Cause::Exonerated);
        }
        if is_beyond && has_followed {
            self.exonerate(window);
            self.schedule();
            return Some(Cause::Exonerated);
        }
        self.schedule();
        None
    }

    /// More than what was blocked goes through, and the window was sure to be the one that is counted over: the host allows more than it
    /// did. How much more is found step by step, so that it costs one refusal and not two.
    fn raised(&mut self, window: usize) {
        (self.cold.hi[window], self.cold.failed) = (Small::NONE, 0);
        self.cold.set_sure(false);
        self.cold.probe_at = self.after(0, SECONDS[window].clamp(60.0, 300.0));
    }

    /// More than what was blocked goes through: this window is not what the host counts over. The next suspect takes its place.
    fn exonerate(&mut self, window: usize) {
        let next = self.next_suspect(window);
        (self.cold.cap[window], self.cold.hi[window], self.cold.failed) = (Small::NONE, Small::NONE, 0);
        self.cold.set_sure(false);
        self.cold.lo = Small::NONE;
        for other in 0..SECONDS.len() {
            if self.cold.hi[other] < self.cold.clean[other] {
                self.cold.hi[other] = Small::NONE;
            }
        }
        if let Some(next) = next {
            let hi = self.cold.hi[next].get();
            self.cold.cap[next] = Small::new(safe(0.9, hi, next).max(RATE_MIN));
        }
        self.cold.set_why(next, self.cold.cause());
        self.set_rate(self.rate());
    }
}
