//! Tests of the rules of pace through its public API, one per rule.

mod blocks;
mod declared;
mod latency;
mod limits;
mod noise;
mod outages;
mod rendered;
mod sharing;
mod state;

use std::time::Duration;

use super::*;
use fetchwise_types::registry::FetcherId;

const FETCHER: FetcherId = FetcherId(0);

/// A host under a pace, with a clock.
struct Crawl {
    pace: Pace,
    now: i64,
}

impl Crawl {
    fn new(settings: PaceSettings) -> Self {
        Self { pace: Pace::new(settings), now: 1_790_000_000_000 }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Waits until a request to `host` may go out.
    fn permit(&mut self, host: &str) -> Permit {
        loop {
            match self.pace.admit(Scope::host(host), Cost::Plain, self.at()) {
                Admit::Go(permit) => return permit,
                Admit::Wait(until) => {
                    assert!(until > self.at(), "a wait that is over");
                    self.now = until.as_millis();
                }
                Admit::AtCapacity => panic!("{host} is full"),
            }
        }
    }

    fn respond(&mut self, permit: Permit, response: Response) -> ResponseEffect {
        self.pace.record_response(permit, &response, self.at())
    }

    /// Sends `count` requests one after the other, each with a good response after 100 ms.
    fn good(&mut self, host: &str, count: usize) {
        for _ in 0..count {
            let permit = self.permit(host);
            self.now += 100;
            let response = Response {
                latency: Some(Duration::from_millis(100)),
                ..Response::new(Signal::Content, FETCHER)
            };
            assert_eq!(self.respond(permit, response), ResponseEffect::Nothing);
        }
    }

    fn explain(&self, host: &str) -> PaceExplanation {
        self.pace.explain(host, self.at()).unwrap()
    }
}

#[test]
fn a_host_starts_at_two_requests_per_second_and_doubles_in_ten_seconds() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let begin = crawl.now;
    while crawl.now < begin + 10_500 {
        crawl.good("a.org", 1);
    }
    let rate = crawl.explain("a.org").rate;
    assert!((3.3..4.3).contains(&rate), "{rate}");
}

/// Returns a number in [0, 1) for the nth response under a seed.
fn luck(seed: u64, n: u64) -> f64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&n.to_le_bytes(), seed) as f64 / 2f64.powi(64)
}

/// Sends requests for `seconds` to a host that fails by `fails`, and returns the good pages and the
/// errors.
fn crawl_for(crawl: &mut Crawl, seconds: i64, mut fails: impl FnMut(i64) -> bool) -> (u32, u32) {
    crawl_with(crawl, seconds, |now| if fails(now) { Signal::Unavailable } else { Signal::Content })
}

/// Sends requests for `seconds` to a host that responds with `signal`, and returns the good pages
/// and the others.
fn crawl_with(
    crawl: &mut Crawl,
    seconds: i64,
    mut signal: impl FnMut(i64) -> Signal,
) -> (u32, u32) {
    let (end, mut counts) = (crawl.now + seconds * 1000, (0, 0));
    while crawl.now < end {
        let permit = crawl.permit("a.org");
        crawl.now += 30;
        let signal = signal(crawl.now);
        match signal {
            Signal::Content => counts.0 += 1,
            _ => counts.1 += 1,
        }
        let response =
            Response { latency: Some(Duration::from_millis(30)), ..Response::new(signal, FETCHER) };
        let _ = crawl.respond(permit, response);
    }
    counts
}

/// A bucket of tokens that refuses what is too much, and its refusals.
fn bucket(rate: f64, size: f64, seed: u64) -> impl FnMut(i64) -> bool {
    let (mut tokens, mut last) = (size * luck(seed, 0), i64::MIN);
    move |now| {
        let passed = if last == i64::MIN { 0 } else { now - last };
        tokens = f64::min(tokens + rate * passed as f64 / 1000.0, size);
        last = now;
        let is_admitted = tokens >= 1.0;
        tokens -= f64::from(u8::from(is_admitted));
        !is_admitted
    }
}
