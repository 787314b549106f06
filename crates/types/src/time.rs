//! Time in all crates: milliseconds since the Unix epoch in UTC, and the source of "now".
//!
//! There are two readings. The **time** begins at the system's date and then runs evenly: pauses,
//! holds, waits and weights in memory are measured by it. The **date** is what the system's clock
//! says, which an operator or a time service may set at any moment: the log, other processes and
//! people get dates. Both are the same until somebody sets the clock by more than a second, or the
//! machine sleeps.
//!
//! Owns: the clocks, and the conversion between times and dates.
//!
//! Invariants: nothing below the pipeline reads a clock. `select` and `record` take the time as an
//! argument, so a simulation or a replay runs the same code as live traffic. The time never goes
//! back, and never jumps ahead.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Smallest difference between the system's clock and the elapsed time that counts as a step, in
/// milliseconds. A time service corrects smaller errors bit by bit.
const STEP_MS: i64 = 1_000;
/// Time between two looks at the system's clock.
const LOOK_MS: i64 = 250;

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

    /// Returns the time of this process: the system's date at the first call, and the elapsed time
    /// since. Setting the system's clock does not change it. Use it for everything that lasts;
    /// [`date`](Self::date) for what is kept.
    #[inline]
    pub fn now() -> Self {
        SteadyClock::of_process().now()
    }

    /// Returns the date by the system's clock, which may be set at any moment.
    pub fn date() -> Self {
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

    /// Returns this time moved by `ms`, which may be negative.
    #[must_use]
    #[inline]
    pub const fn moved_by(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
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
    /// The time of this process, and the system's date.
    #[default]
    System,
    /// A clock that stands still until it is set: for tests, simulations and `--now`.
    Fixed(FixedClock),
}

/// The state of a clock that stands still.
#[derive(Debug)]
pub struct FixedClock {
    time: AtomicI64,
    /// The date minus the time.
    ahead: AtomicI64,
}

impl Clock {
    /// Returns a clock that stands at `at` until [`Clock::set`].
    #[inline]
    pub fn fixed(at: Timestamp) -> Self {
        Self::Fixed(FixedClock { time: AtomicI64::new(at.0), ahead: AtomicI64::new(0) })
    }

    /// Returns the time by this clock.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            // Relaxed: a reader of the old time has a clock that is late by one store, as any clock
            // may be.
            Self::Fixed(fixed) => Timestamp(fixed.time.load(Ordering::Relaxed)),
        }
    }

    /// Returns the date by this clock.
    pub fn date(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::date(),
            Self::Fixed(_) => self.date_of(self.now()),
        }
    }

    /// Returns the date of a time, as the system's clock is set now.
    #[must_use]
    pub fn date_of(&self, time: Timestamp) -> Timestamp {
        time.moved_by(self.ahead_ms())
    }

    /// Returns the time of a date, as the system's clock is set now.
    #[must_use]
    pub fn time_of(&self, date: Timestamp) -> Timestamp {
        date.moved_by(self.ahead_ms().saturating_neg())
    }

    /// Returns the milliseconds by which dates are ahead of times: 0 until the system's clock is
    /// set.
    pub fn ahead_ms(&self) -> i64 {
        match self {
            Self::System => SteadyClock::of_process().ahead_ms(),
            // Relaxed: as in `now`.
            Self::Fixed(fixed) => fixed.ahead.load(Ordering::Relaxed),
        }
    }

    /// Sets a fixed clock, its time and its date. The system clock cannot be set and stays as it
    /// is.
    #[inline]
    pub fn set(&self, at: Timestamp) {
        if let Self::Fixed(fixed) = self {
            fixed.time.store(at.0, Ordering::Relaxed);
        }
    }

    /// Sets the date of a fixed clock without a change of its time, as somebody does who sets the
    /// system's clock while a process runs.
    pub fn set_date(&self, date: Timestamp) {
        if let Self::Fixed(fixed) = self {
            fixed.ahead.store(date.0.saturating_sub(self.now().0), Ordering::Relaxed);
        }
    }
}

/// A clock that starts at a date and that nobody sets.
#[derive(Debug)]
struct SteadyClock {
    start: Instant,
    start_ms: i64,
    /// The date minus the time, as last seen.
    ahead_ms: AtomicI64,
    /// The time of the last look at the date.
    looked_ms: AtomicI64,
}

impl SteadyClock {
    fn of_process() -> &'static Self {
        static CLOCK: OnceLock<SteadyClock> = OnceLock::new();
        CLOCK.get_or_init(|| Self::starting_at(Timestamp::date()))
    }

    fn starting_at(date: Timestamp) -> Self {
        let (start_ms, looked_ms) = (date.0, AtomicI64::new(date.0));
        Self { start: Instant::now(), start_ms, ahead_ms: AtomicI64::new(0), looked_ms }
    }

    fn time(&self) -> Timestamp {
        let elapsed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.start_ms.saturating_add(elapsed))
    }

    /// Returns the time. Now and then it looks at the date.
    fn now(&self) -> Timestamp {
        let now = self.time();
        // Relaxed: two threads that look at the same moment see the same.
        if now.0.saturating_sub(self.looked_ms.load(Ordering::Relaxed)) >= LOOK_MS {
            self.looked_ms.store(now.0, Ordering::Relaxed);
            self.look(Timestamp::date);
        }
        now
    }

    /// Returns the milliseconds by which dates are ahead of times, as of the last look.
    fn ahead_ms(&self) -> i64 {
        // Relaxed: a reader that misses a step behaves as if it had come a moment earlier.
        self.ahead_ms.load(Ordering::Relaxed)
    }

    /// Takes a step of the date over. Differences of less than a second from the last value count
    /// as none, so that a time and its date convert into each other exactly between two steps.
    fn look(&self, date: impl Fn() -> Timestamp) {
        let before = self.time().0;
        let date = date().0;
        let after = self.time().0;
        // The thread may have been suspended between the readings: only a difference from all of
        // them is a step.
        let (least, most) = (date.saturating_sub(after), date.saturating_sub(before));
        let known = self.ahead_ms();
        if known < least.saturating_sub(STEP_MS) || known > most.saturating_add(STEP_MS) {
            self.ahead_ms.store(most, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const DAY_MS: i64 = 86_400_000;

    #[test]
    fn no_step_of_the_date_changes_the_time() {
        for step_ms in
            [-5_000, -3_600_000, -DAY_MS, -40 * 365 * DAY_MS, 5_000, DAY_MS, 40 * 365 * DAY_MS]
        {
            let clock = SteadyClock::starting_at(START);
            let before = clock.time();
            clock.look(|| clock.time().moved_by(step_ms));
            let ahead = clock.ahead_ms();
            assert!(clock.time() >= before, "the time went back at a step of {step_ms} ms");
            let passed = clock.time().since(START);
            assert!(passed <= clock.start.elapsed(), "the time jumped at a step of {step_ms} ms");
            assert!(
                (ahead - step_ms).abs() <= STEP_MS,
                "the date is {ahead} ms ahead after a step of {step_ms} ms"
            );
            clock.look(|| clock.time().moved_by(step_ms));
            assert_eq!(clock.ahead_ms(), ahead, "a second look changes nothing");
            clock.look(|| clock.time());
            assert!(clock.ahead_ms().abs() <= STEP_MS, "the clock is put right");
        }
    }

    #[test]
    fn small_corrections_are_no_steps() {
        let clock = SteadyClock::starting_at(START);
        for correction_ms in [-900, -1, 0, 1, 900] {
            clock.look(|| clock.time().moved_by(correction_ms));
            assert_eq!(clock.ahead_ms(), 0, "{correction_ms} ms");
        }
    }

    #[test]
    fn times_and_dates_convert_into_each_other() {
        let clock = Clock::fixed(START);
        assert_eq!((clock.date(), clock.date_of(START)), (START, START));
        clock.set_date(START.moved_by(-DAY_MS));
        assert_eq!((clock.now(), clock.date()), (START, START.moved_by(-DAY_MS)));
        clock.set(START.moved_by(500));
        assert_eq!(clock.date(), START.moved_by(500 - DAY_MS), "the date goes on with the time");
        assert_eq!(clock.time_of(clock.date_of(START)), START);
    }
}
