//! Background maintenance alongside a running crawl: what it drops and keeps, the disk usage,
//! `kill -9` during a compaction, and the check of the clock.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::heuristic::url::ContentKind;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::{
    BackgroundMaintenance, CompactCause, CompactOptions, DiskUsage, MaintenanceEvent,
    MaintenanceOptions, expired_share,
};
use fetchwise::journal::{
    self, ClockWitness, Durability, Entry, Journal, JournalError, JournalOptions,
};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::{Clock, Timestamp};
use fetchwise_testsite::poll::found_within;

const DAY: Duration = Duration::from_secs(86_400);
const FETCHERS: [&str; 2] = ["direct_access", "playwright"];
const DOMAINS: u64 = 13;
const SEGMENT: u64 = 64 << 10;
const MAX_DISK: u64 = 2 << 20;
/// Longer than any step takes on any machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Present time of the process and of its children, so that weights can be compared.
static NOW: LazyLock<Timestamp> = LazyLock::new(|| match std::env::var("FETCHWISE_TEST_NOW") {
    Ok(text) => Timestamp::from_millis(text.parse().unwrap()),
    Err(_) => Timestamp::now(),
});

/// Returns the attempt with number `n`; each is later than the one before.
fn attempt(n: u64) -> Attempt {
    let at = NOW.as_millis() - 20 * 86_400_000 + i64::try_from(n).unwrap() * 1000;
    attempt_at(n, Timestamp::from_millis(at))
}

fn attempt_at(n: u64, at: Timestamp) -> Attempt {
    let url = url::Url::parse(&format!("https://d{}.example.org/s{}/{n}", n % DOMAINS, n / 13 % 3))
        .unwrap();
    let attempt = Attempt::new(&url, FETCHERS[(n / 7 % 2) as usize], at).unwrap();
    if n.is_multiple_of(5) {
        attempt.failed(ErrorKind::BlockedCaptcha)
    } else {
        attempt.delivered()
    }
}

fn selector() -> Selector {
    Selector::builder().around(*NOW).build().unwrap()
}

fn options() -> MaintenanceOptions {
    let mut options = MaintenanceOptions::default();
    (options.segment_bytes, options.check_interval) = (SEGMENT, Duration::from_millis(2));
    options
}

fn open(dir: &Path) -> Journal {
    let options = JournalOptions::default().segment_bytes(SEGMENT).durability(Durability::Os);
    Journal::open(dir, options).unwrap().0
}

fn open_without_packing(dir: &Path) -> Journal {
    Journal::open(dir, JournalOptions::default().segment_bytes(SEGMENT).pack(false)).unwrap().0
}

fn start(
    dir: &Path,
    options: MaintenanceOptions,
) -> (BackgroundMaintenance, Receiver<MaintenanceEvent>) {
    let (send, events) = channel();
    let blank = || Selector::builder().around(*NOW).build();
    let background = BackgroundMaintenance::start(
        dir,
        options,
        Arc::new(Clock::fixed(*NOW)),
        blank,
        move |event| drop(send.send(event)),
    );
    (background.unwrap(), events)
}

fn loaded(dir: &Path) -> Selector {
    let selector = selector();
    journal::load(dir, &selector, *NOW).unwrap();
    selector
}

/// Asserts that two selectors have the same weights everywhere, to 1e-9. Returns the number of
/// their attempts.
fn assert_same(a: &Selector, b: &Selector) -> u64 {
    let domains = (0..DOMAINS).map(|n| ("domain", format!("d{n}.example.org")));
    let paths = (0..DOMAINS)
        .flat_map(|n| (0..3).map(move |s| ("domain_path", format!("d{n}.example.org|s{s}"))));
    let others = [("global", String::new()), ("site", "example.org".to_owned())];
    let mut attempts = 0;
    for (kind, value) in domains.chain(paths).chain(others) {
        for fetcher in FETCHERS {
            let of = |selector: &Selector| {
                selector.weights((kind, &value), ContentKind::Page, fetcher, *NOW)
            };
            let (x, y) = (of(a), of(b));
            let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * x.abs().max(y.abs()).max(1.0);
            let same =
                x.attempts == y.attempts && near(x.total, y.total) && near(x.success, y.success);
            assert!(
                same && near(x.blocked, y.blocked),
                "{kind} {value} {fetcher}: {x:?} and {y:?}"
            );
            attempts += if kind == "global" { u64::from(x.attempts) } else { 0 };
        }
    }
    attempts
}

/// Returns the times of the attempts that are still in the log.
fn raw(dir: &Path) -> Vec<Timestamp> {
    let mut times = Vec::new();
    journal::replay(dir, |_, entry| {
        if let Entry::Attempt(attempt) = entry {
            times.push(attempt.attempted_at);
        }
    })
    .unwrap();
    times
}

/// Waits for maintenance, which a busy machine leaves little time.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    found_within(PATIENCE, what, || if holds() { Ok(()) } else { Err("it does not hold") });
}

/// Returns the number of attempts that a compaction for disk space has dropped.
fn dropped_to_make_room(event: &MaintenanceEvent) -> u64 {
    let MaintenanceEvent::CompactionFinished { cause: CompactCause::Full { .. }, done, .. } = event
    else {
        panic!("{event:?}")
    };
    assert!((done.weight.0 - done.weight.1).abs() <= 1e-9 * done.weight.0, "{done:?}");
    done.attempts.0 - done.attempts.1
}

#[test]
fn the_log_stays_within_its_disk_limit_and_loses_no_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    // Little, so that attempts are soon dropped.
    let max_disk = MAX_DISK / 2;
    let mut options = options();
    options.max_disk_bytes = Some(max_disk);
    let (background, events) = start(dir.path(), options);
    let mirror = selector();
    let (mut written, mut most) = (0, 0);
    while written < 10_000 {
        for n in written..written + 50 {
            let attempt = attempt(n);
            journal.append_attempt(&attempt).unwrap();
            mirror.observe(&attempt);
        }
        written += 50;
        journal.flush().wait().unwrap();
        // A crawl is not faster than the disk. Here it waits until maintenance has caught up,
        // however slow this machine is.
        wait_for("maintenance catches up", || {
            let taken = DiskUsage::measure(dir.path()).unwrap().total;
            most = most.max(taken);
            taken < max_disk - 2 * SEGMENT
        });
    }
    // A compaction that is stopped in the middle reports nothing of what it dropped. So this waits
    // until none is running. Nothing is written any more, so none begins once the log is small
    // enough.
    let (mut runs, mut dropped) = (Vec::new(), 0);
    wait_for("no compaction runs", || {
        for event in events.try_iter() {
            dropped += dropped_to_make_room(&event);
            runs.push(event);
        }
        let room = DiskUsage::measure(dir.path()).unwrap();
        let has_room = room.total + 3 * SEGMENT + room.snapshot <= max_disk;
        has_room && raw(dir.path()).len() as u64 == written - dropped
    });
    background.stop();
    journal.close().unwrap();
    assert!(most <= max_disk, "{most}: {runs:#?}");
    // The latest attempts are left, without a gap.
    let times = raw(dir.path());
    assert_eq!(times.len() as u64, written - dropped);
    // Packed, an attempt takes some seventy bytes.
    assert!(dropped > written / 4 && times.len() > 1000, "{dropped} of {written}");
    assert!(times.iter().min().unwrap() >= &attempt(dropped).attempted_at);
    assert_eq!(assert_same(&mirror, &loaded(dir.path())), written);
    assert!(maintenance::verify(dir.path(), &mut |_, _| {}).unwrap().is_sound());
    println!(
        "{} compactions, {dropped} of {written} attempts dropped, {most} bytes at most",
        runs.len()
    );
}

#[test]
fn it_compacts_once_enough_of_the_log_has_expired() {
    let dir = tempfile::tempdir().unwrap();
    // The share of bytes is that of attempts, on any machine.
    let journal = open_without_packing(dir.path());
    let mirror = selector();
    let old = |n: u64| {
        Timestamp::from_millis(NOW.as_millis() - 100 * 86_400_000 + i64::try_from(n).unwrap())
    };
    let expired = (0..3000).map(|n| attempt_at(n, old(n)));
    let kept = (3000..4000).map(attempt).chain([attempt_at(4000, *NOW)]);
    for attempt in expired.chain(kept) {
        journal.append_attempt(&attempt).unwrap();
        mirror.observe(&attempt);
    }
    journal.flush().wait().unwrap();
    let share = expired_share(dir.path(), *NOW, 90 * DAY).unwrap();
    assert!((0.6..0.9).contains(&share), "{share}");
    let run = |at: Option<f64>| {
        let mut options = options();
        (options.compact_threshold, options.pack_bytes) = (at, None);
        let (background, events) = start(dir.path(), options);
        background.check_now();
        let event = events.recv_timeout(if at.is_some_and(|at| at < share) {
            PATIENCE
        } else {
            Duration::from_millis(300)
        });
        background.stop();
        event.ok()
    };
    assert!(run(None).is_none() && run(Some(share + 0.05)).is_none());
    let Some(MaintenanceEvent::CompactionFinished {
        cause: CompactCause::Expired { .. },
        done,
        ..
    }) = run(Some(share - 0.05))
    else {
        panic!("no event")
    };
    assert!(done.writer_active && done.attempts.0 - done.attempts.1 > 2000, "{done:?}");
    assert!(expired_share(dir.path(), *NOW, 90 * DAY).unwrap() < share / 4.0);
    journal.close().unwrap();
    assert_eq!(assert_same(&mirror, &loaded(dir.path())), 4001);
}

#[test]
fn it_packs_what_a_writer_has_left_as_records_once() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open_without_packing(dir.path());
    let mirror = selector();
    for n in 0..1500 {
        journal.append_attempt(&attempt(n)).unwrap();
        mirror.observe(&attempt(n));
    }
    journal.flush().wait().unwrap();
    let run = |pack_bytes: Option<u64>| {
        let mut options = options();
        options.pack_bytes = pack_bytes;
        let (background, events) = start(dir.path(), options);
        background.check_now();
        let event = events.recv_timeout(if pack_bytes == Some(SEGMENT) {
            PATIENCE
        } else {
            Duration::from_millis(300)
        });
        background.stop();
        event.ok()
    };
    assert!(run(None).is_none() && run(Some(1 << 30)).is_none());
    let event = run(Some(SEGMENT));
    let Some(MaintenanceEvent::CompactionFinished {
        cause: CompactCause::Unpacked { share },
        done,
        ..
    }) = event
    else {
        panic!("{event:?}")
    };
    assert!(share > 0.5 && done.writer_active && done.attempts == (1500, 1500), "{share} {done:?}");
    assert!(done.bytes.1 < done.bytes.0 / 2, "{done:?}");
    // What is packed is not packed again.
    assert!(run(Some(SEGMENT - 1)).is_none());
    assert_eq!(assert_same(&mirror, &loaded(dir.path())), 1500);
    journal.close().unwrap();
    assert_eq!(assert_same(&mirror, &loaded(dir.path())), 1500);
    assert!(maintenance::verify(dir.path(), &mut |_, _| {}).unwrap().is_sound());
}

#[test]
fn a_stop_in_the_middle_of_a_compaction_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let mirror = selector();
    for n in 0..8_000 {
        journal.append_attempt(&attempt(n)).unwrap();
        mirror.observe(&attempt(n));
    }
    journal.flush().wait().unwrap();
    for wait in [0, 1, 5, 20, 60, 150] {
        let mut options = options();
        options.max_disk_bytes = Some(MAX_DISK / 2);
        let (background, _) = start(dir.path(), options);
        std::thread::sleep(Duration::from_millis(wait));
        background.stop();
        assert_eq!(assert_same(&mirror, &loaded(dir.path())), 8_000);
    }
    journal.close().unwrap();
    assert!(maintenance::verify(dir.path(), &mut |_, _| {}).unwrap().is_sound());
}

/// Child process: runs only when the parent starts it. It writes alongside maintenance, and prints
/// each acknowledgement.
#[test]
fn child_that_writes_alongside_maintenance_until_it_is_killed() {
    let Ok(dir) = std::env::var("FETCHWISE_TEST_MAINTENANCE") else { return };
    let first: u64 = std::env::var("FETCHWISE_TEST_FIRST").unwrap().parse().unwrap();
    let dir = Path::new(&dir);
    let packs = std::env::var("FETCHWISE_TEST_PACKS").unwrap() == "true";
    // As small as a log with its reserve allows, so that few attempts bring a compaction.
    let (segment_bytes, max_disk) = (SEGMENT / 4, MAX_DISK / 2);
    let journal = JournalOptions::default()
        .segment_bytes(segment_bytes)
        .durability(Durability::Os)
        .pack(packs);
    let journal = Journal::open(dir, journal).unwrap().0;
    let mut options = options();
    (options.segment_bytes, options.max_disk_bytes) = (segment_bytes, Some(max_disk / 2));
    let (_background, events) = start(dir, options);
    let mut out = std::io::stderr();
    for batch in (first..).step_by(16) {
        for event in events.try_iter() {
            assert!(matches!(event, MaintenanceEvent::CompactionFinished { .. }), "{event:?}");
            writeln!(out, "compacted").unwrap();
        }
        for n in batch..batch + 16 {
            journal.append_attempt(&attempt(n)).unwrap();
        }
        journal.settled().wait().unwrap();
        // A crawl is not faster than maintenance. Here it waits for it, however slow this machine
        // is: a log that grows faster than it is compacted never sees the end of a compaction.
        loop {
            writeln!(out, "{}", batch + 16).unwrap();
            std::thread::sleep(Duration::from_millis(3));
            if DiskUsage::measure(dir).unwrap().total < max_disk {
                break;
            }
        }
    }
}

/// Returns whether there is an unfinished file.
fn is_writing(dir: &Path) -> bool {
    let unfinished =
        |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("tmp-");
    std::fs::read_dir(dir).unwrap().flatten().any(unfinished)
}

#[test]
fn kill_9_during_a_compaction_loses_nothing() {
    let kills = match std::env::var("FETCHWISE_FAULTS").as_deref() {
        Ok("full") => 200,
        Ok("ci") => 60,
        _ => 9,
    };
    let dir = tempfile::tempdir().unwrap();
    let (mut known, mut in_the_middle) = (0, 0);
    let mirror = selector();
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "maintenance::child_that_writes_alongside_maintenance_until_it_is_killed",
                "--nocapture",
            ])
            .env("FETCHWISE_TEST_MAINTENANCE", dir.path())
            .env("FETCHWISE_TEST_FIRST", known.to_string())
            // A log that is packed as it is written is long in coming to the size that has to be
            // compacted.
            .env("FETCHWISE_TEST_PACKS", (kill % 3 != 2).to_string())
            .env("FETCHWISE_TEST_NOW", NOW.as_millis().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = known;
        // Each child lives for a different number of attempts, and maintenance is busy most of the
        // time. Every third one lives until a snapshot or a segment is being written, every third
        // one until a compaction has finished.
        let enough = known + 1000 + kill % 7 * 201;
        let (mut is_done, mut said) = (false, String::new());
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            is_done |= line == "compacted";
            match line.parse() {
                Ok(number) => acknowledged = number,
                Err(_) => said += &line,
            }
            let is_time = match kill % 3 {
                0 => true,
                1 => is_done || is_writing(dir.path()),
                _ => is_done,
            };
            if acknowledged >= enough && is_time {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(acknowledged >= enough, "the child ended by itself: {said}");
        in_the_middle += u64::from(is_writing(dir.path()));
        let after = loaded(dir.path());
        let found: u64 = FETCHERS
            .map(|name| {
                u64::from(after.weights(("global", ""), ContentKind::Page, name, *NOW).attempts)
            })
            .iter()
            .sum();
        assert!(
            found >= acknowledged,
            "kill {kill}: {acknowledged} were acknowledged, {found} are there"
        );
        (known..found).for_each(|n| mirror.observe(&attempt(n)));
        assert_eq!(assert_same(&mirror, &after), found);
        known = found;
    }
    assert!(maintenance::verify(dir.path(), &mut |_, _| {}).unwrap().is_sound());
    let left = raw(dir.path()).len() as u64;
    assert!(left < known, "maintenance has dropped raw attempts: {left} of {known}");
    println!(
        "FAULTS | + | kill -9 during maintenance, {in_the_middle} in the middle of a file | {kills} | 0 | 0 |"
    );
}

/// Writes a log whose newest record, and whose files, are `days` days old.
fn idle(days: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let at = Timestamp::from_millis(
        Timestamp::now().as_millis() - i64::try_from(days).unwrap() * 86_400_000,
    );
    for n in 0..2000 {
        journal.append_attempt(&attempt_at(n, at)).unwrap();
    }
    journal.close().unwrap();
    let then = UNIX_EPOCH + Duration::from_millis(at.as_millis().try_into().unwrap());
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        File::options()
            .write(true)
            .open(entry.unwrap().path())
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    dir
}

fn compact(dir: &Path, now: Timestamp) -> Result<maintenance::CompactReport, JournalError> {
    maintenance::compact(dir, &selector(), &CompactOptions::default(), now, &mut |_, _| {})
}

fn compacted_at(dir: &Path) -> Option<SystemTime> {
    fetchwise_log::Reader::open(dir).unwrap().compacted_at()
}

#[test]
fn an_idle_log_is_compacted_without_trust_clock() {
    for days in [3, 100, 390] {
        let dir = idle(days);
        let before = loaded(dir.path());
        assert_eq!(compacted_at(dir.path()), None, "{days} days");
        let started = SystemTime::now() - Duration::from_secs(1);
        let done = compact(dir.path(), Timestamp::now()).unwrap();
        assert_eq!(done.attempts, (2000, if days > 90 { 0 } else { 2000 }), "{days} days");
        assert!((done.weight.0 - done.weight.1).abs() <= 1e-9 * done.weight.0, "{done:?}");
        assert_same(&before, &loaded(dir.path()));
        if days > 90 {
            // No segment is left to tell when it was. The server's figures showed no compaction at
            // all then.
            assert!(compacted_at(dir.path()).is_some_and(|at| at > started), "{days} days");
        }
        // And again on the next day.
        compact(dir.path(), Timestamp::now()).unwrap();
    }
}

#[test]
fn an_unconfirmed_clock_is_rejected() {
    let years = 3 * 365 * DAY;
    let refused = |dir: &Path, now: Timestamp| match compact(dir, now) {
        Err(JournalError::ClockJump { witness, .. }) => witness,
        other => panic!("{other:?}"),
    };
    // The process's clock alone is ahead.
    let fresh = idle(0);
    assert_eq!(
        refused(fresh.path(), Timestamp::now().saturating_add(years)),
        ClockWitness::FileSystem
    );
    let month = idle(30);
    assert_eq!(
        refused(month.path(), Timestamp::now().saturating_add(years)),
        ClockWitness::FileSystem
    );
    // The machine's clock is ahead of everything in the log. A second try does not change that.
    let long = idle(1100);
    for _ in 0..2 {
        assert_eq!(refused(long.path(), Timestamp::now()), ClockWitness::Idle { days: 400 });
    }
    assert_eq!(raw(long.path()).len(), 2000);
    let mut options = CompactOptions::default();
    options.trust_clock = true;
    let done =
        maintenance::compact(long.path(), &selector(), &options, Timestamp::now(), &mut |_, _| {})
            .unwrap();
    assert_eq!(done.attempts, (2000, 0));
}

/// Returns the latencies of selecting and of recording at a steady rate, in µs: p50, p99 and p99.9.
fn latencies(dir: &Path, is_on: bool) -> [[u128; 3]; 2] {
    let journal = Arc::new(open(dir));
    let mut learner = Selector::builder().around(*NOW).build().unwrap();
    journal::load(dir, &learner, *NOW).unwrap();
    learner.set_sink(Box::new(Arc::clone(&journal)));
    let mut options = options();
    // The log always exceeds this limit, so that there is work to do the whole time.
    options.max_disk_bytes = is_on.then_some(1 << 20);
    let (running, events) = start(dir, options);
    let (mut select, mut record) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    for n in 1_000_000.. {
        let attempt = attempt_at(n, *NOW);
        let url = url::Url::parse(&attempt.url).unwrap();
        let at = Instant::now();
        learner.select(&url, &SelectContext::first_attempt(*NOW)).unwrap();
        select.push(at.elapsed().as_micros());
        let at = Instant::now();
        learner.record(attempt, *NOW).unwrap();
        record.push(at.elapsed().as_micros());
        if begun.elapsed() > Duration::from_secs(8) {
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    running.stop();
    println!(
        "maintenance {is_on}: {} selects, {} compactions",
        select.len(),
        events.try_iter().count()
    );
    drop(learner);
    Arc::into_inner(journal).unwrap().close().unwrap();
    [select, record].map(|mut all| {
        all.sort_unstable();
        [500, 990, 999].map(|of| all[all.len() * of / 1000])
    })
}

/// Prints the latencies of a crawl with and without maintenance. Not a check, because they depend
/// on the machine.
#[test]
#[ignore = "a measurement: cargo test --release --test library latencies_of_a_crawl -- --ignored --nocapture"]
fn latencies_of_a_crawl_during_maintenance() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    for n in 0..300_000 {
        journal.append_attempt(&attempt(n)).unwrap();
    }
    journal.close().unwrap();
    for round in 0..3 {
        for is_on in [false, true] {
            let [select, record] = latencies(dir.path(), is_on);
            println!(
                "round {round}, maintenance {is_on}: select {select:?} us, record {record:?} us (p50, p99, p99.9)"
            );
        }
    }
}
