//! Paces requests against a simulated host that allows 120 requests per minute.
//!
//! Run it with `cargo run -p fetchwise-pace --example simulated_host`. Time is simulated as well,
//! so an hour takes a moment. The printed rate approaches two requests per second from below.

use std::collections::VecDeque;
use std::time::Duration;

use fetchwise_pace::registry::FetcherId;
use fetchwise_pace::time::Timestamp;
use fetchwise_pace::{Admit, Cost, Pace, PaceSettings, Response, Scope, Signal};

/// A host that refuses requests beyond 120 in the last minute.
#[derive(Default)]
struct Host {
    allowed: VecDeque<i64>,
}

impl Host {
    fn respond(&mut self, now_ms: i64) -> Signal {
        while self.allowed.front().is_some_and(|sent| *sent <= now_ms - 60_000) {
            self.allowed.pop_front();
        }
        if self.allowed.len() == 120 {
            return Signal::Limited;
        }
        self.allowed.push_back(now_ms);
        Signal::Content
    }
}

fn main() {
    const HOUR_MS: i64 = 3_600_000;
    const LATENCY_MS: u64 = 80;
    let pace = Pace::new(PaceSettings::default());
    let scope = Scope::host("example.org");
    let mut host = Host::default();
    let begin = Timestamp::from_millis(1_800_000_000_000).as_millis();
    let (mut now, mut next_report) = (begin, begin);
    let (mut pages, mut refusals) = (0, 0);
    while now < begin + HOUR_MS {
        match pace.admit(scope, Cost::Plain, Timestamp::from_millis(now)) {
            Admit::Go(permit) => {
                let signal = host.respond(now);
                now += LATENCY_MS as i64;
                let mut response = Response::new(signal, FetcherId(0));
                response.latency = Some(Duration::from_millis(LATENCY_MS));
                let _ = pace.record_response(permit, &response, Timestamp::from_millis(now));
                if signal == Signal::Content { pages += 1 } else { refusals += 1 }
            }
            // A crawler sleeps here, or fetches from another host.
            Admit::Wait(until) => now = until.as_millis(),
            Admit::AtCapacity => unreachable!("one request at a time"),
        }
        if now >= next_report {
            next_report += HOUR_MS / 6;
            println!("after {:>2} min: {pages} pages, {refusals} refusals", (now - begin) / 60_000);
            if let Some(explanation) = pace.explain("example.org", Timestamp::from_millis(now)) {
                println!("{explanation}\n");
            }
        }
    }
}
