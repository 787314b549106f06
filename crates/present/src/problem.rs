//! The JSON of an error about one input or a whole request.

use serde::Serialize;

use fetchwise::router::RouteError;

/// An error about one URL, line or request.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "UrlProblem"))]
pub struct ProblemJson<'a> {
    /// The URL that the error concerns; absent if it concerns none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    url: Option<Option<&'a str>>,
    #[cfg_attr(feature = "schema", schemars(extend("const" = false)))]
    success: bool,
    /// The name of the error, for programs.
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

    /// Returns the error and what to do about it, for people.
    pub fn error(&self) -> &str {
        &self.error
    }

    /// Creates an error about a whole request.
    pub fn of_request(error_type: &'a str, error: impl Into<String>) -> Self {
        Self { url: None, success: false, error_type, error: error.into() }
    }
}
