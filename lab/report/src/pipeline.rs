//! The whole pipeline over loopback, compared with bare hyper fetching the same pages, in turns,
//! from one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use fetchwise::decision::Source;
use fetchwise::detect::{Detector, Scratch};
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::{Fetcher, Limits, Request};
use fetchwise::journal::Journal;
use fetchwise::pipeline::{Link, Pipeline};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::{Header, Page};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use url::Url;

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::loopback;
use crate::measure::{CELLS, Latency, batch, best, cpu_time};
use crate::record::{INTERVAL, options};
use crate::server::Server;
use crate::text;

const CONCURRENCY: usize = loopback::HOSTS;
/// The maximum overhead of the pipeline.
const TARGET: f64 = 0.05;

/// The times of one client over all of its rounds.
struct Lane {
    name: &'static str,
    latency: Latency,
    fetched: usize,
    elapsed: Vec<f64>,
    cpu: Vec<f64>,
}

impl Lane {
    fn new(name: &'static str) -> Self {
        Self { name, latency: Latency::new(), fetched: 0, elapsed: Vec::new(), cpu: Vec::new() }
    }

    /// Runs one round of `count` fetches, `CONCURRENCY` at a time.
    async fn round<F: Future<Output = ()>>(&mut self, count: usize, fetch: impl Fn(usize) -> F) {
        let (cpu, begun) = (cpu_time(), Instant::now());
        let latency = &mut self.latency;
        futures_util::stream::iter(0..count)
            .map(|n| {
                let fetched = fetch(n);
                async move {
                    let begun = Instant::now();
                    fetched.await;
                    begun.elapsed()
                }
            })
            .buffer_unordered(CONCURRENCY)
            .for_each(|took| {
                latency.add(took);
                std::future::ready(())
            })
            .await;
        self.elapsed.push(begun.elapsed().as_secs_f64() * 1e9 / count as f64);
        self.cpu.push((cpu_time() - cpu).as_secs_f64() * 1e9 / count as f64);
        self.fetched += count;
    }

    fn median(values: &[f64]) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn elapsed(&self) -> f64 {
        Self::median(&self.elapsed)
    }

    fn cpu(&self) -> f64 {
        Self::median(&self.cpu)
    }
}

struct Crawl {
    port: u16,
    /// Fetches of the probing pipeline that were probes.
    probes: AtomicUsize,
    hyper: Client<HttpConnector, Empty<Bytes>>,
    http: HttpFetcher,
    memory: Pipeline,
    kept: Pipeline,
    probing: Pipeline,
    limits: Limits,
}

fn http() -> HttpFetcher {
    let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
    HttpFetcher::builder().guard(guard).build().unwrap()
}

fn selector(settings: fetchwise::score::Settings) -> Selector {
    Selector::builder()
        .without_pace()
        .fetcher(FetcherSpec::by_name("direct_access"))
        .settings(settings)
        .build()
        .unwrap()
}

fn pipeline(selector: Selector) -> Pipeline {
    Pipeline::builder(Arc::new(selector)).fetcher(Arc::new(http())).build().unwrap()
}

impl Crawl {
    fn new(port: u16, journal: Arc<Journal>) -> Self {
        let mut kept = selector(fetchwise::score::Settings::default());
        kept.set_sink(Box::new(journal));
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // No confidence is ever enough, so each decision is a probe.
        let never = fetchwise::score::Settings { min_sample: f64::MAX, ..Default::default() };
        Self {
            port,
            probes: AtomicUsize::new(0),
            hyper: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(CONCURRENCY)
                .build(connector),
            http: http(),
            memory: pipeline(selector(Default::default())),
            kept: pipeline(kept),
            probing: pipeline(selector(never)),
            limits: Limits::default(),
        }
    }

    fn address(&self, n: usize) -> String {
        format!("http://{}:{}/section{}/page-{n}", loopback::address(n), self.port, n % 7)
    }

    fn slow_address(&self, n: usize) -> String {
        format!("http://{}:{}{}/page-{n}", loopback::address(n), self.port, loopback::SLOW_PATH)
    }

    async fn by_hyper(&self, address: String) {
        let response = self.hyper.get(address.parse().unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() > loopback::PAGE_BYTES - 500);
    }

    async fn by_fetcher(&self, address: String) {
        let url = Url::parse(&address).unwrap();
        let response = self.http.fetch(Request::new(&url, &self.limits)).await.unwrap();
        assert!(response.status == 200);
    }

    async fn by_pipeline(&self, pipeline: &Pipeline, address: String) {
        let report = pipeline.fetch(&Link::new(address)).await;
        assert!(report.success && report.requests == 1, "{report:?}");
        if report.source == Some(Source::Probe) {
            self.probes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("The pipeline over loopback");
    let server = Server::start();
    let tmp = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::open(tmp.path(), options(INTERVAL)).unwrap().0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut lanes = [
        "bare hyper",
        "HttpFetcher",
        "pipeline, in memory",
        "pipeline with journal",
        "pipeline, each a probe",
    ]
    .map(Lane::new);
    let mut slow_lanes = ["bare hyper", "pipeline with journal"].map(Lane::new);
    let (rounds, count) = scale.pick((1, 200), (9, 5_000));
    runtime.block_on(async {
        let crawl = Crawl::new(server.port, journal);
        // After these fetches the site is learned and connections are open.
        for n in 0..20 * loopback::HOSTS {
            crawl.by_pipeline(&crawl.memory, crawl.address(n)).await;
            crawl.by_pipeline(&crawl.kept, crawl.address(n)).await;
        }
        for round in 0..=rounds {
            eprintln!("  round {round}");
            let [bare, fetcher, memory, kept, probe] = &mut lanes;
            bare.round(count, |n| crawl.by_hyper(crawl.address(n))).await;
            fetcher.round(count, |n| crawl.by_fetcher(crawl.address(n))).await;
            memory.round(count, |n| crawl.by_pipeline(&crawl.memory, crawl.address(n))).await;
            kept.round(count, |n| crawl.by_pipeline(&crawl.kept, crawl.address(n))).await;
            probe.round(count, |n| crawl.by_pipeline(&crawl.probing, crawl.address(n))).await;
            let [bare, kept] = &mut slow_lanes;
            bare.round(count / 10, |n| crawl.by_hyper(crawl.slow_address(n))).await;
            kept.round(count / 10, |n| crawl.by_pipeline(&crawl.kept, crawl.slow_address(n))).await;
            if round == 0 {
                // The first round opens connections and warms up.
                lanes
                    .iter_mut()
                    .chain(&mut slow_lanes)
                    .for_each(|lane| *lane = Lane::new(lane.name));
                crawl.probes.store(0, Ordering::Relaxed);
            }
        }
        let probes = crawl.probes.load(Ordering::Relaxed) as f64 / lanes[4].fetched as f64;
        describe(&mut section, &lanes, probes);
        describe_slow(&mut section, &slow_lanes);
    });
    parts(&mut section, scale);
    section
}

fn describe(section: &mut Section, lanes: &[Lane; 5], probes: f64) {
    let (bare, kept) = (&lanes[0], &lanes[3]);
    section.text(format!(
        "Each client makes {} fetches of a page of {} KB over HTTP/1.1 with keep-alive. It has {} loopback addresses, \
         {CONCURRENCY} requests at a time, and one thread. The server is another process on the other core. The \
         clients take turns for {} rounds, and the medians count. *Bare hyper* is hyper-util's pooled client, which \
         collects the body and checks, classifies and learns nothing. *HttpFetcher* also checks addresses, limits and \
         deadlines, and decodes. The pipeline decides, fetches, classifies the page and records the attempt, in \
         memory or with a journal at `Interval(100 ms)`. The time includes the journal's thread. *Each a probe* is a \
         pipeline that is never confident. {:.0} % of its fetches were probes, and the others waited for one of their \
         host. *Processor* is user and system time of the client's process.",
        text::count(bare.fetched as f64),
        loopback::PAGE_BYTES / 1000,
        loopback::HOSTS,
        bare.elapsed.len(),
        probes * 100.0,
    ));
    table(section, lanes);
    for (what, ours, theirs) in [
        ("elapsed time", kept.elapsed(), bare.elapsed()),
        ("processor time", kept.cpu(), bare.cpu()),
    ] {
        let added = ours / theirs - 1.0;
        let what = format!("overhead of the pipeline with journal over bare hyper, {what}");
        section.goal(&what, Unit::Fraction, added, Bound::AtMost(TARGET));
    }
    for lane in &lanes[1..] {
        let what = "a 20 KB page over loopback, processor time";
        section.limit(
            what,
            lane.name,
            bare.name,
            bare.cpu() / lane.cpu(),
            "bare hyper decides, classifies and learns nothing",
        );
    }
}

/// Describes the run against slow sites.
fn describe_slow(section: &mut Section, lanes: &[Lane; 2]) {
    section.text(format!(
        "That server responds at once, so a fetch costs only processor time, to which the pipeline adds. The next \
         table has a server that takes {} ms per response, as fast sites do, with {} fetches per client:",
        loopback::SLOW.as_millis(),
        text::count(lanes[0].fetched as f64),
    ));
    table(section, lanes);
}

/// Adds the clients next to the first of them.
fn table(section: &mut Section, lanes: &[Lane]) {
    let bare = &lanes[0];
    let row = |lane: &Lane| {
        let more = |of: f64, than: f64| format!("{:+.1} %", (of / than - 1.0) * 100.0);
        let mut row = vec![
            lane.name.to_owned(),
            text::rate(1e9 / lane.elapsed()),
            text::ns(lane.elapsed()),
            more(lane.elapsed(), bare.elapsed()),
            text::ns(lane.cpu()),
            more(lane.cpu(), bare.cpu()),
        ];
        row.extend(lane.latency.cells());
        row
    };
    let head: Vec<&str> =
        ["candidate", "URLs", "elapsed, per URL", "more", "processor, per URL", "more"]
            .into_iter()
            .chain(CELLS)
            .collect();
    section.table(&head, lanes.iter().map(row).collect());
}

/// Measures the parts of the pipeline besides fetching.
fn parts(section: &mut Section, scale: Scale) {
    let (now, page, count) = (Timestamp::now(), loopback::page(), scale.pick(100, 20_000));
    let selector = selector(Default::default());
    let url = Url::parse("http://127.0.0.1/section1/page-1").unwrap();
    let make = || fetchwise::attempt::Attempt::new(&url, "direct_access", now).unwrap().delivered();
    (0..20).for_each(|_| selector.record(make(), now).unwrap());
    let (detector, mut scratch) = (Detector::new(), Scratch::default());
    let headers =
        [Header::new("content-type", "text/html; charset=utf-8"), Header::new("server", "nginx")];
    let read = Page { status: 200, headers: &headers, body: &page, ..Page::default() };
    let rows = [
        (
            "parse of the URL",
            best(5, || batch(count, |_| _ = std::hint::black_box(Url::parse(url.as_str())))),
        ),
        (
            "decision",
            best(5, || {
                batch(count, |_| {
                    _ = std::hint::black_box(
                        selector.select(&url, &SelectContext::first_attempt(now)),
                    )
                })
            }),
        ),
        (
            "verdict on the page",
            best(5, || {
                batch(count, |_| _ = std::hint::black_box(detector.inspect(&read, &mut scratch)))
            }),
        ),
        ("attempt built", best(5, || batch(count, |_| _ = std::hint::black_box(make())))),
        (
            "attempt built and recorded in memory",
            best(5, || batch(count, |_| selector.record(make(), now).unwrap())),
        ),
    ];
    section.text("The parts of the pipeline besides fetching, each alone in a batch:");
    let rows = rows.into_iter().map(|(what, each)| vec![what.to_owned(), text::ns(each)]).collect();
    section.table(&["part", "each"], rows);
}
