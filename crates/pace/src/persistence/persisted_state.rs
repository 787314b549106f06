//! The persisted state of a host, site or address: 64 bytes.
//!
//! Owns: the fields, their layout in the log, and how they age.
//!
//! Invariants: any 64 bytes are a state that the rules can work with.
//!
//! Must not know: the rules.

use crate::limiter::window::{Counts, WINDOWS};
use crate::persistence::float16::PositiveF16;
use crate::signals::response::Cause;

/// One failed ceiling probe is forgiven per week.
const WEEK_S: i64 = 7 * 86_400;
/// A ceiling is no longer confirmed after this time without a limit hit.
const CONFIRMED_S: i64 = 30 * 86_400;
/// Default number of requests that a rendered page makes to its host.
pub(crate) const RENDER_COST: u8 = 12;
/// Days without a request after which a host is forgotten.
pub(crate) const FORGET_DAYS: i64 = 90;

/// Flag in `blame`: the declared gap is kept. Not in the log: each crawl reads the declaration
/// again.
const GAP_KEPT: u8 = 0x80;
const CONFIRMED: u8 = 1;
const TRIAL: u8 = 2;
const PAGE_BLOCKS_SHIFT: u8 = 2;
const DECLARED_SHIFT: u8 = 4;
/// Mask of the declared window, after the shift.
const DECLARED: u8 = 7;
/// `noted` is a share of noise.
const NOISY: u8 = 0x80;

/// The state of one host, site or address: in memory while it is idle, in the log, and in
/// snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PersistedState {
    /// Requests per second.
    pub(crate) rate: PositiveF16,
    /// The highest rate that was sustained at the ceiling.
    pub(crate) lo: PositiveF16,
    /// The ceiling of each window; none if the window is cleared.
    pub(crate) cap: Counts,
    /// The lowest blocked rate of each window.
    pub(crate) hi: Counts,
    /// The highest rate of each window with a good response.
    pub(crate) clean: Counts,
    /// The latency of the quiet host, in seconds.
    pub(crate) base: PositiveF16,
    /// How long the host last refused requests, in seconds.
    pub(crate) penalty: PositiveF16,
    /// The ceiling (or the rate, without one) in the last record, while the host is in use. In the
    /// log and while it is idle, the share of its errors that are noise, if it is noisy; 1 more if
    /// they are not 503s only.
    pub(crate) noted: PositiveF16,
    /// The host's last `Crawl-delay`, in seconds, without the maximum.
    pub(crate) declared_gap: PositiveF16,
    /// The day of the last request.
    pub(crate) last_request_day: u16,
    /// Seconds since the epoch of the last limit hit, of the end of its hold, and of the next
    /// ceiling probe.
    pub(crate) limit_hit_at: u32,
    pub(crate) hold_until: u32,
    pub(crate) probe_at: u32,
    /// Maximum parallel requests; 0 for no limit.
    pub(crate) par_cap: u8,
    /// The most parallel requests with good responses.
    pub(crate) par_clean: u8,
    /// Failed ceiling probes. Use [`PersistedState::fails`] to read it.
    pub(crate) failed: u8,
    /// The window that was blamed last (low three bits), and the cause.
    blame: u8,
    flags: u8,
    /// Requests that a rendered page makes; 0 if unknown.
    pub(crate) render_cost: u8,
    /// Usual shares of blocks and errors that are no limits, in units of 1/2550.
    pub(crate) blocks: u8,
    pub(crate) errors: u8,
}

impl PersistedState {
    /// Returns the number of failed probes that are not forgiven yet.
    pub(crate) fn fails(&self, now: i64) -> u8 {
        let weeks = (now / 1000 - i64::from(self.limit_hit_at)).max(0) / WEEK_S;
        self.failed.saturating_sub(u8::try_from(weeks).unwrap_or(u8::MAX))
    }

    /// Returns whether the ceiling was found twice, and recently enough.
    pub(crate) fn is_confirmed(&self, now: i64) -> bool {
        self.flags & CONFIRMED != 0 && now / 1000 - i64::from(self.limit_hit_at) < CONFIRMED_S
    }

    pub(crate) fn set_confirmed(&mut self, sure: bool) {
        self.set(CONFIRMED, sure);
    }

    /// Returns whether no good response has ended a hold yet.
    pub(crate) fn has_trial(&self) -> bool {
        self.flags & TRIAL != 0
    }

    pub(crate) fn set_trial(&mut self, trial: bool) {
        self.set(TRIAL, trial);
    }

    /// Returns how many blocks turned out to concern a single page; 2 means two or more.
    pub(crate) fn page_blocks(&self) -> u8 {
        self.flags >> PAGE_BLOCKS_SHIFT & 3
    }

    pub(crate) fn add_page_block(&mut self) {
        let page_blocks = (self.page_blocks() + 1).min(2);
        self.flags = self.flags & !(3 << PAGE_BLOCKS_SHIFT) | page_blocks << PAGE_BLOCKS_SHIFT;
    }

    /// Returns the window for which the host declared its limit.
    pub(crate) fn declared_window(&self) -> Option<usize> {
        usize::from(self.flags >> DECLARED_SHIFT & DECLARED)
            .checked_sub(1)
            .filter(|window| *window < WINDOWS)
    }

    pub(crate) fn set_declared_window(&mut self, window: usize) {
        self.flags =
            self.flags & !(DECLARED << DECLARED_SHIFT) | (window as u8 + 1) << DECLARED_SHIFT;
    }

    /// Returns this state with a share of noise instead of what is only needed while the host is in
    /// use.
    pub(crate) fn with_noise(mut self, share: f64) -> Self {
        self.noted = PositiveF16::new(share);
        self.set(NOISY, true);
        self
    }

    /// Removes the share of noise from the state of a host that is in use from now on.
    pub(crate) fn take_noise(&mut self) -> Option<f64> {
        if self.flags & NOISY == 0 {
            return None;
        }
        self.set(NOISY, false);
        std::mem::take(&mut self.noted).some()
    }

    pub(crate) fn blamed(&self) -> Option<usize> {
        Some(usize::from(self.blame & 7)).filter(|window| *window < WINDOWS)
    }

    pub(crate) fn cause(&self) -> Cause {
        Cause::from_repr((self.blame & !GAP_KEPT) >> 3).unwrap_or_default()
    }

    pub(crate) fn set_blame(&mut self, window: Option<usize>, cause: Cause) {
        self.blame =
            window.map_or(7, |window| window as u8) | (cause as u8) << 3 | self.blame & GAP_KEPT;
    }

    /// Keeps this declared gap from now on.
    pub(crate) fn keep_declared_gap(&mut self, declared_gap: PositiveF16) {
        (self.declared_gap, self.blame) = (declared_gap, self.blame | GAP_KEPT);
    }

    /// Returns the declared gap in seconds if it is kept, before the maximum.
    pub(crate) fn kept_gap(&self) -> Option<f64> {
        self.declared_gap.some().filter(|_| self.blame & GAP_KEPT != 0)
    }

    /// Takes the declared gap over from `other` if it is kept there.
    pub(crate) fn with_declared_gap_of(self, other: &Self) -> Self {
        if other.blame & GAP_KEPT == 0 {
            self
        } else {
            Self { declared_gap: other.declared_gap, blame: self.blame | GAP_KEPT, ..self }
        }
    }

    /// Returns this state with all its times moved by `ms`.
    pub(crate) fn moved_by(mut self, ms: i64) -> Self {
        for at_s in [&mut self.limit_hit_at, &mut self.hold_until, &mut self.probe_at] {
            // Zero stands for none.
            if *at_s != 0 {
                *at_s = u32::try_from(i64::from(*at_s).saturating_add(ms.div_euclid(1000)).max(1))
                    .unwrap_or(u32::MAX);
            }
        }
        let day = i64::from(self.last_request_day).saturating_add(ms.div_euclid(86_400_000));
        self.last_request_day = u16::try_from(day.max(0)).unwrap_or(u16::MAX);
        self
    }

    fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Encodes the log layout: all fields by descending size, little-endian, the rest zero.
    pub(crate) fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let noise = if self.flags & NOISY == 0 { PositiveF16::NONE } else { self.noted };
        let halves =
            [self.rate, self.lo].into_iter().chain(self.cap).chain(self.hi).chain(self.clean);
        let halves = halves
            .chain([self.base, self.penalty, self.declared_gap, noise])
            .map(PositiveF16::bits)
            .chain([self.last_request_day]);
        let words = [self.limit_hit_at, self.hold_until, self.probe_at];
        let rest = [
            self.par_cap,
            self.par_clean,
            self.failed,
            self.blame & !GAP_KEPT,
            self.flags,
            self.render_cost,
            self.blocks,
            self.errors,
        ];
        let all = halves
            .flat_map(u16::to_le_bytes)
            .chain(words.into_iter().flat_map(u32::to_le_bytes))
            .chain(rest);
        bytes.iter_mut().zip(all).for_each(|(byte, value)| *byte = value);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]);
        let small = |at: usize| PositiveF16::from_bits(half(at));
        let word =
            |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[44 + 4 * at + byte]));
        let flags = bytes[60];
        Self {
            rate: small(0),
            lo: small(1),
            cap: std::array::from_fn(|window| small(2 + window)),
            hi: std::array::from_fn(|window| small(7 + window)),
            clean: std::array::from_fn(|window| small(12 + window)),
            base: small(17),
            penalty: small(18),
            noted: if flags & NOISY == 0 { PositiveF16::NONE } else { small(20) },
            declared_gap: small(19),
            last_request_day: half(21),
            limit_hit_at: word(0),
            hold_until: word(1),
            probe_at: word(2),
            par_cap: bytes[56],
            par_clean: bytes[57],
            failed: bytes[58],
            blame: bytes[59] & !GAP_KEPT,
            flags,
            render_cost: bytes[61],
            blocks: bytes[62],
            errors: bytes[63],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_idle_host_costs_64_bytes() {
        assert_eq!(size_of::<PersistedState>(), 64);
    }

    #[test]
    fn failed_probes_are_forgiven_weekly_and_certainty_ends_after_a_month() {
        let mut state =
            PersistedState { failed: 3, limit_hit_at: 1_000_000, ..PersistedState::default() };
        state.set_confirmed(true);
        let after = |days: i64| (1_000_000 + days * 86_400) * 1000;
        assert_eq!([0, 6, 7, 20, 21, 400].map(|days| state.fails(after(days))), [3, 3, 2, 1, 0, 0]);
        assert_eq!([0, 29, 30].map(|days| state.is_confirmed(after(days))), [true, true, false]);
    }

    #[test]
    fn a_declared_gap_is_persisted_and_whether_it_is_kept_is_not() {
        let mut state = PersistedState::default();
        state.set_blame(Some(2), Cause::Close);
        state.keep_declared_gap(PositiveF16::new(120.0));
        assert_eq!(
            (state.kept_gap(), state.blamed(), state.cause()),
            (Some(120.0), Some(2), Cause::Close)
        );
        state.set_blame(Some(1), Cause::Block);
        assert_eq!((state.kept_gap(), state.cause()), (Some(120.0), Cause::Block));
        let after = PersistedState::from_bytes(&state.to_bytes());
        assert_eq!(
            (after.declared_gap.get(), after.kept_gap(), after.cause()),
            (120.0, None, Cause::Block)
        );
        assert_eq!(PersistedState::default().with_declared_gap_of(&state).kept_gap(), Some(120.0));
    }

    #[test]
    fn the_share_of_noise_is_in_the_log_and_the_last_record_is_not() {
        let mut state =
            PersistedState { noted: PositiveF16::new(3.0), ..PersistedState::default() };
        state.set_declared_window(4);
        assert_eq!(PersistedState::from_bytes(&state.to_bytes()).noted, PositiveF16::NONE);
        let mut noisy = PersistedState::from_bytes(&state.with_noise(0.25).to_bytes());
        assert_eq!(
            (noisy.declared_window(), noisy.take_noise(), noisy.take_noise()),
            (Some(4), Some(0.25), None)
        );
        assert_eq!((noisy.noted, noisy.declared_window()), (PositiveF16::NONE, Some(4)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_state_that_round_trips(low in any::<[u8; 32]>(), high in any::<[u8; 32]>()) {
            let bytes: [u8; 64] = std::array::from_fn(|at| if at < 32 { low[at] } else { high[at - 32] });
            let state = PersistedState::from_bytes(&bytes);
            prop_assert_eq!(PersistedState::from_bytes(&state.to_bytes()), state);
        }
    }
}
