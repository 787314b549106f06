//! What is wrong with a config or a router table, and where.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::names::nearest;
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
    /// It is no TOML, or has a key, a name or a type that is not known.
    #[error("{path}, line {line}: {message}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What was found and what was expected.
        message: String,
    },
    /// A value is out of its range.
    #[error("{path}, line {line}: {key} is {value}; {expected}")]
    Value {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The key's full name.
        key: String,
        /// What it was set to.
        value: String,
        /// What it can be.
        expected: String,
    },
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
    /// What the parser found in `text`, with the nearest key when one is not known.
    pub(super) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let line = line_at(text, error.span().map_or(0, |span| span.start));
        let mut message = error.message().trim_end().to_owned();
        if let Some(meant) = meant(&message) {
            message.push_str(&format!("; did you mean `{meant}`?"));
        }
        Self::Syntax { path: path.to_owned(), line, message }
    }
}

/// A value that is out of its range, as long as nobody knows where it stands.
#[derive(Debug, PartialEq)]
pub(super) struct BadValue {
    /// The way to it through the tables, as in `["fetcher", "2", "cost"]`; places in lists are counted from 0.
    pub(super) way: Vec<String>,
    pub(super) value: String,
    pub(super) expected: String,
}

impl BadValue {
    /// The error with the value's place in `text`.
    pub(super) fn at(self, path: &Path, text: &str) -> ConfigError {
        let Self { way, value, expected } = self;
        ConfigError::Value { path: path.to_owned(), line: line_of(text, &way), key: way.join("."), value, expected }
    }
}

/// The line in which byte `at` of `text` stands, counted from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The line of the value at the end of `way`, or of the last table on the way that is there.
fn line_of(text: &str, way: &[String]) -> usize {
    let Ok(file) = DeTable::parse(text) else { return 1 };
    let (mut at, mut value) = (0, DeValue::Table(file.into_inner()));
    for step in way {
        let next = match value {
            DeValue::Table(table) => {
                table.into_iter().find(|(key, _)| is_key(key.get_ref(), step)).map(|(_, value)| value)
            }
            DeValue::Array(list) => step.parse().ok().and_then(|place| list.into_iter().nth(place)),
            _ => None,
        };
        let Some(next) = next else { break };
        at = next.span().start;
        value = next.into_inner();
    }
    line_at(text, at)
}

/// Whether a key of the file is the one called `name`; the key of a time may say its unit.
fn is_key(key: &str, name: &str) -> bool {
    key == name || key.strip_prefix(name).is_some_and(|unit| matches!(unit, "_s" | "_ms"))
}

/// The key or name that was probably meant, where `message` is serde's "unknown field `a`, expected one of `b`, `c`".
fn meant(message: &str) -> Option<&str> {
    if !message.starts_with("unknown ") {
        return None;
    }
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    nearest(unknown, names)
}

impl From<ConfigError> for crate::error::Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}
