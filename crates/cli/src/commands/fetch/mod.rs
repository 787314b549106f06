//! `fetch`: the main job, for many URLs at once.
//!
//! A result is shown as soon as it is there, with its place in the input, so that one server that answers nothing holds up
//! no other result; with `--ordered` results come in the order of the input. A result is shown once its attempts outlive the
//! process, and its link is noted as through once the result is flushed, so that a run which is killed loses nothing that was
//! shown, and shows every result at least once when it is taken up again.
//!
//! Links are read ahead, and those of a host that has to wait stand in a queue of their own: they take no place from the others.

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

/// The log gets so long to take what a result rests on.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// How often the log's health is looked at.
const HEALTH_TIME: Duration = Duration::from_millis(250);
/// A link waits so long for its host, unless the config says otherwise.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(15 * 60);
/// A link that its host refused because the crawl was too fast is asked for so often in all.
const MAX_TRIES: u8 = 4;
/// Links that are read and not begun; with `--ordered` also those that are read and not shown.
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
            .map_err(|error| Failure::failed(format_args!("cannot read where the last run stopped: {error}")))?;
        let total = feed.total;
        #[cfg(feature = "fleet")]
        let fleet = fleet::join(settings, &args.fleet, &crawler.journal, &crawler.selector).await?;
        #[cfg(feature = "fleet")]
        let told = fleet.as_ref().map(|fleet| fleet.told());
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
            _ if !lost.is_nothing() => Err(Failure::failed(format_args!("the attempt log has lost {lost}"))),
            Health::Degraded { reason, .. } => {
                Err(Failure::failed(format_args!("the attempt log was failing: {reason}")))
            }
            _ => Ok(exit),
        }
    });
    // A name that is being looked up holds a thread that nobody can stop.
    runtime.shutdown_timeout(Duration::from_millis(500));
    if let (Some(archive), Some(cdx)) = (&args.warc, &args.cdx) {
        index(archive, cdx)?;
    }
    ended
}

/// Brings the index of an archive up to date. What an interrupted run wrote is in it, too.
fn index(archive: &Path, cdx: &Path) -> Result<(), Failure> {
    cdxj::update(&Warc::files(archive), cdx).map(drop).map_err(|error| {
        Failure::failed(format_args!("cannot bring the index {} up to date: {error}", cdx.display()))
            .advise("the archive is whole; the next run with --cdx makes up for it")
    })
}

/// A run under way.
struct Run<'o> {
    pipeline: Arc<Pipeline>,
    journal: Arc<Journal>,
    concurrency: usize,
    /// Links of a host under way at once.
    per_host: Option<u8>,
    /// A link waits so long for its host.
    max_wait: Duration,
    /// Whether results come in the order of the input.
    is_ordered: bool,
    feed: Feed,
    resume: Resume,
    show: Show<'o>,
    stop: Stop,
    queue: Queue<Waiting>,
    /// Somebody asked to stop: what has to wait is left for the next run.
    is_stopping: bool,
    under_way: JoinSet<Report>,
    /// The links under way, with their hosts.
    links: HashMap<Id, (Arc<str>, Waiting)>,
    /// What is done and not shown yet, by the order in which it was read.
    done: BTreeMap<u64, Done>,
    read: u64,
    shown: u64,
    /// Whether somebody was told that the log is failing.
    is_degraded: bool,
    browsers: Vec<Arc<BrowserFetcher>>,
    /// Whether somebody was told that the browser does not start.
    browser_said: bool,
    /// BackgroundMaintenance of the log.
    upkeep: Option<background_maintenance::Running>,
    /// Who is told how far it is.
    metrics: Option<Exported>,
}

/// A link that was read.
#[derive(Debug)]
struct Waiting {
    /// Its number among those read.
    number: u64,
    place: Place,
    link: Link,
    /// How often its host has refused it because the crawl was too fast.
    refused: u8,
}

enum Done {
    Fetched(Place, Link, Box<Report>),
    Bad { line: u64, error: String },
}

impl Run<'_> {
    async fn go(mut self) -> Result<Exit, Failure> {
        let ended = self.work().await;
        // Whatever is still under way is dropped before the journal closes.
        self.under_way.shutdown().await;
        self.look_at_upkeep();
        // At the journal's end nobody else is to be at it.
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
                return Err(Failure::failed("interrupted").advise("the same command takes it up where it stopped"));
            }
            Some(Interrupted::Input(error)) => return Err(Failure::failed(error)),
            None => resume.complete(),
        }
        Ok(if sum.unclassified > 0 { Exit::Failed } else { Exit::Done })
    }

    /// Goes through the input, or until somebody asks to stop.
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
                        self.show.note("stopping: waiting for what is under way (Ctrl-C again to leave it)");
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
                    // Those that ended meanwhile share one wait for the log.
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

    /// Says how far it is to whoever counts.
    fn count(&self) {
        if let Some(metrics) = &self.metrics {
            let done = self.shown + self.show.sum.skipped;
            metrics.count(self.queue.len(), self.under_way.len(), self.queue.host_count(), done);
        }
    }

    /// Says when the log begins to fail, and when it is well again. Fetching goes on in between: attempts wait in memory.
    fn look_at_log(&mut self) {
        match self.journal.health() {
            Health::Degraded { reason, storage_full } if !self.is_degraded => {
                self.is_degraded = true;
                let advice = if storage_full { ": make room on its file system" } else { "" };
                self.show.note(&format!(
                    "fetchwise: warning: the attempt log is degraded ({reason}); fetching goes on, and attempts wait in memory{advice}"
                ));
            }
            Health::Good if self.is_degraded => {
                self.is_degraded = false;
                self.show.note("fetchwise: the attempt log is being written again");
            }
            _ => {}
        }
    }

    /// Says what upkeep of the log did.
    fn look_at_upkeep(&mut self) {
        for words in self.upkeep.iter().flat_map(background_maintenance::Running::said) {
            self.show.note(&plain(&words));
        }
    }

    /// Says on the bar how long it takes, by the paces of the hosts that have links left.
    fn look_at_paces(&mut self) {
        let Some(pace) = self.pipeline.selector().pace().filter(|_| self.show.is_seen()) else { return };
        let read = self.queue.len() as u64 + self.under_way.len() as u64;
        let unread = self.show.left().unwrap_or_default().saturating_sub(read);
        let words = eta::words(pace, self.queue.hosts(), unread, self.pipeline.selector().now());
        self.show.pace(words);
    }

    /// Says once that the browser does not start, and why.
    fn look_at_browsers(&mut self) {
        if self.browser_said {
            return;
        }
        if let Some(why) = self.browsers.iter().find_map(|browser| browser.why_not_started()) {
            self.browser_said = true;
            let why = plain(&why);
            self.show.note(&format!("fetchwise: warning: the browser does not start, and pages go without it: {why}"));
        }
    }

    /// Whether more may be read. Results that have to wait for an earlier one take room, too.
    fn has_room(&self) -> bool {
        let held = if self.is_ordered { self.read - self.shown } else { 0 };
        self.queue.len() < READ_AHEAD && held < READ_AHEAD as u64
    }

    /// Begins links for as long as there are places and hosts that may be asked. Returns when to look again, unless something ends
    /// before.
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
            // Without a store nobody wants the body, which may be large.
            report.response = None;
            report
        });
        self.links.insert(handle.id(), (host, waiting));
    }

    fn ended(&mut self, ended: Result<(Id, Report), tokio::task::JoinError>) {
        let (id, report) = match ended {
            Ok((id, report)) => (id, report),
            Err(error) => {
                let message = Some(format!("a bug in fetchwise: {error}"));
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

    /// Puts a link back whose host has no place for it yet, or refused it because the crawl was too fast. Gives back what has ended.
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

    /// Shows what is done: all of it, or, where the order counts, what waits for nothing earlier.
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

    /// Shows everything that is done, at the end of a run that leaves some undone.
    async fn show_all_done(&mut self) -> Result<(), Failure> {
        self.is_ordered = false;
        self.show_done().await
    }

    /// Waits for the log. One that fails, or stands still, says so at the end; results are shown all the same.
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
