//! The crate's one error: what building a selector, opening its journal and asking it about a URL can fail with.
//!
//! Parts have errors of their own, which say more; each of them turns into this one with `?`. Those of parts that stand above the
//! selector are held as trait objects, so that nothing here imports them.

use crate::evidence::decay::HalfLifeError;
use fetchwise_types::heuristic::url::UrlError;
use fetchwise_types::registry::RegistryError;

/// Why fetchwise cannot do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL is not one that can be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The half-life is outside what can be configured.
    #[error(transparent)]
    HalfLife(#[from] HalfLifeError),
    /// The fetchers cannot be candidates together.
    #[error(transparent)]
    Fetchers(#[from] RegistryError),
    /// There is no fetcher of this name.
    #[error("there is no fetcher called {name}; there are: {}", .known.join(", "))]
    UnknownFetcher {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The journal cannot be opened or read: a `JournalError`.
    #[error(transparent)]
    Journal(Source),
    /// The rules of detection cannot be read: a `RuleFileError` or `RuleError`.
    #[error(transparent)]
    Rules(Source),
    /// The config cannot be used: a `ConfigError`.
    #[error(transparent)]
    Config(Source),
}

/// An error of a part that stands above this one.
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
