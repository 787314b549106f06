//! Blocks: many records packed into one frame, as specified in FORMAT.md section 2.6.
//!
//! Owns: the head of a block, its gaps in the sequence numbers, the compression of its cold part.
//!
//! Invariants: decoding never panics; a part is never longer than its head says; a head that
//! contradicts its payload is refused.
//!
//! Must not know: what the hot and the cold part mean; the application's [`BlockFormat`] does.

use std::borrow::Cow;
use std::fmt::Debug;

use super::aligned::AlignedBuf;
use super::bytes::{FieldReader, FieldWriter};
use super::record::{MAX_PAYLOAD_LEN, RecordRef, Records, put_record};

/// Length of a block's head.
const BLOCK_HEAD_LEN: usize = 32;
/// A block is cut when it has this many records, or this many bytes before they are packed. So an
/// unpacked block is not larger than a batch of a replay.
pub(crate) const BLOCK_RECORDS: usize = 1024;
/// See [`BLOCK_RECORDS`].
pub(crate) const BLOCK_BYTES: usize = 512 << 10;
/// The most records in a block.
const MAX_BLOCK_RECORDS: usize = 65_536;
/// The cold part is stored as it is.
const CODEC_NONE: u16 = 0;
/// The cold part is one LZ4 block without a length in front.
const CODEC_LZ4: u16 = 1;
/// The second try stores the records whole that came back different from the first.
const PACK_TRIES: usize = 2;

/// The layout in which an application packs its records into blocks.
///
/// A block has two parts: *hot* bytes, which start at an address divisible by 16 and are read in
/// place, and *cold* bytes, which the log compresses.
pub trait BlockFormat: Debug + Send + Sync {
    /// Packs records, in order. Those at the places `whole`, counted from 0, came back different
    /// from an earlier try and must be stored as they are. `None` if the records cannot be packed;
    /// they stay records then.
    fn pack(&self, records: &[RecordRef<'_>], whole: &[usize]) -> Option<PackedBlock>;

    /// Calls `f` with the records of a block, in order and equal in every byte to those that were
    /// packed.
    ///
    /// # Errors
    ///
    /// [`UnpackError`].
    fn unpack(
        &self,
        block: &Block<'_>,
        f: &mut dyn FnMut(RecordRef<'_>),
    ) -> Result<(), UnpackError>;
}

/// The two parts of a block, as an application has packed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedBlock {
    /// The application's version of the layout.
    pub schema: u16,
    /// What is read in place.
    pub hot: Vec<u8>,
    /// What is compressed.
    pub cold: Vec<u8>,
}

/// The two parts of a block, as an application reads them.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The application's version of the layout.
    pub schema: u16,
    /// How many records.
    pub records: usize,
    /// Starts at an address divisible by 16.
    pub hot: &'a [u8],
    /// Starts at any address.
    pub cold: &'a [u8],
}

/// A block that was taken out of its frame, for a replay that reads it with several threads.
#[derive(Debug)]
pub struct OwnedBlock {
    schema: u16,
    records: usize,
    hot: AlignedBuf,
    cold: Vec<u8>,
}

impl OwnedBlock {
    /// Copies a block.
    pub fn new(block: &Block<'_>) -> Self {
        let Block { schema, records, hot, cold } = *block;
        Self { schema, records, hot: AlignedBuf::copy_of(hot), cold: cold.to_vec() }
    }

    /// Its two parts.
    pub fn as_block(&self) -> Block<'_> {
        Block {
            schema: self.schema,
            records: self.records,
            hot: self.hot.bytes(),
            cold: &self.cold,
        }
    }
}

/// The reason why a block cannot be unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnpackError {
    /// A newer release wrote it.
    Newer(String),
    /// Its parts contradict themselves.
    Bad,
}

/// The head of a block, checked against its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    schema: u16,
    codec: u16,
    /// How many records.
    pub records: u32,
    hot_len: u32,
    cold_len: u32,
    cold_raw_len: u32,
    gaps_len: u32,
    /// Length of the records as the payload of a frame of records.
    pub unpacked_len: u32,
}

impl BlockHead {
    /// Reads the head of a block whose frame spans `span` sequence numbers; `None` if it
    /// contradicts the payload.
    pub fn decode(payload: &[u8], span: u32) -> Option<Self> {
        let mut r = FieldReader { bytes: payload.get(..BLOCK_HEAD_LEN)?, at: 0 };
        let head = Self {
            schema: r.u16(),
            codec: r.u16(),
            records: r.u32(),
            hot_len: r.u32(),
            cold_len: r.u32(),
            cold_raw_len: r.u32(),
            gaps_len: r.u32(),
            unpacked_len: r.u32(),
        };
        let parts = [head.cold_at() as u64, u64::from(head.cold_len), u64::from(head.gaps_len)];
        let limits = [head.cold_raw_len, head.unpacked_len]
            .iter()
            .all(|&len| len as usize <= MAX_PAYLOAD_LEN);
        let records = head.records as usize;
        let fits = parts.iter().sum::<u64>() == payload.len() as u64
            && limits
            && r.u32() == 0
            && (1..=MAX_BLOCK_RECORDS).contains(&records);
        (fits && span_of(head.gaps(payload), head.records) == Some(u64::from(span))).then_some(head)
    }

    fn cold_at(&self) -> usize {
        BLOCK_HEAD_LEN + (self.hot_len as usize).next_multiple_of(16)
    }

    /// The gaps of a payload that the head fits.
    pub fn gaps<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        let at = self.cold_at() + self.cold_len as usize;
        payload.get(at..).unwrap_or_default()
    }

    fn hot<'a>(&self, payload: &'a [u8]) -> Result<&'a [u8], UnpackError> {
        let hot = payload.get(BLOCK_HEAD_LEN..).and_then(|rest| rest.get(..self.hot_len as usize));
        hot.ok_or(UnpackError::Bad)
    }

    /// The cold part, decompressed.
    fn cold<'a>(&self, payload: &'a [u8]) -> Result<Cow<'a, [u8]>, UnpackError> {
        let stored =
            payload.get(self.cold_at()..).and_then(|rest| rest.get(..self.cold_len as usize));
        let stored = stored.ok_or(UnpackError::Bad)?;
        let cold = match self.codec {
            CODEC_NONE => Cow::Borrowed(stored),
            CODEC_LZ4 => {
                let mut raw = vec![0; self.cold_raw_len as usize];
                let len = lz4_flex::block::decompress_into(stored, &mut raw)
                    .map_err(|_| UnpackError::Bad)?;
                raw.truncate(len);
                Cow::Owned(raw)
            }
            other => return Err(UnpackError::Newer(format!("compression {other} of a block"))),
        };
        if cold.len() == self.cold_raw_len as usize { Ok(cold) } else { Err(UnpackError::Bad) }
    }

    /// Calls `f` with the records of a payload that the head fits.
    fn unpack(
        &self,
        payload: &[u8],
        format: &dyn BlockFormat,
        f: &mut dyn FnMut(RecordRef<'_>),
    ) -> Result<(), UnpackError> {
        let (hot, cold) = (self.hot(payload)?, self.cold(payload)?);
        format.unpack(
            &Block { schema: self.schema, records: self.records as usize, hot, cold: &cold },
            f,
        )
    }

    /// Takes the block out of a payload that the head fits.
    pub fn take(&self, payload: &[u8]) -> Result<OwnedBlock, UnpackError> {
        let (hot, cold) = (self.hot(payload)?, self.cold(payload)?);
        let hot = AlignedBuf::copy_of(hot);
        Ok(OwnedBlock {
            schema: self.schema,
            records: self.records as usize,
            hot,
            cold: cold.into_owned(),
        })
    }
}

/// Returns the payload of a block with these records, which are the payload of a frame of records;
/// `seqs` are their numbers. `None` if they cannot be packed, would not come back equal, or need no
/// less space.
pub fn pack_block(format: &dyn BlockFormat, unpacked: &[u8], seqs: &[u64]) -> Option<Vec<u8>> {
    let records: Vec<RecordRef<'_>> = Records::new(unpacked).collect();
    if records.len() != seqs.len() {
        return None;
    }
    let mut whole = Vec::new();
    for _ in 0..PACK_TRIES {
        let payload = encode_block(&format.pack(&records, &whole)?, seqs, unpacked.len())?;
        // What a reader would get. A record that came back different would be lost.
        let different = different_records(format, &payload, seqs, &records)?;
        if different.is_empty() {
            return Some(payload);
        }
        whole.extend(different);
    }
    None
}

/// Returns the places of the records that a reader of the block would get different; `None` if it
/// would refuse the block.
fn different_records(
    format: &dyn BlockFormat,
    payload: &[u8],
    seqs: &[u64],
    records: &[RecordRef<'_>],
) -> Option<Vec<usize>> {
    let mut copy = AlignedBuf::default();
    let payload = copy.borrow_or_copy(payload);
    let (mut different, mut at) = (Vec::new(), 0);
    BlockHead::decode(payload, span_of_seqs(seqs)?)?
        .unpack(payload, format, &mut |record| {
            if records.get(at) != Some(&record) {
                different.push(at);
            }
            at += 1;
        })
        .ok()?;
    (at == records.len()).then_some(different)
}

fn span_of_seqs(seqs: &[u64]) -> Option<u32> {
    u32::try_from(seqs.last()? - seqs.first()? + 1).ok()
}

/// Returns the payload of a block; `None` if it is too long, or not shorter than the records.
fn encode_block(packed: &PackedBlock, seqs: &[u64], unpacked_len: usize) -> Option<Vec<u8>> {
    let mut cold = lz4_flex::block::compress(&packed.cold);
    let mut codec = CODEC_LZ4;
    if cold.len() >= packed.cold.len() {
        (cold, codec) = (packed.cold.clone(), CODEC_NONE);
    }
    let gaps = encode_gaps(seqs);
    let lens = [packed.hot.len(), cold.len(), packed.cold.len(), gaps.len(), unpacked_len];
    if lens.iter().any(|&len| len > MAX_PAYLOAD_LEN) {
        return None;
    }
    let mut payload = vec![0; BLOCK_HEAD_LEN];
    let mut w = FieldWriter { bytes: &mut payload, at: 0 };
    w.put(&packed.schema.to_le_bytes()).put(&codec.to_le_bytes()).u32(seqs.len() as u32);
    for len in lens {
        w.u32(len as u32);
    }
    payload.extend_from_slice(&packed.hot);
    payload.resize(payload.len().next_multiple_of(16), 0);
    payload.extend_from_slice(&cold);
    payload.extend_from_slice(&gaps);
    (payload.len() < unpacked_len).then_some(payload)
}

/// Unpacks a block into the payload of a frame of records.
pub fn unpack_block(
    head: &BlockHead,
    payload: &[u8],
    format: &dyn BlockFormat,
    out: &mut AlignedBuf,
) -> Result<(), UnpackError> {
    let len = head.unpacked_len as usize;
    if out.bytes().len() != len {
        *out = AlignedBuf::zeroed(len);
    }
    let (mut at, mut count, mut is_whole, mut one) = (0, 0u32, true, Vec::new());
    head.unpack(payload, format, &mut |record| {
        one.clear();
        put_record(&mut one, &record);
        match out.bytes_mut().get_mut(at..at + one.len()) {
            Some(to) => to.copy_from_slice(&one),
            None => is_whole = false,
        }
        at += one.len();
        count += 1;
    })?;
    if is_whole && at == len && count == head.records { Ok(()) } else { Err(UnpackError::Bad) }
}

/// The sequence numbers of a frame's records.
#[derive(Clone, Debug)]
pub struct SeqNumbers<'a> {
    next: u64,
    /// How many numbers follow each other before the next gap; `None` behind the last gap.
    run: Option<u64>,
    skip: u64,
    gaps: &'a [u8],
}

impl<'a> SeqNumbers<'a> {
    /// Numbers from `first_seq` on, with gaps as in a block.
    pub fn new(first_seq: u64, gaps: &'a [u8]) -> Self {
        let mut this = Self { next: first_seq, run: None, skip: 0, gaps };
        this.read_gap();
        this
    }

    fn read_gap(&mut self) {
        let (run, skip) = (get_varint(&mut self.gaps), get_varint(&mut self.gaps));
        self.run = run.filter(|_| skip.is_some());
        self.skip = skip.unwrap_or(0);
    }
}

impl Iterator for SeqNumbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.run == Some(0) {
            self.next = self.next.saturating_add(self.skip);
            self.read_gap();
        }
        self.run = self.run.map(|run| run - 1);
        let seq = self.next;
        self.next = seq.saturating_add(1);
        Some(seq)
    }
}

/// Pairs of varints: how many numbers follow each other, and how many are left out then.
fn encode_gaps(seqs: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut run = 1;
    for pair in seqs.windows(2) {
        if let [a, b] = pair
            && *b != a + 1
        {
            put_varint(&mut out, run);
            put_varint(&mut out, b - a - 1);
            run = 0;
        }
        run += 1;
    }
    out
}

/// Returns how many numbers the records of a block span; `None` if its gaps are not valid.
fn span_of(mut gaps: &[u8], records: u32) -> Option<u64> {
    let (mut span, mut behind) = (u64::from(records), u64::from(records));
    while !gaps.is_empty() {
        let (run, skip) = (get_varint(&mut gaps)?, get_varint(&mut gaps)?);
        behind = behind.checked_sub(run)?;
        span = span.checked_add(skip)?;
        if run == 0 || skip == 0 || behind == 0 {
            return None;
        }
    }
    Some(span)
}

/// Appends a number, 7 bits a byte, the lowest first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number of at most 64 bits from the front of `bytes`.
pub fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_give_the_numbers_back() {
        for seqs in [vec![5], vec![1, 2, 3], vec![1, 3, 4, 900, 901, 70_000], vec![2, 4, 6, 8]] {
            let gaps = encode_gaps(&seqs);
            let back: Vec<u64> = SeqNumbers::new(seqs[0], &gaps).take(seqs.len()).collect();
            assert_eq!(back, seqs);
            assert_eq!(span_of(&gaps, seqs.len() as u32), Some(seqs[seqs.len() - 1] - seqs[0] + 1));
        }
        assert_eq!(span_of(&[3, 1], 3), None, "a gap behind the last record");
        assert_eq!(span_of(&[1], 3), None, "half a gap");
    }

    #[test]
    fn varints_come_back_and_longer_ones_are_refused() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut rest = &bytes[..];
            assert_eq!((get_varint(&mut rest), rest.len()), (Some(value), 0));
        }
        assert_eq!(get_varint(&mut &[0xff; 10][..]), None);
        assert_eq!(get_varint(&mut &[0x80][..]), None);
    }
}
