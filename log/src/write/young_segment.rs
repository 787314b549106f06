//! The durable frames of a young segment, in memory, so that the writer can write them again as
//! blocks.
//!
//! Owns: when that is worth it, and which records become one block.
//!
//! Invariants: the parts hold every record of the segment that is durable, in order, or the segment
//! is large and there are none. Memory is bounded by the size up to which a segment is young.
//!
//! Must not know: files.

use super::batch::Batch;
use crate::format::{BLOCK_BYTES, BLOCK_RECORDS, BlockFormat, FrameKind, frame_len};

/// A segment is young up to this many times the bytes that may wait to be packed.
const YOUNG_TIMES: u64 = 4;
/// The part of these bytes that is worth packing at a close.
const CLOSE_PART: u64 = 32;

/// The frames of the active segment.
#[derive(Debug, Default)]
pub(super) struct YoungSegment {
    /// Blocks, and records that will be one block.
    parts: Vec<Batch>,
    /// Bytes of its frames.
    bytes: u64,
    /// Bytes of frames that are not blocks, written since it was last packed.
    unpacked: u64,
    /// It has outgrown what is held in memory.
    is_large: bool,
}

/// What is to be done with the active segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Its records are packed into a new segment.
    Pack,
    /// It is sealed, and the next one begins.
    Roll,
}

impl YoungSegment {
    /// Takes a batch that is durable. Returns memory that it does not need. `repack_bytes` may wait
    /// to be packed.
    pub(super) fn keep(&mut self, batch: Batch, repack_bytes: u64) -> Option<Vec<u8>> {
        self.bytes += frame_len(batch.payload_len());
        if batch.kind == FrameKind::Records {
            self.unpacked += frame_len(batch.payload_len());
        }
        self.is_large |= self.bytes > (YOUNG_TIMES + 1).saturating_mul(repack_bytes);
        if self.is_large {
            self.parts = Vec::new();
            return Some(batch.bytes);
        }
        match self.parts.last_mut() {
            Some(last) if last.takes(&batch, BLOCK_RECORDS, BLOCK_BYTES) => {
                last.append(&batch);
                Some(batch.bytes)
            }
            // A batch of records has memory for a whole frame.
            _ if batch.kind == FrameKind::Records => {
                let mut part = Batch::new(batch.first_seq, Vec::new());
                part.append(&batch);
                self.parts.push(part);
                Some(batch.bytes)
            }
            _ => {
                self.parts.push(batch);
                None
            }
        }
    }

    /// Counts a frame without records.
    pub(super) fn count_plain(&mut self, len: u64) {
        self.bytes += len;
        self.unpacked += len;
    }

    /// Returns what is due when another `pending` bytes are written and not durable yet.
    pub(super) fn due(&self, pending: u64, repack_bytes: u64) -> Option<Due> {
        match self.unpacked + pending >= repack_bytes {
            true if self.is_large => Some(Due::Roll),
            true => Some(Due::Pack),
            false => None,
        }
    }

    /// Returns up to where space is allocated ahead in a segment that was born with `born_len`
    /// bytes; `None` for a large one.
    pub(super) fn allocation_limit(&self, born_len: u64, repack_bytes: u64) -> Option<u64> {
        (!self.is_large).then(|| born_len.saturating_add(repack_bytes))
    }

    /// Whether a close should pack the segment first.
    pub(super) fn is_worth_packing(&self, repack_bytes: u64) -> bool {
        !self.is_large && self.unpacked > repack_bytes / CLOSE_PART
    }

    /// Whether the segment, just packed, has its final size.
    pub(super) fn is_full(&self, repack_bytes: u64) -> bool {
        self.bytes >= YOUNG_TIMES.saturating_mul(repack_bytes)
    }

    /// Gives all records away, as blocks where they can be packed. Afterwards nothing is known of
    /// the segment.
    pub(super) fn take_packed(&mut self, format: &dyn BlockFormat) -> Vec<Batch> {
        let mut parts = std::mem::take(self).parts;
        for part in parts.iter_mut().filter(|part| part.kind == FrameKind::Records) {
            part.pack(format);
        }
        parts
    }

    /// Records that could not be packed are not tried again.
    pub(super) fn forget_unpacked(&mut self) {
        self.unpacked = 0;
    }
}
