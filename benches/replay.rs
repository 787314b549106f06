//! How fast a start is: a replay of the whole log, and of a snapshot, against reading the same bytes with their checksums only.
//!
//! `cargo bench --bench replay` prints one line a measurement, the best and the worst of three rounds; `FETCHWISE_BENCH_ATTEMPTS`
//! (1 million) sets the size of the log and `FETCHWISE_BENCH_DOMAINS` (100 thousand) how many domains are in it.
#![allow(clippy::unwrap_used, reason = "a bench that meets an error has failed")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use fetchwise::attempt::Attempt;
use fetchwise::attempt::outcome::ErrorKind;
use fetchwise::journal::maintain::{self, CompactOptions};
use fetchwise::journal::{self, Durability, Journal, Options};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::Reader;

const ROUNDS: usize = 3;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn selector() -> Selector {
    Selector::builder().build().unwrap()
}

fn attempt(n: u64, domains: u64, now: Timestamp) -> Attempt {
    let text = format!("https://www.site{}.org/section{}/page-{n}.html", n.wrapping_mul(0x9E37_79B9) % domains, n % 3);
    let age = n % 150 * 86_400_000;
    let at = Timestamp::from_millis(now.as_millis() - age as i64);
    let fetcher = if n.is_multiple_of(3) { "playwright" } else { "direct_access" };
    let attempt = Attempt::new(&url::Url::parse(&text).unwrap(), fetcher, at).unwrap();
    if n.is_multiple_of(9) { attempt.failed(ErrorKind::BlockedCaptcha) } else { attempt.delivered() }
}

/// Runs `f` a few times and prints its rate. Returns the best time.
fn measure<T>(what: &str, records: u64, bytes: u64, mut f: impl FnMut() -> T) -> Duration {
    let times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let made = f();
            let time = start.elapsed();
            // Giving it back is no part of a start.
            drop(made);
            time
        })
        .collect();
    let (best, worst) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
    let rate = |amount: u64| amount as f64 / best.as_secs_f64();
    println!(
        "{what:<52} {:>8.2} M records/s {:>7.2} GB/s   best {best:>9.2?}   worst {worst:>9.2?}",
        rate(records) / 1e6,
        rate(bytes) / 1e9
    );
    best
}

fn segment_bytes(dir: &Path) -> u64 {
    Reader::open(dir).unwrap().segments().map(|segment| segment.bytes).sum()
}

fn main() {
    let (attempts, domains) =
        (setting("FETCHWISE_BENCH_ATTEMPTS", 1_000_000), setting("FETCHWISE_BENCH_DOMAINS", 100_000));
    let (tmp, now) = (tempfile::tempdir().unwrap(), Timestamp::now());
    let dir = tmp.path();
    let start = Instant::now();
    let (journal, _) = Journal::open(dir, Options { durability: Durability::Os, ..Options::default() }).unwrap();
    for n in 0..attempts {
        journal.append_attempt(&attempt(n, domains, now)).unwrap();
    }
    journal.close().unwrap();
    let bytes = segment_bytes(dir);
    println!("{attempts} attempts at {domains} domains, {bytes} bytes, written in {:.2?}", start.elapsed());

    let floor = measure("read with checksums only", attempts, bytes, || {
        let summary = Reader::open(dir)
            .unwrap()
            .for_each(|_, record| {
                black_box(record.kind);
            })
            .unwrap();
        assert_eq!(summary.records, attempts);
    });
    let whole = measure("start without a snapshot (every record learned from)", attempts, bytes, || {
        let selector = selector();
        let loaded = journal::load(dir, &selector, now).unwrap();
        assert_eq!(loaded.replayed.attempts, attempts);
        selector
    });
    println!("    {:.0} % of reading alone", 100.0 * floor.as_secs_f64() / whole.as_secs_f64());
    measure("survey (names of fetchers)", attempts, bytes, || drop(journal::survey(dir).unwrap()));

    let begun = Instant::now();
    let taken = maintain::snapshot(dir, &selector(), now, &mut |_, _| {}).unwrap();
    println!(
        "snapshot of {} keys and {} cells, {} bytes, taken in {:.2?}",
        taken.entries,
        taken.cells,
        taken.bytes,
        begun.elapsed()
    );
    let snapshot = measure("start from the snapshot", attempts, taken.bytes, || {
        let selector = selector();
        let loaded = journal::load(dir, &selector, now).unwrap();
        assert_eq!(loaded.replayed.attempts, 0);
        selector
    });
    println!(
        "    {:.1} times faster than without; {:.2} M domains/s",
        whole.as_secs_f64() / snapshot.as_secs_f64(),
        domains as f64 / snapshot.as_secs_f64() / 1e6
    );
    let begun = Instant::now();
    let done = maintain::compact(dir, &selector(), &CompactOptions::default(), now, &mut |_, _| {}).unwrap();
    println!(
        "compaction: {} -> {} attempts, {} -> {} bytes in {:.2?}",
        done.attempts.0,
        done.attempts.1,
        done.bytes.0,
        done.bytes.1,
        begun.elapsed()
    );
}
