//! The JSON of an error about one input or a whole request.

use axum::http::StatusCode;
use serde::Serialize;

use fetchwise::router::RouteError;

/// The fields of a response with an error that RFC 9457 defines. The others extend them.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemDetails<'a> {
    /// Nothing but the status: `error_type` tells errors apart.
    r#type: &'static str,
    title: &'static str,
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
pub(crate) struct ProblemResponse<'a> {
    #[serde(flatten)]
    details: ProblemDetails<'a>,
    #[serde(flatten)]
    problem: &'a ProblemJson<'a>,
}

/// An error about one URL, line or request.
#[derive(Debug, Serialize)]
pub struct ProblemJson<'a> {
    /// None if the error is not about a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<Option<&'a str>>,
    /// Always false.
    success: bool,
    error_type: &'a str,
    /// The error and what to do about it, for people.
    error: String,
}

impl<'a> ProblemJson<'a> {
    /// Creates an error about a URL; none for a value that should be a URL but is not text.
    pub fn of_url(url: Option<&'a str>, error_type: &'a str, error: impl Into<String>) -> Self {
        Self { url: Some(url), success: false, error_type, error: error.into() }
    }

    /// Creates an error about a missing decision.
    pub fn of_route(url: &'a str, error: &RouteError) -> Self {
        let error_type = match error {
            RouteError::Url(_) => "invalid_url",
            _ => "no_route",
        };
        Self::of_url(Some(url), error_type, error.to_string())
    }

    /// Returns it as a whole response with this status.
    pub(crate) fn response(&self, status: StatusCode) -> ProblemResponse<'_> {
        ProblemResponse { details: ProblemDetails::new(status, &self.error), problem: self }
    }

    /// Creates an error about a whole request.
    pub fn of_request(error_type: &'a str, error: impl Into<String>) -> Self {
        Self { url: None, success: false, error_type, error: error.into() }
    }
}
