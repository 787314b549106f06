//! Many locks instead of one: each key belongs to one of them.
//!
//! Invariants: no lock is held while the next one is taken, so a slow reader of all shards blocks
//! one at a time.
//!
//! Must not know: what is locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of locks. Threads that work on different hosts rarely meet, and little is locked while a
/// table grows.
const SHARDS: usize = 128;

/// Values behind locks of their own, in two cache lines so that threads do not share them.
#[derive(Debug)]
pub(crate) struct Sharded<S>(Box<[Shard<S>]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<S>(Mutex<S>);

impl<S: Default> Default for Sharded<S> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl<S> Sharded<S> {
    /// Locks the shard of a key.
    #[inline]
    pub(crate) fn lock(&self, key: u64) -> MutexGuard<'_, S> {
        lock(&self.0[key as usize % SHARDS])
    }

    /// Locks one shard after the other.
    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, S>> {
        self.0.iter().map(lock)
    }
}

/// A thread that panics leaves each item as it was after some step; every state is valid.
fn lock<S>(shard: &Shard<S>) -> MutexGuard<'_, S> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}
