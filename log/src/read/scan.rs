//! The scanner of one segment: reads frame by frame and classifies the end of the good frames.
//!
//! Owns: the read window, the definition of a good frame in its context, the search for frames
//! after a bad one.
//!
//! Invariants: an I/O error is returned as an error and is never taken for damage; every loop moves
//! on by at least 16 bytes.
//!
//! Must not know: other segments, what to do about damage.

use std::path::Path;

use crate::error::Error;
use crate::format::{
    AlignedBuf, BlockHead, FRAME_ALIGN, FRAME_HEADER_LEN, FRAME_MAGIC, FrameHeader, FrameKind,
    HEADER_LEN, Link, Seal, SegmentHeader, TIME_UNKNOWN, count_records, next_digest, payload_crc,
};
use crate::fs::{FsFile, read_full_at};

const WINDOW_LEN: usize = 1 << 20;
/// Maximum length of a piece in which bytes that need not stand together are read.
const PIECE_LEN: usize = 64 << 10;

/// A window over a file that moves forward.
struct Window<'f> {
    file: &'f dyn FsFile,
    path: &'f Path,
    buf: AlignedBuf,
    base: u64,
    have: usize,
}

impl Window<'_> {
    /// The bytes at `offset` (a multiple of 16), as many of `len` as the file has.
    fn get(&mut self, offset: u64, len: usize) -> Result<&[u8], Error> {
        let end = offset + len as u64;
        if offset < self.base || end > self.base + self.have as u64 {
            self.fill(offset, len)?;
        }
        let at = (offset - self.base) as usize;
        Ok(self.buf.bytes().get(at..self.have.min(at + len)).unwrap_or_default())
    }

    /// The bytes at `offset`, as many as one piece has: none only at the end of the file. A piece
    /// never enlarges the window, which is short in a short file.
    fn piece(&mut self, offset: u64) -> Result<&[u8], Error> {
        self.get(offset, self.buf.len().min(PIECE_LEN))
    }

    fn fill(&mut self, offset: u64, len: usize) -> Result<(), Error> {
        let held = offset.checked_sub(self.base).and_then(|at| {
            let at = usize::try_from(at).ok()?;
            (at < self.have).then_some(at..self.have)
        });
        let kept = held.as_ref().map_or(0, |range| range.len());
        if len > self.buf.len() {
            let mut larger = AlignedBuf::zeroed(len.next_multiple_of(WINDOW_LEN));
            if let Some(range) = held {
                larger.bytes_mut()[..kept].copy_from_slice(&self.buf.bytes()[range]);
            }
            self.buf = larger;
        } else if let Some(range) = held {
            self.buf.bytes_mut().copy_within(range, 0);
        }
        self.base = offset;
        self.have = kept;
        let read = read_full_at(self.file, &mut self.buf.bytes_mut()[kept..], offset + kept as u64);
        self.have += read.map_err(|e| Error::io("read", self.path, e))?;
        Ok(())
    }

    fn forget(&mut self) {
        self.have = 0;
    }
}

/// The result of a step of a [`Scanner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A good frame; [`Scanner::payload`] has its payload.
    Frame(FrameHeader),
    /// The end that the scanner was told of, or nothing but zeros from here on.
    End,
    /// No good frame at this position, with the reason.
    Bad(&'static str),
}

/// The extent up to which a segment must be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Exactly up to here: a successor or the file itself says so.
    Fixed(u64),
    /// The last segment: as far as frames are good.
    Open,
}

/// The state of a scanner: all that is needed to continue in the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) offset: u64,
    pub(crate) next_seq: u64,
    digest: u64,
    proven: u64,
    records: u64,
    max_time: i64,
}

/// Walks the frames of one segment.
pub(crate) struct Scanner<'f> {
    window: Window<'f>,
    nonce: u64,
    extent: Extent,
    /// One more than the largest sequence number that may occur, in a rewritten segment, where
    /// numbers may skip.
    gaps_up_to: Option<u64>,
    /// Whether frames of blocks may occur.
    has_blocks: bool,
    payload: (u64, usize),
    /// True when frames were left out: digest and counts are then of no use.
    skipped: bool,
    first_seq: u64,
    /// Where the next frame starts.
    pub(crate) offset: u64,
    /// The sequence number that comes next.
    pub(crate) next_seq: u64,
    pub(crate) digest: u64,
    /// The largest durable_off seen in a good frame, and the state of the segment there.
    pub(crate) proven: u64,
    pub(crate) records: u64,
    /// How many records the last good frame has.
    pub(crate) in_frame: u32,
    pub(crate) sealed: bool,
    pub(crate) max_time: i64,
}

impl<'f> Scanner<'f> {
    pub(crate) fn new(
        file: &'f dyn FsFile,
        path: &'f Path,
        header: &SegmentHeader,
        extent: Extent,
    ) -> Self {
        let file_len = file.len().unwrap_or(WINDOW_LEN as u64);
        let window_len =
            usize::try_from(file_len).unwrap_or(WINDOW_LEN).clamp(HEADER_LEN, WINDOW_LEN);
        // Pieces follow each other at multiples of 16.
        let window_len = window_len.next_multiple_of(FRAME_ALIGN as usize);
        Self {
            window: Window { file, path, buf: AlignedBuf::zeroed(window_len), base: 0, have: 0 },
            nonce: header.nonce,
            extent,
            gaps_up_to: header.is_rewritten().then(|| header.alias_next_seq()),
            has_blocks: header.has_blocks(),
            payload: (0, 0),
            skipped: false,
            first_seq: header.first_seq,
            offset: HEADER_LEN as u64,
            next_seq: header.first_seq,
            digest: header.digest(),
            proven: header.born_len,
            records: 0,
            in_frame: 0,
            sealed: false,
            max_time: TIME_UNKNOWN,
        }
    }

    /// Where it stands; none where frames were left out, and behind a seal.
    pub(crate) fn reached(&self) -> Option<Reached> {
        let Self { offset, next_seq, digest, proven, records, max_time, .. } = *self;
        (!self.skipped && !self.sealed).then_some(Reached {
            offset,
            next_seq,
            digest,
            proven,
            records,
            max_time,
        })
    }

    /// Goes on where an earlier scanner of the same file stood.
    pub(crate) fn go_on(&mut self, from: &Reached) {
        let Reached { offset, next_seq, digest, proven, records, max_time } = *from;
        (self.offset, self.next_seq, self.digest) = (offset, next_seq, digest);
        (self.proven, self.records, self.max_time) = (self.proven.max(proven), records, max_time);
    }

    /// Goes to the next frame. After `End` or `Bad` the scanner stays where it is.
    pub(crate) fn step(&mut self) -> Result<Step, Error> {
        let offset = self.offset;
        if self.extent == Extent::Fixed(offset) {
            return Ok(Step::End);
        }
        let bytes = self.window.get(offset, FRAME_HEADER_LEN)?;
        if bytes.iter().all(|&b| b == 0) && self.extent == Extent::Open {
            let zeros = self.last_nonzero(offset)?.is_none();
            return Ok(if zeros { Step::End } else { Step::Bad("data follows zeros") });
        }
        let Some(header) = FrameHeader::decode(bytes, self.nonce, offset) else {
            let cut = bytes.len() < FRAME_HEADER_LEN;
            return Ok(Step::Bad(if cut {
                "the file is cut short"
            } else {
                "a frame header is wrong"
            }));
        };
        let mut raw = [0; FRAME_HEADER_LEN];
        raw.copy_from_slice(bytes);
        if let Some(why) = self.misplaced_at(offset, &header, false) {
            return Ok(Step::Bad(why));
        }
        let records = match self.check_payload(&header, offset)? {
            Ok(records) => records,
            Err(why) => return Ok(Step::Bad(why)),
        };
        self.payload = (offset + FRAME_HEADER_LEN as u64, header.payload_len as usize);
        self.offset = offset + header.frame_len();
        self.next_seq = header.next_seq();
        self.records += u64::from(records);
        self.in_frame = records;
        self.digest = next_digest(self.digest, &raw);
        self.proven = self.proven.max(header.durable_off);
        self.sealed = header.kind == FrameKind::Seal;
        self.max_time = self.max_time.max(header.max_time);
        Ok(Step::Frame(header))
    }

    /// The payload of the frame that the last step found; it starts at an address divisible by 16.
    pub(crate) fn payload(&mut self) -> Result<&[u8], Error> {
        let (offset, len) = self.payload;
        self.window.get(offset, len)
    }

    /// Where the scanner is, as a link says it.
    pub(crate) fn link(&self) -> Link {
        Link { valid_len: self.offset, last_seq: self.next_seq - 1, digest: self.digest }
    }

    /// Makes the next step read the file again, because a writer may have continued.
    pub(crate) fn refresh(&mut self) {
        self.window.forget();
    }

    /// True when `self.digest` and `self.records` count everything up to here.
    pub(crate) fn is_complete(&self) -> bool {
        !self.skipped
    }

    /// After `Bad`: goes to the next good frame, if there is one, and returns its offset.
    pub(crate) fn skip_to_good(&mut self) -> Result<Option<u64>, Error> {
        let mut from = self.offset + FRAME_ALIGN;
        while let Some((offset, header)) = self.next_header(from)? {
            let fits = self.misplaced_at(offset, &header, true).is_none();
            if fits && self.check_payload(&header, offset)?.is_ok() {
                self.offset = offset;
                self.next_seq = header.first_seq;
                self.skipped = true;
                return Ok(Some(offset));
            }
            from = offset + FRAME_ALIGN;
        }
        Ok(None)
    }

    /// Scans the bytes at and after a bad frame in the last segment.
    pub(crate) fn scan_tail(&mut self) -> Result<TailScan, Error> {
        let start = self.offset;
        let last_byte = self.last_nonzero(start)?;
        let bytes = last_byte.map_or(0, |at| at + 1 - start);
        let mut tail = TailScan { proven: self.proven, bytes, next_seq: None };
        let mut from = start;
        while let Some((offset, header)) = self.next_header(from)? {
            tail.proven = tail.proven.max(header.durable_off);
            tail.next_seq = tail.next_seq.max(Some(header.next_seq()));
            from = offset + FRAME_ALIGN;
        }
        Ok(tail)
    }

    fn misplaced_at(
        &self,
        offset: u64,
        header: &FrameHeader,
        after_damage: bool,
    ) -> Option<&'static str> {
        if self.sealed && !after_damage {
            return Some("a frame follows the seal");
        }
        if let Extent::Fixed(end) = self.extent
            && offset + header.frame_len() > end
        {
            return Some("a frame goes beyond the end");
        }
        match self.gaps_up_to {
            _ if after_damage => {
                (header.first_seq < self.next_seq).then_some("sequence numbers go back")
            }
            Some(limit) => {
                let ok = header.first_seq >= self.next_seq && header.next_seq() <= limit;
                (!ok).then_some("sequence numbers go back")
            }
            None => {
                (header.first_seq != self.next_seq).then_some("sequence numbers do not continue")
            }
        }
    }

    /// Returns how many records a good payload has, or what is wrong with it.
    fn check_payload(
        &mut self,
        header: &FrameHeader,
        offset: u64,
    ) -> Result<Result<u32, &'static str>, Error> {
        let (first_seq, digest, records, skipped) =
            (self.first_seq, self.digest, self.records, self.skipped);
        let has_blocks = self.has_blocks;
        let len = header.payload_len as usize;
        let rest = (header.frame_len() as usize) - FRAME_HEADER_LEN;
        let nonce = self.nonce;
        let bytes = self.window.get(offset + FRAME_HEADER_LEN as u64, rest)?;
        if bytes.len() < rest {
            return Ok(Err("a frame is cut short"));
        }
        let (payload, padding) = bytes.split_at(len);
        if payload_crc(nonce, header.first_seq, payload) != header.pcrc {
            return Ok(Err("a payload checksum is wrong"));
        }
        if padding.iter().any(|&b| b != 0) {
            return Ok(Err("padding is not zero"));
        }
        let mut found = header.count;
        let ok = match header.kind {
            FrameKind::Records => count_records(payload) == Some(u64::from(header.count)),
            FrameKind::Block => match BlockHead::decode(payload, header.count) {
                Some(head) if has_blocks => {
                    found = head.records;
                    true
                }
                _ => false,
            },
            FrameKind::Marker => true,
            FrameKind::Seal => Seal::decode(payload).is_some_and(|seal| {
                let counts = seal.digest == digest && seal.count == records;
                seal.first_seq == first_seq
                    && seal.last_seq.wrapping_add(1) == header.first_seq
                    && (skipped || counts)
            }),
        };
        Ok(if ok { Ok(found) } else { Err("a frame contradicts itself") })
    }

    /// The first header-valid frame at or after `from`.
    fn next_header(&mut self, mut from: u64) -> Result<Option<(u64, FrameHeader)>, Error> {
        loop {
            let nonce = self.nonce;
            let bytes = self.window.piece(from)?;
            if bytes.len() < FRAME_HEADER_LEN {
                return Ok(None);
            }
            let mut at = 0;
            while at + FRAME_HEADER_LEN <= bytes.len() {
                if bytes[at..at + 4] == FRAME_MAGIC
                    && let Some(header) = FrameHeader::decode(&bytes[at..], nonce, from + at as u64)
                {
                    return Ok(Some((from + at as u64, header)));
                }
                at += FRAME_ALIGN as usize;
            }
            from += at as u64;
        }
    }

    /// The last byte at or after `from` that is not zero.
    fn last_nonzero(&mut self, mut from: u64) -> Result<Option<u64>, Error> {
        let mut last = None;
        loop {
            let bytes = self.window.piece(from)?;
            if bytes.is_empty() {
                return Ok(last);
            }
            if let Some(at) = bytes.iter().rposition(|&b| b != 0) {
                last = Some(from + at as u64);
            }
            let aligned = (bytes.len() as u64).next_multiple_of(FRAME_ALIGN);
            from += aligned;
        }
    }
}

/// The result of [`Scanner::scan_tail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailScan {
    /// Everything before this offset had been durable.
    pub(crate) proven: u64,
    /// Bytes from the bad place to the last one that is not zero.
    pub(crate) bytes: u64,
    /// The sequence number after the last frame whose header can be read.
    pub(crate) next_seq: Option<u64>,
}
