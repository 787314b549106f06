//! A host that is paused, or whose pace is known.

use serde::Serialize;

use super::PaceJson;
use fetchwise::pace::Explained;
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// A host.
#[derive(Debug, Serialize)]
pub struct HostJson<'a> {
    host: &'a str,
    paused_until: Option<String>,
    pace: Option<PaceJson>,
}

impl<'a> HostJson<'a> {
    /// What is known of `host`.
    pub fn new(host: &'a str, paused_until: Option<Timestamp>, pace: Option<&Explained>) -> Self {
        Self { host, paused_until: paused_until.map(rfc3339::format), pace: pace.map(PaceJson::from) }
    }
}
