//! Many hosts in one run: none delays the others, and an interrupted run continues.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use super::crawl::{Crawl, PLAIN, pages};
use super::server::{Limiter, Server, Verdict};
use crate::support::{TestDir, send_signal};

fn free() -> Limiter {
    Box::new(|_, _| Verdict::GOOD)
}

fn host(n: usize) -> String {
    format!("127.0.62.{n}")
}

/// The slow one among twenty hosts: one request in five seconds.
const SLOW: usize = 20;

/// Fetches pages of nineteen hosts, and `slow` pages of the twentieth, at two requests per second
/// and host. Returns when the last page of the nineteen came, and how many of the slow one's had
/// come by then.
fn twenty(many: usize, slow: usize) -> (Duration, usize) {
    let server = Server::start((1..=SLOW).map(|n| (host(n), free())));
    let place = TestDir::new();
    let rates = format!(
        "[pace]\nmode = 'fixed'\ninitial_rate = 2.0\n[pace.host.\"{}\"]\nrate = 0.2",
        host(SLOW)
    );
    let config = place.write("c.toml", rates);
    // The slow host's pages come first: a list is rarely sorted well.
    let mut urls = pages(&server.base(&host(SLOW)), slow);
    urls.extend((1..SLOW).flat_map(|n| pages(&server.base(&host(n)), many)));
    let begun = Instant::now();
    let crawl = Crawl::run(&place, &urls, &["--config", &config]);
    assert_eq!(crawl.delivered(), urls.len(), "{:?}", crawl.failures());
    let seen = server.seen();
    let last =
        seen.iter().filter(|seen| seen.host != host(SLOW)).map(|seen| seen.at).max().unwrap();
    let slow_by_then =
        seen.iter().filter(|seen| seen.host == host(SLOW) && seen.at <= last).count();
    (last - begun, slow_by_then)
}

#[test]
fn a_slow_host_with_a_long_queue_delays_no_other() {
    let (_, slow_by_then) = twenty(10, 4);
    // Ten pages at two per second take five seconds: in them the slow host has at most two turns.
    assert!(slow_by_then <= 3, "{slow_by_then}: the others have waited for the slow one");
}

#[test]
#[ignore = "takes minutes: make limits"]
fn nineteen_hosts_need_no_more_time_than_alone() {
    let (alone, _) = twenty(60, 0);
    let (together, _) = twenty(60, 20);
    println!(
        "19 hosts of 60 pages: {alone:.1?} alone, {together:.1?} alongside one at one request in five seconds"
    );
    assert!(together <= alone.mul_f64(1.2), "{together:?} instead of {alone:?}");
}

/// Fetches pages of ten hosts with interruptions; each page has to be delivered once.
fn interrupted(first: usize, many: usize, times: usize) {
    let server = Server::start((0..10).map(|n| (host(first + n), free())));
    let place = TestDir::new();
    let config = place.write("c.toml", "[pace]\ninitial_rate = 40.0\nmax_rate = 100.0\n");
    let urls: Vec<String> =
        (0..10).flat_map(|n| pages(&server.base(&host(first + n)), many / 10)).collect();
    let input = place.write("urls.txt", urls.join("\n"));
    let args =
        [&["fetch", "--json", "--config", &config, "--input", &input][..], &PLAIN[..]].concat();
    for _ in 0..times {
        let mut child = place.spawn(&args);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert_eq!(lines.by_ref().take(many / (times + 2)).count(), many / (times + 2));
        send_signal(&child, "-INT");
        lines.for_each(drop);
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
    let last = Crawl::run(&place, &urls, &["--config", &config]);
    assert_eq!(last.delivered(), last.results.len(), "{:?}", last.failures());
    let deliveries = server.deliveries();
    assert_eq!((deliveries.len(), deliveries.values().max()), (many, Some(&1)), "each page once");
    // The learned paces of the hosts outlive every run.
    let known = place.run(&["hosts", "--json"]).json();
    for n in 0..10 {
        let of = known.iter().find(|line| line["host"] == host(first + n)).unwrap();
        assert!(of["pace"]["rate"].as_f64().unwrap() > 0.0, "{of}");
    }
}

#[test]
fn an_interrupted_paced_crawl_delivers_each_page_once() {
    interrupted(30, 600, 3);
}

#[test]
#[ignore = "takes a minute: make limits"]
fn ten_thousand_pages_interrupted_ten_times_are_delivered_once_each() {
    interrupted(50, 10_000, 10);
}
