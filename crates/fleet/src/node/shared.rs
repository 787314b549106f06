//! The state that a node's tasks share, and the commands to them.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::FleetError;
use crate::model::node_id::NodeId;
use crate::model::options::Options;
use fetchwise::fleet_status::{FleetCounts, FleetStatus};

/// The delay before a failed task tries again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum time for the last heartbeat.
pub(super) const LAST_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// The capacity of the command queue.
pub(super) const COMMAND_QUEUE_LEN: usize = 16;

/// Whether tasks are to end, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopMode {
    /// Not yet.
    No,
    /// At their next step.
    Now,
    /// After a last heartbeat, if the broker responds soon.
    WithHeartbeat,
}

/// A command to a task.
pub(super) enum Command {
    /// Publish everything and an evidence snapshot.
    Leave(oneshot::Sender<Result<(), FleetError>>),
    /// Accept a node that was set aside.
    Readmit(NodeId, oneshot::Sender<Result<(), FleetError>>),
}

/// The state that the tasks share with each other and the handle.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    pub(super) status: Mutex<FleetStatus>,
    pub(super) nodes: Mutex<Vec<NodeId>>,
    pub(super) published: Mutex<FleetCounts>,
    /// Whether the broker has lost the global snapshots.
    pub(super) global_is_lost: AtomicBool,
    /// Whether the node no longer fetches the links of its queue.
    pub(super) has_left_queue: AtomicBool,
    /// Whether attempts that the node's own log has lost were learned again. They belong into the
    /// global snapshot.
    pub(super) has_learned_past: AtomicBool,
}

impl SharedState {
    /// Returns the state of a node that joins. `is_checked` if the broker was there to check it.
    pub(super) fn joining(node_id: NodeId, options: &Options, is_checked: bool) -> Self {
        let status = FleetStatus {
            node: node_id.to_string(),
            pool: options.pool.clone(),
            scope: options.scope.name().to_owned(),
            broker: is_checked,
            syncing: true,
            ..FleetStatus::default()
        };
        Self { status: Mutex::new(status), nodes: Mutex::new(vec![node_id]), ..Self::default() }
    }
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
