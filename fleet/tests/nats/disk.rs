//! A small file system of a node's own, which can be full. A real one, so this needs a machine that lets its user mount.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system. It goes when it is dropped.
pub struct Small(PathBuf);

impl Small {
    /// Mounts one; none where this machine does not let us.
    pub fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at);
        mount.output().is_ok_and(|out| out.status.success()).then(|| Self(at.to_owned()))
    }

    /// Fills it to the last byte, also with what is freed meanwhile.
    pub fn fill(&self) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.0.join("filler")).unwrap();
        for size in [64 << 10, 4096, 64, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    /// Gives back what was filled.
    pub fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
