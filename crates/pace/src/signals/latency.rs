//! Latency: a host that responds more slowly than under single requests is overloaded.
//!
//! Averages are of logarithms, so that one slow response does not outweigh twenty quick ones.
//!
//! Invariants: latency changes the rate and never the ceiling, because a busy hour is no limit.
//!
//! Must not know: limits.

use crate::limiter::ceiling_probe::CALM;
use crate::limiter::permit::Permit;
use crate::limiter::rate_gate::RateGate;
use crate::persistence::float16::PositiveF16;

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
/// Maximum ratio to the quiet host's latency that is counted.
const MUCH: f32 = 4.0;
/// Maximum requests in flight (this one included) for a response of the quiet host.
const QUIET: u8 = 2;

impl RateGate<'_> {
    /// Records a response that took `seconds`.
    pub(crate) fn latency(&mut self, permit: &Permit, seconds: f64) {
        let log = seconds.clamp(LEAST_S, 3600.0).ln() as f32;
        let active = &mut *self.active;
        // Beyond four times the quiet host's latency, slower responses prove no more, but they would stay in the
        // average for longer and keep the rate down after the host has recovered.
        let log = if active.base.is_nan() { log } else { log.min(active.base + MUCH.ln()) };
        active.fast = if active.fast.is_nan() { log } else { active.fast + FAST * (log - active.fast) };
        if permit.in_flight <= QUIET {
            active.base = if active.base.is_nan() { log } else { active.base + BASE * (log - active.base) };
        }
        if active.fast < active.base {
            active.base += DRAWN * (active.fast - active.base);
        }
        if !active.base.is_nan() {
            self.persisted.base = PositiveF16::new(f64::from(active.base).exp());
        }
        self.slow_down(log);
    }

    /// Returns the ratio of the latency to the quiet host's; 1 while unknown.
    pub(crate) fn slowness(&self) -> f64 {
        let ratio = f64::from(self.active.fast - self.active.base).exp();
        if ratio.is_nan() { 1.0 } else { ratio }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.active.fast.is_nan()
            || self.active.base.is_nan()
            || f64::from(self.active.fast - self.active.base) <= CALM.ln()
    }

    /// Lowers the rate if the host is overloaded; `log` is the latest response's.
    fn slow_down(&mut self, log: f32) {
        // An unknown latency is not slow.
        if self.slowness() <= SWAMPED {
            if let Some(trouble) = &mut self.active.trouble {
                trouble.slow = 0;
            }
            return;
        }
        // The average still contains responses from before the rate was lowered, so only slow responses count.
        if f64::from(log - self.active.base) <= CALM.ln() {
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
