//! Exchanging attempts with other nodes: the publisher, the consumer, and what both send in batches.
//!
//! Must not know: which broker carries the messages.

pub(crate) mod batching;
pub(crate) mod build_global_evidence;
pub(crate) mod build_snapshot;
pub(crate) mod consumer;
pub mod forget;
pub(crate) mod lease;
pub(crate) mod publisher;
