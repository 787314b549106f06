//! What evidence holds besides the entries of its map, as it is: for a process that goes on where
//! another one stopped.
//!
//! Owns: the list of these parts. They are the scale of the weights, the entries at fixed places
//! (all attempts, flags, hints, depths), the time from which on daily counts are whole, and the
//! table of host signals with the order of its rows, by which entries of the map name signals.
//!
//! Invariants: restored into evidence without attempts, all of it is equal to the bit.
//!
//! Must not know: how it becomes bytes.

use std::sync::atomic::Ordering;

use super::host_signals::SignalRowState;
use super::{Entry, Evidence};
use fetchwise_types::time::Timestamp;

impl Evidence {
    /// Returns whether nothing was learned yet.
    pub(crate) fn is_blank(&self) -> bool {
        self.entries.is_empty() && self.global.weight() == 0.0 && self.signals.is_blank()
    }

    /// Returns the entries at fixed places, always in the same order.
    pub(crate) fn fixed_entries(&self) -> impl Iterator<Item = &Entry> {
        let others = self.flags.iter().chain(&self.hints).chain(&self.depths);
        std::iter::once(&self.global).chain(others).map(|shared| &**shared)
    }

    /// Returns the rows of the table of signals, in order.
    pub(crate) fn signal_rows(&self) -> Vec<SignalRowState> {
        self.signals.row_states()
    }

    /// Restores everything but the entries at fixed places, before anything is learned.
    pub(crate) fn restore_unkeyed(
        &self,
        landmark: Timestamp,
        days_since: Option<Timestamp>,
        rows: &[SignalRowState],
    ) {
        // Relaxed: no other thread has the evidence yet.
        self.landmark_ms.store(landmark.as_millis(), Ordering::Relaxed);
        self.set_days_since(days_since);
        self.signals.restore_rows(rows);
        self.shared_version.change();
    }
}
