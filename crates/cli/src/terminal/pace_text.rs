//! Text forms of a host's pace.

/// Returns a rate with its significant digits.
pub(crate) fn rate(rate: f64) -> String {
    match rate {
        rate if rate >= 10.0 => format!("{rate:.0}/s"),
        rate if rate >= 0.1 => format!("{rate:.1}/s"),
        rate => format!("{rate:.3}/s"),
    }
}

/// Returns a duration in its two largest units.
pub(crate) fn span(span: std::time::Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_durations_have_their_significant_digits() {
        assert_eq!([rate(12.4), rate(2.44), rate(0.0312)], ["12/s", "2.4/s", "0.031/s"]);
        let spans = [90, 600, 7300, 200_000].map(|seconds| span(std::time::Duration::from_secs(seconds)));
        assert_eq!(spans, ["90 s", "10 min", "2 h 1 min", "2 days"]);
    }
}
