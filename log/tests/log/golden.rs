//! Every release reads the files of every older release: `tests/golden/` holds a directory per format, written by the
//! release that introduced it. For a new minor version of the format, add a directory; never change an old one.

use std::fs;
use std::path::{Path, PathBuf};

use fetchwise_log::{
    CompactOptions, Durability, Log, LogOptions, Maintenance, Reader, Record, Section, SnapshotMeta, load_snapshot,
    verify,
};

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

fn options() -> LogOptions {
    let mut options = LogOptions::default();
    options.durability = Durability::Sync;
    options.fingerprint = *b"golden-schema-01";
    options
}

/// One line per record, as in `expected.txt`.
fn listing(dir: &Path) -> String {
    let mut text = String::new();
    let summary = Reader::open(dir)
        .unwrap()
        .for_each(|seq, r| {
            let payload: String = r.payload.iter().map(|b| format!("{b:02x}")).collect();
            text += &format!("{seq} {} {} {:016x} {payload}\n", r.kind, r.schema, r.key_hash);
        })
        .unwrap();
    assert_eq!((summary.damage, summary.torn), (vec![], None));
    text
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

#[test]
fn files_of_format_1_0_are_read_and_written_on() {
    let dir = golden("v1.0");
    let expected = fs::read_to_string(dir.join("expected.txt")).unwrap();
    assert_eq!(listing(&dir), expected);
    assert!(verify(&dir).unwrap().is_sound());
    let snapshot = load_snapshot(&dir).unwrap().snapshot.unwrap();
    assert_eq!((snapshot.meta().covers_seq, snapshot.meta().landmark_ms), (12, 1_700_000_000_000));
    assert_eq!(snapshot.section(5), Some((2, &b"second"[..])));

    let copy = copy(&dir);
    let (log, recovery) = Log::open(copy.path(), options()).unwrap();
    assert_eq!(recovery.next_seq, 21);
    log.append(Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload: b"now" }).unwrap();
    log.close().unwrap();
    assert!(listing(copy.path()).starts_with(&expected));
    assert!(verify(copy.path()).unwrap().is_sound());
}

/// Writes the directory of the current format. Run by hand for a new format: `FETCHWISE_GOLDEN=DIR cargo test -p
/// fetchwise-log --test log golden::make`.
#[test]
fn make_golden_files() {
    let Ok(dir) = std::env::var("FETCHWISE_GOLDEN") else { return };
    let dir = Path::new(&dir);
    for session in 0..5u64 {
        let (log, _) = Log::open(dir, options()).unwrap();
        for i in 0..4u64 {
            let id = session * 4 + i;
            let payload = id.to_le_bytes().repeat(id as usize % 5);
            let time_ms = 1_700_000_000_000 + id as i64 * 1000;
            let ticket = log
                .append(Record { kind: id as u16, schema: 1, key_hash: id * 0x0101_0101, time_ms, payload: &payload })
                .unwrap();
            log.wait(ticket).unwrap();
        }
        log.close().unwrap();
        if session == 3 {
            let maintenance = Maintenance::lock(dir).unwrap();
            for (covers_seq, text) in [(8, &b"first"[..]), (12, b"second")] {
                let landmark_ms = 1_700_000_000_000;
                let meta =
                    SnapshotMeta { covers_seq, landmark_ms, half_life_ms: 2_592_000_000, ..SnapshotMeta::default() };
                maintenance.write_snapshot(&meta, &[Section { kind: 5, version: 2, bytes: text }]).unwrap();
            }
            let mut options = CompactOptions::new(8, 1_700_000_020_000);
            options.small_bytes = 4096;
            maintenance.compact(&options, &mut |seq, _| seq % 3 == 0, &mut |_| {}).unwrap();
        }
    }
    for name in ["LOCK", "MAINT.LOCK", "RESERVE"] {
        let _ = fs::remove_file(dir.join(name));
    }
    fs::write(dir.join("expected.txt"), listing(dir)).unwrap();
}
