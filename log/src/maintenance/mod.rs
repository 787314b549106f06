//! Maintenance: snapshots, compaction, verification and repair, under a separate lock.

pub(crate) mod compact;
pub(crate) mod repair;
pub(crate) mod rewrite;
pub(crate) mod snapshot;
pub(crate) mod throttle;
pub(crate) mod verify;
