//! An archive of all pages in WARC 1.1: requests, responses, and fetchers; one gzip member per
//! record if the name ends in `.gz`.
//!
//! `record` owns the format of records, `known_payloads` the payloads that are already stored,
//! `tail` the end of an archive, [`cdxj`] its index.
//!
//! The block of a `response` is what fetchwise has: status line, headers and the decoded body, so
//! `Content-Encoding` and `Transfer-Encoding` are omitted and `Content-Length` is the decoded
//! length. A payload that is already stored becomes a `revisit`. If the fetcher kept its requests
//! ([`Response::exchange`](crate::fetch::Response::exchange)), each is a `request`, and each
//! redirect a separate `response`. A `metadata` record names the fetcher.
//!
//! Invariants: the records of one page are appended at a time, and removed again if that fails, so
//! a crash can only truncate those of the last one. Memory does not grow with the page: a long body
//! is copied from its temporary file in pieces. An archive is never referred to by its name alone:
//! a revisit needs a record that is still where it was written. [`Warc::open`] cuts off a torn
//! record and keeps it in a file next to the archive: no complete record is ever lost, and nothing
//! is appended to an incomplete one.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use uuid::Uuid;

use super::{ArchiveRecord, Delivered, Store, StoredBody, body_is_gone};
use crate::store::warc::known_payloads::{KnownPayloads, RecordPlace, StoredRecord};
use fetchwise_types::time::Timestamp;
use parsed_heads::ParsedHeads;
use record::{Block, Digest, Head, Kind, Original};
use tail::{Records, Tail};

pub mod cdxj;
mod known_payloads;
mod parsed_heads;
mod record;
mod tail;

/// Bytes of a long body in memory at a time.
const CHUNK: usize = 256 << 10;

/// Maximum block length of a record that is built in memory, so that its page is appended in one
/// write.
const IN_MEMORY: u64 = 4 << 20;

/// Settings of an archive.
#[derive(Clone, Debug)]
pub struct WarcOptions {
    rotate_at: Option<u64>,
    metadata: bool,
    revisits: bool,
}

impl Default for WarcOptions {
    fn default() -> Self {
        Self { rotate_at: None, metadata: true, revisits: true }
    }
}

impl WarcOptions {
    /// Starts a new file once one has `bytes` bytes: `crawl.warc.gz` continues in
    /// `crawl-00001.warc.gz`. Default: one file.
    #[must_use]
    pub fn rotate_at(mut self, bytes: u64) -> Self {
        self.rotate_at = Some(bytes.max(1));
        self
    }

    /// Sets whether each page has a `metadata` record with the fetcher, the duration and the
    /// requested URL. Default: yes.
    #[must_use]
    pub fn metadata(mut self, write: bool) -> Self {
        self.metadata = write;
        self
    }

    /// Sets whether a repeated payload becomes a `revisit` record. Default: yes.
    #[must_use]
    pub fn revisits(mut self, write: bool) -> Self {
        self.revisits = write;
        self
    }
}

/// An archive to append to.
#[derive(Debug)]
pub struct Warc {
    /// Requested path; later files are named after it.
    path: PathBuf,
    gzip: bool,
    /// Whether it is a pipe, whose reader has what was written.
    is_pipe: bool,
    options: WarcOptions,
    current: Mutex<Current>,
    known_payloads: Mutex<KnownPayloads>,
    torn: Option<Torn>,
}

/// The file that is being written.
#[derive(Debug)]
struct Current {
    number: u32,
    path: Arc<Path>,
    file: File,
}

/// The incomplete record that a crash left at the end of an archive, and where it was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Path of the archive.
    pub archive: PathBuf,
    /// Offset at which it began, which is the new length of the archive.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// File that it was moved to.
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
        write!(f, "were moved to {kept}; every complete record is still there")
    }
}

/// The reason why an archive could not be opened. The archive was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WarcError {
    /// It cannot be opened, read or written, or an incomplete record cannot be moved to a separate
    /// file.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// Path of the archive.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another process, or another [`Warc`], writes it.
    #[error("{} is locked: another process writes it", path.display())]
    Busy {
        /// Path of the archive.
        path: PathBuf,
    },
    /// It contains bytes that are neither a record nor the beginning of one.
    #[error("{} is damaged or not a WARC file: no record at byte {at} of {len}", path.display())]
    Damaged {
        /// Path of the archive.
        path: PathBuf,
        /// End of the last record that is complete and has only complete ones before it.
        at: u64,
        /// Length of the archive.
        len: u64,
    },
}

impl Warc {
    /// Opens the archive at `path` with the default options; see [`Warc::with`].
    ///
    /// # Errors
    /// See [`WarcError`].
    pub fn open(path: &Path) -> Result<Self, WarcError> {
        Self::with(path, WarcOptions::default())
    }

    /// Opens the archive at `path` and locks it until it is closed. A new archive gets a `warcinfo`
    /// record. A rotated one continues in its last file.
    ///
    /// An archive that ends with an incomplete record is cut there; that record is kept in a
    /// separate file, and [`Warc::torn`] describes it. Cost: reading the last record. Only if the
    /// archive does not end with a complete record is more of it read: the heads of all records, or
    /// all of it if it is compressed.
    ///
    /// # Errors
    /// See [`WarcError`].
    pub fn with(path: &Path, options: WarcOptions) -> Result<Self, WarcError> {
        let gzip = is_gzip(path);
        let mut number = 0;
        if options.rotate_at.is_some() {
            while name_of(path, number + 1).exists() {
                number += 1;
            }
        }
        let current = name_of(path, number);
        let failed = |source| WarcError::Io { path: current.clone(), source };
        // A pipe has no end to inspect; opened for reading too, it would be its own reader.
        let is_pipe = fs::metadata(&current).is_ok_and(|about| !about.is_file());
        let file = open_locked(&current, !is_pipe)?;
        let len = |file: &File| file.metadata().map(|about| about.len()).map_err(failed);
        let torn =
            if !is_pipe && len(&file)? > 0 { repair_tail(&current, &file, gzip)? } else { None };
        let is_new = len(&file)? == 0;
        let archive = Self {
            path: path.to_owned(),
            gzip,
            is_pipe,
            options,
            current: Mutex::new(Current { number, path: current.as_path().into(), file }),
            known_payloads: Mutex::default(),
            torn,
        };
        if is_new {
            let info = archive.info(&current).map_err(failed)?;
            let mut open = archive.current.lock().unwrap_or_else(PoisonError::into_inner);
            append(&mut open.file, |file| file.write_all(&info)).map_err(failed)?;
        }
        Ok(archive)
    }

    /// Returns the incomplete record that was found at the end when the archive was opened, and
    /// moved away.
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// Returns the files of the archive at `path`, in order: the first one and its continuations.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        (0..).map(|number| name_of(path, number)).take_while(|file| file.exists()).collect()
    }

    /// Returns the first record of the file at `path`.
    fn info(&self, path: &Path) -> io::Result<Vec<u8>> {
        let info = format!(
            "software: fetchwise/{}\r\nformat: WARC File Format 1.1\r\n",
            env!("CARGO_PKG_VERSION")
        );
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let head = Head { file: name, ..Head::new(Kind::Info, Timestamp::date()) };
        let mut record = Vec::new();
        self.encode_text(&mut record, &head, info.as_bytes())?;
        Ok(record)
    }

    /// Encodes a record to `out`.
    fn encode(&self, out: &mut impl Write, head: &[u8], block: Block<'_>) -> io::Result<()> {
        if !self.gzip {
            return record::write(out, head, block);
        }
        let mut encoder = GzEncoder::new(out, Compression::default());
        record::write(&mut encoder, head, block)?;
        encoder.finish().map(drop)
    }

    /// Encodes a record whose block is `text`.
    fn encode_text(&self, out: &mut Vec<u8>, head: &Head, text: &[u8]) -> io::Result<()> {
        let block = Block { head: text, body: None };
        self.encode(out, &head.to_bytes(record::digest(text), block.len()), block)
    }

    /// Appends the records of a page: one with this head and block, and the encoded `rest`.
    fn append(&self, head: &[u8], block: Block<'_>, rest: &[u8]) -> io::Result<RecordPlace> {
        // Compression is slow, so it runs without the lock on the file.
        if block.len() <= IN_MEMORY {
            let mut bytes = Vec::new();
            self.encode(&mut bytes, head, block)?;
            bytes.extend_from_slice(rest);
            self.append_with(|file| file.write_all(&bytes))
        } else if !self.gzip {
            self.append_with(|file| {
                record::write(file, head, block)?;
                file.write_all(rest)
            })
        } else {
            let mut member = self.scratch_file()?;
            self.encode(&mut member, head, block)?;
            member.rewind()?;
            self.append_with(|file| {
                io::copy(&mut BufReader::with_capacity(CHUNK, &member), file)?;
                file.write_all(rest)
            })
        }
    }

    /// Returns an unnamed file in the archive's folder, where there must be room for the record in
    /// any case.
    fn scratch_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(folder_of(&self.path))
    }

    /// Calls `write` with exclusive access to the file; removes what it wrote if it fails.
    fn append_with(
        &self,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<RecordPlace> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(max) = self.options.rotate_at
            && end_of(&mut current.file)? >= max
        {
            *current = self.next_file(current.number + 1)?;
        }
        let offset = append(&mut current.file, write)?;
        Ok(RecordPlace { file: Arc::clone(&current.path), offset })
    }

    fn next_file(&self, number: u32) -> io::Result<Current> {
        let path = name_of(&self.path, number);
        let mut file = open_locked(&path, true).map_err(io::Error::other)?;
        if file.metadata()?.len() == 0 {
            let info = self.info(&path)?;
            append(&mut file, |file| file.write_all(&info))?;
        }
        Ok(Current { number, path: path.into(), file })
    }

    /// Returns the record that already has this payload.
    fn known(&self, payload: &Digest, is_empty: bool) -> Option<StoredRecord> {
        // A reference to an empty payload would save nothing.
        if !self.options.revisits || is_empty {
            return None;
        }
        let known = self
            .known_payloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(payload)
            .cloned();
        known.filter(|known| {
            self.is_pipe
                || is_in_place(&known.place.file, known.place.offset, known.original.id, payload)
        })
    }

    /// Encodes the redirects before a page, each with its request, and the request for the page
    /// itself.
    fn encode_requests(
        &self,
        out: &mut Vec<u8>,
        page: &Delivered<'_>,
        response: Uuid,
    ) -> io::Result<()> {
        for exchange in &page.response.exchange {
            let mut concurrent_to = response;
            let url = Some(exchange.url.clone());
            if let Some(redirect) = &exchange.redirect {
                let block = record::response_head(redirect.status, &redirect.headers, 0);
                let head = Head {
                    url: url.clone(),
                    peer: exchange.peer,
                    payload: Some(record::digest(b"")),
                    ..Head::new(Kind::Response, page.at)
                };
                concurrent_to = head.id;
                self.encode_text(out, &head, &block)?;
            }
            let block = record::request_head(&exchange.url, &exchange.request);
            let (at, peer) = (page.at, exchange.peer);
            let head = Head {
                url,
                peer,
                concurrent_to: Some(concurrent_to),
                ..Head::new(Kind::Request, at)
            };
            self.encode_text(out, &head, &block)?;
        }
        Ok(())
    }

    /// Encodes the fetcher of a page, and the duration of the fetch.
    fn encode_metadata(
        &self,
        out: &mut Vec<u8>,
        page: &Delivered<'_>,
        response: Uuid,
    ) -> io::Result<()> {
        if !self.options.metadata {
            return Ok(());
        }
        let mut text = format!("fetcher: {}\r\n", page.fetcher.replace(['\r', '\n'], " "));
        if *page.url != page.response.final_url {
            text.push_str(&format!("asked-for: {}\r\n", page.url));
        }
        text.push_str(&format!("fetchTimeMs: {}\r\n", page.response.duration.as_millis()));
        if let Some(consent) = page.consent {
            text.push_str(&format!(
                "consent: {}\r\nallowed-for: {}\r\n",
                consent.terms_text(),
                consent.allowed_text()
            ));
        }
        let head = Head {
            url: Some(page.response.final_url.clone()),
            concurrent_to: Some(response),
            ..Head::new(Kind::Metadata, page.at)
        };
        self.encode_text(out, &head, text.as_bytes())
    }

    /// Appends the record of a page with the digest of its block, and all that belongs to it.
    fn append_page(
        &self,
        page: &Delivered<'_>,
        head: &Head,
        (of_block, block): (Digest, Block<'_>),
    ) -> io::Result<RecordPlace> {
        let mut rest = Vec::new();
        self.encode_requests(&mut rest, page, head.id)?;
        self.encode_metadata(&mut rest, page, head.id)?;
        self.append(&head.to_bytes(of_block, block.len()), block, &rest)
    }
}

/// Returns the path of the `number`th file of the archive at `path`: the number precedes everything
/// after the first dot of its name.
fn name_of(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (stem, rest) = match name.split_once('.') {
        Some((stem, rest)) => (stem, format!(".{rest}")),
        None => (name.as_str(), String::new()),
    };
    path.with_file_name(format!("{stem}-{number:05}{rest}"))
}

/// Opens a file for appending that no other process writes.
fn open_locked(path: &Path, readable: bool) -> Result<File, WarcError> {
    let failed = |source| WarcError::Io { path: path.to_owned(), source };
    let file =
        OpenOptions::new().read(readable).create(true).append(true).open(path).map_err(failed)?;
    // On systems without locks, the file is not locked.
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(WarcError::Busy { path: path.to_owned() }),
        _ => Ok(file),
    }
}

/// Calls `write` to append to the file, and removes what it wrote if it fails: an incomplete record
/// would swallow the next one. Returns the offset of what it wrote.
fn append(file: &mut File, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<u64> {
    let whole = end_of(file)?;
    write(file).inspect_err(|_| drop(file.set_len(whole)))?;
    Ok(whole)
}

/// Returns the length of a file, which another program may have cut meanwhile; 0 for a pipe, which
/// has none. It costs a fraction of a question for the file's metadata.
fn end_of(file: &mut File) -> io::Result<u64> {
    match file.seek(SeekFrom::End(0)) {
        Err(error) if error.kind() == io::ErrorKind::NotSeekable => Ok(0),
        end => end,
    }
}

/// Returns whether the archive at `path` has the record `id` with this payload at `offset`, from
/// its first to its last byte. An archive of that name may be another one, or be cut.
fn is_in_place(path: &Path, offset: u64, id: Uuid, payload: &Digest) -> bool {
    let record = || {
        // A pipe would wait for a writer.
        if !fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = File::open(path)?;
        Records::of(&file, is_gzip(path), offset)?.next()
    };
    let record: io::Result<Option<tail::Record>> = record();
    record.ok().flatten().is_some_and(|record| {
        let head = ParsedHeads::of(&record.head);
        head.warc("warc-record-id").is_some_and(|found| found == record::urn(id))
            && head.warc("warc-payload-digest").and_then(record::digest_of) == Some(*payload)
    })
}

/// Returns whether the archive at `path` is compressed.
fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"))
}

/// Cuts off an incomplete record at the end of `file`, after it was copied to a separate file.
fn repair_tail(path: &Path, mut file: &File, gzip: bool) -> Result<Option<Torn>, WarcError> {
    let failed = |source| WarcError::Io { path: path.to_owned(), source };
    let len = file.metadata().map_err(failed)?.len();
    match tail::inspect(file, gzip).map_err(failed)? {
        Tail::Whole => Ok(None),
        Tail::Damaged(at) => Err(WarcError::Damaged { path: path.to_owned(), at, len }),
        Tail::Torn(at) => {
            let kept = file
                .seek(SeekFrom::Start(at))
                .and_then(|_| put_aside(file, path, at))
                .map_err(failed)?;
            file.set_len(at).map_err(failed)?;
            Ok(Some(Torn { archive: path.to_owned(), at, bytes: len - at, kept }))
        }
    }
}

/// Writes the rest of `torn` to a new file next to `path`, named after the byte where it began.
fn put_aside(mut torn: &File, path: &Path, at: u64) -> io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn-{at}"));
    let mut kept = PathBuf::from(&name);
    for number in 2_u32.. {
        match OpenOptions::new().write(true).create_new(true).open(&kept) {
            Ok(mut file) => {
                // The copy must be durable under its name before the record is cut off here.
                let copied = io::copy(&mut torn, &mut file)
                    .and_then(|_| file.sync_all())
                    .and_then(|()| sync_dir(path));
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

/// Makes new names in the folder of `path` durable. Windows has no such call and needs none.
fn sync_dir(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder_of(path))?.sync_all() } else { Ok(()) }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Store for Warc {
    fn put(&self, page: &Delivered<'_>) -> io::Result<PathBuf> {
        self.put_body(page).map(|body| body.file)
    }

    fn put_body(&self, page: &Delivered<'_>) -> io::Result<StoredBody> {
        let response = page.response;
        let http_head =
            record::response_head(response.status, &response.headers, response.body.len());
        let whole = Block { head: &http_head, body: Some(&response.body) };
        let (of_whole, of_payload) = whole.digests()?;
        let is_empty = response.body.is_empty();
        let known = self.known(&of_payload, is_empty);
        let head = Head {
            url: Some(response.final_url.clone()),
            peer: response.exchange.last().and_then(|exchange| exchange.peer),
            payload: Some(of_payload),
            // The server closed the connection before the announced length.
            truncated: response.truncated.then_some("disconnect"),
            ..Head::new(
                known.as_ref().map_or(Kind::Response, |it| Kind::Revisit(it.original.clone())),
                page.at,
            )
        };
        let block = match &known {
            Some(_) => (record::digest(&http_head), Block { body: None, ..whole }),
            None => (of_whole, whole),
        };
        let place = self.append_page(page, &head, block)?;
        let body = known.unwrap_or_else(|| {
            let original = Original { id: head.id, url: response.final_url.clone(), at: page.at };
            let new = StoredRecord { original, place };
            if !is_empty && self.options.revisits {
                self.known_payloads
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .add(of_payload, new.clone());
            }
            new
        });
        let StoredRecord { original, place } = body;
        let record = ArchiveRecord {
            id: original.id.urn().to_string(),
            offset: place.offset,
            url: original.url.into(),
            at: original.at.as_millis(),
            payload: record::digest_text(of_payload),
        };
        Ok(StoredBody { file: place.file.to_path_buf(), content: None, record: Some(record) })
    }

    fn holds(&self, body: &StoredBody) -> bool {
        body.record.as_ref().is_some_and(|record| {
            original_of(record).is_some_and(|(original, payload)| {
                is_in_place(&body.file, record.offset, original.id, &payload)
            })
        })
    }

    fn put_not_modified(&self, page: &Delivered<'_>, earlier: &StoredBody) -> io::Result<()> {
        let original =
            earlier.record.as_ref().filter(|_| self.holds(earlier)).and_then(original_of);
        let (original, payload) = original.ok_or_else(|| body_is_gone(&earlier.file))?;
        let response = page.response;
        let block = record::not_modified_head(response.status, &response.headers);
        let head = Head {
            url: Some(response.final_url.clone()),
            peer: response.exchange.last().and_then(|exchange| exchange.peer),
            payload: Some(payload),
            ..Head::new(Kind::NotModified(original), page.at)
        };
        let (of_block, block) = (record::digest(&block), Block { head: &block, body: None });
        self.append_page(page, &head, (of_block, block)).map(drop)
    }
}

/// Returns the record and the digest of its payload.
fn original_of(record: &ArchiveRecord) -> Option<(Original, record::Digest)> {
    let id = Uuid::parse_str(&record.id).ok()?;
    let original =
        Original { id, url: record.url.parse().ok()?, at: Timestamp::from_millis(record.at) };
    Some((original, record::digest_of(&record.payload)?))
}
