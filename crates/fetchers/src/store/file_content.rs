//! Length and hash of a file, by which a stored body is recognised.
//!
//! Must not know: what the file is.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// Bytes per read.
const CHUNK: usize = 256 << 10;

/// The content of a file, as far as it distinguishes the file from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileContent {
    /// Its length in bytes.
    pub len: u64,
    /// Its xxh3 in 128 bits, as 32 hex digits. It recognises other content, and is not a protection
    /// against forgery.
    pub hash: Box<str>,
}

impl FileContent {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Fails if there is no ordinary file or it cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        // A pipe would wait for a writer.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an ordinary file"));
        }
        let mut copy = HashedCopy::to(io::sink());
        io::copy(&mut BufReader::with_capacity(CHUNK, File::open(path)?), &mut copy)?;
        Ok(copy.content())
    }
}

/// A writer that takes length and hash of what it writes.
pub(super) struct HashedCopy<W> {
    to: W,
    len: u64,
    hash: Xxh3,
}

impl<W> HashedCopy<W> {
    pub(super) fn to(to: W) -> Self {
        Self { to, len: 0, hash: Xxh3::new() }
    }

    /// Returns the content that was written.
    pub(super) fn content(&self) -> FileContent {
        FileContent { len: self.len, hash: format!("{:032x}", self.hash.digest128()).into() }
    }
}

impl<W: Write> Write for HashedCopy<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.len += written as u64;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
