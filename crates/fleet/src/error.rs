//! What can go wrong with a fleet, told apart by what somebody has to do about it.

use std::path::PathBuf;
use std::sync::Arc;

use fetchwise::journal::{JournalError, LogError};

use crate::model::node_id::Origin;
use crate::transport::TransportError;

/// Why a node cannot take part.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The node's own log.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The log of what others have told, `peers/`.
    #[error("peers/, which holds what others have told and is told again where it is deleted: {0}")]
    Peers(#[from] LogError),
    /// The broker.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// `fleet.state` cannot be read.
    #[error(
        "{path} {what}: put it back from a backup; without it the node would join as a new one, and others would count its attempts twice"
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file of the fleet's.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: Arc<std::io::Error>,
    },
    /// Another process has joined with this origin and is alive.
    #[error(
        "node {origin} is in the fleet already, from {place}: a copy of a data directory must not join beside the original; give the copy a directory of its own"
    )]
    Held {
        /// The origin of both.
        origin: Origin,
        /// Where the other one runs.
        place: String,
    },
    /// The others keep their evidence otherwise.
    #[error("node {by} of this pool has {what} {theirs}, this one has {ours}: all nodes of a pool must agree")]
    Differs {
        /// Who.
        by: Origin,
        /// What differs.
        what: &'static str,
        /// Theirs.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// What `peers/` holds was read in another scope.
    #[error(
        "peers/ in the data directory holds what was read in another scope than {ours}: delete it, and what the others have told is told again"
    )]
    OtherScope {
        /// The scope of this node now.
        ours: &'static str,
    },
    /// What peers/ holds cannot be.
    #[error("peers/ holds what this release cannot read: {0}")]
    Record(String),
    /// A selector cannot be made.
    #[error("{0}")]
    Selector(String),
    /// The fleet's tasks have ended.
    #[error("the node has left the fleet")]
    Ended,
}

impl FleetError {
    pub(crate) fn io(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source: Arc::new(source) }
    }

    /// Whether it will be so until somebody does something about it.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Journal(error) => error.is_refusal(),
            Self::Peers(LogError::Io { .. }) | Self::Transport(_) | Self::Io { .. } | Self::Ended => false,
            _ => true,
        }
    }
}
