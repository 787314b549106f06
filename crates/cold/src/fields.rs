//! Little-endian numbers, and checksums that hold for one place of one file only.
//!
//! Owns: how a nonce and an offset go into a checksum.
//!
//! Invariants: bytes of another file, or of another place in the same file, have another checksum;
//! reading past the end gives zeros.
//!
//! Must not know: what the bytes mean.

/// The checksum of `bytes` at `offset` of the file with this nonce.
pub(crate) fn checksum(nonce: u64, offset: u64, bytes: &[u8]) -> u32 {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&nonce.to_le_bytes());
    salt[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&salt), bytes)
}

/// Returns the bytes before the last four, if the last four are their checksum.
pub(crate) fn checked(nonce: u64, offset: u64, bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    (checksum(nonce, offset, body) == u32::from_le_bytes(*crc)).then_some(body)
}

/// Reads a number at `at`; zero past the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads a number at `at`; zero past the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Reads a number at `at`; zero past the end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u16::from_le_bytes(*bytes))
}
