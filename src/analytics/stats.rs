//! Counts of successes, blocks and decisions, by domain, fetcher, day or week.
//!
//! Invariants: each attempt is in one row.
//!
//! Must not know: how rows are displayed.

use std::collections::HashMap;

use strum::VariantNames;

use crate::evidence::RemoteAttempt;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::decision::Source;
use fetchwise_types::rfc3339;
use fetchwise_types::time::Timestamp;
use fetchwise_types::unknown_name::UnknownName;

/// The grouping of a row of [`Stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = no_grouping)]
#[non_exhaustive]
pub enum By {
    /// One row for all attempts.
    #[default]
    All,
    /// A row for each domain.
    Domain,
    /// A row for each fetcher.
    Fetcher,
    /// A row for each UTC day.
    Day,
    /// A row for each UTC week, named by its Monday.
    Week,
}

fn no_grouping(name: &str) -> UnknownName {
    UnknownName::new("grouping", name, By::VARIANTS.iter().copied())
}

/// The counts of one row. All rates are fractions of all attempts of the row, whatever their weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// Requests.
    pub attempts: u64,
    /// Attempts that delivered content.
    pub delivered: u64,
    /// Attempts that the site blocked.
    pub banned: u64,
    /// Attempts with a known decision.
    pub decided: u64,
    /// Decisions by sufficient evidence.
    pub learned: u64,
    /// Decisions by the index, without sufficient evidence.
    pub inferred: u64,
    /// Decisions to probe.
    pub probed: u64,
    /// Decisions to explore.
    pub explored: u64,
}

impl Row {
    /// Returns the fraction of attempts that delivered.
    pub fn success_rate(&self) -> Option<f64> {
        share(self.delivered, self.attempts)
    }

    /// Returns the fraction of attempts that were blocked.
    pub fn ban_rate(&self) -> Option<f64> {
        share(self.banned, self.attempts)
    }

    /// Returns the number of requests per delivered page; `None` without a page.
    pub fn requests_per_page(&self) -> Option<f64> {
        share(self.attempts, self.delivered)
    }

    /// Returns the fraction of the known decisions that `count` has: one of [`Row::learned`] and the fields after it.
    pub fn of_decisions(&self, count: u64) -> Option<f64> {
        share(count, self.decided)
    }

    /// Adds the counts of another row.
    pub fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.delivered += other.delivered;
        self.banned += other.banned;
        self.decided += other.decided;
        self.learned += other.learned;
        self.inferred += other.inferred;
        self.probed += other.probed;
        self.explored += other.explored;
    }

    /// Counts a remote attempt of the fleet. Remote attempts do not include decisions.
    pub fn observe_fact(&mut self, fact: &RemoteAttempt<'_>) {
        self.attempts += 1;
        self.delivered += u64::from(fact.success);
        self.banned += u64::from(fact.is_banned);
    }

    /// Counts an attempt.
    pub fn observe(&mut self, attempt: &Attempt) {
        self.attempts += 1;
        self.delivered += u64::from(attempt.success);
        self.banned += u64::from(attempt.is_banned);
        let Some(source) = &attempt.source else { return };
        self.decided += 1;
        match Source::from_name(source) {
            Some(Source::Learned) => self.learned += 1,
            Some(Source::Inferred) => self.inferred += 1,
            Some(Source::Probe) => self.probed += 1,
            Some(Source::Explore) => self.explored += 1,
            _ => {}
        }
    }
}

/// Collects counts of attempts by row.
///
/// ```
/// use fetchwise::analytics::{By, Stats};
/// use fetchwise::attempt::Attempt;
/// use fetchwise::time::Timestamp;
///
/// let url = url::Url::parse("https://www.example.org/").unwrap();
/// let mut stats = Stats::new(By::Domain);
/// stats.observe(&Attempt::new(&url, "playwright", Timestamp::now()).unwrap().delivered());
/// let rows = stats.rows();
/// assert_eq!((rows[0].0.as_str(), rows[0].1.success_rate()), ("example.org", Some(1.0)));
/// ```
#[derive(Clone, Debug)]
pub struct Stats {
    by: By,
    rows: HashMap<String, Row>,
}

impl Stats {
    /// Returns a collector without attempts.
    pub fn new(by: By) -> Self {
        Self { by, rows: HashMap::new() }
    }

    /// Counts an attempt. An attempt without a domain has the domain `(none)`.
    pub fn observe(&mut self, attempt: &Attempt) {
        let domain = attempt.heuristic("domain");
        self.count(domain, &attempt.fetcher, attempt.attempted_at, |row| row.observe(attempt));
    }

    /// Counts a remote attempt of the fleet.
    pub fn observe_fact(&mut self, fact: &RemoteAttempt<'_>) {
        self.count(fact.domain(), fact.fetcher, fact.at, |row| row.observe_fact(fact));
    }

    fn count(&mut self, domain: Option<&str>, fetcher: &str, at: Timestamp, observe: impl FnOnce(&mut Row)) {
        let day;
        let key = match self.by {
            By::All => "all",
            By::Domain => domain.unwrap_or("(none)"),
            By::Fetcher => fetcher,
            By::Day | By::Week => {
                day = rfc3339::format(start(self.by, at));
                day.split_once('T').map_or(day.as_str(), |(date, _)| date)
            }
        };
        match self.rows.get_mut(key) {
            Some(row) => observe(row),
            None => observe(self.rows.entry(key.to_owned()).or_default()),
        }
    }

    /// Adds the counts of `other`, which must have the same grouping.
    pub fn merge(&mut self, other: Self) {
        for (key, row) in other.rows {
            self.rows.entry(key).or_default().add(&row);
        }
    }

    /// Returns the rows in no particular order, without a copy.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.iter().map(|(key, row)| (key.as_str(), row))
    }

    /// Returns the rows: days and weeks in order, all others by descending number of attempts, then by key.
    pub fn rows(&self) -> Vec<(String, Row)> {
        let mut rows: Vec<(String, Row)> = self.rows.iter().map(|(key, row)| (key.clone(), *row)).collect();
        rows.sort_by(|(key_a, a), (key_b, b)| match self.by {
            By::Day | By::Week => key_a.cmp(key_b),
            _ => b.attempts.cmp(&a.attempts).then_with(|| key_a.cmp(key_b)),
        });
        rows
    }
}

/// Returns the start of the day or week that `at` is counted in.
fn start(by: By, at: Timestamp) -> Timestamp {
    let into_week = match by {
        // 1970-01-01 was a Thursday.
        By::Week => at.utc_day().saturating_add(3).rem_euclid(7),
        _ => 0,
    };
    Timestamp::from_millis(at.as_millis().saturating_sub(into_week * 86_400_000))
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::attempt::error_kind::ErrorKind;
    use std::borrow::Cow;

    #[test]
    fn remote_attempts_count_in_the_same_rows_as_local_ones() {
        for by in [By::All, By::Domain, By::Fetcher, By::Day, By::Week] {
            let (mut own, mut told) = (Stats::new(by), Stats::new(by));
            for n in 0..6i64 {
                let url = url::Url::parse(&format!("https://{}.org/", ["a", "b"][n as usize % 2])).unwrap();
                let at = Timestamp::from_millis(1_772_323_200_000 + n * 86_400_000);
                let attempt = Attempt::new(&url, "f", at).unwrap();
                let attempt = if n < 4 { attempt.delivered() } else { attempt.failed(ErrorKind::Blocked403) };
                own.observe(&attempt);
                told.observe_fact(&RemoteAttempt {
                    at,
                    fetcher: &attempt.fetcher,
                    weight: attempt.weight,
                    success: attempt.success,
                    is_banned: attempt.is_banned,
                    duration_ms: 0,
                    hint: None,
                    is_file: false,
                    heuristics: &[("domain", attempt.heuristic("domain").unwrap())],
                });
            }
            assert_eq!(own.rows(), told.rows());
        }
    }

    fn stats(by: By) -> Stats {
        let mut stats = Stats::new(by);
        for n in 0..12i64 {
            let url = url::Url::parse(["https://a.org/", "https://b.org/", "https://b.org/x"][n as usize % 3]).unwrap();
            let at = Timestamp::from_millis(1_772_323_200_000 + n * 43_200_000);
            let mut attempt = Attempt::new(&url, ["f", "g"][n as usize % 2], at).unwrap();
            attempt.source = [None, Some("learned"), Some("probe"), Some("explore")][n as usize % 4].map(Cow::Borrowed);
            stats.observe(&if n % 6 == 0 { attempt.failed(ErrorKind::BlockedCaptcha) } else { attempt.delivered() });
        }
        stats
    }

    #[test]
    fn rows_follow_the_grouping_by_descending_attempts() {
        let keys = |by| stats(by).rows().into_iter().map(|(key, row)| (key, row.attempts)).collect::<Vec<_>>();
        assert_eq!(keys(By::Domain), [("b.org".to_owned(), 8), ("a.org".to_owned(), 4)]);
        assert_eq!(keys(By::Fetcher), [("f".to_owned(), 6), ("g".to_owned(), 6)]);
        assert_eq!(keys(By::Day).first(), Some(&("2026-03-01".to_owned(), 2)));
        // That was a Sunday.
        assert_eq!(keys(By::Week), [("2026-02-23".to_owned(), 2), ("2026-03-02".to_owned(), 10)]);
    }

    #[test]
    fn rates_are_fractions_of_attempts_and_of_known_decisions() {
        let rows = stats(By::All).rows();
        let (key, row) = &rows[0];
        assert_eq!((key.as_str(), rows.len(), row.attempts), ("all", 1, 12));
        assert_eq!((row.success_rate(), row.ban_rate()), (Some(10.0 / 12.0), Some(2.0 / 12.0)));
        assert_eq!((row.of_decisions(row.learned), row.requests_per_page()), (Some(3.0 / 9.0), Some(1.2)));
        assert_eq!(Row::default().success_rate(), None);
    }
}
