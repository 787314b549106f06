//! Starting: a log read with checksums only, replayed in whole, from a snapshot; and compaction.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use fetchwise::attempt::Attempt;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::CompactOptions;
use fetchwise::journal::{self, Durability, Journal};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::Reader;

use crate::Scale;
use crate::book::Section;
use crate::measure::{best, cpu_time};
use crate::record::options;
use crate::text;
use crate::traffic::{self, Shape};

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Starting: replay, snapshot, compaction");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    section.text(format!(
        "The log has attempts at its sites in random order, over the last 150 days. It is in the page cache. \
         *Checksums only* reads the same segments frame by frame on one thread and decodes nothing. *Replayed* is a \
         start without a snapshot, on {cores} threads. *Per core* divides by the processor time, so it is the rate of \
         one core. The best of three runs counts.",
    ));
    let mut rows = Vec::new();
    for &sites in scale.pick(&[1_000, 10_000][..], &[10_000, 100_000, 1_000_000, 5_000_000]) {
        // At least two attempts per site, so that all sites occur.
        let attempts = scale.pick(20_000, 1_000_000).max(2 * sites);
        let log = Log::write(attempts, sites);
        let measured = log.replay();
        section.point("replay, ns per attempt", sites as f64, measured.elapsed * 1e9 / attempts as f64);
        section.point("checksums only, ns per attempt", sites as f64, measured.floor * 1e9 / attempts as f64);
        rows.push(measured.row(attempts, sites));
        if sites >= scale.pick(1_000, 100_000) {
            targets(&mut section, &measured, attempts, &text::size(sites));
        }
    }
    let lengths: &[usize] = match scale {
        Scale::Quick => &[10_000, 40_000],
        Scale::Normal => &[1_000_000, 10_000_000],
        Scale::Full => &[1_000_000, 10_000_000, 50_000_000],
    };
    let sites = scale.pick(1_000, 100_000);
    for &attempts in lengths {
        let log = Log::write(attempts, sites);
        let measured = log.replay();
        section.point("replay by length, ns per attempt", attempts as f64, measured.elapsed * 1e9 / attempts as f64);
        section.point("append by length, ns per attempt", attempts as f64, log.written * 1e9 / attempts as f64);
        rows.push(measured.row(attempts, sites));
    }
    let head = [
        "attempts",
        "sites",
        "log",
        "checksums only",
        "replayed",
        "per core, checksums",
        "per core, replayed",
        "share of the checksum rate",
    ];
    section.table(&head, rows);
    if scale != Scale::Full {
        section
            .text("This run leaves out a log of 50 M attempts, which takes minutes. `--full` writes and replays one.");
    }
    snapshots(&mut section, scale);
    section
}

struct Log {
    dir: tempfile::TempDir,
    attempts: usize,
    bytes: u64,
    now: Timestamp,
    /// The seconds of the appends, until synced.
    written: f64,
}

struct Measured {
    bytes: u64,
    /// Seconds of elapsed time and of processor time.
    floor: f64,
    floor_cpu: f64,
    elapsed: f64,
    cpu: f64,
}

impl Log {
    fn write(attempts: usize, sites: usize) -> Self {
        eprintln!("  a log of {} attempts at {} sites", text::size(attempts), text::size(sites));
        let (dir, now) = (tempfile::tempdir().unwrap(), Timestamp::now());
        let (journal, _) = Journal::open(dir.path(), options(Durability::Os)).unwrap();
        let mut written = 0.0;
        let mut chunk: Vec<Attempt> = Vec::new();
        for from in (0..attempts).step_by(100_000) {
            chunk.clear();
            chunk.extend((from..attempts.min(from + 100_000)).map(|n| attempt(n, sites, now)));
            let begun = Instant::now();
            chunk.iter().for_each(|attempt| _ = journal.append_attempt(attempt).unwrap());
            journal.settled().wait().unwrap();
            written += begun.elapsed().as_secs_f64();
        }
        let begun = Instant::now();
        journal.close().unwrap();
        written += begun.elapsed().as_secs_f64();
        let bytes = segment_bytes(dir.path());
        Self { dir, attempts, bytes, now, written }
    }

    fn replay(&self) -> Measured {
        let (mut floor_cpu, mut cpu) = (f64::MAX, f64::MAX);
        let floor = best(3, || {
            timed(&mut floor_cpu, || {
                let reader = Reader::open(self.dir.path()).unwrap();
                let summary = reader.for_each(|_, record| _ = black_box(record.kind)).unwrap();
                assert_eq!(summary.records, self.attempts as u64);
            })
        });
        let elapsed = best(3, || {
            let selector = Selector::builder().build().unwrap();
            timed(&mut cpu, || {
                let loaded = journal::load(self.dir.path(), &selector, self.now).unwrap();
                assert_eq!(loaded.replayed.attempts, self.attempts as u64);
            })
        });
        Measured { bytes: self.bytes, floor, floor_cpu, elapsed, cpu }
    }
}

/// Returns the seconds of `f`; its least processor time goes to `cpu`.
fn timed(cpu: &mut f64, f: impl FnOnce()) -> f64 {
    let (used, begun) = (cpu_time(), Instant::now());
    f();
    *cpu = cpu.min((cpu_time() - used).as_secs_f64());
    begun.elapsed().as_secs_f64()
}

fn attempt(n: usize, sites: usize, now: Timestamp) -> Attempt {
    let site = n.wrapping_mul(0x9E37_79B9) % sites;
    let at = Timestamp::from_millis(now.as_millis() - (n % 150) as i64 * 86_400_000);
    let shape = if n.is_multiple_of(4) { Shape::Html } else { Shape::Plain };
    traffic::attempt(site, n, usize::from(n.is_multiple_of(3)), shape, at)
}

fn segment_bytes(dir: &Path) -> u64 {
    Reader::open(dir).unwrap().segments().map(|segment| segment.bytes).sum()
}

impl Measured {
    /// Returns the one-core rate of replay as a share of that of checksums.
    fn share(&self) -> f64 {
        self.floor_cpu / self.cpu
    }

    fn row(&self, attempts: usize, sites: usize) -> Vec<String> {
        let rate = |seconds: f64| text::rate(attempts as f64 / seconds);
        let of = |seconds: f64| format!("{}, {}", rate(seconds), text::speed(self.bytes as f64 / seconds));
        vec![
            text::size(attempts),
            text::size(sites),
            text::bytes(self.bytes as f64),
            of(self.floor),
            of(self.elapsed),
            rate(self.floor_cpu),
            rate(self.cpu),
            format!("{:.0} %", 100.0 * self.share()),
        ]
    }
}

fn targets(section: &mut Section, measured: &Measured, attempts: usize, sites: &str) {
    let a_core = attempts as f64 / measured.cpu;
    section.target(
        &format!("replay, per core, {sites} sites"),
        "at least 2 M attempts/s",
        text::rate(a_core),
        a_core >= 2e6,
    );
    section.target(
        &format!("replay against checksums only, per core, {sites} sites"),
        "at least 10 %",
        format!("{:.0} %", 100.0 * measured.share()),
        measured.share() >= 0.1,
    );
    section.limit(
        &format!("reading a log, {sites} sites"),
        "replayed",
        "checksums only",
        measured.share(),
        "the lower bound decodes nothing",
    );
}

fn snapshots(section: &mut Section, scale: Scale) {
    let mut rows = Vec::new();
    for &sites in scale.pick(&[1_000, 10_000][..], &[100_000, 1_000_000]) {
        let log = Log::write(sites * 2, sites);
        let dir = log.dir.path();
        let begun = Instant::now();
        let selector = Selector::builder().build().unwrap();
        // The last segment has been read then, and at most a few batches of it are still being folded.
        let mut folded = 0.0;
        let taken =
            maintenance::snapshot(dir, &selector, log.now, &mut |_, _| folded = begun.elapsed().as_secs_f64()).unwrap();
        drop(selector);
        let took = begun.elapsed().as_secs_f64();
        let mut cpu = f64::MAX;
        let load = best(3, || {
            let selector = Selector::builder().build().unwrap();
            timed(&mut cpu, || {
                let loaded = journal::load(dir, &selector, log.now).unwrap();
                assert_eq!(loaded.replayed.attempts, 0);
            })
        });
        let begun = Instant::now();
        let selector = Selector::builder().build().unwrap();
        let done = maintenance::compact(dir, &selector, &CompactOptions::default(), log.now, &mut |_, _| {}).unwrap();
        let compact = begun.elapsed().as_secs_f64();
        rows.push(vec![
            text::size(sites),
            text::bytes(taken.bytes as f64),
            text::ns(took * 1e9),
            text::ns(folded * 1e9),
            text::ns(load * 1e9),
            text::rate(sites as f64 / cpu),
            format!("{} of {} attempts", text::count(done.attempts.1 as f64), text::count(done.attempts.0 as f64)),
            text::ns(compact * 1e9),
        ]);
        section.point("snapshot load, ns per site", sites as f64, load * 1e9 / sites as f64);
        if sites == scale.pick(10_000, 1_000_000) {
            section.target(
                &format!("loading a snapshot of {} sites", text::size(sites)),
                "at most 1 s",
                text::ns(load * 1e9),
                load <= 1.0,
            );
        }
    }
    section.text("Snapshots by the number of sites, with two attempts each, and a compaction of their log:");
    let head = [
        "sites",
        "snapshot",
        "taken in",
        "of that folding",
        "loaded in",
        "per core, sites",
        "compaction keeps",
        "compacted in",
    ];
    section.table(&head, rows);
}
