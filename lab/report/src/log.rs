//! Appends, compared with the disk itself, fjall and SQLite, with records of the journal's size.
//!
//! fjall represents the key-value stores, because its journal is an append-only log whose levels
//! (`Buffer`, `SyncData`) match `Os` and `Sync`. redb copies pages of a B-tree and syncs at each
//! commit, which is different work.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use fetchwise::attempt::Attempt;
use fetchwise::journal::{Durability, Journal};
use fetchwise::time::Timestamp;
use fetchwise_log::Reader;
use fjall::{Database, KeyspaceCreateOptions, PersistMode};

use crate::Scale;
use crate::book::Section;
use crate::measure::{CELLS, Latency};
use crate::record::{INTERVAL, options};
use crate::{sqlite, text, traffic};

/// A function that appends a record.
type Append<'a> = &'a mut dyn FnMut(usize);

struct Row {
    name: String,
    latency: Latency,
    rate: f64,
}

/// Makes `count` appends at full speed, then calls `end`.
fn flood(name: &str, count: usize, append: Append<'_>, end: &mut dyn FnMut()) -> Row {
    let mut latency = Latency::new();
    let begun = Instant::now();
    (0..count).for_each(|n| latency.time(|| append(n)));
    end();
    Row { name: name.to_owned(), latency, rate: count as f64 / begun.elapsed().as_secs_f64() }
}

/// Makes synced appends, one by one, for a while.
fn synced(name: &str, time: Duration, append: Append<'_>) -> Row {
    let (mut latency, begun, mut n) = (Latency::new(), Instant::now(), 0);
    while begun.elapsed() < time {
        latency.time(|| append(n));
        n += 1;
    }
    Row { name: name.to_owned(), latency, rate: n as f64 / begun.elapsed().as_secs_f64() }
}

fn print(section: &mut Section, rows: &[Row]) {
    let head: Vec<&str> = std::iter::once("candidate").chain(CELLS).chain(["rate"]).collect();
    let cells = |row: &Row| {
        let mut cells = row.latency.row(row.name.clone());
        cells.push(text::rate(row.rate));
        cells
    };
    section.table(&head, rows.iter().map(cells).collect());
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Appends");
    let (count, now) = (scale.pick(5_000, 500_000), Timestamp::now());
    let attempts = traffic::pool(count.min(100_000), 100_000, now);
    let size = record_bytes(&attempts);
    section.text(format!(
        "The journal writes an attempt in {size} bytes as a record, including frames, and packs the batches of these floods \
         into less. The others store a value of the size of a record under an eight-byte key. These tables measure the journal alone, including encoding; the table of `record` \
         includes fetchwise's weights. SQLite has the tables and indexes of the published plan: an attempt is one \
         row, and two or three rows of heuristics.",
    ));
    let floods = floods(&attempts, count, size);
    section
        .text("Appends at full speed, by one thread, without a wait for the disk until the end:");
    print(&mut section, &floods);
    let time = scale.pick(Duration::from_millis(100), Duration::from_secs(2));
    let syncs = one_by_one(&attempts, size, time);
    section.text("Appends by one thread, each synced before the next:");
    print(&mut section, &syncs);
    let ours = floods[0].rate;
    for peer in floods.iter().filter(|row| !row.name.starts_with("journal")) {
        let versus =
            if peer.name.starts_with("a buffered file") { Section::limit } else { Section::duel };
        let what = "appends, synced at the end";
        versus(
            &mut section,
            what,
            "journal at `Interval(100 ms)`",
            &peer.name,
            ours / peer.rate,
            "",
        );
    }
    sizes(&mut section, &attempts, scale.pick(2_000, 20_000));
    let ours = syncs[0].latency.p50();
    for peer in &syncs[1..] {
        let versus = if peer.name.starts_with("bare") { Section::limit } else { Section::duel };
        let what = "one append, synced, p50";
        versus(&mut section, what, "journal at `Sync`", &peer.name, peer.latency.p50() / ours, "");
    }
    section
}

/// Bytes of a log whose batches are as small as they get: each attempt is handed to the system
/// before the next one.
fn sizes(section: &mut Section, attempts: &[Attempt], count: usize) {
    let tmp = tempfile::tempdir().unwrap();
    let segments =
        || Reader::open(tmp.path()).unwrap().segments().map(|segment| segment.bytes).sum::<u64>();
    let (journal, _) =
        Journal::open(tmp.path(), options(Durability::Os).linger(Duration::ZERO)).unwrap();
    let mut rows = Vec::new();
    let mut row = |when: &str, bytes: u64, written: usize| {
        rows.push(vec![when.to_owned(), bytes.to_string(), (bytes / written as u64).to_string()]);
    };
    for n in 1..=count {
        journal.append_attempt(&attempts[n % attempts.len()]).unwrap();
        journal.settled().wait().unwrap();
        if n % (count / 4) == 0 {
            row(&format!("after {n} attempts"), segments(), n);
        }
    }
    journal.close().unwrap();
    row("closed", segments(), count);
    section.text(
        "Bytes of segments, allocated space included, while attempts are appended one by one:",
    );
    section.table(&["", "bytes", "bytes per attempt"], rows);
}

fn record_bytes(attempts: &[Attempt]) -> usize {
    let tmp = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(tmp.path(), options(Durability::Os).pack(false)).unwrap();
    attempts.iter().for_each(|attempt| _ = journal.append_attempt(attempt).unwrap());
    journal.close().unwrap();
    let bytes: u64 =
        Reader::open(tmp.path()).unwrap().segments().map(|segment| segment.bytes).sum();
    bytes as usize / attempts.len()
}

fn floods(attempts: &[Attempt], count: usize, size: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let tmp = tempfile::tempdir().unwrap();
    for (name, durability) in
        [("journal at `Interval(100 ms)`", INTERVAL), ("journal at `Os`", Durability::Os)]
    {
        let (journal, _) = Journal::open(&tmp.path().join(name), options(durability)).unwrap();
        rows.push(flood(
            name,
            count,
            &mut |n| _ = journal.append_attempt(&attempts[n % attempts.len()]).unwrap(),
            &mut || journal.flush().wait().unwrap(),
        ));
        journal.close().unwrap();
    }
    let mut file =
        std::io::BufWriter::with_capacity(1 << 20, File::create(tmp.path().join("bare")).unwrap());
    let payload = vec![7; size];
    let append: Append<'_> = &mut |_| file.write_all(&payload).unwrap();
    let mut row = flood("a buffered file, without checksums", count, append, &mut || ());
    let begun = Instant::now();
    file.flush().unwrap();
    file.get_ref().sync_data().unwrap();
    row.rate = 1.0 / (1.0 / row.rate + begun.elapsed().as_secs_f64() / count as f64);
    rows.push(row);

    let db = Database::builder(tmp.path().join("fjall")).open().unwrap();
    let items = db.keyspace("attempts", KeyspaceCreateOptions::default).unwrap();
    rows.push(flood(
        "fjall",
        count,
        &mut |n| items.insert((n as u64).to_be_bytes(), &payload).unwrap(),
        &mut || db.persist(PersistMode::SyncData).unwrap(),
    ));
    let db = sqlite::create(&tmp.path().join("attempts.db"), "NORMAL", true);
    let count = count / 10;
    rows.push(flood(
        "SQLite, 1000 attempts per transaction",
        count,
        &mut |n| {
            if n % 1000 == 0 {
                db.execute_batch("BEGIN").unwrap();
            }
            sqlite::insert(&db, n, &attempts[n % attempts.len()]);
            if n % 1000 == 999 || n + 1 == count {
                db.execute_batch("COMMIT").unwrap();
            }
        },
        &mut || db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap(),
    ));
    rows
}

fn one_by_one(attempts: &[Attempt], size: usize, time: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    let tmp = tempfile::tempdir().unwrap();
    let (journal, _) =
        Journal::open(&tmp.path().join("journal"), options(Durability::Sync)).unwrap();
    rows.push(synced("journal at `Sync`", time, &mut |n| {
        journal.append_attempt(&attempts[n % attempts.len()]).unwrap();
        journal.settled().wait().unwrap();
    }));
    journal.close().unwrap();
    let mut file = File::create(tmp.path().join("bare")).unwrap();
    let payload = vec![7; size];
    rows.push(synced("bare write and `fdatasync`", time, &mut |_| {
        file.write_all(&payload).unwrap();
        file.sync_data().unwrap();
    }));
    let db = Database::builder(tmp.path().join("fjall")).open().unwrap();
    let items = db.keyspace("attempts", KeyspaceCreateOptions::default).unwrap();
    rows.push(synced("fjall, `SyncData`", time, &mut |n| {
        items.insert((n as u64).to_be_bytes(), &payload).unwrap();
        db.persist(PersistMode::SyncData).unwrap();
    }));
    let db = sqlite::create(&tmp.path().join("attempts.db"), "FULL", true);
    rows.push(synced("SQLite, one attempt per transaction", time, &mut |n| {
        db.execute_batch("BEGIN").unwrap();
        sqlite::insert(&db, n, &attempts[n % attempts.len()]);
        db.execute_batch("COMMIT").unwrap();
    }));
    rows
}
