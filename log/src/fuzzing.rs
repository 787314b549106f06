//! Entry points for a fuzzer: bytes in, no panic, no endless loop, no contradiction out.
//!
//! Owns: the path from arbitrary bytes to a directory that is read, opened and repaired.
//!
//! Must not know: which fuzzer calls it.

use std::path::Path;
use std::sync::Arc;

use crate::directory::manifest::{SEGMENTS, SNAPSHOT, SegmentsManifest, SnapshotManifest};
use crate::format::{self, FRAME_HEADER_LEN, FRAME_MAGIC, HEADER_LEN, Link, SegmentHeader};
use crate::fs::sim::SimFs;
use crate::{
    Block, BlockFormat, LogOptions, ManualLog, PackedBlock, Reader, RecordRef, RepairOptions,
    UnpackError, repair_with, verify_with,
};

const DIR: &str = "/fuzz";

/// The simplest layout of blocks: the payloads' lengths are hot, and everything is cold. Records of
/// the kind [`UNPACKABLE`] keep their block from being packed.
#[derive(Clone, Copy, Debug)]
pub struct PlainBlocks;

/// A kind of records that [`PlainBlocks`] does not pack.
pub const UNPACKABLE: u16 = 0xffff;

impl BlockFormat for PlainBlocks {
    fn pack(&self, records: &[RecordRef<'_>], _: &[usize]) -> Option<PackedBlock> {
        let mut packed = PackedBlock { schema: 1, ..PackedBlock::default() };
        for record in records {
            packed.hot.extend_from_slice(&(record.payload.len() as u32).to_le_bytes());
            format::put_record(&mut packed.cold, record);
        }
        records.iter().all(|record| record.kind != UNPACKABLE).then_some(packed)
    }

    fn unpack(
        &self,
        block: &Block<'_>,
        f: &mut dyn FnMut(RecordRef<'_>),
    ) -> Result<(), UnpackError> {
        assert!(block.hot.as_ptr().align_offset(16) == 0, "hot bytes are read in place");
        if block.schema != 1 {
            return Err(UnpackError::Newer(format!("layout {} of a block", block.schema)));
        }
        let lens =
            block.hot.chunks(4).map(|len| len.try_into().map_or(0, u32::from_le_bytes) as usize);
        if !lens.eq(format::Records::new(block.cold).map(|record| record.payload.len())) {
            return Err(UnpackError::Bad);
        }
        format::Records::new(block.cold).for_each(f);
        Ok(())
    }
}

/// Uses `data` as a segment file.
pub fn decode_segment(data: &[u8]) {
    try_directory(&[("seg-00000001-0000000000000001.fwl", data.to_vec())]);
}

/// Uses `data` as the frames of a segment and corrects every checksum, so that the code behind the
/// checks is reached.
pub fn decode_frames(data: &[u8]) {
    try_directory(&[("seg-00000001-0000000000000001.fwl", with_checksums(data))]);
}

/// Uses `data` as the payload of a block.
pub fn decode_block(data: &[u8]) {
    let payload = format::AlignedBuf::copy_of(data);
    for span in [1, 2, 3, 300] {
        let Some(head) = format::BlockHead::decode(payload.bytes(), span) else { continue };
        let numbers: Vec<u64> = format::SeqNumbers::new(1, head.gaps(payload.bytes()))
            .take(head.records as usize)
            .collect();
        assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.last() == Some(&u64::from(span)));
        let mut out = format::AlignedBuf::default();
        if format::unpack_block(&head, payload.bytes(), &PlainBlocks, &mut out).is_ok() {
            assert_eq!(format::count_records(out.bytes()), Some(u64::from(head.records)));
        }
    }
}

/// Uses `data` as a snapshot file.
pub fn decode_snapshot(data: &[u8]) {
    let read = |to: &mut [u8], at: u64| {
        let from = usize::try_from(at).ok().and_then(|at| data.get(at..)?.get(..to.len()));
        from.map(|from| to.copy_from_slice(from)).ok_or(())
    };
    let _ = crate::read::snapshot::parse(&read, data.len() as u64);
}

/// Uses `data` as each of the manifests.
pub fn decode_manifests(data: &[u8]) {
    let _ = SegmentsManifest::decode(data);
    let _ = SnapshotManifest::decode(data);
    try_directory(&[(SEGMENTS, data.to_vec()), (SNAPSHOT, data.to_vec())]);
}

/// Uses `data` as the payload of a frame.
pub fn decode_records(data: &[u8]) {
    let counted = format::count_records(data);
    let records = format::Records::new(data);
    let walked: usize = records.map(|r| format::record_len(r.payload.len())).sum();
    assert!(walked <= data.len() && counted.is_none_or(|_| walked == data.len()));
}

/// A segment whose header is good and whose frames have right checksums, wherever `data` puts their
/// lengths.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let header = SegmentHeader {
        minor: 0,
        store: [1; 16],
        number: 1,
        stands_to: 1,
        first_seq: 1,
        epoch: 1,
        nonce: 7,
        created_ms: 0,
        prev_number: 0,
        prev: Link::default(),
        fingerprint: [0; 16],
        compat: 0,
        incompat: format::INCOMPAT_BLOCKS,
        born_len: HEADER_LEN as u64,
        alias: Link::default(),
    };
    let mut file = header.encode().to_vec();
    file.extend_from_slice(data);
    file.resize(file.len().next_multiple_of(16), 0);
    let mut at = HEADER_LEN;
    while at + FRAME_HEADER_LEN <= file.len() {
        let room = file.len() - at - FRAME_HEADER_LEN;
        let field = |file: &[u8], from: usize| {
            file[from..from + 4].try_into().map_or(0, u32::from_le_bytes) as usize
        };
        let len = field(&file, at + 8) % (room + 1);
        file[at..at + 4].copy_from_slice(&FRAME_MAGIC);
        file[at + 8..at + 12].copy_from_slice(&(len as u32).to_le_bytes());
        let first_seq = file[at + 16..at + 24].try_into().map_or(0, u64::from_le_bytes);
        let start = at + FRAME_HEADER_LEN;
        let pcrc = format::payload_crc(header.nonce, first_seq, &file[start..start + len]);
        file[at + 12..at + 16].copy_from_slice(&pcrc.to_le_bytes());
        let hcrc = format::header_crc(header.nonce, at as u64, &file[at..at + FRAME_HEADER_LEN]);
        file[at + 4..at + 8].copy_from_slice(&hcrc.to_le_bytes());
        let end = (start + len).next_multiple_of(16).min(file.len());
        file[start + len..end].fill(0);
        at = end;
    }
    file
}

/// Reads, verifies, opens and repairs a directory. A reader must find no damage in a log that
/// opens.
fn try_directory(files: &[(&str, Vec<u8>)]) {
    let fs = SimFs::new(1);
    let dir = Path::new(DIR);
    let _ = crate::fs::Fs::create_dir_all(&fs, dir);
    for (name, content) in files {
        fs.put(&dir.join(name), content.clone());
    }
    let fs: Arc<SimFs> = Arc::new(fs);
    let Ok(reader) = Reader::open_with(fs.clone(), dir) else { return };
    let reader = reader.with_blocks(&PlainBlocks);
    let mut last = 0;
    let read = reader.for_each(|seq, _| {
        assert!(seq > last);
        last = seq;
    });
    let Ok(summary) = read else { return };
    let _ = verify_with(fs.clone(), dir);
    match ManualLog::open(fs.clone(), dir, &LogOptions::default()) {
        Ok((log, recovery)) => {
            assert!(summary.damage.is_empty() && recovery.next_seq > last);
            drop(log);
        }
        Err(_) => {
            let options = RepairOptions::everything();
            let _ = repair_with(fs.clone(), dir, options);
        }
    }
    if let Ok(reader) = Reader::open_with(fs, dir) {
        let _ = reader.with_blocks(&PlainBlocks).for_each(|_, _| {});
    }
}
