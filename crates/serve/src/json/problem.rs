//! What went wrong with one input, or with a whole request.

use serde::Serialize;

use fetchwise::router::RouteError;

/// An error about one URL, line or request.
#[derive(Debug, Serialize)]
pub struct ProblemJson<'a> {
    /// None where it is about no URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<Option<&'a str>>,
    /// Always false.
    success: bool,
    error_type: &'a str,
    /// What is wrong and what to do, for a person.
    error: String,
}

impl<'a> ProblemJson<'a> {
    /// About a URL; none for something that was to be one and is no text.
    pub fn of_url(url: Option<&'a str>, error_type: &'a str, error: impl Into<String>) -> Self {
        Self { url: Some(url), success: false, error_type, error: error.into() }
    }

    /// About a decision that there is none of.
    pub fn of_route(url: &'a str, error: &RouteError) -> Self {
        let error_type = match error {
            RouteError::Url(_) => "invalid_url",
            _ => "no_route",
        };
        Self::of_url(Some(url), error_type, error.to_string())
    }

    /// About a whole request.
    pub fn of_request(error_type: &'a str, error: impl Into<String>) -> Self {
        Self { url: None, success: false, error_type, error: error.into() }
    }
}
