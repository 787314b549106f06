//! The records in a frame's payload, as FORMAT.md section 2.3 lays them out.
//!
//! Owns: putting a record into a payload and taking it out. Invariant: any bytes decode to records or to nothing, without a
//! panic. Must not know: frames, what a record means.

use super::bytes::Take;

/// Length of a record's header.
pub const RECORD_HEADER_LEN: usize = 16;
/// Largest payload of a frame.
pub(super) const MAX_PAYLOAD_LEN: usize = 16 << 20;
/// Largest record.
pub const MAX_RECORD_LEN: usize = MAX_PAYLOAD_LEN - RECORD_HEADER_LEN;

/// A record as the log sees it: bytes with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The application's kind.
    pub kind: u16,
    /// The application's schema version.
    pub schema: u16,
    /// Records with one key keep their order in a parallel replay.
    pub key_hash: u64,
    /// The record's own bytes. Delivered by a [`Reader`](crate::Reader) they start at an address divisible by 8 (not
    /// always by 16), so types with an alignment of up to 8 can be read in place; others must be copied first.
    pub payload: &'a [u8],
}

impl RecordRef<'_> {
    /// How many bytes it takes in a segment, its header and padding included.
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

/// Length of a record in a frame's payload.
pub fn record_len(payload_len: usize) -> usize {
    (RECORD_HEADER_LEN + payload_len).next_multiple_of(8)
}

/// The records of a payload.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Of a payload that [`count_records`] has accepted; of any other, up to the first that makes no sense.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordRef<'a>;

    fn next(&mut self) -> Option<RecordRef<'a>> {
        let header = self.rest.get(..RECORD_HEADER_LEN)?;
        let mut r = Take { bytes: header, at: 0 };
        let (len, kind, schema, key_hash) = (r.u32() as usize, r.u16(), r.u16(), r.u64());
        let payload = self.rest.get(RECORD_HEADER_LEN..)?.get(..len)?;
        self.rest = self.rest.get(record_len(len)..)?;
        Some(RecordRef { kind, schema, key_hash, payload })
    }
}

/// How many records a payload holds; `None` when it does not end with the end of one.
pub fn count_records(payload: &[u8]) -> Option<u64> {
    let mut records = Records::new(payload);
    let count = records.by_ref().count() as u64;
    records.rest.is_empty().then_some(count)
}
