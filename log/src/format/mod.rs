//! The byte formats of FORMAT.md, as pure functions of bytes.

mod aligned;
mod block;
mod bytes;
mod names;
mod record;
mod segment;

pub use aligned::AlignedBuf;
pub(crate) use block::{BLOCK_BYTES, BLOCK_RECORDS};
pub use block::{
    Block, BlockFormat, BlockHead, OwnedBlock, PackedBlock, SeqNumbers, UnpackError, get_varint,
    pack_block, put_varint, unpack_block,
};
pub(crate) use bytes::{FieldReader, FieldWriter, is_sealed, seal_bytes};
pub(crate) use names::{parse_segment_name, parse_snapshot_name, segment_name, snapshot_name};
pub use record::{
    MAX_RECORD_LEN, RECORD_HEADER_LEN, RecordRef, Records, count_records, put_record, record_len,
};
#[cfg(feature = "fuzzing")]
pub(crate) use segment::header_crc;
pub use segment::{
    FRAME_ALIGN, FRAME_HEADER_LEN, FRAME_MAGIC, FrameHeader, FrameKind, HEADER_LEN, HeaderError,
    INCOMPAT_BLOCKS, INCOMPAT_REWRITTEN, Link, MAJOR, MINOR, SEAL_LEN, Seal, SegmentHeader,
    TIME_UNKNOWN, frame_len, next_digest, payload_crc,
};
