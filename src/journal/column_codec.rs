//! Plain little-endian columns, which the sections of a snapshot consist of.
//!
//! Invariants: a written column reads back unchanged. Any bytes decode or are rejected, and
//! decoding allocates no more than their length.
//!
//! Must not know: what a column means.

/// Section under construction: the number of rows, then the columns, each aligned to 8 bytes.
pub(super) struct ColumnWriter {
    pub(super) bytes: Vec<u8>,
}

impl ColumnWriter {
    pub(super) fn new(rows: usize) -> Self {
        Self { bytes: (rows as u64).to_le_bytes().to_vec() }
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    pub(super) fn u64s(&mut self, values: impl IntoIterator<Item = u64>) {
        values.into_iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    pub(super) fn i64s(&mut self, values: impl IntoIterator<Item = i64>) {
        self.u64s(values.into_iter().map(|value| value as u64));
    }

    pub(super) fn u32s(&mut self, values: impl IntoIterator<Item = u32>) {
        values.into_iter().for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
        self.pad();
    }

    /// Appends the lengths, their sum, then the concatenated bytes.
    pub(super) fn texts<'t>(&mut self, texts: impl Iterator<Item = &'t str> + Clone) {
        self.u32s(texts.clone().map(|text| text.len() as u32));
        self.u64s([texts.clone().map(|text| text.len() as u64).sum()]);
        texts.for_each(|text| self.bytes.extend_from_slice(text.as_bytes()));
        self.pad();
    }
}

/// Section that is being read.
pub(super) struct ColumnReader<'b> {
    pub(super) rows: usize,
    rest: &'b [u8],
}

impl<'b> ColumnReader<'b> {
    pub(super) fn open(bytes: &'b [u8]) -> Option<Self> {
        let (rows, rest) = bytes.split_first_chunk()?;
        let rows = usize::try_from(u64::from_le_bytes(*rows)).ok()?;
        // Each row takes at least one byte. This rejects a larger number of rows before anything is
        // allocated for it.
        (rows <= bytes.len()).then_some(Self { rows, rest })
    }

    fn column<const N: usize, T>(&mut self, from: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
        let bytes = self.take(self.rows.checked_mul(N)?)?;
        Some(bytes.as_chunks().0.iter().map(|bytes| from(*bytes)).collect())
    }

    pub(super) fn u64s(&mut self) -> Option<Vec<u64>> {
        self.column(u64::from_le_bytes)
    }

    pub(super) fn i64s(&mut self) -> Option<Vec<i64>> {
        self.column(i64::from_le_bytes)
    }

    pub(super) fn u32s(&mut self) -> Option<Vec<u32>> {
        self.column(u32::from_le_bytes)
    }

    pub(super) fn texts(&mut self) -> Option<Vec<String>> {
        if self.rows == 0 && self.rest.is_empty() {
            // A section that is missing.
            return Some(Vec::new());
        }
        let lens = self.u32s()?;
        let (total, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        let mut bytes = self.take(usize::try_from(u64::from_le_bytes(*total)).ok()?)?;
        let mut texts = Vec::with_capacity(lens.len());
        for len in lens {
            let (text, rest) = bytes.split_at_checked(len as usize)?;
            texts.push(std::str::from_utf8(text).ok()?.to_owned());
            bytes = rest;
        }
        bytes.is_empty().then_some(texts)
    }

    /// Returns the next `len` bytes and skips their padding.
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, _) = self.rest.split_at_checked(len)?;
        self.rest = self.rest.get(len.checked_next_multiple_of(8)?..)?;
        Some(taken)
    }
}
