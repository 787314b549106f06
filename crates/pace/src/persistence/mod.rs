//! What outlives the process: the state of a host as 64 bytes, and who keeps it.
//!
//! Must not know where it is kept.

pub(crate) mod float16;
pub(crate) mod persisted_state;
use crate::signals::response::{Cause, Level};
use fetchwise_types::time::Timestamp;

/// What is remembered of a host, a site or an address: 64 bytes, whose layout `log/FORMAT.md` describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub [u8; 64]);

/// What is to be kept of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceRecord<'n> {
    /// Whether `name` is a host, a site or an address.
    pub level: Level,
    /// Who.
    pub name: &'n str,
    /// What is remembered.
    pub state: State,
    /// Why it is to be kept now.
    pub cause: Cause,
    /// When.
    pub at: Timestamp,
}

/// A keeper that somebody else holds on to as well.
impl<K: PaceStore + ?Sized> PaceStore for std::sync::Arc<K> {
    fn keep(&self, note: &PaceRecord<'_>) {
        K::keep(self, note);
    }
}

/// Keeps what is learned. The journal is one; it is called with no lock held that a request could wait for.
pub trait PaceStore: Send + Sync {
    /// Keeps this, if it can.
    fn keep(&self, note: &PaceRecord<'_>);
}
