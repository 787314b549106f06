//! What a node's tasks know of each other, and what is asked of them.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::FleetError;
use crate::model::node_id::Origin;
use crate::model::status::{Counts, Status};

/// After a failure a task waits for so long before it tries again.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// A broker that does not hear the last word by then hears none.
pub(super) const LAST_WORD: Duration = Duration::from_secs(2);
/// Commands that wait.
pub(super) const WAITING: usize = 16;

/// Whether tasks are to end, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Not yet.
    No,
    /// At their next step.
    Now,
    /// Once it has been said how far the node has come, where the broker hears it soon.
    Saying,
}

/// What somebody asks of a task.
pub(super) enum Ask {
    /// Publish everything, and a share.
    Leave(oneshot::Sender<Result<(), FleetError>>),
    /// Listen to an origin that was set aside.
    Hear(Origin, oneshot::Sender<Result<(), FleetError>>),
}

/// What the tasks know of each other and tell who asks.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) status: Mutex<Status>,
    pub(super) nodes: Mutex<Vec<Origin>>,
    pub(super) published: Mutex<Counts>,
    /// The broker has lost the general images.
    pub(super) general_is_wanted: AtomicBool,
    /// What the node's own log has lost was learned again: it belongs into the general image.
    pub(super) past_is_known: AtomicBool,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
