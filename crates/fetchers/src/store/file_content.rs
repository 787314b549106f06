//! Length and hash of a file, by which a stored body is recognised.
//!
//! Must not know: what the file is.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
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
    /// Its xxh3 in 128 bits, as 32 hex digits. It recognises other content, and is not a protection against forgery.
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
        let mut read = HashedReader::new(BufReader::with_capacity(CHUNK, File::open(path)?));
        io::copy(&mut read, &mut io::sink())?;
        Ok(read.content())
    }
}

/// A reader that takes length and hash of what it reads.
pub(super) struct HashedReader<R> {
    from: R,
    len: u64,
    hash: Xxh3,
}

impl<R> HashedReader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, len: 0, hash: Xxh3::new() }
    }

    /// Returns the content that was read.
    pub(super) fn content(&self) -> FileContent {
        FileContent { len: self.len, hash: format!("{:032x}", self.hash.digest128()).into() }
    }
}

impl<R: Read> Read for HashedReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.len += read as u64;
        self.hash.update(&to[..read]);
        Ok(read)
    }
}
