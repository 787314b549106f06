//! Writes a run.
//!
//! Owns: an unfinished file, and its removal if it is not finished.
//!
//! Invariants: a run that `finish` returns is durable, and so is its name; memory beyond index and
//! filters is bounded.
//!
//! Must not know: where entries come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fetchwise_log::fs::{Fs, FsFile, SyncSite, sync, write_all_at};

use crate::block::BlockWriter;
use crate::dir_syncs::DirSyncs;
use crate::error::{Error, Result};
use crate::fields::checksum;
use crate::filter::Filter;
use crate::run::{Part, Run, RunId};
use crate::run_format::{Trailer, header_page, run_name};

/// The entries of a part, for which one filter is built at once: larger filters take a little less
/// memory for each entry, and much more while they are built.
const PART_ENTRIES: usize = 1 << 18;
/// The bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// A run that is being written.
#[derive(Debug)]
pub(crate) struct RunWriter {
    fs: Arc<dyn Fs>,
    dir_syncs: Arc<DirSyncs>,
    /// When its name was made.
    made_at: u64,
    path: PathBuf,
    /// Taken by `finish`.
    file: Option<Box<dyn FsFile>>,
    number: u64,
    nonce: u64,
    /// What is not written yet, and its offset.
    out: Vec<u8>,
    offset: u64,
    block: BlockWriter,
    entries: u64,
    index: Vec<u64>,
    parts: Vec<Part>,
    part_page: usize,
    part_keys: Vec<u64>,
}

impl RunWriter {
    pub(crate) fn create(
        fs: Arc<dyn Fs>,
        dir_syncs: Arc<DirSyncs>,
        dir: &Path,
        number: u64,
    ) -> Result<Self> {
        let path = dir.join(run_name(number));
        let (nonce, made_at) = (fs.random(), dir_syncs.failed());
        let file = Some(fs.create_new(&path).map_err(Error::io("create", &path))?);
        Ok(Self {
            fs,
            dir_syncs,
            made_at,
            path,
            file,
            number,
            nonce,
            out: header_page(number, nonce),
            offset: 0,
            block: BlockWriter::new(),
            entries: 0,
            index: Vec::new(),
            parts: Vec::new(),
            part_page: 0,
            part_keys: Vec::new(),
        })
    }

    /// Appends an entry, whose key must be above those before it.
    pub(crate) fn push(&mut self, key: u64, value: Option<&[u8]>) -> Result<()> {
        if !self.block.push(key, value) {
            self.finish_block()?;
            self.block.push(key, value);
        }
        self.part_keys.push(key);
        self.entries += 1;
        Ok(())
    }

    /// The bytes that the run has so far.
    pub(crate) fn len(&self) -> u64 {
        self.offset + self.out.len() as u64
    }

    /// Completes the run and syncs it. A run without entries is removed.
    pub(crate) fn finish(mut self) -> Result<Option<Run>> {
        if self.entries == 0 {
            return Ok(None);
        }
        self.finish_block()?;
        self.finish_part();
        let trailer = Trailer {
            pages: self.index.len() as u64,
            entries: self.entries,
            parts: self.parts.len() as u64,
        };
        let index: Vec<u8> = self.index.iter().flat_map(|key| key.to_le_bytes()).collect();
        self.write_section(&index)?;
        let table: Vec<u8> = self.parts.iter().flat_map(Part::encode).collect();
        self.write_section(&table)?;
        let parts = std::mem::take(&mut self.parts);
        for part in &parts {
            self.write_section(part.filter.fingerprints())?;
        }
        self.out.extend_from_slice(&trailer.encode(self.nonce, self.len()));
        self.write_out(0)?;
        let mut index = std::mem::take(&mut self.index);
        index.shrink_to_fit();
        // The sync sites are those of the log's snapshots, which are written in the same order.
        let synced = self.file.as_deref().map_or(Ok(()), |file| sync(file, SyncSite::Snapshot));
        // A run counts only once it has its name.
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let name = || self.fs.sync_dir(dir, SyncSite::SnapshotDir);
        synced
            .and_then(|()| self.dir_syncs.sync(self.made_at, name))
            .map_err(Error::io("sync", &self.path))?;
        let id = RunId { number: self.number, nonce: self.nonce, len: self.offset };
        let (path, entries) = (self.path.clone(), self.entries);
        Ok(self.file.take().map(|file| Run { id, path, file, entries, index, parts }))
    }

    fn finish_block(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            let (first, pages) = self.block.finish(self.nonce, self.len(), &mut self.out);
            self.index.extend(std::iter::repeat_n(first, pages));
        }
        if self.part_keys.len() >= PART_ENTRIES {
            self.finish_part();
        }
        self.write_out(WRITE_BYTES)
    }

    fn finish_part(&mut self) {
        let Some(&first_key) = self.part_keys.first() else { return };
        let filter = Filter::build(&self.part_keys);
        self.parts.push(Part { first_key, first_page: self.part_page, filter });
        self.part_page = self.index.len();
        self.part_keys.clear();
    }

    fn write_section(&mut self, bytes: &[u8]) -> Result<()> {
        let crc = checksum(self.nonce, self.len(), bytes);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(&crc.to_le_bytes());
        self.write_out(WRITE_BYTES)
    }

    /// Writes what is waiting, if it is at least `min` bytes.
    fn write_out(&mut self, min: usize) -> Result<()> {
        if let Some(file) = self.file.as_deref().filter(|_| self.out.len() >= min) {
            write_all_at(file, &self.out, self.offset).map_err(Error::io("write", &self.path))?;
            self.offset += self.out.len() as u64;
            self.out.clear();
        }
        Ok(())
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // What stays is removed when the store is opened.
            let _ = self.fs.remove(&self.path);
        }
    }
}
