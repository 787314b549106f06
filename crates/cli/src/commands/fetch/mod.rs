//! `fetch`: many URLs at once, with a result for each.
//!
//! A result appears as soon as it is available, so that a hanging server delays no other result; with `--ordered`
//! results appear in the order of the input. A result is printed once its attempts survive the end of the process. Its
//! link is recorded as done once the result is flushed. A killed run therefore loses no printed result, and prints
//! every result at least once when it is resumed.
//!
//! Links are read ahead. Those of a host that has to wait stay in its own queue and take no slot from others.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

#[cfg(feature = "fleet")]
use super::fleet;
use crate::commands::fetch::build_crawler::Crawler;
use crate::commands::fetch::crawl_options::Wishes;
use crate::commands::fetch::input_feed::{Feed, Item, Place};
use crate::commands::fetch::metrics_endpoint::{Exported, Listening};
use crate::commands::fetch::shutdown::{GRACE, Stop};
use crate::setup::background_maintenance;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Out, plain};
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::journal::{Health, Journal};
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::store::warc::{Warc, cdxj};
use queue::{Queue, host_of};
use report::Show;
use resume::Resume;

pub(crate) use args::{FetchArgs, PaceArgs};

pub(crate) mod args;
pub(crate) mod build_crawler;
pub(crate) mod build_fetchers;
pub(crate) mod crawl_options;
mod eta;
mod fd_limit;
pub(crate) mod input_feed;
mod metrics_endpoint;
mod queue;
pub(crate) mod report;
mod resume;
pub(crate) mod shutdown;

/// The time for the log to take the attempts of a result.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// The interval at which the health of the log is checked.
const HEALTH_TIME: Duration = Duration::from_millis(250);
/// The default limit of a link's wait for its host.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(15 * 60);
/// The maximum number of requests for a link that its host refused because the crawl was too fast.
const MAX_TRIES: u8 = 4;
/// The limit of links that are read and not started; with `--ordered` also of those that are read and not printed.
const READ_AHEAD: usize = 10_000;

/// Runs the command.
pub(crate) fn run(args: &FetchArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    out.patient()?;
    let concurrency = crate::commands::fetch::fd_limit::at_once(args.concurrency);
    let feed = Feed::start(args, settings)?;
    let store = crate::commands::fetch::build_crawler::store(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::failed)?;
    let ended = runtime.block_on(async {
        let stop = crate::commands::fetch::shutdown::listen().map_err(Failure::failed)?;
        let metrics = Listening::open(args.metrics.as_deref()).await?;
        let crawler = Crawler::open(settings, &Wishes::from(args), store)?;
        let resume = Resume::open(crawler.journal.dir(), args, args.restart)
            .map_err(|error| Failure::failed(format_args!("cannot read the state of the last run: {error}")))?;
        let total = feed.total;
        #[cfg(feature = "fleet")]
        let fleet = fleet::join(settings, &args.fleet, &crawler.journal, &crawler.selector).await?;
        #[cfg(feature = "fleet")]
        let told = fleet.as_ref().map(|fleet| fleet.membership());
        #[cfg(not(feature = "fleet"))]
        let told = None;
        let metrics = metrics.map(|metrics| metrics.begin(&crawler, total, told)).transpose()?;
        let upkeep = background_maintenance::start(settings, crawler.journal.dir())?;
        let run = Run {
            pipeline: Arc::clone(&crawler.pipeline),
            journal: Arc::clone(&crawler.journal),
            concurrency,
            per_host: args.pace.per_host,
            max_wait: settings.config.pace.max_wait.unwrap_or(MAX_WAIT),
            browsers: crawler.browsers().to_vec(),
            browser_said: false,
            is_ordered: args.ordered,
            feed,
            resume,
            show: Show::new(out, total),
            stop,
            queue: Queue::default(),
            is_stopping: false,
            under_way: JoinSet::new(),
            links: HashMap::new(),
            done: BTreeMap::new(),
            read: 0,
            shown: 0,
            is_degraded: false,
            upkeep,
            metrics,
        };
        let ended = run.go().await;
        let (health, lost) = (crawler.journal.health(), crawler.journal.lost());
        let dir = crawler.journal.dir().to_owned();
        #[cfg(feature = "fleet")]
        if let Some(fleet) = fleet {
            fleet.end().await;
        }
        let closed = crawler.close().await;
        let exit = ended?;
        closed?;
        settings.snapshot_if_due(&dir);
        match health {
            _ if !lost.is_nothing() => Err(Failure::failed(format_args!("the attempt log lost {lost}"))),
            Health::Degraded { reason, .. } => {
                Err(Failure::failed(format_args!("the attempt log was failing: {reason}")))
            }
            _ => Ok(exit),
        }
    });
    // A name lookup blocks a thread that cannot be stopped.
    runtime.shutdown_timeout(Duration::from_millis(500));
    if let (Some(archive), Some(cdx)) = (&args.warc, &args.cdx) {
        index(archive, cdx)?;
    }
    ended
}

/// Updates the index of an archive, including what an interrupted run wrote.
fn index(archive: &Path, cdx: &Path) -> Result<(), Failure> {
    cdxj::update(&Warc::files(archive), cdx).map(drop).map_err(|error| {
        Failure::failed(format_args!("cannot update the index {}: {error}", cdx.display()))
            .advise("run again with --cdx to update it; the archive is complete")
    })
}

/// A run in progress.
struct Run<'o> {
    pipeline: Arc<Pipeline>,
    journal: Arc<Journal>,
    concurrency: usize,
    /// The limit of parallel links per host.
    per_host: Option<u8>,
    /// The limit of a link's wait for its host.
    max_wait: Duration,
    /// Whether results come in the order of the input.
    is_ordered: bool,
    feed: Feed,
    resume: Resume,
    show: Show<'o>,
    stop: Stop,
    queue: Queue<Waiting>,
    /// Whether the run is stopping: what has to wait is left to the next run.
    is_stopping: bool,
    under_way: JoinSet<Report>,
    /// The links in progress, with their hosts.
    links: HashMap<Id, (Arc<str>, Waiting)>,
    /// Finished items that are not printed yet, in the order of reading.
    done: BTreeMap<u64, Done>,
    read: u64,
    shown: u64,
    /// Whether the failing log was reported.
    is_degraded: bool,
    browsers: Vec<Arc<BrowserFetcher>>,
    /// Whether the failing browser was reported.
    browser_said: bool,
    /// Background maintenance of the log.
    upkeep: Option<background_maintenance::Running>,
    /// The endpoint that receives the counts.
    metrics: Option<Exported>,
}

/// A link that was read and is not finished.
#[derive(Debug)]
struct Waiting {
    /// Its number in the order of reading.
    number: u64,
    place: Place,
    link: Link,
    /// The number of refusals by its host because the crawl was too fast.
    refused: u8,
}

enum Done {
    Fetched(Place, Link, Box<Report>),
    Bad { line: u64, error: String },
}

impl Run<'_> {
    async fn go(mut self) -> Result<Exit, Failure> {
        let ended = self.work().await;
        // Drop what is still in progress before the journal closes.
        self.under_way.shutdown().await;
        self.look_at_upkeep();
        // Only this task may use the journal when it closes.
        if let Some(upkeep) = self.upkeep.take() {
            upkeep.stop();
        }
        if let Some(metrics) = self.metrics.take() {
            metrics.close().await;
        }
        let interrupted = ended?;
        self.look_at_browsers();
        self.show_all_done().await?;
        let Self { resume, show, .. } = self;
        let sum = show.finish();
        match interrupted {
            Some(Interrupted::Asked) => {
                return Err(
                    Failure::failed("interrupted").advise("run the same command again to continue where it stopped")
                );
            }
            Some(Interrupted::Input(error)) => return Err(Failure::failed(error)),
            None => resume.complete(),
        }
        Ok(if sum.unclassified > 0 { Exit::Failed } else { Exit::Done })
    }

    /// Works until the end of the input or an interruption.
    async fn work(&mut self) -> Result<Option<Interrupted>, Failure> {
        let (mut more, mut interrupted, mut give_up_at, mut listening) = (true, None, None, true);
        let mut health = tokio::time::interval(HEALTH_TIME);
        loop {
            let wake = self.begin_those_that_may();
            self.count();
            if !more && self.under_way.is_empty() && self.queue.len() == 0 {
                return Ok(interrupted);
            }
            let take = more && self.has_room();
            tokio::select! {
                biased;
                asked = self.stop.changed(), if listening => {
                    let times = *self.stop.borrow_and_update();
                    listening = asked.is_ok();
                    if times == 0 {
                        continue;
                    }
                    if times > 1 {
                        return Ok(Some(Interrupted::Asked));
                    }
                    (more, interrupted) = (false, Some(Interrupted::Asked));
                    self.queue.clear();
                    self.is_stopping = true;
                    give_up_at = Some(Instant::now() + GRACE);
                    if !self.under_way.is_empty() {
                        self.show.note("stopping: waiting for open requests (Ctrl-C again to abandon them)");
                    }
                }
                () = sleep_until(give_up_at.unwrap_or_else(Instant::now)), if give_up_at.is_some() => {
                    return Ok(interrupted);
                }
                _ = health.tick() => {
                    self.look_at_log();
                    self.look_at_upkeep();
                    self.look_at_browsers();
                    self.look_at_paces();
                }
                Some(ended) = self.under_way.join_next_with_id(), if !self.under_way.is_empty() => {
                    self.ended(ended);
                    // All that ended in the meantime share one wait for the log.
                    while let Some(ended) = self.under_way.try_join_next_with_id() {
                        self.ended(ended);
                    }
                    self.show_done().await?;
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                item = self.feed.next(), if take => match item {
                    None => more = false,
                    Some(Item::Broken(error)) => (more, interrupted) = (false, Some(Interrupted::Input(error))),
                    Some(Item::Bad { line, error }) => {
                        self.done.insert(self.read, Done::Bad { line, error });
                        self.read += 1;
                        self.show_done().await?;
                    }
                    Some(Item::Link(_, link)) if self.resume.skips(&link) => self.show.skipped(),
                    Some(Item::Link(place, link)) => {
                        let host = host_of(&link.url);
                        self.queue.push(&host, Waiting { number: self.read, place, link, refused: 0 });
                        if let Some(most) = self.per_host {
                            self.queue.set_at_once(&host, most.into());
                        }
                        self.read += 1;
                    }
                },
            }
        }
    }

    /// Passes the counts to the metrics endpoint.
    fn count(&self) {
        if let Some(metrics) = &self.metrics {
            let done = self.shown + self.show.sum.skipped;
            metrics.count(self.queue.len(), self.under_way.len(), self.queue.host_count(), done);
        }
    }

    /// Reports when the log begins to fail, and when it recovers. Fetching continues, and attempts wait in memory.
    fn look_at_log(&mut self) {
        match self.journal.health() {
            Health::Degraded { reason, storage_full } if !self.is_degraded => {
                self.is_degraded = true;
                let advice = if storage_full { ": free space on its file system" } else { "" };
                self.show.note(&format!(
                    "fetchwise: warning: the attempt log is degraded ({reason}); fetching continues, and attempts \
                     wait in memory{advice}"
                ));
            }
            Health::Good if self.is_degraded => {
                self.is_degraded = false;
                self.show.note("fetchwise: the attempt log has recovered");
            }
            _ => {}
        }
    }

    /// Prints the messages of background maintenance.
    fn look_at_upkeep(&mut self) {
        for words in self.upkeep.iter().flat_map(background_maintenance::Running::said) {
            self.show.note(&plain(&words));
        }
    }

    /// Shows the remaining time on the bar, from the paces of hosts with waiting links.
    fn look_at_paces(&mut self) {
        let Some(pace) = self.pipeline.selector().pace().filter(|_| self.show.is_seen()) else { return };
        let read = self.queue.len() as u64 + self.under_way.len() as u64;
        let unread = self.show.left().unwrap_or_default().saturating_sub(read);
        let words = eta::words(pace, self.queue.hosts(), unread, self.pipeline.selector().now());
        self.show.pace(words);
    }

    /// Reports once why the browser does not start.
    fn look_at_browsers(&mut self) {
        if self.browser_said {
            return;
        }
        if let Some(why) = self.browsers.iter().find_map(|browser| browser.why_not_started()) {
            self.browser_said = true;
            let why = plain(&why);
            self.show.note(&format!("fetchwise: warning: the browser does not start, continuing without it: {why}"));
        }
    }

    /// Returns whether more may be read. Results that wait for an earlier one count too.
    fn has_room(&self) -> bool {
        let held = if self.is_ordered { self.read - self.shown } else { 0 };
        self.queue.len() < READ_AHEAD && held < READ_AHEAD as u64
    }

    /// Starts links as long as there are free slots and hosts that are ready. Returns when to try again unless
    /// something ends earlier.
    fn begin_those_that_may(&mut self) -> Option<Instant> {
        let now = self.pipeline.selector().now();
        while self.under_way.len() < self.concurrency {
            let Some((host, waiting)) = self.queue.pop(now) else {
                return self.queue.next_at().map(|at| Instant::now() + at.since(now));
            };
            self.begin(host, waiting);
        }
        None
    }

    fn begin(&mut self, host: Arc<str>, waiting: Waiting) {
        let (pipeline, own) = (Arc::clone(&self.pipeline), waiting.link.clone());
        let handle = self.under_way.spawn(async move {
            let mut report = pipeline.fetch(&own).await;
            // Without a store nothing uses the body, which may be large.
            report.response = None;
            report
        });
        self.links.insert(handle.id(), (host, waiting));
    }

    fn ended(&mut self, ended: Result<(Id, Report), tokio::task::JoinError>) {
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
        let (report, waiting) = match self.again(&host, report, waiting) {
            Some(ended) => ended,
            None => return,
        };
        self.queue.ended(&host);
        let Waiting { number, place, link, .. } = waiting;
        let report = Report { url: link.url.clone(), ..report };
        self.done.insert(number, Done::Fetched(place, link, Box::new(report)));
    }

    /// Returns a link to the queue if its host has no slot for it yet, or refused it because the crawl was too fast.
    /// Otherwise returns the finished report and link.
    fn again(&mut self, host: &Arc<str>, mut report: Report, mut waiting: Waiting) -> Option<(Report, Waiting)> {
        let is_paced = report.error_type == Some(Report::PACED);
        let is_refused = report.error_type == Some(ErrorKind::RateLimited.name());
        waiting.refused += u8::from(is_refused);
        match report.paused_until {
            _ if self.is_stopping || !is_paced && !is_refused => {}
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
    async fn show_done(&mut self) -> Result<(), Failure> {
        if self.next_to_show().is_some() {
            self.settle().await;
        }
        while let Some(done) = self.next_to_show().and_then(|number| self.done.remove(&number)) {
            self.shown += 1;
            self.show_one(&done)?;
        }
        Ok(())
    }

    fn next_to_show(&self) -> Option<u64> {
        let (&first, _) = self.done.first_key_value()?;
        (!self.is_ordered || first == self.shown).then_some(first)
    }

    /// Prints all finished items, at the end of a run that is incomplete.
    async fn show_all_done(&mut self) -> Result<(), Failure> {
        self.is_ordered = false;
        self.show_done().await
    }

    /// Waits for the log. If it fails or stalls, the end of the run reports that; results are printed anyway.
    async fn settle(&self) {
        let _ = tokio::time::timeout(SETTLE_TIME, self.journal.settled()).await;
    }

    fn show_one(&mut self, done: &Done) -> Result<(), Failure> {
        match done {
            Done::Bad { line, error } => self.show.bad_line(*line, error),
            Done::Fetched(place, link, report) => {
                self.show.report(*place, link.id.as_deref(), report)?;
                if resume::is_through(report) {
                    self.resume.note(resume::hash(link));
                }
                Ok(())
            }
        }
    }
}

/// Why a run ended early.
enum Interrupted {
    Asked,
    Input(String),
}
