//! The directory's locks: `LOCK` for the one writer, `MAINT.LOCK` for the one maintenance command.
//!
//! Owns: acquisition, with retries while another process is ending.
//!
//! Invariant: a lock file is never deleted, so two holders can never lock two different files of
//! one name.
//!
//! Must not know: the work under the lock.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::fs::{Fs, LockAttempt, LockGuard};

/// The writer's lock.
pub(crate) const LOCK: &str = "LOCK";
/// The lock of compaction, snapshots and repair.
pub(crate) const MAINT_LOCK: &str = "MAINT.LOCK";

const PATIENCE: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) type Guard = Box<dyn LockGuard + Send + Sync>;

/// Takes a lock, or returns its holder after about 250 ms.
pub(crate) fn acquire(fs: &dyn Fs, dir: &Path, name: &str) -> Result<Guard, Error> {
    let path = dir.join(name);
    let holder = format!("pid {}\n", std::process::id());
    let start = Instant::now();
    loop {
        match fs.try_lock(&path, &holder).map_err(|e| Error::io("lock", &path, e))? {
            LockAttempt::Held(guard) => return Ok(guard),
            LockAttempt::Taken(holder) if start.elapsed() >= PATIENCE => {
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    text => text.chars().filter(|c| !c.is_control()).take(80).collect(),
                };
                return Err(Error::Locked { dir: dir.to_owned(), holder });
            }
            LockAttempt::Taken(_) => fs.pause(PAUSE),
        }
    }
}
