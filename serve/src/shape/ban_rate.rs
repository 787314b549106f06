//! How often a domain blocked.

use serde::Serialize;

use fetchwise::analytics::BanRate;

/// A domain's ban rate over some days.
#[derive(Debug, Serialize)]
pub struct BanRateJson<'a> {
    domain: &'a str,
    days: u32,
    attempts: u64,
    banned: u64,
    rate: Option<f64>,
}

impl<'a> BanRateJson<'a> {
    /// What was counted of `domain` in the last `days` days.
    pub fn new(domain: &'a str, days: u32, sum: BanRate) -> Self {
        Self { domain, days, attempts: sum.attempts, banned: sum.banned, rate: sum.rate() }
    }
}
