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
use crate::book::{Bound, Section, Unit};
use crate::measure::{best, cpu_time};
use crate::record::options;
use crate::text;
use crate::traffic::{self, Shape};

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Starting: replay, snapshot, compaction");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    section.text(format!(
        "The log has attempts at its sites in random order, over the last 150 days. It is in the page cache. *Records* is a \
         log whose writer packs nothing, and *packed* one whose writer packs each batch, as it does by itself from 256 attempts \
         on. *Checksums only* reads the records frame by frame on one thread and decodes nothing. *Replayed* is a start without \
         a snapshot, on {cores} threads. *Per core* divides by the processor time, so it is the rate of one core. *Share* \
         compares that with the checksums of the records of the same attempts. The best of three runs counts.",
    ));
    let mut rows = Vec::new();
    for &sites in scale.pick(&[1_000, 10_000][..], &[10_000, 100_000, 1_000_000, 5_000_000]) {
        // At least two attempts per site, so that all sites occur.
        let attempts = scale.pick(20_000, 1_000_000).max(2 * sites);
        let both = Both::measure(attempts, sites);
        section.point(
            "replay, ns per attempt",
            sites as f64,
            both.packed.elapsed * 1e9 / attempts as f64,
        );
        section.point(
            "replay of records, ns per attempt",
            sites as f64,
            both.records.elapsed * 1e9 / attempts as f64,
        );
        section.point(
            "checksums only, ns per attempt",
            sites as f64,
            both.floor.elapsed * 1e9 / attempts as f64,
        );
        rows.extend(both.rows(attempts, sites));
        if sites >= scale.pick(1_000, 100_000) {
            both.targets(&mut section, attempts, &text::size(sites));
        }
    }
    let lengths: &[usize] = match scale {
        Scale::Quick => &[10_000, 40_000],
        Scale::Normal => &[1_000_000, 10_000_000],
        Scale::Full => &[1_000_000, 10_000_000, 50_000_000],
    };
    let sites = scale.pick(1_000, 100_000);
    for &attempts in lengths {
        let log = Log::write(attempts, sites, true);
        let replayed = log.replay();
        section.point(
            "replay by length, ns per attempt",
            attempts as f64,
            replayed.elapsed * 1e9 / attempts as f64,
        );
        section.point(
            "append by length, ns per attempt",
            attempts as f64,
            log.written * 1e9 / attempts as f64,
        );
        rows.push(row(attempts, sites, "packed", log.bytes, None, &replayed));
    }
    let head = [
        "attempts",
        "sites",
        "log of",
        "size",
        "per attempt",
        "checksums only",
        "replayed",
        "per core, checksums",
        "per core, replayed",
        "share",
    ];
    section.table(&head, rows);
    if scale != Scale::Full {
        section
            .text("This run leaves out a log of 50 M attempts, which takes minutes. `--full` writes and replays one.");
    }
    diverse(&mut section, scale);
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

/// Seconds of a pass over a log.
struct Pass {
    elapsed: f64,
    cpu: f64,
}

/// The same attempts as records and packed.
struct Both {
    record_bytes: u64,
    packed_bytes: u64,
    /// Reading the records with checksums only.
    floor: Pass,
    records: Pass,
    packed: Pass,
}

impl Log {
    fn write(attempts: usize, sites: usize, packs: bool) -> Self {
        eprintln!("  a log of {} attempts at {} sites", text::size(attempts), text::size(sites));
        let (dir, now) = (tempfile::tempdir().unwrap(), Timestamp::now());
        let (journal, _) = Journal::open(dir.path(), options(Durability::Os).pack(packs)).unwrap();
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

    /// Reads a log of records, and decodes nothing.
    fn checksums(&self) -> Pass {
        let mut cpu = f64::MAX;
        let elapsed = best(3, || {
            timed(&mut cpu, || {
                let reader = Reader::open(self.dir.path()).unwrap();
                let summary = reader.for_each(|_, record| _ = black_box(record.kind)).unwrap();
                assert_eq!(summary.records, self.attempts as u64);
            })
        });
        Pass { elapsed, cpu }
    }

    fn replay(&self) -> Pass {
        let mut cpu = f64::MAX;
        let elapsed = best(3, || {
            let selector = Selector::builder().without_pace().build().unwrap();
            timed(&mut cpu, || {
                let loaded = journal::load(self.dir.path(), &selector, self.now).unwrap();
                assert_eq!(loaded.replayed.attempts, self.attempts as u64);
            })
        });
        Pass { elapsed, cpu }
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

fn row(
    attempts: usize,
    sites: usize,
    of: &str,
    bytes: u64,
    floor: Option<&Pass>,
    replayed: &Pass,
) -> Vec<String> {
    let rate = |seconds: f64| text::rate(attempts as f64 / seconds);
    let floor = |f: &dyn Fn(&Pass) -> String| floor.map_or(String::new(), f);
    vec![
        text::size(attempts),
        text::size(sites),
        of.to_owned(),
        text::bytes(bytes as f64),
        text::bytes(bytes as f64 / attempts as f64),
        floor(&|pass| {
            format!("{}, {}", rate(pass.elapsed), text::speed(bytes as f64 / pass.elapsed))
        }),
        rate(replayed.elapsed),
        floor(&|pass| rate(pass.cpu)),
        rate(replayed.cpu),
        floor(&|pass| format!("{:.0} %", 100.0 * pass.cpu / replayed.cpu)),
    ]
}

impl Both {
    fn measure(attempts: usize, sites: usize) -> Self {
        let log = Log::write(attempts, sites, false);
        let (record_bytes, floor, records) = (log.bytes, log.checksums(), log.replay());
        drop(log);
        let log = Log::write(attempts, sites, true);
        Self { record_bytes, packed_bytes: log.bytes, floor, records, packed: log.replay() }
    }

    fn rows(&self, attempts: usize, sites: usize) -> [Vec<String>; 2] {
        let mut packed = row(attempts, sites, "packed", self.packed_bytes, None, &self.packed);
        if let Some(share) = packed.last_mut() {
            *share = format!("{:.0} %", 100.0 * self.share());
        }
        [
            row(attempts, sites, "records", self.record_bytes, Some(&self.floor), &self.records),
            packed,
        ]
    }

    /// Returns the rate per core of a replay of the packed log as a share of that of the records'
    /// checksums.
    fn share(&self) -> f64 {
        self.floor.cpu / self.packed.cpu
    }

    fn targets(&self, section: &mut Section, attempts: usize, sites: &str) {
        let per_core = |pass: &Pass| attempts as f64 / pass.cpu;
        let what = format!("replay of a packed log, per core, {sites} sites");
        section.goal(&what, Unit::Rate, per_core(&self.packed), Bound::AtLeast(3e6));
        let what =
            format!("replay of a packed log against checksums of records, per core, {sites} sites");
        section.goal(&what, Unit::Fraction, self.share(), Bound::AtLeast(0.25));
        section.figure(
            &format!("replay of records, per core, {sites} sites"),
            Unit::Rate,
            per_core(&self.records),
        );
        let each = |bytes: u64| bytes as f64 / attempts as f64;
        let what = format!("disk per attempt, packed, {sites} sites");
        section.goal(&what, Unit::Bytes, each(self.packed_bytes), Bound::AtMost(60.0));
        section.figure(
            &format!("disk per attempt, records, {sites} sites"),
            Unit::Bytes,
            each(self.record_bytes),
        );
        section.limit(
            &format!("reading a log, {sites} sites"),
            "packed and replayed",
            "checksums of records only",
            self.share(),
            "the lower bound decodes nothing",
        );
    }
}

/// Measures the size of attempts whose URLs have little in common, with response headers.
fn diverse(section: &mut Section, scale: Scale) {
    let (dir, count, now) =
        (tempfile::tempdir().unwrap(), scale.pick(5_000, 200_000), Timestamp::now());
    let (journal, _) = Journal::open(dir.path(), options(Durability::Os)).unwrap();
    let attempts: Vec<Attempt> = (0..count).map(|n| traffic::diverse(n, now)).collect();
    let url_bytes: usize = attempts.iter().map(|attempt| attempt.url.len()).sum();
    attempts.iter().for_each(|attempt| _ = journal.append_attempt(attempt).unwrap());
    journal.close().unwrap();
    let each = segment_bytes(dir.path()) as f64 / count as f64;
    section.text(format!(
        "{} attempts at as many sites, with URLs of {} on average and one or two response headers, take {} each when packed.",
        text::size(count),
        text::bytes(url_bytes as f64 / count as f64),
        text::bytes(each)
    ));
    section.goal(
        "disk per attempt, packed, diverse URLs and headers",
        Unit::Bytes,
        each,
        Bound::AtMost(100.0),
    );
}

fn snapshots(section: &mut Section, scale: Scale) {
    let mut rows = Vec::new();
    for &sites in scale.pick(&[1_000, 10_000][..], &[100_000, 1_000_000]) {
        let log = Log::write(sites * 2, sites, true);
        let dir = log.dir.path();
        let begun = Instant::now();
        let selector = Selector::builder().without_pace().build().unwrap();
        // The last segment has been read then, and at most a few batches of it are still being
        // folded.
        let mut folded = 0.0;
        let taken = maintenance::snapshot(dir, &selector, log.now, &mut |_, _| {
            folded = begun.elapsed().as_secs_f64()
        })
        .unwrap();
        drop(selector);
        let took = begun.elapsed().as_secs_f64();
        let mut cpu = f64::MAX;
        let load = best(3, || {
            let selector = Selector::builder().without_pace().build().unwrap();
            timed(&mut cpu, || {
                let loaded = journal::load(dir, &selector, log.now).unwrap();
                assert_eq!(loaded.replayed.attempts, 0);
            })
        });
        let begun = Instant::now();
        let selector = Selector::builder().without_pace().build().unwrap();
        let done = maintenance::compact(
            dir,
            &selector,
            &CompactOptions::default(),
            log.now,
            &mut |_, _| {},
        )
        .unwrap();
        let compact = begun.elapsed().as_secs_f64();
        rows.push(vec![
            text::size(sites),
            text::bytes(taken.bytes as f64),
            text::ns(took * 1e9),
            text::ns(folded * 1e9),
            text::ns(load * 1e9),
            text::rate(sites as f64 / cpu),
            format!(
                "{} of {} attempts",
                text::count(done.attempts.1 as f64),
                text::count(done.attempts.0 as f64)
            ),
            text::ns(compact * 1e9),
        ]);
        section.point("snapshot load, ns per site", sites as f64, load * 1e9 / sites as f64);
        if sites == scale.pick(10_000, 1_000_000) {
            let size = text::size(sites);
            let what = format!("taking a snapshot of {size} sites, without the fold");
            section.goal(&what, Unit::Ns, (took - folded) * 1e9, Bound::AtMost(0.6e9));
            section.figure(
                &format!("folding the log for a snapshot of {size} sites"),
                Unit::Ns,
                folded * 1e9,
            );
            section.goal(
                &format!("loading a snapshot of {size} sites"),
                Unit::Ns,
                load * 1e9,
                Bound::AtMost(0.3e9),
            );
        }
    }
    section.text(
        "Snapshots by the number of sites, with two attempts each, and a compaction of their log:",
    );
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
