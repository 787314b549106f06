//! A directory in memory as the log's file system: fast, repeatable, and accessible to the fuzzer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fetchwise_log::fs::{Fs, FsFile, LockAttempt, LockGuard, SyncSite};

type Content = Arc<Mutex<Vec<u8>>>;

/// Files by path. A directory exists if a file is in it.
#[derive(Debug, Default)]
pub struct MemFs {
    files: Mutex<BTreeMap<PathBuf, Content>>,
    randoms: AtomicU64,
}

impl MemFs {
    /// Returns a copy of all files, by path.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = self.files.lock().expect("nobody panics while holding it");
        files
            .iter()
            .map(|(path, content)| (path.clone(), content.lock().expect("as above").clone()))
            .collect()
    }

    /// Returns a file system with these files.
    pub fn with(contents: BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let files =
            contents.into_iter().map(|(path, bytes)| (path, Arc::new(Mutex::new(bytes)))).collect();
        Self { files: Mutex::new(files), randoms: AtomicU64::new(1 << 32) }
    }
}

impl Fs for MemFs {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = self.files.lock().expect("nobody panics while holding it");
        let names = files
            .keys()
            .filter(|path| path.parent() == Some(dir))
            .filter_map(|path| path.file_name()?.to_str());
        Ok(names.map(str::to_owned).collect())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let files = self.files.lock().expect("nobody panics while holding it");
        let content = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemFile(Arc::clone(content))))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let mut files = self.files.lock().expect("nobody panics while holding it");
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Content::default();
        files.insert(path.to_owned(), Arc::clone(&content));
        Ok(Box::new(MemFile(content)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files.lock().expect("nobody panics while holding it");
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files.lock().expect("nobody panics while holding it");
        files.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, _: &Path, _: SyncSite) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, _: &Path, _: &str) -> io::Result<LockAttempt> {
        Ok(LockAttempt::Held(Box::new(Free)))
    }

    fn random(&self) -> u64 {
        // Any distinct numbers, the same in each run.
        self.randoms.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn now_ms(&self) -> i64 {
        1_800_000_000_000
    }

    /// There is nothing to wait for.
    fn pause(&self, _: std::time::Duration) {}
}

#[derive(Debug)]
struct Free;

impl LockGuard for Free {}

#[derive(Debug)]
struct MemFile(Content);

impl FsFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.0.lock().expect("nobody panics while holding it");
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| content.get(offset..))
            .unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut content = self.0.lock().expect("nobody panics while holding it");
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + buf.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn sync(&self, _: SyncSite) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset + len;
        if self.len()? < end { self.set_len(end) } else { Ok(()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.0.lock().expect("nobody panics while holding it").resize(len, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().expect("nobody panics while holding it").len() as u64)
    }

    fn drop_cache(&self) {}
}
