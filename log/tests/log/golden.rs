//! Every release reads the files of every older release: `tests/golden/` holds a directory per
//! format, written by the release that introduced it. For a new minor version of the format, add a
//! directory; never change an old one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fetchwise_log::format::{FrameHeader, HEADER_LEN, SegmentHeader};
use fetchwise_log::fs::RealFs;
use fetchwise_log::fuzzing::{PlainBlocks, UNPACKABLE};
use fetchwise_log::{
    CompactOptions, Durability, Log, LogOptions, Maintenance, ManualLog, Reader, Record, Section,
    SnapshotMeta, load_snapshot, verify,
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
        .with_blocks(&PlainBlocks)
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
    assert_eq!(snapshot.section(5).unwrap(), Some((2, b"second".to_vec())));

    let copy = copy(&dir);
    let (log, recovery) = Log::open(copy.path(), options()).unwrap();
    assert_eq!(recovery.next_seq, 21);
    log.append(Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload: b"now" }).unwrap();
    log.close().unwrap();
    assert!(listing(copy.path()).starts_with(&expected));
    assert!(verify(copy.path()).unwrap().is_sound());
}

/// Writes the directory of the current format. Run by hand for a new format:
/// `FETCHWISE_GOLDEN=DIR cargo test -p fetchwise-log --test log golden::make`.
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
                .append(Record {
                    kind: id as u16,
                    schema: 1,
                    key_hash: id * 0x0101_0101,
                    time_ms,
                    payload: &payload,
                })
                .unwrap();
            log.wait(ticket).unwrap();
        }
        log.close().unwrap();
        if session == 3 {
            let maintenance = Maintenance::lock(dir).unwrap();
            for (covers_seq, text) in [(8, &b"first"[..]), (12, b"second")] {
                let landmark_ms = 1_700_000_000_000;
                let meta = SnapshotMeta {
                    covers_seq,
                    landmark_ms,
                    half_life_ms: 2_592_000_000,
                    ..SnapshotMeta::default()
                };
                maintenance
                    .write_snapshot(&meta, &[Section { kind: 5, version: 2, bytes: text }])
                    .unwrap();
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

/// The frames of a segment: kind, count, and the payload of blocks.
fn frames(path: &Path) -> (SegmentHeader, Vec<(u16, u32, Vec<u8>)>) {
    let content = fs::read(path).unwrap();
    let header = SegmentHeader::decode(&content).unwrap();
    let (mut all, mut at) = (Vec::new(), HEADER_LEN);
    while let Some(frame) =
        content.get(at..).and_then(|bytes| FrameHeader::decode(bytes, header.nonce, at as u64))
    {
        // The kind as it is stored.
        let kind = u16::from_le_bytes([content[at + 36], content[at + 37]]);
        let payload = if kind == 4 {
            content[at + 48..][..frame.payload_len as usize].to_vec()
        } else {
            Vec::new()
        };
        all.push((kind, frame.count, payload));
        at += frame.frame_len() as usize;
    }
    (header, all)
}

/// The fields of a block's head: u32 each, of which the first holds schema and compression.
fn head(payload: &[u8]) -> Vec<u32> {
    payload[..32].chunks(4).map(|field| u32::from_le_bytes(field.try_into().unwrap())).collect()
}

#[test]
fn segments_with_blocks_are_read_and_written_on() {
    let dir = golden("v1.0-blocks");
    let expected = fs::read_to_string(dir.join("expected.txt")).unwrap();
    assert_eq!(listing(&dir), expected);
    assert!(verify(&dir).unwrap().is_sound());

    // Packed by a compaction that has dropped records: rewritten (1) and with blocks (2).
    let (header, all) = frames(&dir.join("seg-00000001-0000000000000001.fwl"));
    assert_eq!(header.incompat, 3);
    let kinds: Vec<(u16, u32)> = all.iter().map(|(kind, count, _)| (*kind, *count)).collect();
    assert_eq!(kinds, [(4, 40), (3, 0)]);
    let fields = head(&all[0].2);
    let (packed, hot_len, gaps_len) = (fields[0], fields[2], fields[5]);
    assert_eq!(
        (packed, fields[1], hot_len, gaps_len),
        (1 << 16 | 1, 19, 76, 12),
        "schema 1, LZ4, 19 records"
    );
    assert!(fields[3] < fields[4], "the cold part is compressed: {fields:?}");

    // Written by a writer that packs: with blocks (2).
    let (header, all) = frames(&dir.join("seg-00000003-0000000000000029.fwl"));
    assert_eq!(header.incompat, 2);
    let kinds: Vec<(u16, u32)> = all.iter().map(|(kind, count, _)| (*kind, *count)).collect();
    assert_eq!(kinds, [(4, 6), (1, 2), (1, 2), (3, 0)]);
    let fields = head(&all[0].2);
    assert_eq!(
        (fields[0], fields[1], fields[5]),
        (1 << 16 | 1, 6, 0),
        "schema 1, LZ4, 6 records, no gaps"
    );

    let copy = copy(&dir);
    let mut options = options();
    options.blocks = Some(&PlainBlocks);
    let (log, recovery) = Log::open(copy.path(), options).unwrap();
    assert_eq!(recovery.next_seq, 51);
    log.append(Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload: b"now" }).unwrap();
    log.close().unwrap();
    assert!(listing(copy.path()).starts_with(&expected));
    assert!(verify(copy.path()).unwrap().is_sound());
}

/// Writes the directory with blocks:
/// `FETCHWISE_GOLDEN_BLOCKS=DIR cargo test -p fetchwise-log --test log golden::make`.
#[test]
fn make_golden_blocks() {
    let Ok(dir) = std::env::var("FETCHWISE_GOLDEN_BLOCKS") else { return };
    let dir = Path::new(&dir);
    let mut options = options();
    options.blocks = Some(&PlainBlocks);
    options.pack_from = 4;
    let session = |batches: &[(u16, std::ops::Range<u64>)]| {
        let (mut log, _) = ManualLog::open(Arc::new(RealFs), dir, &options).unwrap();
        for (kind, ids) in batches {
            for id in ids.clone() {
                let (payload, time_ms) =
                    (id.to_le_bytes().repeat(3), 1_700_000_000_000 + id as i64 * 1000);
                let key_hash = id * 0x0101_0101;
                log.append(Record { kind: *kind, schema: 1, key_hash, time_ms, payload: &payload });
            }
            log.sync().unwrap();
        }
        log.close().unwrap();
    };
    session(&[(1, 0..20)]);
    session(&[(2, 20..40)]);
    session(&[(3, 40..46), (UNPACKABLE, 46..48), (4, 48..50)]);
    let maintenance = Maintenance::lock(dir).unwrap();
    for covers_seq in [38, 40] {
        let meta = SnapshotMeta { covers_seq, ..SnapshotMeta::default() };
        maintenance
            .write_snapshot(&meta, &[Section { kind: 5, version: 2, bytes: b"evidence" }])
            .unwrap();
    }
    let mut options = CompactOptions::new(38, 1_700_000_050_000);
    options.blocks = Some(&PlainBlocks);
    // Runs of records and of gaps.
    maintenance.compact(&options, &mut |seq, _| seq % 7 < 3, &mut |_| {}).unwrap();
    for name in ["LOCK", "MAINT.LOCK", "RESERVE"] {
        let _ = fs::remove_file(dir.join(name));
    }
    fs::write(dir.join("expected.txt"), listing(dir)).unwrap();
}
