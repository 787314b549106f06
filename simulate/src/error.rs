//! Why a simulation cannot be run.

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// Nobody has this name.
    #[error("no policy called {name:?}; there are: {}", .known.join(", "))]
    UnknownPolicy {
        /// The name.
        name: String,
        /// The names there are.
        known: &'static [&'static str],
    },
    /// There is nothing to run.
    #[error("no seeds to run")]
    NoSeeds,
    /// The selector cannot be built.
    #[error(transparent)]
    Selector(#[from] fetchwise::Error),
}
