//! The segments of a log by their header pages, oldest first.
//!
//! Owns: the facts about a segment file without its frames, and the open file.
//!
//! Invariant: a file that is opened again is the same file, or it is reported as replaced.
//!
//! Must not know: which files belong to the log (that is [`catalog`](super::catalog)), the content
//! of frames.

use std::io;
use std::path::{Path, PathBuf};

use super::scan::Extent;
use crate::error::{Damage, Error};
use crate::format::{HEADER_LEN, HeaderError, Link, MAJOR, SegmentHeader};
use crate::fs::{Fs, FsFile, read_full_at};

/// A segment file with a good header.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) file_len: u64,
    open: Option<Box<dyn FsFile>>,
}

/// A segment that is part of the log.
#[derive(Debug)]
pub(crate) struct ChainSegment {
    pub(crate) file: SegmentFile,
    pub(crate) extent: Extent,
    /// The end as stated by the successor, for an ordinary segment that has one.
    pub(crate) stated: Option<Link>,
    /// Known durable from outside the file: the manifest.
    pub(crate) durable_off: u64,
    /// The last sequence number known durable, from the manifest.
    pub(crate) durable_seq: u64,
}

impl ChainSegment {
    /// The sequence number after this segment, as far as headers tell.
    pub(crate) fn next_seq(&self) -> Option<u64> {
        if self.file.header.is_rewritten() {
            return Some(self.file.header.alias_next_seq());
        }
        self.stated.map(|link| link.last_seq.saturating_add(1))
    }
}

impl SegmentFile {
    /// Runs `f` with the open file.
    pub(crate) fn with_file<T>(
        &self,
        fs: &dyn Fs,
        f: impl FnOnce(&dyn FsFile) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(file) = &self.open {
            return f(&**file);
        }
        let file = match fs.open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Replaced { file: self.path.clone() });
            }
            Err(e) => return Err(Error::io("read", &self.path, e)),
        };
        let mut page = vec![0; HEADER_LEN];
        let read =
            read_full_at(&*file, &mut page, 0).map_err(|e| Error::io("read", &self.path, e))?;
        page.truncate(read);
        match SegmentHeader::decode(&page) {
            Ok(header) if header == self.header => f(&*file),
            _ => Err(Error::Replaced { file: self.path.clone() }),
        }
    }
}

/// The name of a segment's file, and what the name says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentName<'a> {
    pub(crate) name: &'a str,
    pub(crate) number: u32,
    pub(crate) first_seq: u64,
}

/// Opens a segment and reads its header page: an error for I/O, the inner error for damage.
pub(crate) fn open_segment(
    fs: &dyn Fs,
    dir: &Path,
    SegmentName { name, number, first_seq }: SegmentName<'_>,
    keep_open: bool,
) -> Result<Result<SegmentFile, Damage>, Error> {
    let path = dir.join(name);
    let file = match fs.open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Replaced { file: path });
        }
        Err(e) => return Err(Error::io("read", &path, e)),
    };
    let mut page = vec![0; HEADER_LEN];
    let read = read_full_at(&*file, &mut page, 0).map_err(|e| Error::io("read", &path, e))?;
    page.truncate(read);
    let file_len = file.len().map_err(|e| Error::io("read", &path, e))?;
    let damaged = |what| {
        let records = Some((first_seq, u64::MAX));
        Damage { file: name.to_owned(), offset: 0, len: file_len, records, what }
    };
    let header = match SegmentHeader::decode(&page) {
        Ok(header) => header,
        Err(HeaderError::Newer(found)) => return Err(newer(&path, found)),
        Err(HeaderError::Bad(what)) => return Ok(Err(damaged(what))),
    };
    if header.number != number || header.first_seq != first_seq {
        return Ok(Err(damaged("the file's name does not match its header")));
    }
    let open = keep_open.then_some(file);
    Ok(Ok(SegmentFile { name: name.to_owned(), path, header, file_len, open }))
}

/// A file of a newer format.
pub(crate) fn newer(path: &Path, found: String) -> Error {
    let supported = format!("{}.x", MAJOR);
    Error::NewerFormat { file: path.to_owned(), found, supported }
}
