//! The real file system.
//!
//! Owns: the calls into `std::fs` and `rustix`.
//!
//! Invariant: one call here is one system call, so that the layer above sees short writes and
//! interruptions as they are.
//!
//! Must not know: what the bytes mean.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::system::{Fs, FsFile, LockAttempt, LockGuard, SyncSite};

/// The file system of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

#[derive(Debug)]
struct RealFile(File);

#[derive(Debug)]
struct RealLock {
    /// Closing the descriptor releases the lock; the file stays.
    file: File,
}

impl LockGuard for RealLock {
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_file_at(&self.file, path)
    }
}

impl Fs for RealFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        // A log has the addresses of all requests, with their queries.
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(RealFile(File::open(path)?)))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(RealFile(
            OpenOptions::new().read(true).write(true).create_new(true).open(path)?,
        )))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path, _site: SyncSite) -> io::Result<()> {
        // Windows has no call to sync a directory. NTFS journals renames by itself.
        if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
    }

    fn try_lock(&self, path: &Path, holder: &str) -> io::Result<LockAttempt> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                // The text is only for people to read. On a full disk the lock is held without it.
                let _ = write_holder(&mut file, holder);
                Ok(LockAttempt::Held(Box::new(RealLock { file })))
            }
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.take(256).read_to_string(&mut text);
                Ok(LockAttempt::Taken(text))
            }
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn random(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| {
            // There is no entropy source. The format needs unique numbers; time, process and thread
            // provide them.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
            let salt = (now, std::process::id(), std::thread::current().id());
            std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), salt)
        })
    }

    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

fn write_holder(file: &mut File, holder: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(holder.as_bytes())
}

/// Returns whether `path` refers to the open `file`.
fn is_file_at(file: &File, path: &Path) -> io::Result<bool> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(e) => return Err(e),
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let own = file.metadata()?;
        Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
    }
    #[cfg(not(unix))]
    {
        // Windows does not allow the deletion of an open file.
        let _ = (file, found);
        Ok(true)
    }
}

impl FsFile for RealFile {
    #[cfg(unix)]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buf, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.0, buf, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(&self.0, buf, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.0, buf, offset)
    }

    fn sync(&self, _site: SyncSite) -> io::Result<()> {
        self.0.sync_data()
    }

    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::io::Errno;
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), offset, len) {
            Ok(()) => Ok(()),
            // Some file systems without this call (ZFS, older FUSE ones) return EINVAL.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Err(e) => Err(e.into()),
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn drop_cache(&self) {
        #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
        let _ = rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_file_at(&self.0, path)
    }
}
