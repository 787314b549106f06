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

mod clock;
mod compact;
mod forget;
mod look;
mod release;
mod room;
mod take;
mod tell;
mod upkeep;
mod verify;

pub use compact::{COMPACT_AT_DEFAULT, CompactOptions, Compacted, RETAIN_DAYS_DEFAULT, compact};
pub use fetchwise_log::{Brake, RepairOptions, RepairReport, VerifyReport};
pub use forget::{Forgot, forget, would_forget, would_forget_links};
pub use look::{cutoff, is_outdated, torn_tail, unfolded};
pub use release::release;
pub use room::Room;
pub use take::{Taken, snapshot};
pub use tell::{Phase, Tell};
pub use upkeep::{Cause, Upkeep, UpkeepOptions, Upkept, old_share};
pub use verify::{Refold, Verified, repair, verify};
