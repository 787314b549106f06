//! A simulated file system that loses, tears and reorders writes and fails, like a bad disk under a
//! power cut.
//!
//! Owns: the effect of each call on the readable state and on the state after a crash.
//!
//! Invariants: only a sync makes anything durable; after a failed sync the data looks fine and
//! never becomes durable; one call here is one call of [`Fs`] or [`FsFile`], so a crash or an error
//! can be put at each.
//!
//! Must not know: what the bytes mean.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::system::{Fs, FsFile, LockAttempt, LockGuard, SyncSite};

const SECTOR: usize = 512;

/// A file system in memory. Clones share it.
#[derive(Clone, Default)]
pub struct SimFs {
    world: Arc<Mutex<World>>,
}

impl std::fmt::Debug for SimFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let world = self.world();
        f.debug_struct("SimFs")
            .field("names", &world.names.keys())
            .field("calls", &world.calls)
            .finish()
    }
}

/// The fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An I/O error. A failed sync also loses what it should have made durable, for good.
    Eio,
    /// No space, where a call could need space.
    Enospc,
    /// Interrupted, nothing done.
    Eintr,
    /// Half of the bytes, for a read or write.
    Short,
    /// From this call on, none has any effect: the machine is off.
    PowerOff,
}

/// The state of a simulated disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disk {
    /// Changes succeed.
    #[default]
    Working,
    /// Every change fails with "read-only file system".
    ReadOnly,
    /// Every change and every sync fails with an I/O error.
    Failing,
}

/// The part of unsynced changes that survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All of it: the process died, the machine did not.
    All,
    /// None of it.
    None,
    /// The changes up to some moment, the last write perhaps torn.
    Prefix,
    /// Any sectors and any directory changes, in no order; missing parts of a longer file read as
    /// zeros.
    AnyZeros,
    /// As `AnyZeros`, but missing sectors hold garbage.
    AnyGarbage,
}

impl Survival {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::All, Self::None, Self::Prefix, Self::AnyZeros, Self::AnyGarbage];
}

#[derive(Debug, Default)]
struct World {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    name_ops: Vec<NameOp>,
    dirs: BTreeSet<PathBuf>,
    /// Directories that a power loss removes, because their parent was not synced since they were
    /// made.
    volatile_dirs: BTreeSet<PathBuf>,
    /// The held locks, each with a unique number.
    locks: BTreeMap<PathBuf, (u64, String)>,
    locks_taken: u64,
    random: u64,
    now_ms: i64,
    calls: u64,
    faults: BTreeMap<u64, Fault>,
    off: bool,
    capacity: Option<u64>,
    disabled: Option<SyncSite>,
    synced: BTreeMap<&'static str, u64>,
    disk: Disk,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<DataOp>,
}

#[derive(Clone, Debug)]
enum DataOp {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Clone, Debug)]
enum NameOp {
    Link(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
    Unlink(PathBuf),
}

impl NameOp {
    fn dir(&self) -> Option<&Path> {
        match self {
            Self::Link(path, _) | Self::Rename(_, path, _) | Self::Unlink(path) => path.parent(),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Link(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Unlink(path) => {
                names.remove(path);
            }
        }
    }
}

/// A small random number generator (SplitMix64), so that a seed is a test case.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.draw() % n }
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

impl SimFs {
    /// An empty file system; the seed makes its random numbers.
    pub fn new(seed: u64) -> Self {
        let fs = Self::default();
        fs.world().random = seed;
        fs
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.world().calls
    }

    /// Puts a fault at the `call`-th call from the start (the first is 0).
    pub fn fault_at(&self, call: u64, fault: Fault) {
        self.world().faults.insert(call, fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.world().faults.clear();
    }

    /// Bounds the bytes in all files.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world().capacity = bytes;
    }

    /// Makes the sync calls of one site do nothing.
    pub fn disable_sync(&self, site: Option<SyncSite>) {
        self.world().disabled = site;
    }

    /// Sets the state of the disk.
    pub fn set_disk(&self, disk: Disk) {
        self.world().disk = disk;
    }

    /// Sets the clock.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.world().now_ms = now_ms;
    }

    /// Returns the number of syncs per site, by name.
    pub fn syncs(&self) -> BTreeMap<&'static str, u64> {
        self.world().synced.clone()
    }

    /// Bytes in all files.
    pub fn used(&self) -> u64 {
        self.world().used()
    }

    /// Returns true after [`Fault::PowerOff`].
    pub fn is_off(&self) -> bool {
        self.world().off
    }

    /// Returns a state that the machine may find after a power loss now.
    pub fn crash(&self, survival: Survival, rng: &mut Rng) -> Self {
        let world = self.world();
        let names = world.crashed_names(survival, rng);
        let is_volatile = |path: &Path| world.volatile_dirs.iter().any(|dir| path.starts_with(dir));
        let is_lost = |path: &Path| survival != Survival::All && is_volatile(path);
        let dirs = world.dirs.iter().filter(|dir| !is_lost(dir)).cloned().collect();
        let mut after =
            World { dirs, random: rng.draw(), now_ms: world.now_ms, ..World::default() };
        for (path, inode) in names.into_iter().filter(|(path, _)| !is_lost(path)) {
            let Some(inode) = world.inodes.get(inode) else { continue };
            let content = inode.crashed(survival, rng);
            after.names.insert(path.clone(), after.inodes.len());
            after.durable_names.insert(path, after.inodes.len());
            after.inodes.push(Inode {
                live: content.clone(),
                durable: content,
                pending: Vec::new(),
            });
        }
        Self { world: Arc::new(Mutex::new(after)) }
    }

    /// The content of a file.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        let inode = world.names.get(path)?;
        world.inodes.get(*inode).map(|inode| inode.live.clone())
    }

    /// Sets the content of a file durably, without the log's knowledge.
    pub fn put(&self, path: &Path, content: Vec<u8>) {
        let mut world = self.world();
        let new = Inode { live: content.clone(), durable: content, pending: Vec::new() };
        if let Some(id) = world.names.get(path).copied().filter(|id| *id < world.inodes.len()) {
            // The inode is reused, because tests try millions of changed files in one simulated
            // world.
            world.durable_names.insert(path.to_owned(), id);
            world.inodes[id] = new;
            return;
        }
        let inode = world.inodes.len();
        world.names.insert(path.to_owned(), inode);
        world.durable_names.insert(path.to_owned(), inode);
        world.inodes.push(new);
    }

    /// Removes a file durably, without the log's knowledge.
    pub fn lose(&self, path: &Path) {
        let mut world = self.world();
        world.names.remove(path);
        world.durable_names.remove(path);
    }

    /// Deletes a directory with its content durably, without the log's knowledge. Open files stay
    /// open, but no path refers to them.
    pub fn lose_dir(&self, dir: &Path) {
        let mut world = self.world();
        world.names.retain(|path, _| !path.starts_with(dir));
        world.durable_names.retain(|path, _| !path.starts_with(dir));
        world.name_ops.retain(|op| op.dir().is_none_or(|at| !at.starts_with(dir)));
        world.locks.retain(|path, _| !path.starts_with(dir));
        world.dirs.retain(|known| !known.starts_with(dir));
        world.volatile_dirs.retain(|known| !known.starts_with(dir));
    }

    /// Every file.
    pub fn files(&self) -> Vec<PathBuf> {
        self.world().names.keys().cloned().collect()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn change(&self, needs_space: bool) -> io::Result<(MutexGuard<'_, World>, bool)> {
        let mut world = self.world();
        let short = world.enter(needs_space)?;
        if world.disk == Disk::ReadOnly {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok((world, short))
    }
}

impl World {
    /// Counts a call and returns its fault, if any; true requests a short read or write.
    fn enter(&mut self, needs_space: bool) -> io::Result<bool> {
        let call = self.calls;
        self.calls += 1;
        if self.off {
            return Err(io::Error::other("the machine is off"));
        }
        match self.faults.get(&call) {
            None if self.disk == Disk::Failing && needs_space => {
                Err(io::Error::from_raw_os_error(5))
            }
            None => Ok(false),
            Some(Fault::Eio) => Err(io::Error::from_raw_os_error(5)),
            Some(Fault::Enospc) if needs_space => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Enospc) => Ok(false),
            Some(Fault::Eintr) => Err(io::ErrorKind::Interrupted.into()),
            Some(Fault::Short) => Ok(true),
            Some(Fault::PowerOff) => {
                self.off = true;
                Err(io::Error::other("the machine is off"))
            }
        }
    }

    fn used(&self) -> u64 {
        let files: BTreeSet<usize> = self.names.values().copied().collect();
        files.iter().filter_map(|&i| self.inodes.get(i)).map(|inode| inode.live.len() as u64).sum()
    }

    fn room(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()))
    }

    fn inode(&mut self, id: usize) -> io::Result<&mut Inode> {
        self.inodes.get_mut(id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns an error if the directory of `path` does not exist.
    fn find_dir(&self, path: &Path) -> io::Result<()> {
        let found = path.parent().is_some_and(|dir| self.dirs.contains(dir));
        if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn name_op(&mut self, op: NameOp) {
        op.apply(&mut self.names);
        self.name_ops.push(op);
    }

    fn crashed_names(&self, survival: Survival, rng: &mut Rng) -> BTreeMap<PathBuf, usize> {
        let mut names = self.durable_names.clone();
        let keep = match survival {
            Survival::All => self.name_ops.len(),
            Survival::None => 0,
            Survival::Prefix => rng.below(self.name_ops.len() as u64 + 1) as usize,
            Survival::AnyZeros | Survival::AnyGarbage => {
                let chance = [10, 50, 90][rng.below(3) as usize];
                self.name_ops
                    .iter()
                    .filter(|_| rng.percent(chance))
                    .for_each(|op| op.apply(&mut names));
                return names;
            }
        };
        self.name_ops.iter().take(keep).for_each(|op| op.apply(&mut names));
        names
    }
}

impl Inode {
    fn crashed(&self, survival: Survival, rng: &mut Rng) -> Vec<u8> {
        let mut content = self.durable.clone();
        match survival {
            Survival::All => return self.live.clone(),
            Survival::None => {}
            Survival::Prefix => {
                let keep = rng.below(self.pending.len() as u64 + 1) as usize;
                self.pending.iter().take(keep).for_each(|op| op.apply(&mut content));
                if let Some(DataOp::Write(offset, bytes)) = self.pending.get(keep) {
                    let part = rng.below(bytes.len() as u64 + 1) as usize;
                    DataOp::Write(*offset, bytes[..part].to_vec()).apply(&mut content);
                }
            }
            Survival::AnyZeros | Survival::AnyGarbage => {
                let chance = [10, 50, 90][rng.below(3) as usize];
                for op in &self.pending {
                    self.apply_some(
                        op,
                        chance,
                        survival == Survival::AnyGarbage,
                        &mut content,
                        rng,
                    );
                }
            }
        }
        content
    }

    /// Applies any sectors of a write; the length may come through without the content.
    fn apply_some(
        &self,
        op: &DataOp,
        chance: u64,
        garbage: bool,
        content: &mut Vec<u8>,
        rng: &mut Rng,
    ) {
        let DataOp::Write(offset, bytes) = op else {
            if rng.percent(chance) {
                op.apply(content);
            }
            return;
        };
        let mut at = 0;
        while at < bytes.len() {
            let sector_end = ((offset + at) / SECTOR + 1) * SECTOR - offset;
            let end = sector_end.min(bytes.len());
            if rng.percent(chance) {
                DataOp::Write(offset + at, bytes[at..end].to_vec()).apply(content);
            } else if offset + end > content.len() && rng.percent(50) {
                let from = content.len();
                content.resize(offset + end, 0);
                if garbage {
                    content[from..].iter_mut().for_each(|byte| *byte = rng.draw() as u8);
                }
            }
            at = end;
        }
    }
}

impl DataOp {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Self::SetLen(len) => content.resize(*len, 0),
        }
    }
}

#[derive(Debug)]
struct SimFile {
    fs: SimFs,
    inode: usize,
}

#[derive(Debug)]
struct SimLock {
    fs: SimFs,
    path: PathBuf,
    number: u64,
}

impl LockGuard for SimLock {
    // Not counted as a call: it changes nothing, so it needs no fault.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.fs.world().locks.get(path).is_some_and(|(number, _)| *number == self.number))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.fs.world();
        if world.locks.get(&self.path).is_some_and(|(number, _)| *number == self.number) {
            world.locks.remove(&self.path);
        }
    }
}

impl Fs for SimFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let (mut world, _) = self.change(true)?;
        if world.dirs.insert(dir.to_owned()) {
            world.volatile_dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut world = self.world();
        world.enter(false)?;
        if !world.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let mut world = self.world();
        world.enter(false)?;
        let inode = *world.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile { fs: self.clone(), inode }))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let (mut world, _) = self.change(true)?;
        world.find_dir(path)?;
        if world.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = world.inodes.len();
        world.inodes.push(Inode::default());
        world.name_op(NameOp::Link(path.to_owned(), inode));
        Ok(Box::new(SimFile { fs: self.clone(), inode }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut world, _) = self.change(false)?;
        let inode = *world.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        world.name_op(NameOp::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (mut world, _) = self.change(false)?;
        if !world.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.name_op(NameOp::Unlink(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()> {
        let mut world = self.world();
        let result = world.enter(true);
        if world.disabled == Some(site) && result.is_ok() {
            return Ok(());
        }
        *world.synced.entry(site.name()).or_default() += 1;
        if result.is_ok() {
            world.volatile_dirs.retain(|made| made.parent() != Some(dir));
        }
        let ops = std::mem::take(&mut world.name_ops);
        for op in ops {
            if op.dir() != Some(dir) {
                world.name_ops.push(op);
            } else if result.is_ok() {
                op.apply(&mut world.durable_names);
            } else if world.off
                || result.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::Interrupted)
            {
                world.name_ops.push(op);
            }
        }
        result.map(|_| ())
    }

    fn try_lock(&self, path: &Path, holder: &str) -> io::Result<LockAttempt> {
        let (mut world, _) = self.change(true)?;
        world.find_dir(path)?;
        if let Some((_, holder)) = world.locks.get(path) {
            return Ok(LockAttempt::Taken(holder.clone()));
        }
        world.locks_taken += 1;
        let number = world.locks_taken;
        world.locks.insert(path.to_owned(), (number, holder.to_owned()));
        Ok(LockAttempt::Held(Box::new(SimLock { fs: self.clone(), path: path.to_owned(), number })))
    }

    fn random(&self) -> u64 {
        let mut world = self.world();
        let mut rng = Rng(world.random);
        let value = rng.draw();
        world.random = rng.0;
        value
    }

    fn now_ms(&self) -> i64 {
        self.world().now_ms
    }

    fn pause(&self, _time: Duration) {}
}

impl FsFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.fs.world();
        let short = world.enter(false)?;
        let live = &world.inode(self.inode)?.live;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(live.len());
        let mut n = buf.len().min(live.len() - from);
        if short {
            n = n.div_ceil(2);
        }
        buf[..n].copy_from_slice(&live[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let (mut world, short) = self.fs.change(true)?;
        let offset = offset as usize;
        let room = world.room();
        let inode = world.inode(self.inode)?;
        let growth = (offset + buf.len()).saturating_sub(inode.live.len()) as u64;
        let mut n = buf.len();
        if growth > room {
            n = n.saturating_sub((growth - room) as usize);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        if short {
            n = n.div_ceil(2);
        }
        let op = DataOp::Write(offset, buf[..n].to_vec());
        op.apply(&mut inode.live);
        inode.pending.push(op);
        Ok(n)
    }

    fn sync(&self, site: SyncSite) -> io::Result<()> {
        let mut world = self.fs.world();
        let result = world.enter(true);
        if world.off || (world.disabled == Some(site) && result.is_ok()) {
            return result.map(|_| ());
        }
        *world.synced.entry(site.name()).or_default() += 1;
        let inode = world.inode(self.inode)?;
        match &result {
            Ok(_) => {
                let pending = std::mem::take(&mut inode.pending);
                pending.iter().for_each(|op| op.apply(&mut inode.durable));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The pages are marked clean though they never reached the disk.
            Err(_) => inode.pending.clear(),
        }
        result.map(|_| ())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let (mut world, _) = self.fs.change(true)?;
        let room = world.room();
        let inode = world.inode(self.inode)?;
        let end = (offset + len) as usize;
        let growth = end.saturating_sub(inode.live.len()) as u64;
        if growth > room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if growth > 0 {
            inode.live.resize(end, 0);
            inode.pending.push(DataOp::SetLen(end));
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let (mut world, _) = self.fs.change(false)?;
        let inode = world.inode(self.inode)?;
        inode.live.resize(len as usize, 0);
        inode.pending.push(DataOp::SetLen(len as usize));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut world = self.fs.world();
        world.enter(false)?;
        Ok(world.inode(self.inode)?.live.len() as u64)
    }

    fn drop_cache(&self) {}

    // Not counted as a call: it changes nothing, so it needs no fault.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.fs.world().names.get(path) == Some(&self.inode))
    }
}
