//! What single answers add up to: errors and walls come now and then from any host, and are a limit only when there are more of them.
//!
//! Owns the sums and the doubt. Invariant: one wall, or one error, is never an event by itself. Must not know what an event does.

use crate::limiter::active_state::{Doubt, Trial};
use crate::limiter::limit_hit::Found;
use crate::limiter::permit::Permit;
use crate::limiter::rate_gate::Live;
use crate::persistence::float16::Small;
use crate::signals::response::{Response, Cause, Signal, DoubtVerdict};

/// What a sum loses with each answer, beside one and a half times the usual share.
const SLACK: f64 = 0.03;
/// The usual share is no higher than this.
const MAX_USUAL: f64 = 0.06;
/// Remembered shares are in these.
const UNIT: f64 = 1.0 / 2550.0;
/// Errors are an event above this sum: three in a row.
const ERRORS: f64 = 2.0;
/// Walls begin a doubt above these sums, once one, and once two walls have turned out to be a page's own.
const WALLS: [f64; 3] = [0.0, 1.8, 2.4];
/// A doubt holds the host so long.
const DOUBT_S: f64 = 3.0;
/// So many pages that other fetchers bring as trials end a doubt about one that nobody sends any more.
const OTHERS: u8 = 5;
/// Taken off the ceiling for a 503 that is no event; twice as much, so often at most, for each that comes within a time of the last.
const SHED: f64 = 0.02;
const SHEDS_MS: i64 = 15 * 60_000;
const DOUBLINGS: u8 = 3;

/// What an answer adds up to with those before it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sum {
    Nothing,
    /// Another URL will tell. Until then nothing goes out.
    Doubt {
        hold_until: i64,
        doubt: u32,
    },
    Event(Found),
}

impl Live<'_> {
    /// An answer that is no trial's.
    pub(crate) fn hear(&mut self, permit: &Permit, answer: &Response, delivers: bool) -> Sum {
        let found = |cause| Found {
            cause,
            counts: permit.counts,
            in_flight: permit.in_flight,
            retry_after: answer.retry_after.filter(|span| !span.is_zero()),
        };
        let has_time = answer.retry_after.is_some_and(|span| !span.is_zero());
        match answer.heard {
            Signal::Content | Signal::Nothing => {
                self.ordinary();
                Sum::Nothing
            }
            Signal::NotAsked => Sum::Nothing,
            Signal::Limited => Sum::Event(found(Cause::Limited)),
            Signal::Unavailable if has_time => Sum::Event(found(Cause::Unavailable)),
            Signal::Wall if has_time => Sum::Event(found(Cause::Wall)),
            // A fetcher that has shown nothing here lately may be the one that is walled.
            Signal::Wall if !delivers => Sum::Nothing,
            Signal::Wall => self.wall(permit, answer.fetcher.0),
            Signal::Unavailable if self.look_refused(&permit.counts, permit.in_flight) => Sum::Nothing,
            Signal::Unavailable | Signal::Broken | Signal::ServerError => {
                let weight = if answer.heard == Signal::ServerError { 0.4 } else { 1.0 };
                if self.errors(weight, answer.heard, permit.in_flight) {
                    let is_503 = answer.heard == Signal::Unavailable;
                    return Sum::Event(found(if is_503 { Cause::Unavailable } else { Cause::Errors }));
                }
                if answer.heard == Signal::Unavailable {
                    self.shed();
                }
                Sum::Nothing
            }
        }
    }

    /// A 503 that is no event, at the ceiling: the limit is near, or coming nearer.
    fn shed(&mut self) {
        let Some(window) = self.at_ceiling() else { return };
        let now = self.now;
        let trouble = self.hot.trouble();
        trouble.sheds = if now.saturating_sub(trouble.shed_at) > SHEDS_MS {
            0
        } else {
            trouble.sheds.saturating_add(1).min(DOUBLINGS)
        };
        trouble.shed_at = now;
        let less = SHED * f64::from(1_u32 << trouble.sheds);
        self.cold.cap[window] = Small::new((1.0 - less) * self.cold.cap[window].get());
        self.set_rate(self.rate());
    }

    /// A wall at the trial of a doubt. Returns the event, if that settles it.
    pub(crate) fn walled_again(&mut self, fetcher_delivers: bool) -> Option<Found> {
        let trouble = self.hot.trouble();
        let doubt = trouble.doubt.as_mut()?;
        // The wall of a fetcher that has shown nothing here yet is its own.
        if fetcher_delivers {
            doubt.trials = doubt.trials.saturating_sub(1);
        }
        if doubt.trials > 0 {
            return None;
        }
        let doubt = trouble.doubt.take()?;
        trouble.last_verdict = Some(DoubtVerdict::Pace);
        Some(Found { cause: Cause::Wall, counts: doubt.counts, in_flight: doubt.in_flight, retry_after: None })
    }

    /// Another URL came by this fetcher: the wall was the page's own. That another fetcher gets pages says little, since the wall may be
    /// for the one alone that met it; when nobody sends that one any more, nothing better is to be had.
    pub(crate) fn acquit(&mut self, fetcher: u16) {
        let trouble = self.hot.trouble();
        if let Some(doubt) = trouble.doubt.as_mut().filter(|doubt| doubt.fetcher != fetcher) {
            doubt.others = doubt.others.saturating_add(1);
            if doubt.others < OTHERS {
                return;
            }
        }
        (trouble.doubt, trouble.trial, trouble.walls) = (None, Trial::No, 0.0);
        trouble.last_verdict = Some(DoubtVerdict::Page);
        self.cold.set_trial(false);
        self.cold.add_lone();
    }

    /// The host is blamed on a level above it: its own doubt is settled.
    pub(crate) fn settle(&mut self) {
        if let Some(trouble) = &mut self.hot.trouble
            && trouble.doubt.take().is_some()
        {
            trouble.last_verdict = Some(DoubtVerdict::Pace);
        }
    }

    /// How the doubt came out; those that are over were the pace's if the last of them was.
    pub(crate) fn verdict(&self, doubt: u32) -> DoubtVerdict {
        let Some(trouble) = &self.hot.trouble else { return DoubtVerdict::Page };
        match (trouble.doubts == doubt, &trouble.doubt) {
            (true, Some(_)) => DoubtVerdict::Pending,
            _ => trouble.last_verdict.unwrap_or(DoubtVerdict::Page),
        }
    }

    fn wall(&mut self, permit: &Permit, fetcher: u16) -> Sum {
        // What was under way when the doubt began and met the same wall waits for the same verdict.
        let open = self.hot.trouble().doubt.is_some_and(|doubt| doubt.fetcher == fetcher);
        if open && self.hot.trouble().hold > self.now {
            let trouble = self.hot.trouble();
            return Sum::Doubt { hold_until: trouble.hold, doubt: trouble.doubts };
        }
        let lone = usize::from(self.cold.lone()).min(2);
        let usual = self.usual(0.0, 1.0).1;
        let sum = (f64::from(self.hot.trouble().walls) + 1.0 - SLACK - 1.5 * usual).max(0.0);
        let trouble = self.hot.trouble();
        trouble.walls = sum as f32;
        if sum <= WALLS[lone] || trouble.doubt.is_some() {
            return Sum::Nothing;
        }
        trouble.doubts = trouble.doubts.wrapping_add(1);
        let (counts, in_flight) = (permit.counts, permit.in_flight);
        trouble.doubt = Some(Doubt { counts, in_flight, trials: 1 + lone as u8, fetcher, others: 0 });
        let doubt = trouble.doubts;
        // What is under way is answered as before: only requests that go out from now on can tell.
        let hold_until = self.hold_for(DOUBT_S, Trial::Wanted);
        Sum::Doubt { hold_until, doubt }
    }

    fn errors(&mut self, weight: f64, heard: Signal, in_flight: u8) -> bool {
        // A 503 is what a limit looks like, so however often it comes it never becomes usual.
        let usual = self.usual(if heard == Signal::Unavailable { 0.0 } else { weight }, 0.0).0;
        let trouble = self.hot.trouble();
        let sum = (f64::from(trouble.errors) + weight - SLACK - 1.5 * usual).max(0.0);
        trouble.errors = sum as f32;
        if heard == Signal::Unavailable {
            trouble.crowd = if trouble.crowd == 0 { in_flight } else { trouble.crowd.min(in_flight) };
        }
        sum > ERRORS
    }

    /// An answer like most: the sums shrink.
    fn ordinary(&mut self) {
        if self.hot.trouble.is_none() {
            return;
        }
        let (errors, walls) = self.usual(0.0, 0.0);
        let trouble = self.hot.trouble();
        trouble.errors = (f64::from(trouble.errors) - SLACK - 1.5 * errors).max(0.0) as f32;
        trouble.walls = (f64::from(trouble.walls) - SLACK - 1.5 * walls).max(0.0) as f32;
        if trouble.errors == 0.0 {
            trouble.crowd = 0;
        }
        trouble.fresh = trouble.fresh.saturating_sub(1);
    }

    /// Brings the usual shares of errors and walls up to date. Returns them as they were before.
    fn usual(&mut self, errors: f64, walls: f64) -> (f64, f64) {
        let before = (UNIT * f64::from(self.cold.errors), UNIT * f64::from(self.cold.walls));
        let trouble = self.hot.trouble();
        trouble.answers = trouble.answers.wrapping_add(1).max(1);
        let weight = 1.0 / f64::from(trouble.answers.clamp(50, 300));
        let part = f64::from(trouble.answers % 32) / 32.0;
        let moved = |share: f64, x: f64| {
            let units = ((share + weight * (x - share)) / UNIT).clamp(0.0, 255.0);
            // Steps smaller than a unit are taken now and then, or a share would never come down.
            (units + part).floor().min(255.0) as u8
        };
        (self.cold.errors, self.cold.walls) = (moved(before.0, errors), moved(before.1, walls));
        (before.0.min(MAX_USUAL), before.1.min(MAX_USUAL))
    }
}
