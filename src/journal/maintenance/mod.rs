//! Looking after a journal: snapshots, compaction, checking, repair, forgetting.
//!
//! Snapshots, compaction and checks work beside a running crawler; repair and forgetting need the directory for themselves.
//!
//! ```
//! use fetchwise::attempt::Attempt;
//! use fetchwise::journal::{Journal, JournalOptions, maintain};
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
//! let taken = maintain::snapshot(dir, &selector, now, &mut |_, _| {}).unwrap();
//! assert_eq!(taken.covers_seq, 1);
//! assert!(maintain::verify(dir, &mut |_, _| {}).unwrap().is_sound());
//! ```

mod background;
mod clock_check;
mod compact;
mod disk_usage;
mod forget;
mod inspect;
mod progress;
mod snapshot;
mod unpause;
mod verify;

pub use crate::journal::maintenance::background::{Cause, Upkeep, UpkeepOptions, Upkept, old_share};
pub use crate::journal::maintenance::disk_usage::Room;
pub use crate::journal::maintenance::inspect::{cutoff, is_outdated, torn_tail, unfolded};
pub use crate::journal::maintenance::progress::{Phase, Tell};
pub use crate::journal::maintenance::snapshot::{Taken, snapshot};
pub use crate::journal::maintenance::unpause::release;
pub use compact::{COMPACT_AT_DEFAULT, CompactOptions, Compacted, RETAIN_DAYS_DEFAULT, compact};
pub use fetchwise_log::{Brake, RepairOptions, RepairReport, VerifyReport};
pub use forget::{Forgot, forget, would_forget, would_forget_links};
pub use verify::{Refold, Verified, repair, verify};
