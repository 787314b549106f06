//! Bounds of a segment that are known without reading its records.
//!
//! Owns: reading a seal.
//!
//! Must not know: its use.

use crate::error::Error;
use crate::format::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, HEADER_LEN, SEAL_LEN, TIME_UNKNOWN, frame_len,
};
use crate::read::reader::Reader;
use crate::read::scan::Extent;

impl Reader {
    /// Returns an upper bound of the record times in the segment at `index`, ms, from its seal. The
    /// bound is exact unless the segment was rewritten. `None` for the last segment and for one
    /// without a seal. Reads 48 bytes.
    ///
    /// # Errors
    ///
    /// The system's error; [`Error::Replaced`] if a compaction has removed the file.
    pub fn newest_time(&self, index: usize) -> Result<Option<i64>, Error> {
        let Some(segment) = self.catalog.chain.get(index) else { return Ok(None) };
        let Extent::Fixed(end) = segment.extent else { return Ok(None) };
        let Some(offset) =
            end.checked_sub(frame_len(SEAL_LEN)).filter(|offset| *offset >= HEADER_LEN as u64)
        else {
            return Ok(None);
        };
        let mut bytes = [0; FRAME_HEADER_LEN];
        let path = &segment.file.path;
        segment.file.with_file(&*self.fs, |file| {
            let mut have = 0;
            while have < bytes.len() {
                match file.read_at(&mut bytes[have..], offset + have as u64) {
                    Ok(0) => break,
                    Ok(more) => have += more,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(Error::io("read", path, e)),
                }
            }
            Ok(())
        })?;
        let header = FrameHeader::decode(&bytes, segment.file.header.nonce, offset);
        let sealed = header.filter(|header| header.kind == FrameKind::Seal);
        Ok(sealed.map(|header| header.max_time).filter(|time| *time != TIME_UNKNOWN))
    }
}
