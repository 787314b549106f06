//! A host, a site or an address at one moment: whether a request may go out, and the bookkeeping of those that do.
//!
//! Owns the gate and the gap between requests. Invariants: requests go out evenly; never more than `par` at once; nothing before a hold
//! has ended, and then one alone. The rules that move its rate are in files of their own, as further methods.

use super::permit::wrapped;
use super::window::{Counts, SECONDS};
use crate::limiter::active_state::{Hot, Trial};
use crate::persistence::persisted_state::Remembered;
use crate::signals::response::Level;

/// Nobody is asked less often than this by what is learned: rarer limits are held, not learned.
pub(crate) const RATE_MIN: f64 = 0.005;
/// Requests at once before the first answer.
const PAR_FIRST: f64 = 4.0;
/// The rate counts as being at the ceiling from this share on.
const AT_CEILING: f64 = 0.97;

/// What holds for whom it is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) level: Level,
    /// The rate is given: nothing is learned but holds.
    pub(crate) is_fixed: bool,
    pub(crate) max_rate: f64,
    pub(crate) max_retry_after_s: f64,
    pub(crate) max_crawl_delay_s: f64,
}

/// Whether a request may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Go,
    /// As the trial.
    Trial,
    /// Not before then.
    Wait(i64),
    Full,
}

/// One host, site or address under the hand.
#[derive(Debug)]
pub(crate) struct Live<'l> {
    pub(crate) cold: &'l mut Remembered,
    pub(crate) hot: &'l mut Hot,
    pub(crate) rules: Rules,
    pub(crate) now: i64,
}

impl Live<'_> {
    /// The least of the rates that the windows allow, and the window that it is of; `max_rate` when none is capped lower.
    pub(crate) fn ceiling(&self) -> (f64, Option<usize>) {
        let mut least = (self.rules.max_rate, None);
        for (window, cap) in self.cold.cap.iter().enumerate() {
            if let Some(cap) = cap.some()
                && cap < least.0
            {
                least = (cap, Some(window));
            }
        }
        least
    }

    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.hot.rate)
    }

    /// Sets the rate, within the ceiling and what can be kept.
    pub(crate) fn set_rate(&mut self, rate: f64) {
        if !self.rules.is_fixed {
            self.hot.rate = rate.max(RATE_MIN).min(self.ceiling().0.max(RATE_MIN)) as f32;
        }
    }

    /// Whether the rate is as high as the windows let it be, and which one it is that does not.
    pub(crate) fn at_ceiling(&self) -> Option<usize> {
        let (ceiling, window) = self.ceiling();
        window.filter(|_| self.rate() >= AT_CEILING * ceiling)
    }

    /// How many may be under way.
    pub(crate) fn par(&self) -> u8 {
        if self.cold.kept_wish().is_some() {
            return 1;
        }
        let cap = match self.cold.par_cap {
            0 => self.hot.max_par,
            cap => self.hot.max_par.min(cap),
        };
        if self.rules.is_fixed || self.rules.level != Level::Host {
            return cap;
        }
        let needed = match self.hot.fast {
            fast if fast.is_nan() => PAR_FIRST,
            fast => (1.5 * self.rate() * f64::from(fast).exp()).ceil() + 2.0,
        };
        cap.min(needed.clamp(1.0, 255.0) as u8).max(1)
    }

    /// Until when nothing goes out, if that is still to come.
    pub(crate) fn hold(&self) -> Option<i64> {
        self.hot.trouble.as_ref().map(|trouble| trouble.hold).filter(|hold| *hold > self.now)
    }

    pub(crate) fn gate(&mut self) -> Gate {
        if let Some(trouble) = &self.hot.trouble {
            if trouble.hold > self.now {
                return Gate::Wait(trouble.hold);
            }
            match trouble.trial {
                Trial::No => {}
                Trial::Wanted if self.hot.next > self.now => return Gate::Wait(self.hot.next),
                Trial::Wanted => return Gate::Trial,
                Trial::Out => return Gate::Full,
            }
        }
        if self.hot.in_flight >= self.par() {
            if let Some(trouble) = &mut self.hot.trouble {
                trouble.is_crowded = true;
            }
            return Gate::Full;
        }
        if self.hot.next > self.now { Gate::Wait(self.hot.next) } else { Gate::Go }
    }

    /// Books a request that the gate let through. `even` is a number from 0.9 to 1.1. Returns whether the caller had more to ask than
    /// went out: it came for this one as soon as it could.
    pub(crate) fn book(&mut self, cost: u16, is_trial: bool, even: f64) -> bool {
        let gap_ms = self.gap_ms(cost) * even;
        let idle = self.now.saturating_sub(self.hot.next) as f64;
        let is_paced = idle <= 2.0 * gap_ms;
        // A late caller catches up a fifth of a gap, no more: requests saved up would go out as a burst.
        let from = self.hot.next.max(self.now.saturating_sub((gap_ms / 5.0) as i64));
        self.hot.next = from.saturating_add(gap_ms.round() as i64);
        self.touch();
        self.hot.rings.add(cost, self.now);
        self.hot.in_flight = self.hot.in_flight.saturating_add(1);
        if is_trial {
            self.hot.trouble().trial = Trial::Out;
        }
        is_paced
    }

    /// The request has come back, or never went out.
    pub(crate) fn unbook(&mut self, is_trial: bool) {
        self.hot.in_flight = self.hot.in_flight.saturating_sub(1);
        if is_trial {
            let trouble = self.hot.trouble();
            if trouble.trial == Trial::Out {
                trouble.trial = Trial::Wanted;
            }
        }
    }

    /// A request that was booked at `sent`, after which the next one could go out at `next`, never went out: its turn is free again.
    /// When others were booked after it, their turns stay as they are, so that requests still go out evenly.
    pub(crate) fn free_turn(&mut self, next: u32, sent: i64) {
        if wrapped(self.hot.next) == next {
            self.hot.next = self.hot.next.min(sent);
        }
    }

    /// Counts what a request cost beyond what it was let through for, or takes back what it did not cost.
    pub(crate) fn correct(&mut self, let_through: u16, cost: u16) {
        self.touch();
        if cost > let_through {
            self.hot.rings.add(cost - let_through, self.now);
            let gap = self.gap_ms(cost - let_through);
            self.hot.next = self.hot.next.max(self.now).saturating_add(gap as i64);
        } else {
            self.hot.rings.subtract(let_through - cost, self.now);
        }
    }

    /// Brings the rings up to now.
    pub(crate) fn touch(&mut self) {
        // Clocks that go back count as standing still.
        self.now = self.now.max(self.hot.at);
        self.hot.rings.advance(self.hot.at, self.now);
        self.hot.at = self.now;
        self.cold.asked = u16::try_from(self.now.div_euclid(86_400_000)).unwrap_or(0);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.hot.rings.counts(self.now)
    }

    /// How long `cost` requests take at the pace of now, in milliseconds.
    pub(crate) fn gap_ms(&self, cost: u16) -> f64 {
        let gap = f64::from(cost.max(1)) / self.rate();
        // Infinite rates have no gap; no gap is longer than a day.
        (gap.max(self.floor_s().unwrap_or(0.0) * f64::from(cost.min(1))) * 1000.0).clamp(0.0, 86_400_000.0)
    }

    /// The least gap between requests that is kept, in seconds.
    pub(crate) fn floor_s(&self) -> Option<f64> {
        self.cold.kept_wish().map(|wish| wish.min(self.rules.max_crawl_delay_s))
    }

    /// Whether a request sent then went out before the last event: its answer belongs to what is known already.
    pub(crate) fn is_before_event(&self, sent: i64) -> bool {
        self.hot.trouble.as_ref().is_some_and(|trouble| trouble.event > 0 && sent <= trouble.event)
    }

    /// How long it is since the last good answer, in seconds; from now on since this one.
    pub(crate) fn answered(&mut self) -> f64 {
        let now = wrapped(self.now);
        let since = now.wrapping_sub(self.hot.answered);
        self.hot.answered = now;
        f64::from(since) / 1000.0
    }
}

/// The rate that a count within a window is.
pub(crate) fn rate_of(counts: &Counts, window: usize) -> f64 {
    counts[window].get() / SECONDS[window]
}
