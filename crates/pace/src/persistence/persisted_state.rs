//! What is remembered of a host, a site or an address between crawls: 64 bytes.
//!
//! Owns the fields, how they are laid out in a log, and what time takes from them. Invariant: any 64 bytes are a state that the rules
//! can work with. Must not know the rules.

use crate::limiter::window::{Counts, WINDOWS};
use crate::persistence::float16::Small;
use crate::signals::response::Cause;

/// Looks that failed are forgiven at one a week.
const WEEK_S: i64 = 7 * 86_400;
/// Without an event for so long, a ceiling is no longer sure.
const SURE_S: i64 = 30 * 86_400;
/// Requests that a rendered page makes to its host, until the host has shown how many.
pub(crate) const RENDER_COST: u8 = 12;
/// A host that was not asked for so many days is forgotten.
pub(crate) const FORGET_DAYS: i64 = 90;

/// In `why`: the wish is kept. Not in the log: whether it is, is said anew in each crawl.
const KEPT: u8 = 0x80;
const SURE: u8 = 1;
const TRIAL: u8 = 2;
const LONE_SHIFT: u8 = 2;
const GIVEN_SHIFT: u8 = 4;

/// The state of one host, site or address, as it is kept in memory while nothing is asked, in the log and in snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// Requests a second.
    pub(crate) rate: Small,
    /// The highest rate that was kept up at the ceiling.
    pub(crate) lo: Small,
    /// For each window the rate that is allowed; none when it is not to blame.
    pub(crate) cap: Counts,
    /// For each window the lowest rate that was blocked.
    pub(crate) hi: Counts,
    /// For each window the highest rate whose answer was good.
    pub(crate) clean: Counts,
    /// The latency of the quiet host, in seconds.
    pub(crate) base: Small,
    /// How long the host refused last, in seconds.
    pub(crate) penalty: Small,
    /// The ceiling, or without one the rate, that the log knows. Not in the log itself.
    pub(crate) noted: Small,
    /// The gap between requests that the host's `Crawl-delay` asked for last, in seconds, however long it is.
    pub(crate) wish: Small,
    /// The day of the last request.
    pub(crate) asked: u16,
    /// Seconds since the epoch of the last event, the end of its hold, and of the next look higher.
    pub(crate) event: u32,
    pub(crate) hold_until: u32,
    pub(crate) probe_at: u32,
    /// Requests at once at most; 0 when nothing speaks against more.
    pub(crate) par_cap: u8,
    /// The most at once whose answers were good.
    pub(crate) par_clean: u8,
    /// Looks that failed. Read it by [`Remembered::fails`].
    pub(crate) failed: u8,
    /// The window that was blamed last (low three bits) and for what.
    why: u8,
    flags: u8,
    /// Requests that a rendered page makes; 0 when not known.
    pub(crate) render_cost: u8,
    /// Shares of answers that are walls and errors without being limits, in 1/2550.
    pub(crate) walls: u8,
    pub(crate) errors: u8,
}

impl Remembered {
    /// Looks that failed and are not forgiven yet.
    pub(crate) fn fails(&self, now: i64) -> u8 {
        let weeks = (now / 1000 - i64::from(self.event)).max(0) / WEEK_S;
        self.failed.saturating_sub(u8::try_from(weeks).unwrap_or(u8::MAX))
    }

    /// Whether the ceiling was found twice, and not too long ago.
    pub(crate) fn is_sure(&self, now: i64) -> bool {
        self.flags & SURE != 0 && now / 1000 - i64::from(self.event) < SURE_S
    }

    pub(crate) fn set_sure(&mut self, sure: bool) {
        self.set(SURE, sure);
    }

    /// A hold has not been lifted by a good answer yet.
    pub(crate) fn has_trial(&self) -> bool {
        self.flags & TRIAL != 0
    }

    pub(crate) fn set_trial(&mut self, trial: bool) {
        self.set(TRIAL, trial);
    }

    /// How many walls have turned out to be a page's own; two stands for more.
    pub(crate) fn lone(&self) -> u8 {
        self.flags >> LONE_SHIFT & 3
    }

    pub(crate) fn add_lone(&mut self) {
        let lone = (self.lone() + 1).min(2);
        self.flags = self.flags & !(3 << LONE_SHIFT) | lone << LONE_SHIFT;
    }

    /// The window for which the host itself has said what it allows.
    pub(crate) fn given(&self) -> Option<usize> {
        usize::from(self.flags >> GIVEN_SHIFT).checked_sub(1).filter(|window| *window < WINDOWS)
    }

    pub(crate) fn set_given(&mut self, window: usize) {
        self.flags = self.flags & 0x0f | (window as u8 + 1) << GIVEN_SHIFT;
    }

    pub(crate) fn blamed(&self) -> Option<usize> {
        Some(usize::from(self.why & 7)).filter(|window| *window < WINDOWS)
    }

    pub(crate) fn cause(&self) -> Cause {
        Cause::from_repr((self.why & !KEPT) >> 3).unwrap_or_default()
    }

    pub(crate) fn set_why(&mut self, window: Option<usize>, cause: Cause) {
        self.why = window.map_or(7, |window| window as u8) | (cause as u8) << 3 | self.why & KEPT;
    }

    /// What the host wishes is kept from now on.
    pub(crate) fn keep_wish(&mut self, wish: Small) {
        (self.wish, self.why) = (wish, self.why | KEPT);
    }

    /// The gap that the host wishes and that is kept, in seconds, before it is cut.
    pub(crate) fn kept_wish(&self) -> Option<f64> {
        self.wish.some().filter(|_| self.why & KEPT != 0)
    }

    /// The same with the wish of `other` where that is kept.
    pub(crate) fn with_wish_of(self, other: &Self) -> Self {
        if other.why & KEPT == 0 { self } else { Self { wish: other.wish, why: self.why | KEPT, ..self } }
    }

    fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// The layout of the log: all fields in the order of their sizes, little-endian; what is not remembered is zero.
    pub(crate) fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let halves = [self.rate, self.lo].into_iter().chain(self.cap).chain(self.hi).chain(self.clean);
        let halves =
            halves.chain([self.base, self.penalty, self.wish, Small::NONE]).map(Small::bits).chain([self.asked]);
        let words = [self.event, self.hold_until, self.probe_at];
        let rest = [
            self.par_cap,
            self.par_clean,
            self.failed,
            self.why & !KEPT,
            self.flags,
            self.render_cost,
            self.walls,
            self.errors,
        ];
        let all = halves.flat_map(u16::to_le_bytes).chain(words.into_iter().flat_map(u32::to_le_bytes)).chain(rest);
        bytes.iter_mut().zip(all).for_each(|(byte, value)| *byte = value);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]);
        let small = |at: usize| Small::from_bits(half(at));
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[44 + 4 * at + byte]));
        let flags = bytes[60] & (SURE | TRIAL | 3 << LONE_SHIFT | 15 << GIVEN_SHIFT);
        Self {
            rate: small(0),
            lo: small(1),
            cap: std::array::from_fn(|window| small(2 + window)),
            hi: std::array::from_fn(|window| small(7 + window)),
            clean: std::array::from_fn(|window| small(12 + window)),
            base: small(17),
            penalty: small(18),
            noted: Small::NONE,
            wish: small(19),
            asked: half(21),
            event: word(0),
            hold_until: word(1),
            probe_at: word(2),
            par_cap: bytes[56],
            par_clean: bytes[57],
            failed: bytes[58],
            why: bytes[59] & !KEPT,
            flags,
            render_cost: bytes[61],
            walls: bytes[62],
            errors: bytes[63],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_host_that_is_not_asked_costs_64_bytes() {
        assert_eq!(size_of::<Remembered>(), 64);
    }

    #[test]
    fn failed_looks_are_forgiven_one_a_week_and_certainty_goes_after_a_month() {
        let mut state = Remembered { failed: 3, event: 1_000_000, ..Remembered::default() };
        state.set_sure(true);
        let after = |days: i64| (1_000_000 + days * 86_400) * 1000;
        assert_eq!([0, 6, 7, 20, 21, 400].map(|days| state.fails(after(days))), [3, 3, 2, 1, 0, 0]);
        assert_eq!([0, 29, 30].map(|days| state.is_sure(after(days))), [true, true, false]);
    }

    #[test]
    fn what_a_host_wishes_is_remembered_and_that_it_is_kept_is_not() {
        let mut state = Remembered::default();
        state.set_why(Some(2), Cause::Close);
        state.keep_wish(Small::new(120.0));
        assert_eq!((state.kept_wish(), state.blamed(), state.cause()), (Some(120.0), Some(2), Cause::Close));
        state.set_why(Some(1), Cause::Wall);
        assert_eq!((state.kept_wish(), state.cause()), (Some(120.0), Cause::Wall));
        let after = Remembered::from_bytes(&state.to_bytes());
        assert_eq!((after.wish.get(), after.kept_wish(), after.cause()), (120.0, None, Cause::Wall));
        assert_eq!(Remembered::default().with_wish_of(&state).kept_wish(), Some(120.0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_state_that_stays_the_same(low in any::<[u8; 32]>(), high in any::<[u8; 32]>()) {
            let bytes: [u8; 64] = std::array::from_fn(|at| if at < 32 { low[at] } else { high[at - 32] });
            let state = Remembered::from_bytes(&bytes);
            prop_assert_eq!(Remembered::from_bytes(&state.to_bytes()), state);
        }
    }
}
