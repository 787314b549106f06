//! The baseline: a file with the verdicts of an earlier check.
//!
//! Owns: its format, one JSON object whose pages are in the order of their names, so that a version
//! control system shows what changed.
//!
//! Invariants: a file is replaced as a whole.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::labelled_pages::PageKind;
use crate::parse::input::unreadable;
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;

/// A verdict as a baseline keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptVerdict {
    pub(super) found: PageKind,
    pub(super) rule: Option<String>,
}

/// The verdicts of an earlier check, by page.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Baseline {
    pub(super) pages: BTreeMap<String, KeptVerdict>,
}

impl Baseline {
    /// Reads a baseline.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            unreadable(path, &error).advise("the first run writes a baseline with --save")
        })?;
        serde_json::from_str(&text).map_err(|error| {
            Failure::failed(format_args!("{}: not a valid baseline: {error}", shown(path)))
        })
    }

    /// Writes the baseline, in place of an earlier one.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| {
            Failure::failed(format_args!("cannot write {}: {error}", shown(path)))
        };
        let folder =
            path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
        serde_json::to_writer_pretty(&mut file, self).map_err(|error| cannot(error.into()))?;
        file.write_all(b"\n").map_err(cannot)?;
        file.persist(path).map(drop).map_err(|error| cannot(error.error))
    }
}
