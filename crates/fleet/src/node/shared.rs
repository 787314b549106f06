//! The state that a node's tasks share, and the commands to them.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::FleetError;
use crate::model::node_id::Origin;
use crate::model::status::{Counts, Status};

/// The delay before a failed task tries again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// The maximum time for the last heartbeat.
pub(super) const LAST_WORD: Duration = Duration::from_secs(2);
/// The capacity of the command queue.
pub(super) const WAITING: usize = 16;

/// Whether tasks are to end, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Not yet.
    No,
    /// At their next step.
    Now,
    /// After a last heartbeat, if the broker responds soon.
    Saying,
}

/// A command to a task.
pub(super) enum Ask {
    /// Publish everything and an evidence snapshot.
    Leave(oneshot::Sender<Result<(), FleetError>>),
    /// Accept a node that was set aside.
    Hear(Origin, oneshot::Sender<Result<(), FleetError>>),
}

/// The state that the tasks share with each other and the handle.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) status: Mutex<Status>,
    pub(super) nodes: Mutex<Vec<Origin>>,
    pub(super) published: Mutex<Counts>,
    /// Whether the broker has lost the global snapshots.
    pub(super) general_is_wanted: AtomicBool,
    /// Whether attempts that the node's own log has lost were learned again. They belong into the global snapshot.
    pub(super) past_is_known: AtomicBool,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
