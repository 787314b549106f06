//! Formats of other builds: to write one fails, and the failure names the build that has it.
//!
//! Invariants: the signatures are those of `parquet` and `sqlite`.

#[cfg(not(feature = "sqlite"))]
use std::path::Path;

use crate::commands::export::flat_columns::FlatColumns;
use crate::terminal::exit::Failure;
#[cfg(not(feature = "parquet"))]
use crate::terminal::output::Output;
use fetchwise::attempt::Attempt;

/// A Parquet file, which this build cannot write.
#[cfg(not(feature = "parquet"))]
pub(crate) enum ParquetOut {}

#[cfg(not(feature = "parquet"))]
impl ParquetOut {
    pub(crate) fn new() -> Result<Self, Failure> {
        Err(Failure::missing_feature("export --format parquet", "parquet"))
    }

    pub(crate) fn add(
        &mut self,
        _: Attempt,
        _: FlatColumns,
        _: &mut Output,
    ) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn finish(self, _: &mut Output) -> Result<(), Failure> {
        match self {}
    }
}

/// A SQLite database, which this build cannot write.
#[cfg(not(feature = "sqlite"))]
pub(crate) enum SqliteOut {}

#[cfg(not(feature = "sqlite"))]
impl SqliteOut {
    pub(crate) fn new(_: &Path) -> Result<Self, Failure> {
        Err(Failure::missing_feature("export --sqlite", "sqlite"))
    }

    pub(crate) fn add(&mut self, _: &Attempt, _: &FlatColumns) -> Result<(), Failure> {
        match *self {}
    }

    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self {}
    }
}
