//! The ban rate of a domain over whole UTC days, computed from its attempts.
//! [`Selector::ban_rate`](crate::Selector::ban_rate) has the last ninety days without reading
//! attempts.

use std::collections::BTreeMap;

use crate::evidence::BanRate;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::time::Timestamp;

/// Attempts and blocks of one domain by UTC day. Sparse: only days with attempts take room.
///
/// ```
/// use fetchwise::analytics::DayHistory;
/// use fetchwise::attempt::{Attempt, error_kind::ErrorKind};
/// use fetchwise::time::Timestamp;
///
/// let now = Timestamp::now();
/// let url = url::Url::parse("https://example.org/").unwrap();
/// let mut days = DayHistory::default();
/// days.observe(&Attempt::new(&url, "playwright", now).unwrap().delivered());
/// days.observe(&Attempt::new(&url, "playwright", now).unwrap().failed(ErrorKind::BlockedCaptcha));
/// let rate = days.rate(7, now);
/// assert_eq!((rate.attempts, rate.banned, rate.rate()), (2, 1, Some(0.5)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayHistory {
    days: BTreeMap<i64, BanRate>,
}

impl DayHistory {
    /// Counts an attempt.
    pub fn observe(&mut self, attempt: &Attempt) {
        let day = self.days.entry(attempt.attempted_at.utc_day()).or_default();
        day.attempts += 1;
        day.banned += u64::from(attempt.is_banned);
    }

    /// Returns the counts of the last `days` whole UTC days, including the day of `now`.
    pub fn rate(&self, days: u32, now: Timestamp) -> BanRate {
        let today = now.utc_day();
        let Some(first) =
            today.checked_sub(i64::from(days).saturating_sub(1)).filter(|first| *first <= today)
        else {
            return BanRate::default();
        };
        let mut sum = BanRate::default();
        for day in self.days.range(first..=today).map(|(_, day)| day) {
            sum.attempts += day.attempts;
            sum.banned += day.banned;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::attempt::error_kind::ErrorKind;

    /// 2026-03-01T00:00:00Z.
    const MIDNIGHT: i64 = 1_772_323_200_000;
    const DAY: i64 = 86_400_000;

    fn history(times: &[(i64, bool)]) -> DayHistory {
        let url = url::Url::parse("https://e.org/").unwrap();
        let mut days = DayHistory::default();
        for &(at, banned) in times {
            let attempt = Attempt::new(&url, "f", Timestamp::from_millis(at)).unwrap();
            days.observe(&if banned {
                attempt.failed(ErrorKind::Blocked403)
            } else {
                attempt.delivered()
            });
        }
        days
    }

    #[test]
    fn days_are_whole_utc_days_and_today_is_one() {
        let days = history(&[(MIDNIGHT - 1, true), (MIDNIGHT, false), (MIDNIGHT + DAY - 1, true)]);
        let at = |ms| Timestamp::from_millis(ms);
        let counts = |n, now| {
            let rate = days.rate(n, at(now));
            (rate.attempts, rate.banned)
        };
        assert_eq!(counts(1, MIDNIGHT), (2, 1), "all of today, at any hour");
        assert_eq!(counts(2, MIDNIGHT), (3, 2));
        assert_eq!(counts(1, MIDNIGHT - 1), (1, 1));
        assert_eq!(counts(1, MIDNIGHT + DAY), (0, 0));
        assert_eq!(counts(u32::MAX, MIDNIGHT), (3, 2));
    }

    #[test]
    fn without_attempts_there_is_no_rate() {
        let days = history(&[(MIDNIGHT, true)]);
        assert_eq!(days.rate(3, Timestamp::from_millis(MIDNIGHT + 9 * DAY)).rate(), None);
        assert_eq!(days.rate(0, Timestamp::from_millis(MIDNIGHT)).rate(), None);
        assert_eq!(DayHistory::default().rate(30, Timestamp::from_millis(i64::MIN)).rate(), None);
    }
}
