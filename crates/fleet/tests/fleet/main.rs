//! Whole nodes over the in-process broker, and the parts of a fleet that need no broker.
#![allow(clippy::unwrap_used, reason = "an error fails the test")]

mod common;
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
mod work_queue;
