//! Errors of a fleet, separated by what an operator has to do about them.

use std::path::PathBuf;
use std::sync::Arc;

use fetchwise::journal::{JournalError, LogError};

use crate::model::node_id::NodeId;
use crate::transport::TransportError;

/// The reason why a node cannot take part.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// An error of the node's own log.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An error of the log of what was received from peers, `peers/`.
    #[error("peers/, which holds what others have told and is told again where it is deleted: {0}")]
    Peers(#[from] LogError),
    /// An error of the broker.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// `fleet.state` cannot be read.
    #[error(
        "{path} {what}: put it back from a backup; without it the node would join as a new one, and others would count its attempts twice"
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        what: String,
    },
    /// An I/O error on a file of the fleet.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// Another live process has joined with this node id.
    #[error(
        "node {node_id} is in the fleet already, from {place}: a copy of a data directory must not join beside the original; give the copy a directory of its own"
    )]
    Held {
        /// The node id of both processes.
        node_id: NodeId,
        /// The place where the other process runs.
        place: String,
    },
    /// Another node of the pool has a different setting.
    #[error("node {by} of this pool has {what} {theirs}, this one has {ours}: all nodes of a pool must agree")]
    Differs {
        /// The other node.
        by: NodeId,
        /// The name of the setting.
        what: &'static str,
        /// The value of the other node.
        theirs: String,
        /// The value of this node.
        ours: String,
    },
    /// `peers/` was filled in another scope.
    #[error(
        "peers/ in the data directory holds what was read in another scope than {ours}: delete it, and what the others have told is told again"
    )]
    OtherScope {
        /// The scope of this node now.
        ours: &'static str,
    },
    /// `peers/` holds an invalid record.
    #[error("peers/ holds what this release cannot read: {0}")]
    Record(String),
    /// A selector cannot be built.
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

    /// Returns whether the error stays until an operator acts.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Journal(error) => error.is_refusal(),
            Self::Peers(LogError::Io { .. }) | Self::Transport(_) | Self::Io { .. } | Self::Ended => false,
            _ => true,
        }
    }
}
