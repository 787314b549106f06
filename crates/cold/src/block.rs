//! A block: the entries of a few keys that follow each other, in whole pages with one checksum.
//!
//! Owns: the bytes of a block.
//!
//! Invariants: keys ascend; only a block with one entry is longer than a page; any bytes can be
//! read without a panic.
//!
//! Must not know: files, and which block has a key.

use std::ops::Range;

use fetchwise_log::{get_varint, put_varint};

use crate::fields::{checksum, u16_at, u32_at, u64_at};

/// The unit in which runs are read.
pub(crate) const PAGE: usize = 4096;
/// The longest value.
pub const MAX_VALUE_LEN: usize = 1 << 20;
/// The most pages of a block: its head and the head of its entry need less than one.
pub(crate) const MAX_BLOCK_PAGES: usize = MAX_VALUE_LEN / PAGE + 1;

const HEAD: usize = 16;

/// Bytes that are not a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedBlock;

/// One entry, and where its value lies in the block. A key without a value is a tombstone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub(crate) key: u64,
    pub(crate) value: Option<Range<usize>>,
}

/// Packs entries into a block.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    bytes: Vec<u8>,
    count: u16,
    first: u64,
    last: u64,
}

impl BlockWriter {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; HEAD], count: 0, first: 0, last: 0 }
    }

    /// Appends an entry, whose key must be above those before it; returns false if it does not fit.
    pub(crate) fn push(&mut self, key: u64, value: Option<&[u8]>) -> bool {
        let is_first = self.count == 0;
        if is_first {
            (self.first, self.last) = (key, key);
        }
        let len = self.bytes.len();
        put_varint(&mut self.bytes, key - self.last);
        put_varint(&mut self.bytes, value.map_or(0, |value| value.len() as u64 + 1));
        self.bytes.extend_from_slice(value.unwrap_or_default());
        if self.bytes.len() > PAGE && !is_first {
            self.bytes.truncate(len);
            return false;
        }
        self.last = key;
        self.count += 1;
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Moves the block to the end of `out`, and returns its first key and its number of pages.
    pub(crate) fn finish(&mut self, nonce: u64, offset: u64, out: &mut Vec<u8>) -> (u64, usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(PAGE), 0);
        self.bytes[4..6].copy_from_slice(&self.count.to_le_bytes());
        self.bytes[8..HEAD].copy_from_slice(&self.first.to_le_bytes());
        let crc = checksum(nonce, offset, &self.bytes[4..]);
        self.bytes[..4].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        let pages = self.bytes.len() / PAGE;
        self.bytes.clear();
        self.bytes.resize(HEAD, 0);
        self.count = 0;
        (self.first, pages)
    }
}

/// The position in a block that is read from its beginning. Each call gets the same bytes.
#[derive(Debug)]
pub(crate) struct BlockReader {
    at: usize,
    left: u16,
    key: u64,
}

impl BlockReader {
    /// Checks the block that begins with `first`.
    pub(crate) fn open(
        block: &[u8],
        nonce: u64,
        offset: u64,
        first: u64,
    ) -> Result<Self, MalformedBlock> {
        let body = block.get(4..).ok_or(MalformedBlock)?;
        let is_right =
            u32_at(block, 0) == checksum(nonce, offset, body) && u64_at(block, 8) == first;
        let reader = Self { at: HEAD, left: u16_at(block, 4), key: first };
        // A long block has one entry, so that its pages are not taken for blocks.
        let is_fitting = reader.left == 1 || (reader.left > 1 && block.len() == PAGE);
        if is_right && is_fitting { Ok(reader) } else { Err(MalformedBlock) }
    }

    /// Returns the next entry.
    pub(crate) fn next(&mut self, block: &[u8]) -> Result<Option<BlockEntry>, MalformedBlock> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut rest = block.get(self.at..).ok_or(MalformedBlock)?;
        let gap = get_varint(&mut rest).ok_or(MalformedBlock)?;
        let len = get_varint(&mut rest).ok_or(MalformedBlock)?;
        if (gap == 0) != (self.at == HEAD) || len > rest.len() as u64 + 1 {
            return Err(MalformedBlock);
        }
        let start = block.len() - rest.len();
        let value = (len as usize).checked_sub(1).map(|len| start..start + len);
        self.key = self.key.checked_add(gap).ok_or(MalformedBlock)?;
        self.at = value.as_ref().map_or(start, |value| value.end);
        self.left -= 1;
        Ok(Some(BlockEntry { key: self.key, value }))
    }
}
