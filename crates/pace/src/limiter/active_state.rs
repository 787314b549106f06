//! What is kept of a host while it is asked: rings, latency, what is under way, and, in a box of its own, what only hosts in trouble
//! have.
//!
//! Owns the fields. Invariant: 96 bytes, trouble aside. Must not know the rules.

use super::window::{Counts, Rings};
use crate::persistence::persisted_state::Remembered;
use crate::signals::response::DoubtVerdict;

/// A host that was not asked for so long is kept as what is remembered of it.
pub(crate) const HOT_MS: i64 = 3_600_000;

/// What is kept of a host that was asked within the hour.
#[derive(Clone, Debug)]
pub(crate) struct Hot {
    pub(crate) rings: Rings,
    pub(crate) in_flight: u8,
    /// At most so many at once, whatever is learned.
    pub(crate) max_par: u8,
    /// Requests a second; infinite for a site that was never blamed.
    pub(crate) rate: f32,
    /// Logarithms of the average latency in seconds, lately and of the quiet host; NaN before the first.
    pub(crate) fast: f32,
    pub(crate) base: f32,
    /// When the last good answer came, modulo 2^32 ms.
    pub(crate) answered: u32,
    /// When the next request may go out.
    pub(crate) next: i64,
    /// Up to when the rings have been advanced.
    pub(crate) at: i64,
    pub(crate) trouble: Option<Box<Trouble>>,
    /// The last two fetchers that delivered, and the minute when they did, modulo 256.
    delivered: [(u8, u8); 2],
}

/// What hosts have that are or were in trouble.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// The last event, in milliseconds; 0 for none.
    pub(crate) event: i64,
    /// When its hold ends, and how long it was.
    pub(crate) hold: i64,
    pub(crate) hold_s: f32,
    pub(crate) trial: Trial,
    /// The hold is a brief one, to learn whether the limit is of a short window.
    pub(crate) is_brief: bool,
    /// Errors within a quarter of an hour that took something off the ceiling, and the last of them.
    pub(crate) sheds: u8,
    pub(crate) shed_at: i64,
    /// Good answers that are still missing until the last hold counts as long enough.
    pub(crate) fresh: u16,
    /// Cuts within a quarter of an hour, and the last of them.
    pub(crate) cuts: u8,
    pub(crate) cut_at: i64,
    pub(crate) look: Option<Look>,
    pub(crate) doubt: Option<Doubt>,
    /// How many doubts there were, and how the last one came out.
    pub(crate) doubts: u32,
    pub(crate) last_verdict: Option<DoubtVerdict>,
    /// Sums of what came out of the ordinary.
    pub(crate) errors: f32,
    pub(crate) walls: f32,
    /// The fewest requests at once that one of the errors that add up was refused at; 0 when none was.
    pub(crate) crowd: u8,
    /// Answers since the trouble began.
    pub(crate) answers: u16,
    /// Since when the rate has been at the ceiling; 0 when it is not.
    pub(crate) top_since: i64,
    /// Slow answers in a row, and when they last made the rate lower.
    pub(crate) slow: u8,
    pub(crate) slow_at: i64,
    /// A request had to wait because as many as may be were under way.
    pub(crate) is_crowded: bool,
}

/// The one request that goes out when a hold has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trial {
    #[default]
    No,
    Wanted,
    Out,
}

/// A ceiling that is being tried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The window; none for one more request at once.
    pub(crate) window: Option<usize>,
    /// The rate (or the requests at once) that is tried, and what there was before.
    pub(crate) tried: f64,
    pub(crate) before: f64,
    pub(crate) since: i64,
}

/// A wall that may be the page's or the pace's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    pub(crate) counts: Counts,
    pub(crate) in_flight: u8,
    /// So many trials have to be walled for it to be the pace's.
    pub(crate) trials: u8,
    /// Who was walled, and how many pages another has brought as trials since.
    pub(crate) fetcher: u16,
    pub(crate) others: u8,
}

impl Hot {
    pub(crate) fn new(cold: &Remembered, max_par: u8, rate: f64, now: i64) -> Self {
        let mut hot = Self {
            rings: Rings::default(),
            in_flight: 0,
            max_par,
            rate: rate as f32,
            fast: f32::NAN,
            base: cold.base.some().map_or(f32::NAN, |base| base.ln() as f32),
            answered: super::permit::wrapped(now),
            next: now,
            at: now,
            trouble: None,
            delivered: [(0, 0); 2],
        };
        if cold.has_trial() {
            let (event, hold) = (i64::from(cold.event) * 1000, i64::from(cold.hold_until) * 1000);
            let hold_s = (hold - event).max(0) as f32 / 1000.0;
            hot.trouble = Some(Box::new(Trouble { event, hold, hold_s, trial: Trial::Wanted, ..Trouble::default() }));
        }
        hot
    }

    pub(crate) fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// Whether it can be dropped for what is remembered.
    pub(crate) fn is_idle(&self, now: i64) -> bool {
        self.in_flight == 0 && now.saturating_sub(self.at) > HOT_MS
    }

    /// Whether nothing has come from it yet since it was woken.
    pub(crate) fn answered_never(&self) -> bool {
        self.delivered[0].0 == 0
    }

    /// The fetcher delivered.
    pub(crate) fn deliver(&mut self, fetcher: u16, now: i64) {
        let (id, minute) = stamp(fetcher, now);
        if self.delivered[0].0 != id {
            self.delivered[1] = self.delivered[0];
        }
        self.delivered[0] = (id, minute);
    }

    /// Whether any fetcher delivered within ten minutes.
    pub(crate) fn delivers_any(&self, now: i64) -> bool {
        let (_, minute) = stamp(0, now);
        self.delivered.iter().any(|(known, at)| *known != 0 && minute.wrapping_sub(*at) <= 10)
    }

    /// Whether the fetcher delivered within ten minutes.
    pub(crate) fn delivers(&self, fetcher: u16, now: i64) -> bool {
        let (id, minute) = stamp(fetcher, now);
        self.delivered.iter().any(|(known, at)| *known == id && minute.wrapping_sub(*at) <= 10)
    }
}

/// A fetcher's number, from 1 on, and the minute.
fn stamp(fetcher: u16, now: i64) -> (u8, u8) {
    ((fetcher % 255) as u8 + 1, now.div_euclid(60_000).rem_euclid(256) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_asked_costs_96_bytes_more() {
        assert_eq!(size_of::<Hot>(), 96);
    }

    #[test]
    fn a_fetcher_that_delivered_is_known_for_ten_minutes() {
        let mut hot = Hot::new(&Remembered::default(), 16, 2.0, 0);
        let minute = 60_000;
        hot.deliver(0, 250 * minute);
        hot.deliver(7, 252 * minute);
        assert!(hot.delivers(0, 260 * minute) && hot.delivers(7, 260 * minute) && !hot.delivers(1, 260 * minute));
        assert!(!hot.delivers(0, 261 * minute) && hot.delivers(7, 261 * minute));
    }
}
