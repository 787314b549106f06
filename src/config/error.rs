//! What is wrong with a config or a router table, and where.

use std::path::{Path, PathBuf};

use super::origin::{Origin, Place, Problem};
use crate::router::TableError;

/// A config that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The settings are not what they should be: no TOML, a key, a name or a type that is not known, a value out of its range.
    #[error("{}", told(.0))]
    Settings(Vec<Problem>),
    /// The router table cannot be used.
    #[error("{path}, {source}")]
    Table {
        /// Which file.
        path: PathBuf,
        /// Why, and in which line.
        source: TableError,
    },
}

impl ConfigError {
    /// What the parser found in `text`.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let at = Place::of(text, error.span().map_or(0, |span| span.start));
        let message = error.message().trim_end().to_owned();
        let origin = Origin::File { path: path.into(), at };
        Self::Settings(vec![Problem { origin, key: String::new(), message, meant: None }])
    }

    /// All that is wrong with the settings, as far as it is about them.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Settings(problems) => problems,
            _ => &[],
        }
    }
}

/// One problem a line.
fn told(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A value that is out of its range, as long as nobody knows where it stands.
#[derive(Debug, PartialEq)]
pub(super) struct BadValue {
    /// The way to it through the tables, as in `["fetcher", "2", "cost"]`; places in lists are counted from 0.
    pub(super) way: Vec<String>,
    pub(super) value: String,
    pub(super) expected: String,
}

/// The line in which byte `at` of `text` stands, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    Place::of(text, at).line
}

impl From<ConfigError> for crate::error::Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}
