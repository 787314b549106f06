//! Filters of attempts as text, for the command line and the HTTP API: points in time, and
//! outcomes.
//!
//! Must not know: where the text comes from, and what it filters.

use std::time::Duration;

use fetchwise::journal::OutcomeFilter;
use fetchwise::rfc3339;
use fetchwise::time::{Clock, Timestamp};

/// A point in time, or an age relative to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeArg {
    /// A point in time.
    At(Timestamp),
    /// An age: this long before now.
    Ago(Duration),
}

impl TimeArg {
    /// Returns the point in time.
    pub fn resolve(self, clock: &Clock) -> Timestamp {
        self.resolve_at(clock.date())
    }

    /// Returns the point in time at `now`.
    pub fn resolve_at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(span) => {
                let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
                Timestamp::from_millis(now.as_millis().saturating_sub(ms))
            }
        }
    }
}

/// Parses `2026-01-31T12:00:00Z`, `2026-01-31` (its beginning in UTC), or an age: `90m`, `2h`,
/// `7d`.
///
/// # Errors
/// A sentence with the valid forms.
pub fn parse_time_arg(text: &str) -> Result<TimeArg, String> {
    let text = text.trim();
    if let Ok(span) = humantime::parse_duration(text) {
        return Ok(TimeArg::Ago(span));
    }
    let day = || rfc3339::parse(&format!("{text}T00:00:00Z"));
    let at = rfc3339::parse(text).or_else(|_| day());
    at.map(TimeArg::At).map_err(|_| {
        format!(
            "{text:?} is not a valid time: expected one such as 2026-01-31T12:00:00Z, a day such as 2026-01-31, or an \
             age such as 2h or 7d"
        )
    })
}

/// Parses `content`, `failed`, `blocked`, or an error type.
///
/// # Errors
/// A sentence with the valid forms.
pub fn parse_outcome(text: &str) -> Result<OutcomeFilter, String> {
    Ok(match text.trim() {
        "content" | "delivered" | "success" => OutcomeFilter::Content,
        "failed" => OutcomeFilter::Failed,
        "blocked" => OutcomeFilter::Blocked,
        "" => {
            return Err(
                "expected content, failed, blocked, or an error type such as timeout".to_owned()
            );
        }
        name => OutcomeFilter::Error(name.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_days_and_ages_are_read() {
        let clock = Clock::fixed(Timestamp::from_millis(10 * 86_400_000));
        let read = |text| parse_time_arg(text).map(|when| when.resolve(&clock).as_millis());
        assert_eq!(read("1970-01-02"), Ok(86_400_000));
        assert_eq!(read("1970-01-02T00:00:01+00:00"), Ok(86_401_000));
        assert_eq!(read("1d"), Ok(9 * 86_400_000));
        assert_eq!(read("2h 30m"), Ok(10 * 86_400_000 - 9_000_000));
        assert!(read("yesterday").unwrap_err().contains("7d"));
    }
}
