//! The fleet that a server's node is in: whoever has joined it answers here.
//!
//! Must not know brokers, nor what travels.

use std::fmt::Debug;
use std::pin::Pin;

use crate::json::FleetJson;
use fetchwise::time::Timestamp;

/// An answer that takes as long as a broker does.
pub type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A node's part in a fleet.
pub trait Membership: Debug + Send + Sync {
    /// How the node and the others are, as of its last look; none once it has left.
    fn status(&self) -> Option<FleetJson>;

    /// Has all nodes forget a domain up to a time, now or when they are back. The error says, for a person, why they were not told.
    fn forget(&self, domain: String, until: Timestamp) -> Answer<Result<(), String>>;
}
