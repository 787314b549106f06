//! Noise: errors that a host gives at any rate. Slowing down does not help against them.
//!
//! When errors are about to lower a host's rate, a sequential test begins. It compares two explanations of all responses
//! from then on: the share of errors stays the same (noise), or only requests above a limit fail, so that the share falls
//! with the rate. At odds of 99 to 1 for noise, the host gets back what it had before, and this share of errors counts as
//! usual. The odds against noise are held at 99 to 1, so that a host whose errors change can still turn out to be noisy.
//!
//! Owns: the test, and the share of noise.
//!
//! Invariants: a 429, a `Retry-After` or a block is never noise.
//!
//! Must not know: how errors become a limit hit, and how a rate is given back.

use crate::persistence::persisted_state::PersistedState;

/// Logarithm of the odds at which errors are noise, and below which the odds do not fall: 99 to 1.
const DECIDED: f64 = 4.595;
/// Largest share of errors that is noise. A host with more is out of order.
const MAX_NOISE: f64 = 0.6;
/// Share below which a host is not noisy, and its errors are too few for a test.
const QUIET: f64 = 0.02;
/// Share of errors that a limit leaves at a rate below it, on a host that is not noisy.
const LEAST_SHARE: f64 = 0.01;
/// Rates below this share of the previous one are clearly lower.
const LOWER_RATE: f64 = 0.85;
/// Number of responses over which the share is averaged.
const RESPONSES: f32 = 64.0;
/// Number of responses that the test remembers.
const REMEMBERED: f64 = 300.0;
/// Standard deviations that the share of noise may rise above the one that was found.
const MARGIN: f64 = 0.5;
/// Number of shares that are considered.
const SHARES: usize = 16;

/// Errors among the last responses, and what is known about their reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorNoise {
    responses: f32,
    errors: f32,
    /// Share of errors that is usual; 0 for a host that is not noisy. It never rises above the one that was found, or
    /// the errors of a limit would become usual, too.
    share: f32,
    found: f32,
    test: Option<Box<NoiseTest>>,
}

/// A test in progress, or one that has found noise.
#[derive(Clone, Debug)]
pub(crate) struct NoiseTest {
    /// Rate before errors lowered it, and what the host had learned by then.
    pub(crate) rate: f64,
    pub(crate) before: PersistedState,
    /// Share of errors that a limit leaves at a rate below it.
    least: f64,
    /// Responses, and errors among them, at a clearly lower rate.
    slower: (f64, f64),
    /// Logarithm of the likelihood of all responses for each share of errors at that rate, if the errors are noise, and
    /// if they are those of a limit.
    noise: [f64; SHARES],
    limit: [f64; SHARES],
}

impl ErrorNoise {
    /// Returns the usual share of errors, if the host is noisy.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.share > 0.0).then_some(f64::from(self.share))
    }

    /// Counts a response at `rate`. Returns the test if it has just found noise.
    pub(crate) fn record(&mut self, rate: f64, is_error: bool) -> Option<Box<NoiseTest>> {
        self.count(is_error);
        let test = self.test.as_mut()?;
        test.add(rate, is_error);
        let share = test.slower.1 / test.slower.0.max(1.0);
        if test.evidence() < DECIDED || !(QUIET..=MAX_NOISE).contains(&share) {
            return None;
        }
        // Few responses make a coarse share.
        let margin = MARGIN * (share * (1.0 - share) / test.slower.0).sqrt();
        (self.share, self.found) = (share as f32, (share + margin) as f32);
        self.test.take()
    }

    /// Begins a test before errors lower `rate`, unless one is in progress. `before` is what the host has learned.
    pub(crate) fn begin_test(&mut self, rate: f64, before: PersistedState) {
        if self.test.is_none() && self.recent_share() >= QUIET {
            // The first error began the count, so half of it is left out.
            let (errors, all) = (f64::from(self.errors) - 0.5, f64::from(self.responses));
            let least = self.share().unwrap_or(LEAST_SHARE);
            self.test = Some(Box::new(NoiseTest::new(rate, before, least, (errors, all - errors))));
        }
    }

    /// Ends the test: the host has said that it has a limit.
    pub(crate) fn end_test(&mut self) {
        self.test = None;
    }

    fn recent_share(&self) -> f64 {
        f64::from(self.errors / self.responses.max(1.0))
    }

    /// Counts a response.
    fn count(&mut self, is_error: bool) {
        let (kept, x) = (1.0 - 1.0 / RESPONSES, f32::from(u8::from(is_error)));
        (self.responses, self.errors) = (self.responses * kept + 1.0, self.errors * kept + x);
        if self.share > 0.0 {
            self.share += (x - self.share) / RESPONSES;
            self.share = if f64::from(self.share) < QUIET / 2.0 { 0.0 } else { self.share.min(self.found) };
        }
    }
}

impl NoiseTest {
    fn new(rate: f64, before: PersistedState, least: f64, (errors, others): (f64, f64)) -> Self {
        let likelihood = std::array::from_fn(|at| {
            let share = share_at(at);
            errors * share.ln() + others * (1.0 - share).ln()
        });
        Self { rate, before, least, slower: (0.0, 0.0), noise: likelihood, limit: likelihood }
    }

    /// Adds a response at `rate`.
    fn add(&mut self, rate: f64, is_error: bool) {
        let kept = 1.0 - 1.0 / REMEMBERED;
        let of = |share: f64| if is_error { share.ln() } else { (1.0 - share).ln() };
        for at in 0..SHARES {
            let share = share_at(at);
            let at_limit = (1.0 - (1.0 - share) * self.rate / rate).max(self.least).min(share);
            self.noise[at] = kept * self.noise[at] + of(share);
            self.limit[at] = kept * self.limit[at] + of(at_limit);
        }
        if rate < LOWER_RATE * self.rate {
            self.slower.0 += 1.0;
            self.slower.1 += f64::from(u8::from(is_error));
        }
        let too_low = -DECIDED - self.evidence();
        if too_low > 0.0 {
            self.limit.iter_mut().for_each(|likelihood| *likelihood -= too_low);
        }
    }

    /// Returns the logarithm of the odds that the errors are noise.
    fn evidence(&self) -> f64 {
        log_sum(&self.noise) - log_sum(&self.limit)
    }
}

fn share_at(at: usize) -> f64 {
    (at as f64 + 0.5) / SHARES as f64
}

fn log_sum(logarithms: &[f64]) -> f64 {
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + logarithms.iter().map(|logarithm| (logarithm - most).exp()).sum::<f64>().ln()
}
