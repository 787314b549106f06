//! Records that will be one frame, in memory.
//!
//! Owns: the bytes of the frame before it is written, and packing them.
//!
//! Invariant: a batch that cannot be packed stays as it is.
//!
//! Must not know: where it will be written.

use crate::format::{
    AlignedBuf, BlockFormat, FRAME_HEADER_LEN, FrameHeader, FrameKind, TIME_UNKNOWN, pack_block,
};

/// Records that will be one frame.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Records or a block.
    pub(crate) kind: FrameKind,
    pub(crate) first_seq: u64,
    /// As in the frame's header: how many sequence numbers it spans.
    pub(crate) count: u32,
    /// How many of these numbers no record has.
    pub(crate) skipped: u32,
    pub(crate) min_time: i64,
    pub(crate) max_time: i64,
    /// Room for the frame's header, then the payload, then padding once it is written.
    pub(crate) bytes: Vec<u8>,
}

impl Batch {
    /// An empty batch; `spare` lends its memory.
    pub(crate) fn new(first_seq: u64, mut spare: Vec<u8>) -> Self {
        spare.clear();
        spare.resize(FRAME_HEADER_LEN, 0);
        Self {
            kind: FrameKind::Records,
            first_seq,
            count: 0,
            skipped: 0,
            min_time: i64::MAX,
            max_time: TIME_UNKNOWN,
            bytes: spare,
        }
    }

    /// From a frame that was read back, with that many records.
    pub(crate) fn from_frame(header: &FrameHeader, records: u32, payload: &[u8]) -> Self {
        let mut batch =
            Self::new(header.first_seq, Vec::with_capacity(FRAME_HEADER_LEN + payload.len()));
        batch.bytes.extend_from_slice(payload);
        batch.kind = header.kind;
        batch.count = header.count;
        batch.skipped = header.count.saturating_sub(records);
        batch.min_time = TIME_UNKNOWN;
        batch.max_time = header.max_time;
        batch
    }

    pub(crate) fn payload_len(&self) -> usize {
        // Padding is only added while the frame is being written, and taken away again.
        self.bytes.len() - FRAME_HEADER_LEN
    }

    /// Whether the records of the next batch may become one block with these.
    pub(super) fn takes(&self, next: &Self, max_records: usize, max_bytes: usize) -> bool {
        let are_records = self.kind == FrameKind::Records && next.kind == FrameKind::Records;
        are_records
            && self.next_seq() == next.first_seq
            && (self.count + next.count) as usize <= max_records
            && self.payload_len() + next.payload_len() <= max_bytes
    }

    /// Appends the records of the next batch.
    pub(super) fn append(&mut self, next: &Self) {
        self.bytes.extend_from_slice(&next.bytes[FRAME_HEADER_LEN..]);
        self.count += next.count;
        self.min_time = self.min_time.min(next.min_time);
        self.max_time = self.max_time.max(next.max_time);
    }

    /// Packs the records into a block. Returns the memory that they took; `None` if they cannot be
    /// packed.
    pub(super) fn pack(&mut self, format: &dyn BlockFormat) -> Option<Vec<u8>> {
        // Records are read in place. A Vec's bytes may start anywhere, but with most allocators
        // they start at a multiple of 16, and so does what follows the header.
        let mut copy = AlignedBuf::default();
        let unpacked = copy.borrow_or_copy(self.bytes.get(FRAME_HEADER_LEN..)?);
        let seqs: Vec<u64> = (self.first_seq..self.next_seq()).collect();
        let block = pack_block(format, unpacked, &seqs)?;
        let mut bytes = Vec::with_capacity(FRAME_HEADER_LEN + block.len().next_multiple_of(16));
        bytes.resize(FRAME_HEADER_LEN, 0);
        bytes.extend_from_slice(&block);
        self.kind = FrameKind::Block;
        Some(std::mem::replace(&mut self.bytes, bytes))
    }

    pub(super) fn records(&self) -> u64 {
        u64::from(self.count - self.skipped)
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count)
    }
}
