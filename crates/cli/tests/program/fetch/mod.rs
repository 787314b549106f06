//! `fetch` against real servers on loopback.

use std::collections::HashSet;

use fetchwise_testsite::origin::{Origin, Site};

use crate::support::TestDir;

mod order;
mod output;
mod pauses;
mod stopping;
mod terminal;

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
fn a_refused_connection_is_not_tried_by_a_browser() {
    let place = TestDir::new();
    let ran =
        place.run(&["fetch", "--json", "http://127.0.0.1:9/x", "--allow-network", "127.0.0.0/8"]);
    let line = ran.one();
    let got = (line["error_type"].as_str(), line["requests"].as_u64(), line["fetcher"].as_str());
    assert_eq!(got, (Some("network_error"), Some(2), Some("direct_access")), "{line}");
    assert!(line["error"].as_str().unwrap().contains("refused"), "{line}");
}
