//! The exchange of attempts with other nodes: the publisher, the consumer, and the messages of
//! both.
//!
//! Must not know: which broker carries the messages.

pub(crate) mod batching;
pub(crate) mod build_snapshot;
pub(crate) mod consumer;
pub mod forget;
pub(crate) mod global_publisher;
pub(crate) mod node_id_lease;
pub(crate) mod publisher;
mod retransmit_limit;

use fetchwise_log::Acknowledgement;
use futures_util::FutureExt;

use crate::error::FleetError;

/// Runs blocking work on another thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FleetError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FleetError::Left)
}

/// Waits until a log has synced what it was asked to.
pub(crate) async fn synced(mut flushed: Acknowledgement) -> Result<(), FleetError> {
    let done = match (&mut flushed).now_or_never() {
        Some(done) => done,
        // The log's own thread is unknown to tokio: if this task waited for it, the paused clock of
        // a test would run on meanwhile. It stands still while blocking work is under way.
        None => run_blocking(move || flushed.wait()).await?,
    };
    done.map_err(|error| FleetError::Record(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fetchwise::attempt::Attempt;
    use fetchwise::journal::{Durability, Journal, JournalOptions};
    use fetchwise::time::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_stands_still_while_a_log_syncs() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) =
            Journal::open(dir.path(), JournalOptions::default().durability(Durability::Os))
                .unwrap();
        let url = url::Url::parse("https://e.org/").unwrap();
        let attempt = Attempt::new(&url, "direct_access", Timestamp::default()).unwrap();
        for _ in 0..2000 {
            journal.append_attempt(&attempt).unwrap();
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_secs(3600)) => panic!("the clock has run on"),
            done = synced(journal.flush()) => done.unwrap(),
        }
        assert!(journal.durable_seq() >= 2000);
    }
}
