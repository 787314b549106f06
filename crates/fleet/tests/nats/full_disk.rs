//! A full disk.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Fills the disk to the last byte, including space that was freed since.
pub fn fill(disk: &Path) {
    let mut file = OpenOptions::new().append(true).create(true).open(disk.join("filler")).unwrap();
    for size in [64 << 10, 4096, 64, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

/// Frees the space again.
pub fn free(disk: &Path) {
    fs::remove_file(disk.join("filler")).unwrap();
}
