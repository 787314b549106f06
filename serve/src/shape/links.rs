//! A link that is at risk.

use serde::Serialize;

use fetchwise::rfc3339;
use fetchwise::selector::LinkAtRisk;
use fetchwise::time::Timestamp;

/// A link.
#[derive(Debug, Serialize)]
pub struct LinkJson<'a> {
    link: &'a str,
    domain: Option<&'a str>,
    /// Until when; null where it is not paused now.
    paused_until: Option<String>,
    risk_level: u8,
    attempts: u32,
    last_attempt_at: Option<String>,
    reason: &'static str,
}

impl<'a> LinkJson<'a> {
    /// A link as it is at `now`.
    pub fn new(of: &'a LinkAtRisk, now: Timestamp) -> Self {
        Self {
            link: &of.link,
            domain: of.domain.as_deref(),
            paused_until: of.state.pause_at(now).map(rfc3339::format),
            risk_level: of.state.risk_level,
            attempts: of.state.attempt_count,
            last_attempt_at: of.state.last_attempt_at.map(rfc3339::format),
            reason: of.reason().name(),
        }
    }
}
