//! Whole nodes over the in-process broker, and the parts of a fleet that need no broker.
//!
//! Invariants: time is that of tokio's paused clock. It jumps to the next timer when all tasks
//! wait, and stands still while another thread works for one of them, so no lease ends because the
//! machine is busy. A test that shows that nothing happens lets this time pass.
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
