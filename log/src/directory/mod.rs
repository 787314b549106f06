//! What else is in a directory beside segments and snapshots: locks, manifests, space kept back.

pub(crate) mod lock;
pub(crate) mod manifest;
pub(crate) mod reserve;
