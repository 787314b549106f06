//! The active segment: its open file, its written end and its durable end.
//!
//! Owns: the layout of frames, and the space allocated ahead of them.
//!
//! Invariant: `durable` is never ahead of `written`, and both are ends of whole frames.
//!
//! Must not know: when a sync is due, what to do when one fails.

use std::io;
use std::path::PathBuf;

use super::batch::Batch;
use crate::error::{Error, is_full};
use crate::format::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, Link, SegmentHeader, next_digest, payload_crc,
};
use crate::fs::{FsFile, write_all_at};

/// Space is allocated ahead in steps that grow with the segment, between these.
const MIN_ALLOCATE: u64 = 64 << 10;
const MAX_ALLOCATE: u64 = 8 << 20;

/// A place in the active segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) offset: u64,
    pub(super) next_seq: u64,
    pub(super) digest: u64,
}

#[derive(Debug)]
pub(super) struct Active {
    pub(super) file: Box<dyn FsFile>,
    pub(super) path: PathBuf,
    pub(super) header: SegmentHeader,
    pub(super) written: Point,
    pub(super) durable: Point,
    pub(super) allocated: u64,
    pub(super) records: u64,
    pub(super) min_time: i64,
    pub(super) max_time: i64,
    /// Records were written since the last marker.
    pub(super) unmarked: bool,
}

impl Point {
    /// What the next segment says of this one, if it ends here.
    pub(super) fn link(&self) -> Link {
        Link { valid_len: self.offset, last_seq: self.next_seq - 1, digest: self.digest }
    }
}

impl Active {
    /// Makes sure of space for `len` more bytes. A failure here leaves the segment as it was.
    pub(super) fn reserve(&mut self, len: u64, limit: u64) -> Result<(), Error> {
        let end = self.written.offset + len;
        if end <= self.allocated {
            return Ok(());
        }
        let step = (self.written.offset / 2).clamp(MIN_ALLOCATE, MAX_ALLOCATE);
        let goal = (self.allocated + step).min(limit.next_multiple_of(4096)).max(end);
        let from = self.allocated;
        let mut result = self.file.allocate(from, goal - from);
        if result.as_ref().is_err_and(is_full) && goal > end {
            result = self.file.allocate(from, end - from).map(|()| self.allocated = end);
        } else if result.is_ok() {
            self.allocated = goal;
        }
        match result {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => self.reserve(len, limit),
            Err(e) if is_full(&e) => Err(Error::io("write", &self.path, e)),
            Err(_) => {
                // This file system cannot allocate space ahead. Whether there is space shows when a
                // frame is written.
                self.allocated = u64::MAX;
                Ok(())
            }
        }
    }

    /// As [`write_raw`](Self::write_raw), with an error that names the segment.
    pub(super) fn write(
        &mut self,
        batch: &mut Batch,
        kind: FrameKind,
        durable_off: u64,
    ) -> Result<(), Error> {
        self.write_raw(batch, kind, durable_off).map_err(|e| Error::io("write", &self.path, e))
    }

    /// Writes a frame behind what is there.
    pub(super) fn write_raw(
        &mut self,
        batch: &mut Batch,
        kind: FrameKind,
        durable_off: u64,
    ) -> io::Result<()> {
        let offset = self.written.offset;
        let nonce = self.header.nonce;
        let header = FrameHeader {
            payload_len: batch.payload_len() as u32,
            pcrc: payload_crc(nonce, batch.first_seq, &batch.bytes[FRAME_HEADER_LEN..]),
            first_seq: batch.first_seq,
            durable_off,
            count: batch.count,
            kind,
            max_time: batch.max_time,
        };
        let raw = header.encode(nonce, offset);
        batch.bytes[..FRAME_HEADER_LEN].copy_from_slice(&raw);
        let unpadded = batch.bytes.len();
        batch.bytes.resize(header.frame_len() as usize, 0);
        let written = write_all_at(&*self.file, &batch.bytes, offset);
        batch.bytes.truncate(unpadded);
        written?;
        let digest = next_digest(self.written.digest, &raw);
        self.written =
            Point { offset: offset + header.frame_len(), next_seq: batch.next_seq(), digest };
        self.records += batch.records();
        if matches!(kind, FrameKind::Records | FrameKind::Block) {
            self.min_time = self.min_time.min(batch.min_time);
            self.max_time = self.max_time.max(batch.max_time);
        }
        Ok(())
    }
}
