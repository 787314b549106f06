//! Latency: a host that answers more slowly than when it was asked one thing at a time has more to do than it can.
//!
//! Averages are of logarithms, so that one slow answer does not weigh as much as twenty quick ones. Invariant: latency moves the rate
//! and never the ceiling, since a busy hour is no limit. Must not know limits.

use crate::limiter::ceiling_probe::CALM;
use crate::limiter::permit::Permit;
use crate::limiter::rate_gate::Live;
use crate::persistence::float16::Small;

/// How much one answer weighs in the average of late, and in that of the quiet host.
const FAST: f32 = 0.04;
const BASE: f32 = 0.03;
/// How much the quiet host's is drawn to a lower average of late.
const DRAWN: f32 = 0.005;
/// The host is swamped when latency is above this share of the quiet host's.
const SWAMPED: f64 = 1.6;
/// The rate is lowered to this share, not again before ten answers and two latencies.
const LESS: f64 = 0.8;
const ANSWERS: u8 = 10;
/// Nothing is answered in less.
const LEAST_S: f64 = 0.001;
/// Answers count as no slower than this many times the quiet host's.
const MUCH: f32 = 4.0;
/// Answers to requests with at most one other under way are those of the quiet host.
const QUIET: u8 = 2;

impl Live<'_> {
    /// An answer took `seconds`.
    pub(crate) fn latency(&mut self, permit: &Permit, seconds: f64) {
        let log = seconds.clamp(LEAST_S, 3600.0).ln() as f32;
        let hot = &mut *self.hot;
        // One that takes much longer than the quiet host's says no more than one that takes four times as long; but it would be
        // remembered for longer, and keep the rate down when all is well again.
        let log = if hot.base.is_nan() { log } else { log.min(hot.base + MUCH.ln()) };
        hot.fast = if hot.fast.is_nan() { log } else { hot.fast + FAST * (log - hot.fast) };
        if permit.in_flight <= QUIET {
            hot.base = if hot.base.is_nan() { log } else { hot.base + BASE * (log - hot.base) };
        }
        if hot.fast < hot.base {
            hot.base += DRAWN * (hot.fast - hot.base);
        }
        if !hot.base.is_nan() {
            self.cold.base = Small::new(f64::from(hot.base).exp());
        }
        self.slow_down(log);
    }

    /// Latency against that of the quiet host; 1 while nothing is known.
    pub(crate) fn slowness(&self) -> f64 {
        let ratio = f64::from(self.hot.fast - self.hot.base).exp();
        if ratio.is_nan() { 1.0 } else { ratio }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.hot.fast.is_nan() || self.hot.base.is_nan() || f64::from(self.hot.fast - self.hot.base) <= CALM.ln()
    }

    /// `log` is that of the latest answer.
    fn slow_down(&mut self, log: f32) {
        // What is not known yet is not slow.
        if self.slowness() <= SWAMPED {
            if let Some(trouble) = &mut self.hot.trouble {
                trouble.slow = 0;
            }
            return;
        }
        // The average still has in it what was before the rate was lowered: only answers that are slow themselves count.
        if f64::from(log - self.hot.base) <= CALM.ln() {
            return;
        }
        let two_ms = (2000.0 * f64::from(self.hot.fast).exp()) as i64;
        let now = self.now;
        let trouble = self.hot.trouble();
        trouble.slow = trouble.slow.saturating_add(1);
        if trouble.slow >= ANSWERS && now.saturating_sub(trouble.slow_at) >= two_ms {
            (trouble.slow, trouble.slow_at) = (0, now);
            self.set_rate(LESS * self.rate());
        }
    }
}
