//! Answers: JSON, with the headers that keep it what it is.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

/// A body that is JSON.
pub(crate) fn json(value: &impl Serialize) -> Response {
    with_status(StatusCode::OK, value)
}

/// The same with another status.
pub(crate) fn with_status(status: StatusCode, value: &impl Serialize) -> Response {
    // Writing strings and numbers to memory cannot fail: there is no I/O, and all map keys are strings.
    bytes(status, serde_json::to_vec(value).unwrap_or_default(), "application/json")
}

/// A body of a kind.
pub(crate) fn bytes(status: StatusCode, body: impl Into<Bytes>, kind: &'static str) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A URL or a title in an answer is text, whatever a browser would make of it.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
