//! Why a line of JSON is no attempt, as it is said to whoever wrote the line.

use crate::heuristic::url::UrlError;

/// Why a line is no attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is not JSON, or no JSON object.
    #[error("not a JSON object: {reason} (column {column})")]
    Json {
        /// What the parser said.
        reason: String,
        /// Where, counted from 1.
        column: usize,
    },
    /// It lacks a field that every attempt has.
    #[error("`{field}` is missing; an attempt needs `url`, `fetcher`, `success` and `attempted_at`")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field holds what it cannot hold.
    #[error("`{field}` {reason}")]
    Invalid {
        /// The field, as in `heuristics[0].type`.
        field: String,
        /// What it must be, and what it is, shortened.
        reason: String,
    },
    /// The URL is not one that can be fetched.
    #[error("`url`: {0}")]
    Url(#[source] UrlError),
    /// Two fields exclude each other.
    #[error("`success` is true although `{field}` is {got}: an attempt either delivered content or failed")]
    Contradiction {
        /// The other field.
        field: &'static str,
        /// Its value.
        got: String,
    },
    /// The two fields that tell of a block do not agree.
    #[error("`is_banned` is {is_banned} although `error_type` is {error_type:?}")]
    Ban {
        /// What `is_banned` says.
        is_banned: bool,
        /// What `error_type` says.
        error_type: &'static str,
    },
}
