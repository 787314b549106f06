//! Request times and sizes by fetcher, as medians, for setting costs.
//!
//! Medians are exact. Attempts have the length that a server announced and not the bytes received,
//! so sizes are those of attempts whose server announced them.

use std::collections::BTreeMap;

use fetchwise_types::attempt::Attempt;
use fetchwise_types::response::header;

/// Collects request times and sizes by fetcher.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    fetchers: BTreeMap<String, RequestSamples>,
}

#[derive(Clone, Debug, Default)]
struct RequestSamples {
    times: Vec<u64>,
    lengths: Vec<u64>,
}

/// Medians of the requests of one fetcher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Number of attempts.
    pub attempts: u64,
    /// Median time in milliseconds.
    pub median_ms: Option<u64>,
    /// Median announced size of delivered bodies, in bytes.
    pub median_bytes: Option<u64>,
}

impl Costs {
    /// Adds one attempt. One that brought no body because the page was unchanged is no measure of a
    /// page.
    pub fn observe(&mut self, attempt: &Attempt) {
        if attempt.success && attempt.http_status == Some(304) {
            return;
        }
        if !self.fetchers.contains_key(&attempt.fetcher) {
            self.fetchers.insert(attempt.fetcher.clone(), RequestSamples::default());
        }
        let Some(samples) = self.fetchers.get_mut(&attempt.fetcher) else { return };
        samples.times.push(attempt.duration_ms);
        let length: Option<u64> = header(&attempt.response_headers, "content-length")
            .and_then(|length| length.trim().parse().ok());
        samples.lengths.extend(length.filter(|_| attempt.success));
    }

    /// Returns the medians of `fetcher`; a fetcher without attempts has none.
    pub fn of(&self, fetcher: &str) -> Cost {
        let nothing = RequestSamples::default();
        let samples = self.fetchers.get(fetcher).unwrap_or(&nothing);
        Cost {
            attempts: samples.times.len() as u64,
            median_ms: median(&samples.times),
            median_bytes: median(&samples.lengths),
        }
    }
}

/// Returns the middle value, or the lower of the two middle ones.
fn median(values: &[u64]) -> Option<u64> {
    let mut values = values.to_vec();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::response::Header;
    use fetchwise_types::time::Timestamp;

    #[test]
    fn medians_are_per_fetcher_and_sizes_are_those_of_delivered_pages() {
        let url = url::Url::parse("https://example.org/").unwrap();
        let mut costs = Costs::default();
        for (fetcher, time, length, success) in [
            ("direct_access", 30, Some("1000"), true),
            ("direct_access", 10, None, true),
            ("direct_access", 5000, Some("7"), false),
            ("direct_access", 20, Some("3000"), true),
            ("playwright", 900, Some("nonsense"), true),
        ] {
            let mut attempt = Attempt::new(&url, fetcher, Timestamp::now()).unwrap();
            (attempt.duration_ms, attempt.success) = (time, success);
            attempt.response_headers =
                length.map(|length| Header::new("Content-Length", length)).into_iter().collect();
            costs.observe(&attempt);
        }
        let direct = Cost { attempts: 4, median_ms: Some(20), median_bytes: Some(1000) };
        assert_eq!(costs.of("direct_access"), direct);
        assert_eq!(
            costs.of("playwright"),
            Cost { attempts: 1, median_ms: Some(900), median_bytes: None }
        );
        assert_eq!(costs.of("nobody"), Cost { attempts: 0, median_ms: None, median_bytes: None });
    }
}
