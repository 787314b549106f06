//! Timestamps as text: RFC 3339 in UTC with milliseconds, the only form in which fetchwise writes
//! times for people and programs.
//!
//! Owns: reading and writing that form. [`crate::time`] owns the timestamp itself.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::time::{Clock, Timestamp};

/// A text that is not a valid time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid RFC 3339 time (as in 2026-01-31T12:00:00Z): {reason}")]
pub struct TimeError {
    reason: chrono::ParseError,
}

/// Writes `at` as `2026-01-31T12:00:00.000Z`. Times beyond the calendar's range become its nearest
/// end.
///
/// ```
/// use fetchwise_types::rfc3339;
/// use fetchwise_types::time::Timestamp;
/// assert_eq!(rfc3339::format(Timestamp::from_millis(1)), "1970-01-01T00:00:00.001Z");
/// ```
pub fn format(at: Timestamp) -> String {
    let ends = [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC];
    let time = DateTime::from_timestamp_millis(at.as_millis())
        .unwrap_or(ends[usize::from(at.as_millis() > 0)]);
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Writes the date of a time of this process ([`Timestamp::now`]).
pub fn format_time(at: Timestamp) -> String {
    format(Clock::System.date_of(at))
}

/// Reads an RFC 3339 time with any offset; anything finer than a millisecond is cut off.
///
/// # Errors
/// [`TimeError`] if `text` is not a valid time.
///
/// ```
/// use fetchwise_types::rfc3339;
/// assert_eq!(rfc3339::parse("1970-01-01T01:00:00.0019+01:00").unwrap().as_millis(), 1);
/// assert!(rfc3339::parse("yesterday").is_err());
/// ```
pub fn parse(text: &str) -> Result<Timestamp, TimeError> {
    let time = DateTime::parse_from_rfc3339(text).map_err(|reason| TimeError { reason })?;
    Ok(Timestamp::from_millis(time.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_time_reads_back() {
        for ms in [0, 1, 999, 1_763_650_000_123, -1, 253_402_300_799_999] {
            let at = Timestamp::from_millis(ms);
            assert_eq!(parse(&format(at)), Ok(at), "{ms}");
        }
    }

    #[test]
    fn the_ends_of_time_do_not_panic() {
        for ms in [i64::MIN, i64::MAX] {
            assert!(!format(Timestamp::from_millis(ms)).is_empty());
        }
    }
}
