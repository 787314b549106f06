//! The losses that the log reports, compared with what a reader finds: on a full disk, under a
//! bounded queue, after a failed sync, and after a deletion of the directory under a running
//! writer. On the simulated file system and on real ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::dir;
use fetchwise_log::fs::sim::{Disk, Fault, SimFs};
use fetchwise_log::fs::{Fs, RealFs};
use fetchwise_log::{
    AppendError, Durability, Error, Health, Log, LogOptions, Lost, OnFull, Reader, Record,
    RepairOptions, repair_with, verify_with,
};

/// The time limit of a wait: more than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn options(durability: Durability) -> LogOptions {
    let mut options = LogOptions::default();
    options.durability = durability;
    options.segment_bytes = 64 << 10;
    options.queue_records = 500;
    options
}

/// Appends the record `id`; returns false if it was refused.
fn append(log: &Log, id: u64) -> bool {
    let payload = id.to_le_bytes().repeat(30);
    match log.append(Record { kind: 1, schema: 1, key_hash: id, time_ms: 0, payload: &payload }) {
        Ok(_) => true,
        Err(AppendError::Degraded(_) | AppendError::Full) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The ids that a reader finds.
fn found(fs: &Arc<dyn Fs>, dir: &Path) -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    let reader = Reader::open_with(fs.clone(), dir).unwrap();
    let summary = reader
        .for_each(|_, record| {
            let id = u64::from_le_bytes(record.payload[..8].try_into().unwrap());
            assert!(ids.insert(id), "record {id} is there twice");
        })
        .unwrap();
    assert_eq!(summary.damage, []);
    ids
}

fn unsaved(closed: Result<(), Error>) -> Lost {
    match closed {
        Err(Error::Unsaved { lost, .. }) => lost,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_degraded(log: &Log) -> bool {
    matches!(log.health(), Health::Degraded { .. })
}

/// Appends to a log whose disk gets full, closes it while it is full, and compares.
fn every_record_is_found_or_counted(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    durability: Durability,
    given: u64,
    fill: impl FnOnce(),
) {
    let (log, _) = Log::open_with(fs.clone(), dir, options(durability)).unwrap();
    let mut refused = 0;
    for id in 0..given / 10 {
        refused += u64::from(!append(&log, id));
    }
    log.settled().wait().unwrap();
    fill();
    for id in given / 10..given {
        refused += u64::from(!append(&log, id));
    }
    wait_for("a full disk degrades the log", || is_degraded(&log));
    assert_eq!(log.lost(), Lost::new(refused), "what was refused counts while the log is open");
    let lost = unsaved(log.close());
    let found = found(fs, dir).len() as u64;
    assert!(found >= given / 10 && refused > 0, "{found} found, {refused} refused of {given}");
    assert_eq!((found + lost.records, lost.at_least), (given, false), "{refused} were refused");
}

#[test]
fn every_record_that_a_full_disk_refuses_or_keeps_in_memory_is_counted() {
    for durability in [Durability::Os, Durability::default(), Durability::Sync] {
        let sim = SimFs::new(1);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        every_record_is_found_or_counted(&fs, &dir(), durability, 20_000, || {
            sim.set_capacity(Some(sim.used() + 100_000))
        });
    }
}

#[test]
fn every_record_that_a_really_full_file_system_refuses_is_counted() {
    let tmp = tempfile::tempdir().unwrap();
    let at = tmp.path().join("small");
    std::fs::create_dir_all(&at).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&at);
    if !mount.output().is_ok_and(|out| out.status.success()) {
        println!("SKIPPED a really full file system: this machine does not let us mount");
        return;
    }
    let _mounted = Mounted(at.clone());
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    every_record_is_found_or_counted(&fs, &at.join("log"), Durability::default(), 30_000, || {});
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn shed_and_too_large_records_count_as_lost() {
    let sim = SimFs::new(1);
    let mut options = options(Durability::Os);
    options.on_full = OnFull::Shed;
    options.queue_records = 1;
    options.linger = Duration::from_secs(60);
    let (log, _) = Log::open_with(Arc::new(sim), &dir(), options).unwrap();
    let payload = vec![0; fetchwise_log::MAX_RECORD_LEN + 1];
    let large =
        log.append(Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload: &payload });
    assert!(matches!(large, Err(AppendError::TooLarge { .. })));
    (0..1000).for_each(|id| assert!(append(&log, id)));
    let shed = log.metrics().shed;
    assert!(shed > 0);
    assert_eq!(log.lost(), Lost::new(shed + 1));
    log.close().unwrap();
}

#[test]
fn records_of_a_failed_sync_count_as_lost() {
    let sim = SimFs::new(1);
    // Nothing is synced by itself, for as long as the log is not idle.
    let mut options = options(Durability::Interval(Duration::from_secs(3600)));
    options.linger = Duration::ZERO;
    let (log, _) = Log::open_with(Arc::new(sim.clone()), &dir(), options).unwrap();
    // The first makes the segment, and is durable by that. The second is written.
    for id in 0..2 {
        assert!(append(&log, id));
        log.settled().wait().unwrap();
    }
    sim.set_disk(Disk::Failing);
    assert!(log.flush().wait().is_err());
    assert!(append(&log, 2));
    assert_eq!(unsaved(log.close()), Lost::new(2));
}

/// Deletes the directory of an open log. The log makes a new one as soon as it notices, so the old one
/// leaves its place first.
fn remove(dir: &Path) {
    let gone = dir.with_extension("gone");
    std::fs::rename(dir, &gone).unwrap();
    std::fs::remove_dir_all(gone).unwrap();
}

/// Deletes the directory under a log with many records, and continues.
fn a_deleted_directory_is_noticed_and_replaced(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    durability: Durability,
    delete: impl Fn(),
) {
    let (log, _) = Log::open_with(fs.clone(), dir, options(durability)).unwrap();
    for id in 0..1000 {
        assert!(append(&log, id));
    }
    log.flush().wait().unwrap();
    delete();
    // Records that are lost inevitably, because they go to files without a name.
    for id in 1000..1100 {
        assert!(append(&log, id));
    }
    wait_for("the removal is noticed", || is_degraded(&log));
    let Health::Degraded { reason, .. } = log.health() else { panic!("{:?}", log.health()) };
    let lost = log.lost();
    assert!(
        reason.contains("was deleted or moved away") && reason.contains(&lost.to_string()),
        "{reason}"
    );
    assert!((1000..=1100).contains(&lost.records) && !lost.at_least, "{lost}");
    wait_for("the log goes on in a new directory", || log.health() == Health::Good);
    for id in 2000..2010 {
        assert!(append(&log, id));
    }
    log.flush().wait().unwrap();
    assert_eq!(log.lost(), lost);
    // The new directory has one writer too.
    assert!(matches!(
        Log::open_with(fs.clone(), dir, options(durability)),
        Err(Error::Locked { .. })
    ));
    assert_eq!(unsaved(log.close()), lost, "closing says it once more");

    let ids = found(fs, dir);
    let expected = 1000 + 100 + 10 - lost.records;
    assert_eq!(ids.len() as u64, expected, "every record is there or counted");
    assert!((2000..2010).all(|id| ids.contains(&id)));
    assert!(verify_with(fs.clone(), dir).unwrap().is_sound());
    // The new store is one like any other.
    let (log, recovery) = Log::open_with(fs.clone(), dir, options(durability)).unwrap();
    assert_eq!(
        (recovery.next_seq, recovery.first_seq),
        (1111, lost.records + 1),
        "no number is used twice"
    );
    assert!(append(&log, 3000));
    log.close().unwrap();
    assert_eq!(found(fs, dir).len() as u64, expected + 1);
}

#[test]
fn a_deleted_simulated_directory_is_detected_and_replaced() {
    for durability in [Durability::Os, Durability::default(), Durability::Sync] {
        let sim = SimFs::new(1);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        a_deleted_directory_is_noticed_and_replaced(&fs, &dir(), durability, || {
            sim.lose_dir(&dir())
        });
    }
}

#[test]
fn a_deleted_emptied_or_moved_real_directory_is_detected_and_replaced() {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let delete: fn(&Path) = remove;
    let empty: fn(&Path) = |dir| {
        for entry in std::fs::read_dir(dir).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    };
    let parent: fn(&Path) = |dir| remove(dir.parent().unwrap());
    let shift: fn(&Path) = |dir| std::fs::rename(dir, dir.with_extension("old")).unwrap();
    for how in [delete, empty, parent, shift] {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("data").join("log");
        a_deleted_directory_is_noticed_and_replaced(&fs, &dir, Durability::default(), || how(&dir));
    }
}

#[test]
fn an_idle_log_and_a_closing_log_detect_a_removal() {
    let tmp = tempfile::tempdir().unwrap();
    for waits in [true, false] {
        let dir = tmp.path().join(format!("log-{waits}"));
        let (log, _) = Log::open(&dir, options(Durability::Os)).unwrap();
        assert!(append(&log, 1));
        log.flush().wait().unwrap();
        remove(&dir);
        if waits {
            wait_for("an idle log notices", || is_degraded(&log));
        }
        let lost = unsaved(log.close());
        assert_eq!(lost, Lost::new(1), "{lost}");
        assert!(verify_with(Arc::new(RealFs), &dir).unwrap().is_sound());
    }
}

#[test]
fn records_of_earlier_processes_make_the_number_a_lower_bound() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("log");
    for run in 0..2 {
        let (log, _) = Log::open(&dir, options(Durability::Os)).unwrap();
        (0..10).for_each(|id| assert!(append(&log, id)));
        log.flush().wait().unwrap();
        if run == 0 {
            log.close().unwrap();
        } else {
            remove(&dir);
            assert_eq!(unsaved(log.close()).to_string(), "at least 10 records");
        }
    }
}

#[test]
fn a_deleted_segment_is_damage_with_its_numbers() {
    let sim = SimFs::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let (log, _) = Log::open_with(fs.clone(), &dir(), options(Durability::Os)).unwrap();
    for id in 0..2000 {
        assert!(append(&log, id));
    }
    log.flush().wait().unwrap();
    let mut segments: Vec<_> =
        sim.files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "fwl")).collect();
    let active = segments.pop().unwrap();
    assert!(!segments.is_empty());
    sim.lose(&active);
    wait_for("the removal is noticed", || is_degraded(&log));
    wait_for("the log goes on", || log.health() == Health::Good);
    for id in 2000..2010 {
        assert!(append(&log, id));
    }
    let lost = unsaved(log.close());
    let reader = Reader::open_with(fs.clone(), &dir()).unwrap();
    let summary = reader.for_each(|_, _| {}).unwrap();
    assert_eq!(summary.records + lost.records, 2010);
    let [damage] = &summary.damage[..] else { panic!("{:?}", summary.damage) };
    let (first, last) = damage.records.unwrap();
    assert_eq!((last + 1 - first, last), (lost.records, 2000));
    assert!(matches!(
        Log::open_with(fs.clone(), &dir(), options(Durability::Os)),
        Err(Error::Corrupt { .. })
    ));
    let mend = RepairOptions::salvaging();
    assert_eq!(repair_with(fs.clone(), &dir(), mend).unwrap().remaining, []);
    Log::open_with(fs, &dir(), options(Durability::Os)).unwrap().0.close().unwrap();
}

#[test]
fn a_directory_of_another_log_stays_unchanged() {
    let tmp = tempfile::tempdir().unwrap();
    let (dir, old) = (tmp.path().join("log"), tmp.path().join("old"));
    let (log, _) = Log::open(&dir, options(Durability::Os)).unwrap();
    assert!(append(&log, 1));
    log.flush().wait().unwrap();
    std::fs::rename(&dir, &old).unwrap();
    let (other, _) = Log::open(&dir, options(Durability::Os)).unwrap();
    assert!(append(&other, 77));
    other.close().unwrap();
    wait_for("the removal is noticed", || is_degraded(&log));
    assert!(append(&log, 2), "it waits in memory");
    let says = |text: &str| matches!(log.health(), Health::Degraded { reason, .. } if reason.contains(text));
    wait_for("it says why", || says("holds another log"));
    // Other writers are not kept out.
    let (again, recovery) = Log::open(&dir, options(Durability::Os)).unwrap();
    assert_eq!(recovery.next_seq, 2);
    again.close().unwrap();
    assert_eq!(unsaved(log.close()), Lost::new(2));
    assert_eq!(found(&(Arc::new(RealFs) as Arc<dyn Fs>), &dir), BTreeSet::from([77]));
}

#[test]
fn a_log_that_is_emptied_right_after_opening_begins_a_new_one() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("log");
    let (log, _) = Log::open(&dir, options(Durability::Os)).unwrap();
    (0..10).for_each(|id| assert!(append(&log, id)));
    log.close().unwrap();
    let (log, _) = Log::open(&dir, options(Durability::Os)).unwrap();
    for entry in std::fs::read_dir(&dir).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert!(append(&log, 10));
    wait_for("it goes on", || log.metrics().written_seq == 11);
    let lost = unsaved(log.close());
    assert_eq!((lost.records, lost.at_least), (0, true), "what earlier processes wrote is gone");
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    assert_eq!(found(&fs, &dir), BTreeSet::from([10]));
    assert!(verify_with(fs, &dir).unwrap().is_sound());
}

#[test]
fn a_deleted_lock_file_is_created_again() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("log");
    let (log, _) = Log::open(&dir, options(Durability::Os)).unwrap();
    assert!(append(&log, 1));
    log.flush().wait().unwrap();
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    // The holder writes its text once it has the lock. An empty file is created and not yet locked.
    let has_holder = || std::fs::read(dir.join("LOCK")).is_ok_and(|text| !text.is_empty());
    wait_for("the lock is taken again", has_holder);
    assert!(matches!(Log::open(&dir, options(Durability::Os)), Err(Error::Locked { .. })));
    assert!(append(&log, 2));
    log.close().unwrap();
    assert_eq!(found(&(Arc::new(RealFs) as Arc<dyn Fs>), &dir).len(), 2);
}

/// Each of the first calls in the new directory fails once, which costs only time.
#[test]
fn a_failed_creation_of_the_new_directory_is_retried() {
    std::thread::scope(|scope| {
        for call in 0..40 {
            scope.spawn(move || {
                let sim = SimFs::new(call);
                let fs: Arc<dyn Fs> = Arc::new(sim.clone());
                let (log, _) =
                    Log::open_with(fs.clone(), &dir(), options(Durability::Sync)).unwrap();
                assert!(append(&log, 1));
                log.flush().wait().unwrap();
                sim.lose_dir(&dir());
                wait_for("the removal is noticed", || is_degraded(&log));
                let fault = if call % 2 == 0 { Fault::Eio } else { Fault::Enospc };
                sim.fault_at(sim.calls() + call / 2, fault);
                assert!(append(&log, 2));
                wait_for("the log goes on", || log.health() == Health::Good);
                assert!(append(&log, 3));
                log.flush().wait().unwrap();
                assert_eq!(unsaved(log.close()), Lost::new(1), "call {call}");
                assert_eq!(found(&fs, &dir()), BTreeSet::from([2, 3]), "call {call}");
                assert!(verify_with(fs, &dir()).unwrap().is_sound(), "call {call}");
            });
        }
    });
}
