//! Failpoints: named steps at which a test kills the process to check what is on disk.
//!
//! Invariants: a failpoint costs one load when no listener is set.
//!
//! Must not know: what a listener does.

use std::sync::OnceLock;

/// A record of `peers/` is appended; the selector has not learned from it yet.
pub(crate) const APPENDED: &str = "peers appended";
/// The selector has learned from a message.
pub(crate) const LEARNED: &str = "peers learned";
/// The file of an evidence snapshot is written; no record names it yet.
pub(crate) const SHARE_FILE: &str = "share file";
/// The record of an evidence snapshot is appended; the selector has not learned from it yet.
pub(crate) const SHARE_RECORD: &str = "share record";
/// `peers/` is folded for a snapshot.
pub(crate) const FOLDED: &str = "snapshot folded";
/// The snapshot is written; no older record or file is dropped yet.
pub(crate) const SNAPSHOT: &str = "snapshot written";
/// Records are dropped; the snapshot files that they named still exist.
pub(crate) const COMPACTED: &str = "snapshot compacted";
/// The new `fleet.state` is written alongside the old one.
pub(crate) const STATE_WRITTEN: &str = "state written";
/// The new `fleet.state` has replaced the old one.
pub(crate) const STATE_RENAMED: &str = "state renamed";
/// Positions are reserved; none of them is published yet.
pub(crate) const RESERVED: &str = "positions reserved";
/// Positions are published; `fleet.state` does not record it yet.
pub(crate) const PUBLISHED: &str = "positions published";
/// An evidence snapshot is in the store; `fleet.state` does not record it yet.
pub(crate) const SHARED: &str = "share stored";

/// All failpoints.
pub const ALL: [&str; 12] = [
    APPENDED,
    LEARNED,
    SHARE_FILE,
    SHARE_RECORD,
    FOLDED,
    SNAPSHOT,
    COMPACTED,
    STATE_WRITTEN,
    STATE_RENAMED,
    RESERVED,
    PUBLISHED,
    SHARED,
];

static LISTENER: OnceLock<fn(&'static str)> = OnceLock::new();

/// Sets the listener that is called at every failpoint from now on. Works once per process; later
/// calls return false and change nothing.
pub fn listen(listener: fn(&'static str)) -> bool {
    LISTENER.set(listener).is_ok()
}

pub(crate) fn reached(place: &'static str) {
    if let Some(listener) = LISTENER.get() {
        listener(place);
    }
}
