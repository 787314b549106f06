//! What is kept of a host while it is asked: rings, latency, what is under way, and, in a box of its own, what only hosts in trouble
//! have.
//!
//! Owns the fields. Invariant: 96 bytes, trouble aside. Must not know the rules.

use super::answer::Verdict;
use super::remembered::Remembered;
use super::window::{Counts, Rings};

/// A host that was not asked for so long is kept as what is remembered of it.
pub(super) const HOT_MS: i64 = 3_600_000;

/// What is kept of a host that was asked within the hour.
#[derive(Clone, Debug)]
pub(super) struct Hot {
    pub(super) rings: Rings,
    pub(super) in_flight: u8,
    /// At most so many at once, whatever is learned.
    pub(super) par_max: u8,
    /// Requests a second; infinite for a site that was never blamed.
    pub(super) rate: f32,
    /// Logarithms of the average latency in seconds, lately and of the quiet host; NaN before the first.
    pub(super) fast: f32,
    pub(super) base: f32,
    /// When the last good answer came, modulo 2^32 ms.
    pub(super) answered: u32,
    /// When the next request may go out.
    pub(super) next: i64,
    /// Up to when the rings have been advanced.
    pub(super) at: i64,
    pub(super) trouble: Option<Box<Trouble>>,
    /// The last two fetchers that delivered, and the minute when they did, modulo 256.
    delivered: [(u8, u8); 2],
}

/// What hosts have that are or were in trouble.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// The last event, in milliseconds; 0 for none.
    pub(super) event: i64,
    /// When its hold ends, and how long it was.
    pub(super) hold: i64,
    pub(super) hold_s: f32,
    pub(super) trial: Trial,
    /// The hold is a brief one, to learn whether the limit is of a short window.
    pub(super) is_brief: bool,
    /// Errors within a quarter of an hour that took something off the ceiling, and the last of them.
    pub(super) sheds: u8,
    pub(super) shed_at: i64,
    /// Good answers that are still missing until the last hold counts as long enough.
    pub(super) fresh: u16,
    /// Cuts within a quarter of an hour, and the last of them.
    pub(super) cuts: u8,
    pub(super) cut_at: i64,
    pub(super) look: Option<Look>,
    pub(super) doubt: Option<Doubt>,
    /// How many doubts there were, and how the last one came out.
    pub(super) doubts: u32,
    pub(super) last_verdict: Option<Verdict>,
    /// Sums of what came out of the ordinary.
    pub(super) errors: f32,
    pub(super) walls: f32,
    /// The fewest requests at once that one of the errors that add up was refused at; 0 when none was.
    pub(super) crowd: u8,
    /// Answers since the trouble began.
    pub(super) answers: u16,
    /// Since when the rate has been at the ceiling; 0 when it is not.
    pub(super) top_since: i64,
    /// Slow answers in a row, and when they last made the rate lower.
    pub(super) slow: u8,
    pub(super) slow_at: i64,
    /// A request had to wait because as many as may be were under way.
    pub(super) is_crowded: bool,
}

/// The one request that goes out when a hold has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trial {
    #[default]
    No,
    Wanted,
    Out,
}

/// A ceiling that is being tried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The window; none for one more request at once.
    pub(super) window: Option<usize>,
    /// The rate (or the requests at once) that is tried, and what there was before.
    pub(super) tried: f64,
    pub(super) before: f64,
    pub(super) since: i64,
}

/// A wall that may be the page's or the pace's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub(super) counts: Counts,
    pub(super) in_flight: u8,
    /// So many trials have to be walled for it to be the pace's.
    pub(super) trials: u8,
    /// Who was walled, and how many pages another has brought as trials since.
    pub(super) fetcher: u16,
    pub(super) others: u8,
}

impl Hot {
    pub(super) fn new(cold: &Remembered, par_max: u8, rate: f64, now: i64) -> Self {
        let mut hot = Self {
            rings: Rings::default(),
            in_flight: 0,
            par_max,
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

    pub(super) fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    /// Whether it can be dropped for what is remembered.
    pub(super) fn is_idle(&self, now: i64) -> bool {
        self.in_flight == 0 && now.saturating_sub(self.at) > HOT_MS
    }

    /// Whether nothing has come from it yet since it was woken.
    pub(super) fn answered_never(&self) -> bool {
        self.delivered[0].0 == 0
    }

    /// The fetcher delivered.
    pub(super) fn deliver(&mut self, fetcher: u16, now: i64) {
        let (id, minute) = stamp(fetcher, now);
        if self.delivered[0].0 != id {
            self.delivered[1] = self.delivered[0];
        }
        self.delivered[0] = (id, minute);
    }

    /// Whether any fetcher delivered within ten minutes.
    pub(super) fn delivers_any(&self, now: i64) -> bool {
        let (_, minute) = stamp(0, now);
        self.delivered.iter().any(|(known, at)| *known != 0 && minute.wrapping_sub(*at) <= 10)
    }

    /// Whether the fetcher delivered within ten minutes.
    pub(super) fn delivers(&self, fetcher: u16, now: i64) -> bool {
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
