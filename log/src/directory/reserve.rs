//! Reserved disk space, so that a compaction can start on a full disk.
//!
//! Owns: the file `RESERVE`.
//!
//! Invariant: a missing reserve never causes a failure.
//!
//! Must not know: what the space is used for.

use std::path::Path;

use crate::fs::Fs;

const RESERVE: &str = "RESERVE";
const LEN: u64 = 256 << 10;

/// Allocates the space unless it is allocated already. If the system cannot allocate space, there
/// is no reserve.
pub(crate) fn keep(fs: &dyn Fs, dir: &Path) {
    let path = dir.join(RESERVE);
    if let Ok(file) = fs.create_new(&path)
        && file.allocate(0, LEN).is_err()
    {
        drop(file);
        let _ = fs.remove(&path);
    }
}

/// Frees the space; returns true if there was some.
pub(crate) fn release(fs: &dyn Fs, dir: &Path) -> bool {
    fs.remove(&dir.join(RESERVE)).is_ok()
}
