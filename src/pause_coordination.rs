//! Pauses that processes with one egress IP share: a site that blocks one of them blocks them all.
//!
//! Owns: the hook that receives this process's pauses, and the permission to try out a host whose
//! pause ended.
//!
//! Invariants: no permission is requested for a host that was never paused.
//!
//! Must not know: the other processes, and how to reach them.

use std::fmt;

use event_listener::{Event, EventListener};

use fetchwise_types::time::Timestamp;

/// Coordinates host pauses between the processes that share an address. Set with
/// [`Selector::set_pause_coordinator`](crate::Selector::set_pause_coordinator).
///
/// Visits call all methods while they run. No method may block or call the selector.
pub trait PauseCoordinator: fmt::Debug + Send + Sync {
    /// Reports that this process paused a host at `at`, until `until`.
    fn paused(&self, domain: &str, until: Timestamp, at: Timestamp);

    /// Reports that a host is fine again, because this process found out or because an operator
    /// said so.
    fn lifted(&self, domain: &str);

    /// Returns whether this process may try out the host. Its pause ended at `ended`. After
    /// [`TrialPermission::NotBefore`], a visit holds the host until then and asks once more,
    /// because the permission may have arrived meanwhile.
    fn may_try(&self, domain: &str, ended: Timestamp, now: Timestamp) -> TrialPermission;
}

/// Permission to try out a host.
#[derive(Debug)]
pub enum TrialPermission {
    /// This process may try out the host now.
    Now,
    /// Another process tries out the host; this one waits at least until then.
    NotBefore(Timestamp),
    /// The permission is not settled yet; ask again when [`Resolved`] completes.
    Pending(Resolved),
}

/// The event that settles a pending permission.
#[derive(Debug)]
pub struct Resolved(pub(crate) EventListener);

/// Wakes the visits that wait for a pending permission.
#[derive(Debug, Default)]
pub struct Resolver(Event);

impl Resolver {
    /// Returns a listener for the next [`Resolver::resolve`]. Listen first, then check whether the
    /// permission has been settled already.
    pub fn wait(&self) -> Resolved {
        Resolved(self.0.listen())
    }

    /// Wakes all listeners: the permission is settled.
    pub fn resolve(&self) {
        self.0.notify(usize::MAX);
    }
}
