//! A new entry in the tables that bound memory: half full, and after ten times as many entries as
//! they keep.
//!
//! The two must cost the same: a table that looks at all it has for each new entry slows a crawl
//! down as soon as it is full. Files of packages that have no such types in public are compiled
//! here as they are.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fetchwise::Selector;
use fetchwise::attempt::Attempt;
use fetchwise::journal::{Journal, JournalOptions};
use fetchwise::time::Timestamp;
use repeated_pages::{PageSighting, RepeatedPages};
use signature_rejections::SignatureRejections;
use time_series::Series;
use url::Url;

#[path = "../crates/serve/src/count_ring.rs"]
#[allow(unused, reason = "the server uses the rest, and its tests run there")]
mod count_ring;
#[path = "../src/state/repeated_pages.rs"]
#[allow(unused, reason = "the library uses the rest, and its tests run there")]
mod repeated_pages;
#[path = "../src/pipeline/signature_rejections.rs"]
#[allow(unused, reason = "the library uses the rest, and its tests run there")]
mod signature_rejections;
#[path = "../crates/serve/src/time_series.rs"]
#[allow(unused, reason = "the server uses the rest, and its tests run there")]
mod time_series;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn attempt(site: usize) -> Attempt {
    let url = Url::parse(&format!("https://site{site}.example/")).unwrap();
    Attempt::new(&url, "direct_access", NOW).unwrap().delivered()
}

/// Measures a quarter of the entries that a table keeps.
fn fill<T>(
    c: &mut Criterion,
    name: &str,
    most: usize,
    make: impl Fn() -> T,
    add: impl Fn(&mut T, usize),
) {
    let mut group = c.benchmark_group("new entries");
    group.sample_size(10).throughput(Throughput::Elements(most as u64 / 4));
    for (state, before) in [("half full", most / 2), ("ten times over", 10 * most)] {
        group.bench_function(BenchmarkId::new(name, state), |b| {
            let filled = || {
                let mut table = make();
                (0..before).for_each(|entry| add(&mut table, entry));
                table
            };
            let add_more = |mut table: T| {
                (before..before + most / 4).for_each(|entry| add(&mut table, entry));
                table
            };
            b.iter_batched(filled, add_more, BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn tables(c: &mut Criterion) {
    let bounded = || Selector::builder().around(NOW).max_keys(20_000).build().unwrap();
    fill(c, "evidence", 20_000, bounded, |selector, site| selector.observe(&attempt(site)));
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let on_disk =
        || Selector::builder().around(NOW).max_keys(20_000).keep_evicted(&journal).build().unwrap();
    fill(c, "evidence that goes to disk", 20_000, on_disk, |selector, site| {
        selector.observe(&attempt(site))
    });
    fill(c, "time series", 20_000, Series::default, |series, site| {
        series.observe(&attempt(site), NOW)
    });
    fill(c, "repeated pages", 10_000, RepeatedPages::default, |pages, site| {
        pages.record(
            &format!("site{site}.example"),
            PageSighting { link: 1, fetcher: 0, simhash: Some(7) },
        );
    });
    fill(c, "signature rejections", 10_000, SignatureRejections::default, |hosts, site| {
        hosts.add(&format!("site{site}.example"));
    });
}

criterion_group!(benches, tables);
criterion_main!(benches);
