//! Limiters of many kinds, with windows of seconds.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::crawl::{Crawl, pages};
use super::server::{Limiter, Server, Verdict};
use crate::support::TestDir;

/// A fixed window: further requests get 429, with the begin of the next window if `says_when`.
fn fixed_window(most: u32, window: Duration, says_when: bool) -> Limiter {
    let (begun, state) = (Instant::now(), Mutex::new((0u128, 0u32)));
    Box::new(move |_, now| {
        let number = (now - begun).as_nanos() / window.as_nanos();
        let mut state = state.lock().unwrap();
        if state.0 != number {
            *state = (number, 0);
        }
        state.1 += 1;
        if state.1 <= most {
            return Verdict::GOOD;
        }
        let left = window.as_nanos() - (now - begun).as_nanos() % window.as_nanos();
        let seconds = u64::try_from(left.div_ceil(1_000_000_000)).unwrap();
        Verdict { status: 429, retry_after: says_when.then_some(seconds) }
    })
}

/// A client that exceeds the limit within the window is refused everything for a time, like by
/// fail2ban.
fn ban(most: usize, window: Duration, banned: Duration) -> Limiter {
    let state = Mutex::new((VecDeque::new(), None::<Instant>));
    Box::new(move |_, now| {
        let (recent, until) = &mut *state.lock().unwrap();
        if until.is_some_and(|until| now < until) {
            return Verdict::refused(403);
        }
        recent.push_back(now);
        while recent.front().is_some_and(|first| now - *first > window) {
            recent.pop_front();
        }
        if recent.len() > most {
            recent.clear();
            *until = Some(now + banned);
            return Verdict::refused(403);
        }
        Verdict::GOOD
    })
}

/// One request at a time, each of a fixed duration: faster clients wait in a queue.
fn one_at_a_time(each: Duration) -> Limiter {
    let busy = Mutex::new(());
    Box::new(move |_, _| {
        let _busy = busy.lock().unwrap();
        std::thread::sleep(each);
        Verdict::GOOD
    })
}

/// Fetches pages and returns what the server refused.
fn crawl(what: &str, host: &str, limiter: Limiter, many: usize, max_refusals: usize) {
    let (server, place) = (Server::start([(host.to_owned(), limiter)]), TestDir::new());
    let begun = Instant::now();
    let crawl = Crawl::run(&place, &pages(&server.base(host), many), &[]);
    let (refused, seconds) = (server.refusals(), begun.elapsed().as_secs_f64());
    println!("{what}: {many} pages, {refused} refusals, {:.1} pages/s", many as f64 / seconds);
    assert_eq!(crawl.delivered(), many, "{:?} {}", crawl.failures(), crawl.stderr);
    assert!(refused <= max_refusals, "{what}: {refused} refusals");
}

#[test]
fn a_fixed_window_is_found_and_honoured() {
    crawl("40 in 5 s", "127.0.61.1", fixed_window(40, Duration::from_secs(5), false), 100, 10);
}

#[test]
fn retry_after_is_honoured() {
    crawl(
        "20 in 5 s, told when",
        "127.0.61.2",
        fixed_window(20, Duration::from_secs(5), true),
        45,
        10,
    );
}

#[test]
fn a_slow_small_server_is_not_swamped() {
    // Nothing is refused, and no request waits so long that it times out.
    crawl(
        "one at a time, 150 ms each",
        "127.0.61.3",
        one_at_a_time(Duration::from_millis(150)),
        80,
        0,
    );
}

#[test]
#[ignore = "takes minutes: make limits"]
fn a_ban_is_waited_out_and_not_triggered_repeatedly() {
    let limiter = ban(30, Duration::from_secs(10), Duration::from_secs(20));
    crawl("more than 30 in 10 s: 403 for 20 s", "127.0.61.4", limiter, 600, 25);
}

#[test]
#[ignore = "takes minutes: make limits"]
fn two_thousand_pages_in_fixed_windows() {
    crawl("80 in 10 s", "127.0.61.5", fixed_window(80, Duration::from_secs(10), false), 2000, 12);
}

#[test]
#[ignore = "takes minutes: make limits"]
fn two_thousand_pages_with_retry_after() {
    crawl(
        "100 in 10 s, told when",
        "127.0.61.6",
        fixed_window(100, Duration::from_secs(10), true),
        2000,
        12,
    );
}

#[test]
#[ignore = "takes minutes: make limits"]
fn two_thousand_pages_of_a_slow_small_server() {
    crawl(
        "one at a time, 100 ms each",
        "127.0.61.7",
        one_at_a_time(Duration::from_millis(100)),
        2000,
        0,
    );
}
