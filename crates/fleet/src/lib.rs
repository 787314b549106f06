//! Many fetchwise crawlers that learn as one.
//!
//! Each node keeps its own log, which stays the truth. What it has learned travels over a broker that may lose, double or reorder
//! anything, and still each node ends up with the evidence of all. [`Fleet::join`] is where to begin.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod background;
pub mod error;
#[doc(hidden)]
pub mod failpoints;
pub mod model;
mod node;
pub mod pauses;
pub mod peer_store;
#[cfg(test)]
mod proptests;
pub mod sync;
pub mod transport;

pub use error::FleetError;
pub use model::node_id::Origin;
pub use model::options::{Options, Scope, Timing};
pub use model::status::Status;
pub use node::Fleet;
