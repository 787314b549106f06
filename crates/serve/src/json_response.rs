//! Responses with JSON and the headers that prevent other interpretations.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

/// Returns a response with a JSON body.
pub(crate) fn json(value: &impl Serialize) -> Response {
    with_status(StatusCode::OK, value)
}

/// Returns a JSON response with a status. That of a failure has the media type of problems.
pub(crate) fn with_status(status: StatusCode, value: &impl Serialize) -> Response {
    // RFC 9457.
    let is_problem = status.is_client_error() || status.is_server_error();
    let kind = if is_problem { "application/problem+json" } else { "application/json" };
    // Writing strings and numbers to memory cannot fail: there is no I/O, and all map keys are
    // strings.
    bytes(status, serde_json::to_vec(value).unwrap_or_default(), kind)
}

/// Returns a response with a body of a content type.
pub(crate) fn bytes(status: StatusCode, body: impl Into<Bytes>, kind: &'static str) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A URL or a title in a response is text; browsers must not guess another type.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
