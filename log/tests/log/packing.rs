//! The writer's blocks: which batches it packs, what it says of them, and what a recovery does with
//! them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, dir, last_segment};
use fetchwise_log::format::{BlockHead, FrameHeader, FrameKind, HEADER_LEN, SegmentHeader};
use fetchwise_log::fs::sim::{Fault, Rng, SimFs, Survival};
use fetchwise_log::fuzzing::{PlainBlocks, UNPACKABLE};
use fetchwise_log::{
    BlockFormat, CompactOptions, Durability, Log, LogOptions, Maintenance, ManualLog, Reader,
    Record, verify_with,
};

fn packing(pack_from: u32) -> LogOptions {
    let mut options = LogOptions::default();
    options.blocks = Some(&PlainBlocks);
    options.pack_from = pack_from;
    options
}

fn open(fs: &SimFs, options: &LogOptions) -> ManualLog {
    ManualLog::open(Arc::new(fs.clone()), Path::new(DIR), options).unwrap().0
}

/// A payload that can be packed.
fn payload(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(8)
}

/// Appends records as one batch, and writes it.
fn append(log: &mut ManualLog, kind: u16, numbers: Range<u64>) {
    for n in numbers {
        let payload = payload(n);
        log.append(Record { kind, schema: 1, key_hash: n, time_ms: n as i64, payload: &payload });
    }
    log.write().unwrap();
}

/// The header of a segment and its frames: kind, count and how many records.
fn frames(content: &[u8]) -> (SegmentHeader, Vec<(FrameKind, u32)>) {
    let header = SegmentHeader::decode(content).unwrap();
    let (mut all, mut at) = (Vec::new(), HEADER_LEN);
    while let Some(frame) =
        content.get(at..).and_then(|bytes| FrameHeader::decode(bytes, header.nonce, at as u64))
    {
        if frame.kind == FrameKind::Block {
            let payload = &content[at + 48..][..frame.payload_len as usize];
            assert_eq!(
                BlockHead::decode(payload, frame.count).unwrap().records,
                frame.count,
                "no gaps"
            );
        }
        all.push((frame.kind, frame.count));
        at += frame.frame_len() as usize;
    }
    (header, all)
}

fn check(fs: &SimFs, numbers: Range<u64>) {
    let reader = Reader::open_with(Arc::new(fs.clone()), &dir()).unwrap().with_blocks(&PlainBlocks);
    let mut expected = numbers;
    let summary = reader
        .for_each(|seq, record| {
            let n = expected.next().unwrap();
            assert_eq!((seq, record.key_hash, record.payload), (n + 1, n, &payload(n)[..]));
        })
        .unwrap();
    assert_eq!((summary.damage, expected.next()), (vec![], None));
    assert!(verify_with(Arc::new(fs.clone()), &dir()).unwrap().is_sound());
}

#[test]
fn a_batch_of_many_records_is_one_block_and_a_smaller_one_is_records() {
    let fs = SimFs::new(1);
    let mut log = open(&fs, &packing(10));
    for numbers in [0..9, 9..19, 19..22, 22..64] {
        append(&mut log, 1, numbers);
    }
    log.close().unwrap();
    let content = fs.read(&last_segment(&fs)).unwrap();
    let (header, written) = frames(&content);
    let expected = [
        (FrameKind::Records, 9),
        (FrameKind::Block, 10),
        (FrameKind::Records, 3),
        (FrameKind::Block, 42),
        (FrameKind::Seal, 0),
    ];
    assert_eq!(written, expected);
    assert!(content.len() < 4096 + 64 * 60, "records take 80 bytes each: {}", content.len());
    check(&fs, 0..64);
    // An older reader refuses the segment by its header, before it meets a block.
    assert!(header.has_blocks() && !header.is_rewritten());
    let error = Reader::open_with(Arc::new(fs), &dir()).unwrap().for_each(|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("packed records"), "{error}");
}

#[test]
fn a_segment_has_the_flag_of_blocks_before_it_has_one() {
    let fs = SimFs::new(1);
    let mut log = open(&fs, &packing(10));
    append(&mut log, 1, 0..1);
    log.sync().unwrap();
    let before = frames(&fs.read(&last_segment(&fs)).unwrap());
    assert_eq!(before.1, [(FrameKind::Records, 1)]);
    append(&mut log, 1, 1..21);
    let after = frames(&fs.read(&last_segment(&fs)).unwrap());
    assert_eq!(
        (before.0, after.1),
        (after.0.clone(), vec![(FrameKind::Records, 1), (FrameKind::Block, 20)])
    );
    assert!(after.0.has_blocks());
    // A writer without a layout writes neither.
    let fs = SimFs::new(1);
    let mut log = open(&fs, &LogOptions::default());
    append(&mut log, 1, 0..300);
    let (header, written) = frames(&fs.read(&last_segment(&fs)).unwrap());
    assert_eq!((header.has_blocks(), written), (false, vec![(FrameKind::Records, 300)]));
}

#[test]
fn records_that_cannot_be_packed_are_written_as_they_are() {
    let fs = SimFs::new(1);
    let mut log = open(&fs, &packing(2));
    append(&mut log, UNPACKABLE, 0..20);
    append(&mut log, 1, 20..40);
    log.close().unwrap();
    let (_, written) = frames(&fs.read(&last_segment(&fs)).unwrap());
    assert_eq!(written, [(FrameKind::Records, 20), (FrameKind::Block, 20), (FrameKind::Seal, 0)]);
    check(&fs, 0..40);
}

#[test]
fn a_block_that_was_not_known_durable_moves_to_the_next_segment_whole() {
    let mut plain = LogOptions::default();
    plain.blocks = None;
    // A writer that packs nothing keeps it, too, and says so in its segment.
    for options in [packing(10), plain] {
        let fs = SimFs::new(1);
        let mut log = open(&fs, &packing(10));
        append(&mut log, 1, 0..1);
        log.sync().unwrap();
        append(&mut log, 1, 1..21);
        append(&mut log, 1, 21..24);
        drop(log);
        let fs = fs.crash(Survival::All, &mut Rng::new(1));
        let (log, recovery) = ManualLog::open(Arc::new(fs.clone()), &dir(), &options).unwrap();
        assert_eq!((recovery.next_seq, recovery.rewritten, recovery.torn), (25, 23, None));
        let (header, written) = frames(&fs.read(&last_segment(&fs)).unwrap());
        assert_eq!((header.number, header.has_blocks()), (2, true));
        assert_eq!(written, [(FrameKind::Block, 20), (FrameKind::Records, 3)]);
        check(&fs, 0..24);
        log.close().unwrap();
        check(&fs, 0..24);
    }
}

#[test]
fn a_block_that_was_torn_off_is_gone_whole_and_is_no_damage() {
    let fs = SimFs::new(1);
    let mut log = open(&fs, &packing(10));
    append(&mut log, 1, 0..1);
    log.sync().unwrap();
    append(&mut log, 1, 1..21);
    drop(log);
    let fs = fs.crash(Survival::All, &mut Rng::new(1));
    let path = last_segment(&fs);
    let content = fs.read(&path).unwrap();
    let end = content.iter().rposition(|&byte| byte != 0).unwrap();
    fs.put(&path, content[..end - 3].to_vec());
    let (_, recovery) = ManualLog::open(Arc::new(fs.clone()), &dir(), &packing(10)).unwrap();
    assert!(recovery.torn.is_some() && recovery.next_seq == 2, "{recovery:?}");
    check(&fs, 0..1);
}

#[test]
fn maintenance_packs_what_a_writer_left_as_records_once() {
    let fs = SimFs::new(1);
    for session in 0..3 {
        let mut log = open(&fs, &packing(10));
        for n in 0..20 {
            append(&mut log, 1, session * 20 + n..session * 20 + n + 1);
        }
        log.close().unwrap();
    }
    let compact = |pack: bool| {
        let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir()).unwrap();
        let mut options = CompactOptions::new(0, 0);
        (options.max_jump, options.pack) = (None, pack);
        options.blocks = Some(&PlainBlocks);
        options.small_bytes = 0;
        maintenance.compact(&options, &mut |_, _| true, &mut |_| {}).unwrap().rewritten
    };
    assert_eq!((compact(false), compact(true), compact(true)), (0, 1, 0));
    let first =
        fs.files().into_iter().find(|path| path.extension().is_some_and(|e| e == "fwl")).unwrap();
    let (header, written) = frames(&fs.read(&first).unwrap());
    assert!(header.has_blocks() && header.is_rewritten());
    assert_eq!(written, [(FrameKind::Block, 40), (FrameKind::Seal, 0)]);
    check(&fs, 0..60);
}

/// The second try stores a record whole that came back different from the first.
#[test]
fn a_record_that_the_layout_would_change_is_stored_whole() {
    /// Loses the kind of records that it does not store whole.
    #[derive(Debug)]
    struct LosesKinds;

    impl BlockFormat for LosesKinds {
        fn pack(
            &self,
            records: &[fetchwise_log::RecordRef<'_>],
            whole: &[usize],
        ) -> Option<fetchwise_log::PackedBlock> {
            let changed: Vec<_> = records
                .iter()
                .enumerate()
                .map(|(at, record)| fetchwise_log::RecordRef {
                    kind: if whole.contains(&at) { record.kind } else { 1 },
                    ..*record
                })
                .collect();
            PlainBlocks.pack(&changed, &[])
        }

        fn unpack(
            &self,
            block: &fetchwise_log::Block<'_>,
            f: &mut dyn FnMut(fetchwise_log::RecordRef<'_>),
        ) -> Result<(), fetchwise_log::UnpackError> {
            PlainBlocks.unpack(block, f)
        }
    }

    let fs = SimFs::new(1);
    let mut options = packing(2);
    options.blocks = Some(&LosesKinds);
    let mut log = open(&fs, &options);
    for n in 0..20 {
        let payload = payload(n);
        log.append(Record {
            kind: 1 + n as u16 % 2,
            schema: 1,
            key_hash: n,
            time_ms: 0,
            payload: &payload,
        });
    }
    log.close().unwrap();
    assert_eq!(frames(&fs.read(&last_segment(&fs)).unwrap()).1[0], (FrameKind::Block, 20));
    let reader = Reader::open_with(Arc::new(fs), &dir()).unwrap().with_blocks(&PlainBlocks);
    let mut kinds = Vec::new();
    reader.for_each(|_, record| kinds.push(record.kind)).unwrap();
    assert_eq!(kinds, [1, 2].repeat(10));
}

#[test]
fn a_log_with_threads_packs_what_it_gathers_and_reads_it_back() {
    let tmp = tempfile::tempdir().unwrap();
    let mut options = packing(16);
    options.durability = Durability::Os;
    // Longer than any append takes: only the wait ends it.
    options.linger = std::time::Duration::from_secs(60);
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    for n in 0..5000u64 {
        let payload = payload(n);
        log.append(Record { kind: 1, schema: 1, key_hash: n, time_ms: 0, payload: &payload })
            .unwrap();
    }
    log.flush().wait().unwrap();
    let mut next = 0;
    let summary = log.reader().unwrap().for_each(|seq, _| {
        next += 1;
        assert_eq!(seq, next);
    });
    assert_eq!(summary.unwrap().records, 5000);
    assert!(log.metrics().bytes < 5000 * 60, "records take 80 bytes each: {}", log.metrics().bytes);
    log.close().unwrap();
}

/// Options of a writer that packs small batches once they take a KiB.
fn repacking() -> LogOptions {
    let mut options = packing(1000);
    options.repack_bytes = 1 << 10;
    options
}

/// The files of segments, oldest first, with the frames of each.
fn segments(fs: &SimFs) -> Vec<Vec<(FrameKind, u32)>> {
    let files = fs.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "fwl"));
    files.map(|path| frames(&fs.read(&path).unwrap()).1).collect()
}

#[test]
fn small_batches_are_packed_once_they_are_enough_and_at_a_close() {
    let fs = SimFs::new(1);
    let mut log = open(&fs, &repacking());
    for n in 0..5 {
        append(&mut log, 1, n..n + 1);
        log.repack().unwrap();
    }
    assert_eq!(segments(&fs), [vec![(FrameKind::Records, 1); 5]], "not enough yet");
    for n in 5..8 {
        append(&mut log, 1, n..n + 1);
        log.repack().unwrap();
    }
    assert_eq!(
        segments(&fs),
        [vec![(FrameKind::Block, 8)]],
        "in one segment, and the first one is gone"
    );
    assert_eq!(log.durable_seq(), 8);
    append(&mut log, 1, 8..9);
    log.repack().unwrap();
    assert_eq!(
        segments(&fs),
        [vec![(FrameKind::Block, 8), (FrameKind::Records, 1)]],
        "the next ones wait again"
    );
    check(&fs, 0..9);
    append(&mut log, 1, 9..12);
    log.close().unwrap();
    let closed = vec![(FrameKind::Block, 8), (FrameKind::Block, 4), (FrameKind::Seal, 0)];
    assert_eq!(segments(&fs), [closed]);
    check(&fs, 0..12);
    // The next writer goes on behind the segment that stands for the others.
    let mut log = open(&fs, &repacking());
    append(&mut log, 1, 12..13);
    log.sync().unwrap();
    check(&fs, 0..13);
}

#[test]
fn a_large_packed_segment_is_sealed_and_one_of_large_batches_is_not_rewritten() {
    let fs = SimFs::new(1);
    let mut log = open(&fs, &repacking());
    for n in 0..2000 {
        append(&mut log, 1, n..n + 1);
        log.repack().unwrap();
    }
    let all = segments(&fs);
    assert!(all.len() > 2 && all.len() < 40, "{all:?}");
    for segment in &all[..all.len() - 1] {
        let (seal, blocks) = segment.split_last().unwrap();
        assert_eq!(seal.0, FrameKind::Seal);
        assert!(blocks.iter().all(|(kind, _)| *kind == FrameKind::Block), "{segment:?}");
    }
    check(&fs, 0..2000);

    let fs = SimFs::new(1);
    let mut options = repacking();
    options.pack_from = 100;
    let mut log = open(&fs, &options);
    append(&mut log, 1, 0..1);
    // Memory does not hold what has been written in whole blocks.
    append(&mut log, 1, 1..3001);
    log.sync().unwrap();
    for n in 3001..3020 {
        append(&mut log, 1, n..n + 1);
        log.repack().unwrap();
    }
    let all = segments(&fs);
    assert_eq!(
        all[0][..2],
        [(FrameKind::Records, 1), (FrameKind::Block, 3000)],
        "it stays as it was"
    );
    assert_eq!(
        all[0].last(),
        Some(&(FrameKind::Seal, 0)),
        "and ends once enough small batches wait in it"
    );
    assert_eq!(all.len(), 2);
    check(&fs, 0..3020);
}

#[test]
fn records_that_cannot_be_packed_are_not_rewritten_twice() {
    let fs = SimFs::new(1);
    let mut log = open(&fs, &repacking());
    for n in 0..12 {
        append(&mut log, UNPACKABLE, n..n + 1);
        log.repack().unwrap();
    }
    let calls = fs.calls();
    log.repack().unwrap();
    assert_eq!(fs.calls(), calls);
    check(&fs, 0..12);
}

/// A writer replaces its last segment at any moment of a reader, which must not take that for a
/// loss.
#[test]
fn readers_beside_a_writer_that_packs_see_every_durable_record_and_no_damage() {
    let tmp = tempfile::tempdir().unwrap();
    let mut options = repacking();
    options.durability = Durability::Os;
    options.linger = std::time::Duration::ZERO;
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..3000u64 {
                let payload = payload(n);
                log.append(Record {
                    kind: 1,
                    schema: 1,
                    key_hash: n,
                    time_ms: 0,
                    payload: &payload,
                })
                .unwrap();
                log.settled().wait().unwrap();
            }
        });
        let mut rounds = 0;
        while !writer.is_finished() || rounds == 0 {
            let durable = log.durable_seq();
            let reader = match Reader::open(tmp.path()) {
                Err(fetchwise_log::Error::Replaced { .. }) => continue,
                reader => reader.unwrap().with_blocks(&PlainBlocks),
            };
            let mut next = 1;
            let summary = reader.for_each(|seq, _| {
                assert_eq!(seq, next);
                next += 1;
            });
            let summary = summary.unwrap();
            assert_eq!(summary.damage, vec![]);
            assert!(next > durable, "{durable} were durable, {} were found", next - 1);
            rounds += 1;
        }
    });
    log.close().unwrap();
    assert!(verify_with(Arc::new(fetchwise_log::fs::RealFs), tmp.path()).unwrap().is_sound());
}

/// The file of a new segment may come back after a crash although its name could not be made
/// durable. So the writer must not go on in the segment that this file stands for.
#[test]
fn a_packing_that_fails_at_any_call_loses_nothing_that_is_written_after_it() {
    let (mut call, mut images) = (0, 0);
    loop {
        let fs = SimFs::new(1);
        let mut log = open(&fs, &repacking());
        for n in 0..10 {
            append(&mut log, 1, n..n + 1);
        }
        log.sync().unwrap();
        let begun = fs.calls();
        fs.fault_at(begun + call, Fault::Eintr);
        let _ = log.repack();
        if fs.calls() <= begun + call {
            break;
        }
        append(&mut log, 1, 10..11);
        log.sync().unwrap();
        for survival in Survival::ALL {
            for seed in 0..20 {
                check(&fs.crash(survival, &mut Rng::new(seed)), 0..11);
                images += 1;
            }
        }
        call += 1;
    }
    assert!(images > 500, "{call} calls");
}

fn compact(fs: &SimFs, format: &'static dyn BlockFormat) -> fetchwise_log::CompactReport {
    let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir()).unwrap();
    let mut options = CompactOptions::new(0, 0);
    (options.max_jump, options.blocks) = (None, Some(format));
    maintenance.compact(&options, &mut |_, _| true, &mut |_| {}).unwrap()
}

#[test]
fn a_compaction_copies_large_blocks_and_packs_small_ones_together() {
    let fs = SimFs::new(1);
    for numbers in [0..3000, 3000..3100, 3100..3200, 3200..5000] {
        let mut log = open(&fs, &packing(10));
        append(&mut log, 1, numbers);
        log.close().unwrap();
    }
    drop(open(&fs, &{
        let mut options = packing(10);
        options.begin_segment = true;
        options
    }));
    let done = compact(&fs, &PlainBlocks);
    assert_eq!((done.rewritten, done.segments), (1, (5, 2)));
    assert!(done.bytes.1 < done.bytes.0, "{done:?}");
    let blocks = [
        (FrameKind::Block, 3000),
        (FrameKind::Block, 200),
        (FrameKind::Block, 1800),
        (FrameKind::Seal, 0),
    ];
    assert_eq!(segments(&fs)[0], blocks);
    check(&fs, 0..5000);
}

#[test]
fn a_compaction_that_would_only_make_the_log_larger_leaves_it() {
    /// Larger blocks become longer than smaller ones together.
    #[derive(Debug)]
    struct Swells;

    impl BlockFormat for Swells {
        fn pack(
            &self,
            records: &[fetchwise_log::RecordRef<'_>],
            _: &[usize],
        ) -> Option<fetchwise_log::PackedBlock> {
            let mut packed = PlainBlocks.pack(records, &[])?;
            let mut rng = Rng::new(1);
            let swollen = if records.len() > 10 { 20_000 } else { 0 };
            packed.cold.extend((0..swollen).map(|_| rng.draw() as u8));
            packed.cold.extend_from_slice(&u32::to_le_bytes(swollen));
            Some(packed)
        }

        fn unpack(
            &self,
            block: &fetchwise_log::Block<'_>,
            f: &mut dyn FnMut(fetchwise_log::RecordRef<'_>),
        ) -> Result<(), fetchwise_log::UnpackError> {
            let (rest, swollen) = block.cold.split_last_chunk().unwrap();
            let cold = &rest[..rest.len() - u32::from_le_bytes(*swollen) as usize];
            PlainBlocks.unpack(&fetchwise_log::Block { cold, ..*block }, f)
        }
    }

    let fs = SimFs::new(1);
    let mut options = packing(2);
    options.blocks = Some(&Swells);
    options.begin_segment = true;
    for session in 0..4 {
        let mut log = open(&fs, &options);
        for n in session * 8..(session + 1) * 8 {
            let payload = u64::to_le_bytes(n).repeat(500);
            log.append(Record { kind: 1, schema: 1, key_hash: n, time_ms: 0, payload: &payload });
        }
        log.close().unwrap();
    }
    let before = segments(&fs);
    let done = compact(&fs, &Swells);
    assert_eq!((done.rewritten, done.segments, done.bytes.0), (0, (4, 4), done.bytes.1));
    assert_eq!(segments(&fs), before);
    assert!(
        fs.files().iter().all(|path| !path.to_string_lossy().contains("tmp-")),
        "{:?}",
        fs.files()
    );
}
