//! Requests for robots.txt and for the licences that it names take the gate that pages take: pause,
//! trial and pace of each host of a chain. The host at its end is charged with what it responds.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::attempt::Attempt;
use fetchwise::consent::{ConsentSettings, LicenseUse, Purpose};
use fetchwise::fetch::Limits;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::metrics::Metrics;
use fetchwise::pace::{Pace, PaceSettings, Scope};
use fetchwise::pause_coordination::{PauseCoordinator, TrialPermission};
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::registry::FetcherSpec;
use fetchwise::robots::{RobotsTxt, RobotsUse};
use fetchwise::selector::{Sink, SinkError, VisitSettings};
use fetchwise::time::{Clock, Timestamp};
use fetchwise_testsite::origin::{Origin, Site};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HOST: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
const TARGET: &str = "127.0.0.9";
const ROBOTS: &str = "/robots.txt";
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const DISALLOW: &str = "User-agent: *\nDisallow: /private/";

/// Returns a site of articles with this response at one path.
fn with(path: &str, response: Site) -> Site {
    Site::Mixed(vec![("/".to_owned(), Site::Static), (path.to_owned(), response)])
}

fn html(text: &str) -> Site {
    Site::Html(text.to_owned())
}

/// Everything that learns of a host's pause.
#[derive(Clone, Debug, Default)]
struct PauseWitness {
    stored: Arc<Mutex<Vec<String>>>,
    shared: Arc<Mutex<Vec<String>>>,
    /// Number of trials that may be made.
    trials: Arc<AtomicUsize>,
}

impl Sink for PauseWitness {
    fn append(&self, _: &Attempt) -> Result<(), SinkError> {
        Ok(())
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, _: Timestamp) {
        if until.is_some() {
            self.stored.lock().unwrap().push(domain.to_owned());
        }
    }
}

impl PauseCoordinator for PauseWitness {
    fn paused(&self, domain: &str, _: Timestamp, _: Timestamp) {
        self.shared.lock().unwrap().push(domain.to_owned());
    }

    fn lifted(&self, _: &str) {}

    fn may_try(&self, _: &str, _: Timestamp, now: Timestamp) -> TrialPermission {
        match self
            .trials
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        {
            Ok(_) => TrialPermission::Now,
            Err(_) => TrialPermission::NotBefore(now.saturating_add(Duration::from_secs(60))),
        }
    }
}

struct World {
    origin: Origin,
    selector: Arc<Selector>,
    pipeline: Pipeline,
    clock: Arc<Clock>,
    witness: PauseWitness,
}

impl World {
    fn new(sites: Vec<(&str, Site)>, pace: Option<PaceSettings>) -> Self {
        Self::for_purposes(sites, pace, ConsentSettings::default())
    }

    fn for_purposes(
        sites: Vec<(&str, Site)>,
        pace: Option<PaceSettings>,
        consent: ConsentSettings,
    ) -> Self {
        Self::build(sites, pace, consent, VisitSettings::default().max_retries)
    }

    fn build(
        sites: Vec<(&str, Site)>,
        pace: Option<PaceSettings>,
        consent: ConsentSettings,
        max_retries: u32,
    ) -> Self {
        let clock = Arc::new(Clock::fixed(BEGIN));
        let witness = PauseWitness::default();
        let deadline = Duration::from_secs(4);
        let visits = VisitSettings { deadline, max_retries, ..VisitSettings::default() };
        let builder = Selector::builder()
            .around(BEGIN)
            .clock(Arc::clone(&clock))
            .sink(witness.clone())
            .visits(visits);
        let builder = match pace {
            Some(settings) => builder.pace(Pace::new(settings)),
            None => builder.without_pace(),
        };
        let selector =
            Arc::new(builder.fetcher(FetcherSpec::by_name("direct_access")).build().unwrap());
        assert!(selector.set_pause_coordinator(Arc::new(witness.clone())));
        let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
        let http = Arc::new(HttpFetcher::new(guard).unwrap());
        let robots = RobotsTxt::new(Arc::clone(&http) as Arc<_>, "fetchwise");
        let builder =
            Pipeline::builder(Arc::clone(&selector)).fetcher(http).robots(robots).consent(consent);
        let pipeline =
            builder.wait_at_most(Duration::ZERO).limits(Limits::default()).build().unwrap();
        Self { origin: Origin::start(sites).unwrap(), selector, pipeline, clock, witness }
    }

    fn paced(sites: Vec<(&str, Site)>) -> Self {
        Self::new(sites, Some(PaceSettings { max_crawl_delay_s: 900.0, ..PaceSettings::default() }))
    }

    /// Lets the robots.txt of each host redirect to this path of the target.
    fn redirect_robots(&self, hosts: &[&str], to: &str) {
        let to = self.origin.url(TARGET, to);
        for host in hosts {
            let redirect = Site::Redirect { status: 302, to: to.clone() };
            assert!(self.origin.set_site(host, with(ROBOTS, redirect)));
        }
    }

    async fn fetch_at(&self, host: &str, path: &str) -> Report {
        self.fetch_with(host, path, RobotsUse::Obey).await
    }

    async fn fetch_with(&self, host: &str, path: &str, robots: RobotsUse) -> Report {
        self.pipeline.fetch(&Link { robots, ..Link::new(self.origin.url(host, path)) }).await
    }

    fn pause(&self, host: &str) -> Option<Timestamp> {
        self.selector.host_pause(host)
    }
}

#[tokio::test]
async fn a_robots_txt_that_redirects_takes_the_pace_of_its_target() {
    let world =
        World::paced(vec![(HOST, Site::Static), (OTHER, Site::Static), (TARGET, html(DISALLOW))]);
    world.redirect_robots(&[HOST, OTHER], "/rules");
    let pace = world.selector.pace().unwrap();
    let _ = pace.set_min_interval(Scope::host(TARGET), Duration::from_secs(600), BEGIN);
    assert_eq!(world.fetch_at(HOST, "/private/a").await.error_type, Some("disallowed"));
    let report = world.fetch_at(OTHER, "/private/a").await;
    assert_eq!((report.error_type, report.requests), (Some(Report::PACED), 0), "{report:?}");
    assert!(report.paused_until.is_some_and(|until| until > BEGIN), "{report:?}");
    assert_eq!(world.origin.hits(TARGET), 1, "its target was not asked again");
    assert_eq!((world.origin.hits(HOST), world.origin.hits(OTHER)), (1, 1), "and no page was");
}

#[tokio::test]
async fn a_robots_txt_that_redirects_to_a_paused_host_is_not_requested_there() {
    let world = World::new(vec![(HOST, Site::Static), (TARGET, html(DISALLOW))], None);
    world.redirect_robots(&[HOST], "/rules");
    let until = BEGIN.saturating_add(Duration::from_secs(3600));
    world.selector.set_host_pause(TARGET, Some(until));
    for _ in 0..3 {
        let report = world.fetch_at(HOST, "/a").await;
        assert_eq!(
            (report.error_type, report.paused_until),
            (Some(Report::PAUSED), Some(until)),
            "{report:?}"
        );
        assert!(report.message.as_ref().unwrap().contains(TARGET), "{report:?}");
    }
    assert_eq!(
        (world.origin.hits(HOST), world.origin.hits(TARGET)),
        (1, 0),
        "one request says where it leads"
    );
    world.clock.set(until);
    world.witness.trials.store(1, Ordering::Relaxed);
    assert_eq!(world.fetch_at(HOST, "/private/a").await.error_type, Some("disallowed"));
}

#[tokio::test]
async fn a_limit_at_the_end_of_a_redirect_is_charged_to_the_host_that_sets_it() {
    let limited = Site::with_header("Retry-After", "600", Site::Status(429));
    let shop = World::paced as fn(Vec<(&'static str, Site)>) -> World;
    for (way, new) in [("with a pace", shop), ("without", |sites| World::new(sites, None))] {
        let world = new(vec![(HOST, Site::Static), (TARGET, limited.clone())]);
        world.redirect_robots(&[HOST], "/rules");
        let report = world.fetch_at(HOST, "/a").await;
        assert_eq!(report.error_type, Some(Report::PAUSED), "{way}: {report:?}");
        let asked = BEGIN.saturating_add(Duration::from_secs(600));
        assert!(
            world.pause(TARGET).is_some_and(|until| until >= asked),
            "{way}: {:?}",
            world.pause(TARGET)
        );
        assert_eq!(world.pause(HOST), None, "{way}: the redirector has refused nothing");
        // A hold of the pace is a wait, and not a pause.
        let held = if way == "without" { Report::PAUSED } else { Report::PACED };
        assert_eq!(world.fetch_at(TARGET, "/b").await.error_type, Some(held), "{way}");
        assert_eq!((world.origin.hits(TARGET), world.origin.hits(HOST)), (1, 1), "{way}");
    }
}

/// Returns the samples of a counter whose names begin with `name`.
fn counted(selector: &Arc<Selector>, name: &str) -> f64 {
    let mut registry = Registry::default();
    Metrics::new(Arc::clone(selector)).register(&mut registry);
    let mut page = String::new();
    text::encode(&mut page, &registry).unwrap();
    let samples = page.lines().filter(|line| line.starts_with(name));
    samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn a_limit_of_robots_txt_is_announced_like_that_of_a_page() {
    let limited = Site::with_header("Retry-After", "600", Site::Status(429));
    for (cause, pace) in [("pace", Some(PaceSettings::default())), ("limited", None)] {
        let world = World::new(vec![(HOST, with(ROBOTS, limited.clone()))], pace);
        assert_eq!(world.fetch_at(HOST, "/a").await.error_type, Some(Report::PAUSED));
        let hosts = [&world.witness.stored, &world.witness.shared]
            .map(|hosts| hosts.lock().unwrap().clone());
        assert_eq!(
            hosts,
            [[HOST], [HOST]],
            "{cause}: stored, and told to the processes that share the address"
        );
        let pauses = format!("fetchwise_host_pauses_total{{cause=\"{cause}\"}}");
        assert_eq!(counted(&world.selector, &pauses), 1.0, "{cause}");
        let hits = counted(&world.selector, "fetchwise_rate_limit_hits_total");
        assert_eq!(hits, f64::from(u8::from(cause == "pace")), "{cause}");
        assert_eq!(
            (world.origin.hits(HOST), world.origin.hits_at(HOST, ROBOTS)),
            (1, 1),
            "{cause}"
        );
        // Links that ignore robots.txt are held as well.
        let report = world.fetch_with(HOST, "/b", RobotsUse::Ignore).await;
        assert_eq!((report.success, report.requests), (false, 0), "{cause}: {report:?}");
    }
}

#[tokio::test]
async fn the_trial_of_a_host_covers_robots_txt_and_the_page() {
    let world = World::new(vec![(HOST, with(ROBOTS, html(DISALLOW)))], None);
    world.selector.set_host_pause(HOST, Some(BEGIN));
    let held = world.fetch_at(HOST, "/a").await;
    assert_eq!(
        (held.error_type, world.origin.hits(HOST)),
        (Some(Report::PAUSED), 0),
        "another process tries it"
    );
    world.clock.set(held.paused_until.unwrap());
    world.witness.trials.store(1, Ordering::Relaxed);
    // A forbidden link has no verdict on the host.
    assert_eq!(world.fetch_at(HOST, "/private/a").await.error_type, Some("disallowed"));
    assert_eq!(world.pause(HOST), held.paused_until, "its trial is returned");
    world.selector.set_host_pause(HOST, Some(BEGIN));
    world.witness.trials.store(1, Ordering::Relaxed);
    world.clock.set(world.clock.now().saturating_add(Duration::from_secs(24 * 3600)));
    let report = world.fetch_at(HOST, "/b").await;
    assert!(report.success, "{report:?}");
    assert_eq!(
        (world.pause(HOST), world.origin.hits_at(HOST, ROBOTS)),
        (None, 2),
        "its page has ended the pause"
    );
}

const LICENSE: &str = "<rsl xmlns='https://rslstandard.org/rsl'><content url='/'><license><prohibits type='usage'>ai-all\
    </prohibits></license></content></rsl>";

fn reading_licenses() -> ConsentSettings {
    let purposes = vec![Purpose::TrainAi];
    ConsentSettings { purposes, licenses: LicenseUse::Read, ..ConsentSettings::default() }
}

/// Returns a site whose robots.txt has these lines.
fn licensed(robots: &str, license: &str) -> Site {
    let parts = [("/", Site::Static), (ROBOTS, html(robots)), ("/license.xml", html(license))];
    Site::Mixed(parts.into_iter().map(|(prefix, site)| (prefix.to_owned(), site)).collect())
}

#[tokio::test]
async fn a_licence_that_the_robots_txt_of_its_host_forbids_is_not_requested() {
    for (forbids, requests) in [("Disallow: /license", 0), ("Disallow: /other", 1)] {
        let robots = format!("License: /license.xml\nUser-agent: *\n{forbids}");
        let world =
            World::for_purposes(vec![(HOST, licensed(&robots, LICENSE))], None, reading_licenses());
        let report = world.fetch_at(HOST, "/a").await;
        assert_eq!(
            (report.success, report.error_type.is_some()),
            (requests == 0, requests == 1),
            "{report:?}"
        );
        assert_eq!(world.origin.hits_at(HOST, "/license.xml"), requests, "{forbids}");
        // A link that ignores rules ignores them for its licence.
        let ignored = world.fetch_with(HOST, "/b", RobotsUse::Ignore).await;
        assert_eq!(ignored.error_type, Some("reserved"), "{ignored:?}");
    }
}

#[tokio::test]
async fn a_licence_on_another_host_asks_its_robots_txt() {
    for (rules, requests) in
        [("User-agent: *\nDisallow: /", 0), ("User-agent: fetchwise\nDisallow: /a", 1)]
    {
        let sites = vec![(HOST, Site::Static), (TARGET, licensed(rules, LICENSE))];
        let world = World::for_purposes(sites, None, reading_licenses());
        let named = world.origin.url(TARGET, "/license.xml");
        let robots = format!("License: {named}\nUser-agent: *\nAllow: /");
        world.origin.set_site(HOST, with(ROBOTS, Site::Html(robots)));
        for n in 0..2 {
            let report = world.fetch_at(HOST, &format!("/{n}")).await;
            assert_eq!(report.success, requests == 0, "{report:?}");
        }
        assert_eq!(world.origin.hits_at(TARGET, "/license.xml"), requests, "{rules}");
        assert_eq!(world.origin.hits_at(TARGET, ROBOTS), 1, "{rules}");
    }
}

#[tokio::test]
async fn a_licence_that_redirects_to_a_paused_host_is_not_requested_there() {
    let robots = "License: /license.xml\nUser-agent: *\nAllow: /";
    let sites = vec![(HOST, Site::Static), (TARGET, html(LICENSE))];
    let world = World::for_purposes(sites, None, reading_licenses());
    let redirect = Site::Redirect { status: 302, to: world.origin.url(TARGET, "/license.xml") };
    let parts = [("/", Site::Static), (ROBOTS, html(robots)), ("/license.xml", redirect)];
    world.origin.set_site(
        HOST,
        Site::Mixed(parts.into_iter().map(|(path, site)| (path.to_owned(), site)).collect()),
    );
    let until = BEGIN.saturating_add(Duration::from_secs(3600));
    world.selector.set_host_pause(TARGET, Some(until));
    let report = world.fetch_at(HOST, "/a").await;
    assert_eq!((world.origin.hits(TARGET), report.success), (0, false), "{report:?}");
    assert_eq!(
        (report.error_type, report.paused_until),
        (Some(Report::PAUSED), Some(until)),
        "{report:?}"
    );
}

/// A server that sends these bytes for robots.txt, or for the licence that it names, and closes.
/// All other paths have pages.
struct RawServer {
    port: u16,
    pages: Arc<AtomicU64>,
    /// The responses in turn; the last one repeats. An empty one closes the connection.
    responses: Arc<Mutex<Vec<Vec<u8>>>>,
    task: tokio::task::JoinHandle<()>,
}

impl RawServer {
    /// `robots` is the text of robots.txt; without one, it is the raw response.
    async fn start(robots: Option<&'static str>, response: Vec<u8>) -> Self {
        let listener = tokio::net::TcpListener::bind((HOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (pages, responses) =
            (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(vec![response])));
        let (counted, raw) = (Arc::clone(&pages), Arc::clone(&responses));
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (counted, raw) = (Arc::clone(&counted), Arc::clone(&raw));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    let target = String::from_utf8_lossy(&head);
                    let sent = match (target.split(' ').nth(1), robots) {
                        (Some(ROBOTS), Some(text)) => whole("text/plain", text),
                        (Some(ROBOTS), None) | (Some("/license.xml"), _) => {
                            let mut raw = raw.lock().unwrap();
                            if raw.len() > 1 { raw.remove(0) } else { raw[0].clone() }
                        }
                        _ => {
                            counted.fetch_add(1, Ordering::Relaxed);
                            let text =
                                "The ferry to the island leaves at noon, and comes back in the evening. ".repeat(20);
                            whole(
                                "text/html",
                                &format!(
                                    "<!doctype html><title>Ferry</title><h1>Ferry</h1><p>{text}"
                                ),
                            )
                        }
                    };
                    let _ = stream.write_all(&sent).await;
                });
            }
        });
        Self { port, pages, responses, task }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{HOST}:{}{path}", self.port)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn whole(of: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {of}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}")
        .into()
}

/// The beginning of a robots.txt in gzip, up to `Allow: /a`.
const CUT_GZIP: &[u8] =
    b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x0bN-N\xd2MLO\xcd+\xb1R\xd0\xe2r\xcc\xc9\xc9/\xb7R\xd0/(M\xca\
    \xc9L\xd6\x87\xf3\xf3R\xcb\x8b\x11\xbc\xc4";

/// Returns the ways in which `text` may be cut off.
fn cut_off(text: &str) -> Vec<(&'static str, Vec<u8>)> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n";
    let gzip =
        format!("{head}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n", CUT_GZIP.len());
    vec![
        ("a length too long", format!("{head}content-length: 900\r\n\r\n{text}").into()),
        (
            "chunks without an end",
            format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n", text.len()).into(),
        ),
        ("gzip", [gzip.as_bytes(), CUT_GZIP].concat()),
        (
            "a part",
            format!(
                "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-{}/900\r\ncontent-length: {}\r\n\r\n{text}",
                text.len() - 1,
                text.len()
            )
            .into(),
        ),
    ]
}

#[tokio::test]
async fn a_robots_txt_that_was_cut_off_is_unknown_like_one_with_a_server_error() {
    for (how, response) in cut_off("User-agent: *\nAllow: /public/\nAllow: /a") {
        let world = World::new(vec![(OTHER, Site::Static)], None);
        let server = RawServer::start(None, response).await;
        let fetch = |path: &str| Link { robots: RobotsUse::Obey, ..Link::new(server.url(path)) };
        let report = world.pipeline.fetch(&fetch("/private/1")).await;
        assert_eq!(
            (report.error_type, report.requests),
            (Some(Report::PAUSED), 0),
            "{how}: {report:?}"
        );
        assert!(report.message.unwrap().contains(ROBOTS), "{how}");
        world.clock.set(report.paused_until.unwrap());
        *server.responses.lock().unwrap() = vec![whole("text/plain", DISALLOW)];
        assert_eq!(
            world.pipeline.fetch(&fetch("/private/1")).await.error_type,
            Some("disallowed"),
            "{how}"
        );
        assert_eq!(server.pages.load(Ordering::Relaxed), 0, "{how}");
        assert!(world.pipeline.fetch(&fetch("/a")).await.success, "{how}");
    }
}

#[tokio::test]
async fn a_licence_that_was_cut_off_permits_nothing() {
    for (how, response) in cut_off(&LICENSE[..LICENSE.len() - 20]) {
        let world = World::for_purposes(vec![(OTHER, Site::Static)], None, reading_licenses());
        let server =
            RawServer::start(Some("License: /license.xml\nUser-agent: *\nAllow: /"), response)
                .await;
        let link = Link { robots: RobotsUse::Obey, ..Link::new(server.url("/a")) };
        let report = world.pipeline.fetch(&link).await;
        assert_eq!(
            (report.error_type, report.requests),
            (Some(Report::PAUSED), 0),
            "{how}: {report:?}"
        );
        assert!(report.message.unwrap().contains("license.xml"), "{how}");
        world.clock.set(report.paused_until.unwrap());
        *server.responses.lock().unwrap() = vec![whole("text/xml", LICENSE)];
        assert_eq!(world.pipeline.fetch(&link).await.error_type, Some("reserved"), "{how}");
        assert_eq!(server.pages.load(Ordering::Relaxed), 0, "{how}");
    }
}

#[tokio::test]
async fn a_host_that_gives_no_response_for_robots_txt_ends_its_links_as_its_pages_would() {
    for (broken, error) in [(Site::Reset, "network_error"), (Site::Silent, "timeout")] {
        let sites = vec![(HOST, with(ROBOTS, broken.clone()))];
        let world = World::build(sites, None, ConsentSettings::default(), 0);
        for path in ["/a", "/b"] {
            let report = world.fetch_at(HOST, path).await;
            assert_eq!(
                (report.error_type, report.paused_until),
                (Some(error), None),
                "{broken:?}: {report:?}"
            );
            assert!(report.message.unwrap().contains(ROBOTS), "{broken:?}");
        }
        assert_eq!(
            (world.origin.hits_at(HOST, "/a"), world.origin.hits_at(HOST, ROBOTS)),
            (0, 1),
            "{broken:?}"
        );
        world.origin.set_site(HOST, Site::Static);
        world.clock.set(BEGIN.saturating_add(Duration::from_secs(5 * 60)));
        assert!(world.fetch_at(HOST, "/a").await.success, "{broken:?}");
    }
}

#[tokio::test]
async fn one_lost_connection_costs_no_link() {
    let world = World::new(vec![(OTHER, Site::Static)], None);
    let server = RawServer::start(None, Vec::new()).await;
    server.responses.lock().unwrap().push(whole("text/plain", DISALLOW));
    let link = |path: &str| Link { robots: RobotsUse::Obey, ..Link::new(server.url(path)) };
    assert_eq!(world.pipeline.fetch(&link("/private/a")).await.error_type, Some("disallowed"));
    assert!(world.pipeline.fetch(&link("/a")).await.success);
}

#[tokio::test]
async fn a_robots_txt_without_an_end_counts_up_to_its_limit() {
    let filler = "# nothing to see here\n".repeat((9 << 20) / 22);
    let long = html(&format!("{DISALLOW}\n{filler}Disallow: /late\n"));
    for (rules, error) in [(long, Some("disallowed")), (Site::EndlessBody, None)] {
        let world = World::new(vec![(HOST, with(ROBOTS, rules))], None);
        assert_eq!(world.fetch_at(HOST, "/private/a").await.error_type, error);
        let report = world.fetch_at(HOST, "/late").await;
        assert!(report.success, "{report:?}");
        assert_eq!(world.origin.hits_at(HOST, ROBOTS), 1);
    }
}
