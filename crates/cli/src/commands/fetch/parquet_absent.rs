//! The data set of pages in a build that cannot write one: to open it fails, and the failure names
//! the build that has it.
//!
//! Invariants: the signatures are those of `parquet_pages`.

use std::io;
use std::path::{Path, PathBuf};

use crate::terminal::exit::Failure;
use fetchwise::store::{Delivered, Store};

/// A data set of pages, which this build cannot write.
pub(crate) enum ParquetPages {}

impl ParquetPages {
    pub(crate) fn open(_: &Path) -> Result<Self, Failure> {
        Err(Failure::missing_feature("fetch --parquet", "parquet"))
    }

    pub(crate) fn finish(&self) -> Result<(), Failure> {
        match *self {}
    }
}

impl Store for ParquetPages {
    fn put(&self, _: &Delivered<'_>) -> io::Result<PathBuf> {
        match *self {}
    }
}
