//! Records that will be one frame, in memory.
//!
//! Owns: the bytes of the frame before it is written.
//!
//! Must not know: where it will be written.

use crate::format::{FRAME_HEADER_LEN, FrameHeader, TIME_UNKNOWN};

/// Records that will be one frame.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first_seq: u64,
    pub(crate) count: u32,
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
        Self { first_seq, count: 0, min_time: i64::MAX, max_time: TIME_UNKNOWN, bytes: spare }
    }

    /// From a frame that was read back.
    pub(crate) fn from_frame(header: &FrameHeader, payload: &[u8]) -> Self {
        let mut batch = Self::new(header.first_seq, Vec::with_capacity(FRAME_HEADER_LEN + payload.len()));
        batch.bytes.extend_from_slice(payload);
        batch.count = header.count;
        batch.min_time = TIME_UNKNOWN;
        batch.max_time = header.max_time;
        batch
    }

    pub(crate) fn payload_len(&self) -> usize {
        // Padding is only added while the frame is being written, and taken away again.
        self.bytes.len() - FRAME_HEADER_LEN
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count)
    }
}
