//! The daily block counts of each domain in [`Evidence`]: recording and reading.
//!
//! Invariants: every attempt with a domain is counted once, whether it changes weights or not.
//!
//! Must not know: how days are packed.

use std::sync::atomic::Ordering;

use super::daily_block_counts::{BanRate, DAYS_KEPT, Day, day_number};
use super::{Evidence, Key, Observation, domain_of};
use fetchwise_types::time::Timestamp;

impl Evidence {
    /// Counts an attempt that changes no weight on its day.
    #[cold]
    pub(super) fn count_day_of(&self, attempt: &impl Observation) {
        let facts = attempt.fields();
        if let Some(domain) = domain_of(attempt) {
            self.count_day(domain, facts.at, facts.is_banned);
        }
    }

    /// Counts an attempt on its day for a domain, and changes nothing else.
    pub(crate) fn count_day(&self, domain: &str, at: Timestamp, is_banned: bool) {
        if let Some(day) = Day::of(at, is_banned) {
            self.entry_or_new(Key::domain(domain), at, &self.guard()).days().add(day);
        }
    }

    /// Returns the attempts and blocks of a domain over the last `days` UTC days, including that of
    /// `now`. Source: `observe`.
    pub(crate) fn ban_rate(&self, domain: &str, days: u32, now: Timestamp) -> BanRate {
        let (Some(today), days) = (day_number(now), days.min(u32::from(DAYS_KEPT))) else {
            return BanRate::default();
        };
        let Some(first) = days.checked_sub(1).map(|before| today.saturating_sub(before as u16))
        else {
            return BanRate::default();
        };
        self.known(Key::domain(domain), &self.guard())
            .map_or_else(BanRate::default, |entry| entry.days().sum(first, today))
    }

    /// Returns the time before which attempts may be missing in the daily counts; `None` if none
    /// are missing.
    pub(crate) fn days_since(&self) -> Option<Timestamp> {
        // Relaxed: an independent value.
        Some(self.days_since_ms.load(Ordering::Relaxed))
            .filter(|ms| *ms != i64::MIN)
            .map(Timestamp::from_millis)
    }

    /// Records that attempts before `since` are missing.
    pub(crate) fn set_days_since(&self, since: Option<Timestamp>) {
        self.days_since_ms
            .fetch_max(since.map_or(i64::MIN, Timestamp::as_millis), Ordering::Relaxed);
    }
}
