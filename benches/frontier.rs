//! A step of the scheduler of a crawl: the next link whose host is ready, and its end or its
//! return, among many hosts and many more links.
//!
//! A step must not depend on the number of links that wait. With a thousand hosts, all that a step
//! touches fits into the caches of a processor, so its time shows what the algorithm costs. With a
//! hundred thousand, each step meets a host that is in no cache, and reads and writes its queue at
//! two further places: the first link of a long queue is far from its last one, and memory, not the
//! algorithm, makes the difference. `lab/long_list.py` measures the memory of the whole program.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fetchwise::time::Timestamp;
use fetchwise_crawl::frontier::{Frontier, PlaceUse, QueuedLink};

/// Links that a crawl has open at once.
const PLACES: usize = 64;
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// Hosts, and links of each.
const SIZES: [(u64, u64); 6] =
    [(1_000, 10), (1_000, 1_000), (1_000, 10_000), (100_000, 1), (100_000, 10), (100_000, 100)];

/// Returns a frontier in which the hosts take turns in the list.
fn frontier(hosts: u64, links: u64) -> Frontier {
    let mut frontier = Frontier::new(None, PLACES);
    let names: Vec<String> = (0..hosts).map(|host| format!("site{host}.example.org")).collect();
    for number in 0..hosts * links {
        let link = QueuedLink { offset: number * 60, line: number + 1, number, refused: 0 };
        frontier.push(&names[(number * 7919 % hosts) as usize], link);
    }
    frontier
}

/// A link starts and ends, and one more of its host comes in, so that the number of links stays the
/// same. Every fourth one has to wait for its host instead.
fn step(frontier: &mut Frontier, number: u64) {
    let now = BEGIN.saturating_add(Duration::from_millis(number));
    let (host, link) = frontier.pop(black_box(now)).unwrap();
    if number.is_multiple_of(4) {
        frontier.back(host, link, now.saturating_add(Duration::from_millis(900)));
    } else {
        let name = Arc::clone(frontier.name(host));
        frontier.push(&name, link);
        frontier.ended(host, PlaceUse::Prompt);
    }
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("frontier, step");
    for (hosts, links) in SIZES {
        let (mut frontier, mut number) = (frontier(hosts, links), 0);
        group.bench_function(BenchmarkId::new(format!("{hosts} hosts"), hosts * links), |b| {
            b.iter(|| {
                number += 1;
                step(&mut frontier, number);
            });
        });
    }
    group.finish();
}

/// A link that was read goes into the queue of its host.
fn push(c: &mut Criterion) {
    let mut group = c.benchmark_group("frontier, push");
    for hosts in [1_000, 100_000] {
        let names: Vec<String> = (0..hosts).map(|host| format!("site{host}.example.org")).collect();
        let (mut frontier, mut number) = (Frontier::new(None, PLACES), 0);
        group.bench_function(BenchmarkId::from_parameter(format!("{hosts} hosts")), |b| {
            b.iter(|| {
                number += 1;
                let link = QueuedLink { offset: number * 60, line: number, number, refused: 0 };
                frontier.push(&names[(number * 7919 % hosts) as usize], link);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, steps, push);
criterion_main!(benches);
