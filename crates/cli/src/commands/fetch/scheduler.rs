//! The scheduler of a crawl: reads links ahead, starts those whose hosts are ready, and prints what is finished.
//!
//! Invariants: at most `concurrency` links are open. A result is printed once the log has taken its attempts, and its link
//! is recorded as done after printing.
//!
//! Must not know: how a link is fetched.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::paused_links::PausedLinks;
use super::queue::{HostQueue, host_of};
use super::report::ResultDisplay;
use super::resume::Resume;
use super::totals;
use super::{eta, log_watch};
use crate::commands::fetch::args::FailOn;
use crate::commands::fetch::cost_report::CostReport;
use crate::commands::fetch::end_report::EndReport;
use crate::commands::fetch::input_feed::{InputFeed, Item};
use crate::commands::fetch::input_position::InputPosition;
use crate::commands::fetch::log_watch::LogWatch;
use crate::commands::fetch::metrics_endpoint::MetricsEndpoint;
use crate::commands::fetch::result_order::ResultOrder;
use crate::commands::fetch::run_log::RunLog;
use crate::commands::fetch::shutdown::{Shutdown, ShutdownRequest};
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::plain;
use crate::terminal::pace_text::span;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::time::Timestamp;
use totals::Totals;
use xxhash_rust::xxh3::xxh3_64;

/// The maximum number of requests for a link that its host refused because the crawl was too fast.
const MAX_TRIES: u8 = 4;
/// The number of links that are remembered to find duplicates.
const MAX_SEEN: usize = 4_000_000;
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
    /// Links that wait for the end of a pause.
    pub(super) paused: PausedLinks<PausedLink>,
    /// Whether the run said that it waits for paused links.
    pub(super) is_wait_reported: bool,
    /// Hashes of the links that were read.
    pub(super) seen: HashSet<u64>,
    /// Whether stdout gets the page of the first link.
    pub(super) prints_page: bool,
    pub(super) fail_on: FailOn,
    pub(super) run_log: RunLog,
    /// Whether the command has a list of links.
    pub(super) is_list: bool,
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

/// A link that is paused, with the result that says so.
#[derive(Debug)]
pub(super) struct PausedLink {
    host: Arc<str>,
    waiting: QueuedLink,
    report: Report,
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
        let now = self.pipeline.selector().now();
        let Self { resume, show, fail_on, is_list, run_log, pipeline, .. } = self;
        let cost = CostReport::new(&run_log, &show.sum, pipeline.selector(), now);
        let sum = show.finish(&EndReport { now, is_list, is_complete: interrupted.is_none(), cost });
        match interrupted {
            Some(Interruption::Requested) => {
                return Err(
                    Failure::failed("interrupted").advise("run the same command again to continue where it stopped")
                );
            }
            Some(Interruption::Input(error)) => return Err(Failure::failed(error)),
            None => resume.complete(),
        }
        Ok(exit(&sum, fail_on))
    }

    /// Works until the end of the input or an interruption.
    async fn work(&mut self) -> Result<Option<Interruption>, Failure> {
        let (mut more, mut interrupted) = (true, None);
        let mut checks = tokio::time::interval(log_watch::CHECK_INTERVAL);
        loop {
            self.release_paused();
            let mut wake = self.start_ready_links();
            self.update_metrics();
            if self.open.is_empty() && self.queue.len() == 0 && !(more && self.has_room()) {
                match self.paused.wait_when_idle(self.pipeline.selector().now()) {
                    Some(until) if interrupted.is_none() => self.report_wait(until),
                    _ if self.paused.len() > 0 && interrupted.is_none() => {
                        self.give_up_paused();
                        self.print_finished().await?;
                        continue;
                    }
                    _ => return Ok(interrupted),
                }
            }
            if let Some(at) = self.paused.next_at() {
                let now = self.pipeline.selector().now();
                let at = Instant::now() + at.since(now);
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
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
                        self.paused.take_all().for_each(drop);
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
                    Some(Item::Link(_, link)) if self.is_duplicate(&link) => self.show.duplicate(),
                    Some(Item::Link(_, link)) if self.resume.leaves_out(&link) => self.show.left_out(),
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
            metrics.count(self.queue.len() + self.paused.len(), self.open.len(), self.queue.host_count(), done);
        }
    }

    /// Shows the remaining time on the bar, from the paces of hosts with waiting links.
    fn update_remaining_time(&mut self) {
        if !self.show.shows_progress() {
            return;
        }
        let waiting = self.paused.len();
        let read = (self.queue.len() + self.open.len() + waiting) as u64;
        let unread = self.show.left().unwrap_or_default().saturating_sub(read);
        let now = self.pipeline.selector().now();
        let pace = self.pipeline.selector().pace();
        let remaining = pace.map(|pace| eta::estimate(pace, self.queue.hosts(), unread, now)).unwrap_or_default();
        self.show.update(remaining, waiting);
    }

    /// Returns whether the input has named this link before. Only the first links are remembered.
    fn is_duplicate(&mut self, link: &Link) -> bool {
        let hash = xxh3_64(format!("{link:?}").as_bytes());
        if self.seen.len() < MAX_SEEN { !self.seen.insert(hash) } else { self.seen.contains(&hash) }
    }

    /// Puts links whose pause is over back into the queue.
    fn release_paused(&mut self) {
        let now = self.pipeline.selector().now();
        while let Some(PausedLink { host, waiting, report }) = self.paused.pop(now) {
            self.show.sum.requests += u64::from(report.requests);
            self.is_wait_reported = false;
            self.queue.push(&host, waiting);
            if let Some(most) = self.per_host {
                self.queue.set_max_open(&host, most.into());
            }
        }
    }

    /// Reports once that the run waits for paused links only.
    fn report_wait(&mut self, until: Timestamp) {
        if !self.is_wait_reported {
            self.is_wait_reported = true;
            let left = until.since(self.pipeline.selector().now());
            let (count, links) = (self.paused.len(), if self.paused.len() == 1 { "URL" } else { "URLs" });
            self.show.note(&format!("waiting {} for {count} paused {links} (`--wait 0` ends at once)", span(left)));
        }
    }

    /// Ends all paused links: the run does not wait for them any longer.
    fn give_up_paused(&mut self) {
        let now = self.pipeline.selector().now();
        for PausedLink { host, waiting, mut report } in self.paused.take_all() {
            let host_pause = self.pipeline.selector().host_pause(&host).filter(|until| *until > now);
            report.paused_until = report.paused_until.max(host_pause);
            self.end_link(waiting, report);
        }
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
        let keeps_body = self.prints_page && waiting.number == 0;
        let (pipeline, own) = (Arc::clone(&self.pipeline), waiting.link.clone());
        let handle = self.open.spawn(async move {
            let mut report = pipeline.fetch(&own).await;
            // Without a store nothing uses the body, which may be large.
            if !keeps_body {
                report.response = None;
            }
            report
        });
        self.links.insert(handle.id(), (host, waiting));
    }

    fn finish(&mut self, ended: Result<(Id, Report), tokio::task::JoinError>) {
        let (id, report) = match ended {
            Ok((id, report)) => (id, report),
            Err(error) => {
                let message = Some(format!("bug in fetchwise: {error}"));
                (error.id(), Report { error_type: Some(totals::INTERNAL), message, ..Report::default() })
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
        if report.success {
            self.paused.record_delivery();
        }
        self.end_link(waiting, report);
    }

    /// Adds a link to the finished ones.
    fn end_link(&mut self, waiting: QueuedLink, mut report: Report) {
        if report.error_type == Some(Report::PACED) {
            report.error_type = Some(Report::PAUSED);
        }
        let QueuedLink { number, place, link, .. } = waiting;
        let report = Report { url: link.url.clone(), ..report };
        self.finished.insert(number, FinishedItem::Fetched(place, link, Box::new(report)));
    }

    /// Returns a link to the queue if its host has no slot for it yet, or refused it because the crawl was too fast. A
    /// link that is paused for longer waits for the end of its pause. Otherwise returns the finished report and link.
    fn put_back(&mut self, host: &Arc<str>, report: Report, mut waiting: QueuedLink) -> Option<(Report, QueuedLink)> {
        let is_paced = report.error_type == Some(Report::PACED);
        let is_paused = report.error_type == Some(Report::PAUSED);
        let is_refused = report.error_type == Some(ErrorKind::RateLimited.name());
        waiting.refused += u8::from(is_refused);
        match report.paused_until {
            _ if self.shutdown.is_stopping() || !is_paced && !is_refused && !is_paused => {}
            Some(until)
                if !is_paused
                    && waiting.refused < MAX_TRIES
                    && until.since(self.pipeline.selector().now()) <= self.max_wait =>
            {
                self.show.sum.requests += u64::from(report.requests);
                match is_refused {
                    true => self.queue.refused(host, waiting, until),
                    false => self.queue.back(host, waiting, until),
                }
                return None;
            }
            Some(until) if waiting.refused < MAX_TRIES => {
                let paused = PausedLink { host: Arc::clone(host), waiting, report };
                return match self.paused.push(until, paused) {
                    Ok(()) => {
                        self.queue.ended(host);
                        None
                    }
                    Err(paused) => Some((paused.report, paused.waiting)),
                };
            }
            _ => {}
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
                if let Some(response) = &report.response {
                    let mut body = Vec::new();
                    response.body.reader().read_to_end(&mut body).map_err(Failure::failed)?;
                    self.show.page(&body)?;
                }
                self.show.report(*place, link.id.as_deref(), report)?;
                self.resume.note(link, report, self.pipeline.selector().now());
                Ok(())
            }
        }
    }
}

/// Returns the exit code of a complete run.
fn exit(sum: &Totals, fail_on: FailOn) -> Exit {
    // This machine or the input is at fault, so the run itself has failed.
    if sum.unclassified > 0 {
        return Exit::Failed;
    }
    let is_failure = match fail_on {
        FailOn::None => false,
        FailOn::Any => sum.not_delivered() > 0,
        FailOn::All => sum.not_delivered() > 0 && sum.delivered + sum.missing + sum.skipped == 0,
    };
    if is_failure { Exit::NotDelivered } else { Exit::Done }
}

/// Why a run ended early.
enum Interruption {
    /// Ctrl-C or SIGTERM.
    Requested,
    /// A read error of the input.
    Input(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_whether_the_urls_were_delivered() {
        let of = |delivered, missing, failed, unclassified| Totals {
            delivered,
            missing,
            failed,
            unclassified,
            ..Totals::default()
        };
        let codes = |sum: &Totals| [FailOn::Any, FailOn::All, FailOn::None].map(|fail_on| exit(sum, fail_on) as u8);
        assert_eq!(codes(&of(3, 2, 0, 0)), [0, 0, 0]);
        assert_eq!(codes(&of(3, 0, 1, 0)), [4, 0, 0]);
        assert_eq!(codes(&of(0, 1, 1, 0)), [4, 0, 0]);
        assert_eq!(codes(&of(0, 0, 1, 0)), [4, 4, 0]);
        assert_eq!(codes(&of(3, 0, 1, 1)), [1, 1, 1]);
        assert_eq!(codes(&Totals { paused: 1, ..Totals::default() }), [4, 4, 0]);
    }
}
