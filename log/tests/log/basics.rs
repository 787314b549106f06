//! The log through its public API on the real file system: records come back as written, and each
//! refusal has its own error.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fetchwise_log::{
    AppendError, Durability, Error, Health, Log, LogOptions, OnFull, ReadItem, Reader, Record,
    ResumeMark, WaitError,
};
use pollster::block_on;
use tempfile::TempDir;

use crate::losses::wait_for;

fn record(payload: &[u8]) -> Record<'_> {
    Record { kind: 3, schema: 1, key_hash: 42, time_ms: 1_700_000_000_000, payload }
}

fn options(durability: Durability) -> LogOptions {
    let mut options = LogOptions::default();
    options.durability = durability;
    options.fingerprint = *b"fingerprint-0001";
    options
}

fn open(dir: &Path, options: LogOptions) -> Log {
    Log::open(dir, options).unwrap().0
}

fn payloads(dir: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let summary =
        Reader::open(dir).unwrap().for_each(|seq, r| all.push((seq, r.payload.to_vec()))).unwrap();
    assert_eq!(summary.damage, []);
    assert_eq!(summary.torn, None);
    all
}

/// The last segment, by name.
fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "fwl"))
        .collect();
    found.sort();
    found
}

/// A log as a killed process leaves it: no seal, no final manifest.
fn killed(dir: &TempDir, n: u64) -> TempDir {
    let copy = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Sync));
    for i in 0..n {
        log.append(record(&i.to_le_bytes())).unwrap();
    }
    log.flush().wait().unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    drop(log);
    copy
}

#[test]
fn records_come_back_in_order_with_their_tags() {
    for durability in [
        Durability::Memory,
        Durability::Os,
        Durability::Interval(Duration::from_millis(5)),
        Durability::Sync,
    ] {
        let dir = TempDir::new().unwrap();
        let log = open(dir.path(), options(durability));
        for i in 0..1000u64 {
            let payload = vec![i as u8; (i % 97) as usize];
            let record = Record {
                kind: i as u16,
                schema: 2,
                key_hash: i * 3,
                time_ms: i as i64,
                payload: &payload,
            };
            let ticket = log.append(record).unwrap();
            assert_eq!(ticket.seq(), Some(i + 1));
            if i % 100 == 0 {
                log.wait(ticket).unwrap();
            }
        }
        log.close().unwrap();
        let mut next = 0u64;
        let summary = Reader::open(dir.path())
            .unwrap()
            .for_each(|seq, r| {
                assert_eq!(seq, next + 1);
                assert_eq!((r.kind, r.schema, r.key_hash), (next as u16, 2, next * 3));
                assert_eq!(r.payload, vec![next as u8; (next % 97) as usize]);
                assert_eq!(r.payload.as_ptr().align_offset(8), 0);
                next += 1;
            })
            .unwrap();
        assert_eq!(
            (summary.records, summary.first_seq, summary.last_seq),
            (1000, Some(1), Some(1000))
        );
        assert_eq!(summary.max_time, Some(999));
    }
}

/// A time that no test waits for: one that does never ends.
const LINGER: Duration = Duration::from_secs(86_400);

fn lingering() -> LogOptions {
    let mut opts = options(Durability::Os);
    opts.linger = LINGER;
    opts
}

#[test]
fn no_waiter_is_delayed_by_the_gathering_of_records() {
    let dir = TempDir::new().unwrap();
    let mut opts = lingering();
    opts.queue_records = 8;
    let log = open(dir.path(), opts);
    let ticket = log.append(record(b"waited for")).unwrap();
    log.wait(ticket).unwrap();
    let ticket = log.append(record(b"a future")).unwrap();
    block_on(log.acknowledged(ticket)).unwrap();
    log.append(record(b"settled")).unwrap();
    block_on(log.settled()).unwrap();
    log.append(record(b"flushed")).unwrap();
    let flush = log.flush();
    while log.metrics().durable_seq < 4 {
        std::thread::yield_now();
    }
    flush.wait().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| _ = log.append(record(b"a full queue")).unwrap()));
        }
    });
    log.append(record(b"closed")).unwrap();
    log.close().unwrap();
    assert_eq!(payloads(dir.path()).len(), 405);
}

#[test]
fn a_record_without_room_ends_the_gathering() {
    for on_full in [OnFull::Block, OnFull::Error, OnFull::Shed] {
        let dir = TempDir::new().unwrap();
        let mut opts = lingering();
        (opts.queue_bytes, opts.on_full) = (1000, on_full);
        let log = open(dir.path(), opts);
        let mut large = 0;
        // The small one alone does not half fill the queue.
        while large < 3 {
            let _ = log.append(record(&[1; 400]));
            large +=
                u64::from(log.append(record(&[2; 700])).is_ok_and(|ticket| ticket.seq().is_some()));
        }
        log.close().unwrap();
    }
}

#[test]
fn records_without_waiters_share_a_frame() {
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (log, hasty) = (open(dir.path(), lingering()), open(other.path(), options(Durability::Os)));
    for seq in 1..=3 {
        log.append(record(b"at leisure")).unwrap();
        // By then a writer that does not gather records would have written it.
        hasty.append(record(b"in haste")).unwrap();
        wait_for("the other log writes", || hasty.metrics().written_seq == seq);
    }
    assert_eq!(log.metrics().written_seq, 0);
    log.flush().wait().unwrap();
    // A sync marker may be a second one.
    assert!(log.metrics().written_seq == 3 && log.metrics().frames <= 2);
    log.close().unwrap();
}

#[test]
fn numbers_continue_after_reopening_and_opening_alone_makes_no_files() {
    let dir = TempDir::new().unwrap();
    for round in 0..3u64 {
        let (log, recovery) = Log::open(dir.path(), options(Durability::Os)).unwrap();
        assert_eq!(recovery.next_seq, round * 10 + 1);
        assert_eq!(recovery.records_checked, round * 10);
        assert_eq!(recovery.torn, None);
        for i in 0..10u64 {
            log.append(record(&(round * 10 + i).to_le_bytes())).unwrap();
        }
        log.close().unwrap();
    }
    let before = segments(dir.path());
    open(dir.path(), options(Durability::Os)).close().unwrap();
    assert_eq!(segments(dir.path()), before);
    let expected: Vec<_> = (0..30u64).map(|i| (i + 1, i.to_le_bytes().to_vec())).collect();
    assert_eq!(payloads(dir.path()), expected);
}

#[test]
fn segments_roll_and_chain() {
    let dir = TempDir::new().unwrap();
    let mut opts = options(Durability::Os);
    opts.segment_bytes = 64 << 10;
    let log = open(dir.path(), opts.clone());
    for i in 0..2000u64 {
        let ticket = log.append(record(&[i as u8; 200])).unwrap();
        if i % 50 == 0 {
            log.wait(ticket).unwrap();
        }
    }
    log.close().unwrap();
    assert!(segments(dir.path()).len() > 5);
    assert_eq!(payloads(dir.path()).len(), 2000);
    // A record larger than a segment gets a separate segment.
    let log = open(dir.path(), opts);
    log.append(record(&vec![1; 300 << 10])).unwrap();
    log.close().unwrap();
    assert_eq!(payloads(dir.path()).len(), 2001);
}

#[test]
fn an_empty_or_absent_directory_is_an_empty_log() {
    let dir = TempDir::new().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("nowhere")] {
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.segments().len(), 0);
        assert_eq!(reader.for_each(|_, _| panic!("a record")).unwrap().records, 0);
        assert_eq!(reader.records().count(), 0);
    }
    assert!(!dir.path().join("nowhere").exists());
    open(&dir.path().join("a/b/c"), options(Durability::Os)).close().unwrap();
    assert!(dir.path().join("a/b/c").exists());
}

#[test]
fn a_reader_works_during_a_running_writer() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Os));
    for i in 0..100u64 {
        log.append(record(&i.to_le_bytes())).unwrap();
    }
    log.flush().wait().unwrap();
    assert_eq!(payloads(dir.path()).len(), 100);
    let from_50: Vec<u64> = {
        let mut seqs = Vec::new();
        log.reader().unwrap().for_each_from(50, |seq, _| seqs.push(seq)).unwrap();
        seqs
    };
    assert_eq!(from_50, (50..=100).collect::<Vec<_>>());
    let reader = log.reader().unwrap();
    let items: Vec<_> = reader.records().collect::<Result<_, _>>().unwrap();
    let seqs: Vec<u64> = items
        .iter()
        .map(|item| match item {
            ReadItem::Record(r) => {
                assert_eq!(r.as_ref().payload, (r.seq() - 1).to_le_bytes());
                assert_eq!(r.as_ref().payload.as_ptr().align_offset(8), 0);
                r.seq()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seqs, (1..=100).collect::<Vec<_>>());
    drop(log);
}

#[test]
fn a_second_writer_is_refused_with_the_name_of_the_holder() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Os));
    let start = Instant::now();
    let error = Log::open(dir.path(), options(Durability::Os)).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert!(
        matches!(&error, Error::Locked { holder, .. } if *holder == format!("pid {}", std::process::id())),
        "{error}"
    );
    assert!(error.is_refusal());
    log.close().unwrap();
    open(dir.path(), options(Durability::Os)).close().unwrap();
}

#[test]
fn another_fingerprint_is_refused_unless_accepted() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Os));
    log.append(record(b"x")).unwrap();
    log.close().unwrap();
    let mut other = options(Durability::Os);
    other.fingerprint = *b"fingerprint-0002";
    let error = Log::open(dir.path(), other.clone()).unwrap_err();
    assert!(matches!(error, Error::FingerprintMismatch { .. }) && error.is_refusal(), "{error}");
    other.accepts = vec![*b"fingerprint-0001"];
    open(dir.path(), other).close().unwrap();
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Os));
    log.append(record(b"x")).unwrap();
    log.close().unwrap();
    let path = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    for (start, end) in [(0, 256), (2048, 2304), (0, 4096)] {
        let crc = crc32c::crc32c(&bytes[start..end - 4]);
        bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    let error = Log::open(dir.path(), options(Durability::Os)).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { .. }) && error.is_refusal(), "{error}");
    assert!(matches!(Reader::open(dir.path()), Err(Error::NewerFormat { .. })));
}

#[test]
fn a_torn_tail_is_repaired_and_reported() {
    let dir = TempDir::new().unwrap();
    let copy = killed(&dir, 100);
    let path = segments(copy.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|&b| b != 0).unwrap() + 1;
    let garbage = end.next_multiple_of(16);
    bytes.resize(bytes.len().max(garbage + 1000), 0);
    bytes[garbage..garbage + 700].fill(0xa5);
    fs::write(&path, &bytes).unwrap();

    let seen = Reader::open(copy.path()).unwrap().for_each(|_, _| {}).unwrap();
    assert_eq!((seen.records, seen.damage.len()), (100, 0));
    assert_eq!(seen.torn.unwrap().records_kept, 100);

    let (log, recovery) = Log::open(copy.path(), options(Durability::Os)).unwrap();
    let torn = recovery.torn.unwrap();
    assert_eq!((torn.bytes, torn.records_kept), (700, 100));
    assert_eq!(recovery.next_seq, 101);
    log.append(record(&100u64.to_le_bytes())).unwrap();
    log.close().unwrap();
    // The repair is permanent: the tail is not reported again, and the torn file is unchanged.
    assert_eq!(payloads(copy.path()).len(), 101);
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn damage_in_the_middle_is_refused_with_its_range() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Sync));
    for i in 0..100u64 {
        let ticket = log.append(record(&i.to_le_bytes())).unwrap();
        log.wait(ticket).unwrap();
    }
    log.close().unwrap();
    let path = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 + 80 * 40 + 50] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Log::open(dir.path(), options(Durability::Sync)).unwrap_err();
    assert!(error.is_refusal());
    let damage = error.damage();
    assert_eq!(damage.len(), 1, "{error}");
    let (first, last) = damage[0].records.unwrap();
    assert_eq!(first, last);
    // A reader continues after it and reports the same.
    let mut seqs = Vec::new();
    let summary = Reader::open(dir.path()).unwrap().for_each(|seq, _| seqs.push(seq)).unwrap();
    assert_eq!(seqs, (1..=100).filter(|&s| s != first).collect::<Vec<_>>());
    assert_eq!(summary.damage, damage);
    let mut order = Vec::new();
    for item in Reader::open(dir.path()).unwrap().records() {
        match item.unwrap() {
            ReadItem::Record(r) => order.push(r.seq()),
            ReadItem::Damage(d) => order.push(d.records.unwrap().0),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(order, (1..=100).collect::<Vec<_>>());
    assert_eq!(fs::read(&path).unwrap(), bytes, "a refusal changes nothing");
}

#[test]
fn a_missing_segment_is_damage() {
    let dir = TempDir::new().unwrap();
    for round in 0..4 {
        let log = open(dir.path(), options(Durability::Os));
        log.append(record(&[round])).unwrap();
        log.close().unwrap();
    }
    let files = segments(dir.path());
    for gone in &files {
        let copy = TempDir::new().unwrap();
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path != *gone {
                fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
            }
        }
        let error = Log::open(copy.path(), options(Durability::Os)).unwrap_err();
        let seq = files.iter().position(|f| f == gone).unwrap() as u64 + 1;
        let covers =
            error.damage().iter().any(|d| d.records.is_some_and(|(a, b)| a <= seq && seq <= b));
        assert!(covers, "{error}");
    }
}

#[test]
fn an_unwritable_directory_is_reported() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), b"").unwrap();
    let error = Log::open(&dir.path().join("file"), options(Durability::Os)).unwrap_err();
    assert!(!error.is_refusal(), "{error}");
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn a_full_queue_fails_or_sheds_by_policy_and_counts() {
    for (policy, level) in [(OnFull::Error, Durability::Sync), (OnFull::Shed, Durability::Os)] {
        let dir = TempDir::new().unwrap();
        let mut opts = options(level);
        opts.on_full = policy;
        opts.queue_records = 2;
        let log = open(dir.path(), opts);
        let (mut taken, mut refused, mut shed) = (0, 0, 0);
        for i in 0..200_000u64 {
            match log.append(record(&i.to_le_bytes())) {
                Ok(ticket) if ticket.seq().is_some() => taken += 1,
                Ok(ticket) => {
                    assert_eq!(log.wait(ticket), Err(WaitError::Shed));
                    shed += 1;
                }
                Err(AppendError::Full) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        let metrics = log.metrics();
        assert_eq!((metrics.appended, metrics.refused, metrics.shed), (taken, refused, shed));
        assert!(refused + shed > 0);
        assert_eq!(policy == OnFull::Shed, shed > 0);
        log.close().unwrap();
        assert_eq!(payloads(dir.path()).len() as u64, taken);
    }
}

#[test]
fn many_threads_keep_their_own_order() {
    let dir = TempDir::new().unwrap();
    let mut opts = options(Durability::Os);
    opts.queue_records = 64;
    let log = Arc::new(open(dir.path(), opts));
    std::thread::scope(|scope| {
        for producer in 0..8u64 {
            let log = log.clone();
            scope.spawn(move || {
                let mut last = 0;
                for i in 0..5000u64 {
                    let ticket = log
                        .append(record(&[producer.to_le_bytes(), i.to_le_bytes()].concat()))
                        .unwrap();
                    assert!(ticket.seq().unwrap() > last);
                    last = ticket.seq().unwrap();
                    if i % 500 == 0 {
                        log.wait(ticket).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(log.health(), Health::Good);
    assert!(log.metrics().blocked > 0);
    Arc::try_unwrap(log).unwrap().close().unwrap();
    let mut next = [0u64; 8];
    for (_, payload) in payloads(dir.path()) {
        let producer = u64::from_le_bytes(payload[..8].try_into().unwrap()) as usize;
        let i = u64::from_le_bytes(payload[8..].try_into().unwrap());
        assert_eq!(i, next[producer]);
        next[producer] += 1;
    }
    assert_eq!(next, [5000; 8]);
}

#[test]
fn a_flush_can_be_awaited_without_a_runtime() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Memory));
    for i in 0..20u64 {
        let ticket = log.append(record(&i.to_le_bytes())).unwrap();
        log.wait(ticket).unwrap();
        block_on(log.flush()).unwrap();
        assert_eq!(log.metrics().durable_seq, i + 1);
    }
    drop(log.flush());
    log.close().unwrap();
}

#[test]
fn an_idle_log_marks_what_is_durable() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Os));
    let ticket = log.append(record(b"first")).unwrap();
    log.wait(ticket).unwrap();
    log.append(record(b"second")).unwrap();
    wait_for("the marker is written", || {
        let now = log.metrics();
        now.durable_seq >= 2 && now.bytes >= 4096 + 80 * 2 + 48
    });
    // The last record is protected by the marker behind it: a flip in it is damage, not a torn
    // tail.
    let copy = TempDir::new().unwrap();
    let path = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(6).position(|w| w == b"second").unwrap();
    bytes[at] ^= 4;
    fs::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
    let error = Log::open(copy.path(), options(Durability::Os)).unwrap_err();
    assert_eq!(error.damage()[0].records, Some((2, 2)), "{error}");
    drop(log);
}

#[test]
fn a_record_that_is_too_large_is_refused() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Os));
    let largest = vec![7; fetchwise_log::MAX_RECORD_LEN + 1];
    assert!(matches!(log.append(record(&largest)), Err(AppendError::TooLarge { .. })));
    log.append(record(&largest[1..])).unwrap();
    log.close().unwrap();
    assert_eq!(payloads(dir.path())[0].1.len(), fetchwise_log::MAX_RECORD_LEN);
}

#[test]
fn a_sharded_replay_sees_each_record_once_and_keeps_the_order_of_a_key() {
    let dir = TempDir::new().unwrap();
    let mut opts = options(Durability::Os);
    opts.segment_bytes = 1 << 20;
    let log = open(dir.path(), opts);
    for i in 0..20_000u64 {
        let payload = vec![i as u8; (i % 400) as usize];
        let ticket = log
            .append(Record { kind: 1, schema: 1, key_hash: i % 37, time_ms: 0, payload: &payload })
            .unwrap();
        if i % 1000 == 0 {
            log.wait(ticket).unwrap();
        }
    }
    log.close().unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    for (shards, from) in [(1, 0), (2, 0), (5, 0), (2, 7001)] {
        let mut told = 0;
        let announced = AtomicU64::new(0);
        let (seen, summary) = reader
            .for_each_sharded(
                from,
                vec![Vec::new(); shards],
                |_, keys| {
                    announced.fetch_add(keys.len() as u64, Ordering::Relaxed);
                },
                |seen: &mut Vec<(u64, u64)>, seq, record| {
                    assert_eq!(record.payload, vec![(seq - 1) as u8; ((seq - 1) % 400) as usize]);
                    assert_eq!(record.payload.as_ptr().align_offset(8), 0);
                    seen.push((record.key_hash, seq));
                },
                |progress| {
                    assert!(progress.done > told && progress.done <= progress.total);
                    told = progress.done;
                },
            )
            .unwrap();
        assert_eq!(summary.records, 20_000 - from.max(1) + 1);
        assert_eq!(announced.into_inner(), summary.records);
        assert_eq!((summary.first_seq, summary.last_seq), (Some(from.max(1)), Some(20_000)));
        let mut all: Vec<u64> = Vec::new();
        for shard in &seen {
            assert!(shard.windows(2).all(|w| w[0].1 < w[1].1));
            all.extend(shard.iter().map(|(_, seq)| seq));
        }
        all.sort_unstable();
        assert_eq!(all, (from.max(1)..=20_000).collect::<Vec<_>>());
    }
}

#[test]
fn a_closed_log_that_lost_its_last_bytes_is_a_torn_tail_unless_a_record_is_gone() {
    // The bug: a cut that removed only the seal was refused as damage, with records that had never
    // existed.
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), options(Durability::Sync));
    for i in 0..5u64 {
        log.append(record(&i.to_le_bytes())).unwrap();
    }
    log.close().unwrap();
    let path = segments(dir.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let (mut torn, mut refused) = (0, 0);
    for cut in 1..whole.len() - 4096 {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        let mut kept = 0;
        let summary = Reader::open(dir.path()).unwrap().for_each(|_, _| kept += 1).unwrap();
        match (summary.torn, summary.damage.as_slice()) {
            (Some(_), []) => {
                assert_eq!(kept, 5, "cut {cut}");
                torn += 1;
            }
            (None, [damage]) => {
                assert_eq!(damage.records.unwrap().1, 5, "cut {cut}: {damage:?}");
                refused += 1;
            }
            other => panic!("cut {cut}: {other:?}"),
        }
    }
    assert!(torn >= 48 && refused >= 48, "{torn} torn, {refused} refused");
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (log, recovery) = Log::open(dir.path(), options(Durability::Sync)).unwrap();
    assert!(recovery.torn.is_some());
    log.append(record(b"next")).unwrap();
    log.close().unwrap();
    assert_eq!(payloads(dir.path()).len(), 6);
}

#[test]
fn a_segment_reports_its_times_only_if_its_seal_matches_the_next_segment() {
    let dir = TempDir::new().unwrap();
    let write = |times: &[i64], is_closed: bool| {
        let mut options = options(Durability::Sync);
        options.begin_segment = true;
        let log = open(dir.path(), options);
        for &time_ms in times {
            log.append(Record { time_ms, ..record(b"x") }).unwrap();
        }
        log.flush().wait().unwrap();
        if is_closed {
            log.close().unwrap();
        } else {
            // The state after a kill: a copy of the files on disk now.
            let last = segments(dir.path()).pop().unwrap();
            let bytes = fs::read(&last).unwrap();
            log.close().unwrap();
            fs::write(&last, bytes).unwrap();
            fs::remove_file(dir.path().join("SEGMENTS")).unwrap();
        }
    };
    write(&[5000, 3000, 4000], true);
    write(&[7000], false);
    write(&[9000], true);
    let reader = Reader::open(dir.path()).unwrap();
    let times = |index| {
        let times = reader.segment_times(index).unwrap();
        times.map(|times| (times.earliest, times.latest, times.records))
    };
    let ends: Vec<_> = (0..reader.segments().len()).map(times).collect();
    assert_eq!(ends[0], Some((Some(3000), Some(5000), 3)));
    assert_eq!(ends[1], None, "it has no seal");
    assert_eq!(*ends.last().unwrap(), None, "it may still grow");
    assert!(matches!(reader.segment_times(ends.len()), Err(Error::Invalid(_))));
    // A damaged seal reports nothing and cannot pass as the seal of another segment.
    let first = segments(dir.path()).remove(0);
    let whole = fs::read(&first).unwrap();
    for back in 1..=96 {
        let mut bytes = whole.clone();
        let at = bytes.len() - back;
        bytes[at] ^= 1;
        fs::write(&first, bytes).unwrap();
        let seen = Reader::open(dir.path()).unwrap().segment_times(0).unwrap();
        assert_eq!(seen, None, "byte {at}");
    }
}

#[test]
fn a_pass_with_a_mark_delivers_only_new_records_and_does_not_read_old_ones_again() {
    let dir = TempDir::new().unwrap();
    let mut small = options(Durability::Sync);
    small.segment_bytes = 64 << 10;
    let log = open(dir.path(), small);
    let mut mark = ResumeMark::default();
    let (mut seen, mut next) = (Vec::new(), 1u64);
    let read = |next: &mut u64, upto: u64, mark: &mut ResumeMark, seen: &mut Vec<u64>| {
        let reader = Reader::open(dir.path()).unwrap();
        for (index, segment) in reader.segments().enumerate() {
            if segment.first_seq > upto || segment.next_seq.is_some_and(|end| end <= *next) {
                continue;
            }
            let read = reader.segment_for_each_marked(index, (*next, upto), mark, |seq, record| {
                assert_eq!(record.payload[..8], (seq - 1).to_le_bytes());
                seen.push(seq);
            });
            assert_eq!(read.unwrap().damage, []);
            *next = seen.last().map_or(*next, |seq| seq + 1);
        }
    };
    for i in 0..4000u64 {
        let mut payload = vec![0; 100];
        payload[..8].copy_from_slice(&i.to_le_bytes());
        log.append(record(&payload)).unwrap();
        if i % 97 == 0 {
            log.flush().wait().unwrap();
            // Not always to the end.
            read(&mut next, (i + 1).saturating_sub(i % 3), &mut mark, &mut seen);
        }
    }
    log.flush().wait().unwrap();
    read(&mut next, 4000, &mut mark, &mut seen);
    assert_eq!(seen, (1..=4000).collect::<Vec<_>>());
    assert!(segments(dir.path()).len() > 3, "it goes on over the end of a segment");
    // Bytes before the mark are not read again; a pass without a mark finds the damage there.
    log.append(record(&4000u64.to_le_bytes())).unwrap();
    log.flush().wait().unwrap();
    let last = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&last).unwrap();
    bytes[4096 + 70] ^= 1;
    fs::write(&last, bytes).unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    let index = reader.segments().len() - 1;
    let pass = |mark: &mut ResumeMark| {
        let mut shown = Vec::new();
        let summary = reader
            .segment_for_each_marked(index, (4001, 4001), mark, |seq, _| shown.push(seq))
            .unwrap();
        (shown, summary.damage.len())
    };
    assert_eq!(pass(&mut mark), (vec![4001], 0));
    assert_eq!(pass(&mut ResumeMark::default()).1, 1);
}
