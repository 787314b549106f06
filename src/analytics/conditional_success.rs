//! The exact value of P(success | all of these heuristics) per fetcher, from attempts instead of
//! evidence.

use std::collections::HashMap;

use crate::evidence::RemoteAttempt;
use crate::evidence::decay::Decay;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::time::Timestamp;

/// The matching attempts of one fetcher.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Conditional {
    /// The fetcher.
    pub fetcher: String,
    /// Matching attempts with any outcome.
    pub attempts: u64,
    /// Attempts whose outcome is attributed to the fetcher. A missing page, for example, is not.
    /// Both rates are fractions of these attempts.
    pub counted: u64,
    /// Counted attempts that delivered content.
    pub delivered: u64,
    /// Decayed successes, as evidence counts them.
    pub success: f64,
    /// Decayed attempts, as evidence counts them: by weight, so that outcomes not attributed to the
    /// fetcher are left out.
    pub total: f64,
}

impl Conditional {
    /// Returns the success rate of the counted attempts; `None` without any.
    pub fn success_rate(&self) -> Option<f64> {
        (self.counted > 0).then(|| self.delivered as f64 / self.counted as f64)
    }

    /// Returns the success rate of the same attempts, each with its present weight in evidence.
    pub fn decayed_success_rate(&self) -> Option<f64> {
        (self.total > 0.0).then(|| self.success / self.total)
    }
}

/// Collects the attempts that have all of some heuristics.
///
/// ```
/// use fetchwise::analytics::Query;
/// use fetchwise::attempt::Attempt;
/// use fetchwise::evidence::decay::Decay;
/// use fetchwise::heuristic::Heuristic;
/// use fetchwise::time::Timestamp;
///
/// let now = Timestamp::now();
/// let both = vec![Heuristic::new("domain", "example.org"), Heuristic::new("suffix", ".pdf")];
/// let mut query = Query::new(both, Decay::new(30.0, now).unwrap(), now);
/// for path in ["a.pdf", "b.pdf", "c.html"] {
///     let url = url::Url::parse(&format!("https://example.org/{path}")).unwrap();
///     query.observe(&Attempt::new(&url, "direct_access", now).unwrap().delivered());
/// }
/// let rows = query.rows();
/// assert_eq!((rows[0].attempts, rows[0].success_rate()), (2, Some(1.0)));
/// ```
#[derive(Clone, Debug)]
pub struct Query {
    all_of: Vec<Heuristic>,
    decay: Decay,
    now: Timestamp,
    rows: HashMap<String, Conditional>,
}

impl Query {
    /// Returns a query for attempts that have `all_of`, as of `now`. Without heuristics it matches
    /// every attempt.
    pub fn new(all_of: Vec<Heuristic>, decay: Decay, now: Timestamp) -> Self {
        Self { all_of, decay, now, rows: HashMap::new() }
    }

    /// Counts an attempt if it matches.
    pub fn observe(&mut self, attempt: &Attempt) {
        let has =
            |wanted: &Heuristic| attempt.heuristics.iter().any(|tag| tag.heuristic == *wanted);
        if !self.all_of.iter().all(has) {
            return;
        }
        self.count(&attempt.fetcher, attempt.weight, attempt.success, attempt.attempted_at);
    }

    /// Counts a remote attempt of the fleet if it matches. Nodes do not send attempts without
    /// weight.
    pub fn observe_fact(&mut self, fact: &RemoteAttempt<'_>) {
        let has = |wanted: &Heuristic| {
            fact.heuristics.iter().any(|(k, v)| *k == wanted.kind && *v == wanted.value)
        };
        if self.all_of.iter().all(has) {
            self.count(fact.fetcher, fact.weight, fact.success, fact.at);
        }
    }

    fn count(&mut self, fetcher: &str, weight: f64, success: bool, at: Timestamp) {
        if !self.rows.contains_key(fetcher) {
            let row = Conditional { fetcher: fetcher.to_owned(), ..Conditional::default() };
            self.rows.insert(fetcher.to_owned(), row);
        }
        let Some(row) = self.rows.get_mut(fetcher) else { return };
        row.attempts += 1;
        if weight > 0.0 && weight.is_finite() {
            row.counted += 1;
            row.delivered += u64::from(success);
            let weight =
                weight.min(1.0) * self.decay.up(at.min(self.now)) * self.decay.down(self.now);
            row.total += weight;
            row.success += if success { weight } else { 0.0 };
        }
    }

    /// Returns a row for each fetcher, by descending number of attempts, then by name.
    pub fn rows(&self) -> Vec<Conditional> {
        let mut rows: Vec<Conditional> = self.rows.values().cloned().collect();
        rows.sort_by(|a, b| b.attempts.cmp(&a.attempts).then_with(|| a.fetcher.cmp(&b.fetcher)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::attempt::error_kind::ErrorKind;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(86_400);
    const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn query(
        all_of: &[(&'static str, &'static str)],
        at: &[(&str, Timestamp, Option<ErrorKind>)],
    ) -> Vec<Conditional> {
        let all_of = all_of.iter().map(|(kind, value)| Heuristic::new(*kind, *value)).collect();
        let now = T0.saturating_add(30 * DAY);
        let mut query = Query::new(all_of, Decay::new(30.0, now).unwrap(), now);
        for (url, at, error) in at {
            let attempt = Attempt::new(&url::Url::parse(url).unwrap(), "f", *at).unwrap();
            query.observe(&error.map_or(attempt.clone().delivered(), |kind| attempt.failed(kind)));
        }
        query.rows()
    }

    #[test]
    fn old_attempts_weigh_less_and_unattributed_ones_nothing() {
        let now = T0.saturating_add(30 * DAY);
        let attempts = [
            ("https://e.org/a.pdf", T0, None),
            ("https://e.org/b.pdf", now, Some(ErrorKind::BlockedCaptcha)),
            ("https://e.org/c.pdf", now, Some(ErrorKind::NotFound)),
            ("https://e.org/d", now, None),
            ("https://other.org/a.pdf", now, None),
        ];
        let rows = query(&[("domain", "e.org"), ("suffix", ".pdf")], &attempts);
        assert_eq!(
            (rows.len(), rows[0].attempts, rows[0].counted, rows[0].delivered),
            (1, 3, 2, 1)
        );
        assert_eq!(rows[0].success_rate(), Some(0.5), "over the same attempts as the decayed one");
        assert!((rows[0].total - 1.5).abs() < 1e-12);
        assert!((rows[0].decayed_success_rate().unwrap() - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn heuristics_that_no_attempt_has_together_match_none() {
        let attempts = [("https://e.org/a", T0, None)];
        assert!(query(&[("domain", "e.org"), ("domain", "f.org")], &attempts).is_empty());
        assert_eq!(query(&[], &attempts)[0].attempts, 1);
    }

    #[test]
    fn without_a_counted_outcome_there_is_no_rate() {
        let rows = query(&[], &[("https://e.org/a", T0, Some(ErrorKind::NotFound))]);
        assert_eq!((rows[0].attempts, rows[0].counted), (1, 0));
        assert_eq!((rows[0].success_rate(), rows[0].decayed_success_rate()), (None, None));
    }
}
