//! Error responses: a status, and problem details (RFC 9457) with the fields that commands print
//! for errors.
//!
//! Invariant: they contain nothing of the request's token, headers or body, except what a JSON
//! parser says about a position.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::json_response;
use fetchwise_present::ProblemJson;

/// The fields of a response with an error that RFC 9457 defines. The others extend them.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProblemDetails<'a> {
    /// Always `about:blank`: `error_type` tells errors apart.
    r#type: &'static str,
    /// The phrase of the status.
    title: &'static str,
    /// The status of the response.
    status: u16,
    /// The same text as `error`.
    detail: &'a str,
}

impl<'a> ProblemDetails<'a> {
    /// Creates the fields of a response with this status.
    pub(crate) fn new(status: StatusCode, detail: &'a str) -> Self {
        Self {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail,
        }
    }
}

/// An error that is a whole response.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Problem"))]
pub(crate) struct ProblemResponse<'a> {
    #[serde(flatten)]
    details: ProblemDetails<'a>,
    #[serde(flatten)]
    problem: &'a ProblemJson<'a>,
}

impl<'a> ProblemResponse<'a> {
    /// Creates the response with this status.
    pub(crate) fn new(status: StatusCode, problem: &'a ProblemJson<'a>) -> Self {
        Self { details: ProblemDetails::new(status, problem.error()), problem }
    }
}

/// The reason why a request fails.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    error_type: &'static str,
    error: String,
    retry_after_s: Option<u64>,
}

impl Problem {
    /// Creates a problem with a status, a name for programs and a message for people.
    pub(crate) fn new(
        status: StatusCode,
        error_type: &'static str,
        error: impl Into<String>,
    ) -> Self {
        Self { status, error_type, error: error.into(), retry_after_s: None }
    }

    /// Creates a problem for a request that is not valid for its route.
    pub(crate) fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", error)
    }

    /// Creates a problem for a temporary failure.
    pub(crate) fn unavailable(error_type: &'static str, error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error_type, error).retry_after(1)
    }

    /// Returns its name for programs.
    pub(crate) fn error_type(&self) -> &'static str {
        self.error_type
    }

    /// Returns its message for people.
    pub(crate) fn words(&self) -> &str {
        &self.error
    }

    /// Returns its status.
    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// Adds a `Retry-After` header, in seconds.
    #[must_use]
    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// Creates a problem for a failure of the server.
    pub(crate) fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let problem = ProblemJson::of_request(self.error_type, self.error);
        let mut response =
            json_response::with_status(self.status, &ProblemResponse::new(self.status, &problem));
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
