//! Shared learning between fetchwise crawlers.
//!
//! Each node keeps its own attempt log, which stays the source of truth. Attempts travel over a
//! broker that may lose, duplicate or reorder messages. Every node still ends up with the evidence
//! of all nodes. Start with [`Fleet::join`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod error;
#[doc(hidden)]
pub mod failpoints;
pub mod model;
mod node;
pub mod pauses;
pub mod peer_store;
#[cfg(test)]
mod proptests;
pub mod queue;
pub mod sync;
pub mod transport;

pub use error::FleetError;
pub use fetchwise::fleet_status::FleetStatus;
pub use model::node_id::NodeId;
pub use model::options::{Options, Scope, Timing};
pub use node::Fleet;
