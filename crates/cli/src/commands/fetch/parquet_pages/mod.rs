//! Delivered pages as a data set in Apache Parquet: the store of `fetch --parquet FILE`.
//!
//! A Parquet file can be read only once its end is written, and then nothing can be added to it. So
//! pages first go to `FILE.rows`, where each of them survives the end of the process. When that
//! file is large enough, and at the end of the run, its rows become the file of the data set:
//! `FILE`, then `FILE-00001` and so on. `spool` has the rows, `shard` the Parquet.
//!
//! Invariants: a page that was stored is in `FILE.rows` or in one file of the data set, also after
//! a kill at any moment. A file of the data set appears under its name when it is complete, and is
//! never changed.
//!
//! Must not know: how pages are fetched, and how results are shown.

mod shard;
mod spool;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::terminal::exit::Failure;
use crate::terminal::output::{note, shown};
use fetchwise::detect::page_text;
use fetchwise::response::header;
use fetchwise::store::{Delivered, Store, StoredBody};

use spool::{Row, Spool, SpoolError};

/// The size of the rows that go into one file.
const SHARD_BYTES: u64 = 512 << 20;
/// The longest page. Parquet counts the bytes of a page in 31 bits.
const MAX_PAGE: u64 = 1 << 30;

/// A data set of pages that is being written.
pub(crate) struct ParquetPages {
    file: PathBuf,
    shard_bytes: u64,
    /// None after the end of the run.
    open: Mutex<Option<OpenShard>>,
}

/// The rows of the next file.
struct OpenShard {
    spool: Spool,
    /// The name of that file.
    path: PathBuf,
}

impl ParquetPages {
    /// Opens the data set `file`. Rows that a killed run left are part of its next file.
    pub(crate) fn open(file: &Path) -> Result<Self, Failure> {
        Self::with_shards(file, SHARD_BYTES)
    }

    fn with_shards(file: &Path, shard_bytes: u64) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            Failure::failed(format_args!("--parquet: cannot write to {}: {error}", shown(file)))
        };
        let folder = folder_of(file);
        fs::create_dir_all(folder).map_err(cannot)?;
        if file.file_name().is_none() || file.is_dir() {
            return Err(Failure::usage(format_args!("--parquet: {} is a folder", shown(file)))
                .advise("name a file, such as --parquet pages.parquet"));
        }
        let rows = rows_path(file);
        let opened = Spool::open(&rows, |id| shard::is_made_of(&newest_shard(file), id));
        let spool = opened.map_err(|error| match error {
            SpoolError::Busy => Failure::refused(format_args!(
                "{} is locked: another process writes it",
                shown(&rows)
            ))
            .advise("wait until the other process ends, or choose another file with --parquet"),
            SpoolError::Foreign => {
                Failure::refused(format_args!("{} has no rows of a data set", shown(&rows))).advise(
                    "nothing was changed: move it away, or choose another file with --parquet",
                )
            }
            SpoolError::Io(error) => cannot(error),
        })?;
        if spool.rows() > 0 {
            let pages = if spool.rows() == 1 { "page" } else { "pages" };
            note(format_args!(
                "fetchwise: {} has {} {pages} of an interrupted run",
                shown(&rows),
                spool.rows()
            ));
        }
        if spool.torn() > 0 {
            note(format_args!(
                "fetchwise: {} ended in the middle of a page, which is fetched again",
                shown(&rows)
            ));
        }
        let path = next_shard(file);
        Ok(Self {
            file: file.to_owned(),
            shard_bytes,
            open: Mutex::new(Some(OpenShard { spool, path })),
        })
    }

    /// Writes the rest of the rows as the last file of the data set. Pages of requests that are
    /// still open are not stored afterwards.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let Some(open) = self.lock().take() else { return Ok(()) };
        let path = open.path.clone();
        let finished = if open.spool.rows() == 0 { open.spool.remove() } else { open.write() };
        finished.map_err(|error| {
            Failure::failed(format_args!("cannot write {}: {error}", shown(&path))).advise(format!(
                "its pages are in {}: the next run with --parquet {} writes them",
                shown(&rows_path(&self.file)),
                shown(&self.file)
            ))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OpenShard>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a row. Returns the name of the file that gets it.
    fn append(&self, row: &Row) -> io::Result<PathBuf> {
        // A row is encoded without the lock.
        let frame = spool::encode(row)?;
        let mut guard = self.lock();
        let open = guard.as_mut().ok_or_else(|| io::Error::other("the run has ended"))?;
        if open.spool.rows() > 0 && open.spool.bytes() + frame.len() as u64 > self.shard_bytes {
            shard::write(&open.spool, &open.path)?;
            open.spool.restart()?;
            open.path = next_shard(&self.file);
        }
        open.spool.append(&frame)?;
        Ok(open.path.clone())
    }
}

impl OpenShard {
    /// Writes the file, and removes what it was made of.
    fn write(self) -> io::Result<()> {
        shard::write(&self.spool, &self.path)?;
        self.spool.remove()
    }
}

impl Store for ParquetPages {
    fn put(&self, page: &Delivered<'_>) -> io::Result<PathBuf> {
        self.append(&row(page)?)
    }

    fn put_body(&self, page: &Delivered<'_>) -> io::Result<StoredBody> {
        Ok(StoredBody { file: self.put(page)?, content: None, record: None })
    }
}

/// Returns the row of a page.
fn row(page: &Delivered<'_>) -> io::Result<Row> {
    let response = page.response;
    if response.body.len() > MAX_PAGE {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "a page in Parquet has at most 1 GiB",
        ));
    }
    let mut bytes = Vec::new();
    io::copy(&mut response.body.reader(), &mut bytes)?;
    let content_type = header(&response.headers, "content-type");
    let text = page_text(content_type, &bytes, response.final_url.host_str()).map(String::from);
    Ok(Row {
        url: page.url.as_str().to_owned(),
        final_url: response.final_url.as_str().to_owned(),
        status: response.status,
        content_type: content_type.map(str::to_owned),
        fetcher: page.fetcher.to_owned(),
        fetched_at: page.at.as_millis(),
        is_text: text.is_some(),
        content: text.map_or(bytes, String::into_bytes),
    })
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the path of the rows that are in no file of the data set yet.
fn rows_path(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".rows");
    file.with_file_name(name)
}

/// Returns the path of the file with this number: `pages.parquet`, then `pages-00001.parquet`.
fn numbered(file: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return file.to_owned();
    }
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number:05}"));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

/// Returns the first name of a file that does not exist.
fn next_shard(file: &Path) -> PathBuf {
    numbered(file, next_number(file))
}

/// Returns the last file that exists, or the name of the first one.
fn newest_shard(file: &Path) -> PathBuf {
    numbered(file, next_number(file).saturating_sub(1))
}

fn next_number(file: &Path) -> u32 {
    (0..u32::MAX).find(|number| !numbered(file, *number).exists()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
