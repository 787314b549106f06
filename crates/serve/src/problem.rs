//! What a request that cannot be answered is told: a status, and the shape that commands have for errors.
//!
//! Invariant: nothing of a token, a header or a body of the request is in it but what a JSON parser says of the place.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::json::ProblemJson;
use crate::json_response;

/// Why a request is not answered.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    error_type: &'static str,
    error: String,
    retry_after_s: Option<u64>,
}

impl Problem {
    /// With a status, a name for programs and words for people.
    pub(crate) fn new(status: StatusCode, error_type: &'static str, error: impl Into<String>) -> Self {
        Self { status, error_type, error: error.into(), retry_after_s: None }
    }

    /// The request is not what this route takes.
    pub(crate) fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", error)
    }

    /// It cannot be done now, and may be a little later.
    pub(crate) fn unavailable(error_type: &'static str, error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error_type, error).retry_after(1)
    }

    /// Its name for programs.
    pub(crate) fn error_type(&self) -> &'static str {
        self.error_type
    }

    /// Its words for people.
    pub(crate) fn words(&self) -> &str {
        &self.error
    }

    /// Its status.
    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The caller is to come back after so many seconds.
    #[must_use]
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// Something is wrong here, and not with the request.
    pub(crate) fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response =
            json_response::with_status(self.status, &ProblemJson::of_request(self.error_type, self.error));
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
