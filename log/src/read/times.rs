//! The time range of a segment's records, without reading them.
//!
//! Owns: finding a segment's seal at its end.
//!
//! Invariant: a time range is returned only if the seal matches the chain of segments, so that a
//! search by time skips no record.
//!
//! Must not know: what is searched for.

use crate::error::Error;
use crate::format::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, SEAL_LEN, Seal, TIME_UNKNOWN, frame_len, next_digest,
    payload_crc,
};
use crate::fs::read_full_at;
use crate::read::chain::ChainSegment;
use crate::read::reader::Reader;
use crate::read::scan::Extent;

/// The bounds of the times of a segment's records, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentTimes {
    /// No record is earlier; `None` if unknown, such as in segments that a compaction wrote.
    pub earliest: Option<i64>,
    /// No record is later; `None` in a segment without records.
    pub latest: Option<i64>,
    /// The number of records.
    pub records: u64,
}

impl Reader {
    /// Returns the time range of the records in the `index`-th segment from its seal, with one
    /// short read. None if it has no seal, because its writer died or has not finished it.
    ///
    /// ```
    /// # use fetchwise_log::{Log, LogOptions, Reader, Record};
    /// # let dir = tempfile::tempdir()?;
    /// let write = |time_ms| -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut options = LogOptions::default();
    ///     options.begin_segment = true;
    ///     let (log, _) = Log::open(dir.path(), options)?;
    ///     log.append(Record { kind: 1, schema: 1, key_hash: 0, time_ms, payload: b"x" })?;
    ///     Ok(log.close()?)
    /// };
    /// write(1000)?;
    /// write(2000)?;
    /// let times = Reader::open(dir.path())?.segment_times(0)?.unwrap();
    /// assert_eq!((times.earliest, times.latest, times.records), (Some(1000), Some(1000), 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error, [`Error::Replaced`] if a compaction removed the file, [`Error::Invalid`]
    /// for an index out of range.
    pub fn segment_times(&self, index: usize) -> Result<Option<SegmentTimes>, Error> {
        let Some(segment) = self.chain().get(index) else {
            return Err(Error::Invalid(format!("there is no segment {index}")));
        };
        let Extent::Fixed(end) = segment.extent else { return Ok(None) };
        let Some(offset) = end.checked_sub(frame_len(SEAL_LEN)) else { return Ok(None) };
        let mut bytes = [0; FRAME_HEADER_LEN + SEAL_LEN];
        let read = segment.file.with_file(&*self.fs, |file| {
            read_full_at(file, &mut bytes, offset)
                .map_err(|e| Error::io("read", &segment.file.path, e))
        })?;
        Ok(bytes.get(..read).and_then(|bytes| times(segment, bytes, offset)))
    }
}

/// Reads what may be the seal of `segment`, at `offset`.
fn times(segment: &ChainSegment, bytes: &[u8], offset: u64) -> Option<SegmentTimes> {
    let own = &segment.file.header;
    let header = FrameHeader::decode(bytes, own.nonce, offset)?;
    let (raw, payload) = (bytes.get(..FRAME_HEADER_LEN)?, bytes.get(FRAME_HEADER_LEN..)?);
    if header.kind != FrameKind::Seal
        || payload_crc(own.nonce, header.first_seq, payload) != header.pcrc
    {
        return None;
    }
    let seal = Seal::decode(payload)?;
    // The next segment says what this one's digest is at its end, and a digest stands for every
    // frame before it.
    let is_own = segment.stated.is_none_or(|stated| {
        next_digest(seal.digest, raw) == stated.digest && seal.last_seq == stated.last_seq
    });
    let known = |ms: i64| (ms != TIME_UNKNOWN).then_some(ms);
    (is_own && seal.first_seq == own.first_seq).then_some(SegmentTimes {
        earliest: known(seal.min_time),
        latest: known(seal.max_time),
        records: seal.count,
    })
}
