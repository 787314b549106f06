//! Journal: attempts, pauses and everything else that must outlive the process, bound to the log.
//!
//! Reading takes no lock and repairs nothing, so that commands work alongside a running crawler.
//!
//! Owns: writing entries ([`Journal`], a [`Sink`](crate::selector::Sink) of the selector), reading
//! them back ([`replay`]), rebuilding a selector from them ([`load`]), [maintenance], and errors
//! grouped by what a caller has to do about them.
//!
//! Invariants: entries read back as they were accepted, in order, without those that a tombstone
//! covers. Damage is never skipped silently.
//!
//! Must not know: how bytes get to disk, which `fetchwise-log` does, nor what attempts teach.
//!
//! ```
//! use fetchwise::attempt::Attempt;
//! use fetchwise::journal::{self, Journal, JournalOptions};
//! use fetchwise::selector::Selector;
//! use fetchwise::time::Timestamp;
//! use std::sync::Arc;
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
//! let journal = Arc::new(journal);
//! let mut selector = Selector::builder().build().unwrap();
//! journal::load(dir, &selector, Timestamp::now()).unwrap();
//! selector.set_sink(Box::new(journal.clone()));
//!
//! let now = Timestamp::now();
//! let url = url::Url::parse("https://example.org/").unwrap();
//! selector.record(Attempt::new(&url, "playwright", now).unwrap().delivered(), now).unwrap();
//! journal.flush().wait().unwrap();
//! assert_eq!(journal::replay(dir, |_, _| {}).unwrap().attempts, 1);
//! ```

mod attempt_content;
mod builder;
mod checkpoint_restore;
mod checkpoint_state;
#[cfg(test)]
mod checkpoint_tests;
#[cfg(test)]
mod clock_tests;
mod cold_entry;
#[cfg(test)]
mod cold_tests;
mod cold_tier;
mod column_codec;
mod entry;
mod entry_groups;
mod error;
mod fetcher_numbers;
mod fold;
mod follow;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "json")]
mod import;
mod key_estimate;
mod load;
pub mod maintenance;
mod outcome_counts;
mod point_in_time;
mod query;
mod query_key;
mod read;
mod recovery_point;
#[doc(hidden)]
pub mod replication;
mod schema;
mod snapshot;
mod store_health;
#[cfg(test)]
mod tests;
mod tombstone_cache;
mod tombstones;
mod write;

pub use attempt_content::{AttemptContent, attempt_contents};
pub use entry::{
    Entry, FetcherEntry, HostEntry, ImportanceEntry, LinkEntry, PaceEntry, Release, ReleaseTarget,
    Tombstone, TombstoneTarget,
};
pub use error::{ClockWitness, JournalError};
pub use fetchwise_log::{
    Acknowledgement, AppendError, DEFAULT_SEGMENT_BYTES, Damage, Durability, Error as LogError,
    Health, Lost, Metrics, OnFull, OpenCheck, Progress, Recovery, Ticket, TornTail, UnknownName,
    WaitError,
};
pub use follow::{Follower, apply};
#[cfg(feature = "json")]
pub use import::{Import, ImportLineError, ImportedLine};
pub use load::{
    Importances, LoadReport, LogInfo, importances, inspect_with_progress, load, load_with_progress,
    survey,
};
pub use point_in_time::{AsOf, load_at};
pub use query::{AttemptQuery, Order, OutcomeFilter, QueryStats, attempt, attempts, fetch_of};
pub use query_key::query_hash;
pub use read::{ReplayReport, ids, replay};
pub use recovery_point::RecoveryPoint;
pub use schema::SchemaError;
pub use write::{Journal, JournalOptions};
