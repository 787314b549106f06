//! A buffer whose bytes start at an aligned address.
//!
//! Must not know: what the bytes mean.

/// Bytes that start at an address divisible by 16.
#[derive(Debug, Default)]
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// That many zeros.
    pub fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + 15];
        // The heap block does not move when the Vec does, so the offset stays right; the Vec is never grown.
        let start = bytes.as_ptr().align_offset(16).min(15);
        Self { bytes, start, len }
    }

    /// A copy of other bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.bytes_mut().copy_from_slice(bytes);
        buf
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}
