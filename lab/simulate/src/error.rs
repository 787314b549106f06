//! Errors of a simulation.

/// The reason why a simulation cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// There is no policy of this name.
    #[error("unknown policy {name:?}: expected one of {}", .known.join(", "))]
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
    #[error("invalid policy of a fleet: the oracle does not learn; name a policy that learns")]
    NoLearner,
    /// A message of a fleet could not be written or read.
    #[error("invalid message of the fleet: {0}")]
    Codec(String),
    /// The selector cannot be built.
    #[error(transparent)]
    Selector(#[from] fetchwise::Error),
}
