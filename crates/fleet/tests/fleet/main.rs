//! Whole nodes over the in-process broker, and the parts of a fleet that need no broker.
//!
//! Tests start in the order of their names. Those of a queue wait for leases to end, longer than any other, and so come first.
#![allow(clippy::unwrap_used, reason = "an error fails the test")]

mod common;
mod crawl_queue;
mod exchange;
mod hostile;
mod limits;
mod links;
mod measurements;
mod pauses;
mod scope_own;
mod site_handover;
mod snapshot_validation;
mod transport;
