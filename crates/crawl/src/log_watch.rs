//! The attempt log during a crawl: its health, and the wait for results to be in it.
//!
//! Must not know: how links are fetched.

use std::sync::Arc;
use std::time::Duration;

use crate::sink::{CrawlEvent, CrawlSink};
use fetchwise::journal::{Health, Journal};

/// The interval at which the log is checked.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The time for the log to take the attempts of a result.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// A watch over the log of a run.
pub(crate) struct LogWatch {
    journal: Arc<Journal>,
    /// Whether the failing log was reported.
    is_degraded: bool,
    /// Whether failing evidence on disk was reported.
    is_evidence_degraded: bool,
}

impl LogWatch {
    /// Returns a watch over `journal`.
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self { journal, is_degraded: false, is_evidence_degraded: false }
    }

    /// Reports when the log or evidence on disk begins to fail, and when it recovers. Fetching
    /// continues; attempts wait in memory, or evidence does.
    pub(crate) fn check_health(&mut self, sink: &mut impl CrawlSink) {
        match self.journal.evidence_health() {
            Health::Degraded { reason, .. } if !self.is_evidence_degraded => {
                self.is_evidence_degraded = true;
                sink.event(CrawlEvent::EvidenceDegraded { reason: &reason });
            }
            Health::Good if self.is_evidence_degraded => {
                self.is_evidence_degraded = false;
                sink.event(CrawlEvent::EvidenceRecovered);
            }
            _ => {}
        }
        match self.journal.log_health() {
            Health::Degraded { reason, storage_full } if !self.is_degraded => {
                self.is_degraded = true;
                sink.event(CrawlEvent::LogDegraded {
                    reason: &reason,
                    is_storage_full: storage_full,
                });
            }
            Health::Good if self.is_degraded => {
                self.is_degraded = false;
                sink.event(CrawlEvent::LogRecovered);
            }
            _ => {}
        }
    }

    /// Waits for the log. If it fails or stalls, the owner of the journal learns that when it
    /// closes it; results are passed on anyway.
    pub(crate) async fn settle(&self) {
        let _ = tokio::time::timeout(SETTLE_TIME, self.journal.settled()).await;
    }
}
