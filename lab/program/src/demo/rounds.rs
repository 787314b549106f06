//! The interactive demo: crawls the sites round after round and prints a summary at the end.
//!
//! Up to three crawlers run, each with its own copy of the sites, which count its requests. Pauses
//! are short: a blocked site is paused for seconds, a real one for minutes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fetchwise::config::{Config, PaceHostConfig};
use fetchwise::detect::Detector;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::http::{DEFAULT_USER_AGENT, HttpFetcher};
use fetchwise::heuristic::url::domain_of;
use fetchwise::pace::PaceMode;
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise_terminal::{DIM, Table, styled};
use fetchwise_testsite::demo_sites::{DemoSite, MILL, interactive_demo_sites};
use fetchwise_testsite::origin::Origin;
use tokio::task::JoinSet;

use super::args::{Browser, DemoArgs};
use super::crawler::{Crawler, CrawlerOptions};
use super::screen;
use super::sites::serve;
use crate::demo::baselines::{Baseline, count};
use crate::demo::model::{DemoModel, PageResult, RequestCounts};
use crate::demo::shared_model::SharedModel;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::shutdown;

/// The minimum duration of a round, so that a person can follow.
const ROUND_TIME: Duration = Duration::from_millis(700);
/// The first pause of a link that was blocked.
const PAUSE: Duration = Duration::from_secs(8);
/// The number of parallel links of the mill.
const MILLERS: usize = 6;
/// The wait of the mill's links before the next request, if the report has no time.
const MILL_WAIT: Duration = Duration::from_millis(50);
/// The rate of the sites other than the mill: practically no limit.
const UNPACED: f64 = 10_000.0;

/// Runs the command.
pub(super) fn run(args: &DemoArgs, out: &mut Output) -> Result<Exit, Failure> {
    let (mill, sites): (Vec<DemoSite>, Vec<DemoSite>) =
        interactive_demo_sites().into_iter().partition(|place| place.name == MILL);
    let origin = serve(&[sites.clone(), mill.clone()].concat())?;
    let dir = tempfile::tempdir().map_err(|error| {
        Failure::failed(format_args!("cannot create a temporary directory: {error}"))
    })?;
    let (config, browser) = (hurried(&sites), args.browser()?);
    let options = CrawlerOptions {
        dir: args.data_dir.as_deref().unwrap_or(dir.path()),
        config: &config,
        browser: &browser,
        has_queue: true,
        is_served: args.serve,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let (crawler, baselines, stop) = runtime.block_on(async {
        let stop = shutdown::listen().map_err(Failure::failed)?;
        Ok::<_, Failure>((Crawler::open(&options).await?, Baselines::new(&browser, &sites)?, stop))
    })?;
    let names: Vec<&'static str> = std::iter::once("fetchwise")
        .chain(baselines.all.iter().map(|baseline| baseline.name))
        .collect();
    let rounds = usize::from(args.rounds);
    let mut model = DemoModel::new(&sites, &names, rounds, render_cost(&crawler.pipeline));
    model.dashboard = crawler.dashboard.as_ref().map(|served| served.url.clone());
    let show = Arc::new(SharedModel::new(model));
    let crawl = Crawl { pipeline: Arc::clone(&crawler.pipeline), origin: Arc::new(origin), sites };
    let drawn = {
        let going = runtime.spawn(crawl.clone().go(baselines, Arc::clone(&show)));
        let milling = runtime.spawn(grind(crawl.clone(), mill, Arc::clone(&show)));
        let drawn = screen::run(&show, &stop);
        show.end();
        going.abort();
        milling.abort();
        drawn
    };
    drop(crawl);
    let closed = runtime.block_on(crawler.close());
    runtime.shutdown_timeout(Duration::from_millis(500));
    drawn.map_err(|error| {
        Failure::failed(format_args!("cannot draw on this terminal: {error}"))
            .advise("use --plain to print a table instead")
    })?;
    closed?;
    sum_up(&show.model(), out)?;
    Ok(Exit::Done)
}

/// Returns a config with pauses of seconds, and with a learned pace for the mill only.
fn hurried(sites: &[DemoSite]) -> Config {
    let mut config = Config::default();
    config.tuning.blocked_base = Some(PAUSE);
    config.pace.mode = Some(PaceMode::Learn);
    for place in sites {
        let pace = PaceHostConfig { rate: Some(UNPACED), parallel: None };
        config.pace.hosts.insert(place.host.to_owned(), pace);
    }
    config
}

/// Returns the cost of a page of the cheapest browser, in plain requests.
fn render_cost(pipeline: &Pipeline) -> f64 {
    let costs = pipeline
        .selector()
        .candidates()
        .filter(|(_, spec)| spec.renders)
        .map(|(_, spec)| spec.cost);
    costs.fold(f64::INFINITY, f64::min)
}

/// The crawlers that learn nothing.
struct Baselines {
    all: Vec<Baseline>,
    /// The browser that one of them uses.
    browser: Option<Arc<BrowserFetcher>>,
}

impl Baselines {
    fn new(browser: &Browser, sites: &[DemoSite]) -> Result<Self, Failure> {
        let guard = AddressGuard::new(Vec::new(), true);
        let detector = Arc::new(Detector::new());
        let plain = HttpFetcher::builder().guard(guard.clone()).build().map_err(Failure::usage)?;
        let plain = Arc::new(plain);
        let mut all = vec![Baseline::new("always direct", plain, Arc::clone(&detector), sites)?];
        let browser = match browser {
            Ok(program) => {
                let browser = BrowserFetcher::new(
                    program.clone(),
                    BrowserOptions::default(),
                    Dialer::new(guard),
                );
                Some(Arc::new(browser.map_err(Failure::usage)?))
            }
            Err(_) => None,
        };
        if let Some(browser) = &browser {
            all.push(Baseline::new("always browser", Arc::clone(browser) as _, detector, sites)?);
        }
        Ok(Self { all, browser })
    }
}

/// The parts that a crawl of the demo sites needs.
#[derive(Clone)]
struct Crawl {
    pipeline: Arc<Pipeline>,
    origin: Arc<Origin>,
    sites: Vec<DemoSite>,
}

impl Crawl {
    /// Runs all rounds, then ends the show.
    async fn go(self, mut baselines: Baselines, show: Arc<SharedModel>) {
        let rounds = show.model().rounds;
        for round in 0..rounds {
            let begun = tokio::time::Instant::now();
            while show.model().is_stopped {
                tokio::time::sleep(ROUND_TIME / 10).await;
            }
            let others =
                baselines.all.iter_mut().map(|baseline| baseline.round(&self.sites, round));
            tokio::join!(self.round(round, &show), futures_util::future::join_all(others));
            self.settle(round + 1, &baselines, &show);
            tokio::time::sleep_until(begun + ROUND_TIME).await;
        }
        if let Some(browser) = &baselines.browser {
            browser.close().await;
        }
        // The dashboard stays until the user ends the demo.
        if show.model().dashboard.is_none() {
            show.end();
        }
    }

    /// Fetches one page of each site.
    async fn round(&self, round: usize, show: &Arc<SharedModel>) {
        let mut pages = JoinSet::new();
        for (index, place) in self.sites.iter().enumerate() {
            let (pipeline, show) = (Arc::clone(&self.pipeline), Arc::clone(show));
            let link = Link::new(self.origin.url(place.host, &place.path(round)));
            pages.spawn(async move {
                let report = Report { response: None, ..pipeline.fetch(&link).await };
                let now = pipeline.selector().now();
                let paused_for = report.paused_until.map(|until| until.since(now));
                show.model().page(index, &report, paused_for);
            });
        }
        while pages.join_next().await.is_some() {}
    }

    /// Records the counts of the sites.
    fn settle(&self, round: usize, baselines: &Baselines, show: &SharedModel) {
        let mut counted = vec![count(&self.origin, &self.sites, DEFAULT_USER_AGENT)];
        counted.extend(
            baselines.all.iter().map(|baseline| baseline.counted(&self.sites, DEFAULT_USER_AGENT)),
        );
        let mut model = show.model();
        model.round = round;
        let pages = model
            .sites
            .iter()
            .flat_map(|site| &site.results)
            .filter(|result| matches!(result, PageResult::Page { .. }))
            .count();
        counted[0].pages = pages as u64;
        let render_cost = model.render_cost;
        for (crawler, counted) in model.crawlers.iter_mut().zip(counted) {
            crawler.costs.push(counted.cost(render_cost));
            crawler.counted = counted;
        }
    }
}

/// Requests pages of the mill as fast as its pace allows, and records the pace once per second.
async fn grind(crawl: Crawl, mill: Vec<DemoSite>, show: Arc<SharedModel>) {
    let Some(mill) = mill.into_iter().next() else { return };
    let mill = Arc::new(mill);
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..MILLERS {
        let (crawl, mill, next, show) =
            (crawl.clone(), Arc::clone(&mill), Arc::clone(&next), Arc::clone(&show));
        tasks.spawn(async move {
            while !show.is_over() {
                let number = next.fetch_add(1, Ordering::Relaxed);
                sack(&crawl, &mill, number, &show).await;
            }
        });
    }
    while !show.is_over() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let selector = crawl.pipeline.selector();
        let pace =
            selector.pace().and_then(|pace| pace.explain(domain_of(mill.host), selector.now()));
        let refused = crawl.origin.refusals(mill.host);
        let mut model = show.model();
        model.mill.refused = refused;
        model.second(pace);
    }
}

/// Requests one page of the mill until it arrives.
async fn sack(crawl: &Crawl, mill: &DemoSite, number: usize, show: &SharedModel) {
    let link = Link::new(crawl.origin.url(mill.host, &mill.path(number)));
    while !show.is_over() {
        let report = crawl.pipeline.fetch(&link).await;
        if report.success {
            show.model().mill.pages += 1;
            return;
        }
        let now = crawl.pipeline.selector().now();
        let wait = report.paused_until.map_or(MILL_WAIT, |until| until.since(now));
        tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
    }
}

/// Prints what was learned and what it saved.
fn sum_up(model: &DemoModel, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&["site", ">pages", ">requests", "now"]);
    for site in &model.sites {
        let pages =
            site.results.iter().filter(|result| matches!(result, PageResult::Page { .. })).count();
        let requests: u32 = site.results.iter().map(|result| result.requests()).sum();
        let now = match site.results.last() {
            Some(PageResult::Page { way: Some(way), source, .. }) => {
                let source = source.map_or("", fetchwise::decision::Source::name);
                format!("{}, {source} (confidence {:.2})", way.name(), site.confidence)
            }
            Some(PageResult::Page { way: None, .. }) => "delivered".to_owned(),
            Some(PageResult::Paused) => "paused".to_owned(),
            Some(PageResult::Failed { .. }) => "no page".to_owned(),
            None => String::new(),
        };
        table.row([site.name.to_owned(), pages.to_string(), requests.to_string(), now]);
    }
    out.line(table)?;
    let mut table = Table::new(&[
        "crawler",
        ">pages",
        ">plain requests",
        ">rendered",
        ">refused",
        ">cost",
        ">cost per page",
    ]);
    for crawler in &model.crawlers {
        let RequestCounts { pages, plain, rendered, refused, .. } = crawler.counted;
        let cost = crawler.counted.cost(model.render_cost);
        let a_page =
            if pages == 0 { "-".to_owned() } else { format!("{:.1}", cost / pages as f64) };
        let cells = [
            pages.to_string(),
            plain.to_string(),
            rendered.to_string(),
            refused.to_string(),
            format!("{cost:.0}"),
            a_page,
        ];
        table.row(std::iter::once(crawler.name.to_owned()).chain(cells));
    }
    out.line(format_args!("\n{table}"))?;
    let mill = &model.mill;
    if let Some(pace) = &mill.pace {
        let limit = pace.ceiling.map_or_else(String::new, |(ceiling, window)| {
            format!(", its limit is near {ceiling:.1} per second, over a window of {window}")
        });
        out.line(format_args!(
            "\nmill: {} pages, {} requests refused{limit}; {:.1} requests per second at the end.",
            mill.pages, mill.refused, pace.rate
        ))?;
    }
    out.line(styled(
        DIM,
        format_args!(
            "\nCounted by the sites after {} rounds; a rendered page costs {:.0} plain requests.",
            model.round, model.render_cost
        ),
    ))
}
