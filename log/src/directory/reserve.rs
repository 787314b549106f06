//! Space kept back on the disk, so that a compaction can begin on a full one.
//!
//! Owns: the file `RESERVE`. Invariant: nothing ever fails because the space could not be kept. Must not know: what the space is
//! used for.

use std::path::Path;

use crate::fs::Fs;

const RESERVE: &str = "RESERVE";
const LEN: u64 = 256 << 10;

/// Takes the space, if it is not taken already. Where space cannot be allocated, there is no reserve.
pub(crate) fn keep(fs: &dyn Fs, dir: &Path) {
    let path = dir.join(RESERVE);
    if let Ok(file) = fs.create_new(&path)
        && file.allocate(0, LEN).is_err()
    {
        drop(file);
        let _ = fs.remove(&path);
    }
}

/// Gives the space back; true when there was some.
pub(crate) fn release(fs: &dyn Fs, dir: &Path) -> bool {
    fs.remove(&dir.join(RESERVE)).is_ok()
}
