//! The exchange of attempts with other nodes: the publisher, the consumer, and the messages of both.
//!
//! Must not know: which broker carries the messages.

pub(crate) mod batching;
pub(crate) mod build_global_evidence;
pub(crate) mod build_snapshot;
pub(crate) mod consumer;
pub mod forget;
pub(crate) mod node_id_lease;
pub(crate) mod publisher;
mod retransmit_limit;

use crate::error::FleetError;

/// Runs blocking work on another thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FleetError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FleetError::Left)
}
