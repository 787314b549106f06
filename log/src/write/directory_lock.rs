//! The writer's hold on its directory: the lock, and whether somebody has deleted or replaced the directory meanwhile.
//!
//! Owns: the lock while a log is open, and taking the directory anew when it is gone. Invariant: it never takes a directory in
//! which another store or another writer's segments are. Must not know: records, queues, when to look.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::lock::{Guard, LOCK, acquire};
use crate::directory::reserve;
use crate::error::Error;
use crate::fs::Fs;
use crate::read::catalog::Catalog;

/// A directory that this process may write to.
#[derive(Debug)]
pub(crate) struct Home {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    lock: Guard,
}

/// Which log a directory holds, as far as its writer can tell it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(crate) store: [u8; 16],
    pub(crate) epoch: u64,
}

impl Home {
    /// Takes the directory, which is created when there is none.
    pub(crate) fn take(fs: Arc<dyn Fs>, dir: &Path) -> Result<Self, Error> {
        fs.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
        let lock = acquire(&*fs, dir, LOCK)?;
        Ok(Self { fs, dir: dir.to_owned(), lock })
    }

    /// Whether the lock file is still the one that is locked. What the system cannot say counts as yes: then writing fails, or
    /// does not.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.is_at(&self.dir.join(LOCK)).unwrap_or(true)
    }

    /// Which log is in the directory; none when there is no segment or manifest.
    pub(crate) fn tenant(&self) -> Result<Option<Tenant>, Error> {
        let catalog = Catalog::read(&*self.fs, &self.dir)?;
        Ok(catalog.store.map(|store| Tenant { store, epoch: catalog.epoch_max }))
    }

    /// Takes the directory anew, which is created when there is none, unless another log than `own` is in it.
    pub(crate) fn retake(&mut self, own: Tenant) -> Result<(), Error> {
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

    fn refuse_others(&self, own: Tenant) -> Result<(), Error> {
        match self.tenant()? {
            // A later epoch is that of a writer which opened the log while nobody held its lock.
            Some(tenant) if tenant.store != own.store || tenant.epoch > own.epoch => {
                Err(Error::TakenOver { dir: self.dir.clone() })
            }
            _ => Ok(()),
        }
    }
}
