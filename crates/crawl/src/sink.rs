//! What a crawl tells its caller: results, events, and how far it is.
//!
//! Must not know: how anything is shown.

use std::path::Path;

use crate::error::CrawlError;
use crate::input::position::InputPosition;
use crate::paused_links::PauseSummary;
use crate::remaining_time::RemainingTime;
use crate::totals::Totals;
use fetchwise::pipeline::{CrawlDelayCut, Link, Report};
use fetchwise::time::Timestamp;

/// A result of a crawl.
#[derive(Clone, Copy, Debug)]
pub enum CrawlResult<'a> {
    /// A link that was fetched, or that was left for a pause.
    Fetched {
        /// Its place in the input.
        position: InputPosition,
        /// The link. One that an earlier run has fetched has only its URL and its id.
        link: &'a Link,
        /// How it went.
        report: &'a Report,
        /// The time at which the crawl passes this on.
        at: Timestamp,
    },
    /// A line of the input that is no link, or that cannot be read again.
    Invalid {
        /// Its place in the input.
        position: InputPosition,
        /// What is wrong with it.
        error: &'a str,
    },
}

/// Something that a crawl meets besides its results.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CrawlEvent<'a> {
    /// The crawl begins: its inputs are open, and the state of the last run is read.
    Started,
    /// Results that an interrupted run left are not used, and their links are fetched again.
    ResultsIgnored {
        /// The file that had them.
        file: &'a Path,
        /// Why.
        reason: &'a str,
    },
    /// The attempt log begins to fail. Fetching continues, and attempts wait in memory.
    LogDegraded {
        /// Why.
        reason: &'a str,
        /// Whether its file system is full.
        is_storage_full: bool,
    },
    /// The attempt log has recovered.
    LogRecovered,
    /// Evidence that left memory cannot be written to disk or read. Fetching continues.
    EvidenceDegraded {
        /// Why, and what to do.
        reason: &'a str,
    },
    /// Evidence that left memory can be written and read again.
    EvidenceRecovered,
    /// A host asks for a longer `Crawl-delay` than the settings accept.
    CrawlDelayCut(&'a CrawlDelayCut),
    /// This host rejects the crawler's signature.
    SignatureRejected(&'a str),
    /// Nothing but paused links is left, and the run waits for them.
    Waiting {
        /// The links.
        paused: PauseSummary,
        /// The time of the event.
        at: Timestamp,
    },
    /// The crawl was told to stop, and waits for open requests.
    Stopping,
}

/// The sizes of a crawl's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSizes {
    /// Links that are read and not started, with those that wait for the end of a pause.
    pub waiting: usize,
    /// Links in progress.
    pub in_progress: usize,
    /// Hosts of both.
    pub hosts: usize,
    /// Finished items of the input, with those of an earlier run.
    pub done: u64,
}

/// How far a crawl is.
#[derive(Clone, Debug)]
pub struct CrawlStatus<'a> {
    /// The number of items of the input, if it is known.
    pub total: Option<u64>,
    /// The number of finished items, with those of an earlier run.
    pub done: u64,
    /// The results so far.
    pub totals: &'a Totals,
    /// The remaining time of the links that wait for no pause.
    pub remaining: RemainingTime,
    /// The links that wait for the end of a pause; none without one.
    pub paused: Option<PauseSummary>,
    /// The number of links that a work queue still has, at all nodes; none without a queue.
    pub queue_left: Option<u64>,
    /// Since when no site answers this machine, so that all links wait; none while its connection is
    /// good.
    pub connection_lost: Option<Timestamp>,
    /// The time of all this.
    pub at: Timestamp,
}

/// Where a crawl passes its results on. The crawl calls it from its own task: while it works, no
/// link starts.
///
/// Only [`result`](Self::result) has to be written. A closure that takes a [`CrawlResult`] is a
/// sink, too.
pub trait CrawlSink {
    /// Why it takes no further result, which ends the crawl; also what the crawl itself fails with.
    type Error: From<CrawlError>;

    /// Takes a result. The attempts of its link survive the end of the process by now, and the link
    /// counts as done once this has returned: a killed run that is continued passes every result on
    /// at least once. It fetches the links that the sink has added meanwhile with a
    /// [`LinkAdder`](crate::LinkAdder), too.
    ///
    /// # Errors
    /// The sink takes no further result.
    fn result(&mut self, result: CrawlResult<'_>) -> Result<(), Self::Error>;

    /// Takes an event.
    fn event(&mut self, _event: CrawlEvent<'_>) {}

    /// Takes the sizes of the queues, at each step of the crawl.
    fn queues(&mut self, _sizes: QueueSizes) {}

    /// Called four times per second, and once after the last request.
    fn tick(&mut self) {}

    /// Returns whether the next tick should bring a [`status`](Self::status), which takes time to
    /// compute.
    fn wants_status(&self) -> bool {
        false
    }

    /// Takes the status.
    fn status(&mut self, _status: CrawlStatus<'_>) {}
}

impl<F, E> CrawlSink for F
where
    F: FnMut(CrawlResult<'_>) -> Result<(), E>,
    E: From<CrawlError>,
{
    type Error = E;

    fn result(&mut self, result: CrawlResult<'_>) -> Result<(), E> {
        self(result)
    }
}
