//! Places in the order of things at which a test ends the process, to see that what is on disk agrees all the same.
//!
//! Invariant: nobody notices who has not asked for it. Must not know what is done there.

use std::sync::OnceLock;

/// A record of `peers/` was appended, and nothing was learned from it yet.
pub(crate) const APPENDED: &str = "peers appended";
/// A message was learned from.
pub(crate) const LEARNED: &str = "peers learned";
/// The file of a share was written, and no record names it yet.
pub(crate) const SHARE_FILE: &str = "share file";
/// The record of a share was appended, and nothing was learned from it yet.
pub(crate) const SHARE_RECORD: &str = "share record";
/// `peers/` was folded for a snapshot.
pub(crate) const FOLDED: &str = "snapshot folded";
/// The snapshot is there, and nothing has gone for it yet.
pub(crate) const SNAPSHOT: &str = "snapshot written";
/// Records have gone, and the files of shares that they named are still there.
pub(crate) const COMPACTED: &str = "snapshot compacted";
/// The new `fleet.state` was written beside the old one.
pub(crate) const STATE_WRITTEN: &str = "state written";
/// It has taken the old one's place.
pub(crate) const STATE_RENAMED: &str = "state renamed";
/// Positions are reserved, and nothing of them was published yet.
pub(crate) const RESERVED: &str = "positions reserved";
/// They were published, and `fleet.state` does not say so yet.
pub(crate) const PUBLISHED: &str = "positions published";
/// A share is in the store, and `fleet.state` does not say so yet.
pub(crate) const SHARED: &str = "share stored";

/// All of them.
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

/// Has `listener` told of every place that is reached from now on. Once a process; false, and nothing changes, the second time.
pub fn listen(listener: fn(&'static str)) -> bool {
    LISTENER.set(listener).is_ok()
}

pub(crate) fn reached(place: &'static str) {
    if let Some(listener) = LISTENER.get() {
        listener(place);
    }
}
