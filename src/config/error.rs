//! Errors of configs and router tables, with their places.

use std::path::{Path, PathBuf};

use super::origin::{Origin, Problem, TextPosition};
use crate::router::TableError;

/// Error of a config or a router table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: std::io::Error,
    },
    /// The settings are invalid: a syntax error, an unknown key or name, a wrong type, or a value
    /// out of range.
    #[error("{}", join_lines(.0))]
    Settings(Vec<Problem>),
    /// The router table is invalid.
    #[error("{path}, {source}")]
    Table {
        /// Path of the file.
        path: PathBuf,
        /// Error with its line.
        source: TableError,
    },
}

impl ConfigError {
    /// Converts a syntax error of `text`.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let at = TextPosition::of(text, error.span().map_or(0, |span| span.start));
        let message = error.message().trim_end().to_owned();
        let origin = Origin::File { path: path.into(), at };
        Self::Settings(vec![Problem { origin, key: String::new(), message, meant: None }])
    }

    /// Returns all problems of the settings; none for other errors.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Settings(problems) => problems,
            _ => &[],
        }
    }
}

/// Formats one problem per line.
fn join_lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Value out of range, without its place in a file.
#[derive(Debug, PartialEq)]
pub(super) struct InvalidValue {
    /// Path through the tables, as in `["fetcher", "2", "cost"]`; indexes of lists count from 0.
    pub(super) way: Vec<String>,
    pub(super) value: String,
    pub(super) expected: String,
}

impl From<ConfigError> for crate::error::Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}
