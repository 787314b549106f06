//! A response body, bounded in length, and kept in memory only up to a limit.
//!
//! Invariants: [`BodyCollector`] never holds more than `max_in_memory` bytes plus one chunk of 256
//! KiB. The rest is in an unnamed temporary file, which disappears with the [`Body`], and with the
//! process however it ends. A folder that is missing or full does not lose a body as long as
//! another one has room.
//!
//! Must not know: where the bytes come from, and how they were encoded.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use tokio::task::spawn_blocking;

use super::Limits;

/// Bytes that are buffered before a write to the temporary file.
const SPILL_CHUNK: usize = 256 << 10;

/// The folder for long bodies of this process, before the system's temporary folder.
static SPOOL_DIR: OnceLock<PathBuf> = OnceLock::new();

/// Sets the folder for long bodies of all fetchers of this process that have no folder of their
/// own. Only the first call has an effect. The system's temporary folder is used if this one is
/// missing or full.
pub fn set_spool_dir(dir: impl Into<PathBuf>) {
    let _ = SPOOL_DIR.set(dir.into());
}

/// A body: its beginning in memory, and all of it in a temporary file if it is longer.
#[derive(Debug)]
pub struct Body {
    head: Bytes,
    len: u64,
    spill: Option<File>,
}

impl Body {
    /// Returns a body that is entirely in memory.
    pub fn in_memory(bytes: impl Into<Bytes>) -> Self {
        let head = bytes.into();
        Self { len: head.len() as u64, head, spill: None }
    }

    /// Returns a body of `len` bytes that is entirely in `file`, with its beginning in memory too.
    pub fn spilled(head: impl Into<Bytes>, len: u64, file: File) -> Self {
        Self { head: head.into(), len, spill: Some(file) }
    }

    /// Returns the beginning of the body: all of it unless [`Body::spill`] returns a file. This
    /// part is classified.
    pub fn head(&self) -> &Bytes {
        &self.head
    }

    /// Returns the total length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the file with the whole body, if the body is longer than the part in memory. The
    /// file has no name, and a single position that all readers share: read it with
    /// [`Body::reader`].
    pub fn spill(&self) -> Option<&File> {
        self.spill.as_ref()
    }

    /// Returns a reader of the whole body from its first byte. Reading blocks if the body is in a
    /// file. Readers are independent.
    pub fn reader(&self) -> BodyReader<'_> {
        BodyReader(match &self.spill {
            Some(file) => Source::File { file, at: 0 },
            None => Source::Memory(&self.head),
        })
    }

    /// Writes the whole body to `out`, from memory if it is there. Returns the number of bytes.
    pub(crate) fn copy_to(&self, out: &mut impl Write) -> io::Result<u64> {
        match &self.spill {
            Some(_) => io::copy(&mut BufReader::with_capacity(SPILL_CHUNK, self.reader()), out),
            None => out.write_all(&self.head).map(|()| self.len),
        }
    }
}

/// A reader of a [`Body`], from its first byte on.
#[derive(Debug)]
pub struct BodyReader<'a>(Source<'a>);

#[derive(Debug)]
enum Source<'a> {
    Memory(&'a [u8]),
    File { file: &'a File, at: u64 },
}

impl Read for BodyReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Source::Memory(bytes) => bytes.read(buf),
            Source::File { file, at } => {
                let read = read_at(file, buf, *at)?;
                *at += read as u64;
                Ok(read)
            }
        }
    }
}

#[cfg(unix)]
fn read_at(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buf, at)
}

#[cfg(windows)]
fn read_at(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, at)
}

/// Collects a body chunk by chunk and enforces its limits.
///
/// ```
/// use fetchwise_fetchers::fetch::Limits;
/// use fetchwise_fetchers::fetch::body::BodyCollector;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits { max_in_memory: 4, ..Limits::default() };
/// let mut collector = BodyCollector::new(&limits);
/// collector.push(b"abc").await?;
/// collector.push(b"defg").await?;
/// let body = collector.finish().await?;
/// assert_eq!(&body.head()[..], b"abcd");
/// assert_eq!(body.len(), 7);
/// assert_eq!(std::io::read_to_string(body.reader())?, "abcdefg");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BodyCollector {
    head: BytesMut,
    len: u64,
    max_body: u64,
    max_in_memory: usize,
    temp_dir: Option<PathBuf>,
    spill: Spill,
}

#[derive(Debug)]
enum Spill {
    /// Everything so far fits into memory.
    No,
    Yes {
        file: SpillFile,
        pending: Vec<u8>,
    },
    /// A write failed, or its future was dropped before it ended.
    Lost,
}

impl BodyCollector {
    /// Returns a collector with `max_body` and `max_in_memory` of `limits`. Its folder is that of
    /// [`set_spool_dir`], or the system's temporary folder.
    pub fn new(limits: &Limits) -> Self {
        Self {
            head: BytesMut::new(),
            len: 0,
            max_body: limits.max_body,
            max_in_memory: limits.max_in_memory,
            temp_dir: None,
            spill: Spill::No,
        }
    }

    /// Sets the folder for long bodies. The system's temporary folder is used if this one is
    /// missing or full.
    #[must_use]
    pub fn in_dir(mut self, dir: Option<PathBuf>) -> Self {
        self.temp_dir = dir;
        self
    }

    /// Reserves memory for an announced length, at most 256 KiB.
    pub fn reserve(&mut self, len: u64) {
        let len =
            usize::try_from(len).unwrap_or(usize::MAX).min(self.max_in_memory).min(SPILL_CHUNK);
        self.head.reserve(len);
    }

    /// Returns the number of collected bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether no byte was collected yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Collects the next bytes. After an error or a dropped future, the collector is unusable.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] if the body exceeds `max_body`, [`BodyError::Io`] if the temporary
    /// file cannot be written.
    pub async fn push(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        let len = self.len.saturating_add(chunk.len() as u64);
        if len > self.max_body {
            return Err(BodyError::TooLarge { limit: self.max_body });
        }
        self.len = len;
        let room = self.max_in_memory - self.head.len();
        self.head.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if let Spill::No = self.spill {
            if chunk.len() <= room {
                return Ok(());
            }
            self.spill = Spill::Lost;
            let (head, dir) = (self.head.clone().freeze(), self.temp_dir.clone());
            let file = blocking(move || SpillFile::start(&head, folders(dir))).await?;
            self.spill = Spill::Yes { file, pending: Vec::new() };
            return self.append(&chunk[room..]).await;
        }
        self.append(chunk).await
    }

    /// Ends the body.
    ///
    /// # Errors
    /// [`BodyError::Io`] if the temporary file cannot be written.
    pub async fn finish(mut self) -> Result<Body, BodyError> {
        self.flush().await?;
        match self.spill {
            Spill::No => Ok(Body::in_memory(self.head.freeze())),
            Spill::Yes { file, .. } => Ok(Body::spilled(self.head.freeze(), self.len, file.file)),
            Spill::Lost => Err(lost()),
        }
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        match &mut self.spill {
            Spill::Yes { pending, .. } => pending.extend_from_slice(bytes),
            _ => return Err(lost()),
        }
        match &self.spill {
            Spill::Yes { pending, .. } if pending.len() >= SPILL_CHUNK => self.flush().await,
            _ => Ok(()),
        }
    }

    async fn flush(&mut self) -> Result<(), BodyError> {
        let Spill::Yes { .. } = self.spill else { return Ok(()) };
        // The blocking thread owns the file while it writes, so a dropped future leaves no
        // half-open state.
        let Spill::Yes { mut file, mut pending } = std::mem::replace(&mut self.spill, Spill::Lost)
        else {
            return Err(lost());
        };
        let (file, pending) = blocking(move || {
            file.write(&pending)?;
            pending.clear();
            Ok((file, pending))
        })
        .await?;
        self.spill = Spill::Yes { file, pending };
        Ok(())
    }
}

/// Returns the folders for a body, the first one first.
fn folders(dir: Option<PathBuf>) -> Vec<PathBuf> {
    let first = dir.or_else(|| SPOOL_DIR.get().cloned());
    let mut folders: Vec<PathBuf> = first.into_iter().chain([std::env::temp_dir()]).collect();
    folders.dedup();
    folders
}

/// The file of a body. It moves to the next folder when a write fails.
#[derive(Debug)]
struct SpillFile {
    file: File,
    /// The number of bytes that were written.
    len: u64,
    /// The folders that were not tried yet.
    others: Vec<PathBuf>,
}

impl SpillFile {
    fn start(head: &[u8], mut folders: Vec<PathBuf>) -> io::Result<Self> {
        let mut first_error = None;
        while !folders.is_empty() {
            let created =
                create(&folders.remove(0)).and_then(|mut file| file.write_all(head).map(|()| file));
            match created {
                Ok(file) => return Ok(Self { file, len: head.len() as u64, others: folders }),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(lost_file))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = self.file.write_all(bytes);
        while written.is_err() && !self.others.is_empty() {
            // The error of the first folder is the one to report.
            let next = self.others.remove(0);
            if let Ok(file) = self.copy_to(&next, bytes) {
                self.file = file;
                written = Ok(());
            }
        }
        written?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn copy_to(&self, dir: &Path, bytes: &[u8]) -> io::Result<File> {
        let mut file = create(dir)?;
        let so_far = BodyReader(Source::File { file: &self.file, at: 0 });
        if io::copy(&mut so_far.take(self.len), &mut file)? != self.len {
            return Err(lost_file());
        }
        file.write_all(bytes)?;
        Ok(file)
    }
}

fn create(dir: &Path) -> io::Result<File> {
    tempfile::tempfile_in(dir)
}

fn lost_file() -> io::Error {
    io::Error::other("an earlier write of this body failed")
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BodyError> {
    spawn_blocking(work).await.map_err(io::Error::other).flatten().map_err(BodyError::Io)
}

fn lost() -> BodyError {
    BodyError::Io(lost_file())
}

/// The reason why a body was not kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is longer than its limit.
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The temporary file could not be written.
    Io(io::Error),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => {
                write!(f, "the body is longer than its limit of {limit} bytes")
            }
            Self::Io(error) => write!(f, "cannot write the body to a temporary file: {error}"),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooLarge { .. } => None,
            Self::Io(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn limits(max_body: u64, max_in_memory: usize) -> Limits {
        Limits { max_body, max_in_memory, ..Limits::default() }
    }

    async fn collect(limits: &Limits, chunks: &[&[u8]]) -> Result<Body, BodyError> {
        let mut collector = BodyCollector::new(limits);
        for chunk in chunks {
            collector.push(chunk).await?;
        }
        collector.finish().await
    }

    fn read(body: &Body) -> Vec<u8> {
        let mut bytes = Vec::new();
        body.reader().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_short_body_stays_in_memory() {
        let body = collect(&limits(100, 6), &[b"abc", b"", b"def"]).await.unwrap();
        assert!(body.spill().is_none());
        assert_eq!((&body.head()[..], body.len()), (&b"abcdef"[..], 6));
        assert_eq!(read(&body), b"abcdef");
    }

    #[tokio::test]
    async fn a_long_body_is_complete_in_an_unnamed_file() {
        let chunk: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let chunks: Vec<&[u8]> = std::iter::repeat_n(&chunk[..], 9).collect();
        let dir = tempfile::tempdir().unwrap();
        for max_in_memory in [0, 1, 100_000, 150_000, 899_999] {
            let limits = limits(1 << 20, max_in_memory);
            let mut collector = BodyCollector::new(&limits).in_dir(Some(dir.path().to_owned()));
            for chunk in &chunks {
                collector.push(chunk).await.unwrap();
            }
            let body = collector.finish().await.unwrap();
            assert!(body.spill().is_some());
            assert_eq!(body.head()[..], chunks.concat()[..max_in_memory]);
            assert_eq!(body.len(), 900_000);
            assert_eq!(read(&body), chunks.concat());
            assert_eq!(read(&body).len(), 900_000, "each reader starts at the first byte");
            let (mut first, mut second) = (body.reader(), body.reader());
            let (mut a, mut b) = ([0; 300], [0; 300]);
            first.read_exact(&mut a).unwrap();
            second.read_exact(&mut b).unwrap();
            assert_eq!(a, b, "readers do not share a position");
            assert_eq!(
                std::fs::read_dir(dir.path()).unwrap().count(),
                0,
                "a kill leaves nothing behind"
            );
        }
    }

    #[tokio::test]
    async fn the_limit_itself_still_fits() {
        assert_eq!(collect(&limits(4, 2), &[b"abcd"]).await.unwrap().len(), 4);
        let error = collect(&limits(4, 2), &[b"abc", b"de"]).await.unwrap_err();
        assert!(matches!(error, BodyError::TooLarge { limit: 4 }), "{error}");
    }

    #[tokio::test]
    async fn memory_stays_bounded_while_a_long_body_comes_in() {
        let mut collector = BodyCollector::new(&limits(u64::MAX, 1000));
        for _ in 0..1000 {
            collector.push(&[7; 10_000]).await.unwrap();
            let Spill::Yes { pending, .. } = &collector.spill else { panic!("not spilled") };
            assert!(pending.capacity() <= 2 * SPILL_CHUNK + 20_000 && collector.head.len() == 1000);
        }
        assert_eq!(collector.finish().await.unwrap().len(), 10_000_000);
    }

    #[tokio::test]
    async fn a_missing_folder_does_not_lose_a_body() {
        // It was reported as a failure of the page.
        let limits = limits(100, 1);
        let mut collector =
            BodyCollector::new(&limits).in_dir(Some("/nonexistent/fetchwise".into()));
        collector.push(b"abc").await.unwrap();
        assert_eq!(read(&collector.finish().await.unwrap()), b"abc");
    }

    #[test]
    fn a_folder_that_becomes_full_does_not_lose_a_body() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("full");
        std::fs::write(&path, b"abc and what a failed write left").unwrap();
        // Writes fail, reads do not.
        let full = File::open(&path).unwrap();
        let missing = PathBuf::from("/nonexistent/fetchwise");
        let mut file =
            SpillFile { file: full, len: 3, others: vec![missing.clone(), dir.path().to_owned()] };
        file.write(b"def").unwrap();
        file.write(b"ghi").unwrap();
        let body = Body::spilled(Bytes::new(), file.len, file.file);
        assert_eq!(read(&body), b"abcdefghi");
        let mut file =
            SpillFile { file: File::open(&path).unwrap(), len: 3, others: vec![missing] };
        assert!(file.write(b"def").is_err(), "no folder is left");
    }

    #[tokio::test]
    async fn without_any_folder_a_body_is_never_returned_with_a_gap() {
        assert!(SpillFile::start(b"a", vec!["/nonexistent/fetchwise".into()]).is_err());
        let mut collector = BodyCollector::new(&limits(100, 1));
        collector.spill = Spill::Lost;
        assert!(collector.push(b"abc").await.is_err());
        assert!(collector.finish().await.is_err());
    }
}
