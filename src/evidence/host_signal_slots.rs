//! The two signals that an entry remembers of its host, each with the day it was last shown.
//!
//! Owns: the packing of both into eight bytes, and their expiry.
//!
//! Invariants: reading is one atomic load. A signal whose row was given to another name is ignored.
//!
//! Must not know: the names of signals.

use std::sync::atomic::{AtomicU64, Ordering};

use fetchwise_types::time::Timestamp;

/// Days without a showing after which a signal expires.
const FORGOTTEN_AFTER_DAYS: u16 = 60;

/// A signal's id: its row, and the number of times that the row was given to another name. 0 is
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalId(u16);

impl SignalId {
    pub(super) fn new(row_index: u8, generation: u8) -> Self {
        Self(u16::from(generation) << 8 | u16::from(row_index))
    }

    pub(super) fn row_index(self) -> usize {
        usize::from(self.0 & 0xff)
    }

    pub(super) fn generation(self) -> u8 {
        (self.0 >> 8) as u8
    }

    fn unpack(bits: u64) -> Option<Self> {
        Some(Self(bits as u16)).filter(|id| id.0 != 0)
    }
}

/// The kind of response that shows a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalSide {
    /// Blocks.
    Blocked,
    /// Content and empty pages.
    Served,
}

impl SignalSide {
    pub(crate) const BOTH: [Self; 2] = [Self::Blocked, Self::Served];

    fn shift(self) -> u32 {
        match self {
            Self::Blocked => 32,
            Self::Served => 0,
        }
    }
}

/// The two signals of a host, or the last ones of a site.
#[derive(Debug, Default)]
pub(crate) struct HostSignalSlots(AtomicU64);

impl HostSignalSlots {
    /// Returns the signal of one side, unless it has expired by `today`, and the day it was last
    /// shown.
    #[inline]
    pub(crate) fn get(&self, side: SignalSide, today: u16) -> Option<(SignalId, u16)> {
        // Relaxed: an independent value.
        let (id, day) = unpack(self.0.load(Ordering::Relaxed), side)?;
        (today.saturating_sub(day) <= FORGOTTEN_AFTER_DAYS).then_some((id, day))
    }

    /// Sets or clears the signal of one side. An older showing than the known one changes nothing.
    pub(crate) fn set(&self, side: SignalSide, id: Option<SignalId>, day: u16) {
        let packed = id.map_or(0, |id| u64::from(id.0) | u64::from(day) << 16);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            let is_newer = unpack(bits, side).is_none_or(|(_, known)| known <= day);
            is_newer.then(|| bits & !(0xffff_ffff << side.shift()) | packed << side.shift())
        });
    }

    /// Clears both.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns both as one number, which [`restore`](Self::restore) takes.
    pub(crate) fn bits(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets both in an entry that no other thread has yet.
    pub(crate) fn restore(&self, bits: u64) {
        self.0.store(bits, Ordering::Relaxed);
    }

    /// Returns both as they are, with their days, for a snapshot.
    pub(crate) fn all(&self) -> [Option<(SignalId, u16)>; 2] {
        let bits = self.0.load(Ordering::Relaxed);
        SignalSide::BOTH.map(|side| unpack(bits, side))
    }
}

fn unpack(bits: u64, side: SignalSide) -> Option<(SignalId, u16)> {
    let half = bits >> side.shift();
    SignalId::unpack(half).map(|id| (id, (half >> 16) as u16))
}

/// Returns the UTC day of `at`, as slots count it.
pub(crate) fn day_of(at: Timestamp) -> u16 {
    u16::try_from(at.utc_day().max(0)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_signal_replaces_its_side_only_and_expires_after_sixty_days() {
        let (slots, one, other) =
            (HostSignalSlots::default(), SignalId::new(3, 1), SignalId::new(200, 7));
        slots.set(SignalSide::Blocked, Some(one), 20_000);
        slots.set(SignalSide::Served, Some(other), 20_010);
        assert_eq!(slots.get(SignalSide::Blocked, 20_060), Some((one, 20_000)));
        assert_eq!(slots.get(SignalSide::Blocked, 20_061), None);
        assert_eq!(slots.get(SignalSide::Served, 20_061), Some((other, 20_010)));
        slots.set(SignalSide::Blocked, Some(other), 19_999);
        assert_eq!(
            slots.get(SignalSide::Blocked, 20_000),
            Some((one, 20_000)),
            "an older showing changes nothing"
        );
        slots.set(SignalSide::Blocked, Some(other), 20_000);
        assert_eq!(slots.get(SignalSide::Blocked, 20_000), Some((other, 20_000)));
        slots.set(SignalSide::Served, None, 20_011);
        assert_eq!(
            (slots.get(SignalSide::Served, 20_011), other.row_index(), other.generation()),
            (None, 200, 7)
        );
    }
}
