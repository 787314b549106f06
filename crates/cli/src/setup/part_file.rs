//! Files that get their name when they are complete.
//!
//! Must not know: what is in them.

use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// Creates a file in `folder` that has no final name yet. Temporary files are private; this one is
/// as readable as the umask says.
pub(crate) fn part_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.prefix(".part-").tempfile_in(folder)
}
