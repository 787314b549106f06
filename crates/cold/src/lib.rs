//! A store of bytes under 64-bit keys on disk, for entries that are too many for memory.
//!
//! A [`ColdStore`] takes values in memory, and writes them as sorted runs of blocks of 4 KiB. Of
//! each run, memory holds the first key of each block and a filter of nine bits a key, so that a
//! value costs one read and a missing key mostly none. Keys are hashes: they must be spread over
//! all 64 bits. FORMAT.md in this crate describes the files.
//!
//! ```
//! use fetchwise_cold::{ColdOptions, ColdStore, Error};
//!
//! let dir = tempfile::tempdir().unwrap();
//! let store = ColdStore::open(dir.path(), ColdOptions::default())?;
//! store.put(0x9e37_79b9_7f4a_7c15, b"value")?;
//! assert_eq!(store.get(0x9e37_79b9_7f4a_7c15, <[u8]>::to_vec)?, Some(b"value".to_vec()));
//! store.checkpoint(b"position 1")?;
//! while store.maintain()? {}
//! # Ok::<(), Error>(())
//! ```
//!
//! # What is promised
//!
//! * A store that is opened has exactly the entries of its last checkpoint, or of the one that was
//!   being made when the process or the machine died.
//! * [`ColdStore::get`] returns the newest value that was put before the call, and never waits for
//!   a merge or for a run that is being written.
//! * Changed, torn or missing bytes are an error that names the file, never another value. The
//!   error comes when the bytes are read.
//! * Memory: index and filters, at most four buffers, and some 128 KiB for each run that is merged
//!   or iterated.
//!
//! # What is not promised
//!
//! * Entries after the last checkpoint are gone after a restart: the store is a cache of what its
//!   owner can derive again.
//! * While runs are merged, their entries are on disk twice: an eighth of all entries at most, and
//!   those of a few buffers. What was put since the last checkpoint is on disk besides what it
//!   replaces there.
#![warn(missing_debug_implementations)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod block;
mod buffer;
mod dir_syncs;
mod error;
mod fields;
mod filter;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod manifest;
mod merge_policy;
mod run;
mod run_format;
mod run_merge;
mod run_part;
mod run_set;
mod run_writer;
mod sorted_merge;
mod store;

pub use block::MAX_VALUE_LEN;
pub use error::{Error, Result};
pub use manifest::MAX_TAG_LEN;
pub use store::{ColdOptions, ColdStats, ColdStore};
