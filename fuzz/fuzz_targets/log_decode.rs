//! Any bytes as parts of a log: nothing panics, and no record is delivered that was not written.
//!
//! The first byte selects one of three modes: the decoders of the format on bare bytes; a segment
//! with the fuzzer's frames and right checksums; and a real log of a few segments with damage.
#![no_main]

mod mem_fs;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use fetchwise_log::format::{
    FrameHeader, FrameKind, HEADER_LEN, INCOMPAT_BLOCKS, Records, SEAL_LEN, Seal, SegmentHeader,
    count_records, frame_len, payload_crc, put_record,
};
use fetchwise_log::fuzzing::PlainBlocks;
use fetchwise_log::{
    CompactOptions, Damage, Durability, Log, LogOptions, Maintenance, ReadItem, Reader, Record,
    RecordRef,
};
use libfuzzer_sys::fuzz_target;
use mem_fs::MemFs;

const DIR: &str = "/log";

/// A written record: kind, schema, key, payload.
type Written = (u16, u16, u64, Vec<u8>);

/// A healthy log of several segments, written by two runs of the real writer, which packs. The
/// segments of the first run are packed by maintenance, too.
struct Healthy {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Its segments, oldest first.
    segments: Vec<PathBuf>,
    records: HashMap<u64, Written>,
}

static HEALTHY: LazyLock<Healthy> = LazyLock::new(|| {
    let fs = Arc::new(MemFs::default());
    let mut records = HashMap::new();
    for run in 0..2_u64 {
        let (log, _) = Log::open_with(fs.clone(), Path::new(DIR), options())
            .expect("a log in an empty or healthy directory");
        for i in 0..48_u64 {
            // Half of a payload can be packed.
            let payload: Vec<u8> = (0..(i as usize * 37) % 900)
                .map(|at| if at % 2 == 0 { i as u8 } else { (at * at) as u8 })
                .collect();
            let (kind, schema, key_hash) = (1 + i as u16 % 4, 1, run * 1000 + i);
            let record = Record { kind, schema, key_hash, time_ms: i as i64, payload: &payload };
            let ticket = log.append(record).expect("an append to a healthy log");
            // Four records at once, so that they can be one batch.
            if i % 4 == 3 {
                log.wait(ticket).expect("a write to memory");
            }
            records
                .insert(ticket.seq().expect("nothing is shed"), (kind, schema, key_hash, payload));
        }
        log.close().expect("closing a healthy log");
        if run == 0 {
            let maintenance =
                Maintenance::lock_with(fs.clone(), Path::new(DIR)).expect("nobody has the lock");
            let mut options = CompactOptions::new(0, 0);
            (options.max_jump, options.segment_bytes) = (None, 1);
            options.blocks = Some(&PlainBlocks);
            maintenance
                .compact(&options, &mut |_, _| true, &mut |_| {})
                .expect("a compaction of a healthy log");
        }
    }
    let files = fs.contents();
    let segments: Vec<PathBuf> =
        files.keys().filter(|path| path.extension().is_some_and(|e| e == "fwl")).cloned().collect();
    assert!(segments.len() >= 3, "too few segments to damage: {segments:?}");
    Healthy { files, segments, records }
});

fn options() -> LogOptions {
    let mut options = LogOptions::default();
    options.durability = Durability::Sync;
    options.segment_bytes = 8 << 10;
    options.blocks = Some(&PlainBlocks);
    options.pack_from = 2;
    options
}

fuzz_target!(|bytes: &[u8]| {
    let Some((way, rest)) = bytes.split_first() else { return };
    match way % 4 {
        0 => bare(rest),
        1 => forged(rest),
        2 => damaged(rest, false),
        _ => damaged(rest, true),
    }
});

/// Runs the decoders on bare bytes.
fn bare(bytes: &[u8]) {
    if let Ok(header) = SegmentHeader::decode(bytes) {
        assert_eq!(SegmentHeader::decode(&header.encode()).as_ref(), Ok(&header));
    }
    let _ = SegmentHeader::decode_damaged(bytes);
    let _ = FrameHeader::decode(bytes, 7, 4096);
    let _ = Seal::decode(bytes);
    fetchwise_log::fuzzing::decode_block(bytes);
    let whole = count_records(bytes);
    let mut again = Vec::new();
    for record in Records::new(bytes) {
        put_record(&mut again, &record);
    }
    assert!(Records::new(&again).eq(Records::new(bytes)), "records survive being written again");
    if let Some(count) = whole {
        assert_eq!((count_records(&again), again.len()), (Some(count), bytes.len()));
    }
}

/// Reads a segment with arbitrary frames and right checksums, as a bug in some release might have
/// written it.
fn forged(bytes: &[u8]) {
    let name = &HEALTHY.segments[0];
    let Ok(mut header) = SegmentHeader::decode(&HEALTHY.files[name]) else { return };
    let mut input = Input(bytes);
    header.born_len = HEADER_LEN as u64 + u64::from(input.byte());
    header.epoch = u64::from(input.byte());
    header.incompat |= INCOMPAT_BLOCKS;
    let mut file = header.encode().to_vec();
    let mut first_seq = header.first_seq;
    while !input.0.is_empty() {
        let shape = input.byte();
        let kind = match shape & 3 {
            0 | 1 if shape & 32 != 0 => FrameKind::Block,
            0 | 1 => FrameKind::Records,
            2 => FrameKind::Marker,
            _ => FrameKind::Seal,
        };
        let payload = input.take_payload(kind);
        let count = match kind {
            FrameKind::Records if shape & 4 == 0 => count_records(&payload).unwrap_or(1) as u32,
            FrameKind::Records | FrameKind::Block => u32::from(input.byte()),
            _ => 0,
        };
        if shape & 8 != 0 {
            first_seq = first_seq.wrapping_add(u64::from(input.byte())).wrapping_sub(8);
        }
        let offset = file.len() as u64;
        let durable_off = if shape & 16 == 0 { offset } else { u64::from(input.byte()) << 6 };
        let pcrc = payload_crc(header.nonce, first_seq, &payload);
        let frame = FrameHeader {
            payload_len: payload.len() as u32,
            pcrc,
            first_seq,
            durable_off,
            count,
            kind,
            max_time: 5,
        };
        file.extend_from_slice(&frame.encode(header.nonce, offset));
        file.extend_from_slice(&payload);
        file.resize(offset as usize + frame_len(payload.len()) as usize, 0);
        first_seq = first_seq.saturating_add(u64::from(count));
    }
    let fs = Arc::new(MemFs::with(BTreeMap::from([(name.clone(), file)])));
    read(&fs, None);
    open(&fs, None);
}

/// Reads a real log with a few bytes changed, cut, moved or missing.
fn damaged(bytes: &[u8], reopen: bool) {
    let mut files = HEALTHY.files.clone();
    let mut input = Input(bytes);
    let mut faults = 0;
    while faults < 4 && !input.0.is_empty() {
        faults += 1;
        let segment = &HEALTHY.segments[usize::from(input.byte()) % HEALTHY.segments.len()];
        let what = input.byte() % 6;
        if what == 0 {
            files.remove(segment);
            continue;
        }
        let Some(file) = files.get_mut(segment).filter(|file| !file.is_empty()) else { continue };
        let at = input.number() % file.len();
        // Changes stay small: a fuzzer that could write four bytes of its choice would in time
        // forge a checksum.
        let len = usize::from(input.byte()).min(file.len() - at);
        match what {
            1 => file.truncate(at),
            2 | 3 => file[at] ^= input.byte(),
            4 => file[at..at + len].fill(0),
            _ => {
                let from = input.number() % (file.len() - len + 1);
                file.copy_within(from..from + len, at);
            }
        }
    }
    let fs = Arc::new(MemFs::with(files));
    let damage = read(&fs, Some(&HEALTHY.records));
    // A single fault is reported to the exact record. Several may hide each other, but not the fact
    // of damage.
    if let Some((missing, damage)) = damage {
        let covered = |seq: u64| {
            damage
                .iter()
                .filter_map(|d| d.records)
                .any(|(first, last)| (first..=last).contains(&seq))
        };
        let silent: Vec<u64> = missing.iter().copied().filter(|&seq| !covered(seq)).collect();
        assert!(
            silent.is_empty() || (faults > 1 && !damage.is_empty()),
            "{silent:?} are missing in silence: {damage:?}"
        );
    }
    if reopen {
        open(&fs, Some(&HEALTHY.records));
    }
}

/// Reads everything. Records come in order; with `written`, each equals the record written under
/// its number. Returns the missing numbers before the last delivered one, and the reported damage;
/// nothing when the log is refused.
fn read(
    fs: &Arc<MemFs>,
    written: Option<&HashMap<u64, Written>>,
) -> Option<(Vec<u64>, Vec<Damage>)> {
    let reader = Reader::open_with(fs.clone(), Path::new(DIR)).ok()?.with_blocks(&PlainBlocks);
    let mut last = 0;
    let mut seen = Vec::new();
    let summary = reader.for_each(|seq, record| {
        assert!(seq > last, "record {seq} comes after record {last}");
        last = seq;
        seen.push(seq);
        if let Some(written) = written {
            let (kind, schema, key_hash, payload) =
                written.get(&seq).expect("a record that was written");
            assert_eq!(
                (record.kind, record.schema, record.key_hash, record.payload),
                (*kind, *schema, *key_hash, &payload[..])
            );
        }
    });
    let summary = summary.ok()?;
    assert_eq!(summary.records, seen.len() as u64);
    let mut iterated = Vec::new();
    for found in reader.records() {
        if let Ok(ReadItem::Record(record)) = found {
            iterated.push(record.seq());
        }
    }
    assert_eq!(seen, iterated, "both ways to read agree");
    // A forged log may count arbitrarily high; only a real one has gaps that can be listed.
    let missing = match written {
        Some(_) => (1..last).filter(|seq| seen.binary_search(seq).is_err()).collect(),
        None => Vec::new(),
    };
    Some((missing, summary.damage))
}

/// Opens the log for writing: either it is refused, or it is healthy from then on and accepts
/// records.
fn open(fs: &Arc<MemFs>, written: Option<&HashMap<u64, Written>>) {
    let Ok((log, recovery)) = Log::open_with(fs.clone(), Path::new(DIR), options()) else { return };
    let ticket = log
        .append(Record { kind: 9, schema: 1, key_hash: 0, time_ms: 0, payload: b"after" })
        .expect("an append to an open log");
    log.wait(ticket).expect("a write to memory");
    assert_eq!(ticket.seq(), Some(recovery.next_seq));
    log.close().expect("closing an open log");

    let reader = Reader::open_with(fs.clone(), Path::new(DIR))
        .expect("what was open for writing can be read");
    let mut last = 0;
    let read = reader.with_blocks(&PlainBlocks).for_each(|seq, record| {
        assert!(seq > last, "record {seq} comes after record {last}");
        last = seq;
        if let Some((kind, _, _, payload)) =
            written.and_then(|written| written.get(&seq)).filter(|_| seq != recovery.next_seq)
        {
            assert_eq!((record.kind, record.payload), (*kind, &payload[..]));
        }
    });
    let summary = match read {
        Ok(summary) => summary,
        // A block that no release writes, with right checksums. Its layout is not the log's affair.
        Err(_) if written.is_none() => return,
        Err(error) => panic!("what was open for writing can be read: {error}"),
    };
    assert!(summary.damage.is_empty() && summary.torn.is_none(), "{summary:?}");
    assert_eq!(last, recovery.next_seq);
}

/// The fuzzer's bytes, one by one; zeros at the end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn number(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    /// Returns the payload of a frame of this kind: bare bytes, or well-formed records.
    fn take_payload(&mut self, kind: FrameKind) -> Vec<u8> {
        match kind {
            FrameKind::Marker => Vec::new(),
            FrameKind::Seal => self.bytes(SEAL_LEN),
            FrameKind::Block => {
                let len = usize::from(self.byte());
                self.bytes(len)
            }
            FrameKind::Records => {
                let shape = self.byte();
                if shape & 1 == 0 {
                    return self.bytes(usize::from(shape));
                }
                let mut payload = Vec::new();
                for _ in 0..1 + (shape >> 1) % 4 {
                    let len = usize::from(self.byte() % 64);
                    let bytes = self.bytes(len);
                    put_record(
                        &mut payload,
                        &RecordRef { kind: 1, schema: 1, key_hash: 0, payload: &bytes },
                    );
                }
                payload
            }
        }
    }
}
