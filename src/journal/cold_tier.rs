//! The folders of the data directory in which evidence that leaves memory is kept.
//!
//! Owns: the folders, and the thread that merges the files of one.
//!
//! Invariants: a folder counts as empty at first, because the log fills it again, or a checkpoint
//! from another folder does. So any number serves, and processes that read the log take the next.
//! Nobody who records, decides or starts waits for a merge or for the removal of files.
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
use crate::evidence::cold_tier::ColdTier;
use crate::evidence::{Entry, Learned};

/// Folders of selectors and of maintenance: with a number behind it, the first that is free.
const FOLDER: &str = "cold";
const MAX_FOLDERS: u32 = 64;
/// Folder of the last checkpoint.
const CHECKPOINT_FOLDER: &str = "cold-checkpoint";
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

/// Keeps what `learned` evicts in a folder of the data directory `dir`, which goes with it.
/// `health` is told what fails.
pub(super) fn keep_evicted(
    dir: &Path,
    learned: &Learned,
    health: &Arc<StoreHealth>,
) -> Result<(), JournalError> {
    let Some(folder) = ScratchFolder::keep_evicted(dir, learned, health)? else { return Ok(()) };
    if let Some(tier) = learned.evidence.tier::<StoreTier>() {
        let _ = tier.folder.set(folder);
    }
    Ok(())
}

/// A folder that nobody needs when this is dropped, which removes it.
#[derive(Debug)]
pub(super) struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Keeps what `learned` evicts in a folder of the data directory `dir` that nobody else uses.
    /// Without a limit on keys there is none.
    pub(super) fn keep_evicted(
        dir: &Path,
        learned: &Learned,
        health: &Arc<StoreHealth>,
    ) -> Result<Option<Self>, JournalError> {
        let Some(max_keys) = learned.max_keys() else { return Ok(None) };
        let options = options(max_keys);
        let (folder, store) = Self::open_free(dir, &options).map_err(unusable)?;
        let tier = StoreTier::start(store, &options, true, Arc::clone(health)).map_err(unusable)?;
        learned.evidence.keep_evicted_in(Box::new(tier));
        Ok(Some(folder))
    }

    /// What a process that was killed has left in the folder is removed by the thread that merges:
    /// it may be gigabytes.
    fn open_free(dir: &Path, options: &ColdOptions) -> Result<(Self, ColdStore), ColdError> {
        let mut number = 0;
        loop {
            let folder = dir.join(format!("{FOLDER}-{number}"));
            match ColdStore::open_empty(&folder, options.clone()) {
                Err(ColdError::Locked { .. }) if number < MAX_FOLDERS => number += 1,
                // Its process has just removed it.
                Err(ColdError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && number < MAX_FOLDERS =>
                {
                    number += 1;
                }
                opened => return opened.map(|store| (Self(folder), store)),
            }
        }
    }

    /// Returns the folders in the data directory `dir`.
    fn all(dir: &Path) -> Vec<PathBuf> {
        let is_one = |name: &str| {
            let number = name.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('-'));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(is_one))
            .map(|entry| entry.path())
            .collect()
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What stays is emptied by the next process. The files that are still open need no name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders in the data directory `dir` that nobody has, in the background: their
/// processes were killed.
pub(super) fn remove_abandoned(dir: &Path) {
    let folders = ScratchFolder::all(dir);
    if folders.len() < 2 {
        return;
    }
    let remove = move || {
        for folder in &folders {
            // The lock is held until the folder is gone.
            if let Ok(_store) = ColdStore::open_empty(folder, ColdOptions::default()) {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
    };
    // Without a thread they stay for the next process.
    let _ = Builder::new().name("fetchwise-cold-sweep".to_owned()).spawn(remove);
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
    /// Folder that goes with the entries.
    folder: OnceLock<ScratchFolder>,
    /// The process that has the thread. One that was forked from it has a copy of the rest.
    process: u32,
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
            folder: OnceLock::new(),
            process: std::process::id(),
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

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Refuses to use the files of another process: their locks may be held by its threads.
    fn check_process(&self) -> io::Result<()> {
        match self.is_forked() {
            true => Err(io::Error::other("evidence on disk belongs to another process")),
            false => Ok(()),
        }
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
        if self.is_forked() {
            // The thread, the files and the folder are those of the other process.
            std::mem::forget((self.wake.take(), self.thread.take(), self.folder.take()));
            return;
        }
        drop(self.wake.take());
        // A thread that panicked has nothing to say here.
        let _ = self.thread.take().map(JoinHandle::join);
        if self.is_scratch {
            // To remove large files takes a while. The next start should not have to.
            self.store.clear();
            // While the lock is held: afterwards the folder may be another process's.
            drop(self.folder.take());
        }
    }
}

impl ColdTier for StoreTier {
    fn put(&self, key: u64, entry: &Entry) -> io::Result<()> {
        self.check_process()?;
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
        self.check_process()?;
        let decode = |bytes: &[u8]| decode_entry(bytes, self.fetchers());
        let found =
            self.store.get(key, decode).map_err(|error| self.failed(Operation::Read, error))?;
        self.health.succeeded(Operation::Read);
        found.map(|entry| entry.ok_or_else(no_entry)).transpose()
    }

    fn each_sorted(&self, f: &mut dyn FnMut(u64, Entry) -> ControlFlow<()>) -> io::Result<()> {
        self.check_process()?;
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
