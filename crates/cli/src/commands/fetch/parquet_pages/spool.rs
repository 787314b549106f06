//! The rows of the next file of a data set, in a file to which rows can be appended.
//!
//! The file begins with a line that names it. Then come frames: the length of the head and of the
//! content, a checksum of both, the head as JSON, and the content.
//!
//! Invariants: a row that was appended survives the end of the process. After a crash the file is
//! cut after its last whole row. One process at a time has the file open.
//!
//! Must not know: Parquet.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The beginning of the first line; the id of the file follows.
const MAGIC: &str = "fetchwise rows 1 ";
/// The length of the first line.
const HEAD_LINE: u64 = MAGIC.len() as u64 + 33;
/// The length of a frame before its head.
const PREFIX: usize = 4 + 8 + 8;
/// The longest head that is believed: URLs and header values have limits of their own.
const MAX_HEAD: u64 = 64 << 20;
/// Bytes per read.
const CHUNK: usize = 256 << 10;

/// A page of the data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) url: String,
    pub(super) final_url: String,
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) fetcher: String,
    /// The time of the request, in milliseconds.
    pub(super) fetched_at: i64,
    /// Whether `content` is text, in UTF-8.
    pub(super) is_text: bool,
    #[serde(skip)]
    pub(super) content: Vec<u8>,
}

/// Why rows cannot be opened.
#[derive(Debug)]
pub(super) enum SpoolError {
    /// Another process has them open.
    Busy,
    /// The file is another one.
    Foreign,
    Io(io::Error),
}

impl From<io::Error> for SpoolError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Rows in a file.
pub(super) struct Spool {
    path: PathBuf,
    file: File,
    id: String,
    rows: u64,
    bytes: u64,
    torn: u64,
}

impl Spool {
    /// Opens the rows at `path`, and creates the file if it is missing. `is_written` says whether a
    /// file of the data set was made of the rows with this id: the process ended before it could
    /// remove them.
    pub(super) fn open(path: &Path, is_written: impl Fn(&str) -> bool) -> Result<Self, SpoolError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        // On systems without locks, the file is not locked.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(SpoolError::Busy);
        }
        let len = file.metadata()?.len();
        let mut line = String::new();
        (&file).take(HEAD_LINE).read_to_string(&mut line).map_err(|_| SpoolError::Foreign)?;
        let id =
            line.strip_prefix(MAGIC).and_then(|rest| rest.strip_suffix('\n')).map(str::to_owned);
        // A new file, or one whose first line is incomplete.
        let is_new = len < HEAD_LINE
            && line.bytes().zip(MAGIC.bytes()).all(|(found, expected)| found == expected);
        let mut spool = match id {
            Some(id) => {
                Self { path: path.to_owned(), file, id, rows: 0, bytes: HEAD_LINE, torn: 0 }
            }
            None if is_new => {
                Self { path: path.to_owned(), file, id: String::new(), rows: 0, bytes: 0, torn: 0 }
            }
            None => return Err(SpoolError::Foreign),
        };
        if is_new || is_written(&spool.id) {
            spool.restart()?;
            return Ok(spool);
        }
        let mut rows = spool.read()?;
        while rows.next_row()?.is_some() {}
        (spool.rows, spool.bytes) = (rows.count, rows.at);
        spool.torn = len - spool.bytes;
        spool.file.set_len(spool.bytes)?;
        Ok(spool)
    }

    /// Returns the id of the rows.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of an incomplete row that were cut off when the file was opened.
    pub(super) fn torn(&self) -> u64 {
        self.torn
    }

    /// Appends an encoded row, or nothing of it.
    pub(super) fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.write_all(frame).inspect_err(|_| drop(self.file.set_len(self.bytes)))?;
        (self.rows, self.bytes) = (self.rows + 1, self.bytes + frame.len() as u64);
        Ok(())
    }

    /// Forgets all rows. The next ones have another id.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        (self.rows, self.bytes) = (0, 0);
        // Two hashers of the standard library never begin alike.
        let random = || RandomState::new().build_hasher().finish();
        let id = format!("{:016x}{:016x}", random(), random());
        self.file.write_all(format!("{MAGIC}{id}\n").as_bytes())?;
        (self.id, self.bytes) = (id, HEAD_LINE);
        Ok(())
    }

    /// Removes the file.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// Returns a reader of the rows.
    pub(super) fn read(&self) -> io::Result<Rows> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(HEAD_LINE))?;
        let left = file.metadata()?.len().saturating_sub(HEAD_LINE);
        Ok(Rows { from: BufReader::with_capacity(CHUNK, file), at: HEAD_LINE, left, count: 0 })
    }
}

/// A reader of rows, up to the first incomplete one.
pub(super) struct Rows {
    from: BufReader<File>,
    at: u64,
    left: u64,
    count: u64,
}

impl Rows {
    /// Returns the next row; none at the end, or where a crash has cut the file.
    pub(super) fn next_row(&mut self) -> io::Result<Option<Row>> {
        let mut prefix = [0; PREFIX];
        if self.left < PREFIX as u64 {
            return Ok(None);
        }
        self.from.read_exact(&mut prefix)?;
        let number = |range: std::ops::Range<usize>| {
            prefix
                .get(range)
                .unwrap_or_default()
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (head_len, content_len, checksum) = (number(0..4), number(4..12), number(12..20));
        let Some(len) = content_len.checked_add(head_len + PREFIX as u64) else { return Ok(None) };
        if head_len > MAX_HEAD || len > self.left {
            return Ok(None);
        }
        let (mut head, mut content) = (Vec::new(), Vec::new());
        (&mut self.from).take(head_len).read_to_end(&mut head)?;
        (&mut self.from).take(content_len).read_to_end(&mut content)?;
        if checksum_of(&head, &content) != checksum {
            return Ok(None);
        }
        let row: Row = serde_json::from_slice(&head)?;
        (self.at, self.left, self.count) = (self.at + len, self.left - len, self.count + 1);
        Ok(Some(Row { content, ..row }))
    }
}

/// Returns the frame of a row.
pub(super) fn encode(row: &Row) -> io::Result<Vec<u8>> {
    let head = serde_json::to_vec(row)?;
    let head_len = u32::try_from(head.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(PREFIX + head.len() + row.content.len());
    frame.extend_from_slice(&head_len.to_le_bytes());
    frame.extend_from_slice(&(row.content.len() as u64).to_le_bytes());
    frame.extend_from_slice(&checksum_of(&head, &row.content).to_le_bytes());
    frame.extend_from_slice(&head);
    frame.extend_from_slice(&row.content);
    Ok(frame)
}

fn checksum_of(head: &[u8], content: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(head);
    hash.update(content);
    hash.digest()
}
