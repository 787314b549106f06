//! Throughput of appends, syncs and replays, compared with reading the same bytes with a checksum
//! only.
//!
//! `cargo bench -p fetchwise-log` prints one line per measurement. `FETCHWISE_BENCH_RECORDS` sets
//! the size of the replayed log (default: 2 million records of 263 bytes).
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use fetchwise_log::{Durability, Log, LogOptions, OpenCheck, Reader, Record};

const PAYLOAD: usize = 263;

fn options(durability: Durability) -> LogOptions {
    let mut options = LogOptions::default();
    options.durability = durability;
    options.check = OpenCheck::Tail;
    options
}

fn record(payload: &[u8], key_hash: u64) -> Record<'_> {
    Record { kind: 1, schema: 1, key_hash, time_ms: 0, payload }
}

fn rate(what: &str, records: u64, bytes: u64, time: Duration) {
    let seconds = time.as_secs_f64();
    let (millions, gigabytes) = (records as f64 / seconds / 1e6, bytes as f64 / seconds / 1e9);
    println!("{what:<58} {millions:>8.3} M records/s {gigabytes:>8.3} GB/s");
}

fn fill(dir: &Path, records: u64) {
    let (log, _) = Log::open(dir, options(Durability::Os)).unwrap();
    let payload = [7; PAYLOAD];
    let start = Instant::now();
    for i in 0..records {
        log.append(record(&payload, i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).unwrap();
    }
    log.flush().wait().unwrap();
    rate(
        "append, one thread, flushed at the end",
        records,
        records * PAYLOAD as u64,
        start.elapsed(),
    );
    let metrics = log.metrics();
    println!(
        "    {} frames, {} syncs, {} appends waited for room",
        metrics.frames, metrics.syncs, metrics.blocked
    );
    log.close().unwrap();
}

fn acknowledged(durability: Durability, threads: u64, in_flight: u64, time: Duration) {
    let tmp = tempfile::tempdir().unwrap();
    let (log, _) = Log::open(tmp.path(), options(durability)).unwrap();
    let start = Instant::now();
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let payload = [7; PAYLOAD];
                    let mut waits = Vec::new();
                    while start.elapsed() < time {
                        let asked = Instant::now();
                        let tickets: Vec<_> = (0..in_flight)
                            .map(|i| log.append(record(&payload, i)).unwrap())
                            .collect();
                        log.wait(tickets[tickets.len() - 1]).unwrap();
                        waits.push(asked.elapsed());
                    }
                    waits
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let elapsed = start.elapsed();
    waits.sort_unstable();
    let records = waits.len() as u64 * in_flight;
    rate(
        &format!("{durability:?}, {threads} threads with {in_flight} in flight"),
        records,
        0,
        elapsed,
    );
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    let syncs = log.metrics().syncs;
    println!("    wait p50 {:?}, p99 {:?}, max {:?}; {syncs} syncs", at(0.5), at(0.99), at(1.0));
}

fn replay(dir: &Path) {
    let reader = Reader::open(dir).unwrap();
    let files: Vec<_> = reader.segments().map(|s| dir.join(s.file)).collect();
    let start = Instant::now();
    let (mut bytes, mut crc) = (0u64, 0);
    let mut buf = vec![0; 1 << 20];
    for file in &files {
        let mut file = File::open(file).unwrap();
        loop {
            let read = file.read(&mut buf).unwrap();
            if read == 0 {
                break;
            }
            crc = crc32c::crc32c_append(crc, &buf[..read]);
            bytes += read as u64;
        }
    }
    let floor = start.elapsed();
    std::hint::black_box(crc);
    let start = Instant::now();
    let mut sum = 0u64;
    let summary = reader
        .for_each(|seq, r| sum = sum.wrapping_add(seq ^ r.key_hash ^ u64::from(r.payload[9])))
        .unwrap();
    std::hint::black_box(sum);
    let one = start.elapsed();
    rate("read and CRC alone", summary.records, bytes, floor);
    rate("replay, one thread", summary.records, bytes, one);
    let start = Instant::now();
    let fold = |sum: &mut u64, seq: u64, r: fetchwise_log::RecordRef<'_>| {
        *sum = sum.wrapping_add(seq ^ r.key_hash)
    };
    reader.for_each_sharded(0, vec![0u64; 2], |_, _| {}, fold, |_| {}).unwrap();
    rate("replay, two shards and a reading thread", summary.records, bytes, start.elapsed());
    let start = Instant::now();
    Log::open(dir, options(Durability::Os)).unwrap();
    println!("open for writing, last segment checked: {:?}", start.elapsed());
}

fn main() {
    let records = std::env::var("FETCHWISE_BENCH_RECORDS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(2_000_000);
    let tmp = tempfile::tempdir().unwrap();
    fill(tmp.path(), records);
    replay(tmp.path());
    let time = Duration::from_secs(2);
    for durability in
        [Durability::Os, Durability::Interval(Duration::from_millis(100)), Durability::Sync]
    {
        acknowledged(durability, 1, 1, time);
        acknowledged(durability, 64, 64, time);
    }
}
