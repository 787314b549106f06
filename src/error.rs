//! Error type of the crate: failures of building a selector, opening its journal and requesting a
//! decision about a URL.
//!
//! The parts have more specific errors, and `?` converts each of them to this one. Errors of parts
//! above the selector are held as trait objects, so that nothing here imports them.

use crate::evidence::decay::HalfLifeError;
use fetchwise_types::heuristic::url::UrlError;
use fetchwise_types::registry::RegistryError;

/// Error of fetchwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The half-life is out of range.
    #[error(transparent)]
    HalfLife(#[from] HalfLifeError),
    /// The fetchers cannot be candidates together.
    #[error(transparent)]
    Fetchers(#[from] RegistryError),
    /// No fetcher has this name.
    #[error("unknown fetcher {name}: expected one of {}", .known.join(", "))]
    UnknownFetcher {
        /// Unknown name.
        name: String,
        /// Known names.
        known: Vec<String>,
    },
    /// Another process has the journal's directory.
    #[error("{source}")]
    Locked {
        /// Its process id, if it could be read.
        pid: Option<u32>,
        /// The `JournalError`, which names the directory.
        source: Source,
    },
    /// The journal cannot be opened or read: a `JournalError`.
    #[error(transparent)]
    Journal(Source),
    /// The detection rules cannot be read: a `RuleFileError` or `RuleError`.
    #[error(transparent)]
    Rules(Source),
    /// The config cannot be used: a `ConfigError`.
    #[error(transparent)]
    Config(Source),
}

/// Error of a part above this one.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

#[cfg(feature = "detect")]
impl From<fetchwise_detect::RuleFileError> for Error {
    fn from(error: fetchwise_detect::RuleFileError) -> Self {
        Self::Rules(Box::new(error))
    }
}

#[cfg(feature = "detect")]
impl From<fetchwise_detect::RuleError> for Error {
    fn from(error: fetchwise_detect::RuleError) -> Self {
        Self::Rules(Box::new(error))
    }
}
