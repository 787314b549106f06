//! The JSON of a pause: what is paused, until when, how often in a row, and after which attempt.

use serde::Serialize;

use super::TimeJson;
use fetchwise::attempt::{Attempt, ErrorType};
use fetchwise::time::Timestamp;

/// The attempt after which a host or a link was paused.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "PauseCause"))]
pub struct PauseCause {
    error_type: Option<String>,
    http_status: Option<u16>,
    fetcher: String,
    at: TimeJson,
    /// The same in words, without the time: the page and the commands show it.
    text: String,
}

impl PauseCause {
    /// Creates the cause from the attempt.
    pub fn new(attempt: &Attempt) -> Self {
        let error_type = attempt.error_type.as_ref().map(ErrorType::name);
        let status =
            attempt.http_status.map_or_else(String::new, |status| format!(", status {status},"));
        Self {
            error_type: error_type.map(str::to_owned),
            http_status: attempt.http_status,
            fetcher: attempt.fetcher.clone(),
            at: attempt.attempted_at.into(),
            text: format!("{}{status} by {}", error_type.unwrap_or("failed"), attempt.fetcher),
        }
    }

    /// Returns the cause in words, with its time.
    pub fn text(&self) -> String {
        format!("{} at {}", self.text, self.at)
    }
}

/// The pause of a URL.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Pause"))]
pub struct PauseJson {
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["host", "link"])))]
    scope: &'static str,
    /// The host or link.
    name: String,
    until: TimeJson,
    /// The number of its pauses in a row, or of failed fetches of the link.
    times: u8,
    /// The newest attempt that speaks for the pause; null if the log has none.
    cause: Option<PauseCause>,
}

impl PauseJson {
    /// Creates the pause of a host, which is number `times` in a row.
    pub fn of_host(name: &str, until: Timestamp, times: u8, cause: Option<PauseCause>) -> Self {
        Self {
            scope: "host",
            name: name.to_owned(),
            until: TimeJson::of_process(until),
            times,
            cause,
        }
    }

    /// Creates the pause of a link after this number of failed fetches in a row.
    pub fn of_link(name: &str, until: Timestamp, times: u8, cause: Option<PauseCause>) -> Self {
        Self {
            scope: "link",
            name: name.to_owned(),
            until: TimeJson::of_process(until),
            times,
            cause,
        }
    }

    /// Returns what is paused, after which attempt and how often, in words.
    pub fn text(&self) -> String {
        let cause = match &self.cause {
            Some(cause) => cause.text(),
            None => "no attempt in this log says why".to_owned(),
        };
        let times = match (self.scope, self.times) {
            (_, 0 | 1) => String::new(),
            ("host", times) => format!(", pause {times} in a row"),
            (_, times) => format!(", failed fetch {times} in a row"),
        };
        let what = if self.scope == "host" {
            format!("the host {}", self.name)
        } else {
            "this link".to_owned()
        };
        format!("{what} is paused: {cause}{times}")
    }
}
