//! `archive_proxy` with a stand-in of the Wayback Machine: its copies, their provenance, and the
//! attribution of an archive's faults.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::archive::{Archive, ArchiveFetcher, ArchiveOptions};
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::registry::FetcherSpec;
use fetchwise::rfc3339;
use fetchwise::selector::{Selector, Sink, SinkError};
use fetchwise::time::{Clock, Timestamp};
use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::services::Reply;
use fetchwise_testsite::services::archive::{ArchiveFaults, Capture, WebArchive};

const PAGE: &str = "https://example.org/news?id=7";
/// The archive has a separate address, because evidence and pauses are kept per host.
const ARCHIVE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

fn story(of: &str) -> String {
    let text =
        "The council met on Tuesday and agreed on the plan for the harbour, which had been put off twice. ".repeat(20);
    format!("<html><head><title>{of}</title></head><body><h1>{of}</h1><p>{text}</p></body></html>")
}

fn captures() -> Vec<Capture> {
    let mut newest = Capture::page("20240601080000", PAGE, &story("of 2024"));
    newest.headers.push(("Server".to_owned(), "nginx".to_owned()));
    vec![
        Capture::page("20100101000000", PAGE, &story("of 2010")),
        newest,
        Capture::page("20150310121212", PAGE, &story("of 2015")),
        Capture::redirect("20240601080000", "https://example.org/old", PAGE),
        Capture::page(
            "20240601080000",
            "https://example.org/blocked",
            "<html><head><title>Just a moment...</title></head><body><div id=\"challenge-running\"></div>\
             <script src=\"/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1\"></script></body></html>",
        ),
    ]
}

fn loopback() -> AddressGuard {
    AddressGuard::new([], true)
}

fn wayback(archive: &WebArchive) -> Archive {
    let url = |path| archive.service().url(path).parse().unwrap();
    Archive::Wayback { base: url("/"), availability: Some(url("/wayback/available")) }
}

fn fetcher(archives: Vec<Archive>, wanted: Option<&str>) -> ArchiveFetcher {
    let wanted = wanted.map(|text| rfc3339::parse(text).unwrap());
    let options = ArchiveOptions { archives, wanted, ..ArchiveOptions::default() };
    ArchiveFetcher::new(options, HttpFetcher::builder().guard(loopback())).unwrap()
}

async fn get(fetcher: &ArchiveFetcher, url: &str) -> Result<Response, FetchError> {
    let limits = Limits { deadline: Duration::from_secs(600), ..Limits::default() };
    fetcher.fetch(Request::new(&url.parse().unwrap(), &limits)).await
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(response.body.head()).into_owned()
}

#[tokio::test]
async fn the_newest_copy_is_raw_and_has_its_provenance() {
    let archive = WebArchive::start(ARCHIVE, captures()).unwrap();
    let copy = get(&fetcher(vec![wayback(&archive)], None), PAGE).await.unwrap();
    assert!(text(&copy).contains("of 2024") && !text(&copy).contains("banner"), "{}", text(&copy));
    assert_eq!((copy.status, copy.final_url.as_str(), copy.chain.len()), (200, PAGE, 0));
    let provenance = copy.provenance.unwrap();
    assert_eq!(&*provenance.by, "127.0.0.9");
    assert_eq!(rfc3339::format(provenance.captured.unwrap()), "2024-06-01T08:00:00.000Z");
    let header = |name: &str| {
        copy.headers.iter().find(|header| header.name == name).map(|header| &*header.value)
    };
    assert_eq!(header("server"), Some("nginx"), "the headers are those of the page");
    assert_eq!(header("memento-datetime"), Some("Sat, 01 Jun 2024 08:00:00 GMT"));
}

#[tokio::test]
async fn a_wanted_date_selects_the_nearest_copy_with_each_api() {
    let archive = WebArchive::start(ARCHIVE, captures()).unwrap();
    let gate = Archive::TimeGate(archive.service().url("/timegate/").parse().unwrap());
    let knows_nothing = ArchiveFaults { availability_is_empty: true, ..ArchiveFaults::default() };
    for (archives, faults) in [
        (vec![wayback(&archive)], ArchiveFaults::default()),
        (vec![wayback(&archive)], knows_nothing),
        (vec![gate], ArchiveFaults::default()),
    ] {
        archive.set_faults(faults);
        for (wanted, title) in [
            (Some("2014-01-01T00:00:00Z"), "of 2015"),
            (Some("1999-01-01T00:00:00Z"), "of 2010"),
            (None, "of 2024"),
        ] {
            let copy = get(&fetcher(archives.clone(), wanted), PAGE).await.unwrap();
            assert!(text(&copy).contains(title), "{archives:?} {wanted:?}: {}", text(&copy));
            assert!(!text(&copy).contains("banner"), "{archives:?}");
        }
    }
}

#[tokio::test]
async fn a_captured_redirect_leads_to_the_copy_of_its_target_and_never_to_the_live_site() {
    let live = Origin::start([("127.0.0.1", Site::Static)]).unwrap();
    let (old, new) = (live.url("127.0.0.1", "/old"), live.url("127.0.0.1", "/new"));
    let captures = vec![
        Capture::redirect("20240601080000", &old, &new),
        Capture::page("20240601080000", &new, &story("of then")),
    ];
    let archive = WebArchive::start(ARCHIVE, captures).unwrap();
    let gate = Archive::TimeGate(archive.service().url("/timegate/").parse().unwrap());
    for keeps_captured_locations in [false, true] {
        archive.set_faults(ArchiveFaults { keeps_captured_locations, ..ArchiveFaults::default() });
        let copy = get(&fetcher(vec![gate.clone()], None), &old).await.unwrap();
        assert!(text(&copy).contains("of then"), "{keeps_captured_locations}: {}", text(&copy));
        assert_eq!((copy.final_url.as_str(), copy.chain.len()), (new.as_str(), 1));
    }
    assert_eq!(live.hits("127.0.0.1"), 0);
}

#[tokio::test]
async fn a_missing_copy_is_not_held_and_a_failed_archive_is_a_proxy_error() {
    let archive = WebArchive::start(ARCHIVE, captures()).unwrap();
    let one = fetcher(vec![wayback(&archive)], None);
    let error = get(&one, "https://example.org/nobody").await.unwrap_err();
    assert_eq!((error.kind, error.status), (ErrorKind::NotHeld, None), "{error}");
    for status in [500, 502, 503, 0] {
        archive.set_faults(ArchiveFaults {
            override_reply: Some(Reply::status(status)),
            ..ArchiveFaults::default()
        });
        let error = get(&fetcher(vec![wayback(&archive)], None), PAGE).await.unwrap_err();
        assert_eq!((error.kind, error.status), (ErrorKind::ProxyError, None), "{status}: {error}");
        assert!(error.headers.is_empty() && !error.unavailable, "{error:?}");
    }
    archive.set_faults(ArchiveFaults {
        override_reply: Some(Reply::status(200).body("text/html", "<h1>Maintenance</h1>")),
        ..ArchiveFaults::default()
    });
    let error = get(&fetcher(vec![wayback(&archive)], None), PAGE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ProxyError, "a page that is not a copy: {error}");
}

#[tokio::test]
async fn the_second_archive_is_used_if_the_first_one_has_no_copy_or_fails() {
    let (empty, full) = (
        WebArchive::start(ARCHIVE, vec![]).unwrap(),
        WebArchive::start(ARCHIVE, captures()).unwrap(),
    );
    let both = fetcher(vec![wayback(&empty), wayback(&full)], None);
    assert!(text(&get(&both, PAGE).await.unwrap()).contains("of 2024"));
    empty.set_faults(ArchiveFaults {
        override_reply: Some(Reply::status(500)),
        ..ArchiveFaults::default()
    });
    assert!(text(&get(&both, PAGE).await.unwrap()).contains("of 2024"));
    let error = get(&both, "https://example.org/nobody").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ProxyError, "the failed archive may have a copy: {error}");
}

#[tokio::test]
async fn an_archive_with_retry_after_is_paused_and_not_attributed_to_the_site() {
    let archive = WebArchive::start(ARCHIVE, captures()).unwrap();
    let slow_down = Reply::status(429).header("Retry-After", "600");
    archive
        .set_faults(ArchiveFaults { override_reply: Some(slow_down), ..ArchiveFaults::default() });
    let one = fetcher(vec![wayback(&archive)], None);
    let error = get(&one, PAGE).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ErrorKind::ProxyError, None), "{error}");
    let before = archive.service().requests().len();
    let error = get(&one, PAGE).await.unwrap_err();
    assert!(error.unavailable, "{error:?}");
    assert_eq!(archive.service().requests().len(), before, "the archive requested a pause");
}

#[tokio::test]
async fn limits_and_the_guard_apply_to_copies() {
    let archive = WebArchive::start(ARCHIVE, captures()).unwrap();
    let one = fetcher(vec![wayback(&archive)], None);
    let limits = Limits { max_body: 1000, ..Limits::default() };
    let error = one.fetch(Request::new(&PAGE.parse().unwrap(), &limits)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
    let options = ArchiveOptions { archives: vec![wayback(&archive)], ..ArchiveOptions::default() };
    let shut = ArchiveFetcher::new(options, HttpFetcher::builder()).unwrap();
    let before = archive.service().requests().len();
    let error = get(&shut, PAGE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ProxyError, "{error}");
    assert_eq!(archive.service().requests().len(), before);
}

/// An archive leads nobody into the own network, and what it does is never the site's response.
#[tokio::test]
async fn a_hostile_archive_gets_nowhere() {
    let archive = WebArchive::start(ARCHIVE, captures()).unwrap();
    let inside = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    inside.set_nonblocking(true).unwrap();
    let private = format!("http://{}/secret", inside.local_addr().unwrap());
    let closest = serde_json::json!({"archived_snapshots": {"closest": {
        "available": true, "status": "200", "timestamp": "20240601080000", "url": private,
    }}});
    let options = ArchiveOptions { archives: vec![wayback(&archive)], ..ArchiveOptions::default() };
    let guard = AddressGuard::new(["127.0.0.9/32".parse().unwrap()], false);
    let json = |body: Vec<u8>| Reply::status(200).body("application/json", body);
    for (name, reply) in [
        ("a redirect inside", Reply::status(302).header("Location", &private)),
        ("a redirect to itself", Reply::status(302).header("Location", "/")),
        ("a copy inside", json(closest.to_string().into_bytes())),
        ("deep JSON", json(vec![b'['; 1 << 20])),
        ("much JSON", json(vec![b' '; 32 << 20])),
        (
            "a date that is none",
            Reply::status(200).header("Memento-Datetime", "yesterday").body("text/html", "<p>x"),
        ),
    ] {
        archive
            .set_faults(ArchiveFaults { override_reply: Some(reply), ..ArchiveFaults::default() });
        let one = ArchiveFetcher::new(options.clone(), HttpFetcher::builder().guard(guard.clone()))
            .unwrap();
        let error = get(&one, PAGE).await.expect_err(name);
        let is_its_own = error.kind.is_of_intermediary() || error.kind == ErrorKind::TooLarge;
        assert!(is_its_own && error.status.is_none(), "{name}: {error:?}");
        let met = inside.accept().map(|_| ()).map_err(|error| error.kind());
        assert_eq!(met, Err(std::io::ErrorKind::WouldBlock), "{name}");
    }
}

/// A domain, and the end of its pause.
type HostPause = (String, Option<Timestamp>);

#[derive(Clone, Default)]
struct RecordedEvents {
    attempts: Arc<Mutex<Vec<Attempt>>>,
    pauses: Arc<Mutex<Vec<HostPause>>>,
}

impl Sink for RecordedEvents {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.attempts.lock().unwrap().push(attempt.clone());
        Ok(())
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, _: Timestamp) {
        self.pauses.lock().unwrap().push((domain.to_owned(), until));
    }
}

/// A site, and a pipeline with the plain fetcher and the archive.
struct World {
    origin: Origin,
    archive: WebArchive,
    events: RecordedEvents,
    pipeline: Pipeline,
}

impl World {
    fn new(site: Site, path: &str, capture: Option<&str>) -> Self {
        let origin = Origin::start([("127.0.0.1", site)]).unwrap();
        let url = origin.url("127.0.0.1", path);
        let captures = capture.map(|body| Capture::page("20240601080000", &url, body));
        let archive = WebArchive::start(ARCHIVE, captures.into_iter().collect()).unwrap();
        let (events, clock) = (RecordedEvents::default(), Arc::new(Clock::fixed(Timestamp::now())));
        let selector = Selector::builder()
            .without_pace()
            .sink(events.clone())
            .clock(clock)
            .fetcher(FetcherSpec::by_name("direct_access"))
            .fetcher(FetcherSpec { prior: 0.9, ..FetcherSpec::by_name("archive_proxy") });
        let pipeline = Pipeline::builder(Arc::new(selector.build().unwrap()))
            .fetcher(Arc::new(HttpFetcher::new(loopback()).unwrap()))
            .fetcher(Arc::new(fetcher(vec![wayback(&archive)], None)))
            .build()
            .unwrap();
        Self { origin, archive, events, pipeline }
    }

    async fn get(&self, path: &str) -> Report {
        self.pipeline.fetch(&Link::new(self.origin.url("127.0.0.1", path))).await
    }

    fn attempts(&self) -> Vec<(String, Option<String>, f64, bool)> {
        let of = |attempt: &Attempt| {
            let error = attempt.error_type.as_ref().map(|error| error.name().to_owned());
            (attempt.fetcher.clone(), error, attempt.weight, attempt.is_banned)
        };
        self.events.attempts.lock().unwrap().iter().map(of).collect()
    }
}

#[tokio::test]
async fn a_live_page_is_preferred_and_a_blocked_one_is_replaced_by_a_dated_copy() {
    let world = World::new(Site::Static, "/a", Some(&story("of then")));
    assert_eq!(world.get("/a").await.fetcher.as_deref(), Some("direct_access"));
    assert!(world.archive.service().requests().is_empty());

    let world = World::new(Site::FORBIDDEN, "/a", Some(&story("of then")));
    let report = world.get("/a").await;
    assert!(report.success && report.is_banned, "{report:?}");
    assert_eq!((report.fetcher.as_deref(), report.requests), (Some("archive_proxy"), 2));
    let provenance = report.provenance.unwrap();
    assert_eq!((&*provenance.by, provenance.day().as_deref()), ("127.0.0.9", Some("2024-06-01")));
    let attempts = world.events.attempts.lock().unwrap().clone();
    let tags: Vec<(&str, &str)> = attempts[1]
        .heuristics
        .iter()
        .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
        .collect();
    assert!(tags.contains(&("served_by", "127.0.0.9")), "{tags:?}");
    assert!(tags.contains(&("archived_at", "2024-06-01")), "{tags:?}");
    let stored =
        attempts[1].response_headers.iter().find(|header| &*header.name == "memento-datetime");
    assert_eq!(stored.map(|header| &*header.value), Some("Sat, 01 Jun 2024 08:00:00 GMT"));
}

#[tokio::test]
async fn faults_of_an_archive_change_no_evidence_and_no_pause_of_the_site() {
    for (reply, weight) in [
        (Reply::status(429).header("Retry-After", "600"), 0.0),
        (Reply::status(503).header("Retry-After", "600"), 0.0),
        (Reply::status(500), 0.0),
        (Reply::status(0), 0.0),
    ] {
        let status = reply.status;
        let world = World::new(Site::ReactShell, "/a", None);
        world
            .archive
            .set_faults(ArchiveFaults { override_reply: Some(reply), ..ArchiveFaults::default() });
        let report = world.get("/a").await;
        let attempts = world.attempts();
        assert_eq!(
            attempts[1],
            ("archive_proxy".to_owned(), Some("proxy_error".to_owned()), weight, false),
            "{status}"
        );
        assert!(world.events.pauses.lock().unwrap().is_empty(), "{status}");
        // The site's own response remains the result.
        assert_eq!(
            (report.error_type, report.is_banned),
            (Some("wrong_tool"), false),
            "{status}: {report:?}"
        );
    }
}

#[tokio::test]
async fn a_missing_copy_is_attributed_to_the_archive_and_does_not_undo_a_block() {
    let world = World::new(Site::FORBIDDEN, "/a", None);
    let report = world.get("/a").await;
    assert_eq!((report.error_type, report.is_banned), (Some("blocked_403"), true), "{report:?}");
    assert_eq!(report.fetcher.as_deref(), Some("direct_access"), "the response is the site's");
    assert_eq!(
        world.attempts()[1],
        ("archive_proxy".to_owned(), Some("not_held".to_owned()), 1.0, false)
    );
}

#[tokio::test]
async fn a_copy_of_a_block_page_is_not_a_current_block() {
    let captures = captures();
    let blocked = captures.iter().find(|capture| capture.url.ends_with("/blocked")).unwrap();
    let world = World::new(Site::ReactShell, "/a", Some(&blocked.body));
    let report = world.get("/a").await;
    assert!(!report.success && !report.is_banned, "{report:?}");
    assert_eq!(
        world.attempts()[1],
        ("archive_proxy".to_owned(), Some("not_held".to_owned()), 1.0, false)
    );
    assert!(world.events.pauses.lock().unwrap().is_empty());
}
