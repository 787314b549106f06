//! The folders of the data directory in which evidence that leaves memory is kept.
//!
//! Owns: the folders, and the thread that merges the files of one.
//!
//! Invariants: the folder of a process counts as empty at first, because the log fills it again, or
//! a checkpoint from another folder does. Nobody who records, decides or starts waits for a merge
//! or for the removal of files.
//!
//! Must not know: which entries leave memory, and when a checkpoint fits.

use std::any::Any;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use fetchwise_cold::{ColdOptions, ColdStore, Error as ColdError};
use fetchwise_log::{Error as LogError, Throttle, lower_thread_priority};

use super::cold_entry::{decode_entry, encode_entry};
use super::error::JournalError;
use super::fetcher_numbers::FetcherNumbers;
use super::store_health::{Operation, StoreHealth};
use super::write::Journal;
use crate::evidence::cold_tier::ColdTier;
use crate::evidence::{Entry, Learned};
use crate::selector::SelectorBuilder;

/// Folder of a process that records.
const FOLDER: &str = "cold";
/// Folder of the last checkpoint.
const CHECKPOINT_FOLDER: &str = "cold-checkpoint";
/// Folder of maintenance, while it works.
const MAINTENANCE_FOLDER: &str = "cold-maintenance";
/// Folders of checks, which run without a lock: with a number behind it, the first that is free.
const CHECK_FOLDER: &str = "cold-verify";
const MAX_CHECKS: u32 = 16;
/// Bytes of a buffer for each entry that is written before the thread looks for buffers to write
/// and files to merge: fewer than fill a buffer.
const BUFFER_BYTES_PER_STEP: usize = 256;
/// Bytes of a buffer for each key in memory. Four buffers then take about half of what the keys do,
/// at most.
const BUFFER_BYTES_PER_KEY: usize = 64;
const BUFFER_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;
/// Longest wait for the process before: it may have closed its journal a moment earlier than this
/// folder.
const LOCKED_FOR: Duration = Duration::from_secs(5);
/// Wait before files that could not be written are tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl SelectorBuilder {
    /// Keeps the evidence that [`max_keys`](SelectorBuilder::max_keys) evicts on disk, in the
    /// folder `cold` of the journal's directory. Without this it is forgotten. Load the journal
    /// into the selector afterwards: the folder is emptied, and the load fills it again, from the
    /// last [checkpoint](super::maintenance::checkpoint()) if there is one.
    /// [`journal`](SelectorBuilder::journal) does both.
    ///
    /// Without a limit on keys it does nothing.
    #[must_use]
    pub fn keep_evicted(self, journal: &Journal) -> Self {
        let (dir, health) = (journal.dir().to_owned(), Arc::clone(journal.store_health()));
        self.opened_by(move |selector| Ok(keep_evicted(&dir, selector.learned(), &health)?))
    }
}

/// Keeps what `learned` evicts in the data directory `dir`, whose journal this process has open.
/// `health` is told what fails.
pub(super) fn keep_evicted(
    dir: &Path,
    learned: &Learned,
    health: &Arc<StoreHealth>,
) -> Result<(), JournalError> {
    keep_in(&dir.join(FOLDER), learned, health)
}

/// The folder of a maintenance command, which is removed at its end.
#[derive(Debug)]
pub(super) struct MaintenanceFolder(PathBuf);

impl MaintenanceFolder {
    /// Keeps what `learned` evicts in a folder of the data directory `dir`, whose lock for
    /// maintenance is held.
    pub(super) fn keep_evicted(dir: &Path, learned: &Learned) -> Result<Self, JournalError> {
        let folder = Self(dir.join(MAINTENANCE_FOLDER));
        keep_in(&folder.0, learned, &Arc::default())?;
        Ok(folder)
    }

    /// Keeps what `learned` evicts in a folder of the data directory `dir` that no other process
    /// uses. No lock is held.
    pub(super) fn for_check(dir: &Path, learned: &Learned) -> Result<Self, JournalError> {
        let options = options(learned.max_keys().unwrap_or(usize::MAX));
        let mut number = 0;
        loop {
            let folder = dir.join(format!("{CHECK_FOLDER}-{number}"));
            match ColdStore::open_empty(&folder, options.clone()) {
                Err(ColdError::Locked { .. }) if number < MAX_CHECKS => number += 1,
                opened => {
                    let store = opened.map_err(unusable)?;
                    let folder = Self(folder);
                    keep_in_scratch(store, &options, learned, &Arc::default())?;
                    return Ok(folder);
                }
            }
        }
    }
}

impl Drop for MaintenanceFolder {
    fn drop(&mut self) {
        // What stays is emptied by the next command. The files that are still open need no name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn keep_in(dir: &Path, learned: &Learned, health: &Arc<StoreHealth>) -> Result<(), JournalError> {
    let Some(max_keys) = learned.max_keys() else { return Ok(()) };
    let options = options(max_keys);
    // What a process that was killed has left is removed by the thread that merges: it may be
    // gigabytes.
    let store = unless_locked(|| ColdStore::open_empty(dir, options.clone())).map_err(unusable)?;
    keep_in_scratch(store, &options, learned, health)
}

/// Keeps what `learned` evicts in an empty store.
fn keep_in_scratch(
    store: ColdStore,
    options: &ColdOptions,
    learned: &Learned,
    health: &Arc<StoreHealth>,
) -> Result<(), JournalError> {
    let tier = StoreTier::start(store, options, true, Arc::clone(health)).map_err(unusable)?;
    learned.evidence.keep_evicted_in(Box::new(tier));
    Ok(())
}

/// Returns the folder of the checkpoint of the data directory `dir`.
pub(super) fn checkpoint_folder(dir: &Path) -> PathBuf {
    dir.join(CHECKPOINT_FOLDER)
}

/// Opens the store of the checkpoint of the data directory `dir`. Waits for a process that is about
/// to close it.
pub(super) fn open_checkpoint(dir: &Path) -> Result<ColdStore, ColdError> {
    unless_locked(|| ColdStore::open(&checkpoint_folder(dir), ColdOptions::default()))
}

/// Keeps what `learned` evicts in the store of a checkpoint, which has the entries of `inherited`
/// keys.
pub(super) fn keep_in_checkpoint(
    store: ColdStore,
    learned: &Learned,
    fetchers: FetcherNumbers,
    inherited: u64,
) -> Result<(), JournalError> {
    let tier = StoreTier::start(store, &ColdOptions::default(), false, Arc::default())
        .map_err(unusable)?;
    let _ = tier.fetchers.set(fetchers);
    learned.evidence.keep_evicted_in(Box::new(tier));
    learned.evidence.inherit(inherited);
    Ok(())
}

/// Returns the error of a folder that cannot be used.
pub(super) fn unusable(error: ColdError) -> JournalError {
    JournalError::Evicted(Arc::new(error))
}

fn options(max_keys: usize) -> ColdOptions {
    let mut options = ColdOptions::default();
    let bytes = max_keys.saturating_mul(BUFFER_BYTES_PER_KEY);
    options.buffer_bytes = bytes.clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end());
    options
}

/// Opens a store, and waits for one that is about to be closed.
fn unless_locked(open: impl Fn() -> Result<ColdStore, ColdError>) -> Result<ColdStore, ColdError> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(ColdError::Locked { .. }) if begun.elapsed() < LOCKED_FOR => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
}

/// A store of entries, with the thread that merges its files.
#[derive(Debug)]
pub(super) struct StoreTier {
    store: Arc<ColdStore>,
    /// The numbers of fetchers in the store, if they are not the ids of this process.
    fetchers: OnceLock<FetcherNumbers>,
    written: AtomicU64,
    /// Number of entries after which the thread is woken.
    entries_per_step: u64,
    health: Arc<StoreHealth>,
    /// Whether nobody needs the entries at the end.
    is_scratch: bool,
    /// Wakes the thread; none at the end.
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreTier {
    fn start(
        store: ColdStore,
        options: &ColdOptions,
        is_scratch: bool,
        health: Arc<StoreHealth>,
    ) -> Result<Self, ColdError> {
        let entries_per_step = (options.buffer_bytes / BUFFER_BYTES_PER_STEP) as u64;
        let (store, (wake, woken)) = (Arc::new(store), sync_channel(1));
        let merged = (Arc::clone(&store), Arc::clone(&health));
        let thread = Builder::new()
            .name("fetchwise-cold".to_owned())
            .spawn(move || merge((&merged.0, &merged.1), &woken));
        let thread = thread.map_err(|source| ColdError::Io {
            action: "start a thread for",
            path: PathBuf::from(FOLDER),
            source,
        })?;
        let written = AtomicU64::new(0);
        // There may be files of an earlier process to remove.
        let _ = wake.try_send(());
        let (wake, thread) = (Some(wake), Some(thread));
        Ok(Self {
            store,
            fetchers: OnceLock::new(),
            written,
            entries_per_step,
            health,
            is_scratch,
            wake,
            thread,
        })
    }

    /// Begins with the entries of a checkpoint. Its store may be closed afterwards.
    pub(super) fn adopt(&self, checkpoint: &ColdStore, fetchers: FetcherNumbers) {
        self.store.adopt(checkpoint);
        let _ = self.fetchers.set(fetchers);
    }

    /// Returns the numbers of fetchers in the store.
    pub(super) fn fetchers(&self) -> &FetcherNumbers {
        self.fetchers.get_or_init(FetcherNumbers::default)
    }

    /// Makes what was put until now durable, under this tag. Then merges what is due: the
    /// checkpoint goes on with the merged files, so that the former ones can go one by one.
    pub(super) fn checkpoint(
        &self,
        tag: &[u8],
        throttle: Option<&Throttle>,
    ) -> Result<(), JournalError> {
        self.store.checkpoint(tag).map_err(unusable)?;
        while self.store.maintain().map_err(unusable)? {
            if throttle.is_some_and(|throttle| !throttle.checkpoint()) {
                return Err(LogError::Stopped.into());
            }
        }
        Ok(())
    }

    /// Takes note of a failure, and reports the first of several.
    fn failed(&self, what: Operation, error: ColdError) -> io::Error {
        report(&self.health, what, &error);
        io::Error::other(error)
    }
}

fn report(health: &StoreHealth, what: Operation, error: &ColdError) {
    if health.failed(what, error) {
        crate::trace::cold_tier_failed(what.name(), error);
    }
}

/// Merges files whenever it is woken. After a failure it tries again by itself.
fn merge((store, health): (&ColdStore, &StoreHealth), woken: &Receiver<()>) {
    lower_thread_priority();
    let mut is_failing = false;
    loop {
        let waited = if is_failing {
            match woken.recv_timeout(RETRY_AFTER) {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(()) | Err(RecvTimeoutError::Timeout) => Ok(()),
            }
        } else {
            woken.recv()
        };
        if waited.is_err() {
            return;
        }
        is_failing = false;
        loop {
            match store.maintain() {
                Ok(true) => {}
                Ok(false) => {
                    health.succeeded(Operation::Merge);
                    health.succeeded(Operation::Write);
                    break;
                }
                Err(error) => {
                    // Entries that no longer fit into memory are counted by who writes them.
                    report(health, Operation::Merge, &error);
                    is_failing = true;
                    break;
                }
            }
        }
    }
}

impl Drop for StoreTier {
    fn drop(&mut self) {
        drop(self.wake.take());
        // A thread that panicked has nothing to say here.
        let _ = self.thread.take().map(JoinHandle::join);
        if self.is_scratch {
            // To remove large files takes a while. The next start should not have to.
            self.store.clear();
        }
    }
}

impl ColdTier for StoreTier {
    fn put(&self, key: u64, entry: &Entry) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(128);
        if !encode_entry(entry, self.fetchers(), &mut bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a weight is not finite"));
        }
        self.store.put(key, &bytes).map_err(|error| self.failed(Operation::Write, error))?;
        self.health.succeeded(Operation::Write);
        // Relaxed: a count that nothing else depends on.
        if self.written.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.entries_per_step)
            && let Some(wake) = &self.wake
        {
            // Fails if it is woken already.
            let _ = wake.try_send(());
        }
        Ok(())
    }

    fn get(&self, key: u64) -> io::Result<Option<Entry>> {
        let decode = |bytes: &[u8]| decode_entry(bytes, self.fetchers());
        let found =
            self.store.get(key, decode).map_err(|error| self.failed(Operation::Read, error))?;
        self.health.succeeded(Operation::Read);
        found.map(|entry| entry.ok_or_else(no_entry)).transpose()
    }

    fn each_sorted(&self, f: &mut dyn FnMut(u64, Entry) -> ControlFlow<()>) -> io::Result<()> {
        let read = self.store.for_each_sorted(0..=u64::MAX, |key, bytes| {
            let entry = decode_entry(bytes, self.fetchers());
            match f(key, entry.ok_or_else(|| ReadEnd::Failed(no_entry()))?) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(ReadEnd::Stopped),
            }
        });
        match read {
            Ok(()) | Err(ReadEnd::Stopped) => Ok(()),
            Err(ReadEnd::Failed(error)) => Err(error),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Why an iteration ended early.
enum ReadEnd {
    Stopped,
    Failed(io::Error),
}

impl From<ColdError> for ReadEnd {
    fn from(error: ColdError) -> Self {
        Self::Failed(io::Error::other(error))
    }
}

fn no_entry() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "these bytes are no entry")
}
