//! A run: a file of entries sorted by key, which is written once and read by position.
//!
//! Owns: the open file, the first key of each page and the filters in memory.
//!
//! Invariants: nothing is changed after a run was written, so readers need no lock; every byte is
//! checked before its content is used, and what it claims before anything is allocated for it.
//!
//! Must not know: other runs, and which value of a key is the newest.

use std::ops::Range;
use std::path::{Path, PathBuf};

use fetchwise_log::fs::{Fs, FsFile, read_full_at};

use crate::block::{BlockReader, MAX_BLOCK_PAGES, PAGE};
use crate::error::{Error, Result};
use crate::fields::{checked, u32_at, u64_at};
use crate::filter::{DESCRIPTOR_LEN, Filter};
use crate::run_format::{
    CHECKSUM_LEN, HeaderError, PART_LEN, TRAILER_LEN, Trailer, parse_header_page, run_name,
};
use crate::run_part::part_of;

/// What a manifest says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunId {
    pub(crate) number: u64,
    pub(crate) nonce: u64,
    pub(crate) len: u64,
}

/// The pages from one block to another, with a filter for their keys.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) first_key: u64,
    pub(crate) first_page: usize,
    pub(crate) filter: Filter,
}

impl Part {
    pub(crate) fn encode(&self) -> [u8; PART_LEN] {
        let mut out = [0; PART_LEN];
        out[..4].copy_from_slice(&(self.first_page as u32).to_le_bytes());
        out[4..8].copy_from_slice(&(self.filter.fingerprints().len() as u32).to_le_bytes());
        out[8..8 + DESCRIPTOR_LEN].copy_from_slice(self.filter.descriptor());
        out
    }
}

/// An open run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn FsFile>,
    /// Tombstones included.
    pub(crate) entries: u64,
    /// The first key of each page. A page in which a block goes on has the block's first key.
    pub(crate) index: Vec<u64>,
    pub(crate) parts: Vec<Part>,
}

impl Run {
    /// Opens a run: reads its header page, index and filters.
    pub(crate) fn open(fs: &dyn Fs, dir: &Path, id: RunId) -> Result<Self> {
        let path = dir.join(run_name(id.number));
        let file = fs.open(&path).map_err(Error::io("open", &path))?;
        let len = file.len().map_err(Error::io("read", &path))?;
        if len != id.len || len < (PAGE + TRAILER_LEN) as u64 {
            return Err(Error::damaged(
                &path,
                len.min(id.len),
                "its length is not the one in the manifest",
            ));
        }
        let mut run = Self { id, path, file, entries: 0, index: Vec::new(), parts: Vec::new() };
        match parse_header_page(&run.read(0, PAGE)?) {
            Ok((number, nonce)) if (number, nonce) == (id.number, id.nonce) => {}
            Err(HeaderError::Newer(found)) => {
                return Err(Error::NewerFormat { file: run.path, found });
            }
            Ok(_) => return Err(run.damaged(0, "it is not the run in the manifest")),
            Err(HeaderError::Malformed) => return Err(run.damaged(0, "the header is malformed")),
        }
        let trailer_at = len - TRAILER_LEN as u64;
        let trailer = Trailer::decode(&run.read(trailer_at, TRAILER_LEN)?, id.nonce, len)
            .ok_or_else(|| run.damaged(trailer_at, "the trailer is malformed"))?;
        run.entries = trailer.entries;
        run.read_index(&trailer)?;
        run.read_parts(&trailer)?;
        Ok(run)
    }

    fn read_index(&mut self, trailer: &Trailer) -> Result<()> {
        let offset = trailer.index_offset();
        let bytes = self.read_section(offset, trailer.pages as usize * 8)?;
        self.index = bytes.chunks_exact(8).map(|key| u64_at(key, 0)).collect();
        let longest =
            self.index.chunk_by(|one, next| one == next).map(<[u64]>::len).max().unwrap_or(0);
        if !self.index.is_sorted() || longest > MAX_BLOCK_PAGES {
            return Err(self.damaged(offset, "the index is not sorted"));
        }
        Ok(())
    }

    fn read_parts(&mut self, trailer: &Trailer) -> Result<()> {
        let offset = trailer.parts_offset();
        let table = self.read_section(offset, trailer.parts as usize * PART_LEN)?;
        let mut filter_at = trailer.filters_offset();
        let end = self.id.len - TRAILER_LEN as u64;
        for part in table.chunks_exact(PART_LEN) {
            let (first_page, filter_len) = (u32_at(part, 0) as usize, u32_at(part, 4) as usize);
            let first_key = self.index.get(first_page).copied();
            // Parts follow each other from the first page, and begin with a block.
            let is_next = match self.parts.last() {
                Some(last) => first_key.is_some_and(|key| key > last.first_key),
                None => first_page == 0,
            };
            let is_block = first_page == 0 || self.index.get(first_page - 1).copied() != first_key;
            let filter_end = filter_at + (filter_len + CHECKSUM_LEN) as u64;
            let Some(first_key) = first_key.filter(|_| is_next && is_block && filter_end <= end)
            else {
                return Err(self.damaged(offset, "the table of parts is malformed"));
            };
            let fingerprints = self.read_section(filter_at, filter_len)?;
            let filter = Filter::decode(&part[8..8 + DESCRIPTOR_LEN], fingerprints)
                .ok_or_else(|| self.damaged(filter_at, "the filter is malformed"))?;
            self.parts.push(Part { first_key, first_page, filter });
            filter_at = filter_end;
        }
        if filter_at != end || self.parts.is_empty() {
            return Err(self.damaged(filter_at, "the filters do not end where the trailer begins"));
        }
        Ok(())
    }

    /// Returns the value of a key, or its tombstone; nothing if the run does not have the key. The
    /// block is read into `room`.
    pub(crate) fn find<'r>(
        &self,
        key: u64,
        room: &'r mut Vec<u8>,
    ) -> Result<Option<Option<&'r [u8]>>> {
        let next_part = self.parts.partition_point(|part| part.first_key <= key);
        let Some(part) = next_part.checked_sub(1).map(|at| &self.parts[at]) else {
            return Ok(None);
        };
        if !part.filter.may_contain(key) {
            return Ok(None);
        }
        let end = self.parts.get(next_part).map_or(self.index.len(), |part| part.first_page);
        let Some(pages) = self.block_of(key, part.first_page..end) else { return Ok(None) };
        let offset = offset_of(pages.start);
        room.resize(pages.len() * PAGE, 0);
        self.fill(offset, room)?;
        let block: &'r [u8] = room;
        let mut reader = self.open_block(block, pages.start)?;
        while let Some(entry) =
            reader.next(block).map_err(|_| self.damaged(offset, "the block is malformed"))?
        {
            if entry.key >= key {
                let is_found = entry.key == key;
                return Ok(is_found.then_some(entry.value.map(|value| &block[value])));
            }
        }
        Ok(None)
    }

    /// Returns the pages of the last block within `pages` that begins with `key` or a key below it.
    pub(crate) fn block_of(&self, key: u64, pages: Range<usize>) -> Option<Range<usize>> {
        let index = &self.index[pages.clone()];
        let end = index.partition_point(|first| *first <= key);
        let first = index.get(end.checked_sub(1)?)?;
        let start = index[..end].partition_point(|key| key < first);
        Some(pages.start + start..pages.start + end)
    }

    /// Returns the pages of the block that begins at `page`.
    pub(crate) fn block_at(&self, page: usize) -> Range<usize> {
        let rest = self.index.get(page..).unwrap_or_default();
        page..page + rest.iter().take_while(|key| Some(*key) == rest.first()).count()
    }

    /// Checks the block that begins at `page`.
    pub(crate) fn open_block(&self, block: &[u8], page: usize) -> Result<BlockReader> {
        let offset = offset_of(page);
        BlockReader::open(block, self.id.nonce, offset, self.index[page])
            .map_err(|_| self.damaged(offset, "the checksum of the block is wrong"))
    }

    /// Fills `bytes` from the file.
    pub(crate) fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read =
            read_full_at(&*self.file, bytes, offset).map_err(Error::io("read", &self.path))?;
        if read < bytes.len() { Err(self.damaged(offset, "the file is cut")) } else { Ok(()) }
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.fill(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads `len` bytes that have a checksum after them.
    fn read_section(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = self.read(offset, len + CHECKSUM_LEN)?;
        if checked(self.id.nonce, offset, &bytes).is_none() {
            return Err(self.damaged(offset, "a checksum is wrong"));
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Returns the part of all keys, as far as the index tells; none if there is none.
    pub(crate) fn part(&self) -> Option<usize> {
        let (first, last) = (self.index.first()?, self.index.last()?);
        Some(part_of(*first)).filter(|part| *part == part_of(*last))
    }

    pub(crate) fn damaged(&self, offset: u64, what: &'static str) -> Error {
        Error::damaged(&self.path, offset, what)
    }

    /// The bytes of index and filters in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let parts: usize = self
            .parts
            .iter()
            .map(|part| size_of::<Part>() + part.filter.fingerprints().len())
            .sum();
        self.index.len() * 8 + parts
    }
}

/// The offset of a page of blocks, which come after the header page.
pub(crate) fn offset_of(page: usize) -> u64 {
    (page as u64 + 1) * PAGE as u64
}
