//! BackgroundMaintenance: snapshots, compaction, checking and repair, under a lock of their own.

pub(crate) mod compact;
pub(crate) mod repair;
pub(crate) mod rewrite;
pub(crate) mod snapshot;
pub(crate) mod throttle;
pub(crate) mod verify;
