//! A temporary file that grows at its end and is read anywhere: what does not fit into memory
//! during a run.
//!
//! Invariants: the file has no name, so nothing is left over after a crash. A short run needs no
//! file. If the file cannot be written, the records stay in memory. What was appended can be read
//! at once.
//!
//! Must not know: what a record is.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::positioned_io;

/// The number of bytes in memory at which they are written to the file.
const TAIL_BYTES: usize = 256 << 10;
/// The length of a record's length.
const HEAD: usize = 4;

/// Records by their offset.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    state: Mutex<SpoolState>,
}

#[derive(Debug, Default)]
struct SpoolState {
    file: Option<File>,
    /// The number of bytes in the file.
    written: u64,
    /// The bytes after those of the file.
    tail: Vec<u8>,
    /// The length of the tail at which it is written. It grows while writing fails.
    write_at: usize,
}

impl Spool {
    /// Returns an empty spool whose file will be in `dir`.
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), state: Mutex::default() }
    }

    /// Appends a record of less than 4 GiB and returns its offset.
    pub(super) fn append(&self, record: &[&[u8]]) -> u64 {
        let mut state = self.state();
        let offset = state.written + state.tail.len() as u64;
        let len: usize = record.iter().map(|part| part.len()).sum();
        state.tail.extend_from_slice(&(len as u32).to_le_bytes());
        record.iter().for_each(|part| state.tail.extend_from_slice(part));
        if state.tail.len() >= state.write_at.max(TAIL_BYTES) {
            match state.write(&self.dir) {
                Ok(()) => state.write_at = 0,
                Err(_) => state.write_at = state.tail.len() * 2,
            }
        }
        offset
    }

    /// Reads the record at `offset`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(&self, offset: u64) -> io::Result<Vec<u8>> {
        let state = self.state();
        let mut head = [0; HEAD];
        state.read(offset, &mut head)?;
        let mut record = vec![0; u32::from_le_bytes(head) as usize];
        state.read(offset + HEAD as u64, &mut record)?;
        Ok(record)
    }

    fn state(&self) -> MutexGuard<'_, SpoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpoolState {
    fn write(&mut self, dir: &Path) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(dir)?,
        };
        let written = positioned_io::write_all(&file, &self.tail, self.written);
        self.file = Some(file);
        written?;
        self.written += self.tail.len() as u64;
        self.tail.clear();
        // A tail that grew while writing failed gives its memory back.
        self.tail.shrink_to(TAIL_BYTES * 2);
        Ok(())
    }

    /// Fills `bytes` from `offset`. A record is either in the file or in the tail.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match (offset.checked_sub(self.written), &self.file) {
            (Some(at), _) => {
                let at = usize::try_from(at).map_err(io::Error::other)?;
                let end = at.checked_add(bytes.len());
                let found = end
                    .and_then(|end| self.tail.get(at..end))
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                bytes.copy_from_slice(found);
                Ok(())
            }
            (None, Some(file)) => match positioned_io::read_up_to(file, bytes, offset)? {
                count if count == bytes.len() => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            },
            (None, None) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(spool: &Spool, count: usize) -> Vec<(u64, Vec<u8>)> {
        let record = |n: usize| vec![n as u8; n % 3_000];
        (0..count)
            .map(|n| (spool.append(&[b"kind", &record(n)]), [b"kind", &record(n)[..]].concat()))
            .collect()
    }

    #[test]
    fn records_are_read_from_memory_and_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path());
        let few = records(&spool, 10);
        assert!(spool.state().file.is_none(), "a short run needs no file");
        let many = records(&spool, 1_000);
        assert!(spool.state().file.is_some() && spool.state().tail.len() < TAIL_BYTES);
        for (offset, record) in few.iter().chain(&many) {
            assert_eq!(spool.read(*offset).unwrap(), *record);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
        assert!(spool.read(many.last().unwrap().0 + 100_000).is_err());
    }

    #[test]
    fn without_a_file_the_records_stay_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(&dir.path().join("missing"));
        for (offset, record) in records(&spool, 1_000) {
            assert_eq!(spool.read(offset).unwrap(), record);
        }
    }
}
