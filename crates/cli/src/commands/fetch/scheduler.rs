//! The scheduler of a crawl: fills the frontier, starts links whose hosts are ready, and prints what is finished.
//!
//! Invariants: at most `concurrency` links are at work. Links that wait in the middle of a visit do not count. Reading
//! never waits for a host. A result is printed, or saved to be printed later, once the log has taken its attempts, and
//! its link is recorded as done after printing.
//!
//! Must not know: how a link is fetched.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::eta::Estimator;
use super::frontier::Frontier;
use super::host_id::HostId;
use super::link_fate::{LinkFate, NotFetched, WaitLimits};
use super::link_queue::QueuedLink;
use super::log_watch;
use super::paused_links::PausedLinks;
use super::report::ResultDisplay;
use super::resume::Resume;
use super::site_places::PlaceUse;
use super::totals;
use crate::commands::fetch::args::FailOn;
use crate::commands::fetch::cost_report::CostReport;
use crate::commands::fetch::end_report::EndReport;
use crate::commands::fetch::finished_item::FinishedItem;
use crate::commands::fetch::input_batch::{Batch, Item, Withdrawal};
use crate::commands::fetch::input_feed::InputFeed;
use crate::commands::fetch::input_position::InputPosition;
use crate::commands::fetch::log_watch::LogWatch;
use crate::commands::fetch::metrics_endpoint::MetricsEndpoint;
use crate::commands::fetch::result_order::ResultOrder;
use crate::commands::fetch::run_log::RunLog;
use crate::commands::fetch::shutdown::{Shutdown, ShutdownRequest};
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::plain;
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::pipeline::{Link, LinkSlot, LinkSlots, Pipeline, Report};
use fetchwise_serve::CrawlProgress;
use totals::Totals;

/// How many times the number of slots are started links, with those that wait in the middle of a visit.
const MAX_STARTED: usize = 4;

/// The time after which results go before links that were read.
const TAKE_IN_TIME: Duration = Duration::from_millis(5);

/// A run in progress.
pub(super) struct Scheduler<'o> {
    pub(super) pipeline: Arc<Pipeline>,
    /// The limit of links at work.
    pub(super) concurrency: usize,
    pub(super) slots: LinkSlots,
    /// A slot that became free and has no link yet.
    pub(super) free_slot: Option<LinkSlot>,
    /// The limit of a link's wait for its host.
    pub(super) max_wait: Duration,
    pub(super) feed: InputFeed,
    pub(super) resume: Resume,
    pub(super) show: ResultDisplay<'o>,
    /// Links that wait for the end of a pause.
    pub(super) paused: PausedLinks<PausedLink>,
    /// Whether the run said that it waits for paused links.
    pub(super) is_wait_reported: bool,
    /// Whether stdout gets the page of the first link.
    pub(super) prints_page: bool,
    pub(super) fail_on: FailOn,
    pub(super) run_log: RunLog,
    /// Whether the command has a list of links.
    pub(super) is_list: bool,
    /// The work queue that the links come from.
    pub(super) queue: Option<String>,
    pub(super) shutdown: Shutdown,
    pub(super) frontier: Frontier,
    pub(super) open: JoinSet<Fetched>,
    /// The links in progress, with their hosts.
    pub(super) links: HashMap<Id, OpenLink>,
    /// Finished items that are not printed yet.
    pub(super) finished: ResultOrder<FinishedItem>,
    pub(super) log: LogWatch,
    pub(super) browsers: Vec<Arc<BrowserFetcher>>,
    /// Whether the failing browser was reported.
    pub(super) is_browser_reported: bool,
    pub(super) estimator: Estimator,
    /// The endpoint that receives the counts.
    pub(super) metrics: Option<MetricsEndpoint>,
    /// The progress that the dashboard shows.
    pub(super) crawl: Option<CrawlProgress>,
}

/// A link in progress.
pub(super) struct OpenLink {
    host: HostId,
    waiting: QueuedLink,
    task: AbortHandle,
}

/// A link that was read again and fetched.
pub(super) struct FetchedLink {
    place: InputPosition,
    link: Link,
    report: Report,
}

/// The end of a link's task; an error if the link cannot be read again.
pub(super) type Fetched = Result<Box<FetchedLink>, String>;

/// A link that is paused, with the result that says so.
pub(super) struct PausedLink {
    waiting: QueuedLink,
    fetched: Box<FetchedLink>,
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
        let feed = self.feed;
        feed.stop().await;
        let now = self.pipeline.selector().now();
        let Self { resume, show, fail_on, is_list, queue, run_log, pipeline, .. } = self;
        let cost = CostReport::new(&run_log, &show.sum, pipeline.selector(), now);
        let sum = show.finish(&EndReport { now, is_list, queue, is_complete: interrupted.is_none(), cost });
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
            if more && let Some(error) = self.take_in_all() {
                (more, interrupted) = (false, Some(Interruption::Input(error)));
            }
            let (mut wake, is_full) = self.start_ready_links();
            self.update_metrics();
            if self.open.is_empty() && self.frontier.len() == 0 && !more {
                match self.paused.wait_when_idle(self.pipeline.selector().now()) {
                    Some(_) if interrupted.is_none() => self.report_wait(),
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
            let abandon_at = self.shutdown.abandon_at();
            tokio::select! {
                biased;
                request = self.shutdown.request(), if self.shutdown.is_listening() => match request {
                    None => {}
                    Some(ShutdownRequest::Abandon) => return Ok(Some(Interruption::Requested)),
                    Some(ShutdownRequest::Finish) => {
                        (more, interrupted) = (false, Some(Interruption::Requested));
                        self.frontier.clear();
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
                }
                slot = self.slots.take(), if is_full => self.free_slot = Some(slot),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                batch = self.feed.next(), if more => match batch {
                    None => {
                        more = false;
                        self.finished.forget_earlier();
                    }
                    Some(batch) => if let Some(error) = self.take_in(batch) {
                        (more, interrupted) = (false, Some(Interruption::Input(error)));
                    }
                },
            }
            self.print_finished().await?;
        }
    }

    /// Takes in what was read meanwhile, so that results, which go first, do not hold up the reading. Returns the error
    /// that ends the input early.
    fn take_in_all(&mut self) -> Option<String> {
        let until = Instant::now() + TAKE_IN_TIME;
        while Instant::now() < until {
            let batch = self.feed.try_next()?;
            if let Some(error) = self.take_in(batch) {
                return Some(error);
            }
        }
        None
    }

    /// Takes in a part of the input. Returns the error that ends it early.
    fn take_in(&mut self, batch: Batch) -> Option<String> {
        self.show.left_out(batch.left_out);
        self.show.skipped(batch.skipped);
        self.show.duplicates(batch.duplicates);
        if let Some(withdrawal) = batch.withdrawn {
            self.withdraw(&withdrawal);
        }
        for item in batch.items {
            match item {
                Item::Link { host, link } => self.frontier.push(&host, link),
                Item::Earlier { number, offset } => self.finished.insert_earlier(number, offset),
                Item::Bad { number, place, error } => {
                    self.finished.insert(number, FinishedItem::Bad { number, place, error });
                }
                Item::Broken(error) => return Some(error),
            }
        }
        None
    }

    /// Gives back the links of hosts that another node fetches from now on.
    fn withdraw(&mut self, withdrawal: &Withdrawal) {
        let is_of = |host: &str| withdrawal.hosts.iter().any(|other| **other == *host);
        for host in &withdrawal.hosts {
            for waiting in self.frontier.withdraw(host) {
                self.feed.dropped(waiting.number);
            }
        }
        for paused in self.paused.extract(is_of) {
            self.feed.dropped(paused.waiting.number);
        }
        if withdrawal.is_revoked {
            // Their tasks end as cancelled, unless they have ended before.
            self.links.values().filter(|link| is_of(self.frontier.name(link.host))).for_each(|link| link.task.abort());
        }
    }

    /// Passes the counts to the metrics endpoint.
    fn update_metrics(&self) {
        if let Some(metrics) = &self.metrics {
            let done = self.finished.taken() + self.show.sum.skipped;
            metrics.count(self.frontier.len() + self.paused.len(), self.open.len(), self.frontier.host_count(), done);
        }
    }

    /// Shows the remaining time, from the paces of hosts with waiting links and from the pauses.
    fn update_remaining_time(&mut self) {
        if !self.show.shows_progress() && self.crawl.is_none() {
            return;
        }
        let read = (self.frontier.len() + self.open.len() + self.paused.len()) as u64;
        let unread = self.show.left().unwrap_or_default().saturating_sub(read);
        let now = self.pipeline.selector().now();
        let pace = self.pipeline.selector().pace();
        let hosts = self.frontier.hosts();
        let remaining = pace.map(|pace| self.estimator.estimate(pace, hosts, unread, now, std::time::Instant::now()));
        let mut remaining = remaining.unwrap_or_default();
        if self.feed.is_queue() {
            // The links here are a part of the queue, and other nodes fetch the rest.
            remaining.left = None;
            self.show.set_queue_left(self.feed.queue_left());
        }
        self.show.update(remaining, self.paused.summary(), now);
        if let Some(crawl) = &self.crawl {
            crawl.set(self.show.figures());
        }
    }

    /// Puts links whose pause is over back into the frontier.
    fn release_paused(&mut self) {
        let now = self.pipeline.selector().now();
        while let Some((host, PausedLink { waiting, fetched })) = self.paused.pop(now) {
            self.show.sum.requests += u64::from(fetched.report.requests);
            self.frontier.push(&host, waiting);
        }
    }

    /// Reports once that the run waits for paused links only. It names times, because the line stays as it is; the
    /// progress has the rest of the wait.
    fn report_wait(&mut self) {
        if !std::mem::replace(&mut self.is_wait_reported, true)
            && let Some(paused) = self.paused.summary()
        {
            let now = self.pipeline.selector().now();
            self.show.note(&format!("waiting for {} (`--wait 0` ends at once)", paused.text(now)));
        }
    }

    /// Ends all paused links: the run does not wait for them any longer.
    fn give_up_paused(&mut self) {
        let now = self.pipeline.selector().now();
        for (host, PausedLink { waiting, mut fetched }) in self.paused.take_all() {
            let host_pause = self.pipeline.selector().host_pause(&host).filter(|until| *until > now);
            fetched.report.paused_until = fetched.report.paused_until.max(host_pause);
            self.end_link(waiting, *fetched);
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

    /// Starts links as long as there are free slots and hosts that are ready. Returns when to try again unless
    /// something ends earlier, and whether only a slot is missing.
    fn start_ready_links(&mut self) -> (Option<Instant>, bool) {
        let now = self.pipeline.selector().now();
        while self.open.len() < self.concurrency * MAX_STARTED {
            let Some(slot) = self.free_slot.take().or_else(|| self.slots.try_take()) else { return (None, true) };
            let Some((host, waiting)) = self.frontier.pop(now) else {
                return (self.frontier.next_at().map(|at| Instant::now() + at.since(now)), false);
            };
            self.start(host, waiting, slot);
        }
        (None, false)
    }

    fn start(&mut self, host: HostId, waiting: QueuedLink, slot: LinkSlot) {
        let keeps_body = self.prints_page && waiting.number == 0;
        let (pipeline, list) = (Arc::clone(&self.pipeline), Arc::clone(&self.feed.list));
        let name = Arc::clone(self.frontier.name(host));
        let task = self.open.spawn(async move {
            let (place, link) = list.read_of_host(waiting, &name)?;
            let mut report = pipeline.fetch_in_slot(&link, &slot).await;
            // Without a store nothing uses the body, which may be large.
            if !keeps_body {
                report.response = None;
            }
            Ok(Box::new(FetchedLink { place, link, report }))
        });
        self.links.insert(task.id(), OpenLink { host, waiting, task });
    }

    fn finish(&mut self, ended: Result<(Id, Fetched), tokio::task::JoinError>) {
        let (id, fetched) = match ended {
            Ok((id, fetched)) => (id, fetched),
            // Another node fetches the link.
            Err(error) if error.is_cancelled() => {
                if let Some(OpenLink { host, waiting, .. }) = self.links.remove(&error.id()) {
                    self.frontier.ended(host, PlaceUse::Unused);
                    self.feed.dropped(waiting.number);
                }
                return;
            }
            Err(error) => {
                let Some(OpenLink { waiting, .. }) = self.links.get(&error.id()) else { return };
                (error.id(), self.broken(*waiting, format!("bug in fetchwise: {error}")))
            }
        };
        let Some(OpenLink { host, mut waiting, .. }) = self.links.remove(&id) else { return };
        let mut fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                self.frontier.ended(host, PlaceUse::Unused);
                let place = InputPosition::Line(waiting.line);
                let item = FinishedItem::Bad { number: waiting.number, place, error };
                return self.finished.insert(waiting.number, item);
            }
        };
        if let Some(cut) = fetched.report.crawl_delay_cut.take() {
            self.show.crawl_delay_cut(&cut);
        }
        if let Some(host) = fetched.report.signature_rejected_by.take() {
            self.show.signature_rejected(&host);
        }
        let Some(fetched) = self.put_back(host, fetched, &mut waiting) else { return };
        self.frontier.ended(host, PlaceUse::of(&fetched.report));
        if fetched.report.success {
            self.paused.record_delivery();
        }
        self.end_link(waiting, *fetched);
    }

    /// Returns the result of a link whose task broke.
    fn broken(&self, waiting: QueuedLink, message: String) -> Fetched {
        let (place, link) = self.feed.list.read(waiting)?;
        let report = Report { error_type: Some(totals::INTERNAL), message: Some(message), ..Report::default() };
        Ok(Box::new(FetchedLink { place, link, report }))
    }

    /// Adds a link to the finished ones.
    fn end_link(&mut self, waiting: QueuedLink, fetched: FetchedLink) {
        let FetchedLink { place, link, mut report } = fetched;
        if report.error_type == Some(Report::PACED) {
            report.error_type = Some(Report::PAUSED);
        }
        report.url.clone_from(&link.url);
        self.finished.insert(waiting.number, FinishedItem::Fetched(place, link, Box::new(report)));
    }

    /// Puts a link that was not fetched where its [`LinkFate`] says. Returns the fetched link if it has ended.
    fn put_back(
        &mut self,
        host: HostId,
        fetched: Box<FetchedLink>,
        waiting: &mut QueuedLink,
    ) -> Option<Box<FetchedLink>> {
        let (report, used) = (&fetched.report, PlaceUse::of(&fetched.report));
        let Some(why) = NotFetched::of(report) else { return Some(fetched) };
        // The trial of a host that refuses everything says nothing of the link, which is asked for again.
        waiting.refused += u8::from(why == NotFetched::Refused && !report.was_trial);
        let fate = match self.feed.is_withdrawn(waiting.number) {
            true => LinkFate::StaysQueued,
            false => {
                let now = self.pipeline.selector().now();
                LinkFate::of(why, waiting.refused, report.paused_until, &self.wait_limits(), now)
            }
        };
        match fate {
            LinkFate::Ends => return Some(fetched),
            LinkFate::Pauses(until) => {
                let name = Arc::clone(self.frontier.name(host));
                let paused = PausedLink { waiting: *waiting, fetched };
                match self.paused.push(until, &name, paused) {
                    Ok(()) => self.frontier.ended(host, used),
                    Err(paused) => return Some(paused.fetched),
                }
                return None;
            }
            LinkFate::GoesBack(until) => self.frontier.back(host, *waiting, until),
            LinkFate::Refused(until) => self.frontier.refused(host, *waiting, until),
            LinkFate::StaysQueued => {
                self.frontier.ended(host, used);
                self.feed.dropped(waiting.number);
            }
        }
        self.show.sum.requests += u64::from(fetched.report.requests);
        None
    }

    fn wait_limits(&self) -> WaitLimits {
        WaitLimits {
            max_wait: self.max_wait,
            pauses: self.paused.limit(),
            is_queue: self.feed.is_queue(),
            is_stopping: self.shutdown.is_stopping(),
        }
    }

    /// Prints finished items: all of them, or with `--ordered` those that wait for no earlier one. The others are saved.
    async fn print_finished(&mut self) -> Result<(), Failure> {
        if self.finished.is_ready() || self.finished.has_unsaved() {
            self.log.settle().await;
            // A continued run does not fetch them again, so the log needs their attempts first.
            self.finished.save();
        }
        while let Some(item) = self.finished.take().map_err(unreadable_result)? {
            self.print_item(&item)?;
        }
        Ok(())
    }

    /// Prints all finished items, at the end of a run that is incomplete.
    async fn print_all_finished(&mut self) -> Result<(), Failure> {
        self.print_finished().await?;
        while self.finished.skip_gap() {
            self.print_finished().await?;
        }
        Ok(())
    }

    fn print_item(&mut self, item: &FinishedItem) -> Result<(), Failure> {
        match item {
            FinishedItem::Bad { number, place, error } => {
                self.show.bad_line(*place, error)?;
                self.feed.written(*number);
                Ok(())
            }
            FinishedItem::Fetched(place, link, report) => {
                if let Some(response) = &report.response {
                    let mut body = Vec::new();
                    response.body.reader().read_to_end(&mut body).map_err(Failure::failed)?;
                    self.show.page(&body)?;
                }
                let now = self.pipeline.selector().now();
                self.show.report(*place, link.id.as_deref(), report, now)?;
                match place {
                    InputPosition::Queue { number, .. } => self.feed.written(*number),
                    _ => self.resume.note(link, report, now),
                }
                Ok(())
            }
        }
    }
}

fn unreadable_result(error: std::io::Error) -> Failure {
    Failure::failed(format_args!("cannot read a result of --ordered again: {error}"))
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
