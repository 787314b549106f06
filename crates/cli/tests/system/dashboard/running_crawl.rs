//! The dashboard of a running crawl: an operator opens it and sees the one host in trouble.
//!
//! Invariant: no test asserts a time. The host is in the response to the page's first request, and
//! the poll interval of the page leaves room for a response within five seconds.

use std::process::Child;
use std::time::Instant;

use fetchwise_testsite::origin::{Origin, Site};
use serde_json::{Value, json};

use super::chrome::{Chrome, PATIENCE};
use super::text;
use crate::server::ask_at;
use crate::support::{TestDir, lines, wait_for};

/// A host that delivers, slowly enough for the crawl to last, and one that refuses.
const HOSTS: [&str; 2] = ["127.0.76.1", "127.0.76.2"];
const PAGES: usize = 2_000;
/// The time within which an operator sees the host.
const WITHIN_MS: u64 = 5_000;

/// A crawl with its dashboard.
struct Crawl {
    child: Child,
    address: String,
}

impl Drop for Crawl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Crawl {
    /// Starts a crawl of both hosts, page by page.
    fn start(place: &TestDir, origin: &Origin) -> Self {
        let urls = (0..PAGES).flat_map(|n| HOSTS.map(|host| origin.url(host, &format!("/{n}\n"))));
        let input = place.write("urls.txt", urls.collect::<String>());
        let fetch = [
            "fetch",
            "--json",
            "--allow-network",
            "127.0.0.0/8",
            "--no-browser",
            "--robots",
            "ignore",
        ];
        let more =
            ["--pace", "off", "--concurrency", "4", "--serve=127.0.0.1:0", "--input", &input];
        let mut child = place.spawn(&[&fetch[..], &more].concat());
        // Read its results, so that it never blocks.
        let results = lines(child.stdout.take().unwrap());
        std::thread::spawn(move || results.iter().for_each(drop));
        let said = lines(child.stderr.take().unwrap());
        let line = wait_for(&said, "http://");
        std::thread::spawn(move || said.iter().for_each(drop));
        let address = line.split("http://").nth(1).unwrap().trim_end_matches('/').to_owned();
        Self { child, address }
    }

    fn board(&self) -> Value {
        ask_at(self.address.parse().unwrap(), None, "GET", "/v1/dashboard", b"").unwrap().of(200)
    }

    fn until(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let board = self.board();
            if is_so(&board) {
                return board;
            }
            assert!(begun.elapsed() < PATIENCE, "never: {}", board["attention"]);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Returns how many figures the page has requested.
fn requested(chrome: &mut Chrome) -> usize {
    let requests = chrome.seen("Network.requestWillBeSent");
    requests
        .iter()
        .filter(|one| one["request"]["url"].as_str().unwrap().contains("/v1/dashboard?"))
        .count()
}

#[test]
fn the_one_host_in_trouble_stands_first_when_the_page_of_a_running_crawl_opens() {
    let place = TestDir::new();
    let sites = [Site::slow(std::time::Duration::from_millis(100)), Site::FORBIDDEN];
    let origin = Origin::start(HOSTS.iter().map(|host| (*host).to_owned()).zip(sites)).unwrap();
    let crawl = Crawl::start(&place, &origin);
    let [good, refusing] = HOSTS;
    let board = crawl.until(|board| board["attention"]["items"][0]["host"] == refusing);
    assert_eq!(
        (&board["read_only"], &board["attention"]["total"]),
        (&json!(true), &json!(1)),
        "{board}"
    );
    assert!(
        board["poll_ms"].as_u64().unwrap() < WITHIN_MS,
        "a refresh and its response take longer"
    );
    let mut chrome = Chrome::start(1440, 900);
    let opened = Instant::now();
    chrome.open(&format!("http://{}/", crawl.address));
    chrome.until("document.querySelector('#alerts li')");
    let seen = opened.elapsed();
    assert_eq!(requested(&mut chrome), 1, "the first response has it");
    println!("the host is on the page {} ms after it was opened", seen.as_millis());
    let first = text(&mut chrome, "#alerts li:first-child");
    assert!(first.starts_with(&format!("Paused{refusing} is paused for ")), "{first}");
    assert!(first.contains(": blocked_403, status 403, by direct_access at "), "{first}");
    assert_eq!(text(&mut chrome, "#attention-title"), "Needs attention (1)");
    let bottom = chrome.eval("document.querySelector('#alerts li').getBoundingClientRect().bottom");
    assert!(bottom.as_f64().unwrap() < 900.0, "it is on the first screen: {bottom}");
    // The page begins with the progress. A screen reader hears it once, and not with each response.
    let progress = text(&mut chrome, "#crawl-text");
    assert!(progress.starts_with("Crawl: ") && progress.contains(" of 4,000"), "{progress}");
    assert!(progress.contains(" paused until "), "{progress}");
    let heard = text(&mut chrome, "#crawl [role=status]");
    assert!(heard.starts_with("Crawl: ") && heard.contains(" of 4,000"), "{heard}");
    // The crawl goes on, the page follows, and the host stays.
    let before = crawl.board()["all"]["delivered"].as_u64().unwrap();
    crawl.until(|board| board["all"]["delivered"].as_u64().unwrap() > before);
    chrome
        .until("performance.getEntriesByType('resource').filter(of => of.name.includes('/v1/dashboard?')).length > 1");
    assert!(text(&mut chrome, "#alerts li:first-child").starts_with(&format!("Paused{refusing} ")));
    chrome.until(&format!("document.querySelector('#crawl-text').innerText !== {progress:?}"));
    assert_eq!(text(&mut chrome, "#crawl [role=status]"), heard);
    let delivering =
        crawl.board()["domains"]["rows"].as_array().unwrap().iter().any(|row| row["key"] == good);
    assert!(delivering, "the other host is there");
}
