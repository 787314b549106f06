//! Maintenance of a journal: snapshots, checkpoints, compaction, checks, repair and forgetting.
//!
//! Snapshots, checkpoints, compaction and checks work alongside a running crawler. Repair and
//! forgetting need exclusive access to the directory; a crawler forgets by [`forget_live`] itself.
//!
//! ```
//! use fetchwise::attempt::Attempt;
//! use fetchwise::journal::{Journal, JournalOptions, maintenance};
//! use fetchwise::selector::Selector;
//! use fetchwise::time::Timestamp;
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
//! let (url, now) = (url::Url::parse("https://example.org/").unwrap(), Timestamp::now());
//! journal.append_attempt(&Attempt::new(&url, "playwright", now).unwrap().delivered()).unwrap();
//! journal.close().unwrap();
//!
//! let selector = Selector::builder().build().unwrap();
//! let taken = maintenance::snapshot(dir, &selector, now, &mut |_, _| {}).unwrap();
//! assert_eq!(taken.covers_seq, 1);
//! assert!(maintenance::verify(dir, &mut |_, _| {}).unwrap().is_sound());
//! ```

mod background;
pub(super) mod checkpoint;
mod clock_check;
mod compact;
mod disk_usage;
mod forget;
mod inspect;
mod progress;
mod snapshot;
mod unpause;
pub(super) mod verify;

pub use background::{
    BackgroundMaintenance, CompactCause, MaintenanceEvent, MaintenanceOptions, expired_share,
};
pub use checkpoint::{CheckpointReport, checkpoint};
pub use compact::{
    CompactOptions, CompactReport, DEFAULT_COMPACT_THRESHOLD, DEFAULT_RETAIN_DAYS, compact,
};
pub use disk_usage::DiskUsage;
pub use fetchwise_log::{RepairOptions, RepairReport, Throttle, VerifyReport};
pub use forget::{ForgetReport, forget, forget_live, would_forget, would_forget_links};
pub use inspect::{cutoff, torn_tail, unsnapshotted_records};
pub use progress::{Phase, ProgressFn};
pub use snapshot::{SnapshotOptions, SnapshotReport, snapshot, snapshot_with};
pub use unpause::unpause;
pub use verify::{RefoldReport, VerificationReport, repair, verify};
