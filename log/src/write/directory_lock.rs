//! The writer's lock on its directory, and the detection of a deleted or replaced directory.
//!
//! Owns: the lock while a log is open, and taking the directory again after it was deleted.
//!
//! Invariant: it never takes a directory with another store or another writer's segments.
//!
//! Must not know: records, queues, when to check.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::lock::{Guard, LOCK, acquire};
use crate::directory::reserve;
use crate::error::Error;
use crate::format::parse_segment_name;
use crate::fs::{Fs, create_dir_durably};
use crate::read::catalog::Catalog;

/// A directory that this process may write to.
#[derive(Debug)]
pub(crate) struct OwnedDir {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    lock: Guard,
}

/// The identity of the log in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreIdentity {
    pub(crate) store: [u8; 16],
    pub(crate) epoch: u64,
}

impl OwnedDir {
    /// Takes the directory; creates it if it does not exist.
    pub(crate) fn take(fs: Arc<dyn Fs>, dir: &Path) -> Result<Self, Error> {
        create_durably(&*fs, dir)?;
        let lock = acquire(&*fs, dir, LOCK)?;
        Ok(Self { fs, dir: dir.to_owned(), lock })
    }

    /// Returns whether the lock file is still the locked one. If the system cannot say, returns
    /// true; a later write then shows any failure.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.is_at(&self.dir.join(LOCK)).unwrap_or(true)
    }

    /// Returns the identity of the log in the directory; none without segments and manifests.
    pub(crate) fn identity(&self) -> Result<Option<StoreIdentity>, Error> {
        let catalog = Catalog::read(&*self.fs, &self.dir)?;
        Ok(catalog.store.map(|store| StoreIdentity { store, epoch: catalog.epoch_max }))
    }

    /// Takes the directory again unless it holds another log than `own`; creates it if it does not
    /// exist.
    pub(crate) fn retake(&mut self, own: StoreIdentity) -> Result<(), Error> {
        if !self.is_held() {
            let again = Self::take(self.fs.clone(), &self.dir)?;
            again.refuse_others(own)?;
            self.lock = again.lock;
            reserve::keep(&*self.fs, &self.dir);
        }
        self.refuse_others(own)
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn refuse_others(&self, own: StoreIdentity) -> Result<(), Error> {
        match self.identity()? {
            // A later epoch is that of a writer which opened the log while nobody held its lock.
            Some(identity) if identity.store != own.store || identity.epoch > own.epoch => {
                Err(Error::TakenOver { dir: self.dir.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Makes a log's directory durably unless it exists.
pub(crate) fn create_durably(fs: &dyn Fs, dir: &Path) -> Result<(), Error> {
    create_dir_durably(fs, dir, |name| parse_segment_name(name).is_some())
        .map_err(|(action, path, e)| Error::io(action, path, e))
}
