//! The attempt log during a crawl: its health, its background maintenance, and the wait for results to be in it.
//!
//! Must not know: how links are fetched.

use std::sync::Arc;
use std::time::Duration;

use crate::commands::fetch::report::ResultDisplay;
use crate::setup::background_maintenance;
use crate::terminal::output::plain;
use fetchwise::journal::{Health, Journal};

/// The interval at which the log is checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The time for the log to take the attempts of a result.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// A watch over the log of a run.
pub(super) struct LogWatch {
    journal: Arc<Journal>,
    /// Whether the failing log was reported.
    is_degraded: bool,
    maintenance: Option<background_maintenance::RunningMaintenance>,
}

impl LogWatch {
    /// Returns a watch over `journal`, which owns its background maintenance.
    pub(super) fn new(journal: Arc<Journal>, maintenance: Option<background_maintenance::RunningMaintenance>) -> Self {
        Self { journal, is_degraded: false, maintenance }
    }

    /// Reports when the log begins to fail, and when it recovers. Fetching continues, and attempts wait in memory.
    pub(super) fn check_health(&mut self, show: &ResultDisplay<'_>) {
        match self.journal.health() {
            Health::Degraded { reason, storage_full } if !self.is_degraded => {
                self.is_degraded = true;
                let advice = if storage_full { ": free space on its file system" } else { "" };
                show.note(&format!(
                    "fetchwise: warning: the attempt log is degraded ({reason}); fetching continues, and attempts wait \
                     in memory{advice}"
                ));
            }
            Health::Good if self.is_degraded => {
                self.is_degraded = false;
                show.note("fetchwise: the attempt log has recovered");
            }
            _ => {}
        }
    }

    /// Prints the messages of background maintenance.
    pub(super) fn report_maintenance(&self, show: &ResultDisplay<'_>) {
        for words in self.maintenance.iter().flat_map(background_maintenance::RunningMaintenance::messages) {
            show.note(&plain(&words));
        }
    }

    /// Stops background maintenance: only the closing task may use the journal when it closes.
    pub(super) fn stop_maintenance(&mut self) {
        if let Some(maintenance) = self.maintenance.take() {
            maintenance.stop();
        }
    }

    /// Waits for the log. If it fails or stalls, the end of the run reports that; results are printed anyway.
    pub(super) async fn settle(&self) {
        let _ = tokio::time::timeout(SETTLE_TIME, self.journal.settled()).await;
    }
}
