//! A disk that is full.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Fills it to the last byte, also with what has been freed since.
pub fn fill(disk: &Path) {
    let mut file = OpenOptions::new().append(true).create(true).open(disk.join("filler")).unwrap();
    for size in [64 << 10, 4096, 64, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

/// Gives back what was filled.
pub fn free(disk: &Path) {
    fs::remove_file(disk.join("filler")).unwrap();
}
