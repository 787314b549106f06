//! Errors of a simulation.

/// The reason why a simulation cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// There is no policy of this name.
    #[error("no policy called {name:?}; there are: {}", .known.join(", "))]
    UnknownPolicy {
        /// The name.
        name: String,
        /// The known names.
        known: &'static [&'static str],
    },
    /// There is nothing to run.
    #[error("no seeds to run")]
    NoSeeds,
    /// A fleet of oracles learns nothing.
    #[error("the oracle learns nothing, so a fleet of it is none: name a policy that learns")]
    NoLearner,
    /// A message of a fleet could not be written or read.
    #[error("a message of the fleet: {0}")]
    Codec(String),
    /// The selector cannot be built.
    #[error(transparent)]
    Selector(#[from] fetchwise::Error),
}
