//! Servers that ban an address for some seconds for what was not there. Bans for speed are in `limiters`, since they take minutes.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::crawl::{Crawl, pages};
use super::server::{Limiter, Server, Verdict};
use crate::support::Place;

/// After so many strikes within the window nothing is answered as it should be until the ban is over; `judge` says what a request is
/// answered with while there is none, and whether that is a strike.
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

/// Whether the page's number is one of those that are not there.
fn is_missing(path: &str) -> bool {
    path.rsplit('/').next().and_then(|number| number.parse::<u32>().ok()).is_some_and(|number| number % 4 == 3)
}

/// As fail2ban does it: whoever asks for too much that is not there gets no answer for a while. Which of the pages are missing cannot
/// be known, so bans are met; each may cost the links that meet it, and nothing is asked while it lasts but for the trials.
#[test]
fn a_ban_for_errors_costs_a_few_links_and_no_run_against_it() {
    let host = "127.0.62.2";
    let limiter = ban(8, Duration::from_secs(30), Duration::from_secs(6), 0, |path| match is_missing(path) {
        true => (404, true),
        false => (200, false),
    });
    let (server, place) = (Server::start([(host.to_owned(), limiter)]), Place::new());
    let crawl = Crawl::run(&place, &pages(&server.base(host), 100), &[]);
    let seen = server.seen();
    let unanswered = seen.iter().filter(|seen| seen.status == 0).count();
    let there = seen.iter().filter(|seen| seen.status == 200).count();
    println!("8 errors in 30 s, else no answer for 6 s: {unanswered} unanswered, {there} of 75 pages");
    assert_eq!(crawl.results.len(), 100);
    assert_eq!(crawl.delivered(), there, "{:?} {}", crawl.failures(), crawl.stderr);
    assert!(there >= 65, "{there} of 75: {:?}", crawl.failures());
    assert!(unanswered <= 24, "{unanswered} requests against bans");
}
