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
    #[error("cannot use peers/, which is received again if deleted: {0}")]
    Peers(#[from] LogError),
    /// An error of the broker.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// `fleet.state` cannot be read.
    #[error(
        "{path} {what}: restore it from a backup; with a new node id, peers would count its attempts twice"
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
        "node {node_id} is already in the fleet, from {place}: a copied data directory must not join alongside the original"
    )]
    Held {
        /// The node id of both processes.
        node_id: NodeId,
        /// The place where the other process runs.
        place: String,
    },
    /// Another node of the pool has a different setting.
    #[error(
        "node {by} of this pool has {what} {theirs}, this one has {ours}: all nodes of a pool must agree"
    )]
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
        "peers/ was filled in another scope than {ours}: delete it, its content is received again"
    )]
    OtherScope {
        /// The scope of this node now.
        ours: &'static str,
    },
    /// `peers/` holds an invalid record.
    #[error("invalid record in peers/: {0}")]
    Record(String),
    /// A selector cannot be built.
    #[error("{0}")]
    Selector(String),
    /// The fleet's tasks have ended.
    #[error("the node has left the fleet")]
    Left,
}

impl FleetError {
    pub(crate) fn io(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source: Arc::new(source) }
    }

    /// Returns whether the error stays until an operator acts.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Journal(error) => error.is_refusal(),
            Self::Peers(LogError::Io { .. })
            | Self::Transport(_)
            | Self::Io { .. }
            | Self::Left => false,
            _ => true,
        }
    }
}
