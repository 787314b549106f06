//! Latency: a host that responds more slowly than under single requests is overloaded.
//!
//! Averages are of logarithms, so that one slow response does not outweigh twenty quick ones.
//!
//! Invariants: latency changes the rate and never the ceiling, because a busy hour is no limit.
//!
//! What this machine adds to the latency is not the host's: the caller may measure it, and what
//! most other sites have in common is taken off, too.
//!
//! Must not know: limits.

use crate::limiter::ceiling_probe::CALM;
use crate::limiter::permit::Permit;
use crate::limiter::rate_gate::RateGate;
use crate::persistence::float16::PositiveF16;
use crate::signals::local_load::LocalLoad;

/// Weight of one response in the recent average, and in that of the quiet host.
const FAST: f32 = 0.04;
const BASE: f32 = 0.03;
/// Weight by which the quiet host's average follows a lower recent one.
const DRAWN: f32 = 0.005;
/// The host is overloaded above this ratio to the quiet host's latency.
const SWAMPED: f64 = 1.6;
/// The rate is lowered by this factor, at most once per ten responses and two latencies.
const LESS: f64 = 0.8;
const ANSWERS: u8 = 10;
/// Minimum latency.
const LEAST_S: f64 = 0.001;
/// Latencies below this are never slow, in seconds: they say more about this machine than about the
/// host.
const QUICK_S: f64 = 0.02;
/// Delays by this machine that are averaged, in seconds: smaller ones are not worth the memory.
const NOTABLE_S: f64 = 0.01;
/// Maximum ratio to the quiet host's latency that is counted.
const MUCH: f32 = 4.0;
/// Maximum requests in flight (this one included) for a response of the quiet host.
const QUIET: u8 = 2;

impl RateGate<'_> {
    /// Records a response of `site` that took `seconds`, of which `measured_s` are this machine's.
    pub(crate) fn latency(
        &mut self,
        permit: &Permit,
        seconds: f64,
        measured_s: f64,
        load: &LocalLoad,
        site: u64,
    ) {
        let local_s = self.local_delay(seconds, measured_s, load, site);
        let log_of = |seconds: f64| seconds.clamp(LEAST_S, 3600.0).ln() as f32;
        let log = log_of(seconds);
        let hosts = if local_s == 0.0 { log } else { log_of(seconds - local_s) };
        if local_s >= NOTABLE_S || self.active.trouble.is_some() {
            // The first one stands for itself, as in the average that it is taken off.
            let weight = if self.active.fast.is_nan() { 1.0 } else { FAST };
            let average = &mut self.active.trouble().local_s;
            *average += weight * (local_s as f32 - *average);
        }
        let active = &mut *self.active;
        // Beyond four times the quiet host's latency, slower responses prove no more, but they
        // would stay in the average for longer and keep the rate down after the host has recovered.
        let at_most =
            |log: f32| if active.base.is_nan() { log } else { log.min(active.base + MUCH.ln()) };
        let (log, hosts) = (at_most(log), at_most(hosts));
        active.fast =
            if active.fast.is_nan() { log } else { active.fast + FAST * (log - active.fast) };
        if permit.in_flight <= QUIET {
            active.base = if active.base.is_nan() {
                hosts
            } else {
                active.base + BASE * (hosts - active.base)
            };
        }
        if active.fast < active.base {
            active.base += DRAWN * (active.fast - active.base);
        }
        if !active.base.is_nan() {
            self.persisted.base = PositiveF16::new(f64::from(active.base).exp());
        }
        self.slow_down(hosts);
    }

    /// Returns the part of a response's latency that this machine caused, and records the rest for
    /// other sites.
    fn local_delay(&self, seconds: f64, measured_s: f64, load: &LocalLoad, site: u64) -> f64 {
        let quiet_s = f64::from(self.active.base).exp();
        let measured_s = measured_s.min(seconds);
        if quiet_s.is_nan() {
            return measured_s;
        }
        let excess_s = seconds - measured_s - quiet_s;
        load.record(site, excess_s, self.now);
        // A response that is not late needs no excuse, and no excuse makes a late one quick.
        let is_late = excess_s > (CALM - 1.0) * quiet_s;
        measured_s + if is_late { load.common_s(site, self.now).min(excess_s) } else { 0.0 }
    }

    /// Returns the ratio of the latency to the quiet host's; 1 while unknown.
    pub(crate) fn slowness(&self) -> f64 {
        let local_s =
            self.active.trouble.as_ref().map_or(0.0, |trouble| f64::from(trouble.local_s));
        let fast_s = (f64::from(self.active.fast).exp() - local_s).max(QUICK_S);
        let ratio = fast_s / f64::from(self.active.base).exp().max(QUICK_S);
        if self.active.fast.is_nan() || self.active.base.is_nan() { 1.0 } else { ratio }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.is_within(CALM)
    }

    /// Returns whether the latency is at most this multiple of the quiet host's. Both are
    /// logarithms, so that most hosts need no exponential.
    fn is_within(&self, ratio: f64) -> bool {
        if self.active.trouble.as_ref().is_some_and(|trouble| trouble.local_s != 0.0) {
            return self.slowness() <= ratio;
        }
        let quick = QUICK_S.ln();
        // The maximum drops NaN, so unknown latencies are checked first.
        self.active.fast.is_nan()
            || self.active.base.is_nan()
            || f64::from(self.active.fast).max(quick) - f64::from(self.active.base).max(quick)
                <= ratio.ln()
    }

    /// Lowers the rate if the host is overloaded; `log` is the latest response's.
    fn slow_down(&mut self, log: f32) {
        // An unknown latency is not slow.
        if self.is_within(SWAMPED) {
            if let Some(trouble) = &mut self.active.trouble {
                trouble.slow = 0;
            }
            return;
        }
        // The average still contains responses from before the rate was lowered, so only slow
        // responses count.
        if f64::from(log - self.active.base) <= CALM.ln() || f64::from(log) <= QUICK_S.ln() {
            return;
        }
        let two_ms = (2000.0 * f64::from(self.active.fast).exp()) as i64;
        let now = self.now;
        let trouble = self.active.trouble();
        trouble.slow = trouble.slow.saturating_add(1);
        if trouble.slow >= ANSWERS && now.saturating_sub(trouble.slow_at) >= two_ms {
            (trouble.slow, trouble.slow_at) = (0, now);
            self.set_rate(LESS * self.rate());
        }
    }
}
