//! The store: buffers, runs, checkpoints.
//!
//! Owns: which buffers and runs count, in which order, and which files may be removed.
//!
//! Invariants: the state's lock is held for a few moves in memory, never for I/O; runs and full
//! buffers are never changed, so a reader that has them needs no lock; a run that a manifest on
//! disk may name is not removed. Locks are taken in the order of `merging`, `checkpointing`,
//! `writing`, the state.
//!
//! Must not know: what values mean.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fetchwise_log::fs::{Fs, LockAttempt, LockGuard, RealFs, create_dir_durably};

use crate::block::MAX_VALUE_LEN;
use crate::buffer::{Buffer, BufferedValue};
use crate::dir_syncs::DirSyncs;
use crate::error::{Error, Result};
use crate::manifest::{MANIFEST, MAX_TAG_LEN, Manifest};
use crate::run::Run;
use crate::run_format::{parse_run_name, run_name};
use crate::run_merge::RunMerge;
use crate::run_set::{DueMerge, Placed, RunSet};
use crate::run_writer::RunWriter;
use crate::sorted_merge::{SortedMerge, Source};

const LOCK: &str = "LOCK";
/// How many times the size of a buffer may wait for being written.
const WAITING_BUFFERS: usize = 3;

/// The bounds of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ColdOptions {
    /// The memory after which a buffer is full and waits for being written. Four times of it is the
    /// most that buffers take. Default: 8 MiB.
    pub buffer_bytes: usize,
    /// The bytes of entries that one step of maintenance reads. Default: 16 MiB.
    pub step_bytes: u64,
}

impl Default for ColdOptions {
    fn default() -> Self {
        Self { buffer_bytes: 8 << 20, step_bytes: 16 << 20 }
    }
}

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColdStats {
    /// The number of runs.
    pub runs: usize,
    /// The number of entries. An older value counts until a merge drops it, and so does a
    /// tombstone.
    pub entries: u64,
    /// The bytes of all runs on disk. A run that a merge has replaced does not count, though the
    /// file stays until the next checkpoint if the last one needs it.
    pub disk_bytes: u64,
    /// The bytes of indexes and filters in memory.
    pub index_bytes: usize,
    /// The bytes of entries in memory that are in no run yet.
    pub buffer_bytes: usize,
}

/// A store of bytes under 64-bit keys. See the [crate's documentation](crate).
#[derive(Debug)]
pub struct ColdStore {
    fs: Arc<dyn Fs>,
    dir_syncs: Arc<DirSyncs>,
    dir: PathBuf,
    options: ColdOptions,
    tag: Option<Vec<u8>>,
    next_number: AtomicU64,
    state: RwLock<State>,
    /// Held while buffers become a run.
    writing: Mutex<()>,
    /// Held for a step of maintenance.
    merging: Mutex<Option<MergeOfRuns>>,
    /// Held while a manifest is replaced: the one that is durable; none if it is not known to be,
    /// or names runs that the state does not have.
    checkpointing: Mutex<Option<Manifest>>,
    /// Files of earlier stores, which maintenance removes.
    leftovers: Mutex<Vec<PathBuf>>,
    _lock: Box<dyn LockGuard + Send + Sync>,
}

#[derive(Debug, Default)]
struct State {
    active: Buffer,
    /// Full buffers, from the oldest to the newest. They are newer than every run.
    full: Vec<Arc<Buffer>>,
    runs: Arc<RunSet>,
    /// The numbers of the runs that a manifest on disk may name, of this store or of the one whose
    /// runs it has adopted.
    pinned: BTreeSet<u64>,
    has_adopted: bool,
}

#[derive(Debug)]
struct MergeOfRuns {
    merge: RunMerge,
    sources: Vec<Arc<Run>>,
}

impl State {
    fn buffered(&self, key: u64) -> Option<&BufferedValue> {
        self.active.get(key).or_else(|| self.full.iter().rev().find_map(|buffer| buffer.get(key)))
    }

    fn seal_active(&mut self) {
        if self.active.len() > 0 {
            self.full.push(Arc::new(std::mem::take(&mut self.active)));
        }
    }

    fn full_bytes(&self) -> usize {
        self.full.iter().map(|buffer| buffer.bytes()).sum()
    }

    /// Replaces runs by what they were merged into; returns the files that nobody needs any more.
    fn replace(&mut self, old: &[Arc<Run>], new: Vec<Placed>) -> Vec<PathBuf> {
        Arc::make_mut(&mut self.runs).replace(old, new);
        old.iter()
            .filter(|run| !self.pinned.contains(&run.id.number))
            .map(|run| run.path.clone())
            .collect()
    }
}

impl ColdStore {
    /// Opens the store in `dir` as of its last checkpoint; creates it if there is none. Files of
    /// runs that are not in the checkpoint are removed. Only the manifest, the indexes and the
    /// filters are read.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if another store has the directory, [`Error::Damaged`] and
    /// [`Error::NewerFormat`] if a file cannot be read; then nothing is changed on disk.
    pub fn open(dir: &Path, options: ColdOptions) -> Result<Self> {
        Self::open_with(Arc::new(RealFs), dir, options)
    }

    /// As [`ColdStore::open`], on another file system.
    ///
    /// # Errors
    ///
    /// As [`ColdStore::open`].
    pub fn open_with(fs: Arc<dyn Fs>, dir: &Path, options: ColdOptions) -> Result<Self> {
        let (lock, dir_syncs) = (lock_dir(&*fs, dir)?, Arc::<DirSyncs>::default());
        let manifest = Manifest::read(&*fs, dir)?;
        let runs = open_runs(&*fs, dir, manifest.as_ref())?;
        let pinned: BTreeSet<u64> = runs.all().map(|run| run.id.number).collect();
        let (last, others) = others(&*fs, dir, &pinned)?;
        if let Some(manifest) = manifest.as_ref().filter(|_| !others.is_empty()) {
            // If the checkpoint failed at its end, a power loss could bring back the one before,
            // which needs these runs.
            manifest.publish(&*fs, &dir_syncs, dir)?;
        }
        for path in others {
            fs.remove(&path).map_err(Error::io("remove", &path))?;
        }
        let state = State { runs: Arc::new(runs), pinned, ..State::default() };
        Ok(Self {
            fs,
            dir_syncs,
            dir: dir.to_owned(),
            options,
            tag: manifest.as_ref().map(|manifest| manifest.tag.clone()),
            next_number: AtomicU64::new(last.saturating_add(1)),
            state: RwLock::new(state),
            writing: Mutex::new(()),
            merging: Mutex::new(None),
            checkpointing: Mutex::new(manifest),
            leftovers: Mutex::default(),
            _lock: lock,
        })
    }

    /// Opens a store without entries in `dir`, whatever another store has left there. Maintenance
    /// removes what it has left: that takes a while for large files. Such a store is never opened
    /// with [`open`](ColdStore::open) again, unless it has made a checkpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if another store has the directory, [`Error::Io`] if it cannot be used.
    pub fn open_empty(dir: &Path, options: ColdOptions) -> Result<Self> {
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let lock = lock_dir(&*fs, dir)?;
        let manifest = dir.join(MANIFEST);
        match fs.remove(&manifest) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", &manifest)(e));
            }
            _ => {}
        }
        let (last, leftovers) = others(&*fs, dir, &BTreeSet::new())?;
        Ok(Self {
            fs,
            dir_syncs: Arc::default(),
            dir: dir.to_owned(),
            options,
            tag: None,
            next_number: AtomicU64::new(last.saturating_add(1)),
            state: RwLock::default(),
            writing: Mutex::new(()),
            merging: Mutex::new(None),
            checkpointing: Mutex::new(None),
            leftovers: Mutex::new(leftovers),
            _lock: lock,
        })
    }

    /// The tag of the checkpoint in `dir`; none if there is no checkpoint. It takes no lock and
    /// changes nothing, and another store may replace the checkpoint meanwhile.
    ///
    /// # Errors
    ///
    /// As [`ColdStore::open`], except for the lock.
    pub fn read_tag(dir: &Path) -> Result<Option<Vec<u8>>> {
        Ok(Manifest::read(&RealFs, dir)?.map(|manifest| manifest.tag))
    }

    /// The tag of the checkpoint that was opened; none if there was no checkpoint.
    pub fn tag(&self) -> Option<&[u8]> {
        self.tag.as_deref()
    }

    /// Sets the value of a key, in memory. If maintenance does not keep up, so that three full
    /// buffers wait, the caller writes them first.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] for a value above [`MAX_VALUE_LEN`], [`Error::Io`] if waiting buffers
    /// cannot be written. Then the key has the value it had before.
    pub fn put(&self, key: u64, value: &[u8]) -> Result<()> {
        check_len("value", value.len(), MAX_VALUE_LEN)?;
        self.insert(key, Some(value.into()))
    }

    /// Removes a key, in memory.
    ///
    /// # Errors
    ///
    /// As [`ColdStore::put`].
    pub fn remove(&self, key: u64) -> Result<()> {
        self.insert(key, None)
    }

    fn insert(&self, key: u64, value: BufferedValue) -> Result<()> {
        loop {
            let mut state = self.write_state();
            if state.full_bytes() < WAITING_BUFFERS.saturating_mul(self.options.buffer_bytes.max(1))
            {
                state.active.insert(key, value);
                if state.active.bytes() >= self.options.buffer_bytes {
                    state.seal_active();
                }
                return Ok(());
            }
            drop(state);
            self.write_full_buffers()?;
        }
    }

    /// Calls `read` with the value of a key. It reads at most one block of each run that has the
    /// key's fingerprint, and never waits for a merge or for a run that is being written.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] or [`Error::Io`] if a block cannot be read.
    pub fn get<R>(&self, key: u64, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let runs = {
            let state = self.read_state();
            if let Some(value) = state.buffered(key) {
                let value = value.clone();
                drop(state);
                return Ok(value.as_deref().map(read));
            }
            state.runs.clone()
        };
        let mut room = Vec::new();
        for run in runs.of_key(key) {
            if let Some(value) = run.find(key, &mut room)? {
                return Ok(value.map(read));
            }
        }
        Ok(None)
    }

    /// Calls `each` with every entry whose key is in `keys`, by ascending key, as of the moment of
    /// the call. It takes bounded memory and blocks nobody.
    ///
    /// # Errors
    ///
    /// The error of `each`, which ends the iteration, and those of [`ColdStore::get`].
    pub fn for_each_sorted<E: From<Error>>(
        &self,
        keys: RangeInclusive<u64>,
        mut each: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let (buffers, runs) = {
            let mut state = self.write_state();
            state.seal_active();
            (state.full.clone(), state.runs.clone())
        };
        let first = *keys.start();
        let buffers = buffers.into_iter().rev().map(|buffer| Ok(Source::buffer(buffer, first)));
        let runs = runs.newest_first().map(|run| Source::run(run.clone(), first));
        let mut merge = SortedMerge::new(buffers.chain(runs).collect::<Result<_>>()?);
        while let Some((key, value)) = merge.next()?.filter(|(key, _)| keys.contains(key)) {
            if let Some(value) = value {
                each(key, value)?;
            }
        }
        Ok(())
    }

    /// Does one bounded step of what is due: writes full buffers, merges some bytes of runs, and
    /// removes a file of an earlier store. Returns true while more is due. Another caller's step is
    /// waited for; nothing else waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::Damaged`]; the entries stay as they are, and the next call tries
    /// again.
    pub fn maintain(&self) -> Result<bool> {
        let mut merging = lock(&self.merging);
        self.write_full_buffers()?;
        if let Some(mut current) =
            merging.take().map_or_else(|| self.begin_merge(), |merge| Ok(Some(merge)))?
        {
            if current.merge.step(self.options.step_bytes, &mut || self.new_run())? {
                self.end_merge(current)?;
            } else {
                *merging = Some(current);
            }
        }
        let is_merging = merging.is_some();
        drop(merging);
        let leftover = lock(&self.leftovers).pop();
        let has_leftover = leftover.is_some();
        self.remove_files(leftover.into_iter().collect());
        Ok(has_leftover || is_merging || self.is_more_due())
    }

    fn is_more_due(&self) -> bool {
        let may_republish = lock(&self.checkpointing).is_some();
        let state = self.read_state();
        let merge = state.runs.due(self.options.buffer_bytes, &state.pinned, may_republish);
        !state.full.is_empty() || merge.is_some()
    }

    fn begin_merge(&self) -> Result<Option<MergeOfRuns>> {
        let may_republish = lock(&self.checkpointing).is_some();
        let state = self.read_state();
        let due = state.runs.due(self.options.buffer_bytes, &state.pinned, may_republish);
        drop(state);
        let Some(DueMerge { sources, has_older }) = due else { return Ok(None) };
        let cursors =
            sources.iter().rev().map(|run| Source::run(run.clone(), 0)).collect::<Result<_>>()?;
        let merge = RunMerge::into_parts(self.fs.clone(), SortedMerge::new(cursors), has_older);
        Ok(Some(MergeOfRuns { merge, sources }))
    }

    /// Lets merged runs take the place of their sources. If the last checkpoint has all sources, it
    /// has the merged runs instead from then on, and the files of the sources go.
    fn end_merge(&self, MergeOfRuns { merge, sources }: MergeOfRuns) -> Result<()> {
        let new = merge.finish()?;
        let mut checkpoint = lock(&self.checkpointing);
        let new_numbers: Vec<u64> = new.iter().map(|(_, run)| run.id.number).collect();
        let named = |manifest: &Manifest| -> Option<BTreeSet<u64>> {
            let numbers: BTreeSet<u64> = manifest.runs.iter().map(|run| run.number).collect();
            sources.iter().all(|run| numbers.contains(&run.id.number)).then_some(numbers)
        };
        let named = checkpoint.as_ref().and_then(named);
        let mut state = self.write_state();
        if named.is_some() {
            // From now on until the former one is gone for good, either manifest may be on disk.
            state.pinned.extend(&new_numbers);
        }
        let removed = state.replace(&sources, new);
        let runs = state.runs.clone();
        drop(state);
        self.remove_files(removed);
        let Some(mut numbers) = named else { return Ok(()) };
        let Some(former) = checkpoint.take() else { return Ok(()) };
        numbers.retain(|number| sources.iter().all(|run| run.id.number != *number));
        numbers.extend(new_numbers);
        let (ids, young) = runs.ids(|number| numbers.contains(&number));
        let manifest = Manifest { tag: former.tag, runs: ids, young };
        manifest.publish(&*self.fs, &self.dir_syncs, &self.dir)?;
        *checkpoint = Some(manifest);
        self.unpin(numbers);
        Ok(())
    }

    /// Pins the runs of the manifest that is durable now, and no others. Removes the files that
    /// only former ones needed.
    fn unpin(&self, numbers: BTreeSet<u64>) {
        let mut state = self.write_state();
        let former = std::mem::replace(&mut state.pinned, numbers);
        let in_use: BTreeSet<u64> = state.runs.all().map(|run| run.id.number).collect();
        let removed = former
            .iter()
            .filter(|number| !state.pinned.contains(number) && !in_use.contains(number))
            .map(|number| self.dir.join(run_name(*number)))
            .collect();
        drop(state);
        self.remove_files(removed);
    }

    /// Removes all entries, and the files of earlier stores. The last checkpoint keeps its own
    /// entries until the next one.
    pub fn clear(&self) {
        self.forget();
        self.remove_files(std::mem::take(&mut *lock(&self.leftovers)));
    }

    fn forget(&self) {
        let mut merging = lock(&self.merging);
        let mut checkpoint = lock(&self.checkpointing);
        let writing = lock(&self.writing);
        (*merging, *checkpoint) = (None, None);
        let mut state = self.write_state();
        let old = std::mem::take(&mut *state);
        (state.pinned, state.has_adopted) = (old.pinned, old.has_adopted);
        let all: Vec<Arc<Run>> = old.runs.all().cloned().collect();
        let removed = state.replace(&all, Vec::new());
        drop(state);
        drop(writing);
        self.remove_files(removed);
    }

    /// Replaces all entries by those of another store that has them in runs, as after
    /// [`ColdStore::open`]. The runs are read in place, so it costs nothing; they are never removed
    /// by this store, and the other one may go on or be closed. Afterwards this store cannot make
    /// checkpoints.
    pub fn adopt(&self, other: &Self) {
        self.forget();
        let runs = other.read_state().runs.clone();
        // A number stands for one run only, so that no run of the other store is taken for an own
        // one. Relaxed: as for new runs.
        self.next_number.fetch_max(other.next_number.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut state = self.write_state();
        state.pinned.extend(runs.all().map(|run| run.id.number));
        state.runs = runs;
        state.has_adopted = true;
    }

    /// The store's size.
    pub fn stats(&self) -> ColdStats {
        let state = self.read_state();
        let buffers = || state.full.iter().map(|buffer| &**buffer).chain([&state.active]);
        ColdStats {
            runs: state.runs.all().count(),
            entries: state.runs.all().map(|run| run.entries).sum::<u64>()
                + buffers().map(|buffer| buffer.len() as u64).sum::<u64>(),
            disk_bytes: state.runs.all().map(|run| run.id.len).sum(),
            index_bytes: state.runs.all().map(|run| run.memory_bytes()).sum(),
            buffer_bytes: buffers().map(Buffer::bytes).sum(),
        }
    }

    /// Makes everything that was put before the call durable, under a tag of the caller's choice.
    /// Runs that only the former checkpoint needed are removed.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] for a tag above [`MAX_TAG_LEN`], [`Error::Io`] if something cannot be
    /// written, or if the store has adopted the runs of another one. Then a store that is opened
    /// later has this checkpoint or the former one.
    pub fn checkpoint(&self, tag: &[u8]) -> Result<()> {
        check_len("tag", tag.len(), MAX_TAG_LEN)?;
        let mut checkpoint = lock(&self.checkpointing);
        if self.read_state().has_adopted {
            // A manifest names the runs in its directory only.
            return Err(Error::io("checkpoint", &self.dir)(ErrorKind::Unsupported.into()));
        }
        self.write_state().seal_active();
        self.write_full_buffers()?;
        let runs = {
            let mut state = self.write_state();
            let runs = state.runs.clone();
            state.pinned.extend(runs.all().map(|run| run.id.number));
            runs
        };
        let (ids, young) = runs.ids(|_| true);
        let manifest = Manifest { tag: tag.to_vec(), runs: ids, young };
        // Until it is durable, either may be on disk.
        *checkpoint = None;
        manifest.publish(&*self.fs, &self.dir_syncs, &self.dir)?;
        *checkpoint = Some(manifest);
        self.unpin(runs.all().map(|run| run.id.number).collect());
        Ok(())
    }

    /// Writes the full buffers into one run. They stay readable until the run takes their place.
    fn write_full_buffers(&self) -> Result<()> {
        let _writing = lock(&self.writing);
        let (full, keeps_tombstones) = {
            let state = self.read_state();
            (state.full.clone(), !state.runs.is_empty())
        };
        if full.is_empty() {
            return Ok(());
        }
        let sources = full.iter().rev().map(|buffer| Source::buffer(buffer.clone(), 0)).collect();
        let entries = SortedMerge::new(sources);
        let mut merge = RunMerge::young(self.fs.clone(), entries, keeps_tombstones);
        merge.step(u64::MAX, &mut || self.new_run())?;
        let new = merge.finish()?;
        let mut state = self.write_state();
        state.full.drain(..full.len());
        state.replace(&[], new);
        Ok(())
    }

    fn new_run(&self) -> Result<RunWriter> {
        // Only the number itself matters.
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        RunWriter::create(self.fs.clone(), self.dir_syncs.clone(), &self.dir, number)
    }

    fn remove_files(&self, files: Vec<PathBuf>) {
        for path in files {
            // What stays is removed when the store is opened.
            let _ = self.fs.remove(&path);
        }
    }

    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock_dir(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn LockGuard + Send + Sync>> {
    create_dir_durably(fs, dir, |name| name == MANIFEST)
        .map_err(|(action, path, e)| Error::io(action, path)(e))?;
    let path = dir.join(LOCK);
    let holder = format!("pid {}\n", std::process::id());
    match fs.try_lock(&path, &holder).map_err(Error::io("lock", &path))? {
        LockAttempt::Held(lock) => Ok(lock),
        LockAttempt::Taken(holder) => {
            Err(Error::Locked { dir: dir.to_owned(), holder: holder.trim().to_owned() })
        }
    }
}

/// Opens the runs of a checkpoint.
fn open_runs(fs: &dyn Fs, dir: &Path, manifest: Option<&Manifest>) -> Result<RunSet> {
    let mut runs = RunSet::default();
    let Some(manifest) = manifest else { return Ok(runs) };
    let of_parts = manifest.runs.len().saturating_sub(manifest.young.into());
    for (at, id) in manifest.runs.iter().enumerate() {
        let run = Run::open(fs, dir, *id)?;
        let part = (at < of_parts).then(|| run.part());
        if part == Some(None) {
            return Err(run.damaged(0, "its keys are not those of one part"));
        }
        runs.push((part.flatten(), Arc::new(run)));
    }
    Ok(runs)
}

/// Returns the highest number of a run, and the files of the runs that are not pinned.
fn others(fs: &dyn Fs, dir: &Path, pinned: &BTreeSet<u64>) -> Result<(u64, Vec<PathBuf>)> {
    let numbers: BTreeSet<u64> = fs
        .list(dir)
        .map_err(Error::io("read", dir))?
        .iter()
        .filter_map(|name| parse_run_name(name))
        .collect();
    let last = numbers.iter().chain(pinned).copied().max().unwrap_or(0);
    Ok((last, numbers.difference(pinned).map(|number| dir.join(run_name(*number))).collect()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_len(what: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max { Err(Error::TooLong { what, len, max }) } else { Ok(()) }
}
