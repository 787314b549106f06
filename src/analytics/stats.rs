//! Counts and costs of attempts, by domain, fetcher, day, week or outcome.
//!
//! Invariants: each attempt is in one row. A success rate has the attempts that the fetcher is
//! credited with or blamed for, as learning has.
//!
//! Must not know: how rows are displayed.

use std::collections::HashMap;

use strum::VariantNames;

use crate::evidence::RemoteAttempt;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Attempt, ErrorType};
use fetchwise_types::decision::Source;
use fetchwise_types::registry::{Class, FetcherSpec};
use fetchwise_types::rfc3339;
use fetchwise_types::time::Timestamp;
use fetchwise_types::unknown_name::UnknownName;

/// The grouping of a row of [`Stats`].
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
)]
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
    /// A row for each outcome: `content` or an error type.
    Outcome,
}

fn no_grouping(name: &str) -> UnknownName {
    UnknownName::new("grouping", name, By::VARIANTS.iter().copied())
}

/// The counts of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// Requests.
    pub attempts: u64,
    /// Attempts that delivered content.
    pub delivered: u64,
    /// Attempts that the site blocked.
    pub banned: u64,
    /// Attempts at pages that do not exist.
    pub missing: u64,
    /// Attempts that count for or against their fetcher: those that delivered or that have a
    /// weight. Missing pages, names that do not resolve and failures that were retried have none.
    pub judged: u64,
    /// First attempts of a fetch. Further ones are retries or other fetchers.
    pub visits: u64,
    /// Cost of the requests, in plain requests. Rows have it from [`Stats`] only.
    pub cost: f64,
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
    /// Returns the fraction of judged attempts that delivered.
    pub fn success_rate(&self) -> Option<f64> {
        share(self.delivered, self.judged)
    }

    /// Returns the cost of a delivered page, in plain requests; `None` without a page.
    pub fn cost_per_page(&self) -> Option<f64> {
        (self.delivered > 0).then(|| self.cost / self.delivered as f64)
    }

    /// Returns the cost of the delivered pages if each had taken one request at a cost of
    /// `request`; `None` without a page. Links that delivered nothing do not count: nobody knows
    /// what another fetcher would have made of them.
    pub fn cost_with(&self, request: f64) -> Option<f64> {
        (self.delivered > 0).then_some(request * self.delivered as f64)
    }

    /// Returns the fraction of all attempts that were blocked.
    pub fn ban_rate(&self) -> Option<f64> {
        share(self.banned, self.attempts)
    }

    /// Returns the number of requests per delivered page; `None` without a page.
    pub fn requests_per_page(&self) -> Option<f64> {
        share(self.attempts, self.delivered)
    }

    /// Returns the fraction of the known decisions that `count` has: one of [`Row::learned`] and
    /// the fields after it.
    pub fn of_decisions(&self, count: u64) -> Option<f64> {
        share(count, self.decided)
    }

    /// Adds the counts of another row.
    pub fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.delivered += other.delivered;
        self.banned += other.banned;
        self.missing += other.missing;
        self.judged += other.judged;
        self.visits += other.visits;
        self.cost += other.cost;
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
        self.judged += u64::from(fact.success || fact.weight > 0.0);
    }

    /// Counts an attempt.
    pub fn observe(&mut self, attempt: &Attempt) {
        self.attempts += 1;
        self.delivered += u64::from(attempt.success);
        self.banned += u64::from(attempt.is_banned);
        self.missing += u64::from(is_missing(attempt));
        self.judged += u64::from(is_judged(attempt));
        self.visits += u64::from(attempt.try_no <= 1);
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
    rows: HashMap<String, Counted>,
    fetchers: Fetchers,
}

/// A row, and the fetcher of its last delivered page.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    row: Row,
    last: Option<(Timestamp, u32)>,
}

/// The names of fetchers by number, with the cost of a request.
#[derive(Clone, Debug, Default)]
struct Fetchers {
    numbers: HashMap<Box<str>, u32>,
    known: Vec<(Box<str>, f64)>,
    /// The cost of a request by the cheapest browser.
    browser: Option<f64>,
}

impl Fetchers {
    fn add(&mut self, name: &str, cost: f64) -> u32 {
        let number = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.into(), number);
        self.known.push((name.into(), cost));
        number
    }

    /// Returns the number of a fetcher and the cost of its requests: the configured one, or that of
    /// its class.
    fn find(&mut self, name: &str) -> (u32, f64) {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.add(name, FetcherSpec::by_name(name).cost),
        };
        (number, self.known.get(number as usize).map_or(1.0, |(_, cost)| *cost))
    }

    fn name(&self, number: u32) -> Option<&str> {
        self.known.get(number as usize).map(|(name, _)| &**name)
    }
}

impl Stats {
    /// Returns a collector without attempts. A request costs as much as one of its fetcher's class.
    pub fn new(by: By) -> Self {
        Self { by, rows: HashMap::new(), fetchers: Fetchers::default() }
    }

    /// Works like [`Stats::new`], with the costs of these fetchers, such as the candidates of a
    /// selector.
    pub fn with_costs<'f>(by: By, fetchers: impl IntoIterator<Item = &'f FetcherSpec>) -> Self {
        let mut stats = Self::new(by);
        for spec in fetchers {
            stats.fetchers.add(&spec.name, spec.cost);
            if spec.class == Class::Rendering {
                stats.fetchers.browser =
                    Some(stats.fetchers.browser.map_or(spec.cost, |cost| cost.min(spec.cost)));
            }
        }
        stats
    }

    /// Counts an attempt. An attempt without a domain has the domain `(none)`.
    pub fn observe(&mut self, attempt: &Attempt) {
        let (fetcher, cost) = self.fetchers.find(&attempt.fetcher);
        let domain = attempt.heuristic("domain");
        let outcome = match &attempt.error_type {
            _ if attempt.success => "content",
            Some(error) => error.name(),
            None => "(none)",
        };
        self.count((domain, outcome), &attempt.fetcher, attempt.attempted_at, |counted| {
            counted.row.observe(attempt);
            counted.row.cost += cost;
            if attempt.success && counted.last.is_none_or(|(at, _)| at <= attempt.attempted_at) {
                counted.last = Some((attempt.attempted_at, fetcher));
            }
        });
    }

    /// Counts a remote attempt of the fleet. It has no cost, and its kind of failure is unknown.
    pub fn observe_fact(&mut self, fact: &RemoteAttempt<'_>) {
        let outcome = if fact.success { "content" } else { "(none)" };
        self.count((fact.domain(), outcome), fact.fetcher, fact.at, |counted| {
            counted.row.observe_fact(fact)
        });
    }

    fn count(
        &mut self,
        (domain, outcome): (Option<&str>, &str),
        fetcher: &str,
        at: Timestamp,
        observe: impl FnOnce(&mut Counted),
    ) {
        let day;
        let key = match self.by {
            By::All => "all",
            By::Domain => domain.unwrap_or("(none)"),
            By::Fetcher => fetcher,
            By::Outcome => outcome,
            By::Day | By::Week => {
                day = rfc3339::format(start(self.by, at));
                day.split_once('T').map_or(day.as_str(), |(date, _)| date)
            }
        };
        match self.rows.get_mut(key) {
            Some(counted) => observe(counted),
            None => observe(self.rows.entry(key.to_owned()).or_default()),
        }
    }

    /// Adds the counts of `other`, which must have the same grouping.
    pub fn merge(&mut self, other: Self) {
        for (key, theirs) in other.rows {
            let last = theirs.last.and_then(|(at, number)| {
                let name = other.fetchers.name(number)?;
                Some((at, self.fetchers.find(name).0))
            });
            let own = self.rows.entry(key).or_default();
            own.row.add(&theirs.row);
            own.last = own.last.max(last);
        }
    }

    /// Returns the fetcher that delivered the newest page of a row.
    pub fn last_fetcher(&self, key: &str) -> Option<&str> {
        let (_, number) = self.rows.get(key)?.last?;
        self.fetchers.name(number)
    }

    /// Returns the cost of a request by the cheapest browser of [`Stats::with_costs`].
    pub fn browser_cost(&self) -> Option<f64> {
        self.fetchers.browser
    }

    /// Returns the rows in no particular order, without a copy.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.iter().map(|(key, counted)| (key.as_str(), &counted.row))
    }

    /// Returns the row of `key`.
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.get(key).map(|counted| &counted.row)
    }

    /// Returns the rows: days and weeks in order, all others by descending number of attempts, then
    /// by key.
    pub fn rows(&self) -> Vec<(String, Row)> {
        let mut rows: Vec<(String, Row)> =
            self.iter().map(|(key, row)| (key.to_owned(), *row)).collect();
        rows.sort_by(|(key_a, a), (key_b, b)| match self.by {
            By::Day | By::Week => key_a.cmp(key_b),
            _ => b.attempts.cmp(&a.attempts).then_with(|| key_a.cmp(key_b)),
        });
        rows
    }
}

/// Returns whether an attempt counts for or against its fetcher.
pub(super) fn is_judged(attempt: &Attempt) -> bool {
    attempt.success || attempt.weight > 0.0
}

fn is_missing(attempt: &Attempt) -> bool {
    attempt.error_type.as_ref().and_then(ErrorType::kind) == Some(ErrorKind::NotFound)
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
        // Remote attempts have neither a cost nor the kind of their failure.
        let shared = |(key, row): (String, Row)| (key, Row { cost: 0.0, visits: 0, ..row });
        for by in [By::All, By::Domain, By::Fetcher, By::Day, By::Week] {
            let (mut own, mut told) = (Stats::new(by), Stats::new(by));
            for n in 0..6i64 {
                let url = url::Url::parse(&format!("https://{}.org/", ["a", "b"][n as usize % 2]))
                    .unwrap();
                let at = Timestamp::from_millis(1_772_323_200_000 + n * 86_400_000);
                let attempt = Attempt::new(&url, "f", at).unwrap();
                let attempt =
                    if n < 4 { attempt.delivered() } else { attempt.failed(ErrorKind::Blocked403) };
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
            let rows = |stats: &Stats| stats.rows().into_iter().map(shared).collect::<Vec<_>>();
            assert_eq!(rows(&own), rows(&told));
        }
    }

    fn stats(by: By) -> Stats {
        let mut stats = Stats::new(by);
        for n in 0..12i64 {
            let url = url::Url::parse(
                ["https://a.org/", "https://b.org/", "https://b.org/x"][n as usize % 3],
            )
            .unwrap();
            let at = Timestamp::from_millis(1_772_323_200_000 + n * 43_200_000);
            let mut attempt = Attempt::new(&url, ["f", "g"][n as usize % 2], at).unwrap();
            attempt.source = [None, Some("learned"), Some("probe"), Some("explore")]
                [n as usize % 4]
                .map(Cow::Borrowed);
            stats.observe(&if n % 6 == 0 {
                attempt.failed(ErrorKind::BlockedCaptcha)
            } else {
                attempt.delivered()
            });
        }
        stats
    }

    #[test]
    fn rows_follow_the_grouping_by_descending_attempts() {
        let keys = |by| {
            stats(by).rows().into_iter().map(|(key, row)| (key, row.attempts)).collect::<Vec<_>>()
        };
        assert_eq!(keys(By::Domain), [("b.org".to_owned(), 8), ("a.org".to_owned(), 4)]);
        assert_eq!(keys(By::Fetcher), [("f".to_owned(), 6), ("g".to_owned(), 6)]);
        assert_eq!(keys(By::Day).first(), Some(&("2026-03-01".to_owned(), 2)));
        // That was a Sunday.
        assert_eq!(keys(By::Week), [("2026-02-23".to_owned(), 2), ("2026-03-02".to_owned(), 10)]);
    }

    #[test]
    fn a_row_has_its_cost_and_the_fetcher_in_use() {
        let specs =
            [FetcherSpec::plain("direct_access"), FetcherSpec::rendering("browser").cost(30.0)];
        let mut halves = [0, 1].map(|_| Stats::with_costs(By::Domain, &specs));
        for (n, (fetcher, error)) in [
            ("direct_access", Some(ErrorKind::WrongTool)),
            ("browser", None),
            ("direct_access", Some(ErrorKind::NotFound)),
            ("playwright_stealth", None),
        ]
        .into_iter()
        .enumerate()
        {
            let url = url::Url::parse("https://a.org/").unwrap();
            let mut attempt =
                Attempt::new(&url, fetcher, Timestamp::from_millis(1_772_323_200_000 + n as i64))
                    .unwrap();
            attempt.try_no = if n == 1 { 2 } else { 1 };
            let attempt = match error {
                None => attempt.delivered(),
                Some(kind) => attempt.failed(kind),
            };
            halves[n / 2].observe(&attempt);
        }
        let [mut first, second] = halves;
        assert_eq!(first.last_fetcher("a.org"), Some("browser"));
        first.merge(second);
        let row = first.rows()[0].1;
        // A name without a spec costs as much as its class.
        assert_eq!(
            (row.cost, row.visits, row.missing, row.judged),
            (1.0 + 30.0 + 1.0 + 40.0, 3, 1, 3)
        );
        assert_eq!((row.cost_per_page(), row.success_rate()), (Some(36.0), Some(2.0 / 3.0)));
        assert_eq!(first.last_fetcher("a.org"), Some("playwright_stealth"));
        // Two pages were delivered. The missing one is nothing that a browser would have delivered.
        assert_eq!(first.browser_cost().and_then(|cost| row.cost_with(cost)), Some(60.0));
        assert_eq!(
            Row { attempts: 9, visits: 9, cost: 9.0, ..Row::default() }.cost_with(30.0),
            None
        );
    }

    #[test]
    fn rates_are_fractions_of_attempts_and_of_known_decisions() {
        let rows = stats(By::All).rows();
        let (key, row) = &rows[0];
        assert_eq!((key.as_str(), rows.len(), row.attempts), ("all", 1, 12));
        assert_eq!((row.success_rate(), row.ban_rate()), (Some(10.0 / 12.0), Some(2.0 / 12.0)));
        assert_eq!(
            (row.of_decisions(row.learned), row.requests_per_page()),
            (Some(3.0 / 9.0), Some(1.2))
        );
        assert_eq!(Row::default().success_rate(), None);
    }
}
