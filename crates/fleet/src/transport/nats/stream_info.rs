//! The information that JetStream reports about a stream.
//!
//! Owns: its parsing.
//!
//! Must not know: what it is needed for.

use async_nats::datetime::{DateTime, parse_rfc3339};
use async_nats::jetstream::stream::Config;
use fetchwise::time::Timestamp;
use serde::Deserialize;

use crate::transport::{StreamBounds, TransportError};

/// The information that JetStream reports about a stream.
#[derive(Debug, Deserialize)]
pub(super) struct StreamInfo {
    created: String,
    /// The broker's time at the response.
    #[serde(default)]
    ts: Option<String>,
    pub(super) config: Config,
    state: State,
}

#[derive(Debug, Deserialize)]
struct State {
    messages: u64,
    first_seq: u64,
    last_seq: u64,
    first_ts: String,
}

impl StreamInfo {
    /// Returns the broker's time at the response.
    pub(super) fn now(&self) -> Option<Timestamp> {
        parse_rfc3339(self.ts.as_deref()?).ok().map(timestamp)
    }

    pub(super) fn bounds(&self) -> Result<StreamBounds, TransportError> {
        let time = |text: &str| {
            parse_rfc3339(text)
                .map_err(|_| TransportError::Invalid(format!("{}: invalid time", self.config.name)))
        };
        let created = time(&self.created)?.unix_timestamp_nanos();
        let is_empty = self.state.messages == 0;
        Ok(StreamBounds {
            incarnation: u64::try_from(created).unwrap_or_default(),
            first: if is_empty { self.state.last_seq + 1 } else { self.state.first_seq },
            last: self.state.last_seq,
            first_at: if is_empty { None } else { Some(timestamp(time(&self.state.first_ts)?)) },
        })
    }
}

/// Converts a time of the broker.
pub(super) fn timestamp(at: DateTime) -> Timestamp {
    Timestamp::from_millis(i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default())
}
