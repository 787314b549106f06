//! Servers that ban an address for some seconds because of missing pages. Bans because of speed are
//! in `limiters`, since they take minutes.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::crawl::{Crawl, pages};
use super::server::{Limiter, Server, Verdict};
use crate::support::TestDir;

/// Bans a client after a number of strikes within the window; `judge` returns the response to a
/// request without a ban, and whether it is a strike.
fn ban(
    most: usize,
    window: Duration,
    banned: Duration,
    refusal: u16,
    judge: impl Fn(&str) -> (u16, bool) + Send + Sync + 'static,
) -> Limiter {
    let state = Mutex::new((VecDeque::new(), None::<Instant>));
    Box::new(move |path, now| {
        let (strikes, until) = &mut *state.lock().unwrap();
        if until.is_some_and(|until| now < until) {
            return Verdict::refused(refusal);
        }
        let (status, is_strike) = judge(path);
        if is_strike {
            strikes.push_back(now);
        }
        while strikes.front().is_some_and(|first| now - *first > window) {
            strikes.pop_front();
        }
        if strikes.len() > most {
            strikes.clear();
            *until = Some(now + banned);
            return Verdict::refused(refusal);
        }
        Verdict { status, retry_after: None }
    })
}

/// Returns whether the page with this number is missing.
fn is_missing(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .and_then(|number| number.parse::<u32>().ok())
        .is_some_and(|number| number % 4 == 3)
}

/// Like fail2ban: a client that requests too many missing pages gets no response for a while. The
/// crawler cannot know which pages are missing, so bans happen. Each may cost the links that hit
/// it, and only trials are sent while it lasts.
#[test]
fn a_ban_for_errors_costs_few_links_and_few_requests() {
    let host = "127.0.62.2";
    let limiter =
        ban(8, Duration::from_secs(30), Duration::from_secs(6), 0, |path| match is_missing(path) {
            true => (404, true),
            false => (200, false),
        });
    let (server, place) = (Server::start([(host.to_owned(), limiter)]), TestDir::new());
    let crawl = Crawl::run(&place, &pages(&server.base(host), 100), &["--wait", "0"]);
    let seen = server.seen();
    let unanswered = seen.iter().filter(|seen| seen.status == 0).count();
    let there = seen.iter().filter(|seen| seen.status == 200).count();
    println!(
        "8 errors in 30 s, else no answer for 6 s: {unanswered} unanswered, {there} of 75 pages"
    );
    assert_eq!(crawl.results.len(), 100);
    assert_eq!(crawl.delivered(), there, "{:?} {}", crawl.failures(), crawl.stderr);
    assert!(there >= 65, "{there} of 75: {:?}", crawl.failures());
    assert!(unanswered <= 24, "{unanswered} requests against bans");
}
