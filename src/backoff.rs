//! Backoff of links, hosts and circuit breakers, as plain structs and pure functions.
//!
//! The owner of the state (the pipeline, or a crawler with its own link table) passes it in by
//! value and stores the result.
//!
//! Must not know: clocks, locks.

use std::time::Duration;

use fetchwise_types::attempt::Hint;
use fetchwise_types::time::Timestamp;

/// Highest risk level.
pub const MAX_RISK_LEVEL: u8 = 5;

/// Time for which a link is left whose site asks for a price or declines the crawler.
pub const LEFT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Settings of all pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffSettings {
    /// First pause of a link after a captcha, 403 or 429.
    pub blocked_base: Duration,
    /// First pause of a link after another failure, or in a waiting room.
    pub failed_base: Duration,
    /// First pause of a host that responds with 429 and names no time.
    pub limited_base: Duration,
    /// Longest `Retry-After` that is accepted; longer ones are cut.
    pub max_retry_after: Duration,
    /// Number of blocked links of a host within [`BackoffSettings::host_block_window`] that pauses
    /// the host.
    pub host_block_threshold: u32,
    /// Window of [`BackoffSettings::host_block_threshold`].
    pub host_block_window: Duration,
    /// Number of consecutive blocks that open a fetcher's breaker on a domain.
    pub breaker_blocks: u8,
    /// First pause of a breaker. Each further block doubles it.
    pub breaker_base: Duration,
    /// Longest pause of a breaker.
    pub max_breaker: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        Self {
            blocked_base: Duration::from_secs(10 * MINUTE),
            failed_base: Duration::from_secs(5 * MINUTE),
            limited_base: Duration::from_secs(30),
            max_retry_after: Duration::from_secs(24 * 60 * MINUTE),
            host_block_threshold: 3,
            host_block_window: Duration::from_secs(10 * MINUTE),
            breaker_blocks: 3,
            breaker_base: Duration::from_secs(10 * MINUTE),
            max_breaker: Duration::from_secs(24 * 60 * MINUTE),
        }
    }
}

/// State of one link, which a crawler keeps between fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// End of the pause.
    pub paused_until: Option<Timestamp>,
    /// Number of consecutive failed fetches, at most [`MAX_RISK_LEVEL`].
    pub risk_level: u8,
    /// Number of attempts ever.
    pub attempt_count: u32,
    /// Time of the last attempt.
    pub last_attempt_at: Option<Timestamp>,
    /// Kind of the last failure.
    pub hint: Option<Hint>,
}

/// End of a fetch of a link, as far as it affects the link's pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// It delivered content.
    Delivered,
    /// It failed, and at least one of its attempts was blocked.
    Blocked,
    /// It failed in a way that may pass.
    Failed,
    /// The host limited the rate. The link waits as long as its host, and its risk does not rise.
    Limited,
    /// It ended in a waiting room.
    Queued,
    /// It ended in a way that neither another fetcher nor a pause can fix: no pause.
    Neutral,
    /// The site asks for a price or declines the crawler, or the crawl's policy leaves the link: it
    /// is left for [`LEFT_FOR`], and its risk does not rise.
    Left,
}

impl LinkState {
    /// Returns the end of the pause if the link is paused at `now`.
    pub fn pause_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Returns the state with all its times moved by `ms`: a sink keeps dates, and a selector has
    /// times.
    #[must_use]
    pub fn moved_by(self, ms: i64) -> Self {
        let moved = |at: Option<Timestamp>| at.map(|at| at.moved_by(ms));
        Self {
            paused_until: moved(self.paused_until),
            last_attempt_at: moved(self.last_attempt_at),
            ..self
        }
    }

    /// Returns the state after a fetch that ended at `now`. The pause is computed before the level
    /// rises, so that the first block pauses for the base.
    ///
    /// ```
    /// use fetchwise::backoff::{BackoffSettings, FetchEnd, LinkState};
    /// use fetchwise::time::Timestamp;
    /// let (settings, now) = (BackoffSettings::default(), Timestamp::from_millis(0));
    /// let mut link = LinkState::default();
    /// let minutes: Vec<u64> = (0..7)
    ///     .map(|_| {
    ///         link = link.after(FetchEnd::Blocked, None, &settings, now);
    ///         link.paused_until.unwrap().since(now).as_secs() / 60
    ///     })
    ///     .collect();
    /// assert_eq!(minutes, [10, 20, 40, 80, 160, 320, 320]);
    /// ```
    #[must_use]
    pub fn after(
        self,
        end: FetchEnd,
        retry_after: Option<Duration>,
        settings: &BackoffSettings,
        now: Timestamp,
    ) -> Self {
        let base = match end {
            FetchEnd::Delivered => {
                return Self { paused_until: None, risk_level: 0, hint: None, ..self };
            }
            FetchEnd::Neutral => return self,
            FetchEnd::Left => {
                return Self {
                    paused_until: self.paused_until.max(Some(now.saturating_add(LEFT_FOR))),
                    ..self
                };
            }
            FetchEnd::Limited => {
                let pause = retry_after
                    .map(|asked| now.saturating_add(asked.min(settings.max_retry_after)));
                return Self { paused_until: pause.or(self.paused_until), ..self };
            }
            FetchEnd::Blocked => settings.blocked_base,
            FetchEnd::Failed | FetchEnd::Queued => settings.failed_base,
        };
        let asked = retry_after.unwrap_or_default().min(settings.max_retry_after);
        let pause = pause(base, self.risk_level).max(asked);
        Self {
            paused_until: Some(now.saturating_add(pause)),
            risk_level: (self.risk_level + 1).min(MAX_RISK_LEVEL),
            ..self
        }
    }
}

/// Returns `base * 2^risk_level`, with the level capped at [`MAX_RISK_LEVEL`].
pub fn pause(base: Duration, risk_level: u8) -> Duration {
    base.saturating_mul(1 << risk_level.min(MAX_RISK_LEVEL))
}

impl BackoffSettings {
    /// Returns how long a breaker is open after the last of `blocks` consecutive blocks; zero while
    /// it is closed.
    pub fn breaker_pause(&self, blocks: u8) -> Duration {
        match blocks.checked_sub(self.breaker_blocks) {
            None => Duration::ZERO,
            // 2^20 times any sensible base exceeds any sensible cap.
            Some(over) => self.breaker_base.saturating_mul(1 << over.min(20)).min(self.max_breaker),
        }
    }
}

/// Parses a `Retry-After` value: a number of seconds, or an HTTP date. Returns `None` for anything
/// else, and for a date in the past. `now` is a date too ([`Timestamp::date`]).
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than 64 bits of seconds are as long as any pause gets.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let at = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    let at = Timestamp::from_millis(i64::try_from(at.as_millis()).ok()?);
    (at > now).then(|| at.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_failures_start_at_five_minutes_and_success_forgives() {
        let (settings, now) = (BackoffSettings::default(), Timestamp::from_millis(1));
        let link = LinkState::default().after(FetchEnd::Failed, None, &settings, now);
        assert_eq!(link.pause_at(now).unwrap().since(now), Duration::from_secs(300));
        assert_eq!(link.risk_level, 1);
        let link = link.after(FetchEnd::Delivered, None, &settings, now);
        assert_eq!((link.risk_level, link.paused_until), (0, None));
    }

    #[test]
    fn neutral_ends_change_nothing() {
        let link = LinkState { risk_level: 2, ..LinkState::default() };
        assert_eq!(
            link.after(FetchEnd::Neutral, None, &BackoffSettings::default(), Timestamp::default()),
            link
        );
    }

    #[test]
    fn a_link_that_is_left_pauses_for_a_day_and_its_risk_stays() {
        let (settings, now) = (BackoffSettings::default(), Timestamp::from_millis(1));
        let link = LinkState { risk_level: 2, ..LinkState::default() };
        let left = link.after(FetchEnd::Left, Some(Duration::from_secs(5)), &settings, now);
        assert_eq!((left.pause_at(now).unwrap().since(now), left.risk_level), (LEFT_FOR, 2));
        assert_eq!(left.after(FetchEnd::Delivered, None, &settings, now).paused_until, None);
    }

    #[test]
    fn a_longer_retry_after_wins_up_to_a_day() {
        let (settings, now) = (BackoffSettings::default(), Timestamp::from_millis(0));
        let pause_after = |asked: u64| {
            let asked = Some(Duration::from_secs(asked));
            LinkState::default()
                .after(FetchEnd::Blocked, asked, &settings, now)
                .paused_until
                .unwrap()
                .since(now)
                .as_secs()
        };
        assert_eq!([pause_after(5), pause_after(3600), pause_after(1 << 40)], [600, 3600, 86_400]);
    }

    #[test]
    fn a_breaker_opens_at_the_third_block_and_closes_within_a_day() {
        let settings = BackoffSettings::default();
        let minutes =
            [0, 2, 3, 4, 5, 200].map(|blocks| settings.breaker_pause(blocks).as_secs() / 60);
        assert_eq!(minutes, [0, 0, 10, 20, 40, 1440]);
    }

    #[test]
    fn retry_after_reads_seconds_and_dates() {
        let now = Timestamp::from_millis(1_445_412_000_000); // 2015-10-21 07:20:00 UTC
        assert_eq!(retry_after(" 120 ", now), Some(Duration::from_secs(120)));
        assert_eq!(
            retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now),
            Some(Duration::from_secs(480))
        );
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:00:00 GMT", now), None);
        assert_eq!(retry_after("soon", now), None);
        assert_eq!(retry_after("-5", now), None);
        assert_eq!(retry_after("", now), None);
        assert_eq!(retry_after(&"9".repeat(40), now), Some(Duration::from_secs(u64::MAX)));
    }
}
