//! A permit and its answer among many hosts, in an order that no prefetcher guesses; beside it what a keyed limiter takes to say yes.
//!
//! Names have just been looked at, as those of URLs have been in a crawler, so that fetching them from memory is not measured. *Asked*
//! are hosts that come again within the hour, *cold* those that come again later. `governor` is the limiter of most Rust servers: it
//! counts against a fixed quota and learns nothing, so that its time is a floor for what a look at one of a million hosts costs.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use fetchwise::Selector;
use fetchwise::pace::{Admit, Response, Cost, Signal, Pace, PaceSettings, Scope};
use fetchwise::registry::FetcherId;
use fetchwise::time::Timestamp;
use governor::{Quota, RateLimiter};

const BEGIN: i64 = 1_790_000_000_000;
const COUNTS: [usize; 3] = [1_000, 100_000, 1_000_000];
/// Every host comes again after at least so long, so that its pace always has a place for it.
const AROUND_MS: i64 = 1_500;
/// The same for hosts that were not asked for more than an hour.
const COLD_AROUND_MS: i64 = 4_000_000;

/// Hosts, and which one comes next.
struct Turns {
    names: Vec<String>,
    next: usize,
}

impl Turns {
    fn new(count: usize) -> Self {
        Self { names: (0..count).map(|number| format!("site{number}.org")).collect(), next: 0 }
    }

    /// The next name, out of order, copied so that it is at hand.
    fn name(&mut self) -> String {
        self.next = (self.next + 7919) % self.names.len();
        self.names[self.next].clone()
    }
}

fn fetcher() -> FetcherId {
    Selector::builder().build().unwrap().candidates().next().unwrap().0
}

/// A request to the host, answered after 200 ms.
fn ask(pace: &Pace, host: &str, answer: &Response, at: i64) {
    // The registrable domain is known to whoever has parsed the URL.
    let scope = Scope { host, site: host, address: None };
    match pace.admit(black_box(scope), Cost::Plain, Timestamp::from_millis(at)) {
        Admit::Go(permit) => drop(black_box(pace.record_response(permit, answer, Timestamp::from_millis(at + 200)))),
        other => panic!("{host} has to wait: {other:?}"),
    }
}

fn admit_and_done(c: &mut Criterion) {
    let answer = Response { latency: Some(Duration::from_millis(200)), ..Response::new(Signal::Content, fetcher()) };
    let mut group = c.benchmark_group("pace, admit and done");
    for (kind, around) in [("asked", AROUND_MS), ("cold", COLD_AROUND_MS)] {
        for count in COUNTS {
            let (pace, mut turns, mut now) = (Pace::new(PaceSettings::default()), Turns::new(count), BEGIN);
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
