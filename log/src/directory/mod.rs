//! The files of a directory besides segments and snapshots: locks, manifests, reserved space.

pub(crate) mod lock;
pub(crate) mod manifest;
pub(crate) mod reserve;
