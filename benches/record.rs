//! Recording an attempt, for development: in memory, and with a journal at each durability.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fetchwise::attempt::Attempt;
use fetchwise::journal::{Durability, Journal, JournalOptions, OpenCheck};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use url::Url;

const ATTEMPTS: usize = 1_000;

fn attempts(now: Timestamp) -> Vec<Attempt> {
    let url = |n: usize| {
        Url::parse(&format!("https://www.site{n}.org/section{}/page-{n}", n % 7)).unwrap()
    };
    (0..ATTEMPTS)
        .map(|n| Attempt::new(&url(n), "direct_access", now).unwrap().delivered())
        .collect()
}

/// A thousand at a time, until all are acknowledged.
fn record(c: &mut Criterion) {
    let (selector, attempts) =
        (Selector::builder().without_pace().build().unwrap(), attempts(Timestamp::now()));
    let mut group = c.benchmark_group("record");
    group
        .throughput(Throughput::Elements(ATTEMPTS as u64))
        .measurement_time(Duration::from_secs(3))
        .sample_size(30);
    group.bench_function("memory only", |b| {
        b.iter(|| attempts.iter().for_each(|attempt| selector.observe(black_box(attempt))));
    });
    let interval = Durability::Interval(Duration::from_millis(100));
    for durability in [Durability::Memory, Durability::Os, interval, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let options = JournalOptions::default().durability(durability).check(OpenCheck::Tail);
        let (journal, _) = Journal::open(dir.path(), options).unwrap();
        group.bench_function(format!("{durability:?}"), |b| {
            b.iter(|| {
                for attempt in &attempts {
                    selector.observe(black_box(attempt));
                    journal.append_attempt(attempt).unwrap();
                }
                journal.settled().wait().unwrap();
            });
        });
        journal.close().unwrap();
    }
    group.finish();
}

criterion_group!(benches, record);
criterion_main!(benches);
