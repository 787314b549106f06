//! The scheduler of a crawl: reads links ahead, starts those whose hosts are ready, and prints what is finished.
//!
//! Invariants: at most `concurrency` links are open. A result is printed once the log has taken its attempts, and its link
//! is recorded as done after printing.
//!
//! Must not know: how a link is fetched.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::queue::{HostQueue, host_of};
use super::report::{self, ResultDisplay};
use super::resume::{self, Resume};
use super::{eta, log_watch};
use crate::commands::fetch::input_feed::{InputFeed, InputPosition, Item};
use crate::commands::fetch::log_watch::LogWatch;
use crate::commands::fetch::metrics_endpoint::MetricsEndpoint;
use crate::commands::fetch::result_order::ResultOrder;
use crate::commands::fetch::shutdown::{Shutdown, ShutdownRequest};
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::plain;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::pipeline::{Link, Pipeline, Report};

/// The maximum number of requests for a link that its host refused because the crawl was too fast.
const MAX_TRIES: u8 = 4;
/// The limit of links that are read and not started; with `--ordered` also of those that are read and not printed.
const READ_AHEAD: usize = 10_000;

/// A run in progress.
pub(super) struct Scheduler<'o> {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) concurrency: usize,
    /// The limit of parallel links per host.
    pub(super) per_host: Option<u8>,
    /// The limit of a link's wait for its host.
    pub(super) max_wait: Duration,
    pub(super) feed: InputFeed,
    pub(super) resume: Resume,
    pub(super) show: ResultDisplay<'o>,
    pub(super) shutdown: Shutdown,
    pub(super) queue: HostQueue<QueuedLink>,
    pub(super) open: JoinSet<Report>,
    /// The links in progress, with their hosts.
    pub(super) links: HashMap<Id, (Arc<str>, QueuedLink)>,
    /// Finished items that are not printed yet.
    pub(super) finished: ResultOrder<FinishedItem>,
    /// The number of items read so far.
    pub(super) read: u64,
    pub(super) log: LogWatch,
    pub(super) browsers: Vec<Arc<BrowserFetcher>>,
    /// Whether the failing browser was reported.
    pub(super) is_browser_reported: bool,
    /// The endpoint that receives the counts.
    pub(super) metrics: Option<MetricsEndpoint>,
}

/// A link that was read and is not finished.
#[derive(Debug)]
pub(super) struct QueuedLink {
    /// Its number in the order of reading.
    number: u64,
    place: InputPosition,
    link: Link,
    /// The number of refusals by its host because the crawl was too fast.
    refused: u8,
}

pub(super) enum FinishedItem {
    Fetched(InputPosition, Link, Box<Report>),
    Bad { line: u64, error: String },
}

impl Scheduler<'_> {
    /// Fetches all links of the input and prints their results.
    pub(super) async fn run(mut self) -> Result<Exit, Failure> {
        let ended = self.work().await;
        // Drop what is still in progress before the journal closes.
        self.open.shutdown().await;
        self.log.report_maintenance(&self.show);
        self.log.stop_maintenance();
        if let Some(metrics) = self.metrics.take() {
            metrics.close().await;
        }
        let interrupted = ended?;
        self.report_browser_failure();
        self.print_all_finished().await?;
        let Self { resume, show, .. } = self;
        let sum = show.finish();
        match interrupted {
            Some(Interruption::Requested) => {
                return Err(
                    Failure::failed("interrupted").advise("run the same command again to continue where it stopped")
                );
            }
            Some(Interruption::Input(error)) => return Err(Failure::failed(error)),
            None => resume.complete(),
        }
        Ok(if sum.unclassified > 0 { Exit::Failed } else { Exit::Done })
    }

    /// Works until the end of the input or an interruption.
    async fn work(&mut self) -> Result<Option<Interruption>, Failure> {
        let (mut more, mut interrupted) = (true, None);
        let mut checks = tokio::time::interval(log_watch::CHECK_INTERVAL);
        loop {
            let wake = self.start_ready_links();
            self.update_metrics();
            if !more && self.open.is_empty() && self.queue.len() == 0 {
                return Ok(interrupted);
            }
            let (take, abandon_at) = (more && self.has_room(), self.shutdown.abandon_at());
            tokio::select! {
                biased;
                request = self.shutdown.request(), if self.shutdown.is_listening() => match request {
                    None => {}
                    Some(ShutdownRequest::Abandon) => return Ok(Some(Interruption::Requested)),
                    Some(ShutdownRequest::Finish) => {
                        (more, interrupted) = (false, Some(Interruption::Requested));
                        self.queue.clear();
                        if !self.open.is_empty() {
                            self.show.note("stopping: waiting for open requests (Ctrl-C again to abandon them)");
                        }
                    }
                },
                () = sleep_until(abandon_at.unwrap_or_else(Instant::now)), if abandon_at.is_some() => {
                    return Ok(interrupted);
                }
                _ = checks.tick() => {
                    self.log.check_health(&self.show);
                    self.log.report_maintenance(&self.show);
                    self.report_browser_failure();
                    self.update_remaining_time();
                }
                Some(ended) = self.open.join_next_with_id(), if !self.open.is_empty() => {
                    self.finish(ended);
                    // All that ended in the meantime share one wait for the log.
                    while let Some(ended) = self.open.try_join_next_with_id() {
                        self.finish(ended);
                    }
                    self.print_finished().await?;
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                item = self.feed.next(), if take => match item {
                    None => more = false,
                    Some(Item::Broken(error)) => (more, interrupted) = (false, Some(Interruption::Input(error))),
                    Some(Item::Bad { line, error }) => {
                        self.finished.insert(self.read, FinishedItem::Bad { line, error });
                        self.read += 1;
                        self.print_finished().await?;
                    }
                    Some(Item::Link(_, link)) if self.resume.skips(&link) => self.show.skipped(),
                    Some(Item::Link(place, link)) => {
                        let host = host_of(&link.url);
                        self.queue.push(&host, QueuedLink { number: self.read, place, link, refused: 0 });
                        if let Some(most) = self.per_host {
                            self.queue.set_max_open(&host, most.into());
                        }
                        self.read += 1;
                    }
                },
            }
        }
    }

    /// Passes the counts to the metrics endpoint.
    fn update_metrics(&self) {
        if let Some(metrics) = &self.metrics {
            let done = self.finished.taken() + self.show.sum.skipped;
            metrics.count(self.queue.len(), self.open.len(), self.queue.host_count(), done);
        }
    }

    /// Shows the remaining time on the bar, from the paces of hosts with waiting links.
    fn update_remaining_time(&mut self) {
        let Some(pace) = self.pipeline.selector().pace().filter(|_| self.show.is_seen()) else { return };
        let read = self.queue.len() as u64 + self.open.len() as u64;
        let unread = self.show.left().unwrap_or_default().saturating_sub(read);
        let words = eta::text(pace, self.queue.hosts(), unread, self.pipeline.selector().now());
        self.show.pace(words);
    }

    /// Reports once why the browser does not start.
    fn report_browser_failure(&mut self) {
        if self.is_browser_reported {
            return;
        }
        if let Some(why) = self.browsers.iter().find_map(|browser| browser.why_not_started()) {
            self.is_browser_reported = true;
            let why = plain(&why);
            self.show.note(&format!("fetchwise: warning: the browser does not start, continuing without it: {why}"));
        }
    }

    /// Returns whether more may be read. Results that wait for an earlier one count too.
    fn has_room(&self) -> bool {
        self.queue.len() < READ_AHEAD && self.finished.held_back(self.read) < READ_AHEAD as u64
    }

    /// Starts links as long as there are free slots and hosts that are ready. Returns when to try again unless
    /// something ends earlier.
    fn start_ready_links(&mut self) -> Option<Instant> {
        let now = self.pipeline.selector().now();
        while self.open.len() < self.concurrency {
            let Some((host, waiting)) = self.queue.pop(now) else {
                return self.queue.next_at().map(|at| Instant::now() + at.since(now));
            };
            self.start(host, waiting);
        }
        None
    }

    fn start(&mut self, host: Arc<str>, waiting: QueuedLink) {
        let (pipeline, own) = (Arc::clone(&self.pipeline), waiting.link.clone());
        let handle = self.open.spawn(async move {
            let mut report = pipeline.fetch(&own).await;
            // Without a store nothing uses the body, which may be large.
            report.response = None;
            report
        });
        self.links.insert(handle.id(), (host, waiting));
    }

    fn finish(&mut self, ended: Result<(Id, Report), tokio::task::JoinError>) {
        let (id, report) = match ended {
            Ok((id, report)) => (id, report),
            Err(error) => {
                let message = Some(format!("bug in fetchwise: {error}"));
                (error.id(), Report { error_type: Some(report::INTERNAL), message, ..Report::default() })
            }
        };
        let Some((host, waiting)) = self.links.remove(&id) else { return };
        if let Some(cut) = &report.crawl_delay_cut {
            self.show.crawl_delay_cut(cut);
        }
        let (report, waiting) = match self.put_back(&host, report, waiting) {
            Some(ended) => ended,
            None => return,
        };
        self.queue.ended(&host);
        let QueuedLink { number, place, link, .. } = waiting;
        let report = Report { url: link.url.clone(), ..report };
        self.finished.insert(number, FinishedItem::Fetched(place, link, Box::new(report)));
    }

    /// Returns a link to the queue if its host has no slot for it yet, or refused it because the crawl was too fast.
    /// Otherwise returns the finished report and link.
    fn put_back(
        &mut self,
        host: &Arc<str>,
        mut report: Report,
        mut waiting: QueuedLink,
    ) -> Option<(Report, QueuedLink)> {
        let is_paced = report.error_type == Some(Report::PACED);
        let is_refused = report.error_type == Some(ErrorKind::RateLimited.name());
        waiting.refused += u8::from(is_refused);
        match report.paused_until {
            _ if self.shutdown.is_stopping() || !is_paced && !is_refused => {}
            Some(until)
                if waiting.refused < MAX_TRIES && until.since(self.pipeline.selector().now()) <= self.max_wait =>
            {
                self.show.sum.requests += u64::from(report.requests);
                match is_refused {
                    true => self.queue.refused(host, waiting, until),
                    false => self.queue.back(host, waiting, until),
                }
                return None;
            }
            _ => {}
        }
        if is_paced {
            report.error_type = Some(Report::PAUSED);
        }
        Some((report, waiting))
    }

    /// Prints finished items: all of them, or with `--ordered` those that wait for no earlier one.
    async fn print_finished(&mut self) -> Result<(), Failure> {
        if self.finished.is_ready() {
            self.log.settle().await;
        }
        while let Some(item) = self.finished.take() {
            self.print_item(&item)?;
        }
        Ok(())
    }

    /// Prints all finished items, at the end of a run that is incomplete.
    async fn print_all_finished(&mut self) -> Result<(), Failure> {
        self.finished.release_all();
        self.print_finished().await
    }

    fn print_item(&mut self, item: &FinishedItem) -> Result<(), Failure> {
        match item {
            FinishedItem::Bad { line, error } => self.show.bad_line(*line, error),
            FinishedItem::Fetched(place, link, report) => {
                self.show.report(*place, link.id.as_deref(), report)?;
                if resume::is_done(report) {
                    self.resume.note(resume::hash(link));
                }
                Ok(())
            }
        }
    }
}

/// Why a run ended early.
enum Interruption {
    /// Ctrl-C or SIGTERM.
    Requested,
    /// A read error of the input.
    Input(String),
}
