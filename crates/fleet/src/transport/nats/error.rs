//! Errors of the broker, as transport errors.
//!
//! Invariants: no error contains a password, a token, a key or the content of a credentials file.
//!
//! Must not know: how an error is handled.

use std::error::Error;
use std::fmt;

use async_nats::jetstream::ErrorCode;
use async_nats::{RequestError, RequestErrorKind};
use serde::Deserialize;

use crate::transport::TransportError;

/// An error as JetStream reports it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ApiError {
    pub(super) code: u16,
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    pub(super) description: String,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.description, self.err_code)
    }
}

impl ApiError {
    /// Returns whether it has that code.
    pub(super) fn is(&self, code: ErrorCode) -> bool {
        self.err_code == code.0
    }

    /// Returns whether the cell or the stream is at a later revision than the writer expected.
    pub(super) fn is_wrong_revision(&self) -> bool {
        self.is(ErrorCode::STREAM_WRONG_LAST_SEQUENCE)
            || self.is(ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
    }
}

/// Converts a JetStream error about `what`.
pub(super) fn api_error(error: &ApiError, what: &str) -> TransportError {
    let said = format!("{what}: {error}");
    match ErrorCode(error.err_code) {
        ErrorCode::STREAM_NOT_FOUND => TransportError::Missing(what.to_owned()),
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            TransportError::Refused(format!(
                "{said}. The server runs without JetStream: start it with -js"
            ))
        }
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => TransportError::Invalid(said),
        ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED => TransportError::Refused(said),
        _ if is_passing(error) => TransportError::Away(said),
        _ if (400..500).contains(&error.code) => TransportError::Refused(said),
        _ => TransportError::Invalid(said),
    }
}

/// Returns whether the error may go away by itself, such as a missing leader or a full disk.
fn is_passing(error: &ApiError) -> bool {
    let passing = [
        ErrorCode::CLUSTER_NO_PEERS,
        ErrorCode::CLUSTER_NOT_ASSIGNED,
        ErrorCode::CLUSTER_NOT_LEADER,
        ErrorCode::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY,
        ErrorCode::STREAM_TOO_MANY_REQUESTS,
        ErrorCode::STREAM_OFFLINE,
        ErrorCode::STREAM_OFFLINE_REASON,
        ErrorCode::STREAM_STORE_FAILED,
    ];
    error.code == 503 || error.code == 408 || passing.into_iter().any(|code| error.is(code))
}

/// Converts the error of a request that got no response.
pub(super) fn request_error(error: &RequestError, what: &str) -> TransportError {
    match error.kind() {
        RequestErrorKind::NoResponders => TransportError::Away(format!(
            "{what}: JetStream does not respond; is it enabled, and does it have a leader?"
        )),
        RequestErrorKind::TimedOut => TransportError::Away(format!("{what}: no response in time")),
        RequestErrorKind::InvalidSubject => {
            TransportError::Invalid(format!("{what}: invalid subject"))
        }
        RequestErrorKind::MaxPayloadExceeded => {
            TransportError::Invalid(format!("{what}: larger than the broker's limit"))
        }
        RequestErrorKind::Other => TransportError::Away(format!("{what}: connection lost")),
    }
}

/// The reason why a message was not stored.
#[derive(Debug)]
pub(super) enum StoreError {
    /// Nothing listens on its subject: its stream does not exist, or has no leader.
    NoListener,
    /// The cell is at another revision.
    WrongRevision,
    /// Any other error.
    Failed(TransportError),
}

/// Converts any other error of the client library, with its causes.
pub(super) fn other_error(error: &(dyn Error + 'static), what: &str) -> TransportError {
    let (mut said, mut at) = (format!("{what}: {error}"), error.source());
    while let Some(cause) = at {
        said = format!("{said}: {cause}");
        at = cause.source();
    }
    TransportError::Away(said)
}
