//! Many fetchwise crawlers that learn as one.
//!
//! Each node keeps its own log, which stays the truth. What it has learned travels over a broker that may lose, double or reorder
//! anything, and still each node ends up with the evidence of all. [`Fleet::join`] is where to begin.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod background;
mod batches;
pub mod book;
pub mod codec;
mod consumer;
pub mod error;
mod fleet;
pub mod forget;
pub mod general;
pub mod hosts;
pub mod intervals;
mod lease;
pub mod links;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
pub mod options;
pub mod origin;
mod own_share;
pub mod owner;
pub mod peers;
#[doc(hidden)]
pub mod points;
pub mod presence;
#[cfg(test)]
mod properties;
mod publisher;
pub mod share;
pub mod state;
pub mod status;
pub mod suspicious;
pub mod transport;

pub use error::FleetError;
pub use fleet::Fleet;
pub use options::{Options, Scope, Timing};
pub use origin::Origin;
pub use status::Status;
