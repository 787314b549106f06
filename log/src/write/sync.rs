//! The synchronisation primitives of [`ack`](crate::write::ack_tracker): the standard ones, or
//! loom's when its model checker runs.
//!
//! Owns: the choice between the two.
//!
//! Must not know: who uses them.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
