//! One WARC archive for all pages: a `response` record a page, appended to the file, one gzip member a record when the name
//! ends in `.gz`.
//!
//! The block of a record is what fetchwise has: status line, headers and the decoded body, so `Content-Encoding` and
//! `Transfer-Encoding` are left out and `Content-Length` is the decoded length. One record is appended at a time, and
//! what could not be appended as a whole is taken back, so that a crash can only cut the last one. Memory does not grow with
//! the page: a long body goes from its temporary file to the archive piece by piece. [`Warc::open`] cuts what is left of that off and keeps it
//! beside the archive: no record that is whole is ever lost, and nothing is appended to half a record.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use flate2::Compression;
use flate2::write::GzEncoder;
use warc::{RecordBuilder, RecordType, WarcHeader, WarcWriter};

use super::{Delivered, Store};
use tail::Tail;

mod tail;

/// Headers that speak of the transfer, which the stored block no longer has.
const TRANSFER_HEADERS: [&str; 5] =
    ["content-encoding", "transfer-encoding", "content-length", "connection", "keep-alive"];

/// What a record ends with.
const RECORD_END: &[u8] = b"\r\n\r\n";

/// Of a long body so much is in memory at a time.
const CHUNK: usize = 256 << 10;

/// Records whose block is not longer are made in memory and appended in one write.
const IN_MEMORY: u64 = 4 << 20;

/// An archive that is appended to.
#[derive(Debug)]
pub struct Warc {
    path: PathBuf,
    gzip: bool,
    file: Mutex<File>,
    torn: Option<Torn>,
}

/// Half a record that a crash had left at the end of an archive, and where it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The archive.
    pub archive: PathBuf,
    /// Where it began: the length of the archive since.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The file that it was moved to.
    pub kept: PathBuf,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { archive, at, bytes, kept } = self;
        let (archive, kept) = (archive.display(), kept.display());
        write!(
            f,
            "{archive} ended in the middle of a record, as after a crash: its last {bytes} bytes, from byte {at} on, "
        )?;
        write!(f, "were moved to {kept}; every whole record is still there")
    }
}

/// Why an archive could not be opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WarcError {
    /// It cannot be opened, read or written, or there is no room to keep half a record beside it.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The archive.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process, or another [`Warc`], writes it.
    #[error("{} is being written by somebody else", path.display())]
    Busy {
        /// The archive.
        path: PathBuf,
    },
    /// It has something in it that is neither a record nor the beginning of one.
    #[error("{} is damaged, or no such archive: there is no record at byte {at} of {len}", path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// Where the last record ends that is whole, and has whole ones only before it.
        at: u64,
        /// The length of the archive.
        len: u64,
    },
}

impl Warc {
    /// Opens the archive at `path`, which gets a `warcinfo` record when it is new, and is nobody else's until it is closed.
    ///
    /// An archive that ends with half a record is cut there; the half is kept in a file beside it, and [`Warc::torn`] tells of
    /// it. Cost: reading the last record. Only when the archive does not end with a whole record is more of it read: the heads
    /// of all records, or all of it when it is compressed.
    ///
    /// # Errors
    /// See [`WarcError`].
    pub fn open(path: &Path) -> Result<Self, WarcError> {
        let failed = |source| WarcError::Io { path: path.to_owned(), source };
        // A pipe has no end to be looked at; opened for reading, too, it would be its own reader.
        let is_pipe = fs::metadata(path).is_ok_and(|about| !about.is_file());
        let file = OpenOptions::new().read(!is_pipe).create(true).append(true).open(path).map_err(failed)?;
        // Where there are no locks, there is none.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(WarcError::Busy { path: path.to_owned() });
        }
        let gzip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let len = |file: &File| file.metadata().map(|about| about.len()).map_err(failed);
        let torn = if !is_pipe && len(&file)? > 0 { mend(path, &file, gzip)? } else { None };
        let is_new = len(&file)? == 0;
        let archive = Self { path: path.to_owned(), gzip, file: Mutex::new(file), torn };
        if is_new {
            let info = format!("software: fetchwise/{}\r\nformat: WARC File Format 1.0\r\n", env!("CARGO_PKG_VERSION"));
            let record = RecordBuilder::default()
                .warc_type(RecordType::WarcInfo)
                .date(Utc::now())
                .header(WarcHeader::ContentType, "application/warc-fields");
            archive.append(record, info.len() as u64, &mut info.as_bytes()).map_err(failed)?;
        }
        Ok(archive)
    }

    /// Half a record that was found at the end when the archive was opened, and moved out of the way.
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// Appends one record whose block is the `len` bytes of `block`.
    fn append(&self, record: RecordBuilder, len: u64, block: &mut dyn Read) -> io::Result<()> {
        let head = head_of(record, len)?;
        // Compressing takes its time: not while others wait for the file.
        if len <= IN_MEMORY {
            let mut bytes = Vec::new();
            if self.gzip {
                bytes = compress(bytes, &head, len, block)?;
            } else {
                write_record(&mut bytes, &head, len, block)?;
            }
            self.take_in(|file| file.write_all(&bytes))
        } else if !self.gzip {
            self.take_in(|file| write_record(file, &head, len, block))
        } else {
            let mut member = compress(self.scratch_file()?, &head, len, block)?;
            member.rewind()?;
            self.take_in(|file| io::copy(&mut BufReader::with_capacity(CHUNK, &member), file).map(drop))
        }
    }

    /// A file without a name, beside the archive: where the record must find room anyway.
    fn scratch_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(folder_of(&self.path))
    }

    /// Has the file for `write` alone; takes back what it wrote when it fails.
    fn take_in(&self, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = file.metadata()?.len();
        // Half a record would swallow the next one.
        write(&mut file).inspect_err(|_| drop(file.set_len(whole)))
    }
}

/// The head of a record whose block has `len` bytes, with the empty line at its end.
fn head_of(record: RecordBuilder, len: u64) -> io::Result<Vec<u8>> {
    let (mut headers, _) = record.body(Vec::new()).build().map_err(io::Error::other)?.into_raw_parts();
    headers.as_mut().insert(WarcHeader::ContentLength, len.to_string().into_bytes());
    let mut head = WarcWriter::new(BufWriter::new(Vec::new()));
    head.write_raw(headers, b"")?;
    let mut head = head.into_inner().map_err(io::Error::other)?;
    // The writer ends a record; here the block is still to come.
    head.truncate(head.len() - RECORD_END.len());
    Ok(head)
}

fn write_record(out: &mut impl Write, head: &[u8], len: u64, block: &mut dyn Read) -> io::Result<()> {
    out.write_all(head)?;
    let copied = io::copy(&mut BufReader::with_capacity(CHUNK, block.take(len)), out)?;
    if copied != len {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the page is shorter than it was when it came"));
    }
    out.write_all(RECORD_END)
}

/// The record as one gzip member, in `out`.
fn compress<W: Write>(out: W, head: &[u8], len: u64, block: &mut dyn Read) -> io::Result<W> {
    let mut encoder = GzEncoder::new(out, Compression::default());
    write_record(&mut encoder, head, len, block)?;
    encoder.finish()
}

/// Cuts off half a record at the end of `file`, after it has been put aside.
fn mend(path: &Path, mut file: &File, gzip: bool) -> Result<Option<Torn>, WarcError> {
    let failed = |source| WarcError::Io { path: path.to_owned(), source };
    let len = file.metadata().map_err(failed)?.len();
    match tail::inspect(file, gzip).map_err(failed)? {
        Tail::Whole => Ok(None),
        Tail::Damaged(at) => Err(WarcError::Damaged { path: path.to_owned(), at, len }),
        Tail::Torn(at) => {
            let kept = file.seek(SeekFrom::Start(at)).and_then(|_| put_aside(file, path, at)).map_err(failed)?;
            file.set_len(at).map_err(failed)?;
            Ok(Some(Torn { archive: path.to_owned(), at, bytes: len - at, kept }))
        }
    }
}

/// Writes the rest of `torn` to a new file beside `path`, named after the byte where it began.
fn put_aside(mut torn: &File, path: &Path, at: u64) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn-{at}"));
    let mut kept = PathBuf::from(&name);
    for number in 2_u32.. {
        match OpenOptions::new().write(true).create_new(true).open(&kept) {
            Ok(mut file) => {
                // It must be there, and under its name, before it is cut off here.
                let copied = io::copy(&mut torn, &mut file).and_then(|_| file.sync_all()).and_then(|()| sync_dir(path));
                if let Err(error) = copied {
                    drop(fs::remove_file(&kept));
                    return Err(error);
                }
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut next = name.clone();
                next.push(format!("-{number}"));
                kept = next.into();
            }
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

/// Makes new names in the folder of `path` last. Windows has no such call and needs none.
fn sync_dir(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder_of(path))?.sync_all() } else { Ok(()) }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Store for Warc {
    fn put(&self, page: &Delivered<'_>) -> io::Result<PathBuf> {
        let response = page.response;
        let reason = http::StatusCode::from_u16(response.status).ok().and_then(|status| status.canonical_reason());
        let mut block = format!("HTTP/1.1 {} {}\r\n", response.status, reason.unwrap_or_default()).into_bytes();
        let kept =
            response.headers.iter().filter(|h| !TRANSFER_HEADERS.iter().any(|name| h.name.eq_ignore_ascii_case(name)));
        for header in kept {
            // A header with a line break in it would be two; it cannot come from a parser, and must not go into an archive.
            if http::HeaderName::from_bytes(header.name.as_bytes()).is_err() {
                continue;
            }
            let value: String = header.value.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
            block.extend_from_slice(format!("{}: {value}\r\n", header.name).as_bytes());
        }
        block.extend_from_slice(format!("Content-Length: {}\r\n\r\n", response.body.len()).as_bytes());
        let date = DateTime::<Utc>::from_timestamp_millis(page.at.as_millis()).unwrap_or_default();
        let record = RecordBuilder::default()
            .warc_type(RecordType::Response)
            .date(date)
            .header(WarcHeader::TargetURI, response.final_url.as_str())
            .header(WarcHeader::ContentType, "application/http; msgtype=response")
            .header(WarcHeader::Unknown("x-fetchwise-fetcher".to_owned()), page.fetcher)
            .header(WarcHeader::Unknown("x-fetchwise-asked-for".to_owned()), page.url.as_str());
        let len = block.len() as u64 + response.body.len();
        self.append(record, len, &mut block.as_slice().chain(response.body.reader()))?;
        Ok(self.path.clone())
    }
}
