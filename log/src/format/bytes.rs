//! Little-endian fields, and blocks that end with their own checksum.
//!
//! Owns: the two cursors that every encoder and decoder of the format uses.
//!
//! Invariant: reading past the end gives zeros and never panics.
//!
//! Must not know: which fields a block has.

/// Writes the checksum of all bytes but the last four into the last four.
pub(crate) fn seal_bytes(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

/// Returns whether the last four bytes are the checksum of the others.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return false };
    crc32c::crc32c(body) == u32::from_le_bytes(*crc)
}

/// A cursor that writes fields into a block, which must be large enough.
pub(crate) struct FieldWriter<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) at: usize,
}

impl FieldWriter<'_> {
    pub(crate) fn put(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    pub(crate) fn u32(&mut self, v: u32) -> &mut Self {
        self.put(&v.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, v: u64) -> &mut Self {
        self.put(&v.to_le_bytes())
    }
}

/// A cursor that reads fields from a block; past its end they are zero.
pub(crate) struct FieldReader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl FieldReader<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        if let Some(bytes) = self.bytes.get(self.at..self.at + N) {
            out.copy_from_slice(bytes);
        }
        self.at += N;
        out
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.array())
    }

    pub(crate) fn bytes16(&mut self) -> [u8; 16] {
        self.array()
    }
}
