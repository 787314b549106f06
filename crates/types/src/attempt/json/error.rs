//! The reasons why a line of JSON is not a valid attempt, as its author sees them.

use crate::heuristic::url::UrlError;

/// The reason why a line is not a valid attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is not JSON, or not a JSON object.
    #[error("not a JSON object: {reason} (column {column})")]
    Json {
        /// The parser's message.
        reason: String,
        /// The column, counted from 1.
        column: usize,
    },
    /// It lacks a required field.
    #[error("missing `{field}`: an attempt needs `url`, `fetcher`, `success` and `attempted_at`")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("`{field}` {reason}")]
    Invalid {
        /// The field, as in `heuristics[0].type`.
        field: String,
        /// The expected and the actual value, shortened.
        reason: String,
    },
    /// The URL cannot be fetched.
    #[error("`url`: {0}")]
    Url(#[source] UrlError),
    /// No response can come from the URL after redirects.
    #[error("`final_url`: {0}")]
    FinalUrl(#[source] UrlError),
    /// Two fields exclude each other.
    #[error(
        "`success` is true although `{field}` is {got}: an attempt either delivered content or failed"
    )]
    Contradiction {
        /// The other field.
        field: &'static str,
        /// Its value.
        got: String,
    },
    /// The two fields about a block contradict each other.
    #[error("`is_banned` is {is_banned} although `error_type` is {error_type:?}")]
    Ban {
        /// The value of `is_banned`.
        is_banned: bool,
        /// The value of `error_type`.
        error_type: &'static str,
    },
}
