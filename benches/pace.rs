//! A permit and its response among many hosts, in an order that no prefetcher guesses, compared
//! with the admission of a keyed limiter.
//!
//! Names have just been looked up, like those of URLs in a crawler, so that the measurement does
//! not include fetching them from memory. *Asked* hosts come again within the hour, *cold* ones
//! later. `governor` is the limiter of most Rust servers. It counts against a fixed quota and
//! learns nothing, so its time is a lower bound for a check of one of a million hosts.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use fetchwise::Selector;
use fetchwise::pace::{Admit, Cost, Pace, PaceSettings, Response, Scope, Signal};
use fetchwise::registry::FetcherId;
use fetchwise::time::Timestamp;
use governor::{Quota, RateLimiter};

const BEGIN: i64 = 1_790_000_000_000;
const COUNTS: [usize; 3] = [1_000, 100_000, 1_000_000];
/// The minimum time until a host comes again, so that its pace always admits it.
const AROUND_MS: i64 = 1_500;
/// The same for hosts without a request for more than an hour.
const COLD_AROUND_MS: i64 = 4_000_000;

/// Hosts in a scattered order.
struct Turns {
    names: Vec<String>,
    next: usize,
}

impl Turns {
    fn new(count: usize) -> Self {
        Self { names: (0..count).map(|number| format!("site{number}.org")).collect(), next: 0 }
    }

    /// Returns the next name, out of order, copied so that it is in the cache.
    fn name(&mut self) -> String {
        self.next = (self.next + 7919) % self.names.len();
        self.names[self.next].clone()
    }
}

fn fetcher() -> FetcherId {
    Selector::builder().build().unwrap().candidates().next().unwrap().0
}

/// Makes a request to the host, with a response after 200 ms.
fn ask(pace: &Pace, host: &str, answer: &Response, at: i64) {
    // A caller that has parsed the URL knows the registrable domain.
    let scope = Scope { host, site: host, address: None };
    match pace.admit(black_box(scope), Cost::Plain, Timestamp::from_millis(at)) {
        Admit::Go(permit) => {
            _ = black_box(pace.record_response(permit, answer, Timestamp::from_millis(at + 200)));
        }
        other => panic!("{host} has to wait: {other:?}"),
    }
}

fn admit_and_done(c: &mut Criterion) {
    let answer = Response {
        latency: Some(Duration::from_millis(200)),
        ..Response::new(Signal::Content, fetcher())
    };
    let mut group = c.benchmark_group("pace, admit and done");
    for (kind, around) in [("asked", AROUND_MS), ("cold", COLD_AROUND_MS)] {
        for count in COUNTS {
            let (pace, mut turns, mut now) =
                (Pace::new(PaceSettings::default()), Turns::new(count), BEGIN);
            turns.names.iter().for_each(|name| ask(&pace, name, &answer, BEGIN));
            now += AROUND_MS;
            let step = around / count as i64 + 1;
            group.bench_function(BenchmarkId::new(kind, count), |b| {
                b.iter_batched_ref(
                    || {
                        now += step;
                        (turns.name(), now)
                    },
                    |(name, at)| ask(&pace, name, &answer, *at),
                    BatchSize::NumIterations(64),
                );
            });
        }
    }
    group.finish();
}

fn governor(c: &mut Criterion) {
    let mut group = c.benchmark_group("governor, check of a key");
    for count in COUNTS {
        let limiter = RateLimiter::dashmap(Quota::per_second(NonZeroU32::MAX));
        let mut turns = Turns::new(count);
        turns.names.iter().for_each(|name| limiter.check_key(name).unwrap());
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter_batched_ref(
                || turns.name(),
                |name| limiter.check_key(black_box(name)).unwrap(),
                BatchSize::NumIterations(64),
            );
        });
    }
    group.finish();
}

criterion_group!(benches, admit_and_done, governor);
criterion_main!(benches);
