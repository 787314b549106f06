//! Text forms of rates, durations and times.

use std::time::Duration;

use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// Returns a rate with its significant digits.
pub(crate) fn rate(rate: f64) -> String {
    match rate {
        rate if rate >= 10.0 => format!("{rate:.0}/s"),
        rate if rate >= 0.1 => format!("{rate:.1}/s"),
        rate => format!("{rate:.3}/s"),
    }
}

/// Returns a duration in its two largest units.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns the rest of a wait such that each second changes it. It is rounded up: it says 0 s only
/// when the wait is over.
pub(crate) fn countdown(rest: Duration) -> String {
    let seconds = rest.as_millis().div_ceil(1000);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns how long a request took, with its significant digits.
pub(crate) fn took(span: Duration) -> String {
    match span.as_secs_f64() {
        seconds if seconds < 0.9995 => format!("{:.0} ms", 1000.0 * seconds),
        seconds if seconds < 9.995 => format!("{seconds:.2} s"),
        seconds => format!("{seconds:.1} s"),
    }
}

/// Returns the date of a time, in UTC to the second.
pub(crate) fn clock_time(at: Timestamp) -> String {
    let text = rfc3339::format_time(at);
    text.split_once('.').map_or_else(|| text.clone(), |(whole, _)| format!("{whole}Z"))
}

/// Returns a time to come, in UTC to the second: without its date if it is less than a day away.
pub(crate) fn short_time(at: Timestamp, now: Timestamp) -> String {
    let text = clock_time(at);
    match text.split_once('T') {
        Some((_, time)) if at.since(now) < Duration::from_secs(86_400) => time.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_durations_have_their_significant_digits() {
        assert_eq!([rate(12.4), rate(2.44), rate(0.0312)], ["12/s", "2.4/s", "0.031/s"]);
        let spans = [90, 600, 7300, 200_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["90 s", "10 min", "2 h 1 min", "2 days"]);
        let times = [0, 4, 999, 1_500, 31_240].map(|ms| took(Duration::from_millis(ms)));
        assert_eq!(times, ["0 ms", "4 ms", "999 ms", "1.50 s", "31.2 s"]);
    }

    #[test]
    fn a_countdown_changes_with_each_second_and_ends_with_the_wait() {
        let of = |ms| countdown(Duration::from_millis(ms));
        assert_eq!([of(0), of(1), of(1_000), of(1_001)], ["0 s", "1 s", "1 s", "2 s"]);
        assert_eq!(
            [of(60_000), of(421_400), of(7_320_000)],
            ["1 min 0 s", "7 min 2 s", "2 h 2 min"]
        );
        assert_eq!(of(400_000_000), "4 days");
    }

    #[test]
    fn a_time_to_come_has_a_date_only_from_a_day_on() {
        let now = Timestamp::from_millis(1_790_000_000_123);
        let of = |seconds| short_time(now.saturating_add(Duration::from_secs(seconds)), now);
        assert_eq!([of(600), of(86_399)], ["14:23:20Z", "14:13:19Z"]);
        assert_eq!(of(86_400), "2026-09-22T14:13:20Z");
    }
}
