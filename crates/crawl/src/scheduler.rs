//! The scheduler of a crawl: fills the frontier, starts links whose hosts are ready, and passes on
//! what is finished.
//!
//! Invariants: at most `concurrency` links are at work. Links that wait in the middle of a visit do
//! not count. Reading never waits for a host. A result is passed on, or saved to be passed on
//! later, once the log has taken its attempts, and its link is recorded as done after that. The run
//! ends once no link waits or is in progress, and no result whose taker may add links is left.
//!
//! Must not know: how a link is fetched, and what becomes of its result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::error::CrawlError;
use crate::frontier::{Frontier, HostId, PlaceUse, QueuedLink};
use crate::input::batch::{Batch, Item, Withdrawal};
use crate::input::feed::InputFeed;
use crate::input::position::InputPosition;
use crate::link_adder::AddedUrls;
use crate::link_fate::{LinkFate, NotFetched, WaitLimits};
use crate::log_watch::{self, LogWatch};
use crate::pause_control::{Released, Releases};
use crate::paused_links::PausedLinks;
use crate::progress::Progress;
use crate::remaining_time::{EstimateTime, Estimator};
use crate::results::finished_item::FinishedItem;
use crate::results::result_order::ResultOrder;
use crate::resume::{Opened, Resume};
use crate::sink::{CrawlEvent, CrawlResult, CrawlSink, QueueSizes};
use crate::spec::{Bodies, CrawlSpec};
use crate::stop::{StopRequest, StopWatch};
use crate::totals::{self, Totals};
use fetchwise::heuristic::url::{identity, parse};
use fetchwise::journal::Journal;
use fetchwise::pipeline::{Link, LinkSlot, LinkSlots, Pipeline, Report};
use fetchwise::time::Timestamp;

/// How many times the number of slots are started links, with those that wait in the middle of a
/// visit.
const MAX_STARTED: usize = 4;

/// The time after which results go before links that were read.
const TAKE_IN_TIME: Duration = Duration::from_millis(5);

/// A run in progress.
pub(crate) struct Scheduler<'s, S> {
    pipeline: Arc<Pipeline>,
    sink: &'s mut S,
    /// The limit of links at work.
    concurrency: usize,
    slots: LinkSlots,
    /// A slot that became free and has no link yet.
    free_slot: Option<LinkSlot>,
    /// The limit of a link's wait for its host.
    max_wait: Duration,
    bodies: Bodies,
    feed: InputFeed,
    /// The links that the caller adds; none if it adds none.
    added: Option<AddedUrls>,
    resume: Resume,
    progress: Progress,
    /// Links that wait for the end of a pause.
    paused: PausedLinks<PausedLink>,
    /// What may be asked again before the end of its wait.
    releases: Releases,
    /// Whether the run said that it waits for paused links.
    is_wait_reported: bool,
    stop: StopWatch,
    frontier: Frontier,
    open: JoinSet<Fetched>,
    /// The links in progress, with their hosts.
    links: HashMap<Id, OpenLink>,
    /// Finished items that are not passed on yet.
    finished: ResultOrder<FinishedItem>,
    log: LogWatch,
    estimator: Estimator,
}

/// What a scheduler works with.
pub(crate) struct Parts {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) feed: InputFeed,
    /// The links that the caller adds; none if it adds none.
    pub(crate) added: Option<AddedUrls>,
    pub(crate) opened: Opened,
    pub(crate) stop: StopWatch,
    /// The number of items of the input, if it is known.
    pub(crate) total: Option<u64>,
    /// What may be asked again before the end of its wait.
    pub(crate) releases: Releases,
}

/// How a crawl ended.
#[derive(Debug)]
pub enum CrawlEnd {
    /// All links have a result.
    Complete,
    /// It was told to stop. The same crawl continues where it stopped.
    Stopped,
    /// The input ended early. What was read before has results.
    Broken(CrawlError),
}

/// What a crawl did.
#[derive(Debug)]
pub struct CrawlSummary {
    /// How it ended.
    pub end: CrawlEnd,
    /// Its results.
    pub totals: Totals,
}

/// A link in progress.
pub(crate) struct OpenLink {
    host: HostId,
    waiting: QueuedLink,
    task: AbortHandle,
    /// Whether a pause of it, or of its host, was ended since it started: it may have seen that
    /// pause still.
    is_released: bool,
}

/// A link that was read again and fetched.
pub(crate) struct FetchedLink {
    place: InputPosition,
    link: Link,
    report: Report,
}

/// The end of a link's task; an error if the link cannot be read again.
pub(crate) type Fetched = Result<Box<FetchedLink>, String>;

/// A link that is paused, with the result that says so.
pub(crate) struct PausedLink {
    waiting: QueuedLink,
    /// The hash by which the end of its pause names it.
    hash: u64,
    fetched: Box<FetchedLink>,
}

impl<'s, S: CrawlSink> Scheduler<'s, S> {
    /// Returns a run that begins.
    pub(crate) fn new(spec: &CrawlSpec, parts: Parts, sink: &'s mut S) -> Self {
        let concurrency = spec.concurrency.max(1);
        let Opened { resume, held, .. } = parts.opened;
        Self {
            pipeline: parts.pipeline,
            sink,
            concurrency,
            slots: LinkSlots::new(concurrency),
            free_slot: None,
            max_wait: spec.max_wait,
            bodies: spec.bodies,
            feed: parts.feed,
            added: parts.added,
            resume,
            progress: Progress::new(parts.total),
            paused: PausedLinks::new(spec.pause_wait),
            releases: parts.releases,
            is_wait_reported: false,
            stop: parts.stop,
            frontier: Frontier::new(spec.per_host, concurrency),
            open: JoinSet::new(),
            links: HashMap::new(),
            finished: ResultOrder::new(spec.ordered, held),
            log: LogWatch::new(parts.journal),
            estimator: Estimator::default(),
        }
    }

    /// Fetches all links of the input and passes their results on.
    pub(crate) async fn run(mut self) -> Result<CrawlSummary, S::Error> {
        self.sink.event(CrawlEvent::Started);
        let ended = self.work().await;
        // Drop what is still in progress before the journal closes.
        self.open.shutdown().await;
        self.sink.tick();
        let end = ended?;
        self.pass_on_all_finished().await?;
        self.feed.stop().await;
        if matches!(end, CrawlEnd::Complete) {
            self.resume.complete();
        }
        Ok(CrawlSummary { end, totals: self.progress.totals })
    }

    /// Works until the end of the input or an interruption.
    async fn work(&mut self) -> Result<CrawlEnd, S::Error> {
        let (mut more, mut end) = (true, CrawlEnd::Complete);
        let mut checks = tokio::time::interval(log_watch::CHECK_INTERVAL);
        loop {
            self.release_paused();
            if more && let Some(error) = self.take_in_all() {
                (more, end) = (false, CrawlEnd::Broken(error));
            }
            self.take_added();
            let (mut wake, is_full) = self.start_ready_links();
            self.report_queues();
            if self.open.is_empty() && self.frontier.is_empty() && !more {
                match self.paused.wait_when_idle(self.now()) {
                    Some(_) if matches!(end, CrawlEnd::Complete) => self.report_wait(),
                    _ if self.paused.len() > 0 && matches!(end, CrawlEnd::Complete) => {
                        self.give_up_paused();
                        self.pass_on_finished().await?;
                        continue;
                    }
                    _ => return Ok(end),
                }
            }
            if let Some(at) = self.paused.next_at() {
                let at = Instant::now() + at.since(self.now());
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
            }
            let abandon_at = self.stop.abandon_at();
            tokio::select! {
                biased;
                request = self.stop.request(), if self.stop.is_listening() => match request {
                    None => {}
                    Some(StopRequest::Abandon) => return Ok(CrawlEnd::Stopped),
                    Some(StopRequest::Finish) => {
                        (more, end) = (false, CrawlEnd::Stopped);
                        self.finish_open_links();
                    }
                },
                () = sleep_until(abandon_at.unwrap_or_else(Instant::now)), if abandon_at.is_some() => return Ok(end),
                _ = checks.tick() => self.check(),
                Some(released) = self.releases.next() => self.release(&released),
                Some(url) = next_added(&mut self.added) => self.add(&url),
                Some(ended) = self.open.join_next_with_id(), if !self.open.is_empty() => self.finish_all(ended),
                slot = self.slots.take(), if is_full => self.free_slot = Some(slot),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                batch = self.feed.next(), if more => match batch {
                    None => {
                        more = false;
                        self.finished.forget_earlier();
                    }
                    Some(batch) => if let Some(error) = self.take_in(batch) {
                        (more, end) = (false, CrawlEnd::Broken(error));
                    }
                },
            }
            self.pass_on_finished().await?;
        }
    }

    fn now(&self) -> Timestamp {
        self.pipeline.selector().now()
    }

    /// Leaves all that is not in progress to the next run.
    fn finish_open_links(&mut self) {
        self.frontier.clear();
        self.paused.take_all().for_each(drop);
        if !self.open.is_empty() {
            self.sink.event(CrawlEvent::Stopping);
        }
    }

    /// Reports what is due from time to time.
    fn check(&mut self) {
        self.log.check_health(self.sink);
        self.sink.tick();
        self.report_status();
    }

    /// Takes in what was read meanwhile, so that results, which go first, do not hold up the
    /// reading. Returns the error that ends the input early.
    fn take_in_all(&mut self) -> Option<CrawlError> {
        let until = Instant::now() + TAKE_IN_TIME;
        while Instant::now() < until {
            let batch = self.feed.try_next()?;
            if let Some(error) = self.take_in(batch) {
                return Some(error);
            }
        }
        None
    }

    /// Takes in the links that the caller has added by now.
    fn take_added(&mut self) {
        while let Some(url) = self.added.as_mut().and_then(AddedUrls::try_next) {
            self.add(&url);
        }
    }

    fn add(&mut self, url: &str) {
        let (link, batch) = self.feed.add(url);
        if !batch.items.is_empty() {
            self.resume.note_added(&link);
        }
        // A run that is told to end leaves it to the next one.
        if !self.stop.is_stopping() {
            let broken = self.take_in(batch);
            debug_assert!(broken.is_none(), "an added link is no end of the input");
        }
    }

    /// Takes in a part of the input. Returns the error that ends it early.
    fn take_in(&mut self, batch: Batch) -> Option<CrawlError> {
        self.progress.added(batch.added);
        self.progress.left_out(batch.left_out);
        self.progress.skipped(batch.skipped);
        self.progress.duplicates(batch.duplicates);
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
        for (_, paused) in self.paused.extract(|host, _| is_of(host)) {
            self.feed.dropped(paused.waiting.number);
        }
        if withdrawal.is_revoked {
            // Their tasks end as cancelled, unless they have ended before.
            self.links
                .values()
                .filter(|link| is_of(self.frontier.name(link.host)))
                .for_each(|link| link.task.abort());
        }
    }

    fn report_queues(&mut self) {
        self.sink.queues(QueueSizes {
            waiting: self.frontier.len() + self.paused.len(),
            in_progress: self.open.len(),
            hosts: self.frontier.host_count(),
            done: self.finished.taken() + self.progress.totals.skipped,
        });
    }

    /// Reports the status if somebody wants it: the remaining time comes from the paces of hosts
    /// with waiting links.
    fn report_status(&mut self) {
        if !self.sink.wants_status() {
            return;
        }
        let read = (self.frontier.len() + self.open.len() + self.paused.len()) as u64;
        let unread = self.progress.left().unwrap_or_default().saturating_sub(read);
        let time = EstimateTime { now: self.now(), at: std::time::Instant::now() };
        let pace = self.pipeline.selector().pace();
        let remaining =
            pace.map(|pace| self.estimator.estimate(pace, self.frontier.hosts(), unread, time));
        let mut status =
            self.progress.status(remaining.unwrap_or_default(), self.paused.summary(), time.now);
        if self.feed.is_queue() {
            // The links here are a part of the queue, and other nodes fetch the rest.
            status.remaining.left = None;
            status.queue_left = self.feed.queue_left();
        }
        status.connection_lost = self.pipeline.selector().connection_lost_since();
        self.sink.status(status);
    }

    /// Puts links whose pause is over back into the frontier.
    fn release_paused(&mut self) {
        // Before the run gives up what is paused.
        if let Some(released) = self.releases.try_next() {
            self.release(&released);
        }
        let now = self.now();
        while let Some((host, paused)) = self.paused.pop(now) {
            self.ask_again(&host, &paused);
        }
    }

    fn ask_again(&mut self, host: &str, PausedLink { waiting, fetched, .. }: &PausedLink) {
        self.progress.totals.requests += u64::from(fetched.report.requests);
        self.frontier.push(host, *waiting);
    }

    /// Puts links whose wait somebody has ended back into the frontier. Those of a host that wait
    /// there need not wait longer either. Those in progress may have seen the pause, and are asked
    /// again if they end as paused.
    fn release(&mut self, released: &Released) {
        let Released { hosts, links, paces } = released;
        // Only its task knows what a link is called, and how long its host lets it wait.
        let is_any = *paces || !links.is_empty();
        for link in self.links.values_mut() {
            link.is_released |= is_any || hosts.contains(&**self.frontier.name(link.host));
        }
        let now = self.now();
        match *paces {
            true => self.frontier.release_all(now),
            false => hosts.iter().for_each(|host| self.frontier.release(host, now)),
        }
        if !is_any && !hosts.iter().any(|host| self.paused.has_host(host)) {
            return;
        }
        let released = self.paused.extract(|host, paused| {
            hosts.contains(host)
                || links.contains(&paused.hash)
                || *paces && paused.fetched.report.error_type == Some(Report::PACED)
        });
        for (host, paused) in &released {
            self.ask_again(host, paused);
        }
    }

    /// Returns the hash by which the end of a link's pause names it.
    fn hash_of(&self, link: &Link) -> u64 {
        let selector = self.pipeline.selector();
        match (&link.id, parse(&link.url)) {
            (Some(id), _) => selector.link_hash(id),
            (None, Ok(url)) => selector.link_hash(identity(&url)),
            (None, Err(_)) => selector.link_hash(&link.url),
        }
    }

    /// Reports once that the run waits for paused links only.
    fn report_wait(&mut self) {
        if !std::mem::replace(&mut self.is_wait_reported, true)
            && let Some(paused) = self.paused.summary()
        {
            let at = self.now();
            self.sink.event(CrawlEvent::Waiting { paused, at });
        }
    }

    /// Ends all paused links: the run does not wait for them any longer.
    fn give_up_paused(&mut self) {
        let now = self.now();
        for (host, PausedLink { waiting, mut fetched, .. }) in self.paused.take_all() {
            let host_pause =
                self.pipeline.selector().host_pause(&host).filter(|until| *until > now);
            fetched.report.paused_until = fetched.report.paused_until.max(host_pause);
            self.end_link(waiting, *fetched);
        }
    }

    /// Starts links as long as there are free slots and hosts that are ready. Returns when to try
    /// again unless something ends earlier, and whether only a slot is missing.
    fn start_ready_links(&mut self) -> (Option<Instant>, bool) {
        let now = self.now();
        while self.open.len() < self.concurrency * MAX_STARTED {
            let Some(slot) = self.free_slot.take().or_else(|| self.slots.try_take()) else {
                return (None, true);
            };
            let Some((host, waiting)) = self.frontier.pop(now) else {
                return (self.frontier.next_at().map(|at| Instant::now() + at.since(now)), false);
            };
            self.start(host, waiting, slot);
        }
        (None, false)
    }

    fn start(&mut self, host: HostId, waiting: QueuedLink, slot: LinkSlot) {
        let keeps_body = match self.bodies {
            Bodies::None => false,
            Bodies::First => waiting.number == 0,
            Bodies::All => true,
        };
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
        self.links.insert(task.id(), OpenLink { host, waiting, task, is_released: false });
    }

    /// Takes the end of a link. All that ended in the meantime share one wait for the log.
    fn finish_all(&mut self, ended: Result<(Id, Fetched), JoinError>) {
        self.finish(ended);
        while let Some(ended) = self.open.try_join_next_with_id() {
            self.finish(ended);
        }
    }

    fn finish(&mut self, ended: Result<(Id, Fetched), JoinError>) {
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
        let Some(OpenLink { host, mut waiting, is_released, .. }) = self.links.remove(&id) else {
            return;
        };
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
            self.sink.event(CrawlEvent::CrawlDelayCut(&cut));
        }
        if let Some(host) = fetched.report.signature_rejected_by.take() {
            self.sink.event(CrawlEvent::SignatureRejected(&host));
        }
        let Some(fetched) = self.put_back(host, fetched, &mut waiting, is_released) else { return };
        self.frontier.ended(host, PlaceUse::of(&fetched.report));
        if fetched.report.success {
            self.paused.record_delivery();
        }
        self.end_link(waiting, *fetched);
    }

    /// Returns the result of a link whose task broke.
    fn broken(&self, waiting: QueuedLink, message: String) -> Fetched {
        let (place, link) = self.feed.list.read(waiting)?;
        let report = Report {
            error_type: Some(totals::INTERNAL),
            message: Some(message),
            ..Report::default()
        };
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

    /// Puts a link that was not fetched where its [`LinkFate`] says. Returns the fetched link if it
    /// has ended.
    fn put_back(
        &mut self,
        host: HostId,
        fetched: Box<FetchedLink>,
        waiting: &mut QueuedLink,
        is_released: bool,
    ) -> Option<Box<FetchedLink>> {
        let (report, used) = (&fetched.report, PlaceUse::of(&fetched.report));
        let Some(why) = NotFetched::of(report) else { return Some(fetched) };
        // The trial of a host that refuses everything says nothing of the link, which is asked for
        // again.
        waiting.refused += u8::from(why == NotFetched::Refused && !report.was_trial);
        let fate = match self.feed.is_withdrawn(waiting.number) {
            true => LinkFate::StaysQueued,
            false => {
                let now = self.now();
                LinkFate::of(why, waiting.refused, report.paused_until, &self.wait_limits(), now)
            }
        };
        match fate {
            LinkFate::Ends => return Some(fetched),
            LinkFate::Pauses(_) if is_released => self.frontier.back(host, *waiting, self.now()),
            LinkFate::Pauses(until) => {
                let name = Arc::clone(self.frontier.name(host));
                let hash = self.hash_of(&fetched.link);
                let paused = PausedLink { waiting: *waiting, hash, fetched };
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
        self.progress.totals.requests += u64::from(fetched.report.requests);
        None
    }

    fn wait_limits(&self) -> WaitLimits {
        WaitLimits {
            max_wait: self.max_wait,
            pauses: self.paused.limit(),
            is_queue: self.feed.is_queue(),
            is_stopping: self.stop.is_stopping(),
        }
    }

    /// Passes finished items on: all of them, or in the order of the input those that wait for no
    /// earlier one. The others are saved.
    async fn pass_on_finished(&mut self) -> Result<(), S::Error> {
        if self.finished.is_ready() || self.finished.has_unsaved() {
            self.log.settle().await;
            // A continued run does not fetch them again, so the log needs their attempts first.
            self.finished.save();
        }
        while let Some(item) = self.finished.take().map_err(CrawlError::WaitingResult)? {
            self.pass_on(&item)?;
        }
        // A killed run passes on again what it has passed on since the last time.
        self.resume.flush();
        Ok(())
    }

    /// Passes all finished items on, at the end of a run that is incomplete.
    async fn pass_on_all_finished(&mut self) -> Result<(), S::Error> {
        self.pass_on_finished().await?;
        while self.finished.skip_gap() {
            self.pass_on_finished().await?;
        }
        Ok(())
    }

    fn pass_on(&mut self, item: &FinishedItem) -> Result<(), S::Error> {
        match item {
            FinishedItem::Bad { number, place, error } => {
                self.progress.totals.unclassified += 1;
                self.sink.result(CrawlResult::Invalid { position: *place, error })?;
                self.feed.written(*number);
            }
            FinishedItem::Fetched(position, link, report) => {
                self.progress.totals.add(report);
                let at = self.now();
                self.sink.result(CrawlResult::Fetched { position: *position, link, report, at })?;
                // What the sink has found in the page is recorded before the page counts as done.
                self.take_added();
                match position {
                    InputPosition::Queue { number, .. } => self.feed.written(*number),
                    _ => self.resume.note(link, report, at),
                }
            }
        }
        self.progress.done += 1;
        Ok(())
    }
}

/// Waits for the next URL that the caller adds; none if it adds none any more. Cancel safe.
async fn next_added(added: &mut Option<AddedUrls>) -> Option<String> {
    added.as_mut()?.next().await
}
