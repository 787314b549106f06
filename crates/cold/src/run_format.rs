//! The parts of a run around its blocks: header page, index, table of parts, trailer.
//!
//! Owns: where each part lies, and its bytes.
//!
//! Invariants: all sizes follow from the trailer and the table of parts, and are compared with the
//! file's length before anything is allocated for them.
//!
//! Must not know: files, entries.

use crate::block::PAGE;
use crate::fields::{checked, checksum, u16_at, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"\x89FWC\r\n\x1a\n";
/// The major version that this release writes, and the only one that it reads.
pub(crate) const MAJOR: u16 = 1;

/// The length of a checksum after a section.
pub(crate) const CHECKSUM_LEN: usize = 4;
pub(crate) const TRAILER_LEN: usize = 32;
pub(crate) const PART_LEN: usize = 32;

/// Returns the name of a run.
pub(crate) fn run_name(number: u64) -> String {
    format!("run-{number:016x}.fwc")
}

/// Returns the number of a run's name.
pub(crate) fn parse_run_name(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_prefix("run-")?.strip_suffix(".fwc")?, 16).ok()?;
    (run_name(number) == name).then_some(number)
}

/// The reason why the first bytes of a file are refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Newer(u16),
    Malformed,
}

pub(crate) fn header_page(number: u64, nonce: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[..8].copy_from_slice(&MAGIC);
    page[8..10].copy_from_slice(&MAJOR.to_le_bytes());
    page[12..16].copy_from_slice(&(PAGE as u32).to_le_bytes());
    page[16..24].copy_from_slice(&number.to_le_bytes());
    page[24..32].copy_from_slice(&nonce.to_le_bytes());
    let end = PAGE - CHECKSUM_LEN;
    let crc = checksum(0, 0, &page[..end]);
    page[end..].copy_from_slice(&crc.to_le_bytes());
    page
}

/// Returns the bytes of a header or a manifest before its checksum, if they are whole and of this
/// version.
pub(crate) fn check_start<'b>(magic: &[u8; 8], bytes: &'b [u8]) -> Result<&'b [u8], HeaderError> {
    let body = checked(0, 0, bytes)
        .filter(|body| body.starts_with(magic))
        .ok_or(HeaderError::Malformed)?;
    match u16_at(body, 8) {
        MAJOR => Ok(body),
        newer if newer > MAJOR => Err(HeaderError::Newer(newer)),
        _ => Err(HeaderError::Malformed),
    }
}

/// Returns the number and the nonce in a header page.
pub(crate) fn parse_header_page(page: &[u8]) -> Result<(u64, u64), HeaderError> {
    let body = check_start(&MAGIC, page)?;
    if u32_at(body, 12) == PAGE as u32 {
        Ok((u64_at(body, 16), u64_at(body, 24)))
    } else {
        Err(HeaderError::Malformed)
    }
}

/// The last bytes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) pages: u64,
    pub(crate) entries: u64,
    pub(crate) parts: u64,
}

impl Trailer {
    pub(crate) fn encode(&self, nonce: u64, offset: u64) -> [u8; TRAILER_LEN] {
        let mut out = [0; TRAILER_LEN];
        out[..8].copy_from_slice(&self.pages.to_le_bytes());
        out[8..16].copy_from_slice(&self.entries.to_le_bytes());
        out[16..24].copy_from_slice(&self.parts.to_le_bytes());
        let end = TRAILER_LEN - CHECKSUM_LEN;
        let crc = checksum(nonce, offset, &out[..end]);
        out[end..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the trailer of a file of `len` bytes. What it counts fits into the file.
    pub(crate) fn decode(bytes: &[u8], nonce: u64, len: u64) -> Option<Self> {
        let body = checked(nonce, len.checked_sub(TRAILER_LEN as u64)?, bytes)?;
        let trailer =
            Self { pages: u64_at(body, 0), entries: u64_at(body, 8), parts: u64_at(body, 16) };
        let per_page = PAGE as u64 + 8;
        let is_fitting = trailer.pages <= len / per_page
            && trailer.parts <= trailer.pages
            && trailer.entries <= trailer.pages * PAGE as u64;
        (is_fitting && trailer.filters_offset() <= len - TRAILER_LEN as u64).then_some(trailer)
    }

    /// Where the index begins: the first key of each page.
    pub(crate) fn index_offset(&self) -> u64 {
        (self.pages + 1) * PAGE as u64
    }

    /// Where the table of parts begins.
    pub(crate) fn parts_offset(&self) -> u64 {
        self.index_offset() + self.pages * 8 + CHECKSUM_LEN as u64
    }

    /// Where the first part's filter begins.
    pub(crate) fn filters_offset(&self) -> u64 {
        self.parts_offset() + self.parts * PART_LEN as u64 + CHECKSUM_LEN as u64
    }
}
