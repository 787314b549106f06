//! Starts, for development: a log read with checksums only, inspected, replayed, and from a
//! snapshot; and the costs of a snapshot and a compaction. `make bench-report` measures the same
//! for more sizes, per core and against targets.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::CompactOptions;
use fetchwise::journal::{self, Durability, Journal, JournalOptions};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::Reader;
use tempfile::TempDir;

const ATTEMPTS: u64 = 200_000;
const DOMAINS: u64 = 20_000;

fn selector() -> Selector {
    Selector::builder().without_pace().build().unwrap()
}

/// The attempts cover the last 150 days, so that a compaction drops some.
fn attempt(n: u64, now: Timestamp) -> Attempt {
    let text = format!(
        "https://www.site{}.org/section{}/page-{n}.html",
        n.wrapping_mul(0x9E37_79B9) % DOMAINS,
        n % 3
    );
    let age = n % 150 * 86_400_000;
    let at = Timestamp::from_millis(now.as_millis() - age as i64);
    let fetcher = if n.is_multiple_of(3) { "playwright" } else { "direct_access" };
    let attempt = Attempt::new(&url::Url::parse(&text).unwrap(), fetcher, at).unwrap();
    if n.is_multiple_of(9) {
        attempt.failed(ErrorKind::BlockedCaptcha)
    } else {
        attempt.delivered()
    }
}

fn written(now: Timestamp, packs: bool) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let options = JournalOptions::default().durability(Durability::Os).pack(packs);
    let (journal, _) = Journal::open(dir.path(), options).unwrap();
    for n in 0..ATTEMPTS {
        journal.append_attempt(&attempt(n, now)).unwrap();
    }
    journal.close().unwrap();
    dir
}

fn copy_of(dir: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

fn take_snapshot(dir: &Path, now: Timestamp) {
    maintenance::snapshot(dir, &selector(), now, &mut |_, _| {}).unwrap();
}

fn starts(c: &mut Criterion) {
    let now = Timestamp::now();
    let (records, log) = (written(now, false), written(now, true));
    let dir = log.path();
    let load = |attempts: u64| {
        let selector = selector();
        assert_eq!(journal::load(dir, &selector, now).unwrap().replayed.attempts, attempts);
        selector
    };
    let mut group = c.benchmark_group("start");
    group
        .throughput(Throughput::Elements(ATTEMPTS))
        .measurement_time(Duration::from_secs(3))
        .sample_size(10);
    group.bench_function("checksums of records only", |b| {
        b.iter(|| {
            let reader = Reader::open(records.path()).unwrap();
            let summary = reader.for_each(|_, record| _ = black_box(record.kind)).unwrap();
            assert_eq!(summary.records, ATTEMPTS);
        });
    });
    group.bench_function("survey", |b| b.iter(|| journal::survey(dir).unwrap()));
    // The evidence is freed outside of the measured time.
    group.bench_function("replay", |b| b.iter_with_large_drop(|| load(ATTEMPTS)));
    take_snapshot(dir, now);
    group.throughput(Throughput::Elements(DOMAINS));
    group.bench_function("snapshot load", |b| b.iter_with_large_drop(|| load(0)));
    group.finish();
}

fn maintenance(c: &mut Criterion) {
    let now = Timestamp::now();
    let log = written(now, true);
    let mut group = c.benchmark_group("maintenance");
    group
        .throughput(Throughput::Elements(ATTEMPTS))
        .measurement_time(Duration::from_secs(3))
        .sample_size(10);
    let fresh = || copy_of(log.path());
    group.bench_function("snapshot", |b| {
        b.iter_batched_ref(fresh, |dir| take_snapshot(dir.path(), now), BatchSize::PerIteration);
    });
    group.bench_function("compact", |b| {
        b.iter_batched_ref(
            fresh,
            |dir| {
                let compact = CompactOptions::default();
                let done =
                    maintenance::compact(dir.path(), &selector(), &compact, now, &mut |_, _| {})
                        .unwrap();
                assert!(done.attempts.1 < done.attempts.0);
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, starts, maintenance);
criterion_main!(benches);
