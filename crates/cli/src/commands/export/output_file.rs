//! The file of `export -o`.
//!
//! Invariants: the file appears under its name only when it is complete, and no existing file is
//! replaced unasked.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::setup::part_file::part_file;
use crate::terminal::exit::Failure;
use crate::terminal::output::{Output, shown};

/// A file that is being written under another name.
pub(super) struct OutputFile {
    part: TempPath,
    path: PathBuf,
    is_forced: bool,
}

impl OutputFile {
    /// Makes `out` write the file at `path`.
    pub(super) fn create(path: &Path, is_forced: bool, out: &mut Output) -> Result<Self, Failure> {
        if !is_forced && path.exists() {
            return Err(exists(path));
        }
        let folder =
            path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let part = part_file(folder);
        let (file, part) = part.map_err(|error| cannot_write(path, &error))?.into_parts();
        out.write_to_file(file, path)?;
        Ok(Self { part, path: path.to_owned(), is_forced })
    }

    /// Gives the complete file its name.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let Self { part, path, is_forced } = self;
        let named = if is_forced { part.persist(&path) } else { part.persist_noclobber(&path) };
        named.map_err(|failed| match failed.error.kind() {
            ErrorKind::AlreadyExists => exists(&path),
            _ => cannot_write(&path, &failed.error),
        })
    }
}

/// Removes the file at `path`, if there is one.
pub(super) fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot_write(path, &error)),
        _ => Ok(()),
    }
}

fn exists(path: &Path) -> Failure {
    Failure::usage(format_args!("{} already exists", shown(path)))
        .advise("overwrite it with --force, or choose another file")
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format_args!("cannot write {}: {error}", shown(path)))
}
