//! The crate's one error: what building a selector, opening its journal and asking it about a URL can fail with.
//!
//! Parts have errors of their own, which say more; each of them turns into this one with `?`.

use crate::evidence::decay::HalfLifeError;
use crate::heuristic::url::UrlError;
use crate::registry::RegistryError;

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
    /// The journal cannot be opened or read.
    #[cfg(feature = "journal")]
    #[error(transparent)]
    Journal(#[from] crate::journal::JournalError),
    /// The rules of detection cannot be read.
    #[cfg(feature = "detect")]
    #[error(transparent)]
    Rules(#[from] crate::detect::RuleFileError),
    /// The config cannot be used.
    #[cfg(feature = "config")]
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
}
