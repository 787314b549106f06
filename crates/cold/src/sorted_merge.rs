//! Entries of several buffers and runs in one order.
//!
//! Owns: the position in each source, and which source goes first.
//!
//! Invariants: keys ascend; of the entries of one key the one from the newest source counts; memory
//! is bounded.
//!
//! Must not know: what becomes of the entries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use crate::block::{BlockReader, PAGE};
use crate::buffer::{Buffer, BufferedValue};
use crate::error::Result;
use crate::run::{Run, offset_of};

/// The pages of a run that are read at once.
const PAGES_AHEAD: usize = 32;

/// The position in a buffer.
#[derive(Debug)]
pub(crate) struct BufferCursor {
    buffer: Arc<Buffer>,
    current: Option<(u64, BufferedValue)>,
}

impl BufferCursor {
    fn move_to(&mut self, key: Option<u64>) {
        self.current =
            key.and_then(|key| self.buffer.from(key)).map(|(key, value)| (key, value.clone()));
    }
}

/// The position in a run.
#[derive(Debug)]
pub(crate) struct RunCursor {
    run: Arc<Run>,
    chunk: Vec<u8>,
    chunk_page: usize,
    /// The pages of the current block.
    block: Range<usize>,
    reader: Option<BlockReader>,
    current: Option<(u64, Option<Range<usize>>)>,
}

impl RunCursor {
    fn new(run: Arc<Run>, key: u64) -> Result<Self> {
        let block = run.block_of(key, 0..run.index.len()).unwrap_or(0..0);
        // The block before the first one that is read.
        let block = block.start..block.start;
        let mut cursor =
            Self { run, chunk: Vec::new(), chunk_page: 0, block, reader: None, current: None };
        cursor.advance()?;
        while cursor.current.as_ref().is_some_and(|(current, _)| *current < key) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    fn block_bytes(&self) -> &[u8] {
        let start = (self.block.start - self.chunk_page) * PAGE;
        self.chunk.get(start..start + self.block.len() * PAGE).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        loop {
            let mut reader = self.reader.take();
            let next = reader.as_mut().map_or(Ok(None), |reader| reader.next(self.block_bytes()));
            let next = next.map_err(|_| {
                self.run.damaged(offset_of(self.block.start), "the block is malformed")
            })?;
            if let Some(entry) = next {
                if self.current.as_ref().is_some_and(|(last, _)| *last >= entry.key) {
                    return Err(self
                        .run
                        .damaged(offset_of(self.block.start), "the keys do not ascend"));
                }
                (self.reader, self.current) = (reader, Some((entry.key, entry.value)));
                return Ok(());
            }
            if self.block.end >= self.run.index.len() {
                self.current = None;
                return Ok(());
            }
            self.read_block(self.block.end)?;
        }
    }

    fn read_block(&mut self, page: usize) -> Result<()> {
        self.block = self.run.block_at(page);
        let chunk_end = self.chunk_page + self.chunk.len() / PAGE;
        if self.block.start < self.chunk_page || self.block.end > chunk_end {
            let pages = PAGES_AHEAD.min(self.run.index.len() - page).max(self.block.len());
            self.chunk.resize(pages * PAGE, 0);
            self.chunk_page = page;
            let filled = self.run.fill(offset_of(page), &mut self.chunk);
            if filled.is_err() {
                self.chunk.clear();
            }
            filled?;
        }
        self.reader = Some(self.run.open_block(self.block_bytes(), page)?);
        Ok(())
    }
}

/// A source of entries.
#[derive(Debug)]
pub(crate) enum Source {
    Buffer(BufferCursor),
    Run(Box<RunCursor>),
}

impl Source {
    /// The entries of a buffer from `key` on.
    pub(crate) fn buffer(buffer: Arc<Buffer>, key: u64) -> Self {
        let mut cursor = BufferCursor { buffer, current: None };
        cursor.move_to(Some(key));
        Self::Buffer(cursor)
    }

    /// The entries of a run from `key` on.
    pub(crate) fn run(run: Arc<Run>, key: u64) -> Result<Self> {
        Ok(Self::Run(Box::new(RunCursor::new(run, key)?)))
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Buffer(cursor) => {
                let next = cursor.current.as_ref().and_then(|(key, _)| key.checked_add(1));
                cursor.move_to(next);
                Ok(())
            }
            Self::Run(cursor) => cursor.advance(),
        }
    }

    fn key(&self) -> Option<u64> {
        match self {
            Self::Buffer(cursor) => cursor.current.as_ref().map(|(key, _)| *key),
            Self::Run(cursor) => cursor.current.as_ref().map(|(key, _)| *key),
        }
    }

    /// The value of the current entry; none if it is a tombstone.
    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Buffer(cursor) => cursor.current.as_ref()?.1.as_deref(),
            Self::Run(cursor) => {
                let value = cursor.current.as_ref()?.1.clone()?;
                cursor.block_bytes().get(value)
            }
        }
    }
}

/// A key, and its value or nothing for a tombstone.
pub(crate) type Entry<'a> = (u64, Option<&'a [u8]>);

/// The merged entries of some sources.
#[derive(Debug)]
pub(crate) struct SortedMerge {
    /// The newest first.
    sources: Vec<Source>,
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    current: Option<usize>,
}

impl SortedMerge {
    /// Merges sources, the newest first.
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        let heads = sources
            .iter()
            .enumerate()
            .filter_map(|(at, source)| Some(Reverse((source.key()?, at))))
            .collect();
        Self { sources, heads, current: None }
    }

    /// Returns the next entry.
    pub(crate) fn next(&mut self) -> Result<Option<Entry<'_>>> {
        if let Some(at) = self.current.take() {
            self.advance(at)?;
        }
        let Some(Reverse((key, newest))) = self.heads.pop() else { return Ok(None) };
        while let Some(&Reverse((_, at))) =
            self.heads.peek().filter(|Reverse((head, _))| *head == key)
        {
            self.heads.pop();
            self.advance(at)?;
        }
        self.current = Some(newest);
        Ok(Some((key, self.sources[newest].value())))
    }

    fn advance(&mut self, at: usize) -> Result<()> {
        self.sources[at].advance()?;
        self.heads.extend(self.sources[at].key().map(|key| Reverse((key, at))));
        Ok(())
    }
}
