//! Growth up to the ceiling, and rare probes above it.
//!
//! Invariants: a probe does not begin before it is due. The cost of a failed probe is a small share
//! of the time until the next one.
//!
//! Must not know: what a limit hit is.

use super::permit::{PACED, Permit, SHARED_PACED};
use super::window::{Counts, SECONDS, between_s};
use crate::limiter::active_state::CeilingProbe;
use crate::limiter::limit_hit::{in_order, safe, seconds};
use crate::limiter::rate_gate::{MIN_RATE, RateGate, rate_of};
use crate::persistence::float16::PositiveF16;
use crate::signals::response::{Cause, Level};

/// Above this ratio to the quiet host's latency the rate does not grow.
pub(crate) const CALM: f64 = 1.3;
/// Time in which the rate doubles, in seconds.
const DOUBLING_S: f64 = 10.0;
/// Doublings for one request at most: few requests prove little, however much time they take.
const MAX_DOUBLINGS: f64 = 0.1;
/// Factor by which a ceiling without known limit is raised.
const RAISED: f64 = 1.5;
/// Number of requests below which a blocked count is coarse: the limit may be a third higher, and a
/// probe finds out sooner.
const COARSE: f64 = 12.0;
/// Seconds between probes of one more parallel request, longer after each failure: a failure costs
/// one request, and the gain is small.
const PAR_PAUSE_S: f64 = 1800.0;

/// Length of a penalty from which on the host bans, and a wrong guess is costly, in seconds.
const COSTLY_S: f64 = 120.0;
/// Windows after which the first probe of a host that bans is due: by then, a longer one would have
/// been too full.
const SETTLED: f64 = 1.25;
/// Ceiling of a host that bans, as a share of the blocked rate, once its window is certain.
const NEAR_HI: f64 = 0.96;
/// Gain from which on, and rate (requests per second) below which, that probe is worth a ban.
const WORTH: f64 = 0.5;
const RARE: f64 = 7.0;

impl RateGate<'_> {
    /// Records as allowed what was counted when this request went out.
    pub(crate) fn clean(&mut self, counts: &Counts, in_flight: u8) {
        for (window, clean) in self.persisted.clean.iter_mut().enumerate() {
            *clean = (*clean).max(PositiveF16::new(rate_of(counts, window)));
        }
        // Refused requests end sooner; while there are any, the host has fewer in flight than this
        // count.
        if self.active.trouble.as_ref().is_none_or(|trouble| trouble.errors == 0.0) {
            self.persisted.par_clean = self.persisted.par_clean.max(in_flight);
        }
    }

    /// Handles a good response that took `cost` requests, the first of which waited for the pace:
    /// grows the rate, or probes the ceiling. Returns the change.
    pub(crate) fn grow(&mut self, permit: &Permit, cost: u16, counts: &Counts) -> Option<Cause> {
        let since = self.seconds_since_response();
        if self.rules.is_fixed {
            return None;
        }
        let change = self.probe_ceiling(permit, counts);
        if permit.has(self.paced())
            && self.is_calm()
            && !self.is_crowded(permit)
            && self.rate().is_finite()
        {
            let grown = self.rate()
                * (since / DOUBLING_S).min(MAX_DOUBLINGS * f64::from(cost.max(1))).exp2();
            self.set_rate(grown.min(self.usable().max(self.rate())));
        }
        change
    }

    /// Schedules the next probe by its cost and its gain.
    pub(crate) fn schedule(&mut self) {
        let Some(window) = self.ceiling().1 else {
            let pause = PAR_PAUSE_S.max(20.0 * (self.persisted.penalty.get() + 20.0));
            self.persisted.probe_at = self.after(self.persisted.fails(self.now), pause);
            return;
        };
        let cap = self.persisted.cap[window].get();
        // A 503 without a time ends a probe without a hold. While parallel requests explain the
        // 503s, that is likely.
        let is_cheap = self.persisted.cause() == Cause::Unavailable && self.persisted.par_cap > 0;
        let cost = self.persisted.penalty.get() + if is_cheap { 0.0 } else { 20.0 };
        // If the window is cleared, the gain is the ceiling of the next suspect.
        let next = self.next_suspect(window).map_or(0.0, |next| self.first_cap(window, next));
        let tried = self.next_cap(window).max(if self.is_costly() { 0.0 } else { next });
        let gain = (tried / cap - 1.0).clamp(0.1, 3.0);
        // Few hosts that ban allow so much, so such a probe is as rare as one of a certain ceiling.
        let is_rare = self.is_costly() && tried >= RARE;
        let pause = if self.persisted.is_confirmed(self.now) || is_rare {
            (20.0 * 60.0_f64).max(20.0 * cost)
        } else {
            let is_coarse = self.persisted.cause() == Cause::Limited
                && self.persisted.hi[window].get() * SECONDS[window] < COARSE;
            if self.is_costly() && self.persisted.failed == 0 && gain > WORTH && tried < RARE {
                self.persisted.probe_at = self.after(0, SETTLED * SECONDS[window].max(60.0));
                return;
            }
            (if is_coarse { 1.5 } else { 5.0 } * cost / gain)
                .max(SECONDS[window].min(300.0))
                .max(60.0)
        };
        self.persisted.probe_at = self.after(self.persisted.fails(self.now), pause);
    }

    /// Handles a probe of `window` that hit the limit again.
    pub(crate) fn probe_failed(&mut self, window: usize, before: f64, rate: f64) {
        self.lower_hi(window, rate);
        let hi = self.persisted.hi[window].get();
        self.persisted.failed = self.persisted.failed.saturating_add(1);
        if hi < 1.3 * before {
            self.persisted.set_confirmed(true);
        }
        let cap = if self.persisted.is_confirmed(self.now) {
            before.min(hi).max(safe(0.94, hi, window))
        } else {
            before.min(safe(0.9, hi, window))
        };
        self.persisted.cap[window] = PositiveF16::new(cap.max(MIN_RATE));
        self.set_rate(self.rate());
    }

    /// Returns the flag of a permit whose request had to wait for this level.
    fn paced(&self) -> u8 {
        if self.rules.level == Level::Host { PACED } else { SHARED_PACED }
    }

    /// Returns the window that would be blamed after this one.
    fn next_suspect(&self, window: usize) -> Option<usize> {
        let is_suspect = |other: &usize| {
            *other != window
                && !self.persisted.hi[*other].is_none()
                && self.persisted.cap[*other].is_none()
                && self.persisted.hi[*other] >= self.persisted.clean[*other]
                // The rate of this window will clear lower ones.
                && self.persisted.hi[*other] > self.persisted.cap[window]
        };
        in_order(window).find(is_suspect)
    }

    fn after(&self, fails: u8, pause_s: f64) -> u32 {
        let pause = pause_s * f64::from(1_u32 << fails.min(6));
        seconds(self.now.saturating_add((pause * 1000.0) as i64))
    }

    /// Returns the rate that a probe of this window would try.
    pub(crate) fn next_cap(&self, window: usize) -> f64 {
        let (cap, hi) = (self.persisted.cap[window].get(), self.persisted.hi[window].get());
        let is_costly = self.is_costly();
        let tried = match hi {
            0.0 => RAISED * cap,
            hi if hi > 1.3 * cap && is_costly => safe(0.9, hi, window).max(1.15 * cap),
            hi if hi > 1.3 * cap => (cap * hi).sqrt(),
            // A count cannot grow by less than one request.
            hi => (1.15 * hi).max(hi + 1.0 / SECONDS[window]),
        };
        // A failure costs the same at any rate, so such a probe tries what its success would allow.
        match self.next_suspect(window) {
            Some(next)
                if is_costly && hi <= 1.3 * cap && !self.persisted.is_confirmed(self.now) =>
            {
                tried.max(self.first_cap(window, next))
            }
            _ => tried,
        }
    }

    /// Returns the first ceiling of the window that is suspected after `window`. Where a wrong
    /// guess is costly, the host may count over a time between the two.
    fn first_cap(&self, window: usize, next: usize) -> f64 {
        let (count, cap) = (
            self.persisted.hi[window].get() * SECONDS[window],
            safe(0.9, self.persisted.hi[next].get(), next),
        );
        match between_s(next, window) {
            Some(between_s) if self.is_costly() && count > 0.0 => cap.min(0.9 * count / between_s),
            _ => cap,
        }
    }

    /// Returns whether a limit hit costs so much time that a wrong guess is expensive.
    pub(crate) fn is_costly(&self) -> bool {
        self.persisted.penalty.get() >= COSTLY_S
    }

    /// Returns twice the rate at which all parallel requests are in flight: a higher rate would
    /// prove nothing about the host.
    fn usable(&self) -> f64 {
        match f64::from(self.active.fast).exp() {
            latency if latency.is_nan() => f64::INFINITY,
            latency => 2.0 * f64::from(self.active.max_par) / latency,
        }
    }

    /// Returns whether the parallel limit, not the rate, held the request back.
    fn is_crowded(&self, permit: &Permit) -> bool {
        let most = if self.persisted.par_cap > 0 {
            self.persisted.par_cap.min(self.active.max_par)
        } else {
            self.active.max_par
        };
        permit.in_flight >= most
    }

    fn probe_ceiling(&mut self, permit: &Permit, counts: &Counts) -> Option<Cause> {
        if let Some(probe) = self.active.trouble.as_ref().and_then(|trouble| trouble.probe) {
            return self.check_probe(probe, permit, counts);
        }
        let due = seconds(self.now) >= self.persisted.probe_at;
        let now = self.now;
        let is_crowded = self
            .active
            .trouble
            .as_mut()
            .is_some_and(|trouble| std::mem::take(&mut trouble.is_crowded));
        let Some(window) = self.at_ceiling() else {
            if let Some(trouble) = &mut self.active.trouble {
                trouble.top_since = 0;
            }
            // The rate has room: the parallel limit holds requests back.
            if self.persisted.par_cap > 0
                && due
                && is_crowded
                && permit.in_flight >= self.persisted.par_cap
            {
                let before = f64::from(self.persisted.par_cap);
                self.active.trouble().probe =
                    Some(CeilingProbe { window: None, tried: before + 1.0, before, since: now });
                self.persisted.par_cap = self.persisted.par_cap.saturating_add(1);
            }
            return None;
        };
        let cap = self.persisted.cap[window].get();
        let trouble = self.active.trouble();
        if trouble.top_since == 0 {
            trouble.top_since = now;
        } else if now - trouble.top_since >= (2000.0 * SECONDS[window].max(60.0)) as i64 {
            self.persisted.lo = self.persisted.lo.max(PositiveF16::new(cap));
            if let Some(cap) = self.settled_cap(window, cap) {
                self.persisted.cap[window] = PositiveF16::new(cap);
                return None;
            }
        }
        if due
            && permit.has(self.paced())
            && self.persisted.declared_window() != Some(window)
            && self.is_calm()
        {
            let tried = self.next_cap(window).min(self.rules.max_rate);
            let trouble = self.active.trouble();
            trouble.probe =
                Some(CeilingProbe { window: Some(window), tried, before: cap, since: now });
            trouble.top_since = 0;
            self.persisted.cap[window] = PositiveF16::new(tried);
        }
        None
    }

    /// Returns a ceiling nearer to the blocked rate, for a host that bans and whose window is known
    /// by now. Ten seconds have too few requests for that: their spread is as large as the
    /// difference.
    fn settled_cap(&self, window: usize, cap: f64) -> Option<f64> {
        let is_known = window > 0 && self.is_costly() && self.persisted.failed == 0;
        let settled = safe(NEAR_HI, self.persisted.hi[window].get(), window);
        let is_near = settled > cap && settled < 1.1 * cap;
        (is_known && is_near && self.persisted.declared_window() != Some(window)).then_some(settled)
    }

    /// Checks whether the current probe has passed, and applies that. A probe lasts two windows: a
    /// limiter with fixed windows must have counted one of them completely.
    fn check_probe(
        &mut self,
        probe: CeilingProbe,
        permit: &Permit,
        counts: &Counts,
    ) -> Option<Cause> {
        let long_s = |window: Option<usize>| {
            let Some(window) = window else { return 60.0 };
            // At twice the blocked rate, half a window is too much already.
            let is_fast =
                self.persisted.hi[window].some().is_some_and(|hi| probe.tried >= 2.0 * hi);
            (if is_fast { 1.0 } else { 2.0 }) * SECONDS[window].max(60.0)
        };
        let is_over = self.now - probe.since >= (1000.0 * long_s(probe.window)) as i64;
        let Some(window) = probe.window else {
            if is_over && f64::from(permit.in_flight) >= probe.tried {
                self.active.trouble().probe = None;
                self.schedule();
            }
            return None;
        };
        let (ceiling, top) = self.ceiling();
        if !is_over {
            return None;
        }
        if rate_of(counts, window) < 0.96 * probe.tried.min(ceiling) {
            if self.is_crowded(permit) {
                // The rate cannot follow, so the probe proves nothing.
                self.active.trouble().probe = None;
                self.schedule();
            }
            return None;
        }
        self.active.trouble().probe = None;
        let is_beyond = self.persisted.hi[window]
            .some()
            .is_none_or(|hi| probe.tried.min(self.persisted.cap[window].get()) > hi);
        let has_followed = top == Some(window) || probe.tried <= ceiling;
        let is_known = self.persisted.is_confirmed(self.now) || self.persisted.hi[window].is_none();
        if is_beyond && has_followed && is_known {
            self.raise_ceiling(window);
            return Some(Cause::WindowCleared);
        }
        if is_beyond && has_followed {
            self.clear_window(window);
            self.schedule();
            return Some(Cause::WindowCleared);
        }
        self.schedule();
        None
    }

    /// Raises the ceiling: more than the blocked rate passes, and the window was confirmed, so the
    /// host allows more than before. The ceiling rises step by step, so that finding it costs one
    /// refusal and not two.
    fn raise_ceiling(&mut self, window: usize) {
        (self.persisted.hi[window], self.persisted.failed) = (PositiveF16::NONE, 0);
        self.persisted.set_confirmed(false);
        self.persisted.probe_at = self.after(0, SECONDS[window].clamp(60.0, 300.0));
    }

    /// Clears the window: more than the blocked rate passes, so the host does not count over it.
    /// The next suspect takes its place.
    fn clear_window(&mut self, window: usize) {
        let next = self.next_suspect(window).map(|next| (next, self.first_cap(window, next)));
        (self.persisted.cap[window], self.persisted.hi[window], self.persisted.failed) =
            (PositiveF16::NONE, PositiveF16::NONE, 0);
        self.persisted.set_confirmed(false);
        self.persisted.lo = PositiveF16::NONE;
        for other in 0..SECONDS.len() {
            if self.persisted.hi[other] < self.persisted.clean[other] {
                self.persisted.hi[other] = PositiveF16::NONE;
            }
        }
        if let Some((next, cap)) = next {
            self.persisted.cap[next] = PositiveF16::new(cap.max(MIN_RATE));
        }
        self.persisted.set_blame(next.map(|(next, _)| next), self.persisted.cause());
        self.set_rate(self.rate());
    }
}
