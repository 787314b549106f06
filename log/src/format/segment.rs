//! The bytes of segments: header pages, frames, seals and digests, as specified in FORMAT.md
//! sections 2.1, 2.2 and 3.
//!
//! Owns: encoding and decoding, as pure functions of bytes.
//!
//! Invariant: decoding never panics and never accepts bytes that FORMAT.md calls bad.
//!
//! Must not know: files, the chain of segments, what a payload means.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::bytes::{FieldReader, FieldWriter, is_sealed, seal_bytes};
use super::record::MAX_PAYLOAD_LEN;

/// First bytes of a segment.
const SEGMENT_MAGIC: [u8; 8] = *b"\x89FWL\r\n\x1a\n";
/// First bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"\xf1FWr";
/// The major version that this release writes, and the largest that it reads.
pub const MAJOR: u16 = 1;
/// The minor version that this release writes.
pub const MINOR: u16 = 0;
/// Length of the header page of a segment or snapshot.
pub const HEADER_LEN: usize = 4096;
/// Length of a frame's header.
pub const FRAME_HEADER_LEN: usize = 48;
/// Frames start at multiples of this.
pub const FRAME_ALIGN: u64 = 16;
/// Length of a seal's payload.
pub const SEAL_LEN: usize = 48;
/// The value for an unknown time.
pub const TIME_UNKNOWN: i64 = i64::MIN;
/// Incompatible flag: the file was rewritten by compaction or repair; sequence numbers may skip.
pub const INCOMPAT_REWRITTEN: u64 = 1;
/// Incompatible flag: frames of blocks may occur.
pub const INCOMPAT_BLOCKS: u64 = 2;

const BLOCK_LEN: usize = 256;
const BLOCK_COPY: usize = 2048;

/// The link of a segment to the one before it, or of a rewritten one to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The length of the valid part of the segment.
    pub valid_len: u64,
    /// The last sequence number in that part.
    pub last_seq: u64,
    /// The digest of that part.
    pub digest: u64,
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Minor version.
    pub minor: u16,
    /// The same in every file of a directory.
    pub store: [u8; 16],
    /// Its number, from 1.
    pub number: u32,
    /// The last number that it stands for.
    pub stands_to: u32,
    /// The sequence number of its first record.
    pub first_seq: u64,
    /// The number of times that the store had been opened for writing.
    pub epoch: u64,
    /// Random salt of the checksums.
    pub nonce: u64,
    /// Creation time, ms.
    pub created_ms: i64,
    /// Number of the segment before it; 0 for none.
    pub prev_number: u32,
    /// The segment before it.
    pub prev: Link,
    /// The application's schema fingerprint.
    pub fingerprint: [u8; 16],
    /// Compatible flags.
    pub compat: u64,
    /// Incompatible flags.
    pub incompat: u64,
    /// The length that was on disk before the file got its name.
    pub born_len: u64,
    /// For a rewritten segment: its successor's link to the original.
    pub alias: Link,
}

/// The reason why a header page cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Wrong magic, checksum or field.
    Bad(&'static str),
    /// A newer major version or an unknown incompatible flag.
    Newer(String),
}

impl SegmentHeader {
    /// Returns true if compaction or repair wrote this file.
    pub fn is_rewritten(&self) -> bool {
        self.incompat & INCOMPAT_REWRITTEN != 0
    }

    /// Returns true if frames of blocks may occur.
    pub fn has_blocks(&self) -> bool {
        self.incompat & INCOMPAT_BLOCKS != 0
    }

    /// The header page.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let block = self.block();
        let mut page = [0; HEADER_LEN];
        page[..BLOCK_LEN].copy_from_slice(&block);
        page[BLOCK_COPY..BLOCK_COPY + BLOCK_LEN].copy_from_slice(&block);
        seal_bytes(&mut page);
        page
    }

    /// Reads a header page, strictly.
    pub fn decode(page: &[u8]) -> Result<Self, HeaderError> {
        let page = page.get(..HEADER_LEN).ok_or(HeaderError::Bad("the header is cut short"))?;
        if page[..8] != SEGMENT_MAGIC {
            return Err(HeaderError::Bad("the magic number is wrong"));
        }
        if !is_sealed(page) {
            return Err(HeaderError::Bad("the header's checksum is wrong"));
        }
        Self::decode_block(&page[..BLOCK_LEN])
    }

    /// Reads a damaged header page from whichever copy of its block is good. For repair only.
    pub fn decode_damaged(page: &[u8]) -> Option<Self> {
        [0, BLOCK_COPY].into_iter().find_map(|at| {
            let block = page.get(at..at + BLOCK_LEN)?;
            (block[..8] == SEGMENT_MAGIC).then_some(())?;
            Self::decode_block(block).ok()
        })
    }

    /// The digest before the first frame.
    pub fn digest(&self) -> u64 {
        xxh3_64(&self.block())
    }

    /// The sequence number after the last one that this file accounts for when it is rewritten.
    pub(crate) fn alias_next_seq(&self) -> u64 {
        self.alias.last_seq.saturating_add(1)
    }

    fn block(&self) -> [u8; BLOCK_LEN] {
        let mut block = [0; BLOCK_LEN];
        let mut w = FieldWriter { bytes: &mut block, at: 0 };
        w.put(&SEGMENT_MAGIC).put(&MAJOR.to_le_bytes()).put(&self.minor.to_le_bytes());
        w.u32(HEADER_LEN as u32).put(&self.store).u32(self.number).u32(self.stands_to);
        w.u64(self.first_seq).u64(self.epoch).u64(self.nonce).put(&self.created_ms.to_le_bytes());
        w.u32(self.prev_number).u32(0).link(&self.prev);
        w.put(&self.fingerprint)
            .u64(self.compat)
            .u64(self.incompat)
            .u64(self.born_len)
            .link(&self.alias);
        seal_bytes(&mut block);
        block
    }

    fn decode_block(block: &[u8]) -> Result<Self, HeaderError> {
        if !is_sealed(block) {
            return Err(HeaderError::Bad("the header's checksum is wrong"));
        }
        let mut r = FieldReader { bytes: block, at: 8 };
        let major = r.u16();
        if major > MAJOR {
            return Err(HeaderError::Newer(format!("major version {major}")));
        }
        let minor = r.u16();
        r.u32();
        let store = r.bytes16();
        let number = r.u32();
        let stands_to = r.u32();
        let first_seq = r.u64();
        let epoch = r.u64();
        let nonce = r.u64();
        let created_ms = r.i64();
        let prev_number = r.u32();
        r.u32();
        let prev = r.link();
        let fingerprint = r.bytes16();
        let compat = r.u64();
        let incompat = r.u64();
        let born_len = r.u64();
        let alias = r.link();
        if incompat & !(INCOMPAT_REWRITTEN | INCOMPAT_BLOCKS) != 0 {
            return Err(HeaderError::Newer(format!("incompatible flags {incompat:#x}")));
        }
        let header = Self {
            minor,
            store,
            number,
            stands_to,
            first_seq,
            epoch,
            nonce,
            created_ms,
            prev_number,
            prev,
            fingerprint,
            compat,
            incompat,
            born_len,
            alias,
        };
        header.check().map(|()| header)
    }

    /// The checksum was correct, so these checks fail only for a file that no release writes.
    fn check(&self) -> Result<(), HeaderError> {
        let ok = self.number > 0
            && self.stands_to >= self.number
            && (self.is_rewritten() || self.stands_to == self.number)
            && self.prev_number < self.number
            && self.first_seq > 0
            && self.first_seq < u64::MAX / 2
            && self.born_len >= HEADER_LEN as u64;
        if ok { Ok(()) } else { Err(HeaderError::Bad("the header contradicts itself")) }
    }
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Records.
    Records,
    /// Nothing; the frame exists for its `durable_off`.
    Marker,
    /// The summary that ends a finished segment.
    Seal,
    /// Records, packed.
    Block,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload.
    pub payload_len: u32,
    /// Salted checksum of the payload.
    pub pcrc: u32,
    /// Sequence number of the first record, or of the next one.
    pub first_seq: u64,
    /// The offset that was durable when the frame was written.
    pub durable_off: u64,
    /// How many records; for a block, how many sequence numbers it spans.
    pub count: u32,
    /// What it holds.
    pub kind: FrameKind,
    /// The latest time of its records, ms.
    pub max_time: i64,
}

impl FrameHeader {
    /// The header's bytes for a frame at `offset`.
    pub fn encode(&self, nonce: u64, offset: u64) -> [u8; FRAME_HEADER_LEN] {
        let mut out = [0; FRAME_HEADER_LEN];
        let kind: u16 = match self.kind {
            FrameKind::Records => 1,
            FrameKind::Marker => 2,
            FrameKind::Seal => 3,
            FrameKind::Block => 4,
        };
        let mut w = FieldWriter { bytes: &mut out, at: 8 };
        w.u32(self.payload_len)
            .u32(self.pcrc)
            .u64(self.first_seq)
            .u64(self.durable_off)
            .u32(self.count);
        w.put(&kind.to_le_bytes()).put(&[0; 2]).put(&self.max_time.to_le_bytes());
        out[..4].copy_from_slice(&FRAME_MAGIC);
        let crc = header_crc(nonce, offset, &out);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a frame's header at `offset`; `None` if it is not valid. Does not read the payload.
    pub fn decode(bytes: &[u8], nonce: u64, offset: u64) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER_LEN)?;
        if bytes[..4] != FRAME_MAGIC {
            return None;
        }
        let mut r = FieldReader { bytes, at: 4 };
        if r.u32() != header_crc(nonce, offset, bytes) {
            return None;
        }
        let payload_len = r.u32();
        let pcrc = r.u32();
        let first_seq = r.u64();
        let durable_off = r.u64();
        let count = r.u32();
        let kind = match r.u16() {
            1 => FrameKind::Records,
            2 => FrameKind::Marker,
            3 => FrameKind::Seal,
            4 => FrameKind::Block,
            _ => return None,
        };
        let flags = r.u16();
        let max_time = r.i64();
        let len_ok = match kind {
            FrameKind::Records | FrameKind::Block => {
                payload_len as usize <= MAX_PAYLOAD_LEN && count > 0
            }
            FrameKind::Marker => payload_len == 0 && count == 0,
            FrameKind::Seal => payload_len as usize == SEAL_LEN && count == 0,
        };
        let ok = len_ok
            && flags == 0
            && durable_off <= offset
            && first_seq > 0
            && first_seq < u64::MAX / 2;
        ok.then_some(Self { payload_len, pcrc, first_seq, durable_off, count, kind, max_time })
    }

    /// Length of the whole frame with its padding.
    pub fn frame_len(&self) -> u64 {
        frame_len(self.payload_len as usize)
    }

    /// The sequence number after the last record.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count)
    }
}

/// Length of a frame with a payload of this length, padding included.
pub fn frame_len(payload_len: usize) -> u64 {
    ((FRAME_HEADER_LEN + payload_len) as u64).next_multiple_of(FRAME_ALIGN)
}

/// The checksum of a payload.
pub fn payload_crc(nonce: u64, first_seq: u64, payload: &[u8]) -> u32 {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&nonce.to_le_bytes());
    salt[8..].copy_from_slice(&first_seq.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&salt), payload)
}

/// The digest after a frame.
pub fn next_digest(digest: u64, frame_header: &[u8]) -> u64 {
    xxh3_64_with_seed(frame_header.get(..FRAME_HEADER_LEN).unwrap_or(frame_header), digest)
}

pub(crate) fn header_crc(nonce: u64, offset: u64, header: &[u8]) -> u32 {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&nonce.to_le_bytes());
    salt[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&salt), &header[8..FRAME_HEADER_LEN])
}

/// The content of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Records in the segment.
    pub count: u64,
    /// As in the segment's header.
    pub first_seq: u64,
    /// The last sequence number.
    pub last_seq: u64,
    /// Digest of all frames before.
    pub digest: u64,
    /// Earliest record time, ms; [`TIME_UNKNOWN`] if unknown.
    pub min_time: i64,
    /// Latest record time, ms.
    pub max_time: i64,
}

impl Seal {
    /// The payload.
    pub fn encode(&self) -> [u8; SEAL_LEN] {
        let mut out = [0; SEAL_LEN];
        let mut w = FieldWriter { bytes: &mut out, at: 0 };
        w.u64(self.count).u64(self.first_seq).u64(self.last_seq).u64(self.digest);
        w.put(&self.min_time.to_le_bytes()).put(&self.max_time.to_le_bytes());
        out
    }

    /// Reads a payload.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SEAL_LEN)?;
        let mut r = FieldReader { bytes, at: 0 };
        let (count, first_seq, last_seq, digest) = (r.u64(), r.u64(), r.u64(), r.u64());
        Some(Self { count, first_seq, last_seq, digest, min_time: r.i64(), max_time: r.i64() })
    }
}

impl FieldWriter<'_> {
    fn link(&mut self, link: &Link) -> &mut Self {
        self.u64(link.valid_len).u64(link.last_seq).u64(link.digest)
    }
}

impl FieldReader<'_> {
    fn link(&mut self) -> Link {
        Link { valid_len: self.u64(), last_seq: self.u64(), digest: self.u64() }
    }
}
