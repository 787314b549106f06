//! The end of an archive: a complete record, a torn one, or other bytes.
//!
//! A crash in the middle of a write leaves the beginning of a record. Readers would lose a record
//! that is appended to it, so it must be cut off first. The check searches backwards from the end
//! for a record that ends exactly there, which costs as much as reading the last record. Only if
//! there is none are all records read from the first one on: a plain archive by their lengths, a
//! compressed one entirely.
//!
//! Invariants: a torn tail is the beginning of one record and nothing else. In doubt it is reported
//! as damaged and left to a person. No file is changed.
//!
//! Not promised: a page that is itself an archive, and was cut off exactly at the end of one of its
//! records, looks like a complete record.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};

use flate2::bufread::GzDecoder;
use memchr::memmem;

/// The end of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// A complete record, or no record at all.
    Whole,
    /// The beginning of a record starts at this byte.
    Torn(u64),
    /// Invalid bytes start at this byte.
    Damaged(u64),
}

/// Inspects the end of `file`, which is not being written, and has one gzip member per record if
/// `gzip`.
///
/// # Errors
/// Fails if the file cannot be read.
pub(super) fn inspect(file: &File, gzip: bool) -> io::Result<Tail> {
    let archive = Archive { file, len: file.metadata()?.len(), gzip };
    if archive.ends_with_a_record()? {
        return Ok(Tail::Whole);
    }
    archive.walk()
}

/// Maximum length of a record's head; those of fetchwise contain two URLs and little more.
const MAX_HEAD: u64 = 1 << 20;

/// Bytes per search step.
const CHUNK: u64 = 256 << 10;

/// Beginning of a gzip member.
const MEMBER: &[u8] = b"\x1f\x8b\x08";

/// Beginning and end of a record.
const RECORD: &[u8] = b"WARC/";
const END: &[u8; 4] = b"\r\n\r\n";

/// The complete records of an archive, from some byte on.
pub(super) struct Records<'f> {
    archive: Archive<'f>,
    at: u64,
}

/// The location of a record, and its beginning.
pub(super) struct Record {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Head and the beginning of the block, decompressed.
    pub(super) head: Vec<u8>,
}

/// Maximum bytes of a record in [`Record::head`].
const MAX_SHOWN_HEAD: u64 = 64 << 10;

impl<'f> Records<'f> {
    /// Returns the records of `file` from `from` on, where a record begins.
    pub(super) fn of(file: &'f File, gzip: bool, from: u64) -> io::Result<Self> {
        Ok(Self { archive: Archive { file, len: file.metadata()?.len(), gzip }, at: from })
    }

    /// Returns the next record; `None` at the end, or if no complete record follows.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        let start = self.at;
        if start >= self.archive.len {
            return Ok(None);
        }
        let RecordProbe::Whole(end) = self.archive.record_at(start)? else { return Ok(None) };
        self.at = end;
        let mut head = Vec::new();
        let reader = self.archive.reader_at(start)?.take(end - start);
        match self.archive.gzip {
            true => GzDecoder::new(reader).take(MAX_SHOWN_HEAD).read_to_end(&mut head)?,
            false => reader.take(MAX_SHOWN_HEAD).read_to_end(&mut head)?,
        };
        Ok(Some(Record { start, end, head }))
    }
}

struct Archive<'f> {
    file: &'f File,
    len: u64,
    gzip: bool,
}

/// The bytes at some position of an archive.
enum RecordProbe {
    /// A record that ends before this byte.
    Whole(u64),
    /// A record that continues beyond the end of the file.
    Cut,
    /// No record.
    Nothing,
}

impl Archive<'_> {
    /// Returns whether a record ends with the file; false if unknown.
    fn ends_with_a_record(&self) -> io::Result<bool> {
        let mut starts = self.starts(0);
        while let Some(start) = starts.next()? {
            match self.record_at(start)? {
                RecordProbe::Whole(end) if end == self.len => return Ok(true),
                // It only looked like a beginning.
                RecordProbe::Nothing => {}
                // Bytes follow the last record, or a body contains records.
                RecordProbe::Whole(_) | RecordProbe::Cut => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Reads all records.
    fn walk(&self) -> io::Result<Tail> {
        let mut at = 0;
        while at < self.len {
            match self.record_at(at)? {
                RecordProbe::Whole(end) => at = end,
                RecordProbe::Cut if self.holds_a_record_after(at)? => return Ok(Tail::Damaged(at)),
                RecordProbe::Cut => return Ok(Tail::Torn(at)),
                // After a power failure, allocated but unwritten space may remain.
                RecordProbe::Nothing if self.is_zero_from(at)? => return Ok(Tail::Torn(at)),
                RecordProbe::Nothing => return Ok(Tail::Damaged(at)),
            }
        }
        Ok(Tail::Whole)
    }

    fn is_zero_from(&self, start: u64) -> io::Result<bool> {
        let mut reader = self.reader_at(start)?;
        loop {
            let bytes = reader.fill_buf()?;
            if bytes.is_empty() || bytes.iter().any(|&byte| byte != 0) {
                return Ok(bytes.is_empty());
            }
            let len = bytes.len();
            reader.consume(len);
        }
    }

    /// Returns whether the record that is cut off at `start` may just have a wrong length, so that
    /// others follow. A compressed record has a checksum, and was read to the end of the file.
    fn holds_a_record_after(&self, start: u64) -> io::Result<bool> {
        if self.gzip {
            return Ok(false);
        }
        let mut starts = self.starts(start + 1);
        while let Some(start) = starts.next()? {
            if let RecordProbe::Whole(_) = self.record_at(start)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn record_at(&self, start: u64) -> io::Result<RecordProbe> {
        if self.gzip { self.member_at(start) } else { self.plain_at(start) }
    }

    fn member_at(&self, start: u64) -> io::Result<RecordProbe> {
        let mut reader = self.reader_at(start)?;
        // The decoder reports any truncated head as truncated, whatever its first bytes.
        let head = reader.fill_buf()?;
        if !head.starts_with(MEMBER) && !MEMBER.starts_with(head) {
            return Ok(RecordProbe::Nothing);
        }
        let mut decoder = GzDecoder::new(reader);
        match io::copy(&mut decoder, &mut io::sink()) {
            Ok(_) => Ok(RecordProbe::Whole(decoder.into_inner().stream_position()?)),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof => Ok(RecordProbe::Cut),
                // As flate2 reports invalid gzip, invalid deflate or a wrong checksum.
                ErrorKind::InvalidInput | ErrorKind::InvalidData => Ok(RecordProbe::Nothing),
                _ => Err(error),
            },
        }
    }

    fn plain_at(&self, start: u64) -> io::Result<RecordProbe> {
        let mut head = self.reader_at(start)?.take(MAX_HEAD);
        let (mut line, mut length) = (Vec::new(), None);
        let mut is_first = true;
        loop {
            line.clear();
            head.read_until(b'\n', &mut line)?;
            if is_first && !line.starts_with(RECORD) && !RECORD.starts_with(&line) {
                return Ok(RecordProbe::Nothing);
            }
            if line.last() != Some(&b'\n') {
                return Ok(if head.limit() > 0 { RecordProbe::Cut } else { RecordProbe::Nothing });
            }
            is_first = false;
            if line == b"\r\n" {
                break;
            }
            length = length.or_else(|| content_length(&line));
        }
        let body = start + (MAX_HEAD - head.limit());
        let Some(end) =
            length.and_then(|length| body.checked_add(length)?.checked_add(END.len() as u64))
        else {
            return Ok(RecordProbe::Nothing);
        };
        if end > self.len {
            return Ok(RecordProbe::Cut);
        }
        let mut last = [0; END.len()];
        self.reader_at(end - END.len() as u64)?.read_exact(&mut last)?;
        Ok(if last == *END { RecordProbe::Whole(end) } else { RecordProbe::Nothing })
    }

    fn reader_at(&self, start: u64) -> io::Result<BufReader<&File>> {
        let mut file = self.file;
        file.seek(SeekFrom::Start(start))?;
        Ok(BufReader::new(file))
    }

    /// Returns the positions where records may begin, last one first, down to `from`.
    fn starts(&self, from: u64) -> Starts<'_> {
        let (needle, skip) = if self.gzip {
            (MEMBER.to_vec(), 0)
        } else {
            ([END, RECORD].concat(), END.len() as u64)
        };
        Starts { archive: self, needle, skip, from, searched: self.len, found: Vec::new() }
    }
}

struct Starts<'a> {
    archive: &'a Archive<'a>,
    needle: Vec<u8>,
    /// Bytes of the needle that belong to the previous record.
    skip: u64,
    from: u64,
    /// Position down to which the search is done.
    searched: u64,
    /// Matches in the last chunk.
    found: Vec<u64>,
}

impl Starts<'_> {
    fn next(&mut self) -> io::Result<Option<u64>> {
        loop {
            if let Some(start) = self.found.pop() {
                return Ok(Some(start));
            }
            if self.searched <= self.from {
                return Ok(None);
            }
            let low = self.searched.saturating_sub(CHUNK).max(self.from);
            // A needle may lie across the boundary.
            let len = self.searched - low + self.needle.len() as u64 - 1;
            let mut chunk = Vec::new();
            self.archive.reader_at(low)?.take(len).read_to_end(&mut chunk)?;
            self.found = memmem::find_iter(&chunk, &self.needle)
                .map(|at| low + at as u64 + self.skip)
                .collect();
            self.searched = low;
        }
    }
}

/// Returns the length in a `Content-Length` line of a record's head.
fn content_length(line: &[u8]) -> Option<u64> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    name.trim().eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
}
