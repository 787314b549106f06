//! A store of many small entries: time of puts, merges and reads, bytes on disk and in memory.
//!
//! `cargo bench -p fetchwise-cold` prints one line per measurement. `FETCHWISE_BENCH_ENTRIES` sets
//! the number of entries (default: a million), each of 80 bytes. Reads come from the system's cache
//! unless their line says otherwise.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that meets an error has failed")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::Criterion;
use fetchwise_cold::{ColdOptions, ColdStore, Error};
use fetchwise_log::fs::{Fs, RealFs};

const VALUE: usize = 80;
const LARGE: f64 = 1e8;

fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn line(what: &str, time: Duration, entries: u64) {
    println!(
        "{what:<44} {:>10.3} s {:>10.3} us an entry",
        time.as_secs_f64(),
        time.as_secs_f64() * 1e6 / entries as f64
    );
}

fn timed<R>(run: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    let result = run();
    (result, start.elapsed())
}

/// Fills a store, and prints what that took. Returns it with its entries merged as far as is due.
fn fill(dir: &Path, entries: u64) -> ColdStore {
    let store = ColdStore::open(dir, ColdOptions::default()).unwrap();
    let ((), put) =
        timed(|| (0..entries).for_each(|n| store.put(key(n), &[n as u8; VALUE]).unwrap()));
    line("put, full buffers written and synced", put, entries);
    let mut longest = Duration::ZERO;
    let ((), merged) = timed(|| {
        loop {
            let (is_more_due, step) = timed(|| store.maintain().unwrap());
            longest = longest.max(step);
            if !is_more_due {
                break;
            }
        }
    });
    line("merge", merged, entries);
    println!("{:<44} {longest:>10.1?}", "longest step of it");
    line("checkpoint", timed(|| store.checkpoint(b"bench").unwrap()).1, entries);
    sizes(&store, entries, put, merged);
    store
}

fn sizes(store: &ColdStore, entries: u64, put: Duration, merged: Duration) {
    let stats = store.stats();
    let [disk, memory] =
        [stats.disk_bytes as f64, stats.index_bytes as f64].map(|bytes| bytes / entries as f64);
    println!("{:<44} {disk:>10.2} bytes an entry of 8 + {VALUE}, {} runs", "on disk", stats.runs);
    println!("{:<44} {memory:>10.3} bytes an entry", "index and filters in memory");
    // Four runs make one of the next tier, up from a buffer.
    let passes = (LARGE * VALUE as f64 / ColdOptions::default().buffer_bytes as f64).log(4.0);
    let [put, pass] = [put, merged].map(|time| time.as_secs_f64() / entries as f64 * LARGE / 60.0);
    println!(
        "by the same slope, 1e8 entries: {:.2} GB on disk, {:.0} MB of index and filters, {put:.1} min of puts, \
         {pass:.1} min for each of {passes:.1} passes of merges",
        disk * LARGE / 1e9,
        memory * LARGE / 1e6,
    );
}

/// Reads some entries from the disk itself, as far as the system drops its cache when asked to.
fn read_uncached(store: &ColdStore, dir: &Path, entries: u64) {
    for file in std::fs::read_dir(dir).unwrap() {
        RealFs.open(&file.unwrap().path()).unwrap().drop_cache();
    }
    let reads = 2000;
    let step = entries / reads + 1;
    let (found, time) = timed(|| {
        (0..reads).filter(|n| store.get(key(n * step), <[u8]>::len).unwrap().is_some()).count()
    });
    line("get, hit, after the cache was dropped", time, found as u64);
}

fn main() {
    let entries = std::env::var("FETCHWISE_BENCH_ENTRIES")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(1_000_000);
    let dir = tempfile::tempdir().unwrap();
    let store = fill(dir.path(), entries);
    let mut bytes = 0;
    let iteration = timed(|| {
        store.for_each_sorted(0..=u64::MAX, |_, value| {
            bytes += value.len();
            Ok::<_, Error>(())
        })
    });
    iteration.0.unwrap();
    assert_eq!(bytes as u64, entries * VALUE as u64);
    line("iterate over all, sorted", iteration.1, entries);
    drop(store);
    let (store, opening) = timed(|| ColdStore::open(dir.path(), ColdOptions::default()).unwrap());
    line("open", opening, entries);
    read_uncached(&store, dir.path(), entries);

    let mut criterion = Criterion::default().configure_from_args();
    let mut n = 0_u64;
    criterion.bench_function("get, hit", |b| {
        b.iter(|| {
            // Any order: neighbours in time are no neighbours on disk.
            n = n.wrapping_add(0x5851_f42d_4c95_7f2d);
            black_box(store.get(key(n % entries), <[u8]>::len).unwrap()).unwrap()
        });
    });
    criterion.bench_function("get, miss", |b| {
        b.iter(|| {
            n += 1;
            assert!(
                store.get(black_box(key(entries + n % (1 << 40))), <[u8]>::len).unwrap().is_none()
            );
        });
    });
    criterion.final_summary();
}
