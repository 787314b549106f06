//! The state of a host in use: request counts, latency, requests in flight, and, in a separate
//! allocation, the state that only hosts in trouble have.
//!
//! Owns: the fields.
//!
//! Invariants: 96 bytes, without the trouble.
//!
//! Must not know: the rules.

use super::window::{Counts, Rings};
use crate::persistence::persisted_state::PersistedState;
use crate::signals::error_noise::ErrorNoise;
use crate::signals::response::{Cause, DoubtVerdict};

/// Time without a request after which only the persisted state of a host is kept.
pub(crate) const ACTIVE_MS: i64 = 3_600_000;

/// Time for which a host that has served may refuse all requests until that is no longer taken for
/// a limit, in milliseconds. A host that fails may be out of order, and few bans that look like it
/// are longer than ten minutes.
const PATIENCE_MS: i64 = 3_600_000;
const PATIENCE_WITH_ERRORS_MS: i64 = 900_000;

/// The state of a host with a request in the last hour.
#[derive(Clone, Debug)]
pub(crate) struct ActiveState {
    pub(crate) rings: Rings,
    pub(crate) in_flight: u8,
    /// Maximum parallel requests, whatever is learned; 0 as long as this is only room for a state.
    pub(crate) max_par: u8,
    /// Requests per second; infinite for a site that was never blamed.
    pub(crate) rate: f32,
    /// Logarithms of the average latency in seconds, recent and of the quiet host; NaN before the
    /// first response.
    pub(crate) fast: f32,
    pub(crate) base: f32,
    /// Time of the last good response, modulo 2^32 ms.
    pub(crate) seconds_since_response: u32,
    /// Earliest time of the next request.
    pub(crate) next: i64,
    /// Time up to which the rings were advanced.
    pub(crate) at: i64,
    pub(crate) trouble: Option<Box<Trouble>>,
    /// The last two fetchers with a success, and its minute, modulo 256.
    successes: [(u8, u8); 2],
}

/// State of hosts that are or were in trouble.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// Time of the last limit hit, in milliseconds; 0 for none.
    pub(crate) limit_hit_at: i64,
    /// End of its hold, and its length.
    pub(crate) hold: i64,
    pub(crate) hold_s: f32,
    pub(crate) trial: Trial,
    /// A trial of the hold has failed otherwise than the limit answers.
    pub(crate) had_odd_trial: bool,
    /// The host has banned the crawler after a few refusals that were errors.
    pub(crate) counts_refusals: bool,
    /// The host had served a moment before the last limit hit.
    pub(crate) was_serving: bool,
    /// The host asked for this hold; and it has refused a trial after a hold that it had asked for.
    pub(crate) has_asked: bool,
    pub(crate) asks_too_little: bool,
    /// The hold is a brief one, to find out whether the limit has a short window.
    pub(crate) is_brief: bool,
    /// Errors within a quarter of an hour that lowered the ceiling, and the last of them.
    pub(crate) sheds: u8,
    pub(crate) shed_at: i64,
    /// Time of the end of the last hold, 0 for none, and the requests since.
    pub(crate) resumed_at: i64,
    pub(crate) resumed: u32,
    /// Good responses still missing until the last hold counts as long enough.
    pub(crate) fresh: u16,
    /// Cuts within a quarter of an hour, and the last of them.
    pub(crate) cuts: u8,
    pub(crate) cut_at: i64,
    pub(crate) probe: Option<CeilingProbe>,
    pub(crate) doubt: Option<Doubt>,
    /// Number of doubts, and the result of the last one.
    pub(crate) doubts: u32,
    pub(crate) last_verdict: Option<DoubtVerdict>,
    /// Sums of unusual responses.
    pub(crate) errors: f32,
    pub(crate) blocks: f32,
    /// The fewest parallel requests at which one of the summed errors occurred; 0 for none.
    pub(crate) crowd: u8,
    /// How clearly the limit of this host answers; 0 while none is known.
    pub(crate) clarity: u8,
    /// Responses since the trouble began.
    pub(crate) responses: u16,
    /// Time since when the rate has been at the ceiling; 0 if it is not.
    pub(crate) top_since: i64,
    /// Consecutive slow responses, and the time when they last lowered the rate.
    pub(crate) slow: u8,
    pub(crate) slow_at: i64,
    /// Requests that a nearly spent budget leaves.
    pub(crate) left: Option<u8>,
    /// A request had to wait for the maximum of parallel requests.
    pub(crate) is_crowded: bool,
    /// The average part of the latency that this machine causes, in seconds.
    pub(crate) local_s: f32,
    pub(crate) noise: ErrorNoise,
    /// The same for blocks between good pages: pages that are blocked at any rate, or a limit that
    /// answers so.
    pub(crate) block_noise: ErrorNoise,
    /// Blocks in a row.
    pub(crate) blocks_in_a_row: u8,
    /// Blocks between good pages have turned out to depend on the rate.
    pub(crate) blocks_by_rate: bool,
}

/// The trial: the one request after the end of a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trial {
    #[default]
    No,
    Wanted,
    Out,
}

/// A ceiling probe in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CeilingProbe {
    /// The window; `None` for one more parallel request.
    pub(crate) window: Option<usize>,
    /// The rate (or the parallel requests) that is tried, and the previous value.
    pub(crate) tried: f64,
    pub(crate) before: f64,
    pub(crate) since: i64,
}

/// A block that may concern the page or the pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    pub(crate) counts: Counts,
    pub(crate) in_flight: u8,
    /// Time of the block.
    pub(crate) since: i64,
    /// Number of blocked trials that make it the pace's.
    pub(crate) trials: u8,
    /// The blocked fetcher, and the number of pages that others have got in trials since.
    pub(crate) fetcher: u16,
    pub(crate) others: u8,
}

impl Trouble {
    /// Returns the time since when the host has refused all requests because of the pace; `cause`
    /// is that of its last limit hit.
    pub(crate) fn refusing_since(&self, cause: Cause, now: i64) -> Option<i64> {
        let patience_ms = match cause {
            Cause::Unavailable | Cause::Errors => PATIENCE_WITH_ERRORS_MS,
            _ => PATIENCE_MS,
        };
        let is_refusing = self.was_serving && self.trial != Trial::No && self.doubt.is_none();
        (is_refusing && now.saturating_sub(self.limit_hit_at) <= patience_ms)
            .then_some(self.limit_hit_at)
    }
}

/// Room for a state. A table has many, so it is made of constants.
impl Default for ActiveState {
    #[inline]
    fn default() -> Self {
        Self {
            rings: Rings::default(),
            in_flight: 0,
            max_par: 0,
            rate: 0.0,
            fast: f32::NAN,
            base: f32::NAN,
            seconds_since_response: 0,
            next: 0,
            at: 0,
            trouble: None,
            successes: [(0, 0); 2],
        }
    }
}

impl ActiveState {
    pub(crate) fn new(persisted: &mut PersistedState, max_par: u8, rate: f64, now: i64) -> Self {
        let mut active = Self {
            rings: Rings::default(),
            in_flight: 0,
            max_par,
            rate: rate as f32,
            fast: f32::NAN,
            base: persisted.base.some().map_or(f32::NAN, |base| base.ln() as f32),
            seconds_since_response: super::permit::wrapped(now),
            next: now,
            at: now,
            trouble: None,
            successes: [(0, 0); 2],
        };
        if persisted.has_trial() {
            let (limit_hit_at, hold) =
                (i64::from(persisted.limit_hit_at) * 1000, i64::from(persisted.hold_until) * 1000);
            let hold_s = (hold - limit_hit_at).max(0) as f32 / 1000.0;
            // Blocks are a limit only of a host that has served.
            let was_serving = matches!(persisted.cause(), Cause::Block | Cause::SomeBlocks);
            active.trouble = Some(Box::new(Trouble {
                limit_hit_at,
                hold,
                hold_s,
                was_serving,
                trial: Trial::Wanted,
                ..Trouble::default()
            }));
        }
        if let Some(share) = persisted.take_noise() {
            active.trouble().noise = ErrorNoise::known(share);
        }
        active
    }

    /// Returns whether this is only room for a state.
    pub(crate) fn is_vacant(&self) -> bool {
        self.max_par == 0
    }

    /// Returns the noise of a noisy host as it is stored.
    pub(crate) fn noise(&self) -> Option<f64> {
        self.trouble.as_ref()?.noise.stored()
    }

    pub(crate) fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// Returns whether only the persisted state needs to be kept.
    pub(crate) fn is_idle(&self, now: i64) -> bool {
        self.in_flight == 0 && now.saturating_sub(self.at) > ACTIVE_MS
    }

    /// Returns the time of the last good response, modulo 2^32 ms.
    pub(crate) fn last_good_response(&self) -> Option<u32> {
        (!self.has_no_response()).then_some(self.seconds_since_response)
    }

    /// Returns whether the host has not responded since it was woken.
    pub(crate) fn has_no_response(&self) -> bool {
        self.successes[0].0 == 0
    }

    /// Records a success of the fetcher.
    pub(crate) fn record_success(&mut self, fetcher: u16, now: i64) {
        let (id, minute) = stamp(fetcher, now);
        if self.successes[0].0 != id {
            self.successes[1] = self.successes[0];
        }
        self.successes[0] = (id, minute);
    }

    /// Returns whether any fetcher had a success in the last ten minutes.
    pub(crate) fn has_any_success(&self, now: i64) -> bool {
        let (_, minute) = stamp(0, now);
        self.successes.iter().any(|(known, at)| *known != 0 && minute.wrapping_sub(*at) <= 10)
    }

    /// Returns whether the fetcher had a success in the last ten minutes.
    pub(crate) fn has_success(&self, fetcher: u16, now: i64) -> bool {
        let (id, minute) = stamp(fetcher, now);
        self.successes.iter().any(|(known, at)| *known == id && minute.wrapping_sub(*at) <= 10)
    }
}

/// Returns the fetcher's number, from 1 on, and the minute.
fn stamp(fetcher: u16, now: i64) -> (u8, u8) {
    ((fetcher % 255) as u8 + 1, now.div_euclid(60_000).rem_euclid(256) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_active_host_costs_96_bytes_more() {
        assert_eq!(size_of::<ActiveState>(), 96);
    }

    #[test]
    fn a_success_of_a_fetcher_counts_for_ten_minutes() {
        let mut active = ActiveState::new(&mut PersistedState::default(), 16, 2.0, 0);
        let minute = 60_000;
        active.record_success(0, 250 * minute);
        active.record_success(7, 252 * minute);
        assert!(
            active.has_success(0, 260 * minute)
                && active.has_success(7, 260 * minute)
                && !active.has_success(1, 260 * minute)
        );
        assert!(!active.has_success(0, 261 * minute) && active.has_success(7, 261 * minute));
    }
}
