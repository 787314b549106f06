//! `fetch` against real servers on loopback.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::poll::until_blocking;
use fetchwise_testsite::requirements::required;

use crate::support::{PATIENCE, Ran, TestDir, lines, send_signal, wait_for};

const HOST: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
const THIRD: &str = "127.0.0.3";
/// Loopback allowed, no browser: these tests are about the program, not about fetchers. Requests
/// are counted, so there is no robots.txt, and no pace is needed on this machine.
const PLAIN: [&str; 7] =
    ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore", "--pace", "off"];

fn fetch<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["fetch", "--json"][..], &PLAIN[..], more].concat()
}

#[test]
fn thirty_pages_cost_thirty_requests_are_stored_and_remembered() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let urls: String = (0..30).map(|n| origin.url(HOST, &format!("/articles/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let ran = place.run(&fetch(&[
        "--input",
        &input,
        "--out",
        "pages",
        "--concurrency",
        "1",
        "--ordered",
    ]));
    let lines = ran.json();
    assert_eq!((ran.code, lines.len(), origin.hits(HOST)), (0, 30, 30), "{}", ran.stderr);
    let mut files = HashSet::new();
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(line["url"].as_str().unwrap(), origin.url(HOST, &format!("/articles/{n}")));
        assert_eq!(
            (line["success"].as_bool(), line["status"].as_u64(), line["requests"].as_u64()),
            (Some(true), Some(200), Some(1))
        );
        let file = line["file"].as_str().unwrap();
        let len = std::fs::metadata(place.path(file)).unwrap().len();
        assert!(files.insert(file.to_owned()) && Some(len) == line["bytes"].as_u64(), "{line}");
    }
    assert_eq!(lines[0]["source"].as_str(), Some("probe"));
    assert_eq!(lines[29]["source"].as_str(), Some("learned"));
    // A second process knows everything.
    let again = place.run(&fetch(&[&origin.url(HOST, "/articles/new")])).one();
    assert_eq!(again["source"].as_str(), Some("learned"));
    assert_eq!(place.run(&["export"]).json().len(), 31);
}

#[test]
fn every_url_ends_in_a_classified_outcome() {
    let place = TestDir::new();
    let sites = [
        (HOST, Site::RedirectOut),
        (OTHER, Site::Pdf),
        ("127.0.0.3", Site::GzipBomb),
        ("127.0.0.4", Site::Empty),
    ];
    let origin = Origin::start(sites).unwrap();
    let long = format!("http://e.org/{}", "a".repeat(2 << 20));
    let lines = [
        origin.url(HOST, "/metadata"),
        origin.url(OTHER, "/paper"),
        origin.url("127.0.0.3", "/"),
        origin.url("127.0.0.4", "/"),
        "http://10.1.2.3/".to_owned(),
        "nonsense".to_owned(),
        "ftp://e.org/".to_owned(),
        long[..100_000].to_owned(),
        "http://e.org/\0".to_owned(),
    ];
    let input = place.write("urls.txt", lines.join("\n"));
    let ran = place.run(&fetch(&["--input", &input, "--ordered"]));
    let results = ran.json();
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let got: Vec<_> = results.iter().map(|line| line["error_type"].as_str()).collect();
    let invalid = Some("invalid_url");
    let head = [
        Some("refused_address"),
        None,
        Some("too_large"),
        Some("wrong_tool"),
        Some("refused_address"),
    ];
    assert_eq!(got[..8], [&head[..], &[invalid, invalid, invalid]].concat());
    assert!(
        results[7]["url"].as_str().unwrap().len() < 200,
        "a URL that is none is not repeated at length"
    );
    let recorded = place.run(&["export"]).json();
    assert!(
        recorded.iter().all(|line| line["url"].as_str().unwrap().len() < 200),
        "nothing odd is recorded"
    );
    // An invalid line is an error of the input.
    let input = place.write("long.txt", format!("{long}\n{}\n", origin.url(OTHER, "/x")));
    let ran = place.run(&fetch(&["--input", &input, "--ordered"]));
    let results = ran.json();
    assert_eq!(
        (ran.code, results[0]["line"].as_u64(), results[1]["success"].as_bool()),
        (1, Some(1), Some(true))
    );
}

#[test]
fn a_pace_is_honoured_shown_and_known_to_the_next_run() {
    let place = TestDir::new();
    let robots = Site::Html("User-agent: *\nCrawl-delay: 0.2".to_owned());
    let site =
        Site::Mixed(vec![("/".to_owned(), Site::Static), ("/robots.txt".to_owned(), robots)]);
    let origin = Origin::start([(HOST, site), (OTHER, Site::rate_limited(3600))]).unwrap();
    let urls: String = (0..8).map(|n| origin.url(HOST, &format!("/articles/{n}\n"))).collect();
    let input = place.write("urls.txt", urls + &origin.url(OTHER, "/"));
    let base =
        ["fetch", "--json", "--allow-network", "127.0.0.0/8", "--no-browser", "--input", &input];
    let ran = place.run(&base);
    let delivered = ran.json().iter().filter(|line| line["success"] == true).count();
    assert_eq!((ran.code, delivered), (4, 8), "{}{}", ran.stdout, ran.stderr);
    let known = place.run(&["hosts", "--json"]).json();
    assert_eq!(
        known.iter().map(|line| line["host"].as_str().unwrap()).collect::<Vec<_>>(),
        [HOST, OTHER]
    );
    assert!(
        known[0]["pace"]["rate"].as_f64().unwrap() > 0.0 && known[0]["paused_until"].is_null(),
        "{}",
        known[0]
    );
    assert!(
        known[1]["paused_until"].is_string() && known[1]["pace"]["hold_until"].is_string(),
        "{}",
        known[1]
    );
    assert_eq!(known[1]["pace"]["lowered_reason"].as_str(), Some("429"));
    let paused = place.run(&["hosts", "--paused"]);
    assert!(paused.stdout.contains(OTHER) && !paused.stdout.contains(HOST), "{}", paused.stdout);
    let none = place.run(&["hosts", "--paused", HOST]);
    assert_eq!(none.stderr.trim(), "none of these hosts is paused", "its pace is known");
    let explained = place.run(&["explain", "--json", &origin.url(HOST, "/new")]).one();
    assert_eq!(explained["pace"]["rate"], known[0]["pace"]["rate"]);
    let words = place.run(&["explain", "--full", &origin.url(HOST, "/new")]).stdout;
    assert!(words.contains("requests/s"), "{words}");
    // A run does not wait for a host that is held for an hour.
    let again = place.run(&[
        "fetch",
        "--json",
        "--allow-network",
        "127.0.0.0/8",
        "--no-browser",
        &origin.url(OTHER, "/b"),
    ]);
    assert_eq!(again.one()["error_type"].as_str(), Some("paused"), "{}", again.stderr);
    let both = place.run(&["fetch", "--rate", "2", "--delay", "5s", "http://127.0.0.1:9/"]);
    assert_eq!(both.code, 2, "{}", both.stderr);
}

#[test]
fn hosts_names_the_pages_that_the_crawlers_network_refused() {
    let place = TestDir::new();
    let page = "<!doctype html><title>Site blocked</title><h1>This website is blocked</h1><p>By order of the court, your \
        internet service provider has blocked access to this website.</p>";
    let origin =
        Origin::start([(HOST, Site::Html(page.to_owned())), (OTHER, Site::Static)]).unwrap();
    let urls: Vec<String> =
        (0..4).map(|n| origin.url(HOST, &format!("/articles/{n}")).to_string()).collect();
    let base = ["fetch", "--json", "--allow-network", "127.0.0.0/8", "--no-browser"];
    let ran =
        place.run(&[&base[..], &urls.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    let results = ran.json();
    assert!(
        results.iter().all(|line| line["error_type"] == "network_block"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    place.run(&[&base[..], &[origin.url(OTHER, "/").as_str()]].concat());
    let shown = place.run(&["hosts"]);
    assert!(
        shown.stderr.contains("4 pages were refused by this crawler's network"),
        "{}",
        shown.stderr
    );
    assert!(
        shown.stderr.contains(HOST) && shown.stderr.contains("hint: log in to the network"),
        "{}",
        shown.stderr
    );
    let lines = place.run(&["hosts", "--json"]).json();
    let pages = |host: &str| {
        lines.iter().find(|line| line["host"] == host).map(|line| line["network_blocks"].as_u64())
    };
    assert_eq!((pages(HOST), pages(OTHER)), (Some(Some(4)), Some(Some(0))), "{lines:?}");
    let paused = place.run(&["hosts", "--paused"]);
    assert!(
        !paused.stdout.contains(HOST),
        "the links are paused, the host is not: {}",
        paused.stdout
    );
}

#[test]
fn a_page_that_three_sites_show_is_a_default_page_and_what_failed_is_kept() {
    let place = TestDir::new();
    let parked = "<!doctype html><title>Soon</title><h1>This name is parked</h1><p>The owner of this name has not put a page \
        here yet. Come back another day, or ask the registrar who keeps the name for its owner.</p><p>Names are kept for \
        a year at a time, and their owners may renew them at any time before that year has passed.</p>";
    let hosts: Vec<String> = (2..6).map(|n| format!("127.0.0.{n}")).collect();
    let challenge =
        "<title>Just a moment...</title><script>window._cf_chl_opt={cType:'managed'}</script>";
    let mut sites: Vec<(&str, Site)> =
        hosts.iter().map(|host| (&**host, Site::Html(parked.to_owned()))).collect();
    sites.push((HOST, Site::Html(challenge.to_owned())));
    let origin = Origin::start(sites).unwrap();
    let urls: Vec<String> = hosts.iter().map(|host| origin.url(host, "/a").to_string()).collect();
    let (refusal_url, failed) = (
        origin.url(HOST, "/challenge").to_string(),
        place.path("failed").to_string_lossy().into_owned(),
    );
    let mut args = vec![
        "fetch",
        "--json",
        "--allow-network",
        "127.0.0.0/8",
        "--no-browser",
        "--concurrency",
        "1",
    ];
    args.extend(["--ordered", "--keep-failed", &failed]);
    args.extend(urls.iter().map(String::as_str).chain([&*refusal_url]));
    let results = place.run(&args).json();
    let marked: Vec<bool> = results.iter().map(|line| line["default_page"] == true).collect();
    assert_eq!(marked, [false, false, true, true, false], "{results:?}");
    let lines = place.run(&["hosts", "--json"]).json();
    let pages = |host: &str| {
        lines
            .iter()
            .find(|line| line["host"] == host)
            .and_then(|line| line["default_pages"].as_u64())
    };
    assert_eq!((pages(&hosts[3]), pages(&hosts[0])), (Some(1), Some(0)), "{lines:?}");

    let failed = &results[4];
    assert_eq!(failed["error_type"], "blocked_captcha", "{failed}");
    assert!(
        failed["verdict"]["rule"].is_string() && failed["verdict"]["visible_chars"] == 0,
        "{failed}"
    );
    assert_eq!(std::fs::read_to_string(failed["file"].as_str().unwrap()).unwrap(), challenge);
    let index = place.path("failed").join(HOST).join("index.jsonl").to_string_lossy().into_owned();
    let read = place.run(&["classify", "--batch", &index, "--json"]).json();
    assert_eq!((read.len(), &read[0]["is_blocked"]), (1, &true.into()), "{read:?}");
    let exported = place.run(&["export"]).json();
    let of = exported.iter().find(|line| line["error_type"] == "blocked_captcha").unwrap();
    assert_eq!(of["response_headers"][":verdict"], failed["verdict"]["rule"], "{of}");
}

#[test]
fn a_limited_crawl_delay_is_reported_once_per_host_and_shown_later() {
    let place = TestDir::new();
    let robots = Site::Html("User-agent: *\nCrawl-delay: 300".to_owned());
    let site =
        Site::Mixed(vec![("/".to_owned(), Site::Static), ("/robots.txt".to_owned(), robots)]);
    let origin = Origin::start([(HOST, site)]).unwrap();
    let config = place.write("delay.toml", "[pace]\nmax_crawl_delay = \"1s\"\n");
    let urls: String = (0..3).map(|n| origin.url(HOST, &format!("/articles/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let base = [
        "--config",
        &config,
        "fetch",
        "--json",
        "--allow-network",
        "127.0.0.0/8",
        "--no-browser",
        "--input",
        &input,
    ];
    let ran = place.run(&base);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let said = format!("{HOST} requests a Crawl-delay of 5 min, limited to 1 s");
    assert_eq!(ran.stderr.matches(&said).count(), 1, "{}", ran.stderr);
    let known = place.run(&["--config", &config, "hosts", "--json"]).one();
    assert_eq!(known["pace"]["crawl_delay_asked_s"].as_f64(), Some(300.0), "{known}");
    assert_eq!(known["pace"]["crawl_delay_cut_s"].as_f64(), Some(1.0), "{known}");
    let words =
        place.run(&["--config", &config, "explain", "--full", &origin.url(HOST, "/new")]).stdout;
    assert!(words.contains("its Crawl-delay is 5 min, of which 1 s are kept"), "{words}");
}

#[test]
fn a_list_obeys_robots_txt_and_an_argument_does_not() {
    let place = TestDir::new();
    let robots = Site::Html("User-agent: *\nDisallow: /private".to_owned());
    let site =
        Site::Mixed(vec![("/".to_owned(), Site::Static), ("/robots.txt".to_owned(), robots)]);
    let origin = Origin::start([(HOST, site)]).unwrap();
    let (private, open) = (origin.url(HOST, "/private"), origin.url(HOST, "/open"));
    let base = ["fetch", "--json", "--allow-network", "127.0.0.0/8", "--no-browser"];
    let named = place.run(&[&base[..], &[&private]].concat()).one();
    assert_eq!((named["success"].as_bool(), origin.hits_at(HOST, "/robots.txt")), (Some(true), 0));
    let input = place.write("urls.txt", format!("{private}\n{open}\n"));
    let ran = place.run(&[&base[..], &["--input", &input, "--ordered"]].concat());
    let listed = ran.json();
    assert_eq!((ran.code, listed[1]["success"].as_bool()), (4, Some(true)), "{}", ran.stdout);
    assert_eq!(
        (listed[0]["error_type"].as_str(), listed[0]["requests"].as_u64()),
        (Some("disallowed"), Some(0))
    );
    assert!(listed[0]["error"].as_str().unwrap().contains("Disallow: /private"), "{}", ran.stdout);
    assert_eq!(origin.hits_at(HOST, "/private"), 1);
    let stdin = place.run_with(&[&base[..], &["-"]].concat(), format!("{private}\n")).one();
    assert_eq!(stdin["error_type"].as_str(), Some("disallowed"));
    let config = place.write("c.toml", "[robots]\nuse = 'delay'");
    let ignoring = place.run(&[&base[..], &["--config", &config, "--input", &input]].concat());
    assert!(ignoring.json().iter().all(|line| line["success"] == true), "{}", ignoring.stdout);
    let wrong = place.run(&[&base[..], &["--robots", "obay", &open]].concat());
    assert!(wrong.code == 2 && wrong.stderr.contains("did you mean \"obey\"?"), "{}", wrong.stderr);
}

/// Two fast pages and, between them, one that takes longer than this file's time limit.
fn one_that_hangs(place: &TestDir, more: &[&str]) -> (Origin, Child, Receiver<String>) {
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::slow(PATIENCE * 2))]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(OTHER, "/hangs"), origin.url(HOST, "/b")];
    let input = place.write("urls.txt", urls.join("\n"));
    let mut child =
        place.spawn(&[&fetch(&["--input", &input, "--timeout", "600s"])[..], more].concat());
    let results = lines(child.stdout.take().unwrap());
    (origin, child, results)
}

fn line_number(result: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(result).unwrap()["line"].as_u64()
}

#[test]
fn a_hanging_url_delays_no_other() {
    let place = TestDir::new();
    let (_origin, mut child, results) = one_that_hangs(&place, &[]);
    let mut seen: Vec<_> =
        (0..2).map(|_| line_number(&results.recv_timeout(PATIENCE).unwrap())).collect();
    seen.sort();
    assert_eq!(seen, [Some(1), Some(3)]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn ordered_results_wait_for_earlier_ones() {
    let place = TestDir::new();
    let (origin, mut child, results) = one_that_hangs(&place, &["--ordered"]);
    assert_eq!(line_number(&results.recv_timeout(PATIENCE).unwrap()), Some(1));
    let third = format!("{}\"", origin.url(HOST, "/b"));
    until_blocking("the third result is kept", || {
        let file = held_results(&place.data())
            .and_then(|path| std::fs::read(path).ok())
            .unwrap_or_default();
        memchr::memmem::find(&file, third.as_bytes()).is_some()
    });
    assert!(results.try_recv().is_err(), "the third result waits for the second");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A host that is asked every ten minutes, with more links than a run once read ahead, and after
/// them those of a host that may be asked at any rate.
fn a_long_list(place: &TestDir) -> (Origin, String, Vec<String>) {
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::Static)]).unwrap();
    let rates = format!(
        "[pace]\nmode = 'fixed'\ninitial_rate = 1000.0\nmax_rate = 1000.0\n[pace.host.'{OTHER}']\nrate = 0.002"
    );
    let slow = (0..10_500).map(|n| origin.url(OTHER, &format!("/{n}")));
    let urls = slow.chain((0..20).map(|n| origin.url(HOST, &format!("/{n}")))).collect();
    (origin, place.write("c.toml", rates), urls)
}

/// Starts a run that keeps the pace of the config.
fn begin_paced(place: &TestDir, config: &str, more: &[&str]) -> (Child, Receiver<String>) {
    let loopback = ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore"];
    let args = [&["fetch", "--json", "--config", config][..], &loopback, more].concat();
    let mut child =
        place.command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let results = lines(child.stdout.take().unwrap());
    (child, results)
}

#[test]
fn a_host_at_the_end_of_a_long_list_does_not_wait_for_the_slow_one_before_it() {
    let place = TestDir::new();
    let (_origin, config, urls) = a_long_list(&place);
    let input = place.write("urls.txt", urls.join("\n"));
    for from in ["file", "stdin"] {
        let more = if from == "file" { ["--input", &*input] } else { ["--restart", "-"] };
        let (mut child, results) = begin_paced(&place, &config, &more);
        let (mut stdin, text) = (child.stdin.take().unwrap(), urls.join("\n") + "\n");
        let writing = std::thread::spawn(move || {
            let _ = stdin.write_all(if from == "stdin" { text.as_bytes() } else { b"" });
            // It stays open: more links may come.
            stdin
        });
        let mut seen = Vec::new();
        while seen.len() < 20 {
            let line = line_number(&results.recv_timeout(PATIENCE).unwrap()).unwrap();
            seen.extend((line > 10_500).then_some(line));
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(10_501..=10_520), "{from}");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(writing.join().unwrap());
    }
}

#[test]
fn a_link_that_waits_to_try_again_takes_no_place() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::SERVER_ERROR)]).unwrap();
    // The second try of the failing page has to wait for fifty seconds, the other page for nothing.
    let rates =
        format!("[pace]\nmode = 'fixed'\ninitial_rate = 100.0\n[pace.host.'{OTHER}']\nrate = 0.02");
    let config = place.write("c.toml", rates);
    let (fails, good) = (origin.url(OTHER, "/a"), origin.url(HOST, "/b"));
    let (mut child, results) = begin_paced(&place, &config, &[&fails, &good, "--concurrency", "1"]);
    let first: serde_json::Value =
        serde_json::from_str(&results.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert_eq!((first["url"].as_str(), origin.hits(OTHER)), (Some(&*good), 1), "{first}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn ordered_results_that_wait_do_not_stop_the_run() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::slow(PATIENCE * 2))]).unwrap();
    let mut urls = vec![origin.url(OTHER, "/hangs")];
    urls.extend((0..10_500).map(|n| format!("{{ {n}")));
    urls.push(origin.url(HOST, "/last"));
    let input = place.write("urls.txt", urls.join("\n"));
    let mut child = place.spawn(&fetch(&["--input", &input, "--timeout", "600s", "--ordered"]));
    let (results, said) =
        (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let begun = std::time::Instant::now();
    while origin.hits(HOST) == 0 {
        assert!(begun.elapsed() < PATIENCE, "the last link waits for the first one");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(results.try_recv().is_err(), "all wait for the first link");
    send_signal(&child, "-INT");
    wait_for(&said, "Ctrl-C again");
    send_signal(&child, "-INT");
    // What is finished is printed in order, although the first link is not.
    let mut shown = 0;
    for (result, line) in results.iter().zip(2..) {
        assert_eq!(line_number(&result), Some(line));
        shown += 1;
    }
    assert!(shown >= 10_500, "{shown}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// Returns the file of the results that wait.
fn held_results(data: &Path) -> Option<PathBuf> {
    let mut names =
        std::fs::read_dir(data).into_iter().flatten().map(|entry| entry.unwrap().path());
    names.find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("held-"))
    })
}

/// Kills a run of `--ordered` whose first link hangs and whose other links are finished: 20 pages,
/// an invalid line, a missing page. Afterwards the first link does not hang any more. Returns the
/// input.
fn killed_while_results_wait(place: &TestDir, origin: &Origin) -> String {
    assert!(origin.set_site(OTHER, Site::slow(PATIENCE * 2)));
    let mut urls = vec![origin.url(OTHER, "/hangs")];
    urls.extend((0..20).map(|n| origin.url(HOST, &format!("/page-{n}-"))));
    urls.extend(["{ no link".to_owned(), origin.url(THIRD, "/missing")]);
    let input = place.write("urls.txt", urls.join("\n"));
    let args = ["--input", &input, "--out", "pages", "--timeout", "600s", "--ordered"];
    let child = place.spawn(&fetch(&args));
    let begun = std::time::Instant::now();
    let is_saved = || {
        let file = held_results(&place.data())
            .and_then(|path| std::fs::read(path).ok())
            .unwrap_or_default();
        let has = |part: &str| memchr::memmem::find(&file, part.as_bytes()).is_some();
        (0..20).all(|n| has(&format!("/page-{n}-"))) && has("/missing")
    };
    while !is_saved() {
        assert!(begun.elapsed() < PATIENCE, "the results are not saved");
        std::thread::sleep(Duration::from_millis(20));
    }
    send_signal(&child, "-KILL");
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.stdout, "", "all wait for the first link");
    assert!(origin.set_site(OTHER, Site::Static));
    input
}

#[test]
fn a_killed_run_prints_the_results_that_waited_without_fetching_them_again() {
    let origin = Origin::start([HOST, OTHER, THIRD].map(|host| (host, Site::Static))).unwrap();
    assert!(origin.set_site(THIRD, Site::NOT_FOUND));
    for order in [Some("--ordered"), None] {
        let place = TestDir::new();
        let input = killed_while_results_wait(&place, &origin);
        let only = place.run(&fetch(&["--input", &input, "--out", "pages", "--only", "failed"]));
        assert!(only.code == 1 && only.stderr.contains("interrupted"), "{}", only.stderr);
        let before = [HOST, OTHER, THIRD].map(|host| origin.hits(host));
        let args = [&["--input", &input, "--out", "pages"][..], order.as_slice()].concat();
        let ran = place.run(&fetch(&args));
        let hits = [HOST, OTHER, THIRD].map(|host| origin.hits(host));
        assert_eq!(hits, [before[0], before[1] + 1, before[2]], "{}", ran.stderr);
        let results = ran.json();
        let mut lines: Vec<_> =
            results.iter().map(|result| result["line"].as_u64().unwrap()).collect();
        if order.is_none() {
            lines.sort_unstable();
        }
        assert!(lines.into_iter().eq(1..=23), "{}", ran.stdout);
        for result in results {
            let want = match result["line"].as_u64() {
                Some(22) => "invalid_line",
                Some(23) => "not_found",
                _ => {
                    let page = place.path(result["file"].as_str().unwrap());
                    assert!(page.exists() && result["requests"] == 1, "{result}");
                    continue;
                }
            };
            assert_eq!(result["error_type"], want);
        }
        assert_eq!(
            (ran.code, runs_left(&place.data()), held_results(&place.data())),
            (1, 0, None),
            "a bad line"
        );
        let again = place.run(&fetch(&args));
        assert_eq!(again.json().len(), 23);
        assert_eq!(origin.hits(HOST), before[0] + 20, "a run that was completed fetches again");
    }
}

#[test]
fn damaged_results_that_waited_are_reported_and_fetched_again() {
    let origin = Origin::start([HOST, OTHER, THIRD].map(|host| (host, Site::Static))).unwrap();
    let flip = |file: &mut Vec<u8>| {
        let at = memchr::memmem::find(file, b"/page-7-").unwrap();
        file[at + 6] = b'8';
    };
    let of_another = |file: &mut Vec<u8>| {
        let place = TestDir::new();
        killed_while_results_wait(&place, &origin);
        *file = std::fs::read(held_results(&place.data()).unwrap()).unwrap();
    };
    for (damage, why) in
        [(&flip as &dyn Fn(&mut Vec<u8>), "it is damaged"), (&of_another, "another run wrote it")]
    {
        let place = TestDir::new();
        let input = killed_while_results_wait(&place, &origin);
        let path = held_results(&place.data()).unwrap();
        let mut file = std::fs::read(&path).unwrap();
        damage(&mut file);
        std::fs::write(&path, file).unwrap();
        let before = origin.hits(HOST);
        let ran = place.run(&fetch(&["--input", &input, "--out", "pages", "--ordered"]));
        assert!(
            ran.stderr.contains("ignoring the unprinted results") && ran.stderr.contains(why),
            "{}",
            ran.stderr
        );
        let lines = ran.json().into_iter().map(|result| result["line"].as_u64().unwrap());
        assert!(lines.eq(1..=23) && origin.hits(HOST) == before + 20, "{}", ran.stdout);
    }
}

#[test]
fn restart_discards_the_results_that_waited() {
    let origin = Origin::start([HOST, OTHER, THIRD].map(|host| (host, Site::Static))).unwrap();
    let place = TestDir::new();
    let input = killed_while_results_wait(&place, &origin);
    let before = origin.hits(HOST);
    let ran = place.run(&fetch(&["--input", &input, "--out", "pages", "--ordered", "--restart"]));
    assert!(ran.json().len() == 23 && origin.hits(HOST) == before + 20, "{}", ran.stdout);
}

#[test]
fn arguments_have_a_position_and_lines_a_line() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(HOST, "/b")];
    let input = place.write("urls.txt", format!("\n{}", origin.url(HOST, "/c")));
    let ran = place.run(&fetch(&[&urls[0], &urls[1], "--input", &input, "--ordered"]));
    let places: Vec<_> =
        ran.json().iter().map(|r| (r["position"].as_u64(), r["line"].as_u64())).collect();
    assert_eq!(places, [(Some(1), None), (Some(2), None), (None, Some(2))]);
}

#[cfg(target_os = "linux")]
#[test]
fn concurrency_is_limited_by_the_open_files_limit() {
    let place = TestDir::new();
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let script =
        format!("ulimit -n 256; exec {program} fetch --concurrency 5000 http://127.0.0.1:9/");
    let ran = Ran::from(
        Command::new("sh")
            .args(["-c", &script])
            .env("FETCHWISE_DATA_DIR", place.data())
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("instead of 5000") && ran.stderr.contains("256 files"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_paused_link_says_for_how_long() {
    let place = TestDir::new();
    let origin =
        Origin::start([(HOST, Site::RateLimited { retry_after: "3600".to_owned(), free: 0 })])
            .unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(HOST, "/a")];
    place.run(&fetch(&[&urls[0]]));
    let paused = place.run(&[&["fetch", "-v", &urls[1], "http://10.0.0.1/"][..], &PLAIN].concat());
    assert!(paused.stdout.contains("; paused for 59 min, until 20"), "{}", paused.stdout);
    let selected = place.run(&["select", &urls[1]]);
    assert!(selected.stdout.contains("paused for 59 min, until 20"), "{}", selected.stdout);
}

#[test]
fn a_pause_is_explained_with_what_it_covers_its_cause_and_its_number() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::FORBIDDEN), (OTHER, Site::FORBIDDEN)]).unwrap();
    place.write("c.toml", "[tuning]\nblocked_base = \"20m\"\nhost_block_threshold = 3\n");
    let config = ["--config", "c.toml"];
    let explain = |url: &str, json: bool| {
        let json = if json { &["--json"][..] } else { &[] };
        place.run(&[&["explain", url, "--no-browser"], &config[..], json].concat())
    };
    // One blocked link pauses itself; a fragment makes it no other link.
    let link = origin.url(HOST, "/a");
    place.run(&fetch(&[&[&*link], &config[..]].concat()));
    let pause = &explain(&format!("{link}#top"), true).one()["pause"];
    assert_eq!((&pause["scope"], &pause["name"]), (&"link".into(), &link.into()), "{pause}");
    assert_eq!(
        (&pause["cause"]["error_type"], &pause["cause"]["http_status"]),
        (&"blocked_403".into(), &403.into())
    );
    let text = explain(&origin.url(HOST, "/a"), false).stdout;
    assert!(
        text.contains("1. ")
            && text
                .contains("this link is paused: blocked_403, status 403, by direct_access at 20")
    );
    // The other links of its host are free.
    assert_eq!(explain(&origin.url(HOST, "/b"), true).one().get("pause"), None);
    // Three blocked links pause their host.
    let urls: Vec<String> = (0..3).map(|n| origin.url(OTHER, &format!("/{n}"))).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    place.run(&fetch(&[&urls[..], &config[..], &["--concurrency", "1"]].concat()));
    let fresh = origin.url(OTHER, "/fresh");
    let explained = explain(&fresh, true).one();
    let pause = &explained["pause"];
    assert_eq!(
        (&pause["scope"], &pause["name"], &pause["times"]),
        (&"host".into(), &OTHER.into(), &1.into())
    );
    assert_eq!(
        (&pause["until"], &pause["cause"]["fetcher"]),
        (&explained["paused_until"], &"direct_access".into())
    );
    let text = explain(&fresh, false).stdout;
    let want =
        format!("the host {OTHER} is paused: blocked_403, status 403, by direct_access at 20");
    assert!(text.contains("its host is paused for ") && text.contains(&want), "{text}");
}

#[test]
fn pauses_outlive_the_process() {
    let place = TestDir::new();
    let origin =
        Origin::start([(HOST, Site::RateLimited { retry_after: "3600".to_owned(), free: 0 })])
            .unwrap();
    let url = origin.url(HOST, "/");
    let first = place.run(&fetch(&[&url])).one();
    assert_eq!(
        (first["error_type"].as_str(), first["is_banned"].as_bool()),
        (Some("rate_limited"), Some(true))
    );
    let until = first["paused_until"].as_str().unwrap().to_owned();
    let hits = origin.hits(HOST);
    let second = place.run(&fetch(&[&url]));
    let line = second.one();
    assert_eq!(
        (second.code, line["error_type"].as_str(), line["source"].as_str()),
        (4, Some("paused"), Some("paused"))
    );
    assert_eq!((line["paused_until"].as_str(), origin.hits(HOST)), (Some(until.as_str()), hits));
    let line = place.run(&["select", "--json", &url]).one();
    assert_eq!(
        (line["decision"].as_str(), line["paused_until"].as_str()),
        (Some("paused"), Some(until.as_str()))
    );
    let line = place.run(&["select", "--json", &url, "--now", "2126-01-01T00:00:00Z"]).one();
    assert_ne!(line["decision"].as_str(), Some("paused"));
}

/// A server that blocks its first three pages and then delivers, and one that always delivers.
fn one_that_blocks_at_first(place: &TestDir, pause: &str) -> (Origin, String) {
    let (first, then) = (Box::new(Site::FORBIDDEN), Box::new(Site::Static));
    let blocks = Site::Drifting { after: 3, first, then };
    let origin = Origin::start([(HOST, blocks), (OTHER, Site::Static)]).unwrap();
    let mut urls: Vec<String> = (0..8).map(|n| origin.url(HOST, &format!("/{n}"))).collect();
    urls.push(origin.url(OTHER, "/a"));
    place.write(
        "c.toml",
        format!("[tuning]\nblocked_base = \"{pause}\"\nhost_block_threshold = 3\n"),
    );
    (origin, place.write("urls.txt", urls.join("\n")))
}

#[test]
fn a_run_comes_back_to_paused_links_before_it_ends() {
    let place = TestDir::new();
    let (_origin, input) = one_that_blocks_at_first(&place, "2s");
    let ran = place.run(&fetch(&["--input", &input, "--config", "c.toml", "--concurrency", "1"]));
    let lines = ran.json();
    let count = |error: Option<&str>| {
        lines.iter().filter(|line| line["error_type"].as_str() == error).count()
    };
    assert_eq!((lines.len(), count(Some("paused"))), (9, 0), "{}{}", ran.stdout, ran.stderr);
    assert!(count(None) >= 5 && ran.code == 4, "{}", ran.stdout);
    // The host is paused more than once, and the run says so once: with times, which stay right.
    let waits: Vec<&str> =
        ran.stderr.lines().filter(|line| line.contains("waiting for ")).collect();
    assert_eq!(waits.len(), 1, "{}", ran.stderr);
    let is_told =
        waits[0].contains(" of 1 host") && waits[0].contains("Z (`--wait 0` ends at once)");
    assert!(is_told && waits[0].contains(" paused URL"), "{}", ran.stderr);
}

#[test]
fn what_a_run_leaves_is_named_listed_and_fetched_with_only() {
    let place = TestDir::new();
    let (origin, input) = one_that_blocks_at_first(&place, "20m");
    let base = ["--input", &input, "--config", "c.toml", "--concurrency", "1"];
    // Without a limit on the wait the run would end in 20 minutes; the default gives up after 15.
    let ran = place.run(&fetch(&base));
    let paused =
        |ran: &Ran| ran.json().iter().filter(|line| line["error_type"] == "paused").count();
    let left = paused(&ran);
    assert!(left >= 1 && ran.code == 4, "{}{}", ran.stdout, ran.stderr);
    // Twenty minutes, less the milliseconds since.
    let is_told =
        ["paused for 19 min", "paused for 20 min"].iter().any(|told| ran.stderr.contains(told));
    assert!(is_told && ran.stderr.contains("--only paused"), "{}", ran.stderr);
    assert!(ran.stderr.contains(HOST), "{}", ran.stderr);
    let listed = place.run(&["links", "--paused", "--json", "--config", "c.toml"]).json();
    let named: HashSet<&str> = listed.iter().map(|line| line["link"].as_str().unwrap()).collect();
    let results = ran.json();
    for line in results.iter().filter(|line| line["error_type"] == "paused") {
        assert!(named.contains(line["url"].as_str().unwrap()), "{line} {named:?}");
    }
    let hits = origin.hits(OTHER);
    let only = place.run(&fetch(&[&base[..], &["--only", "paused", "--wait", "0"]].concat()));
    assert_eq!(
        (paused(&only), only.json().len(), origin.hits(OTHER)),
        (left, left, hits),
        "{}",
        only.stdout
    );
    place.run(&["unpause", HOST, "--config", "c.toml"]);
    let only = place.run(&fetch(&[&base[..], &["--only", "paused"]].concat()));
    assert_eq!(
        (only.code, only.json().len(), paused(&only)),
        (0, left, 0),
        "{}{}",
        only.stdout,
        only.stderr
    );
    let none = place.run(&fetch(&[&base[..], &["--only", "paused"]].concat()));
    assert_eq!((none.code, none.json().len()), (0, 0), "{}", none.stderr);
    let listed = place.run(&["links", "--paused", "--json", "--config", "c.toml"]).json();
    assert!(listed.iter().all(|line| !line["link"].as_str().unwrap().contains("/7")), "{listed:?}");
}

#[test]
fn a_results_file_says_what_to_fetch_again() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::NOT_FOUND)]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(OTHER, "/b"), "http://10.0.0.1/".to_owned()];
    let input = place.write("urls.txt", urls.join("\n"));
    let first = place.run(&fetch(&["--input", &input]));
    let results = place.write("results.jsonl", &first.stdout);
    let left = |more: &[&str]| {
        let ran = place.run(&fetch(&[&["--retry", &results][..], more].concat()));
        ran.json()
            .iter()
            .map(|line| (line["line"].as_u64().unwrap(), line["url"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&[]), [(3, urls[2].clone())]);
    assert_eq!(left(&["--only", "missing"]), [(2, urls[1].clone())]);
    let wrong = place.run(&fetch(&["--retry", &input]));
    assert!(
        wrong.code == 2 && wrong.stderr.contains("line 1") && wrong.stderr.contains("--json"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn the_exit_code_says_whether_every_url_was_delivered() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::NOT_FOUND)]).unwrap();
    let (good, missing) = (origin.url(HOST, "/a"), origin.url(OTHER, "/b"));
    let bad = "http://10.0.0.1/";
    let code = |args: &[&str]| place.run(&fetch(args)).code;
    assert_eq!([code(&[&good]), code(&[&missing]), code(&[bad])], [0, 0, 4]);
    assert_eq!([code(&[&good, bad]), code(&[&good, bad, "--fail-on", "all"])], [4, 0]);
    assert_eq!([code(&[bad, "--fail-on", "all"]), code(&[bad, "--fail-on", "none"])], [4, 0]);
    assert!(place.run(&["fetch", "--help"]).stdout.contains("Exit codes"));
}

#[test]
fn one_url_without_an_output_goes_to_stdout() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Html("<p>one page</p>".repeat(99)))]).unwrap();
    let (a, b) = (origin.url(HOST, "/a"), origin.url(HOST, "/b"));
    let run = |args: &[&str]| place.run(&[&["fetch"], &PLAIN[..], args].concat());
    let page = "<p>one page</p>".repeat(99);
    let one = run(&[&a]);
    assert_eq!((one.code, &one.stdout), (0, &page), "{}", one.stderr);
    assert!(one.stderr.contains("ok  ") && !one.stderr.contains("not kept"), "{}", one.stderr);
    let first = run(&["--out", "-", &a, &b]);
    assert_eq!((first.code, &first.stdout), (0, &page), "{}", first.stderr);
    assert!(!place.path("-").exists() && first.stderr.contains("2 delivered"), "{}", first.stderr);
    assert_eq!(run(&["--out", "-", "--json", &a]).code, 2);
    let input = place.write("urls.txt", format!("{a}\n{b}\n{a}\n"));
    let hits = origin.hits(HOST);
    let list = run(&["--input", &input]);
    assert_eq!(list.stderr.matches("not kept").count(), 1, "{}", list.stderr);
    assert_eq!(
        (list.stdout.matches("ok  ").count(), origin.hits(HOST) - hits),
        (2, 2),
        "{}",
        list.stdout
    );
    assert!(list.stderr.contains("1 duplicate"), "{}", list.stderr);
    assert!(!run(&["--input", &input, "--out", "pages"]).stderr.contains("not kept"));
}

#[test]
fn a_refusal_names_the_way_out() {
    let place = TestDir::new();
    let hinted = |args: &[&str], words: &[&str]| {
        let ran = place.run(&[&["fetch", "--no-browser"], args].concat());
        assert!(
            words.iter().all(|word| ran.stderr.contains(word)),
            "{args:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        ran
    };
    hinted(&["http://127.0.0.1:9/"], &["--allow-network", "--allow-private-network"]);
    hinted(
        &["http://10.0.0.1/", "http://192.168.0.1/"],
        &["--allow-network", "--allow-private-network"],
    );
    hinted(&["example.test/a"], &["did you mean https://example.test/a"]);
    assert_eq!(hinted(&[], &["missing URL", "--input"]).code, 2);
    let selected = place.run(&["select", "example.test/a"]);
    assert!(
        selected.stderr.contains("did you mean https://example.test/a"),
        "{}{}",
        selected.stdout,
        selected.stderr
    );
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let url = origin.url(HOST, "/").replace("http:", "https:");
    let tls = place.run(&[&["fetch"], &PLAIN[..], &[&url]].concat());
    assert!(tls.stderr.contains("no TLS") && tls.stderr.contains("http://"), "{}", tls.stderr);
    // An end without a request for the page says why: here robots.txt gets no response.
    let input = place.write("urls.txt", "http://127.0.0.99:9/a");
    let dead =
        place.run(&["fetch", "--input", &input, "--allow-network", "127.0.0.0/8", "--no-browser"]);
    assert!(
        dead.stdout.contains("network_error") && dead.stdout.contains("robots.txt"),
        "{}",
        dead.stdout
    );
}

#[test]
fn a_line_may_have_its_own_id_fetcher_and_mode() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let routes = place.write("routes.csv", format!("{HOST},direct_access\n"));
    let url = origin.url(HOST, "/a");
    let text = format!(
        "# a comment\n\n{}\n{}\nnot: json {{\n{{\"ulr\": 1}}\n",
        serde_json::json!({"url": url, "id": "seven", "prefer": "direct_access"}),
        serde_json::json!({"url": url, "learning": false}),
    );
    let ran = place.run_with(&fetch(&["-", "--router", &routes, "--ordered"]), text);
    let lines = ran.json();
    assert_eq!((ran.code, lines.len()), (1, 4), "{}", ran.stdout);
    let numbers: Vec<_> = lines.iter().map(|line| line["line"].as_u64()).collect();
    assert_eq!(numbers, [Some(3), Some(4), Some(5), Some(6)]);
    let fields =
        |line: &serde_json::Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(
        lines.iter().all(|line| fields(line) == fields(&lines[0])),
        "what is absent is null: {}",
        ran.stdout
    );
    assert!(
        lines[1]["id"].is_null() && lines[2]["confidence"].is_null() && lines[3]["url"].is_null()
    );
    assert_eq!(
        (lines[0]["id"].as_str(), lines[0]["source"].as_str()),
        (Some("seven"), Some("hinted"))
    );
    assert_eq!(lines[1]["source"].as_str(), Some("hard_coded"));
    assert_eq!(
        (lines[2]["error_type"].as_str(), lines[3]["error_type"].as_str()),
        (Some("invalid_url"), Some("invalid_line"))
    );
}

/// Returns the files below a folder that contain one of these texts.
fn files_with(dir: &Path, texts: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files_with(&path, texts));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let has =
                |text: &&str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
            found.extend(texts.iter().any(has).then_some(path));
        }
    }
    found
}

#[test]
fn no_file_of_the_data_directory_has_the_values_of_queries_if_they_are_hashed() {
    let place = TestDir::new();
    let origin = Origin::start([
        (HOST, Site::Validators { max_age: None, version: 1 }),
        (OTHER, Site::rate_limited(3600)),
        (THIRD, Site::Static),
    ])
    .unwrap();
    let config =
        place.write("hash.toml", "[log]\nquery = \"hash\"\n[cache]\nuse = \"revalidate\"\n");
    let secret = |host: &str, path: &str| origin.url(host, path).to_string();
    let delivered = secret(HOST, "/articles/1?token=S3CR3T-one&page=S3CR3T-two");
    let paused = secret(OTHER, "/?S3CR3T-three");
    let input = place
        .write("urls.txt", [&*delivered, &paused, &secret(THIRD, "/b?x=S3CR3T-four")].join("\n"));
    let with = |more: &[&str]| {
        place.run(&[&fetch(&["--config", &config, "--input", &input]), more].concat())
    };
    let first = with(&["--warc", "a.warc", "--wait", "0"]);
    assert!(
        first.stdout.contains(&delivered),
        "results name the real URL: {}{}",
        first.stdout,
        first.stderr
    );
    let requested = origin.hits(HOST);
    let archived = std::fs::read_to_string(place.path("a.warc")).unwrap();
    assert!(archived.contains("S3CR3T-one"), "the site gets the real URL, and an archive has it");
    assert_eq!(files_with(&place.data(), &["S3CR3T"]), <[PathBuf; 0]>::default());
    assert!(
        !files_with(&place.data(), &["token=~"]).is_empty(),
        "names of values and their hashes stay"
    );

    // The identity of a link stays: its pause, its attempts, its validators.
    let explained = place.run(&["--config", &config, "explain", "--json", &paused]).one();
    assert!(explained["pause"]["until"].is_string(), "{explained}");
    let attempts =
        place.run(&["--config", &config, "attempts", "--json", "--url", &delivered]).json();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    let again = with(&["--warc", "a.warc", "--wait", "0"]);
    let unchanged = again.json().into_iter().find(|line| line["url"] == *delivered).unwrap();
    assert_eq!(
        (unchanged["not_modified"].as_bool(), origin.hits(HOST)),
        (Some(true), requested + 1),
        "{unchanged}"
    );
    assert!(
        std::fs::read_to_string(place.path("a.warc")).unwrap().matches("S3CR3T-one").count() > 1
    );
    // A later command without the setting hashes as well, and so do snapshots and exports that are
    // imported again.
    place.run(&fetch(&[&secret(THIRD, "/c?x=S3CR3T-five")]));
    assert_eq!(place.run(&["snapshot"]).code, 0);
    let more = serde_json::json!({
        "url": secret(HOST, "/d?token=S3CR3T-six"), "fetcher": "direct_access", "success": true, "attempted_at": 1_790_000_000_000_i64
    });
    place.write("more.jsonl", more.to_string());
    assert_eq!(place.run(&["import", "more.jsonl"]).code, 0);
    // An attempt that is sent again is the same one.
    let known = place.write("known.jsonl", place.run(&["export"]).stdout);
    assert_eq!(place.run(&["import", &known]).code, 0);
    place.run(&["forget", "--link", &paused]);
    assert_eq!(files_with(&place.data(), &["S3CR3T"]), <[PathBuf; 0]>::default());
}

#[test]
fn pages_go_into_a_warc_archive() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(HOST, "/b")];
    let ran = place.run(&fetch(&["--warc", "out/crawl.warc", &urls[0], &urls[1]]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text =
        String::from_utf8_lossy(&std::fs::read(place.path("out/crawl.warc")).unwrap()).into_owned();
    assert!(urls.iter().all(|url| text.contains(url.as_str())));
    assert_eq!(
        text.matches("WARC-Type: response").count() + text.matches("warc-type: response").count(),
        2
    );
}

/// Returns the URLs and the texts of a data set's file.
fn rows_of(file: &Path) -> Vec<(String, String)> {
    let file = std::fs::File::open(file).unwrap();
    let reader = parquet::file::reader::SerializedFileReader::new(file).unwrap();
    let text = |row: &parquet::record::Row, name: &str| {
        let found = row.get_column_iter().find(|(column, _)| *column == name);
        found.map(|(_, field)| field.to_string().trim_matches('"').to_owned()).unwrap()
    };
    reader
        .into_iter()
        .map(|row| row.unwrap())
        .map(|row| (text(&row, "url"), text(&row, "html")))
        .collect()
}

#[test]
fn pages_go_into_a_data_set_that_holds_every_delivered_page_also_after_signals_and_kills() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::slow(Duration::from_millis(300)))]).unwrap();
    let urls: String = (0..24).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let more = ["--input", &input, "--concurrency", "2", "--parquet", "out/pages.parquet"];
    let mut delivered = Vec::new();
    for signal in ["-INT", "-KILL"] {
        let mut child = place.spawn(&fetch(&more));
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..4 {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            delivered.push(line);
        }
        send_signal(&child, signal);
        delivered.extend(reader.lines().map_while(Result::ok).filter(|line| line.ends_with('}')));
        let _ = child.wait();
        assert!(
            place.path("out/pages.parquet").exists(),
            "the file of a run that was interrupted is readable"
        );
        assert_eq!(place.path("out/pages.parquet.rows").exists(), signal == "-KILL");
    }
    assert!(origin.set_site(HOST, Site::Static));
    let last = place.run(&fetch(&more));
    assert_eq!(last.code, 0, "{}", last.stderr);
    assert!(
        last.stderr.contains("of an interrupted run")
            && last.stderr.contains("done by an earlier run")
    );
    delivered.extend(last.stdout.lines().map(str::to_owned));
    let (mut stored, mut all) = (HashSet::new(), HashSet::new());
    for name in ["pages.parquet", "pages-00001.parquet"] {
        let file = Path::new("out").join(name);
        for (url, html) in rows_of(&place.path(file.to_str().unwrap())) {
            assert!(html.contains('<'), "{html}");
            all.insert(url.clone());
            stored.insert((url, file.clone()));
        }
    }
    for line in &delivered {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let place = (
            line["url"].as_str().unwrap().to_owned(),
            PathBuf::from(line["file"].as_str().unwrap()),
        );
        assert!(stored.contains(&place), "{line} is in the file that it names");
    }
    assert_eq!((all.len(), std::fs::read_dir(place.path("out")).unwrap().count()), (24, 2));
}

#[test]
fn a_data_set_excludes_other_stores_and_gets_a_named_page() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Pdf)]).unwrap();
    for (option, path) in [("--out", "pages"), ("--warc", "a.warc")] {
        assert_eq!(
            place.run(&fetch(&["--parquet", "a.parquet", option, path, "http://e.org/"])).code,
            2
        );
    }
    let args = ["fetch", "--parquet", "a.parquet", &origin.url(HOST, "/paper")];
    let ran = place.run(&[&args[..], &PLAIN[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("%PDF"), "the page is not printed");
    let rows = rows_of(&place.path("a.parquet"));
    assert_eq!(rows, [(origin.url(HOST, "/paper").to_string(), "null".to_owned())]);
}

#[test]
fn an_archive_torn_by_a_crash_continues_after_its_last_whole_record() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let run = |path: &str| place.run(&fetch(&["--warc", "crawl.warc.gz", &origin.url(HOST, path)]));
    assert_eq!(run("/a").code, 0);
    let archive = place.path("crawl.warc.gz");
    let whole = std::fs::read(&archive).unwrap();
    std::fs::write(&archive, &whole[..whole.len() - 9]).unwrap();
    let ran = run("/b");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("ended in the middle of a record")
            && ran.stderr.contains("crawl.warc.gz.torn-")
    );

    std::fs::write(&archive, [&whole, b"no record".as_slice()].concat()).unwrap();
    let ran = run("/c");
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("is damaged") && ran.stderr.contains("another archive"),
        "{}",
        ran.stderr
    );
}

/// Starts a run of `urls` slow pages and reads its first `lines` results.
fn begin(
    place: &TestDir,
    input: &str,
    lines: usize,
) -> (std::process::Child, Vec<String>, BufReader<std::process::ChildStdout>) {
    let mut child = place.spawn(&fetch(&["--input", input, "--concurrency", "2"]));
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut read = Vec::new();
    for _ in 0..lines {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        read.push(line);
    }
    (child, read, reader)
}

fn urls_of(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let url = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["url"].as_str().unwrap().to_owned()
    };
    lines.into_iter().map(|line| url(line.as_ref())).collect()
}

fn runs_left(data: &Path) -> usize {
    let names = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("run-")).count()
}

#[test]
fn a_stopped_or_killed_run_continues_where_it_stopped() {
    let place = TestDir::new();
    // A run takes ten seconds, and is stopped after its first.
    let origin = Origin::start([(HOST, Site::slow(Duration::from_millis(500)))]).unwrap();
    let urls: String = (0..40).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let mut seen = Vec::new();

    let (mut child, read, rest) = begin(&place, &input, 5);
    send_signal(&child, "-INT");
    seen.extend(read);
    seen.extend(rest.lines().map(|line| line.unwrap()));
    assert_eq!(child.wait().unwrap().code(), Some(1), "an interrupted run has failed");
    assert!(seen.len() < 40 && runs_left(&place.data()) == 1);
    let recorded = place.run(&["export"]).json().len();
    assert!(recorded >= seen.len(), "{recorded} of {}: what was shown is in the log", seen.len());

    let (mut child, read, rest) = begin(&place, &input, 5);
    send_signal(&child, "-KILL");
    seen.extend(read);
    seen.extend(rest.lines().map_while(Result::ok).filter(|line| line.ends_with('}')));
    let _ = child.wait();

    assert!(origin.set_site(HOST, Site::Static));
    let last = place.run(&fetch(&["--input", &input, "--concurrency", "2"]));
    assert_eq!(last.code, 0, "{}", last.stderr);
    assert!(last.stderr.contains("done by an earlier run"), "{}", last.stderr);
    let (stopped, last) = (urls_of(&seen), urls_of(last.stdout.lines()));
    let all: HashSet<&String> = stopped.iter().chain(&last).collect();
    assert_eq!(all.len(), 40);
    // The run was killed between printing lines and recording them, so these may appear twice.
    assert!(stopped.len() + last.len() <= 42, "{} and {}", stopped.len(), last.len());
    assert_eq!(runs_left(&place.data()), 0);

    let whole = place.run(&fetch(&["--input", &input, "--concurrency", "8"]));
    assert_eq!(whole.json().len(), 40, "a run that was completed fetches again");
}

#[test]
fn a_second_ctrl_c_ends_a_run_at_once() {
    let place = TestDir::new();
    // A run that waits for the page does not end before the test is given up.
    let origin = Origin::start([(HOST, Site::slow(Duration::from_secs(600)))]).unwrap();
    let mut child = place.spawn(&fetch(&[&origin.url(HOST, "/"), "--timeout", "600s"]));
    while origin.hits(HOST) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    send_signal(&child, "-INT");
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("Ctrl-C again"), "{said}");
    send_signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(place.run(&["export"]).stdout, "", "what was abandoned teaches nothing");
}

#[test]
fn text_output_shows_the_results() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let url = origin.url(HOST, "/a");
    let ran: Ran = place.run(&[&["fetch", &url, "http://10.0.0.1/"][..], &PLAIN].concat());
    assert!(
        ran.stdout.contains("ok  ") && ran.stdout.contains("refused_address"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains(", 0."), "a fast page took some milliseconds: {}", ran.stdout);
    assert!(ran.stderr.contains("1 delivered, 1 failed"), "{}", ran.stderr);
}

/// Returns whether the program `script` can give a program its own terminal. Otherwise reports the
/// test as skipped.
fn has_terminals() -> bool {
    let found = Command::new("script").arg("--version").output();
    required(found, "tests on a terminal (no program `script`)").is_some()
}

/// Runs `fetch` on its own terminal with this many columns, like `sshd`. Returns what the terminal
/// got.
fn on_a_terminal(place: &TestDir, columns: u16, more: &str) -> String {
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let line =
        format!("stty rows 40 cols {columns}; '{program}' fetch {} {more}", PLAIN[..5].join(" "));
    let mut script = place.other_program("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    let ran = script.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn a_terminal_has_one_live_region_within_its_width() {
    if !has_terminals() {
        return;
    }
    let place = TestDir::new();
    let origin =
        Origin::start([(HOST, Site::slow(Duration::from_millis(300))), (OTHER, Site::NOT_FOUND)])
            .unwrap();
    let urls: String = (0..12).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect();
    place.write("urls.txt", urls + &origin.url(OTHER, "/gone"));
    for columns in [120, 80, 60] {
        let shown = on_a_terminal(&place, columns, "--input urls.txt --concurrency 2 --rate 20");
        assert!(shown.contains("13 lines, robots.txt ignored") || columns < 80, "{shown}");
        assert!(shown.contains("/13  ") && shown.contains("slowest:  127.0.0.1"), "{shown}");
        assert!(
            shown.contains("not_found") && !without_escapes(&shown).contains("ok  "),
            "only failures get a line: {shown}"
        );
        assert!(shown.contains("12 delivered, 1 missing"), "{shown}");
        // Lines of the region are padded to the width, so that gaps separate them.
        let text = without_escapes(&shown);
        let region = text.split(['\r', '\n']).flat_map(|line| line.split("    "));
        for line in region.filter(|line| line.contains(" delivered  ") || line.contains("/13  ")) {
            assert!(line.trim().chars().count() < usize::from(columns), "{columns}: {line}");
        }
    }
    assert!(
        without_escapes(&on_a_terminal(&place, 80, "--input urls.txt --pace off -v"))
            .contains("ok  ")
    );
    let quiet = on_a_terminal(&place, 80, "--input urls.txt --pace off -q");
    assert_eq!(without_escapes(&quiet).trim(), "", "{quiet}");
}

#[test]
fn a_terminal_counts_down_to_the_next_trial_while_pauses_are_all_that_is_left() {
    if !has_terminals() {
        return;
    }
    let place = TestDir::new();
    let (_origin, _) = one_that_blocks_at_first(&place, "20m");
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let options = "--input urls.txt --config c.toml --concurrency 1 --wait 30m";
    let line = format!("stty rows 40 cols 120; '{program}' fetch {} {options}", PLAIN.join(" "));
    let mut script = place.other_program("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut terminal, mut shown) = (child.stdout.take().unwrap(), Vec::new());
    let mut rests = HashSet::new();
    // It changes by itself: nothing is fetched meanwhile.
    while rests.len() < 3 {
        let mut part = [0; 4096];
        let count = terminal.read(&mut part).unwrap();
        shown.extend_from_slice(&part[..count]);
        let text = without_escapes(&String::from_utf8_lossy(&shown));
        assert!(count > 0, "it ended: {text}");
        let rest = |after: &str| after.split_once(", last at ").map(|(rest, _)| rest.to_owned());
        rests =
            text.split("paused links of 1 host, next trial in ").skip(1).filter_map(rest).collect();
    }
    // Ctrl-C.
    child.stdin.take().unwrap().write_all(b"\x03").unwrap();
    terminal.read_to_end(&mut shown).unwrap();
    child.wait().unwrap();
    let text = without_escapes(&String::from_utf8_lossy(&shown));
    assert!(!text.contains("waiting 0 s") && text.contains("interrupted"), "{text}");
    let is_rest =
        |rest: &String| ["19 min ", "20 min 0 "].iter().any(|begin| rest.starts_with(begin));
    assert!(rests.iter().all(is_rest), "{rests:?}");
}

/// Returns `text` without escape sequences.
fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            c => plain.push(c),
        }
    }
    plain
}

#[test]
fn colours_can_be_chosen() {
    let place = TestDir::new();
    let run = |more: &[&str]| {
        place.run(&[&["fetch", "http://10.0.0.1/", "http://10.0.0.2/"], &PLAIN[..], more].concat())
    };
    assert!(run(&["--color", "always"]).stdout.contains("\x1b["));
    assert!(
        !run(&["--color", "never"]).stdout.contains("\x1b[") && !run(&[]).stdout.contains("\x1b[")
    );
}

#[test]
fn a_refused_connection_is_not_tried_by_a_browser() {
    let place = TestDir::new();
    let ran =
        place.run(&["fetch", "--json", "http://127.0.0.1:9/x", "--allow-network", "127.0.0.0/8"]);
    let line = ran.one();
    let got = (line["error_type"].as_str(), line["requests"].as_u64(), line["fetcher"].as_str());
    assert_eq!(got, (Some("network_error"), Some(2), Some("direct_access")), "{line}");
    assert!(line["error"].as_str().unwrap().contains("refused"), "{line}");
}

#[test]
fn the_end_of_a_list_is_a_report() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::NOT_FOUND)]).unwrap();
    let urls = [
        origin.url(HOST, "/a"),
        origin.url(HOST, "/b"),
        origin.url(OTHER, "/c"),
        "http://10.0.0.1/".to_owned(),
    ];
    let input = place.write("urls.txt", urls.join("\n"));
    let ran = place.run(&[&["fetch", "--input", &input], &PLAIN[..]].concat());
    for want in [
        "4 lines, robots.txt ignored, data in",
        "no browser",
        "2 delivered, 1 missing, 1 failed",
        "not delivered: 1 not_found, 1 refused_address",
        "direct_access      2",
        "cost per page",
        "always direct_access",
        "--only failed",
    ] {
        assert!(ran.stderr.contains(want), "{want}\n{}", ran.stderr);
    }
    let quiet = place.run(&[&["fetch", "--input", &input, "-q"], &PLAIN[..]].concat());
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

/// `script` gives the program its own terminal, like `sshd`.
#[test]
fn on_a_terminal_the_demo_draws_and_ends_with_the_costs() {
    if !has_terminals() {
        return;
    }
    let place = TestDir::new();
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let line = format!("stty rows 40 cols 120; '{program}' demo --rounds 2 --no-browser");
    let mut script = place.other_program("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let ran = script.stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{shown}");
    for text in ["demo sites, one page per round", "the mill: learning a pace", "\x1b[?1049l"] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
    // The picture disappears at the end; the summary stays.
    let sum = shown.rsplit("\x1b[?1049l").next().unwrap();
    assert!(sum.contains("always direct") && sum.contains("library"), "{sum}");
    assert!(!place.data().exists());
}

#[test]
fn rules_are_reloaded_while_pages_are_fetched() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let rule = |vendor: &str| {
        format!(
            "[[rule]]\nid = \"{vendor}\"\nvendor = \"{vendor}\"\ngrade = \"presence\"\nheader = [\"content-type\"]\nnote = \"a test\"\n"
        )
    };
    place.write("rules.toml", rule("first"));
    let mut child = place
        .command(&fetch(&["-", "--rules", "rules.toml"]))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (results, messages) =
        (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let mut ask = |n: u32| {
        writeln!(input, "{}", origin.url(HOST, &format!("/articles/{n}"))).unwrap();
        assert!(results.recv_timeout(PATIENCE).unwrap().contains("\"success\":true"));
    };
    let hang_up = || {
        send_signal(&child, "-HUP");
    };
    ask(1);
    place.write("rules.toml", rule("second"));
    hang_up();
    wait_for(&messages, "reloaded");
    ask(2);
    place.write("rules.toml", "no rules");
    hang_up();
    wait_for(&messages, "settings are unchanged");
    ask(3);
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let seen: Vec<String> = (place.run(&["export"]).json().iter())
        .map(|attempt| {
            attempt["heuristics"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|h| h["type"].as_str())
                .collect()
        })
        .collect();
    let has = |n: usize, what: &str| seen[n].contains(what);
    assert!(has(0, "waf_first") && has(1, "waf_second") && has(2, "waf_second"), "{seen:?}");
    assert!(!has(0, "waf_second") && !has(1, "waf_first"), "{seen:?}");
}

#[test]
fn a_price_a_reserved_page_and_an_unchanged_one_are_named_in_results_and_archives() {
    let place = TestDir::new();
    let sites = [
        (HOST, Site::Toll { price: "USD 0.01".to_owned() }),
        (OTHER, Site::reserved("train-ai")),
        ("127.0.0.3", Site::Validators { max_age: None, version: 0 }),
    ];
    let origin = Origin::start(sites).unwrap();
    let toll = place.run(&fetch(&[&origin.url(HOST, "/a")])).one();
    assert_eq!(
        (&toll["error_type"], &toll["price"]),
        (&"payment_required".into(), &"USD 0.01".into()),
        "{toll}"
    );
    assert!(toll["paused_until"].is_string() && origin.hits(HOST) == 1, "{toll}");

    let training = place.write("training.toml", "[consent]\npurposes = ['train-ai']\n");
    let reserved = origin.url(OTHER, "/a");
    let run = |more: &[&str]| place.run(&fetch(more));
    let skipped = run(&["--config", &training, &reserved]).one();
    assert_eq!(
        (&skipped["error_type"], &skipped["requests"]),
        (&"reserved".into(), &0.into()),
        "{skipped}"
    );
    assert_eq!(origin.hits_at(OTHER, "/a"), 0);
    let marking =
        place.write("marking.toml", "[consent]\npurposes = ['train-ai']\non_reserved = 'mark'\n");
    let marked = run(&["--config", &marking, "--warc", "a.warc", &reserved]).one();
    assert_eq!(
        (&marked["success"], &marked["allowed_for"]),
        (&true.into(), &serde_json::json!([])),
        "{marked}"
    );
    let term = serde_json::json!(
        {"terms": "content-usage", "source": "robots.txt", "purpose": "train-ai", "allowed": false}
    );
    assert_eq!(marked["consent"][0], term);
    let archived = std::fs::read_to_string(place.path("a.warc")).unwrap();
    assert!(
        archived.contains("consent: train-ai=n content-usage robots.txt")
            && archived.contains("allowed-for: none")
    );
    let attempts = place.run(&["export"]).json();
    assert_eq!(attempts.len(), 2, "a page that was not requested is no attempt");
    assert!(
        attempts[1]["response_headers"][":consent"].as_str().unwrap().contains("train-ai=n"),
        "{}",
        attempts[1]
    );

    let caching = place.write("caching.toml", "[cache]\nuse = 'revalidate'\n");
    let input = place.write(
        "urls.txt",
        (0..20).map(|n| origin.url("127.0.0.3", &format!("/{n}\n"))).collect::<String>(),
    );
    let crawl =
        || run(&["--config", &caching, "--input", &input, "--out", "pages", "--ordered"]).json();
    let (first, second) = (crawl(), crawl());
    assert!(
        first.iter().all(|line| line["success"] == true && line.get("not_modified").is_none()),
        "{first:?}"
    );
    for (before, after) in first.iter().zip(&second) {
        assert_eq!(
            (&after["success"], &after["not_modified"], &after["status"]),
            (&true.into(), &true.into(), &304.into())
        );
        assert_eq!((&after["file"], &after["bytes"]), (&before["file"], &0.into()));
    }
    let once = place.run(&[
        "fetch",
        "--config",
        &caching,
        "--no-browser",
        "--allow-network",
        "127.0.0.0/8",
        &origin.url("127.0.0.3", "/0"),
    ]);
    assert!(once.stdout.contains("</html>"), "a page that is printed comes in full");
}

#[test]
fn a_host_that_rejects_the_signature_is_reported_once_and_the_offers_of_a_402_are_named() {
    let place = TestDir::new();
    let rejects = Site::with_header("crawler-error", "InvalidSignature", Site::Status(400));
    let link = "<https://e.org/l.xml>; rel=\"license\"; type=\"application/rsl+xml\"";
    let toll = Site::with_header("Link", link, Site::Toll { price: "USD 0.01".to_owned() });
    let origin = Origin::start([(HOST, rejects), (OTHER, toll)]).unwrap();
    let input = place.write(
        "urls.txt",
        (0..5).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect::<String>(),
    );
    let run = place.run(&fetch(&["--input", &input]));
    assert_eq!(
        run.stderr.matches("127.0.0.1 rejects this crawler's signature").count(),
        1,
        "{}",
        run.stderr
    );
    let results = run.json();
    assert_eq!(results.len(), 5);
    assert!(
        results.iter().all(|result| result["error_type"] == "identity_rejected"),
        "{results:?}"
    );
    let toll = place.run(&fetch(&[&origin.url(OTHER, "/a")])).one();
    assert_eq!(toll["offers"], serde_json::json!(["rsl https://e.org/l.xml"]), "{toll}");
    assert!(results[0].get("offers").is_none());
}

#[cfg(unix)]
#[test]
fn the_umask_says_who_reads_what_is_written_and_the_data_directory_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let url = origin.url(HOST, "/a");
    for (umask, want) in [("077", 0o600), ("022", 0o644), ("002", 0o664)] {
        let place = TestDir::new();
        let run = |args: &[&str]| {
            let script = format!("umask {umask}; exec \"$@\"");
            let mut shell = place.other_program("sh");
            shell
                .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_fetchwise")])
                .args(args)
                .stdin(Stdio::null());
            let ran = Ran::from(shell.output().unwrap());
            assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
            ran
        };
        let file =
            run(&fetch(&["--out", "pages", &url])).one()["file"].as_str().unwrap().to_owned();
        run(&fetch(&["--warc", "a.warc", "--cdx", "a.cdxj", &url]));
        run(&["export", "-o", "a.jsonl"]);
        run(&["export", "--sqlite", "a.sqlite"]);
        run(&["priors", "export", "a.json"]);
        let mode =
            |path: &str| std::fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
        for path in [&*file, "a.warc", "a.cdxj", "a.jsonl", "a.sqlite", "a.json"] {
            assert_eq!(mode(path), want, "umask {umask}: {path}");
        }
        assert_eq!(mode("data"), 0o700, "umask {umask}: its log has the query of every URL");
    }
}

#[test]
fn the_user_and_password_of_a_url_are_neither_shown_nor_kept() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::FORBIDDEN)]).unwrap();
    let with_user = |host: &str| origin.url(host, "/a").replace("http://", "http://me:secret@");
    let bad =
        ["http://me:secret@127.0.0.1:x/", "ftp://me:secret@127.0.0.1/", "me:secret@127.0.0.1/a"];
    let mut urls = vec![with_user(HOST), with_user(OTHER)];
    urls.extend(bad.map(str::to_owned));
    let input = place.write("urls.txt", urls.join("\n"));
    let ran = place.run(&fetch(&["--input", &input, "--wait", "0"]));
    assert!(ran.stderr.contains("the user and password in a URL are not sent"), "{}", ran.stderr);
    assert_eq!(
        ran.json().iter().filter(|line| line["success"] == true).count(),
        1,
        "{}",
        ran.stdout
    );
    let text = place
        .run(&[&["fetch", "--verbose", "--input", &input, "--wait", "0"], &PLAIN[..]].concat());
    let mut shown = vec![ran, text, place.run(&["links"]), place.run(&["export"])];
    for url in &urls {
        shown.push(place.run(&["select", url]));
        shown.push(place.run(&["explain", "--json", url]));
        shown.push(place.run(&[
            "try",
            "--json",
            "--allow-network",
            "127.0.0.0/8",
            "--no-browser",
            url,
        ]));
    }
    for ran in &shown {
        assert!(
            !ran.stdout.contains("secret") && !ran.stderr.contains("secret"),
            "{}{}",
            ran.stdout,
            ran.stderr
        );
    }
}
