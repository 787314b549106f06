//! Time in all crates: milliseconds since the Unix epoch in UTC, and the source of "now".
//!
//! Invariants: nothing below the pipeline reads a clock. `select` and `record` take the time as an argument, so a
//! simulation or a replay runs the same code as live traffic.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the time at this number of milliseconds since the Unix epoch.
    #[inline]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Returns milliseconds since the Unix epoch.
    #[inline]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the time of the system clock.
    #[inline]
    pub fn now() -> Self {
        let ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Self(ms)
    }

    /// Returns this time plus `span`, at most the end of time.
    #[must_use]
    #[inline]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this time; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the number of the UTC day, counted from the epoch.
    #[inline]
    pub const fn utc_day(self) -> i64 {
        self.0.div_euclid(86_400_000)
    }
}

/// The source of "now".
#[derive(Debug, Default)]
pub enum Clock {
    /// The system clock.
    #[default]
    System,
    /// A clock that stands still until it is set: for tests, simulations and `--now`.
    Fixed(AtomicI64),
}

impl Clock {
    /// Returns a clock that stands at `at` until [`Clock::set`].
    #[inline]
    pub fn fixed(at: Timestamp) -> Self {
        Self::Fixed(AtomicI64::new(at.0))
    }

    /// Returns the time by this clock.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            // Relaxed: a reader of the old time has a clock that is late by one store, as any clock may be.
            Self::Fixed(ms) => Timestamp(ms.load(Ordering::Relaxed)),
        }
    }

    /// Sets a fixed clock. The system clock cannot be set and stays as it is.
    #[inline]
    pub fn set(&self, at: Timestamp) {
        if let Self::Fixed(ms) = self {
            ms.store(at.0, Ordering::Relaxed);
        }
    }
}
