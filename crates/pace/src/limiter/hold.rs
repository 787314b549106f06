//! Holds: how long one lasts after a limit hit, when its trials go out, and how requests resume.
//!
//! Invariants: nothing goes out before the end of a hold. What the host asks for is the least.
//!
//! Must not know: which window is to blame.

use std::time::Duration;

use crate::limiter::active_state::Trial;
use crate::limiter::limit_hit::{LimitHit, seconds};
use crate::limiter::rate_gate::{MIN_RATE, RateGate};
use crate::persistence::float16::PositiveF16;
use crate::signals::response::{Cause, Signal};

/// Maximum length of a hold that the host did not ask for.
const MAX_HOLD_S: f64 = 320.0 * 60.0;
/// Minimum length of a hold.
const LEAST_HOLD_S: f64 = 0.1;
/// Hold of a first 429 without a time: after it, a limit over ten seconds admits requests again,
/// and one over a minute rarely does.
const BRIEF_S: f64 = 11.0;
/// Share of the ceiling at which requests resume after a hold, and after one for errors.
const RESUMED: f64 = 0.7;
const RESUMED_AFTER_ERRORS: f64 = 0.5;
/// Remaining share of the ceiling of a host that bans after a few refusals.
const BANNED: f64 = 0.8;
/// The shortest lengths of bans that people choose, in seconds: most are round.
const ROUND_S: [f64; 2] = [300.0, 600.0];
/// Least step to the next of these lengths, as a share of the time that has passed.
const ROUND_STEP: f64 = 0.3;
/// The same for hosts that close for a short while, in seconds.
const SHORT_ROUND_S: [f64; 3] = [30.0, 60.0, 120.0];
/// Time after such a length, in seconds: clocks differ, and the refused request may not have been
/// the first one.
const AFTER_ROUND_S: f64 = 1.5;
/// Shares of the time at which the next trial would be due, within which it waits for such a
/// length, or comes sooner.
const NEAR_ROUND: std::ops::Range<f64> = 0.75..1.15;
/// Wait for the next trial of a ban between these lengths in seconds, as a share of the time that
/// has passed, and at least. A trial costs one refused request, and a late one costs the pages of
/// the time since the ban ended.
const BAN_S: std::ops::Range<f64> = 300.0..7200.0;
const BAN_STEP: f64 = 0.2;
const BAN_STEP_LEAST_S: f64 = 60.0;
/// Time from which on a host that still refuses has most likely banned the crawler, in seconds.
const LONG_S: f64 = 100.0;
/// Hold of a host whose last refusals are known to have lasted so long, as a share of that time.
const KNOWN: f64 = 1.02;
/// Time without a limit hit after which a host that has asked for too little is believed again, in
/// milliseconds.
const TRUST_AGAIN_MS: i64 = 24 * 3_600_000;
/// A limit hit within this number of responses after a hold means that the hold was too short.
const TOO_EARLY: u16 = 10;

impl RateGate<'_> {
    /// Returns the length of the hold after a limit hit, in seconds.
    pub(crate) fn length_of_hold(&mut self, hit: &LimitHit) -> f64 {
        let asked = self.requested_hold_s(hit.retry_after);
        self.active.trouble().has_asked = asked.is_some();
        let is_early = self.active.trouble().fresh > 0;
        let first = hold_s(hit.cause);
        let usual = match self.persisted.penalty.some() {
            Some(penalty) if matches!(hit.cause, Cause::Limited | Cause::Block) => {
                if is_early {
                    (1.5 * penalty).max(first / 2.0)
                } else {
                    (0.7 * penalty).max(first / 2.0)
                }
            }
            _ => first,
        };
        let usual = if self.active.trouble().is_brief { BRIEF_S } else { usual };
        // What a host asks for is the least. One that has asked for too little before is held as
        // long as it refused then.
        let is_old = self.now.saturating_sub(self.active.trouble().limit_hit_at) > TRUST_AGAIN_MS;
        let penalty = self.persisted.penalty.some();
        let asks_enough = |asked: f64| is_old || penalty.is_none_or(|penalty| asked >= penalty);
        self.active.trouble().asks_too_little &= !asked.is_some_and(asks_enough);
        let known = penalty.filter(|_| self.active.trouble().asks_too_little);
        match asked {
            Some(asked) => {
                asked.max(known.map_or(0.0, |penalty| (KNOWN * penalty).min(MAX_HOLD_S)))
            }
            None => (usual.min(MAX_HOLD_S) - hit.silent_s).max(LEAST_HOLD_S),
        }
    }

    /// Returns whether an earlier trial of this hold has failed otherwise than the limit answers,
    /// and counts this one.
    pub(crate) fn is_second_odd_trial(&mut self) -> bool {
        std::mem::replace(&mut self.active.trouble().had_odd_trial, true)
    }

    /// Extends the hold by half after a blocked trial, or more if the host asks for more: it has
    /// asked for too little before. A host that failed and now blocks has banned the crawler.
    pub(crate) fn trial_blocked(&mut self, signal: Signal, retry_after: Option<Duration>) -> i64 {
        self.touch();
        let has_banned = signal == Signal::Block
            && matches!(self.persisted.cause(), Cause::Unavailable | Cause::Errors);
        let grown = if has_banned { self.note_ban() } else { self.longer() };
        let trouble = self.active.trouble();
        trouble.asks_too_little |= trouble.has_asked;
        let hold_s = self.requested_hold_s(retry_after).map_or(grown, |asked| asked.max(grown));

        self.hold_for(hold_s, Trial::Wanted)
    }

    /// Lowers the ceiling of a host that refused a few requests and then banned the crawler: the
    /// next ones would be a ban, too. Returns the length of the hold.
    fn note_ban(&mut self) -> f64 {
        let blamed = self.persisted.blamed();
        if let Some(window) = blamed.filter(|_| !self.rules.is_fixed) {
            let cap = BANNED * self.persisted.cap[window].get();
            self.persisted.cap[window] = PositiveF16::new(cap.max(MIN_RATE));
            self.set_rate(self.rate());
        }
        self.persisted.set_blame(blamed, Cause::Block);
        self.active.trouble().counts_refusals = true;
        let passed = self.now.saturating_sub(self.active.trouble().limit_hit_at) as f64 / 1000.0;
        self.longer().max(SHORT_ROUND_S[0] + AFTER_ROUND_S - passed)
    }

    /// Returns the length of the hold after a blocked trial, unless the host states it.
    fn longer(&mut self) -> f64 {
        let now = self.now;
        let penalty = self.persisted.penalty.get();
        let trouble = self.active.trouble();
        let held = f64::from(trouble.hold_s);
        if std::mem::take(&mut trouble.is_brief) {
            return (SHORT_ROUND_S[0] + AFTER_ROUND_S - held).max(held);
        }
        let passed = now.saturating_sub(trouble.limit_hit_at) as f64 / 1000.0;
        // Waits for the previous length first; after that, the whole wait grows by more than half
        // each time.
        let left = KNOWN * penalty - passed;
        if left > 0.05 * penalty {
            return left.max(1.0);
        }
        if BAN_S.contains(&passed) {
            return (BAN_STEP * passed).max(BAN_STEP_LEAST_S);
        }
        let grown = (1.5 * held).max(0.7 * passed);
        // A ban of a round length has ended shortly after it.
        let round = ROUND_S
            .map(|span| 1.05 * span + 15.0 - passed)
            .into_iter()
            .find(|hold| *hold >= ROUND_STEP * passed);
        match round {
            Some(round) if passed >= LONG_S => round,
            _ => self.short_round(passed, grown).unwrap_or(grown).min(MAX_HOLD_S),
        }
    }

    /// Returns the rest of a short round length that ends at about the same time as a hold of
    /// `grown` seconds, `passed` seconds after the refusal. People choose how long a host refuses,
    /// and not how long it fails.
    fn short_round(&self, passed: f64, grown: f64) -> Option<f64> {
        let is_refusal = matches!(self.persisted.cause(), Cause::Limited | Cause::Block);
        let near = (passed + grown) * NEAR_ROUND.start..(passed + grown) * NEAR_ROUND.end;
        SHORT_ROUND_S
            .map(|span| span + AFTER_ROUND_S)
            .into_iter()
            .find(|end| is_refusal && near.contains(end))
            .map(|end| end - passed)
    }

    /// Ends the hold after a good response to its trial.
    pub(crate) fn end_hold_after_trial(&mut self) {
        self.touch();
        if std::mem::take(&mut self.active.trouble().is_brief) {
            self.blame_the_shortest();
        }
        let limit_hit_at = self.active.trouble().limit_hit_at;
        self.persisted.penalty =
            PositiveF16::new(self.now.saturating_sub(limit_hit_at) as f64 / 1000.0);
        self.persisted.set_trial(false);
        let trial_at = self.now;
        let trouble = self.active.trouble();
        (trouble.trial, trouble.fresh, trouble.had_odd_trial) = (Trial::No, TOO_EARLY, false);
        (trouble.resumed_at, trouble.resumed) = (trial_at, 1);

        let (ceiling, _) = self.ceiling();
        // After errors, half the rate tells noise from a limit sooner.
        let share = match self.persisted.cause() {
            Cause::Limited | Cause::Block => RESUMED,
            _ => RESUMED_AFTER_ERRORS,
        };
        if self.rate() > share * ceiling {
            self.set_rate(share * ceiling);
        }
        self.schedule();
    }

    /// Holds the host for `hold_s` seconds. Afterwards one request goes out alone if `trial` says
    /// so.
    pub(crate) fn hold_for(&mut self, hold_s: f64, trial: Trial) -> i64 {
        let until = self.now.saturating_add((hold_s * 1000.0).round() as i64);
        self.persisted.hold_until = seconds(until.saturating_add(999));
        self.persisted.set_trial(trial == Trial::Wanted);
        self.active.next = self.active.next.min(until);
        let trouble = self.active.trouble();
        (trouble.hold, trouble.hold_s, trouble.trial) = (until, hold_s as f32, trial);
        until
    }

    /// Returns the hold that the host asked for, plus a second for differing clocks.
    fn requested_hold_s(&self, retry_after: Option<Duration>) -> Option<f64> {
        let asked = retry_after.map(|span| span.as_secs_f64()).filter(|seconds| *seconds > 0.0);
        asked.map(|seconds| (seconds + 1.0).min(self.rules.max_retry_after_s.max(1.0)))
    }
}

/// Returns the length of a hold if the host does not state it, in seconds.
fn hold_s(cause: Cause) -> f64 {
    match cause {
        Cause::Limited => 30.0,
        Cause::Block => 120.0,
        _ => 5.0,
    }
}
