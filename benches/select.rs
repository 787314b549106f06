//! One decision, for development: URLs just parsed or as text, known or not, with more heuristics
//! and more fetchers, and while another thread records.
//!
//! The lower bound is the parse of the URL. `make bench-report` measures the same with percentiles,
//! compared with alternatives.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use fetchwise::attempt::Attempt;
use fetchwise::registry::{Class, FetcherSpec};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use url::Url;

fn text(n: usize) -> String {
    format!("https://www.site{n}.org/section{}/page-{n}", n % 7)
}

fn warm(selector: Selector, domains: usize, fetchers: usize, now: Timestamp) -> Selector {
    let names: Vec<String> =
        selector.candidates().take(fetchers).map(|(_, spec)| spec.name.to_string()).collect();
    for n in 0..domains {
        let mut attempt =
            Attempt::new(&Url::parse(&text(n)).unwrap(), "", now).unwrap().delivered();
        for name in &names {
            attempt.fetcher.clone_from(name);
            selector.observe(&attempt);
        }
    }
    selector
}

fn shipped() -> Selector {
    Selector::builder().without_pace().build().unwrap()
}

fn with_fetchers(count: usize) -> Selector {
    let specs = (0..count).map(|n| FetcherSpec::new(&format!("fetcher_{n}"), Class::Unknown));
    specs
        .fold(Selector::builder().without_pace(), |builder, spec| builder.fetcher(spec))
        .build()
        .unwrap()
}

fn by_domains(c: &mut Criterion) {
    let now = Timestamp::now();
    let mut group = c.benchmark_group("select");
    for domains in [1_000, 100_000, 1_000_000] {
        let selector = warm(shipped(), domains, 2, now);
        // Every domain in turn, in an order that no prefetcher guesses. The URL has just been
        // parsed, as in a crawler.
        let mut next = 0;
        let mut turn = || {
            next = (next + 7919) % domains;
            text(next)
        };
        group.bench_function(BenchmarkId::new("hit", domains), |b| {
            b.iter_batched_ref(
                || Url::parse(&turn()).unwrap(),
                |url| selector.select(black_box(url), &SelectContext::first_attempt(now)),
                BatchSize::NumIterations(64),
            );
        });
        group.bench_function(BenchmarkId::new("hit, from text", domains), |b| {
            b.iter_batched_ref(
                &mut turn,
                |text| {
                    selector.select(
                        &Url::parse(black_box(text)).unwrap(),
                        &SelectContext::first_attempt(now),
                    )
                },
                BatchSize::NumIterations(64),
            );
        });
        // As a crawler that takes 16 URLs from its queue: divide by 16 to compare.
        group.bench_function(BenchmarkId::new("16 hits at once", domains), |b| {
            let mut decisions = Vec::with_capacity(16);
            b.iter_batched_ref(
                || (0..16).map(|_| Url::parse(&turn()).unwrap()).collect::<Vec<Url>>(),
                |urls| {
                    decisions.clear();
                    selector.select_many(
                        black_box(urls),
                        &SelectContext::first_attempt(now),
                        &mut decisions,
                    );
                },
                BatchSize::NumIterations(64),
            );
        });
        let unknown = Url::parse("https://nobody.example/a/b.html").unwrap();
        group.bench_function(BenchmarkId::new("miss", domains), |b| {
            b.iter(|| selector.select(black_box(&unknown), &SelectContext::first_attempt(now)));
        });
    }
    group.bench_function("url parse alone", |b| {
        b.iter(|| Url::parse(black_box("https://www.site12.org/section5/page-12")))
    });
    group.finish();
}

fn by_heuristics(c: &mut Criterion) {
    let now = Timestamp::now();
    let selector = warm(shipped(), 1_000, 2, now);
    let mut group = c.benchmark_group("select by heuristics");
    for path in ["", "section5/page", "section5/static/api/report.pdf"] {
        let url = Url::parse(&format!("https://www.site12.org/{path}")).unwrap();
        let shown = selector.heuristics(&url).unwrap().len();
        group.bench_function(BenchmarkId::from_parameter(shown), |b| {
            b.iter(|| selector.select(black_box(&url), &SelectContext::first_attempt(now)));
        });
    }
    group.finish();
}

fn by_fetchers(c: &mut Criterion) {
    let now = Timestamp::now();
    let mut group = c.benchmark_group("select by fetchers, all of them seen");
    let url = Url::parse(&text(12)).unwrap();
    for fetchers in [2, 8, 32] {
        let selector = warm(with_fetchers(fetchers), 100, fetchers, now);
        group.bench_function(BenchmarkId::from_parameter(fetchers), |b| {
            b.iter(|| selector.select(black_box(&url), &SelectContext::first_attempt(now)));
        });
    }
    group.finish();
}

/// One thread decides while another records at full speed.
fn mixed(c: &mut Criterion) {
    const DOMAINS: usize = 100_000;
    let now = Timestamp::now();
    let selector = warm(shipped(), DOMAINS, 2, now);
    let attempts: Vec<Attempt> = (0..DOMAINS)
        .map(|n| {
            Attempt::new(&Url::parse(&text(n)).unwrap(), "direct_access", now).unwrap().delivered()
        })
        .collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                attempts.iter().for_each(|attempt| selector.observe(attempt));
            }
        });
        let mut next = 0;
        c.bench_function(&format!("select under recording/hit/{DOMAINS}"), |b| {
            b.iter_batched_ref(
                || {
                    next = (next + 7919) % DOMAINS;
                    Url::parse(&text(next)).unwrap()
                },
                |url| selector.select(black_box(url), &SelectContext::first_attempt(now)),
                BatchSize::NumIterations(64),
            );
        });
    });
}

/// Ends the recording thread in any case, because its scope waits for it.
struct Ending<'d>(&'d AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

criterion_group!(benches, by_domains, by_heuristics, by_fetchers, mixed);
criterion_main!(benches);
