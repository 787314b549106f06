//! Request bodies: bytes within limits of size and time, and JSON parsed from them.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// Reads a request's body.
///
/// # Errors
/// 413 if it is too large, 408 if it does not arrive in time, 400 if it breaks off.
pub(crate) async fn read(body: Body, most: usize, within: Duration) -> Result<Bytes, Problem> {
    match tokio::time::timeout(within, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_long(&error) => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("the body is larger than {most} bytes: send less per request, or raise --max-body"),
        )),
        Ok(Err(_)) => Err(Problem::bad_request("the body ended early")),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            format!("the body did not arrive within {} s", within.as_secs()),
        )),
    }
}

/// Parses a value from JSON.
///
/// # Errors
/// 400 with the error and its position.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::bad_request("the body is empty: this route expects JSON"));
    }
    serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request(format!("the body is not valid JSON for this route: {error}")))
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
