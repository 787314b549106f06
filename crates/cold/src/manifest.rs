//! The manifest: the runs of the last checkpoint, and its tag.
//!
//! Owns: its bytes, and its replacement.
//!
//! Invariant: a published manifest is complete, so one with a wrong checksum is damage.
//!
//! Must not know: what is in a run.

use std::io::ErrorKind;
use std::path::Path;

use fetchwise_log::fs::{Fs, SyncSite, publish, read_full_at};

use crate::dir_syncs::DirSyncs;
use crate::error::{Error, Result};
use crate::fields::{checksum, u16_at, u32_at, u64_at};
use crate::run::RunId;
use crate::run_format::{CHECKSUM_LEN, HeaderError, MAJOR, check_start};

/// The name of the manifest.
pub(crate) const MANIFEST: &str = "MANIFEST";
/// The longest tag.
pub const MAX_TAG_LEN: usize = 64 << 10;

const MAGIC: [u8; 8] = *b"\x89FWD\r\n\x1a\n";
const HEAD: usize = 24;
const RUN_LEN: usize = 24;
/// More runs than this there never are.
const MAX_RUNS: usize = 1 << 16;

/// A checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) tag: Vec<u8>,
    /// Those of parts, then the young ones, each from the oldest to the newest.
    pub(crate) runs: Vec<RunId>,
    /// The number of runs that are young.
    pub(crate) young: u16,
}

impl Manifest {
    /// Reads the manifest; none before the first checkpoint.
    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(MANIFEST);
        let file = match fs.open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open", &path))?,
        };
        let len = file.len().map_err(Error::io("read", &path))?;
        let longest = HEAD + MAX_TAG_LEN + MAX_RUNS * RUN_LEN + CHECKSUM_LEN;
        let mut bytes = vec![0; longest.min(usize::try_from(len).unwrap_or(usize::MAX))];
        let read = read_full_at(&*file, &mut bytes, 0).map_err(Error::io("read", &path))?;
        bytes.truncate(read);
        match Self::decode(&bytes) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(HeaderError::Newer(found)) => Err(Error::NewerFormat { file: path, found }),
            Err(HeaderError::Malformed) => {
                Err(Error::damaged(&path, 0, "the manifest is malformed"))
            }
        }
    }

    /// Replaces the manifest durably. After an error it may be either of the two.
    pub(crate) fn publish(&self, fs: &dyn Fs, dir_syncs: &DirSyncs, dir: &Path) -> Result<()> {
        let sites = [SyncSite::SnapshotManifest, SyncSite::SnapshotManifestDir];
        let (bytes, made_at) = (self.encode(), dir_syncs.failed());
        dir_syncs
            .sync(made_at, || publish(fs, dir, MANIFEST, &bytes, sites))
            .map_err(Error::io("write", &dir.join(MANIFEST)))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&MAJOR.to_le_bytes());
        out.extend_from_slice(&self.young.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.tag.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.tag);
        for run in &self.runs {
            [run.number, run.nonce, run.len]
                .iter()
                .for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
        }
        let crc = checksum(0, 0, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Self, HeaderError> {
        let body = check_start(&MAGIC, bytes)?;
        let young = u16_at(body, 10);
        let (runs, tag) = (u32_at(body, 16) as usize, u32_at(body, 20) as usize);
        let parts = body.get(HEAD..).and_then(|rest| rest.split_at_checked(tag));
        let (tag, table) = parts
            .filter(|(_, table)| runs.checked_mul(RUN_LEN) == Some(table.len()))
            .filter(|_| usize::from(young) <= runs)
            .ok_or(HeaderError::Malformed)?;
        let run_id = |run: &[u8]| RunId {
            number: u64_at(run, 0),
            nonce: u64_at(run, 8),
            len: u64_at(run, 16),
        };
        let runs = table.chunks_exact(RUN_LEN).map(run_id).collect();
        Ok(Self { tag: tag.to_vec(), runs, young })
    }
}
