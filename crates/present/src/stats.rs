//! A row of statistics.

use serde::Serialize;

use fetchwise::analytics::Row;

/// A row.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "StatsRow"))]
pub struct StatsJson<'a> {
    key: &'a str,
    attempts: u64,
    delivered: u64,
    banned: u64,
    success_rate: Option<f64>,
    ban_rate: Option<f64>,
    learned: Option<f64>,
    inferred: Option<f64>,
    probed: Option<f64>,
    explored: Option<f64>,
    requests_per_page: Option<f64>,
    /// Attempts at pages that do not exist.
    missing: u64,
    /// Fetches of a link, each with one or more requests.
    visits: u64,
    /// The cost of the requests, in plain requests.
    cost: f64,
    /// The cost of a delivered page, in plain requests.
    cost_per_page: Option<f64>,
    /// The cost of a request by the cheapest browser for each delivered page; null without a
    /// browser or a page.
    pub browser_only_cost: Option<f64>,
    /// The share of `browser_only_cost` that was not spent; negative if more was spent.
    pub saved: Option<f64>,
    /// The fetcher of the newest delivered page.
    fetcher: Option<&'a str>,
}

impl<'a> StatsJson<'a> {
    /// Creates the row called `key`, whose newest page `fetcher` delivered. `browser` is the cost
    /// of a request by a browser.
    pub fn new(key: &'a str, row: &Row, browser: Option<f64>, fetcher: Option<&'a str>) -> Self {
        let browser_only_cost = browser.and_then(|request| row.cost_with(request));
        Self {
            key,
            attempts: row.attempts,
            delivered: row.delivered,
            banned: row.banned,
            success_rate: row.success_rate(),
            ban_rate: row.ban_rate(),
            learned: row.of_decisions(row.learned),
            inferred: row.of_decisions(row.inferred),
            probed: row.of_decisions(row.probed),
            explored: row.of_decisions(row.explored),
            requests_per_page: row.requests_per_page(),
            missing: row.missing,
            visits: row.visits,
            cost: row.cost,
            cost_per_page: row.cost_per_page(),
            browser_only_cost,
            saved: browser_only_cost
                .filter(|cost| *cost > 0.0)
                .map(|cost| (cost - row.cost) / cost),
            fetcher,
        }
    }
}
