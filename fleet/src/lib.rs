//! Many fetchwise crawlers that learn as one.
//!
//! Each node keeps its own log, which stays the truth. What it has learned travels over a broker that may lose, double or reorder
//! anything, and still each node ends up with the evidence of all.

pub mod hosts;
#[cfg(feature = "nats")]
pub mod nats;
pub mod origin;
pub mod transport;
