//! HTTP during a crawl: its metrics (`fetch --metrics`), and its dashboard.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use fetchwise_testsite::origin::{Origin, Site};

use crate::support::{PATIENCE, TestDir, lines, send_signal, wait_for};

const TOKEN: &str = "a-token-that-is-long-enough";
const PAGES: u64 = 40;

fn ask(address: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Returns the value of a metric without labels; none if it is absent.
fn value(page: &str, name: &str) -> Option<u64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

fn sum(page: &str, name: &str) -> u64 {
    let rows = page.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    rows.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// A crawl of one host with one page at a time, and the address of its metrics.
fn crawl(
    place: &TestDir,
    origin: &Origin,
    args: &[&str],
    listen: &str,
    token: Option<&str>,
) -> (Child, String) {
    let (child, address) =
        crawl_with(place, origin, &[&["--metrics", listen], args].concat(), token);
    (child, address.strip_suffix("/metrics").unwrap().to_owned())
}

/// A crawl that listens on one address, and the address that it prints.
fn crawl_with(
    place: &TestDir,
    origin: &Origin,
    args: &[&str],
    token: Option<&str>,
) -> (Child, String) {
    let urls: String = (0..PAGES).map(|n| origin.url("127.0.75.1", &format!("/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let fetch = [
        "fetch",
        "--json",
        "--allow-network",
        "127.0.0.0/8",
        "--no-browser",
        "--robots",
        "ignore",
        "--pace",
        "off",
    ];
    let mut command: Command = place.command(&[&fetch[..], &["--input", &input], args].concat());
    command.env_remove("FETCHWISE_TOKEN");
    token.map(|token| command.env("FETCHWISE_TOKEN", token));
    let mut child = command.spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    let line = wait_for(&said, "http://");
    let address = line.split("http://").nth(1).unwrap_or_else(|| panic!("{line}"));
    (child, address.to_owned())
}

#[test]
fn a_crawl_shows_its_dashboard_and_nobody_changes_it() {
    let place = TestDir::new();
    // It is fast once the test has seen it run.
    let origin =
        Origin::start([("127.0.75.1".to_owned(), Site::slow(Duration::from_secs(1)))]).unwrap();
    let (mut child, address) =
        crawl_with(&place, &origin, &["--concurrency", "1", "--serve=127.0.0.1:0"], None);
    let dashboard = address.trim_end_matches('/');
    let (status, page) = ask(dashboard, "/", "");
    assert!(status == 200 && page.contains("<title>"), "{page}");
    let begun = Instant::now();
    let seen = loop {
        let (status, board) = ask(dashboard, "/v1/dashboard", "");
        assert_eq!(status, 200, "{board}");
        let board: serde_json::Value = serde_json::from_str(&board).unwrap();
        assert_eq!(board["read_only"], true);
        match board["all"]["attempts"].as_u64() {
            Some(seen) if seen > 0 => break seen,
            _ => assert!(begun.elapsed() < PATIENCE, "no attempt in {board}"),
        }
    };
    assert!(seen <= PAGES);
    let mut stream = TcpStream::connect(dashboard).unwrap();
    write!(stream, "POST /v1/hosts/127.0.75.1/unpause HTTP/1.1\r\nHost: {dashboard}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 405") && text.contains("\"read_only\""), "{text}");
    assert!(origin.set_site("127.0.75.1", Site::Static));
    assert!(child.wait().unwrap().success());
    // The report of the run counts what the dashboard's server recorded.
    let stats = place.run(&["stats", "--json"]).one();
    assert_eq!(stats["attempts"], PAGES);
}

/// Requests the dashboard of a crawl until `is_so`. Returns its progress.
fn progress_until(
    dashboard: &str,
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let begun = Instant::now();
    loop {
        let (status, board) = ask(dashboard, "/v1/dashboard", "");
        assert_eq!(status, 200, "{board}");
        let board: serde_json::Value = serde_json::from_str(&board).unwrap();
        match &board["crawl"] {
            crawl if is_so(crawl) => return crawl.clone(),
            crawl => assert!(begun.elapsed() < PATIENCE, "never: {crawl}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_dashboard_says_how_far_its_crawl_is_and_until_when_it_waits() {
    let place = TestDir::new();
    let origin =
        Origin::start([("127.0.75.1".to_owned(), Site::slow(Duration::from_secs(1)))]).unwrap();
    place.write("c.toml", "[tuning]\nblocked_base = \"20m\"\nhost_block_threshold = 3\n");
    let args = ["--concurrency", "1", "--serve=127.0.0.1:0", "--config", "c.toml", "--wait", "30m"];
    let (mut child, address) = crawl_with(&place, &origin, &args, None);
    let results = lines(child.stdout.take().unwrap());
    let dashboard = address.trim_end_matches('/');
    let crawl =
        progress_until(dashboard, |crawl| crawl["done"].as_u64().is_some_and(|done| done > 0));
    let of = |crawl: &serde_json::Value, name: &str| crawl[name].as_u64();
    assert_eq!(of(&crawl, "total"), Some(PAGES), "{crawl}");
    assert_eq!(of(&crawl, "done").unwrap() + of(&crawl, "left").unwrap(), PAGES, "{crawl}");
    assert_eq!(
        (of(&crawl, "paused_links"), &crawl["next_pause_end"]),
        (Some(0), &serde_json::Value::Null)
    );
    // From here on the host blocks, and a pause is all that is left.
    assert!(origin.set_site("127.0.75.1", Site::FORBIDDEN));
    let crawl = progress_until(dashboard, |crawl| of(crawl, "paused_links") == of(crawl, "left"));
    assert!(of(&crawl, "left").unwrap() > 0 && crawl["seconds_left"].is_null(), "{crawl}");
    assert_eq!(of(&crawl, "paused_hosts"), Some(1), "{crawl}");
    let ends = ["next_pause_end", "last_pause_end"].map(|name| crawl[name].as_str().unwrap());
    assert!(ends[0].starts_with("20") && ends[0] <= ends[1], "{crawl}");
    let (_, board) = ask(dashboard, "/v1/dashboard", "");
    let board: serde_json::Value = serde_json::from_str(&board).unwrap();
    let last = board["events"]
        .as_array()
        .and_then(|events| events.last())
        .unwrap_or_else(|| panic!("{board}"));
    assert_eq!(
        (&last["event"], &last["text"]),
        (&"paused".into(), &"127.0.75.1".into()),
        "{board}"
    );
    send_signal(&child, "-INT");
    let printed = results.iter().count() as u64;
    assert!(!child.wait().unwrap().success());
    assert_eq!(of(&crawl, "done"), Some(printed), "{crawl}");
}

#[test]
fn a_crawl_exports_its_progress_while_it_runs() {
    let place = TestDir::new();
    let origin =
        Origin::start([("127.0.75.1".to_owned(), Site::slow(Duration::from_secs(1)))]).unwrap();
    let (mut child, address) = crawl(&place, &origin, &["--concurrency", "1"], "127.0.0.1:0", None);
    let begun = Instant::now();
    // Some pages are done, and others wait.
    let page = loop {
        let (status, page) = ask(&address, "/metrics", "Accept: text/plain\r\n");
        assert_eq!(status, 200, "{page}");
        if sum(&page, "fetchwise_attempts_total") >= 3 {
            break page;
        }
        assert!(begun.elapsed() < PATIENCE, "{page}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let of = |name: &str| value(&page, &format!("fetchwise_crawl_{name}"));
    let (queued, in_progress, left) =
        (of("queue_links").unwrap(), of("links_in_progress"), of("links_left").unwrap());
    assert!((1..PAGES - 2).contains(&queued), "{page}");
    // A link that waits in the middle of its visit has given its place to another one.
    assert!(matches!(in_progress, Some(1 | 2)) && of("hosts") == Some(1), "{page}");
    assert!(left > queued && left < PAGES, "{left} of {PAGES} are left, {queued} wait");
    assert_eq!(ask(&address, "/healthz", "").0, 200);
    let (status, words) = ask(&address, "/v1/stats", "");
    assert!(status == 404 && words.contains("fetchwise serve"), "{words}");
    // A page of another site in the operator's browser is rejected.
    assert_eq!(ask(&address, "/metrics", "Origin: http://evil.example\r\n").0, 403);
    assert!(origin.set_site("127.0.75.1", Site::Static));
    let results = lines(child.stdout.take().unwrap());
    for _ in 0..PAGES {
        results.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_open_address_needs_a_token_and_errors_come_before_the_first_request() {
    let place = TestDir::new();
    let origin =
        Origin::start([("127.0.75.1".to_owned(), Site::slow(Duration::from_millis(50)))]).unwrap();
    let url = origin.url("127.0.75.1", "/never");
    for (listen, words) in [
        ("0.0.0.0:0", "without a token"),
        ("127.0.0.1", "--metrics 127.0.0.1:9117"),
        ("203.0.113.7:9", "without a token"),
    ] {
        let ran = place.run(&[
            "fetch",
            &url,
            "--allow-network",
            "127.0.0.0/8",
            "--no-browser",
            "--metrics",
            listen,
        ]);
        assert!(
            ran.code == 2 && ran.stderr.contains(words),
            "{listen}: {} {}",
            ran.code,
            ran.stderr
        );
    }
    assert_eq!(origin.hits_at("127.0.75.1", "/never"), 0);
    let (mut child, address) = crawl(&place, &origin, &[], "0.0.0.0:0", Some(TOKEN));
    let address = address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(ask(&address, "/metrics", "").0, 401);
    let (status, page) = ask(&address, "/metrics", &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert!(status == 200 && page.contains("fetchwise_crawl_queue_links"), "{page}");
    child.kill().unwrap();
    child.wait().unwrap();
}
