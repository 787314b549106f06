//! A small file system for tests of a full disk. It is a real one, so these tests need a machine
//! that allows users to mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system that is unmounted on drop.
pub(crate) struct Small(PathBuf);

impl Small {
    /// Mounts one; returns none if this machine does not allow that.
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
