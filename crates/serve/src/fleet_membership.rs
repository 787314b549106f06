//! The interface between a server and the fleet that its node belongs to.
//!
//! Must not know: brokers, messages.

use std::fmt::Debug;
use std::pin::Pin;

use fetchwise::time::Timestamp;
use fetchwise_present::FleetJson;

/// The future of a call that waits for the broker.
pub type MembershipFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The membership of a node in a fleet.
pub trait Membership: Debug + Send + Sync {
    /// Returns the state of the node and its peers as of its last check; none after it left the
    /// fleet.
    fn status(&self) -> Option<FleetJson>;

    /// Makes all nodes forget a domain up to a time, now or when they are back. The error says, for
    /// people, why they were not notified.
    fn forget(&self, domain: String, until: Timestamp) -> MembershipFuture<Result<(), String>>;
}
