//! Accumulation of failures: any host has occasional errors and blocks, and only an excess of them
//! is a limit.
//!
//! Owns: the CUSUM-style sums, and the doubt.
//!
//! Invariants: a single block or a single error is never a limit hit.
//!
//! Must not know: the consequences of a limit hit.

use crate::limiter::active_state::{Doubt, Trial, Trouble};
use crate::limiter::limit_hit::LimitHit;
use crate::limiter::permit::{Permit, wrapped};
use crate::limiter::rate_gate::RateGate;
use crate::limiter::window::WINDOWS;
use crate::persistence::float16::PositiveF16;
use crate::signals::response::{Cause, DoubtVerdict, Response, Signal};

/// Decrease of a sum per response, in addition to 1.5 times the usual share.
const SLACK: f64 = 0.03;
/// Maximum usual share.
const MAX_USUAL: f64 = 0.06;
/// Unit of persisted shares.
const UNIT: f64 = 1.0 / 2550.0;
/// Errors are a limit hit above this sum: three in a row.
const ERRORS: f64 = 2.0;
/// Decrease of the sum of errors per good response while the rate grows.
const GROWING: f64 = 0.1;
/// Weight of an error that is not how the host's limit is known to answer.
const WEAK: f64 = 0.4;
/// Factor for an error that took at least [`LONG_WAIT_S`] seconds, and [`LONGER`] times as long as
/// the host's pages take.
const KEPT_WAITING: f64 = 1.5;
const LONG_WAIT_S: f64 = 3.0;
const LONG_WAIT_MS: i64 = 3000;
const LONGER: f64 = 10.0;
/// The sum of errors that makes a limit hit of a host that has hardly responded yet: four in a row.
const ERRORS_OF_NEW: f64 = 3.0;
/// Rate below which a single 503 is noise only on a host with at least this share of it.
const SLOW: f64 = 2.0;
const NOISY: f64 = 0.05;
/// Share of that sum from which on a 503 of a noisy host lowers its ceiling.
const UNUSUAL: f64 = 0.3;
/// Blocks, and responses, that are expected of any host that blocks some of its pages.
const USUAL_BLOCKS: (f32, f32) = (0.5, 10.0);
/// Logarithm of the odds against blocks in a row by chance from which on they are a ban, and their
/// least number.
const ODDS_OF_A_BAN: f64 = 11.5;
const BAN_LEAST: f64 = 4.0;
/// Blocked trials that make a doubt the pace's: of a host that has responded often, and of one that
/// is hardly known.
const TRIALS: [u8; 2] = [1, 2];
/// Responses up to which a host is hardly known.
const HARDLY_KNOWN: f64 = 30.0;
/// Hold of a doubt, in seconds.
const DOUBT_S: f64 = 3.0;
/// Number of other fetchers' pages in trials that end a doubt about a fetcher that no longer sends
/// requests.
const MAX_OTHER_PAGES: u8 = 5;
/// Cut of the ceiling for a 503 that is no limit hit. It doubles, at most `DOUBLINGS` times, for
/// each further 503 within `SHEDS_MS`. A host that counts its refusals gets the largest one at once.
const SHED: f64 = 0.02;
const SHEDS_MS: i64 = 15 * 60_000;
const DOUBLINGS: u8 = 3;

/// The result of a response together with the ones before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SignalEffect {
    Nothing,
    /// The response to another URL will decide. Until then nothing goes out.
    Doubt {
        hold_until: i64,
        doubt: u32,
    },
    /// The request was refused by a limit that is known.
    Refused,
    LimitHit(LimitHit),
}

impl RateGate<'_> {
    /// Accumulates a response that is not a trial's.
    pub(crate) fn accumulate(
        &mut self,
        permit: &Permit,
        response: &Response,
        has_success: bool,
    ) -> SignalEffect {
        let hit = |cause| LimitHit {
            cause,
            counts: permit.counts,
            in_flight: permit.in_flight,
            retry_after: response.retry_after.filter(|span| !span.is_zero()),
            silent_s: 0.0,
        };
        let has_time = response.retry_after.is_some_and(|span| !span.is_zero());
        // A 429 is always a refusal by rate; a 503 or a block only with the time to come back.
        let said = match response.signal {
            Signal::Limited => Some(Cause::Limited),
            Signal::Unavailable if has_time => Some(Cause::Unavailable),
            Signal::Block if has_time => Some(Cause::Block),
            _ => None,
        };
        if let Some(cause) = said {
            self.note_clarity(response.signal, has_time);
            self.end_noise_test();
            return SignalEffect::LimitHit(hit(cause));
        }
        match response.signal {
            Signal::Content | Signal::ClientError => {
                self.test_noise(None);
                self.test_block_noise(false);
                self.decay_sums();
                SignalEffect::Nothing
            }
            Signal::NotAsked | Signal::Limited => SignalEffect::Nothing,
            // A fetcher without recent successes here may be the only one that is blocked.
            Signal::Block if !has_success => SignalEffect::Nothing,
            Signal::Block => self.accumulate_block(permit, response.fetcher.0, hit),
            Signal::Unavailable | Signal::Broken | Signal::ServerError
                if self.test_noise(Some(response.signal)) =>
            {
                SignalEffect::Nothing
            }
            Signal::Unavailable | Signal::Broken | Signal::ServerError
                if self.is_of_the_limit(response.signal)
                    && !self.is_noisy()
                    && self.probe_refused(&permit.counts, permit.in_flight, response.signal) =>
            {
                SignalEffect::Nothing
            }
            Signal::Unavailable | Signal::Broken | Signal::ServerError => {
                self.accumulate_failure(permit, response, hit)
            }
        }
    }

    /// Accumulates an error that neither noise nor a refused probe explains.
    fn accumulate_failure(
        &mut self,
        permit: &Permit,
        response: &Response,
        hit: impl Fn(Cause) -> LimitHit,
    ) -> SignalEffect {
        let signal = response.signal;
        let is_kept_waiting = self.is_kept_waiting(response);
        let weight = if self.is_weak(signal) { WEAK } else { 1.0 };
        let weight = if is_kept_waiting { weight * KEPT_WAITING } else { weight };
        let silent_s = if is_kept_waiting { self.silence_s(permit) } else { None };
        if silent_s.is_some() || self.accumulate_error(weight, signal, permit.in_flight) {
            let (rate, now) = (self.usable_rate(), self.now);
            self.active.trouble().noise.revoke(rate, now);
            self.begin_noise_test(signal);
            self.note_clarity(signal, false);
            let is_503 = signal == Signal::Unavailable;
            let hit = hit(if is_503 { Cause::Unavailable } else { Cause::Errors });
            return SignalEffect::LimitHit(LimitHit { silent_s: silent_s.unwrap_or(0.0), ..hit });
        }
        if self.is_of_the_limit(signal) && (!self.is_noisy() || self.is_unusual()) {
            self.shed(signal);
        }
        SignalEffect::Nothing
    }

    /// Returns whether a single error of this kind is most likely the limit's: a 503, or what the
    /// limit has answered before.
    fn is_of_the_limit(&self, signal: Signal) -> bool {
        signal == Signal::Unavailable
            || self.persisted.cause() == Cause::Errors && !self.is_weak(signal)
    }

    /// Returns whether errors came only with as many parallel requests as never worked well.
    fn is_crowd(&self) -> bool {
        self.active
            .trouble
            .as_ref()
            .is_some_and(|trouble| trouble.crowd > self.persisted.par_clean.max(1))
    }

    /// Remembers how clearly the limit of this host answers.
    fn note_clarity(&mut self, signal: Signal, has_time: bool) {
        let trouble = self.active.trouble();
        trouble.clarity = trouble.clarity.max(clarity(signal, has_time));
    }

    /// Returns whether the limit of this host is known to answer with a clearer sign than this one.
    fn is_weak(&self, signal: Signal) -> bool {
        self.active.trouble.as_ref().is_some_and(|trouble| trouble.clarity > clarity(signal, false))
    }

    /// Returns whether an error took far longer than the pages of this host do: a tarpit, or
    /// silence.
    fn is_kept_waiting(&self, response: &Response) -> bool {
        let usual_s = f64::from(self.active.fast).exp();
        response
            .latency
            .is_some_and(|latency| latency.as_secs_f64() > LONG_WAIT_S.max(LONGER * usual_s))
    }

    /// Returns how long the host has kept silent, if it has answered nothing since this request
    /// went out, and others wait as well: errors by chance come between pages.
    fn silence_s(&self, permit: &Permit) -> Option<f64> {
        let sent = permit.sent(self.now);
        let has_served_since =
            wrapped(sent).wrapping_sub(self.active.last_good_response()?).cast_signed() < 0;
        let is_alone =
            self.active.in_flight == 0 || self.now.saturating_sub(self.active.next) < LONG_WAIT_MS;
        let is_noisy =
            self.active.trouble.as_ref().is_some_and(|trouble| trouble.noise.share().is_some());
        (!has_served_since && !is_alone && !is_noisy)
            .then(|| self.now.saturating_sub(sent) as f64 / 1000.0)
    }

    /// Lowers the ceiling after a 503 that is no limit hit: the limit is near, or comes closer.
    fn shed(&mut self, signal: Signal) {
        let Some(window) = self.at_ceiling() else { return };
        match signal {
            Signal::Block => self.begin_block_test(),
            _ => self.begin_noise_test(signal),
        }
        let now = self.now;
        let trouble = self.active.trouble();
        trouble.sheds = if trouble.counts_refusals {
            DOUBLINGS
        } else if now.saturating_sub(trouble.shed_at) > SHEDS_MS {
            0
        } else {
            trouble.sheds.saturating_add(1).min(DOUBLINGS)
        };
        trouble.shed_at = now;
        let less = SHED * f64::from(1_u32 << trouble.sheds);
        let cap = self.persisted.cap[window].get();
        self.persisted.cap[window] =
            PositiveF16::new(((1.0 - less) * cap).max(self.least_without_evidence(cap)));
        self.set_rate(self.rate());
    }

    /// Handles a blocked trial of a doubt. Returns the limit hit, if that decides the doubt.
    pub(crate) fn blocked_again(&mut self, fetcher_delivers: bool) -> Option<LimitHit> {
        let trouble = self.active.trouble();
        let doubt = trouble.doubt.as_mut()?;
        // A block of a fetcher without successes here concerns that fetcher.
        if fetcher_delivers {
            doubt.trials = doubt.trials.saturating_sub(1);
        }
        if doubt.trials > 0 {
            return None;
        }
        let doubt = trouble.doubt.take()?;
        trouble.last_verdict = Some(DoubtVerdict::Pace);
        // A block took something that no noise gives back.
        self.end_noise_test();
        Some(LimitHit {
            cause: Cause::Block,
            counts: doubt.counts,
            in_flight: doubt.in_flight,
            retry_after: None,
            silent_s: 0.0,
        })
    }

    /// Decides that the block concerned the page, if this fetcher got another URL. Pages of another
    /// fetcher prove little, because the block may concern only one fetcher; they decide when that
    /// fetcher sends no more requests.
    pub(crate) fn decide_for_page(&mut self, fetcher: u16) {
        let trouble = self.active.trouble();
        if let Some(doubt) = trouble.doubt.as_mut().filter(|doubt| doubt.fetcher != fetcher) {
            doubt.others = doubt.others.saturating_add(1);
            if doubt.others < MAX_OTHER_PAGES {
                return;
            }
        }
        (trouble.doubt, trouble.trial, trouble.blocks) = (None, Trial::No, 0.0);
        trouble.last_verdict = Some(DoubtVerdict::Page);
        self.persisted.set_trial(false);
        self.persisted.add_page_block();
    }

    /// Ends the host's own doubt because a level above was blamed.
    pub(crate) fn end_doubt(&mut self) {
        if let Some(trouble) = &mut self.active.trouble
            && trouble.doubt.take().is_some()
        {
            trouble.last_verdict = Some(DoubtVerdict::Pace);
        }
    }

    /// Ends the doubt as above, with its trial, if the level above was blamed at `blamed_at`, after
    /// the doubt began. Returns whether that is so.
    pub(crate) fn end_older_doubt(&mut self, blamed_at: i64) -> bool {
        let of = |trouble: &Trouble| trouble.doubt.is_some_and(|doubt| doubt.since <= blamed_at);
        if !self.active.trouble.as_deref().is_some_and(of) {
            return false;
        }
        self.end_doubt();
        let trouble = self.active.trouble();
        (trouble.trial, trouble.blocks) = (Trial::No, 0.0);
        self.persisted.set_trial(false);
        true
    }

    /// Returns the result of a doubt. Earlier doubts were about pace if the last one was.
    pub(crate) fn verdict(&self, doubt: u32) -> DoubtVerdict {
        let Some(trouble) = &self.active.trouble else { return DoubtVerdict::Page };
        match (trouble.doubts == doubt, &trouble.doubt) {
            (true, Some(_)) => DoubtVerdict::Pending,
            _ => trouble.last_verdict.unwrap_or(DoubtVerdict::Page),
        }
    }

    /// Returns whether a noisy host that has a limit, too, gave more 503s lately than noise
    /// explains.
    fn is_unusual(&self) -> bool {
        let of = |trouble: &Trouble| {
            trouble.noise.has_limit() && f64::from(trouble.errors) > UNUSUAL * ERRORS
        };
        self.active.trouble.as_deref().is_some_and(of)
    }

    /// Returns whether a single 503 is most likely noise. At a low rate a small share means one
    /// error in minutes, and a limit nearby gives as many.
    fn is_noisy(&self) -> bool {
        let least = if self.rate() < SLOW { NOISY } else { 0.0 };
        self.active
            .trouble
            .as_ref()
            .and_then(|trouble| trouble.noise.share())
            .is_some_and(|share| share >= least)
    }

    fn accumulate_block(
        &mut self,
        permit: &Permit,
        fetcher: u16,
        hit: impl FnOnce(Cause) -> LimitHit,
    ) -> SignalEffect {
        // Requests in flight at the beginning of the doubt with the same block wait for the same
        // verdict.
        let open = self.active.trouble().doubt.is_some_and(|doubt| doubt.fetcher == fetcher);
        if open && self.active.trouble().hold > self.now {
            let trouble = self.active.trouble();
            return SignalEffect::Doubt { hold_until: trouble.hold, doubt: trouble.doubts };
        }
        if self.test_block_noise(true) {
            return SignalEffect::Nothing;
        }
        let page_blocks = usize::from(self.persisted.page_blocks()).min(2);
        let (usual, since) = (self.update_usual_shares(0.0, 1.0).1, self.now);
        if page_blocks > 0 {
            return self.accumulate_some_blocks(permit, hit);
        }
        let sum = (f64::from(self.active.trouble().blocks) + 1.0 - SLACK - 1.5 * usual).max(0.0);
        let trouble = self.active.trouble();
        trouble.blocks = sum as f32;
        if trouble.doubt.is_some() {
            return SignalEffect::Nothing;
        }
        trouble.doubts = trouble.doubts.wrapping_add(1);
        let (counts, in_flight) = (permit.counts, permit.in_flight);
        let trials = trials_of_doubt(self.active.rings.count(WINDOWS - 1, since));
        let trouble = self.active.trouble();
        trouble.doubt = Some(Doubt { counts, in_flight, since, trials, fetcher, others: 0 });
        let doubt = trouble.doubts;
        // Requests in flight are unaffected; only requests sent from now on can decide.
        let hold_until = self.hold_for(DOUBT_S, Trial::Wanted);
        SignalEffect::Doubt { hold_until, doubt }
    }

    /// Accumulates a block of a host that blocks some of its pages. It is a limit's if there are
    /// more of them at a higher rate, or many in a row.
    fn accumulate_some_blocks(
        &mut self,
        permit: &Permit,
        hit: impl FnOnce(Cause) -> LimitHit,
    ) -> SignalEffect {
        let (rate, is_open) = (self.usable_rate(), self.active.trouble().doubt.is_none());
        if self.is_limited_by_blocks()
            && self.probe_refused(&permit.counts, permit.in_flight, Signal::Block)
        {
            return SignalEffect::Refused;
        }
        let trouble = self.active.trouble();
        trouble.blocks_in_a_row = trouble.blocks_in_a_row.saturating_add(1);
        let share = trouble.block_noise.expected_share(USUAL_BLOCKS);
        // By chance, as many in a row come once in 100,000 responses.
        let is_ban =
            f64::from(trouble.blocks_in_a_row) >= (ODDS_OF_A_BAN / -share.ln()).max(BAN_LEAST);
        let step = match trouble.block_noise.excess(1.0) {
            Some(excess) => ERRORS * excess,
            None => trouble.block_noise.steps(rate, true, USUAL_BLOCKS).0.min(1.0 - SLACK),
        };
        trouble.blocks = (f64::from(trouble.blocks) + step).max(0.0) as f32;
        // A limit that says what it is does not answer with a few blocks, but it may ban.
        let mut is_excess = trouble.clarity <= 1 && f64::from(trouble.blocks) > ERRORS;
        if is_excess && trouble.block_noise.correct(rate) {
            (trouble.blocks, is_excess) = (0.0, false);
        }
        if !is_open || !is_ban && !is_excess {
            if !self.is_limited_by_blocks() {
                return SignalEffect::Nothing;
            }
            self.shed(Signal::Block);
            return SignalEffect::Refused;
        }
        let now = self.now;
        self.active.trouble().block_noise.revoke(rate, now);
        self.begin_block_test();
        self.note_clarity(Signal::Block, false);
        SignalEffect::LimitHit(hit(if is_ban { Cause::Block } else { Cause::SomeBlocks }))
    }

    /// Returns whether a block between good pages is most likely the limit's.
    fn is_limited_by_blocks(&self) -> bool {
        self.active.trouble.as_ref().is_some_and(|trouble| match trouble.block_noise.share() {
            None => trouble.blocks_by_rate,
            Some(_) => {
                trouble.block_noise.has_limit() && f64::from(trouble.blocks) > UNUSUAL * ERRORS
            }
        })
    }

    fn accumulate_error(&mut self, weight: f64, signal: Signal, in_flight: u8) -> bool {
        // Any error may be what a limit looks like, so it becomes usual only as noise.
        let usual = self.update_usual_shares(0.0, 0.0).0;
        let (rate, is_crowd) =
            (self.usable_rate(), in_flight > self.persisted.par_clean.max(1) && self.is_crowd());
        let trouble = self.active.trouble();
        let step = match trouble.noise.excess(weight) {
            Some(excess) => ERRORS * excess,
            None if is_crowd => weight - allowance(usual),
            None => {
                weight
                    * trouble
                        .noise
                        .steps(rate, signal == Signal::Unavailable, usual_errors(signal))
                        .0
                        .min(1.0 - allowance(usual))
            }
        };
        let sum = (f64::from(trouble.errors) + step).max(0.0);
        trouble.errors = sum as f32;
        if signal == Signal::Unavailable {
            trouble.crowd =
                if trouble.crowd == 0 { in_flight } else { trouble.crowd.min(in_flight) };
        }
        let is_new = trouble.noise.is_new() && trouble.clarity == 0 && !is_crowd;
        if sum <= if is_new { ERRORS_OF_NEW } else { ERRORS } {
            return false;
        }
        let is_corrected = trouble.noise.correct(rate);
        if is_corrected {
            trouble.errors = 0.0;
        }
        !is_corrected
    }

    /// Decreases the sums after an ordinary response.
    fn decay_sums(&mut self) {
        if self.active.trouble.is_none() {
            return;
        }
        let (errors, blocks) = self.update_usual_shares(0.0, 0.0);
        let (rate, is_at_ceiling, is_crowd) =
            (self.usable_rate(), self.at_ceiling().is_some(), self.is_crowd());
        let page_blocks = self.persisted.page_blocks();
        let trouble = self.active.trouble();
        let step = match trouble.noise.excess(0.0) {
            Some(excess) => ERRORS * excess,
            // While the rate grows, a limit soon refuses more than now and then.
            None if !is_at_ceiling && !is_crowd => {
                trouble.noise.steps(rate, true, usual_errors(Signal::Unavailable)).1.max(-GROWING)
            }
            None => -allowance(errors),
        };
        let of_blocks = match trouble.block_noise.excess(0.0) {
            Some(excess) => ERRORS * excess,
            None if page_blocks > 0 => {
                trouble.block_noise.steps(rate, true, USUAL_BLOCKS).1.max(-GROWING)
            }
            None => -SLACK - 1.5 * blocks,
        };
        trouble.errors = (f64::from(trouble.errors) + step).max(0.0) as f32;
        trouble.blocks = (f64::from(trouble.blocks) + of_blocks).max(0.0) as f32;
        trouble.blocks_in_a_row = 0;
        if trouble.errors == 0.0 {
            trouble.crowd = 0;
        }
    }

    /// Updates the usual shares of errors and blocks. Returns their previous values.
    fn update_usual_shares(&mut self, errors: f64, blocks: f64) -> (f64, f64) {
        let before =
            (UNIT * f64::from(self.persisted.errors), UNIT * f64::from(self.persisted.blocks));
        let trouble = self.active.trouble();
        trouble.responses = trouble.responses.wrapping_add(1).max(1);
        let weight = 1.0 / f64::from(trouble.responses.clamp(50, 300));
        let part = f64::from(trouble.responses % 32) / 32.0;
        let moved = |share: f64, x: f64| {
            let units = ((share + weight * (x - share)) / UNIT).clamp(0.0, 255.0);
            // Steps below one unit are taken now and then, or a share would never decrease.
            (units + part).floor().min(255.0) as u8
        };
        (self.persisted.errors, self.persisted.blocks) =
            (moved(before.0, errors), moved(before.1, blocks));
        (before.0.min(MAX_USUAL), before.1.min(MAX_USUAL))
    }
}

/// Returns how many further pages in a row must be blocked until it is the pace's. `responses` is
/// the number of recent responses: after few of them, a second blocked page says little.
fn trials_of_doubt(responses: f64) -> u8 {
    TRIALS[usize::from(responses < HARDLY_KNOWN)]
}

/// Returns how clearly a refusal speaks of a limit: a time or a 429, a 503, anything else.
fn clarity(signal: Signal, has_time: bool) -> u8 {
    match signal {
        _ if has_time => 3,
        Signal::Limited => 3,
        Signal::Unavailable => 2,
        _ => 1,
    }
}

/// Returns the errors, and the responses, that are expected of any host before it has responded.
fn usual_errors(signal: Signal) -> (f32, f32) {
    match signal {
        Signal::ServerError => (0.5, 10.0),
        _ => (0.2, 10.0),
    }
}

/// Returns the decrease of the sum of errors per response of a host that is not noisy.
fn allowance(usual: f64) -> f64 {
    SLACK + 1.5 * usual
}
