//! Records in a frame's payload, as specified in FORMAT.md section 2.3.
//!
//! Owns: encoding and decoding of records.
//!
//! Invariant: decoding never panics and yields records or nothing for any bytes.
//!
//! Must not know: frames, what a record means.

use super::bytes::FieldReader;

/// Length of a record's header.
pub const RECORD_HEADER_LEN: usize = 16;
/// Largest payload of a frame.
pub(super) const MAX_PAYLOAD_LEN: usize = 16 << 20;
/// Largest record.
pub const MAX_RECORD_LEN: usize = MAX_PAYLOAD_LEN - RECORD_HEADER_LEN;

/// A record: bytes with a kind, a version and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The application's kind.
    pub kind: u16,
    /// The application's schema version.
    pub schema: u16,
    /// Records with one key keep their order in a parallel replay.
    pub key_hash: u64,
    /// The record's own bytes. Delivered by a [`Reader`](crate::Reader) they start at an address
    /// divisible by 8 (not always by 16), so types with an alignment of up to 8 can be read in
    /// place; others must be copied first.
    pub payload: &'a [u8],
}

impl RecordRef<'_> {
    /// Returns its size in a segment, header and padding included.
    pub fn stored_len(&self) -> u64 {
        record_len(self.payload.len()) as u64
    }
}

/// Appends a record to a frame's payload.
pub fn put_record(out: &mut Vec<u8>, record: &RecordRef<'_>) {
    // The caller has checked the length against `MAX_RECORD_LEN`.
    out.extend_from_slice(&(record.payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&record.kind.to_le_bytes());
    out.extend_from_slice(&record.schema.to_le_bytes());
    out.extend_from_slice(&record.key_hash.to_le_bytes());
    out.extend_from_slice(record.payload);
    out.resize(out.len().next_multiple_of(8), 0);
}

/// Returns the length of a record in a frame's payload.
pub fn record_len(payload_len: usize) -> usize {
    (RECORD_HEADER_LEN + payload_len).next_multiple_of(8)
}

/// The records of a payload.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Iterates over a payload that [`count_records`] accepted; in any other payload, up to the
    /// first invalid record.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordRef<'a>;

    fn next(&mut self) -> Option<RecordRef<'a>> {
        let header = self.rest.get(..RECORD_HEADER_LEN)?;
        let mut r = FieldReader { bytes: header, at: 0 };
        let (len, kind, schema, key_hash) = (r.u32() as usize, r.u16(), r.u16(), r.u64());
        let payload = self.rest.get(RECORD_HEADER_LEN..)?.get(..len)?;
        self.rest = self.rest.get(record_len(len)..)?;
        Some(RecordRef { kind, schema, key_hash, payload })
    }
}

/// Returns the number of records in a payload; `None` if it does not end with the end of a record.
pub fn count_records(payload: &[u8]) -> Option<u64> {
    let mut records = Records::new(payload);
    let count = records.by_ref().count() as u64;
    records.rest.is_empty().then_some(count)
}
