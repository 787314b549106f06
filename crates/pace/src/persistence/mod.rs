//! Persistence: the state of a host in 64 bytes, and the trait of its store.
//!
//! Must not know: where the state is stored.

pub(crate) mod float16;
pub(crate) mod persisted_state;
use crate::persistence::persisted_state::PersistedState;
use crate::signals::response::{Cause, Level};
use fetchwise_types::time::Timestamp;

/// The persisted state of a host, site or address: 64 bytes, whose layout `log/FORMAT.md`
/// describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceState(pub [u8; 64]);

impl PaceState {
    /// Returns the state with all its times moved by `ms`, to the bit the same for 0: a store keeps
    /// dates, and a pace has times.
    #[must_use]
    pub fn moved_by(self, ms: i64) -> Self {
        if ms == 0 {
            return self;
        }
        Self(PersistedState::from_bytes(&self.0).moved_by(ms).to_bytes())
    }
}

/// One record for a [`PaceStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceRecord<'n> {
    /// Whether `name` is a host, a site or an address.
    pub level: Level,
    /// The name.
    pub name: &'n str,
    /// Its state.
    pub state: PaceState,
    /// The reason for the record.
    pub cause: Cause,
    /// The time of the record.
    pub at: Timestamp,
}

/// Stores may be shared.
impl<K: PaceStore + ?Sized> PaceStore for std::sync::Arc<K> {
    fn keep(&self, note: &PaceRecord<'_>) {
        K::keep(self, note);
    }
}

/// Store of learned state; fetchwise's journal is one. It is called without any lock that a request
/// could wait for.
pub trait PaceStore: Send + Sync {
    /// Stores the record, if possible.
    fn keep(&self, note: &PaceRecord<'_>);
}
