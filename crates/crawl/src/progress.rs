//! How many items of the input are finished, and how.
//!
//! Must not know: when it is reported.

use crate::paused_links::PauseSummary;
use crate::remaining_time::RemainingTime;
use crate::sink::CrawlStatus;
use crate::totals::Totals;
use fetchwise::time::Timestamp;

/// The counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The number of items of the input, if it is known.
    total: Option<u64>,
    /// The number of finished items, with those of an earlier run.
    pub(crate) done: u64,
    pub(crate) totals: Totals,
}

impl Progress {
    /// Returns the counts of a run that begins.
    pub(crate) fn new(total: Option<u64>) -> Self {
        Self { total, ..Self::default() }
    }

    /// Counts links that are not among the items of the input.
    pub(crate) fn added(&mut self, count: u64) {
        self.total = self.total.map(|total| total + count);
    }

    /// Counts links that an earlier run finished.
    pub(crate) fn skipped(&mut self, count: u64) {
        self.totals.skipped += count;
        self.done += count;
    }

    /// Counts links that the input has named before.
    pub(crate) fn duplicates(&mut self, count: u64) {
        self.totals.duplicates += count;
        self.done += count;
    }

    /// Counts links that a selection leaves out.
    pub(crate) fn left_out(&mut self, count: u64) {
        self.total = self.total.map(|total| total.saturating_sub(count));
    }

    /// Returns the number of items without a result, if it is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.total.map(|total| total.saturating_sub(self.done))
    }

    /// Returns the status of a run without a work queue, whose connection is good.
    pub(crate) fn status(
        &self,
        remaining: RemainingTime,
        paused: Option<PauseSummary>,
        at: Timestamp,
    ) -> CrawlStatus<'_> {
        let Self { total, done, ref totals } = *self;
        CrawlStatus {
            total,
            done,
            totals,
            remaining,
            paused,
            queue_left: None,
            connection_lost: None,
            at,
        }
    }
}
