//! Fault suite, rows 5 and 9, and the failing disk from the host's view: killed processes,
//! processes and threads that compete for a directory, a writer thread with a full or broken disk.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{dir, report, scaled};
use crate::losses;
use fetchwise_log::fs::sim::{Disk, Rng, SimFs, Survival};
use fetchwise_log::fuzzing::PlainBlocks;
use fetchwise_log::{
    AppendError, Durability, Error, Health, Log, LogOptions, Lost, Maintenance, OnFull, Reader,
    Record, Section, SnapshotMeta, WaitError, load_snapshot_with,
};

fn options(durability: Durability) -> LogOptions {
    let mut options = LogOptions::default();
    options.durability = durability;
    options.segment_bytes = 256 << 10;
    options.blocks = Some(&PlainBlocks);
    options.pack_from = 8;
    options
}

fn payload(id: u64) -> Vec<u8> {
    let len = 8 + (id % 300) as usize;
    id.to_le_bytes().iter().copied().cycle().take(len).collect()
}

fn record(payload: &[u8]) -> Record<'_> {
    Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload }
}

/// The child process; runs only on behalf of the parent. It appends from four threads and prints
/// each acknowledgement on stderr.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var("FETCHWISE_LOG_CHILD") else { return };
    let durability = if std::env::var("FETCHWISE_LOG_LEVEL").unwrap() == "sync" {
        Durability::Sync
    } else {
        Durability::Os
    };
    let salt: u64 = std::env::var("FETCHWISE_LOG_SALT").unwrap().parse().unwrap();
    let (log, _) = Log::open(Path::new(&dir), options(durability)).unwrap();
    let ids = AtomicU64::new(salt << 32);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let batch: Vec<(u64, _)> = (0..16)
                        .map(|_| {
                            let id = ids.fetch_add(1, Ordering::Relaxed);
                            (id, log.append(record(&payload(id))).unwrap())
                        })
                        .collect();
                    let mut told = Vec::new();
                    for (id, ticket) in batch {
                        log.wait(ticket).unwrap();
                        told.extend_from_slice(&ticket.seq().unwrap().to_le_bytes());
                        told.extend_from_slice(&id.to_le_bytes());
                    }
                    // One write of 256 bytes: a pipe keeps it whole.
                    std::io::stderr().write_all(&told).unwrap();
                }
            });
        }
    });
}

fn kill_once(
    dir: &Path,
    level: &str,
    salt: u64,
    acknowledged: &mut HashMap<u64, u64>,
    rng: &mut Rng,
) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::child_that_writes_until_it_is_killed", "--nocapture"])
        .env("FETCHWISE_LOG_CHILD", dir)
        .env("FETCHWISE_LOG_LEVEL", level)
        .env("FETCHWISE_LOG_SALT", salt.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let mut told = vec![0; 256];
    // It is writing once the first acknowledgements are here.
    pipe.read_exact(&mut told).unwrap();
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            std::thread::sleep(Duration::from_micros(rng.below(30_000)));
            child.kill().unwrap();
            child.wait().unwrap()
        });
        pipe.read_to_end(&mut told).unwrap();
        killer.join().unwrap();
    });
    for pair in told.chunks_exact(16) {
        let seq = u64::from_le_bytes(pair[..8].try_into().unwrap());
        acknowledged.insert(seq, u64::from_le_bytes(pair[8..].try_into().unwrap()));
    }
}

#[test]
fn a_killed_process_loses_no_acknowledged_record() {
    for level in ["os", "sync"] {
        let kills = scaled(30, 200, 500);
        let mut rng = Rng::new(1);
        let (mut told, mut repaired) = (0, 0);
        let mut tmp = tempfile::tempdir().unwrap();
        let mut acknowledged = HashMap::new();
        for kill in 0..kills {
            if kill % 10 == 0 {
                tmp = tempfile::tempdir().unwrap();
                acknowledged.clear();
            }
            kill_once(tmp.path(), level, kill + 1, &mut acknowledged, &mut rng);
            let mut next = 1;
            let mut seen = HashMap::new();
            let summary = Reader::open(tmp.path())
                .unwrap()
                .with_blocks(&PlainBlocks)
                .for_each(|seq, r| {
                    assert_eq!(seq, next, "a hole");
                    next += 1;
                    let id = u64::from_le_bytes(r.payload[..8].try_into().unwrap());
                    assert_eq!(r.payload, payload(id));
                    seen.insert(seq, id);
                })
                .unwrap();
            assert_eq!(summary.damage, []);
            repaired += u64::from(summary.torn.is_some());
            for (seq, id) in &acknowledged {
                assert_eq!(seen.get(seq), Some(id), "record {seq} was acknowledged at {level}");
            }
            told += acknowledged.len() as u64;
            let (log, recovery) = Log::open(tmp.path(), options(Durability::Os)).unwrap();
            assert_eq!(recovery.next_seq, next);
            // Every other time, what the recovery left is what the next process finds.
            if kill % 2 == 0 { log.close().unwrap() } else { drop(log) }
        }
        println!("level {level}: {told} acknowledgements checked, {repaired} torn tails");
        report("5", &format!("kill -9 under load, acknowledged at {level}"), kills, 0, 0);
    }
}

/// The child of the lock test: tries to open the log and prints the result.
#[test]
fn child_that_tries_the_lock() {
    let Ok(dir) = std::env::var("FETCHWISE_LOCK_CHILD") else { return };
    match Log::open(Path::new(&dir), options(Durability::Os)) {
        Ok(_) => std::process::exit(0),
        Err(e) => {
            eprint!("{e}");
            std::process::exit(if e.is_refusal() { 3 } else { 1 });
        }
    }
}

#[test]
fn a_directory_has_one_writer_across_threads_and_processes() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path();
    let inside = AtomicU64::new(0);
    let (opened, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let rounds = scaled(20, 60, 80);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    match Log::open(path, options(Durability::Os)) {
                        Ok((log, _)) => {
                            assert_eq!(
                                inside.fetch_add(1, Ordering::SeqCst),
                                0,
                                "two writers at once"
                            );
                            log.append(record(b"x")).unwrap();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            drop(log);
                            opened.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(Error::Locked { .. }) => {
                            refused.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    let opened = opened.into_inner();
    let reader = Reader::open(path).unwrap().with_blocks(&PlainBlocks);
    assert_eq!(reader.for_each(|_, _| {}).unwrap().records, opened);

    let (log, _) = Log::open(path, options(Durability::Os)).unwrap();
    let children = scaled(12, 64, 200);
    let spawn = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::child_that_tries_the_lock", "--nocapture"])
            .env("FETCHWISE_LOCK_CHILD", path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut left = children;
    while left > 0 {
        let batch: Vec<_> = (0..left.min(12)).map(|_| spawn()).collect();
        left -= batch.len() as u64;
        for child in batch {
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(3));
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains(&format!("locked by pid {}", std::process::id())), "{text}");
        }
    }
    log.close().unwrap();
    assert_eq!(spawn().wait().unwrap().code(), Some(0));
    let tried = rounds * 16 + children;
    println!("opened {opened}, refused {}", refused.into_inner());
    report("9", "opens that compete, threads and processes", tried, 0, 0);
}

fn wait_for(log: &Log, wanted: fn(&Health) -> bool) {
    losses::wait_for("the wanted health", || wanted(&log.health()));
}

#[test]
fn a_full_disk_degrades_and_the_log_resumes_by_itself() {
    for durability in
        [Durability::Os, Durability::Interval(Duration::from_millis(5)), Durability::Sync]
    {
        let fs = SimFs::new(1);
        let mut options = options(durability);
        options.queue_records = 50;
        let (log, _) = Log::open_with(Arc::new(fs.clone()), &dir(), options).unwrap();
        for id in 0..20 {
            let ticket = log.append(record(&payload(id))).unwrap();
            log.wait(ticket).unwrap();
        }
        log.flush().wait().unwrap();
        fs.set_capacity(Some(fs.used()));
        // Appending continues, never blocks, and fails once the queue is full.
        let mut id = 20;
        let mut waiting = Vec::new();
        let refused = loop {
            match log.append(record(&payload(id))) {
                Ok(ticket) => {
                    waiting.push(ticket);
                    id += 1;
                }
                Err(e) => break e,
            }
            assert!(id < 10_000, "the queue is never full");
        };
        assert!(matches!(refused, AppendError::Degraded(_)), "{refused}");
        assert!(
            matches!(log.health(), Health::Degraded { storage_full: true, .. }),
            "{:?}",
            log.health()
        );
        assert!(matches!(log.flush().wait(), Err(WaitError::Degraded { storage_full: true, .. })));
        if durability == Durability::Sync {
            assert!(matches!(
                log.wait(waiting[waiting.len() - 1]),
                Err(WaitError::Degraded { .. })
            ));
        }
        assert!(
            log.metrics().degraded == 1 && log.metrics().refused > 0 && log.metrics().failures > 0
        );
        fs.set_capacity(None);
        wait_for(&log, |state| *state == Health::Good);
        log.flush().wait().unwrap();
        let image = fs.crash(Survival::None, &mut Rng::new(1));
        let mut seen = 0;
        let summary = Reader::open_with(Arc::new(image), &dir())
            .unwrap()
            .with_blocks(&PlainBlocks)
            .for_each(|_, r| {
                assert_eq!(r.payload, payload(seen));
                seen += 1;
            })
            .unwrap();
        assert_eq!((seen, summary.damage.len()), (id, 0));
        log.close().unwrap();
    }
}

#[test]
fn maintenance_begins_on_a_full_disk_with_the_reserved_space() {
    let fs = SimFs::new(1);
    let (log, _) = Log::open_with(Arc::new(fs.clone()), &dir(), options(Durability::Sync)).unwrap();
    let ticket = log.append(record(b"x")).unwrap();
    log.wait(ticket).unwrap();
    log.close().unwrap();
    fs.set_capacity(Some(fs.used()));
    let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir()).unwrap();
    let meta = SnapshotMeta { covers_seq: 1, ..SnapshotMeta::default() };
    let bytes = vec![1; 10_000];
    maintenance.write_snapshot(&meta, &[Section { kind: 1, version: 1, bytes: &bytes }]).unwrap();
    let newest = || load_snapshot_with(Arc::new(fs.clone()), &dir()).unwrap().snapshot.unwrap();
    assert_eq!(newest().section(1).unwrap(), Some((1, bytes)));
    // Without any space left, it fails cleanly.
    let large = vec![1; 300 << 10];
    let error = maintenance
        .write_snapshot(&meta, &[Section { kind: 1, version: 1, bytes: &large }])
        .unwrap_err();
    assert!(error.is_storage_full(), "{error}");
    assert!(newest().section(1).unwrap().is_some());
}

#[test]
fn a_broken_disk_wakes_every_waiter_and_close_reports_the_loss() {
    let fs = SimFs::new(1);
    let (log, _) = Log::open_with(Arc::new(fs.clone()), &dir(), options(Durability::Sync)).unwrap();
    let ticket = log.append(record(b"good")).unwrap();
    log.wait(ticket).unwrap();
    fs.set_disk(Disk::Failing);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..8)
            .map(|id| {
                let log = &log;
                scope.spawn(move || {
                    let ticket = log.append(record(&payload(id))).unwrap();
                    log.wait(ticket)
                })
            })
            .collect();
        for waiter in waiters {
            assert!(matches!(
                waiter.join().unwrap(),
                Err(WaitError::Degraded { storage_full: false, .. })
            ));
        }
    });
    assert!(matches!(log.flush().wait(), Err(WaitError::Degraded { .. })));
    match log.close() {
        Err(Error::Unsaved { lost, .. }) => assert_eq!(lost, Lost::new(8)),
        other => panic!("{other:?}"),
    }
    fs.set_disk(Disk::Working);
    let (log, recovery) = Log::open_with(Arc::new(fs), &dir(), options(Durability::Sync)).unwrap();
    assert_eq!(recovery.next_seq, 2);
    log.close().unwrap();
}

#[test]
fn a_blocked_append_returns_when_the_disk_breaks() {
    let fs = SimFs::new(1);
    let mut options = options(Durability::Sync);
    options.queue_records = 2;
    options.on_full = OnFull::Block;
    let (log, _) = Log::open_with(Arc::new(fs.clone()), &dir(), options).unwrap();
    fs.set_disk(Disk::Failing);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| while log.append(record(b"x")).is_ok() {});
        }
    });
    fs.set_disk(Disk::Working);
    wait_for(&log, |state| *state == Health::Good);
    log.append(record(b"y")).unwrap();
    log.close().unwrap();
}

#[test]
fn acknowledgements_are_exact_under_load() {
    // Fault suite, row 11, the part that loom cannot do: the real queue, real threads, many times.
    let each = scaled(20_000, 125_000, 125_000);
    let tmp = tempfile::tempdir().unwrap();
    let mut options = options(Durability::Os);
    options.queue_records = 64;
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let log = &log;
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..each {
                    let ticket = log.append(record(b"x")).unwrap();
                    match rng.below(40) {
                        0 => {
                            log.wait(ticket).unwrap();
                            assert!(log.metrics().written_seq >= ticket.seq().unwrap());
                        }
                        1 if rng.below(20) == 0 => {
                            log.flush().wait().unwrap();
                            assert!(log.metrics().durable_seq >= ticket.seq().unwrap());
                        }
                        2 => drop(log.acknowledged(ticket)),
                        _ => {}
                    }
                }
            });
        }
    });
    assert_eq!(log.metrics().appended, each * 8);
    log.close().unwrap();
    let reader = Reader::open(tmp.path()).unwrap().with_blocks(&PlainBlocks);
    let summary = reader.for_each(|_, _| {}).unwrap();
    assert_eq!(summary.records, each * 8);
    report("11", "appends by 8 threads with waits and flushes among them", each * 8, 0, 0);
}
