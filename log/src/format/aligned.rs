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
        // The heap block does not move when the Vec does, so the offset stays right; the Vec is
        // never grown.
        let start = bytes.as_ptr().align_offset(16).min(15);
        Self { bytes, start, len }
    }

    /// A copy of other bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes.len() + 15);
        // As in `zeroed`; the memory is filled once only.
        let start = memory.as_ptr().align_offset(16).min(15);
        memory.resize(start, 0);
        memory.extend_from_slice(bytes);
        Self { bytes: memory, start, len: bytes.len() }
    }

    /// These bytes where they are if they start at such an address, else a copy in `self`.
    pub(crate) fn borrow_or_copy<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        if bytes.as_ptr().align_offset(16) == 0 {
            return bytes;
        }
        *self = Self::copy_of(bytes);
        self.bytes()
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
