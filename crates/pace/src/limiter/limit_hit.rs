//! Limit hits: which window is to blame, and how far its ceiling falls.
//!
//! Invariants: a limit hit lowers no ceiling that was not tried.
//!
//! Must not know: how a limit hit is recognised, and how long its hold lasts.

use std::time::Duration;

use super::window::{Counts, SECONDS, WINDOWS, between_s};
use crate::limiter::active_state::{CeilingProbe, Trial};
use crate::limiter::rate_gate::{MIN_RATE, RateGate, rate_of};
use crate::persistence::float16::PositiveF16;
use crate::signals::response::{Cause, Signal};

/// Cuts within this time belong to one fall.
pub(crate) const CUTS_MS: i64 = 15 * 60_000;
/// Limits below this rate, in requests per second, are rare.
const LIKELY: f64 = 0.5;
/// Remaining share of a ceiling that became too high, and of that share when it is hit again within
/// [`CUTS_MS`].
const FALL: f64 = 0.85;
const FALL_AGAIN: f64 = 0.7;
/// Least share of the rate that the first errors leave. Half the rate is mostly enough to tell
/// whether slowing down helps.
const LEAST_CUT: f64 = 0.5;
/// Remaining share of a ceiling of a host that keeps refused requests waiting: each further refusal
/// costs that time.
const LESS_AFTER_SILENCE: f64 = 0.98;
/// Requests by which its ceiling stays below the blocked count: a window that begins with a request
/// has one more than the rate lets expect.
const BELOW_SILENCE: f64 = 2.6;
/// Share of a blocked rate that a ceiling may reach at most.
const BELOW_HI: f64 = 0.95;
/// Requests up to which a first refusal says nothing of a window: the limit is as likely one per
/// second.
const FEW: f64 = 6.0;
/// Remaining share of the rate after such a refusal, and after the next one: less than half, since
/// gaps vary.
const HALF: f64 = 0.41;
const HALF_AGAIN: f64 = 0.5;
/// Rate above which seconds without a request mean that the host was idle, in requests per second.
const IDLE_ABOVE: f64 = 2.0;
/// Mean rate of the shortest window while the rate doubles in that time, as a share of the rate.
const GROWN: f64 = 0.72;

/// A limit hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitHit {
    pub(crate) cause: Cause,
    pub(crate) counts: Counts,
    pub(crate) in_flight: u8,
    pub(crate) retry_after: Option<Duration>,
    /// Time for which the host has kept silent, in seconds: that much of the hold is over.
    pub(crate) silent_s: f64,
}

impl RateGate<'_> {
    /// Applies a limit hit. Returns the end of its hold.
    pub(crate) fn apply_limit_hit(&mut self, hit: &LimitHit) -> i64 {
        self.touch();
        // Forgiven probes stay forgiven: time counts from this limit hit on.
        let (fails, is_confirmed, last_hit_at) = (
            self.persisted.fails(self.now),
            self.persisted.is_confirmed(self.now),
            self.persisted.limit_hit_at,
        );
        (self.persisted.failed, self.persisted.limit_hit_at) = (fails, seconds(self.now));
        self.persisted.set_confirmed(is_confirmed);
        if self.rules.is_fixed {
            self.persisted.set_blame(None, hit.cause);
        } else if self.is_outage(hit, last_hit_at) {
            self.note_outage(hit);
        } else {
            let before = self.rate().min(self.ceiling().0);
            let counts = self.counts_after_idling(hit);
            let was_idle = counts.is_some();
            self.blame(&LimitHit { counts: counts.unwrap_or(hit.counts), ..*hit }, was_idle);
            if is_ambiguous(hit) {
                self.soften(before, hit.silent_s > 0.0);
            }
            if hit.silent_s > 0.0 {
                self.lower_blamed();
            }
        }
        let hold_s = self.length_of_hold(hit);
        let (now, was_serving) = (self.now, self.active.has_any_success(self.now));
        let trouble = self.active.trouble();
        trouble.was_serving = was_serving;
        trouble.limit_hit_at = now;
        (trouble.errors, trouble.blocks, trouble.blocks_in_a_row) = (0.0, 0.0, 0);
        (trouble.top_since, trouble.slow, trouble.crowd) = (0, 0, 0);
        trouble.doubt = None;

        self.hold_for(hold_s, Trial::Wanted)
    }

    /// Returns the lowest ceiling that errors alone can bring: below it, a host needs a better sign
    /// of a limit. `before` is the present one.
    pub(crate) fn least_without_evidence(&self, before: f64) -> f64 {
        let is_limit =
            self.active.trouble.as_ref().is_some_and(|trouble| match self.persisted.cause() {
                Cause::SomeBlocks => trouble.blocks_by_rate || trouble.block_noise.is_limit(),
                _ => trouble.noise.is_limit(),
            });
        if is_limit { MIN_RATE } else { self.rules.min_rate.min(before) }
    }

    /// Raises the ceilings that errors alone have brought down too far; `before` is the rate
    /// before. Silence says more.
    fn soften(&mut self, before: f64, is_silence: bool) {
        let least = self.least_without_evidence(before);
        let is_first =
            !is_silence && self.active.trouble().limit_hit_at < self.now.saturating_sub(CUTS_MS);
        let half = if is_first { LEAST_CUT * before } else { 0.0 };
        for (cap, hi) in self
            .persisted
            .cap
            .iter_mut()
            .zip(&mut self.persisted.hi)
            .filter(|(cap, _)| !cap.is_none())
        {
            *cap = (*cap).max(PositiveF16::new(half.min(BELOW_HI * hi.get())));
            if cap.get() < least {
                (*cap, *hi) =
                    (PositiveF16::new(least), (*hi).max(PositiveF16::new(least / BELOW_HI)));
            }
        }
        let (ceiling, _) = self.ceiling();
        self.set_rate(self.rate().max(ceiling.min(half.max(least))));
    }

    /// Lowers the ceiling of the blamed window of a host that keeps refused requests waiting.
    fn lower_blamed(&mut self) {
        let Some(window) = self.persisted.blamed() else { return };
        let (cap, hi) = (self.persisted.cap[window].get(), self.persisted.hi[window].get());
        let below = (hi - BELOW_SILENCE / SECONDS[window]).max(hi / 4.0);
        self.persisted.cap[window] = PositiveF16::new((LESS_AFTER_SILENCE * cap).min(below));
        self.set_rate(self.rate());
    }

    /// Returns the counts of a limit hit of a host that was idle. Its shortest window is not full
    /// yet, and a longer one would be blamed for a rate that was never so high. So that window
    /// counts what the rate would have brought. A host that was held before has a ceiling.
    fn counts_after_idling(&self, hit: &LimitHit) -> Option<Counts> {
        let was_held = self.active.trouble.as_ref().is_some_and(|trouble| trouble.resumed_at > 0);
        // Nothing goes out while a single block is in doubt, and that is no idle time.
        let may_be_idle = !matches!(hit.cause, Cause::Block | Cause::SomeBlocks);
        let was_idle = may_be_idle && self.active.rings.has_gap(self.now);
        let is_fast = self.rate() > IDLE_ABOVE && hit.counts[0].get() > FEW;
        if was_held || !was_idle || !is_fast || hit.retry_after.is_some() {
            return None;
        }
        let (clean, grown) = (self.persisted.clean[0].get(), GROWN * self.rate());
        let mut counts = hit.counts;
        counts[0] = PositiveF16::new(grown * SECONDS[0]);
        (rate_of(&hit.counts, 0) < clean && clean < grown).then_some(counts)
    }

    /// Finds the window to blame and lowers its ceiling.
    fn blame(&mut self, hit: &LimitHit, was_idle: bool) {
        let counts = &hit.counts;
        // Good responses to slightly later requests may have arrived first: they clear nothing.
        let in_flight_requests = f64::from(hit.in_flight.max(1));
        let suspects: [bool; WINDOWS] = std::array::from_fn(|window| {
            rate_of(counts, window) + in_flight_requests / SECONDS[window]
                > self.persisted.clean[window].get()
        });
        let old_hi = self.persisted.hi;
        for window in (0..WINDOWS).filter(|window| suspects[*window]) {
            self.lower_hi(window, rate_of(counts, window));
            self.persisted.clean[window] =
                self.persisted.clean[window].min(PositiveF16::new(rate_of(counts, window)));
        }
        if self.blame_probe(hit, &old_hi) {
            return;
        }
        let (ceiling, top) = self.ceiling();
        if let Some((top, longer)) =
            top.and_then(|top| Some((top, self.met_again(top, &old_hi, counts)?)))
        {
            self.blame_longer(top, longer, counts, hit.cause);
            return;
        }
        let is_first = is_bare(hit) && f64::from(self.active.trouble().resumed) <= FEW;
        match top {
            Some(0) if is_first => self.halve(HALF_AGAIN * ceiling),
            Some(window) if self.rate() > 0.9 * ceiling => {
                self.cut(window, ceiling, counts, hit.cause, old_hi[window].get())
            }
            _ => self.blame_a_suspect(&suspects, hit, was_idle),
        }
        self.blame_those_at_once(hit);
    }

    /// Ends the probe under way, and returns whether it is to blame for the refusal. `old_hi` has
    /// the limits known before the refusal.
    fn blame_probe(&mut self, hit: &LimitHit, old_hi: &[PositiveF16; WINDOWS]) -> bool {
        let counts = &hit.counts;
        let probe = self.active.trouble().probe.take();
        match probe {
            Some(CeilingProbe { window: Some(window), tried, before, .. })
                if rate_of(counts, window)
                    > 0.85 * tried.min(1.15 * old_hi[window].some().unwrap_or(f64::INFINITY)) =>
            {
                self.probe_failed(window, before, rate_of(counts, window));
                self.persisted.set_blame(Some(window), hit.cause);
                return true;
            }
            // The window is not full yet, but the higher rate was refused.
            Some(CeilingProbe { window: Some(window), before, .. })
                if self.is_costly() && rate_of(counts, window) > 1.05 * before =>
            {
                self.persisted.set_confirmed(true);
                self.end_probe(window, before, hit.cause);
                return true;
            }
            Some(CeilingProbe { window: Some(0), before, .. })
                if is_bare(hit) && self.rate() > 1.05 * before =>
            {
                self.lower_hi(0, self.rate());
                self.end_probe(0, before, hit.cause);
                return true;
            }
            Some(CeilingProbe { window: None, tried, before, .. })
                if f64::from(hit.in_flight) >= tried =>
            {
                self.persisted.par_cap = before as u8;
                self.persisted.failed = self.persisted.failed.saturating_add(1);
                self.persisted.set_blame(None, hit.cause);
                return true;
            }
            // The probe had no effect yet; its ceiling returns to the previous value.
            Some(CeilingProbe { window: Some(window), before, .. }) => {
                self.persisted.cap[window] = PositiveF16::new(before)
            }
            Some(CeilingProbe { window: None, before, .. }) => {
                self.persisted.par_cap = before as u8
            }
            None => {}
        }
        false
    }

    /// Ends a failed probe with the previous ceiling.
    fn end_probe(&mut self, window: usize, before: f64, cause: Cause) {
        self.persisted.cap[window] = PositiveF16::new(before);
        self.persisted.failed = self.persisted.failed.saturating_add(1);
        self.persisted.set_blame(Some(window), cause);
        self.set_rate(self.rate());
    }

    /// Decides whether the parallel requests were refused, rather than the rate.
    fn blame_those_at_once(&mut self, hit: &LimitHit) {
        let crowd = self.active.trouble().crowd;
        if hit.cause != Cause::Unavailable || hit.retry_after.is_some() || crowd == 0 {
            return;
        }
        if crowd <= self.persisted.par_cap {
            self.persisted.par_cap = 0;
        } else if crowd > self.persisted.par_clean.max(1) {
            self.persisted.par_cap = crowd - 1;
        }
    }

    /// Handles a 503 without a time that is no limit hit. Returns whether it ends a ceiling probe:
    /// the probe has then found the limit, and needs no hold.
    pub(crate) fn probe_refused(&mut self, counts: &Counts, in_flight: u8, signal: Signal) -> bool {
        let cause = match signal {
            Signal::Unavailable => Cause::Unavailable,
            Signal::Block => Cause::SomeBlocks,
            _ => Cause::Errors,
        };
        match self.active.trouble.as_ref().and_then(|trouble| trouble.probe) {
            Some(CeilingProbe { window: Some(window), tried, before, .. })
                if rate_of(counts, window) > 0.85 * tried =>
            {
                self.active.trouble().probe = None;
                self.probe_failed(window, before, rate_of(counts, window));
                self.persisted.set_blame(Some(window), cause);
            }
            Some(CeilingProbe { window: None, tried, before, .. })
                if f64::from(in_flight) >= tried =>
            {
                let trouble = self.active.trouble();
                (trouble.probe, trouble.errors, trouble.crowd) = (None, 0.0, 0);
                self.persisted.par_cap = before as u8;
                self.persisted.failed = self.persisted.fails(self.now).saturating_add(1);
                self.persisted.set_blame(None, cause);
            }
            _ => return false,
        }
        self.schedule();
        true
    }

    /// Returns a longer window that holds as many requests as when it was blocked before, if the
    /// blamed window does not: the host counts over the longer one.
    fn met_again(&self, top: usize, old_hi: &Counts, counts: &Counts) -> Option<usize> {
        // A host that bans counts from the end of the ban.
        let (resumed_at, resumed) = match &self.active.trouble {
            Some(trouble) if self.is_costly() => (trouble.resumed_at, f64::from(trouble.resumed)),
            _ => (0, 0.0),
        };
        let since_s = self.now.saturating_sub(resumed_at) as f64 / 1000.0;
        let is_met = |window: usize| {
            let (before, count) = (old_hi[window].get() * SECONDS[window], counts[window].get());
            let is_near =
                |count: f64| before > FEW && (count - before).abs() <= (0.05 * before).max(1.5);
            is_near(count) || since_s < SECONDS[window] && is_near(resumed)
        };
        let is_lower = |window: usize| {
            safe(0.9, rate_of(counts, window), window) < self.persisted.cap[top].get()
        };
        // An hour contains many requests that have nothing to do with the limit.
        (top + 1..WINDOWS - 1)
            .find(|window| is_met(*window) && is_lower(*window))
            .filter(|_| !is_met(top))
    }

    /// Blames a longer window than `top`, or one between the two.
    fn blame_longer(&mut self, top: usize, longer: usize, counts: &Counts, cause: Cause) {
        // Its count may contain requests from before a ban, but it was blocked with as many as
        // before.
        let rate = rate_of(counts, longer).min(self.persisted.hi[longer].get());
        let between = between_s(top, longer).map(|between_s| rate * SECONDS[longer] / between_s);
        let Some(between) = between.filter(|_| self.is_costly()) else {
            self.cap_below(longer, rate, cause);
            return;
        };
        let is_tried = self.persisted.cap[top].get() < 1.1 * between;
        let between = PositiveF16::new(between);
        self.persisted.cap[top] = PositiveF16::NONE;
        if is_tried {
            self.persisted.hi[top] = PositiveF16::NONE;
        } else {
            (self.persisted.hi[top], self.persisted.clean[top]) =
                (between, self.persisted.clean[top].min(between));
        }
        if is_tried {
            self.cap_below(longer, rate, cause);
        } else {
            self.cap_below(top, between.get(), cause);
            self.persisted.cap[top] =
                PositiveF16::new(safe(0.94, between.get(), top).max(MIN_RATE));
        }
        self.persisted.set_confirmed(true);
    }

    fn cap_below(&mut self, window: usize, rate: f64, cause: Cause) {
        self.persisted.cap[window] = PositiveF16::new(safe(0.9, rate, window).max(MIN_RATE));
        self.persisted.set_blame(Some(window), cause);
        self.set_rate(self.rate());
    }

    /// Cuts a ceiling that was too high: the host allows less than before.
    fn cut(&mut self, window: usize, ceiling: f64, counts: &Counts, cause: Cause, old_hi: f64) {
        let now = self.now;
        let trouble = self.active.trouble();
        trouble.cuts = if now.saturating_sub(trouble.cut_at) > CUTS_MS {
            1
        } else {
            trouble.cuts.saturating_add(1)
        };
        trouble.cut_at = now;
        let cuts = trouble.cuts;
        let lo = self.persisted.lo.get();
        let is_close = old_hi > 0.0 && (old_hi - rate_of(counts, window)) * SECONDS[window] <= 1.5;
        let cap = if cuts == 1 && is_close {
            // The limit is the same as before; the ceiling was one request too close to it.
            (0.97 * ceiling).min(safe(0.9, rate_of(counts, window), window))
        } else if cuts == 1 && lo > 0.0 && lo < 0.93 * ceiling {
            lo
        } else {
            let rate = rate_of(counts, window);
            let longer = (window + 1..WINDOWS)
                .map(|longer| rate_of(counts, longer))
                .find(|longer| *longer < 0.9 * rate);
            let share = match longer {
                Some(longer) => 0.9 * (longer / rate).sqrt(),
                None => FALL,
            };
            // After another limit hit so soon, the limit has fallen further.
            let again = FALL * FALL_AGAIN.powi(i32::from(cuts) - 1);
            let share = if cuts > 1 { share.min(again) } else { share }.clamp(0.5, 0.9);
            // After a hold the window was empty. Before it is full again, its own count shows the
            // limit.
            (ceiling * share).min(safe(0.9, rate, window)).max(0.3 * ceiling)
        };
        self.persisted.cap[window] = PositiveF16::new(cap.max(MIN_RATE));
        if cuts > 1 {
            self.persisted.failed = self.persisted.failed.saturating_add(1);
            self.persisted.lo = self.persisted.lo.min(PositiveF16::new(cap));
        }
        for at in 0..WINDOWS {
            self.persisted.clean[at] =
                self.persisted.clean[at].min(PositiveF16::new(rate_of(counts, at)));
        }
        self.lower_hi(window, rate_of(counts, window));
        self.persisted.set_blame(Some(window), cause);
        self.set_rate(self.rate());
    }

    /// Blames the most likely of the windows that were never so full: the growing rate has hit a
    /// limit.
    fn blame_a_suspect(&mut self, suspects: &[bool; WINDOWS], hit: &LimitHit, was_idle: bool) {
        let mut guess = if was_idle { 0 } else { guess(hit) };
        // Limits below this rate are rare: growth was short, so a shorter window is more likely.
        while guess > 0 && hit.retry_after.is_none() && rate_of(&hit.counts, guess) < LIKELY {
            guess -= 1;
        }
        match in_order(guess).find(|window| suspects[*window]) {
            Some(0) if is_bare(hit) && hit.counts[0].get() <= FEW => self.halve(HALF * self.rate()),
            Some(window) => {
                self.cap_below(window, rate_of(&hit.counts, window), hit.cause);
                // Only the guess tells a minute from ten seconds: the next admitted request decides.
                self.active.trouble().is_brief = is_bare(hit)
                    && SECONDS[window] <= 60.0
                    && suspects[0]
                    && self.persisted.penalty.is_none();
            }
            None => {
                self.persisted.set_blame(None, hit.cause);
                self.set_rate(0.7 * self.rate().min(self.rules.max_rate));
            }
        }
    }

    /// Sets the ceiling of the shortest window after so few requests that their count says nothing:
    /// the rate was too high.
    fn halve(&mut self, cap: f64) {
        self.persisted.hi[0] = PositiveF16::new(self.rate());
        self.persisted.cap[0] = PositiveF16::new(cap.max(MIN_RATE));
        self.persisted.set_blame(Some(0), Cause::Limited);
        self.active.trouble().is_brief = self.persisted.penalty.is_none();
        self.set_rate(self.rate());
    }

    /// Blames the shortest window: a limit over a minute would hardly admit a request so soon. It
    /// is a short window, or a bucket.
    pub(crate) fn blame_the_shortest(&mut self) {
        let cause = self.persisted.cause();
        if self.persisted.blamed() == Some(0) {
            return;
        }
        if let Some(blamed) = self.persisted.blamed() {
            self.persisted.cap[blamed] = PositiveF16::NONE;
        }
        self.persisted.cap[0] =
            PositiveF16::new(safe(0.9, self.persisted.hi[0].get(), 0).max(MIN_RATE));
        self.persisted.set_blame(Some(0), cause);
    }

    pub(crate) fn lower_hi(&mut self, window: usize, rate: f64) {
        let known = self.persisted.hi[window].some().unwrap_or(f64::INFINITY);
        self.persisted.hi[window] = PositiveF16::new(rate.min(known));
    }
}

/// Returns whether the host has said that there is a limit, and no more.
fn is_bare(hit: &LimitHit) -> bool {
    hit.cause == Cause::Limited && hit.retry_after.is_none()
}

/// Returns whether the responses may have nothing to do with the rate: the host has only failed,
/// and said nothing of a limit.
pub(crate) fn is_ambiguous(hit: &LimitHit) -> bool {
    matches!(hit.cause, Cause::Unavailable | Cause::Errors | Cause::SomeBlocks)
        && hit.retry_after.is_none()
}

/// Returns a ceiling below a blocked rate: lower by a share, and by 1.5 requests, because few
/// requests make coarse counts.
pub(crate) fn safe(share: f64, rate: f64, window: usize) -> f64 {
    (rate / 4.0).max((share * rate).min(rate - 1.5 / SECONDS[window]))
}

/// Returns the windows by suspicion: from the guess upward, then downward from it, the hour last.
pub(crate) fn in_order(guess: usize) -> impl Iterator<Item = usize> {
    let hour = WINDOWS - 1;
    let first = (guess == hour).then_some(hour);
    let last = (guess != hour).then_some(hour);
    first.into_iter().chain(guess..hour).chain((0..guess.min(hour)).rev()).chain(last)
}

/// Returns the window that the host's response suggests.
fn guess(hit: &LimitHit) -> usize {
    match (hit.retry_after.map(|span| span.as_secs()).filter(|seconds| *seconds > 0), hit.cause) {
        (Some(0..=10), _) => 0,
        (Some(11..=60), _) => 1,
        (Some(61..=300), _) => 2,
        (Some(301..=900), _) => 3,
        (Some(_), _) => 4,
        (None, Cause::Limited) => 1,
        (None, Cause::Block) => 2,
        (None, _) => 0,
    }
}

/// Returns whole seconds since the epoch, from 1970 to 2106.
pub(crate) fn seconds(ms: i64) -> u32 {
    u32::try_from(ms.div_euclid(1000).max(0)).unwrap_or(u32::MAX)
}
