//! One WARC archive for all pages: a `response` record a page, appended to the file, one gzip member a record when the name
//! ends in `.gz`.
//!
//! The block of a record is what fetchwise has: status line, headers and the decoded body, so `Content-Encoding` and
//! `Transfer-Encoding` are left out and `Content-Length` is the decoded length. Records are made whole before they are
//! appended in one write, so that a crash can only cut the last one.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use flate2::Compression;
use flate2::write::GzEncoder;
use warc::{RecordBuilder, RecordType, WarcHeader, WarcWriter};

use super::{Delivered, Store};

/// Headers that speak of the transfer, which the stored block no longer has.
const TRANSFER_HEADERS: [&str; 5] =
    ["content-encoding", "transfer-encoding", "content-length", "connection", "keep-alive"];

/// An archive that is appended to.
#[derive(Debug)]
pub struct Warc {
    path: PathBuf,
    gzip: bool,
    file: Mutex<File>,
}

impl Warc {
    /// Opens the archive at `path`, which gets a `warcinfo` record when it is new.
    ///
    /// # Errors
    /// When it cannot be opened or written.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let is_new = file.metadata()?.len() == 0;
        let gzip = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let archive = Self { path: path.to_owned(), gzip, file: Mutex::new(file) };
        if is_new {
            let info = format!("software: fetchwise/{}\r\nformat: WARC File Format 1.0\r\n", env!("CARGO_PKG_VERSION"));
            let record = RecordBuilder::default()
                .warc_type(RecordType::WarcInfo)
                .date(Utc::now())
                .header(WarcHeader::ContentType, "application/warc-fields");
            archive.append(record, info.into_bytes())?;
        }
        Ok(archive)
    }

    fn append(&self, record: RecordBuilder, body: Vec<u8>) -> io::Result<()> {
        let record = record.body(body).build().map_err(io::Error::other)?;
        let mut bytes = WarcWriter::new(BufWriter::new(Vec::new()));
        bytes.write(&record)?;
        let bytes = bytes.into_inner().map_err(io::Error::other)?;
        let bytes = if self.gzip {
            let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::default());
            encoder.write_all(&bytes)?;
            encoder.finish()?
        } else {
            bytes
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = file.metadata()?.len();
        // Half a record would swallow the next one.
        file.write_all(&bytes).inspect_err(|_| drop(file.set_len(whole)))
    }
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
            let value: String = header.value.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
            block.extend_from_slice(format!("{}: {value}\r\n", header.name).as_bytes());
        }
        block.extend_from_slice(format!("Content-Length: {}\r\n\r\n", response.body.len()).as_bytes());
        response.body.reader()?.read_to_end(&mut block)?;
        let date = DateTime::<Utc>::from_timestamp_millis(page.at.as_millis()).unwrap_or_default();
        let record = RecordBuilder::default()
            .warc_type(RecordType::Response)
            .date(date)
            .header(WarcHeader::TargetURI, response.final_url.as_str())
            .header(WarcHeader::ContentType, "application/http; msgtype=response")
            .header(WarcHeader::Unknown("x-fetchwise-fetcher".to_owned()), page.fetcher)
            .header(WarcHeader::Unknown("x-fetchwise-asked-for".to_owned()), page.url.as_str());
        self.append(record, block)?;
        Ok(self.path.clone())
    }
}
