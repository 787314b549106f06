//! A row of statistics.

use serde::Serialize;

use fetchwise::analytics::Row;

/// A row.
#[derive(Debug, Serialize)]
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
}

impl<'a> StatsJson<'a> {
    /// Creates the row called `key`.
    pub fn new(key: &'a str, row: &Row) -> Self {
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
        }
    }
}
