//! The two manifests, `SEGMENTS` and `SNAPSHOT`, and the publication of small files.
//!
//! Owns: their bytes.
//!
//! Invariant: a published manifest is complete, so one with a wrong checksum is damage.
//!
//! Must not know: when they are due.

use std::io;
use std::path::Path;

use crate::error::Error;
use crate::format::{FieldReader, FieldWriter, MAJOR, MINOR, is_sealed, seal_bytes, snapshot_name};
use crate::fs::{self, Fs, SyncSite, read_full_at};

/// Name of the writer's manifest.
pub(crate) const SEGMENTS: &str = "SEGMENTS";
/// Name of the maintenance manifest.
pub(crate) const SNAPSHOT: &str = "SNAPSHOT";

const MAGIC: [u8; 8] = *b"\x89FWM\r\n\x1a\n";
const LEN: usize = 128;

/// A lower bound for the end of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentsManifest {
    /// The store's UUID.
    pub(crate) store: [u8; 16],
    /// A counter of publications.
    pub(crate) generation: u64,
    /// The writer's epoch.
    pub(crate) epoch: u64,
    /// Number of the last segment.
    pub(crate) number: u32,
    /// Its first sequence number.
    pub(crate) first_seq: u64,
    /// The offset up to which it is known durable.
    pub(crate) durable_off: u64,
    /// The last sequence number known durable.
    pub(crate) durable_seq: u64,
}

/// A snapshot as named by `SNAPSHOT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotRef {
    /// It holds what the records up to here taught.
    pub(crate) covers_seq: u64,
    /// Length of the file.
    pub(crate) len: u64,
    /// xxh3_128 as in the file's footer.
    pub(crate) hash: [u8; 16],
    /// The manifest generation that first named it; part of the file's name.
    pub(crate) generation: u32,
}

impl SnapshotRef {
    /// The file's name.
    pub(crate) fn file_name(&self) -> String {
        snapshot_name(self.covers_seq, self.generation)
    }
}

/// The valid snapshots, and the sequence number below which segments may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotManifest {
    /// The store's UUID.
    pub(crate) store: [u8; 16],
    /// A counter of publications.
    pub(crate) generation: u64,
    /// Records up to here may be gone from the segments.
    pub(crate) floor_seq: u64,
    /// The newest snapshot.
    pub(crate) current: Option<SnapshotRef>,
    /// The one before it.
    pub(crate) previous: Option<SnapshotRef>,
}

/// The reason why a manifest cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ManifestError {
    Bad,
    Newer(String),
}

impl SegmentsManifest {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        let mut w = start(&mut out, 1, &self.store, self.generation);
        w.u64(self.epoch)
            .u32(self.number)
            .u32(0)
            .u64(self.first_seq)
            .u64(self.durable_off)
            .u64(self.durable_seq);
        seal_bytes(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (mut r, store, generation) = check(bytes, 1)?;
        let epoch = r.u64();
        let number = r.u32();
        r.u32();
        let (first_seq, durable_off, durable_seq) = (r.u64(), r.u64(), r.u64());
        Ok(Self { store, generation, epoch, number, first_seq, durable_off, durable_seq })
    }
}

impl SnapshotManifest {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        let mut w = start(&mut out, 2, &self.store, self.generation);
        w.u64(self.floor_seq);
        for snapshot in [self.current, self.previous] {
            let snapshot = snapshot.unwrap_or_default();
            w.u64(snapshot.covers_seq).u64(snapshot.len).put(&snapshot.hash);
        }
        for snapshot in [self.current, self.previous] {
            w.u32(snapshot.unwrap_or_default().generation);
        }
        seal_bytes(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (mut r, store, generation) = check(bytes, 2)?;
        let floor_seq = r.u64();
        let mut snapshot =
            || SnapshotRef { covers_seq: r.u64(), len: r.u64(), hash: r.bytes16(), generation: 0 };
        let named = [snapshot(), snapshot()];
        let [current, previous] = named.map(|snapshot| {
            let snapshot = SnapshotRef { generation: r.u32(), ..snapshot };
            (snapshot.covers_seq > 0).then_some(snapshot)
        });
        Ok(Self { store, generation, floor_seq, current, previous })
    }
}

fn start<'a>(
    out: &'a mut [u8; LEN],
    kind: u32,
    store: &[u8; 16],
    generation: u64,
) -> FieldWriter<'a> {
    let mut w = FieldWriter { bytes: out, at: 0 };
    w.put(&MAGIC)
        .put(&MAJOR.to_le_bytes())
        .put(&MINOR.to_le_bytes())
        .u32(kind)
        .put(store)
        .u64(generation);
    w
}

fn check(bytes: &[u8], kind: u32) -> Result<(FieldReader<'_>, [u8; 16], u64), ManifestError> {
    let bytes = bytes.get(..LEN).ok_or(ManifestError::Bad)?;
    if bytes[..8] != MAGIC || !is_sealed(bytes) {
        return Err(ManifestError::Bad);
    }
    let mut r = FieldReader { bytes, at: 8 };
    let major = r.u16();
    if major > MAJOR {
        return Err(ManifestError::Newer(format!("major version {major}")));
    }
    r.u16();
    if r.u32() != kind {
        return Err(ManifestError::Bad);
    }
    let store = r.bytes16();
    let generation = r.u64();
    Ok((r, store, generation))
}

/// Reads a whole small file; `None` if it does not exist.
pub(crate) fn read_small(fs: &dyn Fs, path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let file = match fs.open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let mut bytes = vec![0; LEN];
    let read = read_full_at(&*file, &mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Publishes a small file under `name`. On success it is durable; on an error the old one may still
/// be valid.
pub(crate) fn publish(
    fs: &dyn Fs,
    dir: &Path,
    name: &str,
    bytes: &[u8],
    sites: [SyncSite; 2],
) -> Result<(), Error> {
    fs::publish(fs, dir, name, bytes, sites).map_err(|e| Error::io("write", &dir.join(name), e))
}
