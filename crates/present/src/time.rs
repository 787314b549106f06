//! A time in a result.

use std::fmt;

use serde::Serialize;

use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// RFC 3339 in UTC with milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline, extend("format" = "date-time")))]
pub struct TimeJson(String);

impl TimeJson {
    /// Creates the date of a time of this process ([`Timestamp::now`]).
    pub fn of_process(at: Timestamp) -> Self {
        Self(rfc3339::format_time(at))
    }
}

impl From<Timestamp> for TimeJson {
    fn from(date: Timestamp) -> Self {
        Self(rfc3339::format(date))
    }
}

impl fmt::Display for TimeJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
