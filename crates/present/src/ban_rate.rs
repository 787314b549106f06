//! The ban rate of a domain.

use serde::Serialize;

use super::TimeJson;
use fetchwise::analytics::BanRate;
use fetchwise::time::Timestamp;

/// A domain's ban rate over some days.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BanRate"))]
pub struct BanRateJson<'a> {
    domain: &'a str,
    days: u32,
    attempts: u64,
    banned: u64,
    rate: Option<f64>,
    /// Attempts before this time may be missing from the counts.
    complete_since: Option<TimeJson>,
}

impl<'a> BanRateJson<'a> {
    /// Creates the ban rate of `domain` in the last `days` days. Attempts before `complete_since`
    /// may be missing.
    pub fn new(
        domain: &'a str,
        days: u32,
        sum: BanRate,
        complete_since: Option<Timestamp>,
    ) -> Self {
        let complete_since = complete_since.map(TimeJson::from);
        Self {
            domain,
            days,
            attempts: sum.attempts,
            banned: sum.banned,
            rate: sum.rate(),
            complete_since,
        }
    }
}
