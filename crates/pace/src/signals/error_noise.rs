//! Noise: errors that a host gives at any rate. Slowing down does not help against them.
//!
//! When errors are about to lower a host's rate, a sequential test begins. It compares two
//! explanations of all responses from then on: the share of errors stays the same (noise), or only
//! requests above a limit fail, so that the share falls with the rate. At odds of 99 to 1 for
//! noise, the host gets back what it had before, and this share of errors counts as usual. A wrong
//! finding costs this share of the requests, so a share above 5 % needs odds of 9,999 to 1. The
//! odds against noise never exceed 99 to 1, so that a host whose errors change can still turn out
//! to be noisy.
//!
//! Responses at lower rates before the test count, too: a host that failed as often while its rate
//! was growing fails at any rate. A second test watches a noisy host for more errors than its
//! share, with one false alarm in 100,000 responses. If it finds them at the restored rate, they
//! depend on the rate: tests pause, and the host keeps its share of noise.
//!
//! Errors of another kind than those that began a test say nothing: a host that gives stray 500s at
//! any rate may refuse with 503s above a limit.
//!
//! Owns: the tests, and the share of noise.
//!
//! Invariants: a 429, a `Retry-After` or a block is never noise.
//!
//! Must not know: how errors become a limit hit, and how a rate is given back.

use std::cmp::Ordering;

use crate::persistence::persisted_state::PersistedState;
use crate::signals::response::Signal;

/// Logarithm of the odds at which errors are noise, and below which the odds do not fall: 99 to 1.
const DECIDED: f64 = 4.595;
/// The same for a large share, and the smallest one that is large.
const DECIDED_LARGE: f64 = 9.21;
const LARGE_SHARE: f64 = 0.05;
/// Largest share of errors that is noise. A host with more is out of order.
const MAX_NOISE: f64 = 0.6;
/// Share below which a host is not noisy, and its errors are too few for a test.
const QUIET: f64 = 0.003;
/// Share of errors that a limit leaves at a rate below it, on a host that is not noisy; and at a
/// rate so far below that none of its errors is left.
const LEAST_SHARE: f64 = 0.005;
const FAR_SHARE: f64 = 0.001;
/// Rates below this share of the previous one are far below it. After the first errors most
/// requests go out at about half the rate, so a share of just one half would decide by chance.
const FAR: f64 = 0.7;
/// Time in which a test must decide, in milliseconds: by then a limit may have changed by as much
/// as the rate.
const TEST_MS: i64 = 600_000;
/// Errors at clearly lower rates without which nothing is decided: two may be the last of a limit.
const LEAST_ERRORS: f64 = 4.0;
/// Rates below this share of the previous one are clearly lower.
const LOWER_RATE: f64 = 0.85;
/// Number of responses over which the share is averaged.
const RESPONSES: f32 = 64.0;
/// Number of responses that the test remembers.
const REMEMBERED: f64 = 300.0;
/// Standard deviations that the share of noise may rise above the one that was found.
const MARGIN: f64 = 2.0;
/// Ratio of shares from which on the one at lower rates replaces the known one.
const MORE: f64 = 1.1;
/// Number of responses over which the share of noise is averaged: it belongs to the host, and
/// changes slowly.
const LONG: f32 = 1000.0;
/// Share of all requests that a limit refuses at least, of those that noise leaves: what more
/// errors are tested for.
const REFUSED: f64 = 0.2;
/// Logarithm of the odds at which there are more errors than noise: one false alarm in 100,000
/// responses.
const ALARM: f64 = 11.5;
/// Pause of tests after errors that seemed to be noise turned out to depend on the rate, in
/// milliseconds. It doubles, at most [`DOUBLINGS`] times.
const PAUSE_MS: i64 = 300_000;
const DOUBLINGS: u8 = 6;
/// What marks a stored share as one of other errors than 503.
const OTHER_ERRORS: f64 = 1.0;
/// Share of refusals, of those that noise leaves, that a sum of failures tests for on a host whose
/// noise is not known.
const EXCESS: f64 = 0.35;
/// Logarithm of the odds that make one unit of the sum of failures.
const SUM_UNIT: f64 = 3.0;
/// Good responses up to which the share of errors is mostly chance.
const FEW: f32 = 24.0;
/// Errors without which an even share says nothing.
const EVEN_ERRORS: f32 = 8.0;
/// Share of requests that a limit refuses right after it has refused one, if it closes for a while.
const CLOSED: Option<f64> = Some(0.85);
/// Weight of responses at the present rate in what is expected there: they may be those of a limit.
const PRESENT: f32 = 0.5;
/// Evidence of a test below which its errors look like those of a limit.
const DOUBTFUL: f64 = 0.0;
/// Number of octaves of rates that are counted, and the upper end of the lowest one, in requests
/// per second.
const OCTAVES: usize = 10;
const LOWEST: f64 = 0.25;
/// Number of shares that are considered.
const SHARES: usize = 20;

/// Errors among the last responses, and what is known about their reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorNoise {
    responses: f32,
    errors: f32,
    /// Share of errors that is usual; 0 for a host that is not noisy. It never rises above the one
    /// that was found, or the errors of a limit would become usual, too.
    share: f32,
    found: f32,
    /// Whether the errors are 503s only.
    is_503: bool,
    /// Number of responses behind the share, at most [`LONG`].
    known: f32,
    /// Findings that were wrong, the rate that showed it, and the end of the pause of tests after
    /// the last one.
    wrong: u8,
    blamed_rate: f32,
    paused_until: i64,
    test: Option<Box<NoiseTest>>,
    /// Whether the last response was an error.
    after_error: bool,
    /// The last responses that did not follow an error, and errors among them, by octaves of the
    /// rate from [`LOWEST`] on.
    by_rate: [Octave; OCTAVES],
}

/// Responses that did not follow an error, at rates of one octave.
#[derive(Clone, Copy, Debug, Default)]
struct Octave {
    good: f32,
    /// 503s, and other errors.
    errors: [f32; 2],
}

impl Octave {
    /// Returns the responses, and the errors of one kind among them. Those of the other kind say
    /// nothing.
    fn of(&self, is_503: bool) -> (f32, f32) {
        let errors = self.errors[usize::from(!is_503)];
        (self.good + errors, errors)
    }
}

/// A test in progress, or one that has found noise.
#[derive(Clone, Debug)]
pub(crate) struct NoiseTest {
    /// Rate before errors lowered it, and what the host had learned by then.
    pub(crate) rate: f64,
    pub(crate) before: PersistedState,
    /// Time of its begin.
    since: i64,
    /// Whether 503s began it.
    is_503: bool,
    /// Share of errors that a limit leaves at a rate below it.
    least: f64,
    /// Responses, and errors among them, at clearly lower rates.
    slower: (f64, f64),
    /// The last response was an error.
    after_error: bool,
    /// Logarithm of the likelihood of all responses for each share of errors at that rate, if the
    /// errors are noise, and if they are those of a limit.
    noise: [f64; SHARES],
    limit: [f64; SHARES],
}

impl ErrorNoise {
    /// Returns what is known of a host whose noise was found earlier; `stored` is what
    /// [`Self::stored`] returned.
    pub(crate) fn known(stored: f64) -> Self {
        let is_503 = stored < OTHER_ERRORS;
        let share = if is_503 { stored } else { stored - OTHER_ERRORS };
        let mut noise = Self { is_503, ..Self::default() };
        noise.find(share.clamp(QUIET, MAX_NOISE), f64::from(RESPONSES));
        noise
    }

    /// Returns the noise as one number: its share of 503s, or 1 more than its share of other
    /// errors.
    pub(crate) fn stored(&self) -> Option<f64> {
        self.share().map(|share| if self.is_503 { share } else { OTHER_ERRORS + share })
    }

    /// Returns whether the noise is 503s only.
    pub(crate) fn is_503(&self) -> bool {
        self.is_503
    }

    /// Returns the usual share of errors, if the host is noisy.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.share > 0.0).then_some(f64::from(self.share))
    }

    /// Returns the evidence of one response that there are more errors than noise, in parts of what
    /// an alarm needs; `None` if the host is not noisy. `weight` is that of the error, 0 for a good
    /// response.
    pub(crate) fn excess(&self, weight: f64) -> Option<f64> {
        let share = self.share()?;
        let more = share + REFUSED * (1.0 - share);
        let odds =
            weight * (more / share).ln() + (1.0 - weight) * ((1.0 - more) / (1.0 - share)).ln();
        Some(odds / ALARM)
    }

    /// Returns whether a response has been counted.
    pub(crate) fn has_begun(&self) -> bool {
        self.responses > 0.0
    }

    /// Returns the share of errors that one more response is compared with; `before` is what any
    /// host is expected to show: errors, and responses.
    pub(crate) fn expected_share(&self, before: (f32, f32)) -> f64 {
        let (all, errors) = sum(self.by_rate.iter().map(|octave| octave.of(true)));
        self.share()
            .unwrap_or_else(|| f64::from((before.0 + errors) / (before.1 + all)))
            .clamp(0.01, MAX_NOISE)
    }

    /// Returns whether so few responses have come that their share of errors is mostly chance.
    pub(crate) fn is_new(&self) -> bool {
        sum(self.by_rate.iter().map(|octave| (octave.good, 0.0))).0 < FEW
    }

    /// Returns the steps of a sum of failures for one failure at `rate` and for one good response,
    /// on a host whose noise is not known. The more failures its lower rates have had, the less one
    /// more says. `before` is what any host is expected to show: failures, and responses.
    pub(crate) fn steps(&self, rate: f64, is_503: bool, before: (f32, f32)) -> (f64, f64) {
        let is_tested = self.test.as_ref().is_some_and(|test| test.evidence() > DOUBTFUL);
        let present = octave(rate);
        let (mut errors, mut all) = before;
        for (octave, (there, failed)) in
            self.by_rate.iter().map(|octave| octave.of(is_503)).enumerate()
        {
            // A test compares all rates. Until it decides, only more errors than at the higher rate
            // are unusual.
            let weight = match octave.cmp(&present) {
                _ if is_tested => 1.0,
                Ordering::Less => 1.0,
                Ordering::Equal => PRESENT,
                Ordering::Greater => 0.0,
            };
            (errors, all) = (errors + weight * failed, all + weight * there);
        }
        let share = f64::from(errors / all).clamp(0.01, MAX_NOISE);
        let more = share + EXCESS * (1.0 - share);
        ((more / share).ln() / SUM_UNIT, ((1.0 - more) / (1.0 - share)).ln() / SUM_UNIT)
    }

    /// Counts good responses at rates below `rate`.
    pub(crate) fn assume_good(&mut self, rate: f64, count: f64) {
        self.by_rate[octave(rate).saturating_sub(1)].good += count as f32;
    }

    /// Counts a response at `rate`; `is_limited` says that the host has hit a limit. Returns the
    /// test if it has just found noise.
    pub(crate) fn record(
        &mut self,
        rate: f64,
        error: Option<Signal>,
        is_limited: bool,
        now: i64,
    ) -> Option<Box<NoiseTest>> {
        self.count(rate, error);
        if self.test.is_none()
            && !is_limited
            && let Some(signal) = error
        {
            self.find_even_share(rate, signal == Signal::Unavailable);
        }
        let test = self.test.as_mut()?;
        if now.saturating_sub(test.since) > TEST_MS {
            self.test = None;
            return None;
        }
        match error {
            // Errors of another kind say nothing of those that began the test.
            Some(signal) if (signal == Signal::Unavailable) != test.is_503 => return None,
            error => test.add(rate, error.is_some()),
        }
        let share = test.slower.1 / test.slower.0.max(1.0);
        let needed = if share > LARGE_SHARE { DECIDED_LARGE } else { DECIDED };
        if test.evidence() < needed
            || test.slower.1 < LEAST_ERRORS
            || !(QUIET..=MAX_NOISE).contains(&share)
        {
            return None;
        }
        let responses = test.slower.0;
        self.is_503 = test.is_503;
        // Errors at even intervals are fewer than those that follow good responses let expect.
        self.find(share.min(self.recent_share().max(QUIET)), responses);
        self.test.take()
    }

    /// Finds noise without a test: errors that were as frequent at clearly lower rates, and lowered
    /// none.
    fn find_even_share(&mut self, rate: f64, is_503: bool) {
        let (all, errors) = sum(self.by_rate.iter().map(|octave| octave.of(is_503)));
        if self.share > 0.0 || self.wrong > 0 || errors < EVEN_ERRORS || all < RESPONSES {
            return;
        }
        let (there, failed) = self.by_rate[octave(rate)].of(is_503);
        let known = (f64::from(failed), f64::from(there - failed));
        let mut test = NoiseTest::new(rate, PersistedState::default(), 0, LEAST_SHARE, known);
        test.is_503 = is_503;
        self.add_lower(&mut test, rate);
        let share = test.slower.1 / test.slower.0.max(1.0);
        if test.evidence() >= DECIDED_LARGE
            && test.slower.1 >= LEAST_ERRORS
            && (QUIET..=MAX_NOISE).contains(&share)
        {
            self.is_503 = is_503;
            self.find(self.recent_share(), f64::from(RESPONSES));
        }
    }

    /// Adds what came at lower octaves of the rate.
    fn add_lower(&self, test: &mut NoiseTest, rate: f64) {
        for (octave, counts) in self.by_rate.iter().enumerate().take(octave(rate)) {
            let (all, errors) = counts.of(test.is_503);
            test.add_all(
                LOWEST * 2.0_f64.powf(octave as f64 - 0.5),
                f64::from(all),
                f64::from(errors),
            );
        }
    }

    /// Begins a test before errors lower `rate`, unless one is in progress. `before` is what the
    /// host has learned.
    pub(crate) fn begin_test(
        &mut self,
        rate: f64,
        signal: Signal,
        before: PersistedState,
        now: i64,
    ) {
        if self.test.is_none() && self.recent_share() >= QUIET && now >= self.paused_until {
            // The first error began the count, so half of it is left out.
            let (errors, all) = (f64::from(self.errors) - 0.5, f64::from(self.responses));
            let least = self.share().unwrap_or(LEAST_SHARE);
            let test = NoiseTest::new(rate, before, now, least, (errors, all - errors));
            let mut test = NoiseTest { is_503: signal == Signal::Unavailable, ..test };
            // While the rate grew, errors came at rates that were lower still.
            self.add_lower(&mut test, rate);
            self.test = Some(Box::new(test));
        }
    }

    /// Returns whether the errors have turned out to depend on the rate.
    pub(crate) fn is_limit(&self) -> bool {
        self.wrong > 0 || self.test.as_ref().is_some_and(|test| test.evidence() <= -0.9 * DECIDED)
    }

    /// Returns whether this host, although noisy, has a limit, too.
    pub(crate) fn has_limit(&self) -> bool {
        self.wrong > 0
    }

    /// Returns whether the share of noise was too low, and corrects it: a share that few responses
    /// have shown is coarse, and at rates below `rate` there are more by now.
    pub(crate) fn correct(&mut self, rate: f64) -> bool {
        let (all, errors) =
            sum(self.by_rate.iter().take(octave(rate)).map(|octave| octave.of(self.is_503)));
        let share = f64::from(errors / all.max(1.0));
        let is_more = self.share > 0.0
            && all >= RESPONSES
            && share.min(self.recent_share()) >= MORE * f64::from(self.share);
        let is_more = is_more && share <= MAX_NOISE;
        if is_more {
            self.find(share, f64::from(all));
        }
        is_more
    }

    fn find(&mut self, share: f64, responses: f64) {
        // Few responses make a coarse share.
        let margin = MARGIN * (share * (1.0 - share) / responses).sqrt();
        (self.share, self.found) = (share as f32, (share + margin) as f32);
        self.known = (responses as f32).clamp(RESPONSES, LONG);
    }

    /// Takes the finding back: at the restored rate there were more errors than at the lower one,
    /// so they depend on it.
    pub(crate) fn revoke(&mut self, rate: f64, now: i64) {
        if self.share > 0.0 {
            self.paused_until = now.saturating_add(PAUSE_MS << self.wrong.min(DOUBLINGS));
            self.wrong = self.wrong.saturating_add(1);
            self.blamed_rate = rate as f32;
            self.test = None;
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
    fn count(&mut self, rate: f64, error: Option<Signal>) {
        let is_error = error.is_some();
        let (kept, x) = (1.0 - 1.0 / RESPONSES, f32::from(u8::from(is_error)));
        (self.responses, self.errors) = (self.responses * kept + 1.0, self.errors * kept + x);
        if self.share > 0.0 {
            self.known = (self.known + 1.0).min(LONG);
            self.share += (x - self.share) / self.known;
            if (rate as f32) < LOWER_RATE as f32 * self.blamed_rate {
                // Errors below the limit are noise.
                self.found = self.found.max(self.share);
            }
            self.share =
                if f64::from(self.share) < QUIET / 2.0 { 0.0 } else { self.share.min(self.found) };
        }
        // A limit that has closed refuses whatever comes next, and noise has no memory: what
        // follows an error adds nothing.
        if std::mem::replace(&mut self.after_error, is_error) {
            return;
        }
        let (octave, kept) = (&mut self.by_rate[octave(rate)], 1.0 - 1.0 / LONG);
        octave.good *= kept;
        octave.errors = octave.errors.map(|errors| errors * kept);
        match error {
            None => octave.good += 1.0,
            Some(signal) => octave.errors[usize::from(signal != Signal::Unavailable)] += 1.0,
        }
    }
}

impl NoiseTest {
    fn new(
        rate: f64,
        before: PersistedState,
        since: i64,
        least: f64,
        (errors, others): (f64, f64),
    ) -> Self {
        let likelihood = std::array::from_fn(|at| {
            let share = share_at(at);
            errors * share.ln() + others * (1.0 - share).ln()
        });
        Self {
            rate,
            before,
            since,
            is_503: true,
            least,
            slower: (0.0, 0.0),
            after_error: true,
            noise: likelihood,
            limit: likelihood,
        }
    }

    /// Adds a response at `rate`.
    fn add(&mut self, rate: f64, is_error: bool) {
        let kept = 1.0 - 1.0 / REMEMBERED;
        self.noise.iter_mut().chain(&mut self.limit).for_each(|likelihood| *likelihood *= kept);
        // A limit that has closed refuses whatever comes next; noise does not remember its last
        // error.
        let closed = if std::mem::replace(&mut self.after_error, is_error) { CLOSED } else { None };
        self.add_responses(rate, 1.0, f64::from(u8::from(is_error)), closed);
    }

    /// Adds earlier responses at `rate`, and errors among them.
    fn add_all(&mut self, rate: f64, all: f64, errors: f64) {
        self.add_responses(rate, all, errors, None);
    }

    /// Adds responses at `rate`, and errors among them. `closed` is the share of errors of a limit
    /// that may have closed.
    fn add_responses(&mut self, rate: f64, all: f64, errors: f64, closed: Option<f64>) {
        let of = |share: f64| errors * share.ln() + (all - errors) * (1.0 - share).ln();
        let least = if rate < FAR * self.rate && self.least == LEAST_SHARE {
            FAR_SHARE
        } else {
            self.least
        };
        for at in 0..SHARES {
            let share = share_at(at);
            let at_limit = (1.0 - (1.0 - share) * self.rate / rate).max(least).min(share);
            let at_limit = closed.map_or(at_limit, |closed| (at_limit + closed) / 2.0);
            self.noise[at] += of(share);
            self.limit[at] += of(at_limit);
        }
        if rate < LOWER_RATE * self.rate {
            self.slower.0 += all;
            self.slower.1 += errors;
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

/// Returns all responses, and all errors.
fn sum(counts: impl Iterator<Item = (f32, f32)>) -> (f32, f32) {
    counts.fold((0.0, 0.0), |sum, (all, errors)| (sum.0 + all, sum.1 + errors))
}

/// Returns the octave of a rate.
fn octave(rate: f64) -> usize {
    ((rate / LOWEST).log2().ceil().max(0.0) as usize).min(OCTAVES - 1)
}

/// Returns the shares from 1/200 to 24/25, evenly by the logarithm of their odds: one in a hundred
/// is not one in fifty.
fn share_at(at: usize) -> f64 {
    1.0 / (1.0 + (5.3 - 0.45 * at as f64).exp())
}

fn log_sum(logarithms: &[f64]) -> f64 {
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + logarithms.iter().map(|logarithm| (logarithm - most).exp()).sum::<f64>().ln()
}
