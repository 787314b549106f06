//! Backoff: how long a link, a host or a breaker waits, as plain structs and pure functions.
//!
//! Whoever owns the state (the pipeline, or a crawler with its own link table) passes it in by value and stores what comes
//! back. Must not read a clock or hold a lock.

use std::time::Duration;

use fetchwise_types::attempt::Hint;
use fetchwise_types::time::Timestamp;

/// The risk level does not rise above this.
pub const MAX_RISK_LEVEL: u8 = 5;

/// How long things wait. All are configurable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffSettings {
    /// The first pause of a link after a captcha, 403 or 429.
    pub blocked_base: Duration,
    /// The first pause of a link after another failure, or in a waiting room.
    pub failed_base: Duration,
    /// The first pause of a host that answers 429 and does not say for how long.
    pub limited_base: Duration,
    /// `Retry-After` is believed up to this.
    pub max_retry_after: Duration,
    /// So many links of one host blocked within [`BackoffSettings::host_block_window`] pause the host.
    pub host_block_threshold: u32,
    /// See [`BackoffSettings::host_block_threshold`].
    pub host_block_window: Duration,
    /// So many blocks in a row open a fetcher's breaker on a domain.
    pub breaker_blocks: u8,
    /// The breaker's first pause; each further block doubles it.
    pub breaker_base: Duration,
    /// The breaker's longest pause.
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

/// The state of one link that a crawler keeps between fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Not to be fetched before this.
    pub paused_until: Option<Timestamp>,
    /// How many fetches of it failed in a row, at most [`MAX_RISK_LEVEL`].
    pub risk_level: u8,
    /// Attempts at it, ever.
    pub attempt_count: u32,
    /// When the last one was made.
    pub last_attempt_at: Option<Timestamp>,
    /// What its last failure looked like.
    pub hint: Option<Hint>,
}

/// How a fetch of a link ended, as far as its pause is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// Content came.
    Delivered,
    /// It failed; at least one of its attempts was blocked.
    Blocked,
    /// It failed in a way that may pass.
    Failed,
    /// The host said "not now": the link waits for as long as its host, and is no more at risk for it.
    Limited,
    /// A waiting room.
    Queued,
    /// Neither fetcher nor pause can mend it: no pause.
    Neutral,
}

impl LinkState {
    /// Whether it is paused at `now`, and until when.
    pub fn pause_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.paused_until.filter(|until| *until > now)
    }

    /// The state after a fetch that ended at `now`. The pause is worked out before the level rises, so that the first block
    /// pauses for the base.
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
            FetchEnd::Delivered => return Self { paused_until: None, risk_level: 0, hint: None, ..self },
            FetchEnd::Neutral => return self,
            FetchEnd::Limited => {
                let pause = retry_after.map(|asked| now.saturating_add(asked.min(settings.max_retry_after)));
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

/// `base * 2^risk_level`, the level capped at [`MAX_RISK_LEVEL`].
pub fn pause(base: Duration, risk_level: u8) -> Duration {
    base.saturating_mul(1 << risk_level.min(MAX_RISK_LEVEL))
}

impl BackoffSettings {
    /// How long a breaker that has counted `blocks` in a row is open after the last of them; zero while it is closed.
    pub fn breaker_pause(&self, blocks: u8) -> Duration {
        match blocks.checked_sub(self.breaker_blocks) {
            None => Duration::ZERO,
            // 2^20 times any base that makes sense is past any cap that does.
            Some(over) => self.breaker_base.saturating_mul(1 << over.min(20)).min(self.max_breaker),
        }
    }
}

/// Reads a `Retry-After` value: seconds, however many, or an HTTP date. None when it is neither, or lies in the past.
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
        assert_eq!(link.after(FetchEnd::Neutral, None, &BackoffSettings::default(), Timestamp::default()), link);
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
        let minutes = [0, 2, 3, 4, 5, 200].map(|blocks| settings.breaker_pause(blocks).as_secs() / 60);
        assert_eq!(minutes, [0, 0, 10, 20, 40, 1440]);
    }

    #[test]
    fn retry_after_reads_seconds_and_dates() {
        let now = Timestamp::from_millis(1_445_412_000_000); // 2015-10-21 07:20:00 UTC
        assert_eq!(retry_after(" 120 ", now), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(480)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:00:00 GMT", now), None);
        assert_eq!(retry_after("soon", now), None);
        assert_eq!(retry_after("-5", now), None);
        assert_eq!(retry_after("", now), None);
        assert_eq!(retry_after(&"9".repeat(40), now), Some(Duration::from_secs(u64::MAX)));
    }
}
