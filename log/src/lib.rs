//! The append-only record log of fetchwise.
//!
//! A [`Log`] takes records (bytes with a kind, a schema version and a key) from any number of threads, gives each a
//! sequence number, and hands them to one writer thread that writes them to checksummed segment files. A [`Reader`] reads
//! them back, beside a running writer if need be. FORMAT.md in this crate describes the files.
//!
//! # What is promised
//!
//! * An acknowledged record is never lost, reordered within a caller, duplicated or altered in silence. What "acknowledged"
//!   means is [`Durability`].
//! * A crash leaves a torn tail at most, which [`Log::open`] repairs and reports. Bytes that had been written and are wrong
//!   now are damage: `Log::open` refuses them with the range of sequence numbers, a `Reader` reports them and goes on
//!   behind them.
//! * A full or failing disk never blocks or aborts the host: the log becomes [`Health::Degraded`], waiters get the error,
//!   records wait in memory up to the queue's bounds, and the log resumes by itself. What is lost is counted ([`Log::lost`]).
//! * A directory that somebody deletes under the log is noticed within a second. What was in it is gone; the log says how much
//!   that was, and goes on in a new directory.
//! * One writer a directory, across threads and processes.
//!
//! # What is not
//!
//! The log does not know what is in a record: an application that needs its records aligned to more than 8 bytes copies
//! them first. Directories on network file systems without working `flock` are not protected from a second writer.
#![warn(missing_debug_implementations)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod directory;
mod error;
#[cfg(feature = "fuzzing")]
pub mod format;
#[cfg(not(feature = "fuzzing"))]
#[allow(unreachable_pub, reason = "public for fuzzers only")]
mod format;
pub mod fs;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod maintenance;
mod read;
mod write;

pub use crate::maintenance::compact::{CompactOptions, CompactReport, Maintenance};
pub use crate::maintenance::repair::{RepairOptions, RepairReport, repair, repair_with};
pub use crate::maintenance::throttle::{Brake, give_way};
pub use crate::maintenance::verify::{VerifyReport, verify, verify_showing, verify_with};
pub use crate::read::resume_mark::Mark;
pub use crate::write::ack_future::Acknowledgement;
pub use crate::write::ack_tracker::Health;
#[cfg(feature = "sim")]
pub use crate::write::manual_log::Stepper;
pub use error::{AppendError, Damage, Error, Lost, TornTail, UnknownName, WaitError};
pub use format::{MAX_RECORD_LEN, RecordRef};
pub use read::progress::Progress;
pub use read::reader::{Found, OwnedRecord, Reader, RecordIter, SegmentInfo, Summary};
pub use read::snapshot::{
    Section, Snapshot, SnapshotMeta, SnapshotSearch, durable_seq, load_previous_snapshot, load_snapshot,
    load_snapshot_with,
};
pub use read::times::SegmentTimes;
pub use write::log::{Log, Ticket};
pub use write::options::{DEFAULT_SEGMENT_BYTES, Durability, LogOptions, OnFull, OpenCheck, Record};
pub use write::recover::Recovery;
pub use write::shared::Metrics;
