//! The selector's hot path: a decision about a URL, and an attempt recorded in memory. The floor is the parse of the URL.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use fetchwise::attempt::Attempt;
use fetchwise::selector::{Selector, Situation};
use fetchwise::time::Timestamp;
use url::Url;

fn url(n: usize) -> Url {
    Url::parse(&format!("https://www.site{n}.org/section{}/page-{n}", n % 7)).expect("a URL")
}

fn warm(domains: usize, now: Timestamp) -> Selector {
    let selector = Selector::builder().build().expect("defaults");
    for n in 0..domains {
        for fetcher in ["direct_access", "playwright"] {
            let attempt = Attempt::new(&url(n), fetcher, now).expect("fetchable").delivered();
            selector.record(attempt, now).expect("no sink");
        }
    }
    selector
}

fn select(c: &mut Criterion) {
    let now = Timestamp::now();
    let mut group = c.benchmark_group("select");
    for domains in [1_000, 100_000, 1_000_000] {
        let selector = warm(domains, now);
        // Every domain in turn, in an order that no prefetcher guesses. The URL has just been parsed, as in a crawler.
        let mut next = 0;
        group.bench_function(BenchmarkId::new("hit", domains), |b| {
            b.iter_batched_ref(
                || {
                    next = (next + 7919) % domains;
                    url(next)
                },
                |url| selector.select(black_box(url), &Situation::first(now)),
                BatchSize::NumIterations(64),
            );
        });
        let unknown = Url::parse("https://nobody.example/a/b.html").expect("a URL");
        group.bench_function(BenchmarkId::new("miss", domains), |b| {
            b.iter(|| selector.select(black_box(&unknown), &Situation::first(now)));
        });
    }
    group.bench_function("url parse alone", |b| {
        b.iter(|| Url::parse(black_box("https://www.site12.org/section5/page-12")))
    });
    group.finish();
}

fn record(c: &mut Criterion) {
    let now = Timestamp::now();
    let selector = warm(1_000, now);
    let attempts: Vec<Attempt> =
        (0..1_000).map(|n| Attempt::new(&url(n), "direct_access", now).expect("fetchable").delivered()).collect();
    let mut next = 0;
    c.bench_function("observe in memory", |b| {
        b.iter(|| {
            next = (next + 1) % attempts.len();
            selector.observe(black_box(&attempts[next]));
        });
    });
}

criterion_group!(benches, select, record);
criterion_main!(benches);
