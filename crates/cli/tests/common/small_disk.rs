//! A small file system of one's own, for tests of what happens when it is full. A real one, so this needs a machine that lets its user
//! mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system that goes when it is dropped.
pub(crate) struct Small(PathBuf);

impl Small {
    /// Mounts one; none where this machine does not let us.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at);
        mount.output().is_ok_and(|out| out.status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
