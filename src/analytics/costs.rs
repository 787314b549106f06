//! What requests by each fetcher took: medians of time and of bytes, which costs can be set from.
//!
//! A median is kept exactly. Attempts know the length that a server announced and not the bytes that came, so bytes are those of
//! attempts whose server announced them.

use std::collections::BTreeMap;

use fetchwise_types::attempt::Attempt;
use fetchwise_types::response::header;

/// Adds up what requests took, by fetcher.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    fetchers: BTreeMap<String, Taken>,
}

#[derive(Clone, Debug, Default)]
struct Taken {
    times: Vec<u64>,
    lengths: Vec<u64>,
}

/// What the requests of one fetcher took.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Its attempts.
    pub attempts: u64,
    /// The median of their time in milliseconds.
    pub median_ms: Option<u64>,
    /// The median of the bodies that it delivered, in bytes as they were announced.
    pub median_bytes: Option<u64>,
}

impl Costs {
    /// Takes in one attempt.
    pub fn observe(&mut self, attempt: &Attempt) {
        if !self.fetchers.contains_key(&attempt.fetcher) {
            self.fetchers.insert(attempt.fetcher.clone(), Taken::default());
        }
        let Some(taken) = self.fetchers.get_mut(&attempt.fetcher) else { return };
        taken.times.push(attempt.duration_ms);
        let length: Option<u64> =
            header(&attempt.response_headers, "content-length").and_then(|length| length.trim().parse().ok());
        taken.lengths.extend(length.filter(|_| attempt.success));
    }

    /// What the requests of `fetcher` took; nothing is known of one that made none.
    pub fn of(&self, fetcher: &str) -> Cost {
        let nothing = Taken::default();
        let taken = self.fetchers.get(fetcher).unwrap_or(&nothing);
        Cost {
            attempts: taken.times.len() as u64,
            median_ms: median(&taken.times),
            median_bytes: median(&taken.lengths),
        }
    }
}

/// The middle one; of an even number the lower of the two in the middle.
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
    fn the_median_is_that_of_each_fetcher_and_bytes_are_those_of_pages() {
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
            attempt.response_headers = length.map(|length| Header::new("Content-Length", length)).into_iter().collect();
            costs.observe(&attempt);
        }
        let direct = Cost { attempts: 4, median_ms: Some(20), median_bytes: Some(1000) };
        assert_eq!(costs.of("direct_access"), direct);
        assert_eq!(costs.of("playwright"), Cost { attempts: 1, median_ms: Some(900), median_bytes: None });
        assert_eq!(costs.of("nobody"), Cost { attempts: 0, median_ms: None, median_bytes: None });
    }
}
