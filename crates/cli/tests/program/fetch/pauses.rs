//! Pauses and paces: what a run says of them, and what the next run knows.

use std::collections::HashSet;

use fetchwise_testsite::origin::{Origin, Site};

use crate::support::{Ran, TestDir};

use super::*;

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
pub(super) fn one_that_blocks_at_first(place: &TestDir, pause: &str) -> (Origin, String) {
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
