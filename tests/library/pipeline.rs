//! The pipeline on real servers: each end of the attribution table, probe and reuse, single flight,
//! retries, escalation, pauses. Browsers have their own file; here a plain fetcher with another
//! user agent stands for stealth.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::{Body, FetchError, FetchFuture, Fetcher, Limits, Request, Response};
use fetchwise::pipeline::{Link, LinkSlots, Pipeline, Report};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::Header;
use fetchwise::robots::{RobotsTxt, RobotsUse};
use fetchwise::router::{Mode, Router};
use fetchwise::selector::{
    SelectContext, Selector, SelectorBuilder, Sink, SinkError, VisitSettings,
};
use fetchwise::time::{Clock, Timestamp};
use fetchwise_testsite::origin::{Charset, Origin, Site};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HOST: &str = "127.0.0.1";

/// Keeps the recorded attempts, in order.
#[derive(Clone, Default)]
pub(crate) struct RecordingSink(Arc<Mutex<Vec<Attempt>>>);

impl Sink for RecordingSink {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.0.lock().unwrap().push(attempt.clone());
        Ok(())
    }
}

impl RecordingSink {
    pub(crate) fn all(&self) -> Vec<Attempt> {
        self.0.lock().unwrap().clone()
    }
}

struct World {
    origin: Origin,
    pipeline: Arc<Pipeline>,
    sink: RecordingSink,
    clock: Arc<Clock>,
}

impl World {
    fn new(sites: Vec<(&str, Site)>) -> Self {
        Self::with(sites, &["direct_access"], |builder| builder)
    }

    fn with(
        sites: Vec<(&str, Site)>,
        fetchers: &[&str],
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Self {
        let origin = Origin::start(sites).unwrap();
        let sink = RecordingSink::default();
        let clock = Arc::new(Clock::fixed(Timestamp::now()));
        let mut selector =
            Selector::builder().without_pace().sink(sink.clone()).clock(Arc::clone(&clock));
        selector = selector.visits(visits());
        for name in fetchers {
            selector = selector.fetcher(FetcherSpec::by_name(name));
        }
        let selector = more(selector).build().unwrap();
        let limits = Limits { max_body: 8 << 20, ..Limits::default() };
        let mut builder = Pipeline::builder(Arc::new(selector)).limits(limits);
        builder = builder.missing(
            "playwright",
            "Chromium was not found; install it with: apt-get install chromium",
        );
        for name in fetchers {
            let agent = if name.contains("stealth") { "stealth" } else { "plain" };
            let fetcher = HttpFetcher::builder()
                .name(*name)
                .guard(loopback())
                .user_agent(agent)
                .build()
                .unwrap();
            builder = builder.fetcher(Arc::new(fetcher));
        }
        Self { origin, pipeline: Arc::new(builder.build().unwrap()), sink, clock }
    }

    async fn get(&self, path: &str) -> Report {
        self.get_at(HOST, path).await
    }

    async fn get_at(&self, host: &str, path: &str) -> Report {
        self.pipeline.fetch(&Link::new(self.origin.url(host, path))).await
    }

    fn wait(&self, span: Duration) {
        self.clock.set(self.clock.now().saturating_add(span));
    }
}

fn loopback() -> AddressGuard {
    AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false)
}

fn visits() -> VisitSettings {
    VisitSettings {
        deadline: Duration::from_secs(4),
        probe_deadline: Duration::from_secs(2),
        ..VisitSettings::default()
    }
}

fn source(report: &Report) -> &'static str {
    report.source.unwrap().name()
}

#[tokio::test]
async fn thirty_static_pages_cost_thirty_requests_and_the_probe_disappears() {
    let world = World::new(vec![(HOST, Site::Static)]);
    let mut sources = Vec::new();
    for n in 0..30 {
        let report = world.get(&format!("/articles/{n}")).await;
        assert!(report.success && report.requests == 1 && report.bytes > 200, "{report:?}");
        assert!(!report.response.as_ref().unwrap().body.is_empty());
        sources.push(source(&report));
    }
    assert_eq!(world.origin.hits(HOST), 30);
    assert_eq!(world.sink.all().len(), 30);
    let learned_from = sources.iter().position(|source| *source == "learned").unwrap();
    assert!((5..=8).contains(&learned_from), "{sources:?}");
    assert!(sources[..learned_from].iter().all(|source| *source == "probe"), "{sources:?}");
    assert!(sources[learned_from..].iter().all(|source| *source == "learned"), "{sources:?}");
}

#[tokio::test]
async fn a_burst_on_a_cold_host_causes_one_probe() {
    let world = World::new(vec![(HOST, Site::slow(Duration::from_millis(100)))]);
    let burst = (0..40).map(|n| {
        let (pipeline, url) =
            (Arc::clone(&world.pipeline), world.origin.url(HOST, &format!("/a/{n}")));
        tokio::spawn(async move { pipeline.fetch(&Link::new(url)).await })
    });
    let mut sources = Vec::new();
    for task in burst.collect::<Vec<_>>() {
        let report = task.await.unwrap();
        assert!(report.success && report.requests == 1, "{report:?}");
        sources.push(source(&report));
    }
    assert_eq!(sources.iter().filter(|source| **source == "probe").count(), 1, "{sources:?}");
    assert_eq!(sources.iter().filter(|source| **source == "inferred").count(), 39, "{sources:?}");
    assert_eq!(world.origin.hits(HOST), 40);
}

#[tokio::test]
async fn each_site_ends_as_the_table_says() {
    let cases: Vec<(&str, Site, Option<&str>, u64, bool)> = vec![
        // path, site, error, requests, paused
        ("/pdf", Site::Pdf, None, 1, false),
        ("/cyrillic", Site::NonUtf8(Charset::Windows1251ByHeader), None, 1, false),
        ("/forbidden", Site::FORBIDDEN, Some("blocked_403"), 1, true),
        ("/limited", Site::rate_limited(1), Some("rate_limited"), 1, true),
        ("/captcha", Site::captcha(403), Some("blocked_captcha"), 1, true),
        ("/sly", Site::captcha(200), Some("blocked_captcha"), 1, true),
        ("/missing", Site::NOT_FOUND, Some("not_found"), 1, false),
        ("/gone", Site::GONE, Some("not_found"), 1, false),
        ("/auth", Site::Status(401), Some("auth_required"), 1, false),
        ("/teapot", Site::Status(418), Some("client_error"), 1, false),
        ("/toll", Site::Toll { price: "USD 0.01".to_owned() }, Some("payment_required"), 1, true),
        ("/declined", Site::Declined, Some("declined"), 1, true),
        ("/broken", Site::SERVER_ERROR, Some("server_error"), 2, true),
        ("/late", Site::Status(408), Some("server_error"), 2, true),
        ("/misdirected", Site::Status(421), Some("server_error"), 2, true),
        ("/early", Site::Status(425), Some("server_error"), 2, true),
        ("/unknown", Site::Status(999), Some("server_error"), 2, true),
        ("/nothing", Site::Status(204), Some("not_found"), 1, false),
        ("/reset-form", Site::Status(205), Some("not_found"), 1, false),
        (
            "/part",
            Site::with_header("Content-Range", "bytes 0-9/90", Site::Status(206)),
            Some("truncated"),
            2,
            true,
        ),
        ("/nowhere", Site::Redirect { status: 302, to: String::new() }, None, 1, false),
        ("/cut", Site::Truncated, Some("truncated"), 2, true),
        ("/reset", Site::Reset, Some("network_error"), 2, true),
        ("/bomb", Site::GzipBomb, Some("too_large"), 1, false),
        ("/loop", Site::RedirectLoop, Some("redirect_loop"), 1, false),
        ("/header", Site::HugeHeader { bytes: 1 << 20 }, Some("too_large"), 1, false),
        ("/empty", Site::Empty, Some("wrong_tool"), 1, true),
        ("/shell", Site::ReactShell, Some("wrong_tool"), 1, true),
        ("/queue", Site::QueueRoom, Some("queued"), 1, true),
        ("/out", Site::RedirectOut, Some("refused_address"), 1, false),
        ("/metadata", Site::RedirectOut, Some("refused_address"), 1, false),
        ("/silent", Site::Silent, Some("timeout"), 2, true),
    ];
    // One host each, so that no case learns from another.
    let hosts: Vec<String> = (0..cases.len()).map(|n| format!("127.0.1.{}", n + 1)).collect();
    let sites =
        hosts.iter().zip(&cases).map(|(host, case)| (host.as_str(), case.1.clone())).collect();
    let world = World::new(sites);
    for (host, (path, _, error, requests, paused)) in hosts.iter().zip(&cases) {
        let report = world.get_at(host, path).await;
        assert_eq!(report.error_type, *error, "{path}: {report:?}");
        assert_eq!(report.success, error.is_none(), "{path}");
        assert_eq!(u64::from(report.requests), *requests, "{path}: {report:?}");
        assert_eq!(report.paused_until.is_some(), *paused, "{path}: {report:?}");
        let is_refusal = |error: &str| error.starts_with("blocked") || error == "rate_limited";
        assert_eq!(report.is_banned, error.is_some_and(is_refusal), "{path}");
        let made: Vec<_> = world.sink.all().into_iter().filter(|a| a.url.ends_with(path)).collect();
        assert_eq!(made.len() as u64, *requests, "{path}: one attempt a request");
        assert!(made.iter().all(|a| a.fetcher == "direct_access"));
        // The first half of a retry has no weight. The second has some: the host has served nobody.
        if *requests == 2 {
            let weights: Vec<f64> = made.iter().map(|a| a.weight).collect();
            assert_eq!(weights, [0.0, 0.25], "{path}");
        }
    }
}

/// A page of a network, as a provider puts it in place of a site.
const OF_NETWORK: &str = "<!doctype html><title>Site blocked</title><h1>This website is blocked</h1><p>By order of the \
    court, your internet service provider has blocked access to this website.</p>";

/// Returns pages of networks: one that was written for this test, and those of the third corpus if
/// it is present.
fn pages_of_networks() -> Vec<String> {
    let mut pages = vec![OF_NETWORK.to_owned()];
    let Some(corpus) = std::env::var_os("FETCHWISE_CORPUS3").map(std::path::PathBuf::from) else {
        return pages;
    };
    for line in
        std::fs::read_to_string(&corpus).unwrap().lines().filter(|line| line.contains("\"net_"))
    {
        let page: serde_json::Value = serde_json::from_str(line).unwrap();
        let body =
            std::fs::read(corpus.with_file_name(page["body_path"].as_str().unwrap())).unwrap();
        pages.push(String::from_utf8_lossy(&body).into_owned());
    }
    pages
}

#[tokio::test]
async fn a_page_of_the_network_pauses_the_link_and_counts_against_neither_fetcher_nor_host() {
    let pages = pages_of_networks();
    let hosts: Vec<String> = (0..pages.len()).map(|n| format!("127.0.2.{}", n + 1)).collect();
    // The third corpus has pages of networks that no rule knows.
    let mut known = 0;
    for (host, page) in hosts.iter().zip(&pages) {
        let world = World::new(vec![(host.as_str(), Site::Html(page.clone()))]);
        let report = world.get_at(host, "/a").await;
        if page == OF_NETWORK {
            assert_eq!(report.error_type, Some("network_block"), "{report:?}");
        }
        if report.error_type != Some("network_block") {
            continue;
        }
        known += 1;
        assert!(
            !report.is_banned && report.paused_until.is_some() && report.requests == 1,
            "{report:?}"
        );
        let made = world.sink.all();
        assert!(
            made.iter()
                .all(|attempt| attempt.weight == 0.0 && !attempt.is_banned && !attempt.success),
            "{made:?}"
        );
        // Three blocks of a site pause it. These do not: the next link is asked.
        for path in ["/b", "/c", "/d"] {
            assert_eq!(world.get_at(host, path).await.error_type, Some("network_block"), "{path}");
        }
        assert_eq!(world.get_at(host, "/a").await.error_type, Some("paused"));
        assert_eq!(world.origin.hits(host), 4);
        let selector = world.pipeline.selector();
        assert!(selector.paused_hosts(world.clock.now()).is_empty());
        assert_eq!(selector.ban_rate(host, 1).banned, 0);
    }
    assert!(4 * known >= 3 * pages.len(), "{known} of {}", pages.len());
}

#[tokio::test]
async fn a_captive_portal_belongs_to_the_url_that_it_stands_in_for() {
    let portal = "127.0.0.2";
    let page = Origin::start([(portal, Site::Html(OF_NETWORK.to_owned()))]).unwrap();
    let world =
        World::new(vec![(HOST, Site::Redirect { status: 302, to: page.url(portal, "/login") })]);
    let report = world.get("/a").await;
    assert_eq!(report.error_type, Some("network_block"), "{report:?}");
    let made = world.sink.all();
    assert_eq!(made.len(), 1);
    assert_eq!(
        (made[0].heuristic("domain"), made[0].heuristic("redirected_by")),
        (Some(HOST), None)
    );
}

#[tokio::test]
async fn status_511_is_the_network_and_not_the_site() {
    let world = World::new(vec![(HOST, Site::Status(511))]);
    let report = world.get("/a").await;
    assert_eq!((report.error_type, report.requests), (Some("network_block"), 1), "{report:?}");
    assert_eq!(world.sink.all()[0].weight, 0.0);
}

/// Fetchers of every class, each a plain one in truth: the site counts what any of them requests.
const EVERY_CLASS: [&str; 3] = ["direct_access", "playwright_stealth", "archive_proxy"];

fn mixed(parts: Vec<(&str, Site)>) -> Vec<(&'static str, Site)> {
    vec![(
        HOST,
        Site::Mixed(parts.into_iter().map(|(prefix, site)| (prefix.to_owned(), site)).collect()),
    )]
}

#[tokio::test]
async fn a_price_ends_the_visit_without_another_fetcher_a_pause_of_the_host_or_a_changed_score() {
    let toll = Site::Toll { price: "USD 0.01".to_owned() };
    let sites = mixed(vec![("/", Site::Static), ("/toll", toll.clone())]);
    let world = World::with(sites, &EVERY_CLASS, |builder| builder);
    for n in 0..6 {
        assert!(world.get(&format!("/a/{n}")).await.success);
    }
    let scores = |path: &str| {
        let url = world.origin.url(HOST, path).parse().unwrap();
        let context = SelectContext { now: world.clock.now(), ..SelectContext::default() };
        let explained = world.pipeline.selector().explain(&url, &context).unwrap();
        explained.candidates.iter().map(|candidate| format!("{candidate:?}")).collect::<Vec<_>>()
    };
    let before = (scores("/a/9"), scores("/toll/9"));
    for n in 0..5 {
        let report = world.get(&format!("/toll/{n}")).await;
        assert_eq!(
            (report.error_type, report.requests),
            (Some("payment_required"), 1),
            "{report:?}"
        );
        assert_eq!((report.price.as_deref(), report.is_banned), (Some("USD 0.01"), false));
        assert_eq!(
            report.paused_until.unwrap().since(world.clock.now()),
            Duration::from_secs(24 * 3600)
        );
        assert!(report.message.unwrap().contains("USD 0.01"));
        assert_eq!(
            world.origin.hits_at(HOST, &format!("/toll/{n}")),
            1,
            "no other fetcher, no archive"
        );
    }
    assert_eq!((scores("/a/9"), scores("/toll/9")), before);
    assert!(
        world.sink.all().iter().filter(|a| a.http_status == Some(402)).all(|a| a.weight == 0.0)
    );
    assert!(world.get("/a/8").await.success, "the host is not paused");
    let again = world.get("/toll/0").await;
    assert_eq!(
        (again.error_type, again.requests),
        (Some("paused"), 0),
        "the link is left for a day"
    );
    world.wait(Duration::from_secs(24 * 3600));
    assert_eq!(world.get("/toll/0").await.error_type, Some("payment_required"));
}

#[tokio::test]
async fn the_offers_of_a_402_are_recorded_and_none_is_accepted() {
    // {"x402Version":2,"accepts":[{"scheme":"exact","network":"eip155:8453","amount":"10000","asset":"0x1"}]}
    let required = "eyJ4NDAyVmVyc2lvbiI6MiwiYWNjZXB0cyI6W3sic2NoZW1lIjoiZXhhY3QiLCJuZXR3b3JrIjoiZWlwMTU1Ojg0NTMiLCJhbW91\
        bnQiOiIxMDAwMCIsImFzc2V0IjoiMHgxIn1dfQ==";
    let license = "<https://e.org/l.xml>; rel=\"license\"; type=\"application/rsl+xml\"";
    let toll = Site::with_header(
        "Payment-Required",
        required,
        Site::Toll { price: "USD 0.01".to_owned() },
    );
    let world = World::with(
        vec![(HOST, Site::with_header("Link", license, toll))],
        &EVERY_CLASS,
        |builder| builder,
    );
    let report = world.get("/a").await;
    assert_eq!(
        (report.error_type, report.price.as_deref()),
        (Some("payment_required"), Some("USD 0.01"))
    );
    assert_eq!(
        report.offers,
        ["x402 exact eip155:8453 10000 0x1".into(), "rsl https://e.org/l.xml".into()]
    );
    let requests = world.origin.requests();
    assert_eq!(requests.len(), 1);
    let pays = [
        "x-payment",
        "payment-signature",
        "crawler-exact-price",
        "crawler-max-price",
        "authorization",
    ];
    assert!(
        requests[0]
            .headers
            .iter()
            .all(|sent| !pays.iter().any(|name| sent.name.eq_ignore_ascii_case(name)))
    );
}

#[tokio::test]
async fn a_host_that_declines_is_left_for_a_day() {
    let sites = mixed(vec![("/", Site::Static), ("/no", Site::Declined)]);
    let world = World::with(sites, &EVERY_CLASS, |builder| builder);
    assert!(world.get("/a/1").await.success);
    let report = world.get("/no").await;
    assert_eq!(
        (report.error_type, report.requests, report.is_banned),
        (Some("declined"), 1, false),
        "{report:?}"
    );
    assert_eq!(
        report.paused_until.unwrap().since(world.clock.now()),
        Duration::from_secs(24 * 3600)
    );
    let other = world.get("/a/2").await;
    assert_eq!((other.error_type, other.requests), (Some("paused"), 0), "{other:?}");
    assert_eq!(world.origin.hits(HOST), 2);
    assert_eq!(world.sink.all().last().unwrap().weight, 0.0);
    world.wait(Duration::from_secs(24 * 3600));
    assert!(world.get("/a/2").await.success);
}

#[tokio::test]
async fn a_price_whose_page_looks_like_a_block_is_a_price() {
    let page =
        Site::with_header("cf-mitigated", "challenge", Site::Toll { price: "USD 0.01".to_owned() });
    let world = World::with(vec![(HOST, page)], &EVERY_CLASS, |builder| builder);
    let report = world.get("/a").await;
    assert_eq!((report.error_type, report.requests), (Some("payment_required"), 1), "{report:?}");
}

#[tokio::test]
async fn a_redirect_to_a_refused_address_is_not_dialled() {
    let target: IpAddr = "127.0.9.9".parse().unwrap();
    let origin = Origin::start([("127.0.9.9", Site::Static)]).unwrap();
    let to = origin.url("127.0.9.9", "/secret");
    let outside = Origin::start([(HOST, Site::Redirect { status: 302, to })]).unwrap();
    let guard = AddressGuard::new(["127.0.0.1/32".parse().unwrap()], false);
    let fetcher = HttpFetcher::builder().guard(guard).build().unwrap();
    let selector = Selector::builder().build().unwrap();
    let pipeline =
        Pipeline::builder(Arc::new(selector)).fetcher(Arc::new(fetcher)).build().unwrap();
    let report = pipeline.fetch(&Link::new(outside.url(HOST, "/go"))).await;
    assert_eq!(report.error_type, Some("refused_address"), "{report:?}");
    assert_eq!(origin.connections(target), 0);
}

#[tokio::test]
async fn a_captcha_escalates_to_stealth_under_its_own_name() {
    let world = World::with(
        vec![(HOST, Site::captcha(403))],
        &["direct_access", "playwright_stealth"],
        |b| b,
    );
    let report = world.get("/news/1").await;
    assert!(report.success && report.is_banned && report.requests == 2, "{report:?}");
    assert_eq!(
        (report.fetcher.as_deref(), source(&report)),
        (Some("playwright_stealth"), "inferred")
    );
    let made = world.sink.all();
    let seen: Vec<_> =
        made.iter().map(|a| (a.fetcher.as_str(), a.success, a.is_banned, a.try_no)).collect();
    assert_eq!(seen, [("direct_access", false, true, 1), ("playwright_stealth", true, false, 2)]);
    assert_eq!(made[1].hint.map(|hint| hint.name()), Some("blocked"));
    assert!(
        made[0].heuristic("block_cloudflare").is_some()
            && made[0].heuristic("has_captcha").is_some()
    );
}

#[tokio::test]
async fn the_strict_reading_ends_a_url_at_its_first_block() {
    let world = World::with(
        vec![(HOST, Site::captcha(403))],
        &["direct_access", "playwright_stealth"],
        |builder| builder.visits(VisitSettings { escalate_after_block: false, ..visits() }),
    );
    let report = world.get("/news/1").await;
    assert_eq!((report.error_type, report.requests), (Some("blocked_captcha"), 1));
}

#[tokio::test]
async fn a_blocked_link_is_paused_longer_each_time_until_content_comes() {
    let world = World::new(vec![(HOST, Site::captcha(403))]);
    let minutes =
        |report: &Report| report.paused_until.unwrap().since(world.clock.now()).as_secs() / 60;
    let first = world.get("/a").await;
    assert_eq!((first.error_type, minutes(&first)), (Some("blocked_captcha"), 10));
    world.wait(Duration::from_secs(599));
    let early = world.get("/a").await;
    assert_eq!((early.error_type, early.requests, source(&early)), (Some("paused"), 0, "paused"));
    world.wait(Duration::from_secs(1));
    let second = world.get("/a").await;
    assert_eq!((second.error_type, minutes(&second)), (Some("blocked_captcha"), 20));
    world.origin.set_site(HOST, Site::Static);
    world.wait(Duration::from_secs(1200));
    let third = world.get("/a").await;
    assert!(third.success && third.paused_until.is_none(), "{third:?}");
    assert_eq!(world.pipeline.selector().link_state(&world.origin.url(HOST, "/a")).risk_level, 0);
}

#[tokio::test]
async fn a_longer_retry_after_sets_the_pause() {
    let world = World::new(vec![(HOST, Site::rate_limited(3600))]);
    let report = world.get("/a").await;
    assert_eq!(report.status, Some(429));
    assert_eq!(report.paused_until.unwrap().since(world.clock.now()), Duration::from_secs(3600));
}

#[tokio::test]
async fn three_blocked_links_pause_the_host_until_a_trial_succeeds() {
    let world = World::new(vec![(HOST, Site::FORBIDDEN)]);
    for n in 0..3 {
        assert_eq!(world.get(&format!("/{n}")).await.error_type, Some("blocked_403"));
    }
    let other = world.get("/other").await;
    assert_eq!((other.error_type, other.requests), (Some("paused"), 0), "{other:?}");
    assert_eq!(world.origin.hits(HOST), 3);
    world.origin.set_site(HOST, Site::slow(Duration::from_millis(300)));
    world.wait(Duration::from_secs(600));
    let (a, b) = tokio::join!(world.get("/x"), world.get("/y"));
    assert!(a.success && b.success, "a visit during the trial waits for its end: {a:?} {b:?}");
    let asked: Vec<_> =
        world.sink.all().into_iter().skip(3).map(|attempt| attempt.attempted_at).collect();
    assert_eq!(asked.len(), 2);
    assert_eq!(world.origin.hits(HOST), 5, "one request each");
    assert!(world.get("/z").await.success);
}

#[tokio::test]
async fn a_flaky_page_is_retried_once_and_not_attributed_to_the_fetcher() {
    let world = World::new(vec![(HOST, Site::flaky(2))]);
    for n in 0..12 {
        let report = world.get(&format!("/p/{n}")).await;
        assert!(report.success && report.requests <= 2, "{report:?}");
    }
    let failed: Vec<_> = world.sink.all().into_iter().filter(|a| !a.success).collect();
    assert!(!failed.is_empty() && failed.iter().all(|a| a.weight == 0.0));
}

#[tokio::test]
async fn the_table_serves_in_legacy_and_a_link_can_opt_out() {
    let mut router = Router { mode: Mode::Legacy, ..Router::default() };
    router.table.insert("127.0.0.1", "simple_http").unwrap();
    let sites = vec![(HOST, Site::Static), ("127.0.0.2", Site::Static)];
    let world = World::with(sites, &["direct_access"], |builder| builder.router(router));
    assert_eq!(source(&world.get("/a").await), "hard_coded");
    let report = world.get_at("127.0.0.2", "/a").await;
    assert_eq!((report.error_type, report.requests), (Some("no_route"), 0), "{report:?}");
    assert!(report.message.unwrap().contains("no route for domain 127.0.0.2"));
    let link = Link { learning: Some(true), ..Link::new(world.origin.url("127.0.0.2", "/a")) };
    assert_eq!(source(&world.pipeline.fetch(&link).await), "probe");
}

#[tokio::test]
async fn shadow_logs_the_choice_of_learning() {
    let mut router = Router { mode: Mode::Shadow, ..Router::default() };
    router.table.insert("127.0.0.1", "playwright_stealth").unwrap();
    let fetchers = ["direct_access", "playwright_stealth"];
    let world =
        World::with(vec![(HOST, Site::Static)], &fetchers, |builder| builder.router(router));
    let report = world.get("/a").await;
    assert_eq!(
        (report.fetcher.as_deref(), source(&report)),
        (Some("playwright_stealth"), "hard_coded")
    );
    assert_eq!(world.sink.all()[0].shadow_fetcher.as_deref(), Some("direct_access"));
}

#[tokio::test]
async fn a_requested_fetcher_is_used_or_refused_with_a_reason() {
    let world = World::with(
        vec![(HOST, Site::Static)],
        &["direct_access", "playwright_stealth"],
        |builder| builder,
    );
    let url = world.origin.url(HOST, "/a");
    let link = Link { prefer: Some("playwright_stealth".to_owned()), ..Link::new(url.clone()) };
    let report = world.pipeline.fetch(&link).await;
    assert_eq!(
        (report.fetcher.as_deref(), source(&report)),
        (Some("playwright_stealth"), "hinted")
    );
    let link = Link { prefer: Some("playwright".to_owned()), ..Link::new(url) };
    let report = world.pipeline.fetch(&link).await;
    assert_eq!(report.error_type, Some("no_fetcher"));
    assert!(report.message.unwrap().contains("apt-get install chromium"));
}

#[tokio::test]
async fn an_invalid_url_is_refused_and_not_recorded() {
    let world = World::new(vec![(HOST, Site::Static)]);
    let long = format!("http://127.0.0.1/{}", "a".repeat(10 << 20));
    for text in ["", "not a url", "ftp://127.0.0.1/", "data:text/html,x", "http://", "\0\0", &long]
    {
        let report = world.pipeline.fetch(&Link::new(text)).await;
        assert_eq!((report.error_type, report.requests), (Some("invalid_url"), 0), "{report:?}");
        assert!(report.message.is_some_and(|message| message.len() < 500));
    }
    assert!(world.sink.all().is_empty());
    assert_eq!(world.origin.hits(HOST), 0);
}

#[tokio::test]
async fn the_report_counts_the_attempts_in_the_log() {
    let world = World::new(vec![(HOST, Site::RedirectLoop)]);
    let refused = world.pipeline.fetch(&Link::new("http://10.255.255.1/a")).await;
    assert_eq!((refused.error_type, refused.requests), (Some("refused_address"), 1), "{refused:?}");
    assert_eq!(world.origin.requests().len(), 0);
    let looping = world.get("/b").await;
    assert_eq!((looping.error_type, looping.requests), (Some("redirect_loop"), 1), "{looping:?}");
    assert!(world.origin.hits(HOST) > 1);
    let made = world.sink.all();
    let seen: Vec<_> =
        made.iter().map(|a| (a.error_type.as_ref().unwrap().name(), a.try_no, a.weight)).collect();
    assert_eq!(
        seen,
        [("refused_address", 1, 0.0), ("redirect_loop", 1, 0.0)],
        "logged without learning"
    );
    assert_eq!(world.pipeline.selector().link_state(&made[0].link).paused_until, None);
}

#[tokio::test]
async fn user_info_is_neither_sent_nor_logged() {
    let world = World::new(vec![(HOST, Site::Static)]);
    let url = format!("http://me:secret@127.0.0.1:{}/a#top", world.origin.port());
    let report = world.pipeline.fetch(&Link::new(url)).await;
    assert!(report.success, "{report:?}");
    let made = world.sink.all();
    assert!(!made[0].url.contains("secret") && !made[0].link.contains("secret"), "{made:?}");
}

#[tokio::test]
async fn a_fetcher_that_does_not_start_is_not_a_failure() {
    use fetchwise::fetch::command::{CommandFetcher, CommandOptions};
    use fetchwise::fetch::dial::Dialer;

    let origin = Origin::start([(HOST, Site::captcha(403))]).unwrap();
    let broken = |name: &str| {
        let options = CommandOptions::new(name, ["/nonexistent/fetcher"]);
        Arc::new(CommandFetcher::new(options, Dialer::new(loopback())))
    };
    let sink = RecordingSink::default();
    let pipeline = |names: &[&str]| {
        let mut selector =
            names.iter().fold(Selector::builder(), |b, name| b.fetcher(FetcherSpec::by_name(name)));
        selector = selector.no_priors();
        let mut selector = selector.build().unwrap();
        selector.set_sink(Box::new(sink.clone()));
        let mut pipeline =
            Pipeline::builder(Arc::new(selector)).fetcher(broken("playwright_stealth"));
        if names.contains(&"direct_access") {
            pipeline = pipeline.fetcher(Arc::new(HttpFetcher::new(loopback()).unwrap()));
        }
        pipeline.build().unwrap()
    };
    let report = pipeline(&["direct_access", "playwright_stealth"])
        .fetch(&Link::new(origin.url(HOST, "/a")))
        .await;
    assert_eq!((report.error_type, report.requests), (Some("blocked_captcha"), 1), "{report:?}");
    assert_eq!(sink.all().len(), 1, "a request that was not made is not recorded");
    let report = pipeline(&["playwright_stealth"]).fetch(&Link::new(origin.url(HOST, "/b"))).await;
    assert_eq!((report.error_type, report.requests), (Some("no_fetcher"), 0), "{report:?}");
    assert!(report.message.unwrap().contains("/nonexistent/fetcher"));
    assert!(report.paused_until.is_none() && sink.all().len() == 1);
}

#[tokio::test]
async fn a_fetcher_that_is_not_a_candidate_is_refused_by_name() {
    let selector = Selector::builder().fetcher(FetcherSpec::by_name("playwright")).build().unwrap();
    let plain = HttpFetcher::new(loopback()).unwrap();
    let error = Pipeline::builder(Arc::new(selector))
        .fetcher(Arc::new(plain))
        .build()
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("direct_access") && error.contains("playwright"), "{error}");
}

#[tokio::test]
async fn a_requested_pause_applies_to_every_link_and_fetcher_of_the_host() {
    let sites = vec![(HOST, Site::rate_limited(3600))];
    let world = World::with(sites, &["direct_access", "playwright_stealth"], |builder| builder);
    let first = world.get("/a").await;
    assert_eq!(
        (first.error_type, first.requests),
        (Some("rate_limited"), 1),
        "no other fetcher is tried: {first:?}"
    );
    for path in ["/b", "/c/d", "/e.pdf"] {
        let other = world.get(path).await;
        assert_eq!((other.error_type, other.requests), (Some("paused"), 0), "{other:?}");
        assert_eq!(other.paused_until.unwrap().since(world.clock.now()), Duration::from_secs(3600));
    }
    assert_eq!(world.origin.hits(HOST), 1);
    world.wait(Duration::from_secs(3599));
    assert_eq!(world.get("/f").await.requests, 0);
    world.origin.set_site(HOST, Site::Static);
    world.wait(Duration::from_secs(1));
    assert!(world.get("/g").await.success);
}

#[tokio::test]
async fn a_hanging_url_costs_two_timeouts_however_many_fetchers_there_are() {
    let fetchers = ["direct_access", "playwright", "playwright_stealth"];
    let world = World::with(vec![(HOST, Site::Silent)], &fetchers, |builder| {
        builder.visits(VisitSettings {
            deadline: Duration::from_millis(400),
            probe_deadline: Duration::from_millis(200),
            ..VisitSettings::default()
        })
    });
    let report = world.get("/a").await;
    assert_eq!((report.error_type, report.requests), (Some("timeout"), 2), "{report:?}");
}

#[tokio::test]
async fn a_redirect_written_in_html_is_followed_in_the_same_attempt() {
    let sites = vec![("127.0.0.1", Site::Static), ("127.0.0.2", Site::Static)];
    let world = World::with(sites, &["direct_access"], |builder| builder);
    let target = world.origin.url("127.0.0.2", "/articles/1");
    let stub = format!(
        "<!doctype html><meta http-equiv=refresh content='0; url={target}'><a href='{target}'>Moved</a>"
    );
    world.origin.set_site(HOST, Site::Html(stub));
    let report = world.get("/old").await;
    assert!(report.success && report.requests == 1 && report.bytes > 200, "{report:?}");
    let response = report.response.as_ref().unwrap();
    assert_eq!(response.final_url.as_str(), target);
    assert_eq!(
        response.chain.iter().map(url::Url::as_str).collect::<Vec<_>>(),
        [world.origin.url(HOST, "/old")]
    );
    let made = world.sink.all();
    assert_eq!((made.len(), made[0].fetcher.as_str(), made[0].success), (1, "direct_access", true));
    assert_eq!(made[0].url, world.origin.url(HOST, "/old"));
}

#[tokio::test]
async fn a_redirect_written_in_html_goes_through_the_guard_and_ends_after_ten() {
    let world = World::new(vec![(HOST, Site::Static)]);
    world.origin.set_site(
        HOST,
        Site::Html("<meta http-equiv=refresh content='0;url=http://10.255.255.1/'>".to_owned()),
    );
    let refused = world.get("/out").await;
    assert_eq!((refused.error_type, refused.requests), (Some("refused_address"), 1), "{refused:?}");
    // Each page leads one level deeper.
    world
        .origin
        .set_site(HOST, Site::Html("<meta http-equiv=refresh content='0;url=deeper/'>".to_owned()));
    let before = world.origin.hits(HOST);
    let endless = world.get("/down/").await;
    assert_eq!((endless.error_type, endless.requests), (Some("redirect_loop"), 1), "{endless:?}");
    assert_eq!(world.origin.hits(HOST) - before, 11);
}

#[tokio::test]
async fn a_pipeline_waits_for_paces_or_returns_links_that_cannot_go_now() {
    use fetchwise::pace::{Pace, PaceMode, PaceSettings};
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let pipeline = |wait: Duration, clock: &Arc<Clock>| {
        let settings =
            PaceSettings { mode: PaceMode::Fixed, initial_rate: 5.0, ..PaceSettings::default() };
        let builder = Selector::builder()
            .pace(Pace::new(settings))
            .fetcher(FetcherSpec::by_name("direct_access"));
        let builder = builder.clock(Arc::clone(clock));
        let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
        let builder = Pipeline::builder(Arc::new(builder.build().unwrap()));
        builder
            .fetcher(Arc::new(HttpFetcher::new(guard).unwrap()))
            .wait_at_most(wait)
            .build()
            .unwrap()
    };
    let links: Vec<Link> = (0..4).map(|n| Link::new(origin.url(HOST, &format!("/{n}")))).collect();
    let patient = pipeline(Duration::from_secs(60), &Arc::default());
    let reports =
        futures_util::future::join_all(links.iter().map(|link| patient.fetch(link))).await;
    assert!(reports.iter().all(|report| report.success), "{reports:?}");

    let clock = Arc::new(Clock::fixed(Timestamp::now()));
    let own_frontier = pipeline(Duration::ZERO, &clock);
    assert!(own_frontier.fetch(&links[0]).await.success);
    let report = own_frontier.fetch(&links[1]).await;
    assert_eq!((report.error_type, report.requests), (Some(Report::PACED), 0), "{report:?}");
    let wait = report.paused_until.unwrap().since(own_frontier.selector().now());
    assert!(wait <= Duration::from_millis(250), "{wait:?}");
    clock.set(clock.now().saturating_add(wait));
    assert!(own_frontier.fetch(&links[1]).await.success);
    assert_eq!(origin.hits(HOST), 6);
}

#[tokio::test]
async fn a_limit_at_the_end_of_a_redirect_pauses_the_host_that_set_it_and_is_not_asked_again() {
    const TARGET: &str = "127.0.0.2";
    let limited = Site::RateLimited { retry_after: "86400".to_owned(), free: 0 };
    let world = World::new(vec![(HOST, Site::Static), (TARGET, limited)]);
    let to = world.origin.url(TARGET, "/page");
    let html = format!("<!doctype html><meta http-equiv=refresh content='0; url={to}'>");
    for (way, redirecting) in
        [("HTTP", Site::Redirect { status: 302, to: to.clone() }), ("HTML", Site::Html(html))]
    {
        world.origin.set_site(HOST, redirecting);
        let selector = world.pipeline.selector();
        selector.set_host_pause(TARGET, None);
        let before = [HOST, TARGET].map(|host| world.origin.hits(host));
        let report = world.get(&format!("/{way}/a")).await;
        assert_eq!(
            (report.error_type, report.status, report.requests),
            (Some("rate_limited"), Some(429), 1),
            "{way}"
        );
        assert!(selector.host_pause(TARGET).is_some(), "{way}");
        assert_eq!(selector.host_pause(HOST), None, "{way}: the redirector has refused nothing");
        let made = world.sink.all().pop().unwrap();
        let hosts = [made.heuristic("redirected_by"), made.heuristic("domain")];
        assert_eq!(hosts, [Some(HOST), Some(TARGET)], "{way}");
        // Another link asks the redirector, and goes no further.
        let report = world.get(&format!("/{way}/b")).await;
        assert_eq!(
            (report.error_type, report.requests),
            (Some(Report::PAUSED), 0),
            "{way}: {report:?}"
        );
        assert!(report.message.as_ref().unwrap().contains(TARGET), "{way}: {report:?}");
        let asked: Vec<u64> = [HOST, TARGET]
            .iter()
            .zip(before)
            .map(|(host, hits)| world.origin.hits(host) - hits)
            .collect();
        assert_eq!(asked, [2, 1], "{way}");
    }
}

#[tokio::test]
async fn the_limit_of_a_pipeline_takes_precedence_over_that_of_visits() {
    let limited = Site::RateLimited { retry_after: "30".to_owned(), free: 0 };
    let origin = Origin::start([(HOST, limited)]).unwrap();
    let visits = VisitSettings { max_pace_wait: Duration::ZERO, ..visits() };
    let builder = Selector::builder().visits(visits).fetcher(FetcherSpec::by_name("direct_access"));
    let builder = Pipeline::builder(Arc::new(builder.build().unwrap()));
    let builder = builder.fetcher(Arc::new(HttpFetcher::new(loopback()).unwrap()));
    let pipeline = builder.wait_at_most(Duration::from_secs(1)).build().unwrap();
    let first = pipeline.fetch(&Link::new(origin.url(HOST, "/a"))).await;
    assert_eq!((first.status, first.requests), (Some(429), 1), "{first:?}");
    // With the visit's limit it would end as paused.
    let second = pipeline.fetch(&Link::new(origin.url(HOST, "/b"))).await;
    assert_eq!((second.error_type, second.requests), (Some(Report::PACED), 0), "{second:?}");
}

#[tokio::test]
async fn a_redirect_waits_for_the_pace_of_its_target() {
    use fetchwise::pace::{Pace, PaceSettings, Scope};
    const TARGET: &str = "127.0.0.2";
    let origin = Origin::start([(HOST, Site::Static), (TARGET, Site::Static)]).unwrap();
    origin.set_site(HOST, Site::Redirect { status: 302, to: origin.url(TARGET, "/articles/1") });
    let settings = PaceSettings { max_crawl_delay_s: 900.0, ..PaceSettings::default() };
    let builder = Selector::builder()
        .pace(Pace::new(settings))
        .fetcher(FetcherSpec::by_name("direct_access"));
    let builder = Pipeline::builder(Arc::new(builder.build().unwrap()));
    let pipeline = builder.fetcher(Arc::new(HttpFetcher::new(loopback()).unwrap()));
    let pipeline = pipeline.wait_at_most(Duration::from_secs(60)).build().unwrap();
    let (selector, link) = (pipeline.selector(), Link::new(origin.url(HOST, "/a")));
    let _ = selector.pace().unwrap().set_min_interval(
        Scope::host(TARGET),
        Duration::from_secs(600),
        selector.now(),
    );
    assert!(pipeline.fetch(&link).await.success);
    let report = pipeline.fetch(&Link::new(origin.url(HOST, "/b"))).await;
    assert_eq!((report.error_type, report.requests), (Some(Report::PACED), 0), "{report:?}");
    assert!(report.paused_until.is_some());
    assert_eq!((origin.hits(HOST), origin.hits(TARGET)), (2, 1), "its target was not asked again");
}

#[tokio::test]
async fn server_log_and_results_agree_on_requests_even_on_kept_connections_that_close() {
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    async fn read_head(stream: &mut tokio::net::TcpStream) -> bool {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return false,
            }
        }
        true
    }
    let listener = tokio::net::TcpListener::bind((HOST, 0)).await.unwrap();
    let (port, read) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&read);
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            // One response for each connection, which closes only after it has read the next
            // request.
            tokio::spawn(async move {
                for is_first in [true, false] {
                    if !read_head(&mut stream).await {
                        return;
                    }
                    seen.fetch_add(1, Ordering::SeqCst);
                    let page = format!(
                        "<!doctype html><title>Ferries</title><p>{}",
                        "The ferry leaves. ".repeat(40)
                    );
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n",
                        page.len()
                    );
                    if is_first {
                        let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
                    }
                }
            });
        }
    });
    let world = World::new(vec![(HOST, Site::Static)]);
    let mut requests = 0;
    for n in 0..3 {
        let report = world.pipeline.fetch(&Link::new(format!("http://{HOST}:{port}/{n}"))).await;
        assert!(report.success, "{report:?}");
        requests += u64::from(report.requests);
    }
    server.abort();
    let made = world.sink.all();
    let ends: Vec<_> = made.iter().map(|made| (made.success, made.weight)).collect();
    assert_eq!(ends, [(true, 1.0), (false, 0.0), (true, 1.0), (false, 0.0), (true, 1.0)]);
    assert_eq!((read.load(Ordering::SeqCst), requests), (5, 5));
}

/// A fetcher whose process is stopped for twelve seconds during its first request.
#[derive(Default)]
struct StoppedOnce(AtomicBool);

impl Fetcher for StoppedOnce {
    fn name(&self) -> &str {
        "direct_access"
    }

    fn renders(&self) -> bool {
        false
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            if !self.0.swap(true, Ordering::Relaxed) {
                tokio::time::advance(Duration::from_secs(12)).await;
                return Err(FetchError::new(
                    ErrorKind::Timeout,
                    "no response",
                    Duration::from_secs(12),
                ));
            }
            let html = format!("<h1>Opening hours</h1>{}", "<p>The museum is open.</p>".repeat(40));
            let headers = vec![Header::new("content-type", "text/html")];
            Ok(Response::new(200, headers, Body::in_memory(html.into_bytes()), request.url.clone()))
        })
    }
}

/// A process that was stopped, as by a laptop's lid, charged the requests that were open to their
/// hosts.
#[tokio::test(start_paused = true)]
async fn a_request_of_a_process_that_was_stopped_is_charged_to_nobody_and_made_again() {
    let (sink, clock) = (RecordingSink::default(), Arc::new(Clock::fixed(Timestamp::now())));
    // The clock stands still, and so would a pace.
    let selector =
        Selector::builder().without_pace().sink(sink.clone()).clock(clock).visits(visits());
    let selector =
        Arc::new(selector.fetcher(FetcherSpec::by_name("direct_access")).build().unwrap());
    let robots = RobotsTxt::new(Arc::new(StoppedOnce::default()), "fetchwise");
    let pipeline = Pipeline::builder(selector)
        .fetcher(Arc::new(StoppedOnce::default()))
        .robots(robots)
        .build()
        .unwrap();
    // The request for robots.txt is stopped, too.
    let report =
        pipeline.fetch(&Link { robots: RobotsUse::Obey, ..Link::new("http://e.org/a") }).await;
    assert!(report.success && report.requests == 1, "{report:?}");
    let attempts = sink.all();
    assert_eq!((attempts.len(), attempts[0].error_type.as_ref()), (1, None), "{attempts:?}");
}

/// A network that carries nothing while `is_dead`, and the requests that it did not carry.
#[derive(Default)]
struct Network {
    is_dead: AtomicBool,
    lost: AtomicUsize,
}

impl Fetcher for Network {
    fn name(&self) -> &str {
        "direct_access"
    }

    fn renders(&self) -> bool {
        false
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            if self.is_dead.load(Ordering::Relaxed) {
                self.lost.fetch_add(1, Ordering::Relaxed);
                let took = Duration::from_secs(2);
                tokio::time::sleep(took).await;
                return Err(FetchError::new(ErrorKind::NetworkError, "no answer", took));
            }
            let html = format!("<h1>Opening hours</h1>{}", "<p>The museum is open.</p>".repeat(40));
            let headers = vec![Header::new("content-type", "text/html")];
            Ok(Response::new(200, headers, Body::in_memory(html.into_bytes()), request.url.clone()))
        })
    }
}

/// A crawl of forty hosts lost a link of each of them while its own line was dead.
#[tokio::test(start_paused = true)]
async fn links_wait_for_the_connection_of_this_machine_and_for_robots_txt_too() {
    let (sink, clock) = (RecordingSink::default(), Arc::new(Clock::fixed(Timestamp::now())));
    let selector = Selector::builder().without_pace().sink(sink.clone()).clock(Arc::clone(&clock));
    let selector = selector.visits(visits()).fetcher(FetcherSpec::by_name("direct_access"));
    let network = Arc::new(Network::default());
    let pipeline = Pipeline::builder(Arc::new(selector.build().unwrap()))
        .fetcher(Arc::<Network>::clone(&network))
        .robots(RobotsTxt::new(Arc::<Network>::clone(&network), "fetchwise"))
        .build()
        .unwrap();
    let slots = LinkSlots::new(10);
    let fetch = async |site: usize, path: &str| {
        let link = Link::new(format!("http://site{site}.org/{path}"));
        let slot = slots.take().await;
        pipeline.fetch_in_slot(&Link { robots: RobotsUse::Obey, ..link }, &slot).await
    };
    // The selector's clock goes as tokio's does.
    let ticks = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            clock.set(clock.now().saturating_add(Duration::from_millis(100)));
        }
    });
    for site in 0..8 {
        assert!(fetch(site, "a").await.success);
    }
    network.is_dead.store(true, Ordering::Relaxed);
    let outage = async {
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(pipeline.selector().connection_lost_since().is_some());
        assert!(slots.try_take().is_none(), "no other link begins meanwhile");
        network.is_dead.store(false, Ordering::Relaxed);
    };
    // Eight sites that are known, and two whose robots.txt comes first.
    let pages = futures_util::future::join_all((0..10).rev().map(|site| fetch(site, "b")));
    let (reports, ()) = tokio::join!(pages, outage);
    ticks.abort();
    assert!(reports.iter().all(|report| report.success), "{reports:?}");
    let lost = network.lost.load(Ordering::Relaxed);
    // Ten that were under way, a retry of each, and one every five seconds.
    assert!((10 + 20..=10 + 10 + 24).contains(&lost), "{lost} requests");
    let failed = sink.all().iter().filter(|attempt| !attempt.success).count();
    assert_eq!(failed, 4, "those before the fifth are the sites'");
}

/// The first contact decided about all links of a host: one that was down for half a second lost
/// them.
#[tokio::test(start_paused = true)]
async fn links_of_a_host_that_is_down_at_first_contact_outlast_its_restart() {
    let selector = Selector::builder().without_pace().visits(visits());
    let selector = selector.fetcher(FetcherSpec::by_name("direct_access")).build().unwrap();
    let network = Arc::new(Network::default());
    let pipeline = Pipeline::builder(Arc::new(selector))
        .fetcher(Arc::<Network>::clone(&network))
        .robots(RobotsTxt::new(Arc::<Network>::clone(&network), "fetchwise"))
        .build()
        .unwrap();
    let slots = LinkSlots::new(5);
    let fetch_all = async |host: &str| {
        let links = (0..5).map(async |page| {
            let link = Link::new(format!("http://{host}/{page}"));
            let slot = slots.take().await;
            pipeline.fetch_in_slot(&Link { robots: RobotsUse::Obey, ..link }, &slot).await
        });
        futures_util::future::join_all(links).await
    };
    network.is_dead.store(true, Ordering::Relaxed);
    let restart = async || {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(slots.try_take().is_some(), "other links go on meanwhile");
        network.is_dead.store(false, Ordering::Relaxed);
    };
    let (reports, ()) = tokio::join!(fetch_all("late.example"), restart());
    assert!(reports.iter().all(|report| report.success), "{reports:?}");
    assert_eq!(network.lost.swap(0, Ordering::Relaxed), 3, "one link asks for all");

    network.is_dead.store(true, Ordering::Relaxed);
    let begun = tokio::time::Instant::now();
    for report in fetch_all("gone.example").await {
        assert_eq!(report.error_type, Some("network_error"), "{report:?}");
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(4 * 2 + 1 + 4 + 16));
    assert_eq!(network.lost.load(Ordering::Relaxed), 4);
}

/// A page that sets a cookie and leads to itself was a redirect loop, and one whose target wants the
/// cookie was missing.
#[tokio::test]
async fn cookies_go_along_with_redirects_that_pages_write() {
    let listener = tokio::net::TcpListener::bind((HOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let has_cookie = head.contains("cookie: seen=1");
            seen.lock().unwrap().push((path.clone(), has_cookie));
            let page = format!("<h1>Opening hours</h1>{}", "<p>The museum is open.</p>".repeat(40));
            let refresh = |to: &str| format!("<meta http-equiv=refresh content='0;url={to}'>");
            let (more, body) = match path.as_str() {
                _ if has_cookie => ("", page),
                "/script" => (
                    "Set-Cookie: seen=1\r\n",
                    "<script>location.href='/script'</script>".to_owned(),
                ),
                "/header" => ("Set-Cookie: seen=1\r\nRefresh: 0;url=/target\r\n", String::new()),
                "/later" => ("", refresh("/target")),
                "/target" => ("", "<p>no cookie</p>".to_owned()),
                path => ("Set-Cookie: seen=1\r\n", refresh(path)),
            };
            let status = match path.as_str() {
                "/redirect" => "302 Found\r\nLocation: /later\r\nSet-Cookie: seen=1; Path=/target",
                "/target" if !has_cookie => "404 Not Found",
                _ => "200 OK",
            };
            let response = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(response.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let world = World::new(vec![(HOST, Site::Static)]);
    for path in ["/itself", "/script", "/header", "/redirect", "/itself"] {
        heads.lock().unwrap().clear();
        let report = world.pipeline.fetch(&Link::new(format!("http://{address}{path}"))).await;
        assert!(report.success && report.requests == 1, "{path}: {report:?}");
        let heads = heads.lock().unwrap();
        assert!(!heads[0].1 && heads.last().unwrap().1, "{path}: no link has another's: {heads:?}");
    }
    server.abort();
}
