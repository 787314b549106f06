//! The append-only record log of fetchwise.
//!
//! A [`Log`] accepts records (bytes with a kind, a schema version and a key) from any number of
//! threads and gives each a sequence number. One writer thread writes them to checksummed segment
//! files. A [`Reader`] reads them back, also while a writer runs. FORMAT.md in this crate describes
//! the files.
//!
//! # What is promised
//!
//! * An acknowledged record is never silently lost, reordered within a caller, duplicated or
//!   altered. [`Durability`] defines "acknowledged".
//! * A crash leaves at most a torn tail, which [`Log::open`] repairs and reports. Written bytes
//!   that are wrong now are damage: `Log::open` refuses them with the range of sequence numbers; a
//!   `Reader` reports them and continues after them.
//! * A full or failing disk never blocks or aborts the host. The log becomes [`Health::Degraded`],
//!   waiters get the error, records wait in memory up to the queue's bounds, and the log resumes by
//!   itself. [`Log::lost`] counts lost records.
//! * The log detects a deleted directory within a second. The records in it are gone; the log
//!   reports their number and continues in a new directory.
//! * A directory has one writer, across threads and processes.
//!
//! # What is not promised
//!
//! The log does not interpret records. An application that needs records aligned to more than 8
//! bytes must copy them. On network file systems without a working `flock`, a second writer is not
//! detected.
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

pub use error::{AppendError, Damage, Error, Lost, TornTail, UnknownName, WaitError};
pub use format::{
    Block, BlockFormat, MAX_RECORD_LEN, OwnedBlock, PackedBlock, RecordRef, UnpackError,
    get_varint, put_varint,
};
pub use maintenance::compact::{CompactOptions, CompactReport, Maintenance};
pub use maintenance::repair::{RepairOptions, RepairReport, repair, repair_checked, repair_with};
pub use maintenance::snapshot::{PreparedSnapshot, SectionWriter, SnapshotFill};
pub use maintenance::throttle::{Throttle, lower_thread_priority};
pub use maintenance::verify::{
    VerifyReport, verify, verify_checked, verify_with, verify_with_progress,
};
pub use read::progress::Progress;
pub use read::reader::{OwnedRecord, ReadItem, Reader, RecordIter, SegmentInfo, Summary};
pub use read::resume_mark::ResumeMark;
pub use read::sharded_replay::{BlockFold, BlockRecord};
pub use read::snapshot::{
    Section, Snapshot, SnapshotCheck, SnapshotMeta, SnapshotSearch, StoredSection, durable_seq,
    load_previous_snapshot, load_snapshot, load_snapshot_checked, load_snapshot_with,
};
pub use read::times::SegmentTimes;
pub use write::ack_future::Acknowledgement;
pub use write::ack_tracker::Health;
pub use write::log::{Log, Ticket};
#[cfg(feature = "sim")]
pub use write::manual_log::ManualLog;
pub use write::options::{
    DEFAULT_SEGMENT_BYTES, Durability, LogOptions, OnFull, OpenCheck, Record,
};
pub use write::recover::Recovery;
pub use write::shared::Metrics;
