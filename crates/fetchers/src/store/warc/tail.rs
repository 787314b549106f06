//! How an archive ends: with a whole record, in the middle of one, or in something that is none.
//!
//! A crash in the middle of a write leaves the beginning of a record; what is appended to that is lost to every reader, so it
//! must be cut off first. Whether it must is seen by looking back from the end for a record that ends just there, which costs
//! as much as reading the last record. Only when there is none are all records gone through from the first one on: a plain
//! archive by their lengths, a compressed one by reading it all.
//!
//! Invariant: what is called torn is the beginning of one record and nothing else. Where that is not certain it is called
//! damaged, and it is up to a person. Must not change a file. Not promised: a page that is an archive itself, and was cut off
//! at the very byte where one of the records in it ends, looks like a whole record.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};

use flate2::bufread::GzDecoder;
use memchr::memmem;

/// How an archive ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// With a whole record, or there is none at all.
    Whole,
    /// From this byte on there is the beginning of a record.
    Torn(u64),
    /// From this byte on it is not what it should be.
    Damaged(u64),
}

/// Looks at the end of `file`, which is not being written, and has a gzip member for each record if `gzip`.
///
/// # Errors
/// When it cannot be read.
pub(super) fn inspect(file: &File, gzip: bool) -> io::Result<Tail> {
    let archive = Archive { file, len: file.metadata()?.len(), gzip };
    if archive.ends_with_a_record()? {
        return Ok(Tail::Whole);
    }
    archive.walk()
}

/// The longest head of a record; those that fetchwise writes hold two URLs and little more.
const MAX_HEAD: u64 = 1 << 20;

/// What is searched at a time.
const CHUNK: u64 = 256 << 10;

/// What a gzip member begins with.
const MEMBER: &[u8] = b"\x1f\x8b\x08";

/// What a record begins with, and what it ends with.
const RECORD: &[u8] = b"WARC/";
const END: &[u8; 4] = b"\r\n\r\n";

/// The whole records of an archive, from some byte on.
pub(super) struct Records<'f> {
    archive: Archive<'f>,
    at: u64,
}

/// Where a record is, and how it begins.
pub(super) struct Record {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Its head and the beginning of its block, decompressed.
    pub(super) head: Vec<u8>,
}

/// So much of each record is shown.
const SHOWN: u64 = 64 << 10;

impl<'f> Records<'f> {
    /// The records of `file` that begin at `from` or later; a record begins there.
    pub(super) fn of(file: &'f File, gzip: bool, from: u64) -> io::Result<Self> {
        Ok(Self { archive: Archive { file, len: file.metadata()?.len(), gzip }, at: from })
    }

    /// The next one; none at the end, or where no whole record begins.
    pub(super) fn next(&mut self) -> io::Result<Option<Record>> {
        let start = self.at;
        if start >= self.archive.len {
            return Ok(None);
        }
        let Found::Whole(end) = self.archive.record_at(start)? else { return Ok(None) };
        self.at = end;
        let mut head = Vec::new();
        let reader = self.archive.reader_at(start)?.take(end - start);
        match self.archive.gzip {
            true => GzDecoder::new(reader).take(SHOWN).read_to_end(&mut head)?,
            false => reader.take(SHOWN).read_to_end(&mut head)?,
        };
        Ok(Some(Record { start, end, head }))
    }
}

struct Archive<'f> {
    file: &'f File,
    len: u64,
    gzip: bool,
}

/// What begins at some byte of an archive.
enum Found {
    /// A record, which ends before this byte.
    Whole(u64),
    /// A record that goes on past the end of the file.
    Cut,
    /// No record.
    Nothing,
}

impl Archive<'_> {
    /// Whether a record ends with the file. No for certain, or not known, is false.
    fn ends_with_a_record(&self) -> io::Result<bool> {
        let mut starts = self.starts(0);
        while let Some(start) = starts.next()? {
            match self.record_at(start)? {
                Found::Whole(end) if end == self.len => return Ok(true),
                // Only looked like a beginning.
                Found::Nothing => {}
                // Something comes after the last record, or a body has records in it.
                Found::Whole(_) | Found::Cut => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Goes through all records.
    fn walk(&self) -> io::Result<Tail> {
        let mut at = 0;
        while at < self.len {
            match self.record_at(at)? {
                Found::Whole(end) => at = end,
                Found::Cut if self.holds_a_record_after(at)? => return Ok(Tail::Damaged(at)),
                Found::Cut => return Ok(Tail::Torn(at)),
                // Where the power went, space that was given and never written may be left.
                Found::Nothing if self.is_zero_from(at)? => return Ok(Tail::Torn(at)),
                Found::Nothing => return Ok(Tail::Damaged(at)),
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

    /// Whether the record that is cut off at `start` may just have a wrong length, so that others follow. What is compressed
    /// has a checksum, and was read to the end of the file.
    fn holds_a_record_after(&self, start: u64) -> io::Result<bool> {
        if self.gzip {
            return Ok(false);
        }
        let mut starts = self.starts(start + 1);
        while let Some(start) = starts.next()? {
            if let Found::Whole(_) = self.record_at(start)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn record_at(&self, start: u64) -> io::Result<Found> {
        if self.gzip { self.member_at(start) } else { self.plain_at(start) }
    }

    fn member_at(&self, start: u64) -> io::Result<Found> {
        let mut reader = self.reader_at(start)?;
        // The decoder calls a head that is cut off just that, whatever it begins with.
        let head = reader.fill_buf()?;
        if !head.starts_with(MEMBER) && !MEMBER.starts_with(head) {
            return Ok(Found::Nothing);
        }
        let mut decoder = GzDecoder::new(reader);
        match io::copy(&mut decoder, &mut io::sink()) {
            Ok(_) => Ok(Found::Whole(decoder.into_inner().stream_position()?)),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof => Ok(Found::Cut),
                // As flate2 calls what is no gzip, no deflate, or has another checksum.
                ErrorKind::InvalidInput | ErrorKind::InvalidData => Ok(Found::Nothing),
                _ => Err(error),
            },
        }
    }

    fn plain_at(&self, start: u64) -> io::Result<Found> {
        let mut head = self.reader_at(start)?.take(MAX_HEAD);
        let (mut line, mut length) = (Vec::new(), None);
        let mut is_first = true;
        loop {
            line.clear();
            head.read_until(b'\n', &mut line)?;
            if is_first && !line.starts_with(RECORD) && !RECORD.starts_with(&line) {
                return Ok(Found::Nothing);
            }
            if line.last() != Some(&b'\n') {
                return Ok(if head.limit() > 0 { Found::Cut } else { Found::Nothing });
            }
            is_first = false;
            if line == b"\r\n" {
                break;
            }
            length = length.or_else(|| content_length(&line));
        }
        let body = start + (MAX_HEAD - head.limit());
        let Some(end) = length.and_then(|length| body.checked_add(length)?.checked_add(END.len() as u64)) else {
            return Ok(Found::Nothing);
        };
        if end > self.len {
            return Ok(Found::Cut);
        }
        let mut last = [0; END.len()];
        self.reader_at(end - END.len() as u64)?.read_exact(&mut last)?;
        Ok(if last == *END { Found::Whole(end) } else { Found::Nothing })
    }

    fn reader_at(&self, start: u64) -> io::Result<BufReader<&File>> {
        let mut file = self.file;
        file.seek(SeekFrom::Start(start))?;
        Ok(BufReader::new(file))
    }

    /// Where records may begin, the last one first, down to `from`.
    fn starts(&self, from: u64) -> Starts<'_> {
        let (needle, skip) = if self.gzip { (MEMBER.to_vec(), 0) } else { ([END, RECORD].concat(), END.len() as u64) };
        Starts { archive: self, needle, skip, from, searched: self.len, found: Vec::new() }
    }
}

struct Starts<'a> {
    archive: &'a Archive<'a>,
    needle: Vec<u8>,
    /// Bytes of the needle that belong to the record before.
    skip: u64,
    from: u64,
    /// From here on it has been searched.
    searched: u64,
    /// What was found in the last chunk.
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
            // A needle may lie across the border.
            let len = self.searched - low + self.needle.len() as u64 - 1;
            let mut chunk = Vec::new();
            self.archive.reader_at(low)?.take(len).read_to_end(&mut chunk)?;
            self.found = memmem::find_iter(&chunk, &self.needle).map(|at| low + at as u64 + self.skip).collect();
            self.searched = low;
        }
    }
}

/// The length in a line of a record's head, when it is that line.
fn content_length(line: &[u8]) -> Option<u64> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    name.trim().eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
}
