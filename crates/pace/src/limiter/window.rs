//! The five windows over which requests are counted, and the rings that count them.
//!
//! Invariants: a count covers exactly its window, up to the spread of requests within the oldest
//! quarter.
//!
//! Must not know: limits.

use crate::persistence::float16::PositiveF16;

/// Number of windows.
pub(crate) const WINDOWS: usize = 5;
/// The windows in seconds. Most limiters on the web count over one of these; the nearest one works
/// for the others.
pub(crate) const SECONDS: [f64; WINDOWS] = [10.0, 60.0, 300.0, 900.0, 3600.0];
/// The windows for a person to read.
pub(crate) const NAMES: [&str; WINDOWS] = ["10 s", "1 min", "5 min", "15 min", "1 h"];
/// Common windows between those that are counted, in seconds.
const BETWEEN_S: [f64; 3] = [120.0, 600.0, 1800.0];
/// A quarter of the shortest window in milliseconds, and the number of these in a quarter of each
/// window.
const QUARTER_MS: u64 = 2_500;
const QUARTERS: [u64; WINDOWS] = [1, 6, 30, 90, 360];
/// What is added to a time so that it is not negative: a multiple of every ring, and at least 2^63.
/// Unsigned divisions take half the instructions.
const NOT_NEGATIVE: u64 =
    (1_u64 << 63).next_multiple_of(QUARTER_MS * QUARTERS[WINDOWS - 1] * WINDOWS as u64);

/// Requests within each window, or another number for each window.
pub(crate) type Counts = [PositiveF16; WINDOWS];

/// Returns the longest window between two that are counted, in seconds.
pub(crate) fn between_s(shorter: usize, longer: usize) -> Option<f64> {
    BETWEEN_S
        .into_iter()
        .rev()
        .find(|between| *between > SECONDS[shorter] && *between < SECONDS[longer])
}

/// Counts of the last quarters of each window, including the current one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rings([[u16; WINDOWS]; WINDOWS]);

impl Rings {
    /// Empties the quarters that began after `from` and up to `to`.
    pub(crate) fn advance(&mut self, from: i64, to: i64) {
        let (last, now) = (quarter_of(from), quarter_of(to));
        // Within the shortest quarter no other begins either, and most requests of a busy host are
        // that close.
        if last >= now {
            return;
        }
        for (ring, quarter) in self.0.iter_mut().zip(QUARTERS) {
            let (last, now) = (last / quarter, now / quarter);
            if now - last >= WINDOWS as u64 {
                *ring = [0; WINDOWS];
                continue;
            }
            for number in 0..now - last {
                ring[place(now - number)] = 0;
            }
        }
    }

    /// Counts `cost` requests at `now`. The rings must be advanced to it.
    pub(crate) fn add(&mut self, cost: u16, now: i64) {
        let now = quarter_of(now);
        for (ring, quarter) in self.0.iter_mut().zip(QUARTERS) {
            let count = &mut ring[place(now / quarter)];
            *count = count.saturating_add(cost);
        }
    }

    /// Takes back `cost` requests that were counted recently.
    pub(crate) fn subtract(&mut self, cost: u16, now: i64) {
        if cost == 0 {
            return;
        }
        let now = quarter_of(now);
        for (ring, quarter) in self.0.iter_mut().zip(QUARTERS) {
            let count = &mut ring[place(now / quarter)];
            *count = count.saturating_sub(cost);
        }
    }

    /// Returns the number of requests in window `window` up to `now`. The rings must be advanced to
    /// it.
    pub(crate) fn count(&self, window: usize, now: i64) -> f64 {
        let (ring, quarter) = (&self.0[window], QUARTER_MS * QUARTERS[window]);
        let now = unsigned(now);
        let number = now / quarter;
        let passed = (now - number * quarter) as f64 / quarter as f64;
        // The place of the oldest quarter is the next one's, too.
        let oldest = ring[place(number + 1)];
        let all: u32 = ring.iter().map(|count| u32::from(*count)).sum();
        f64::from(all - u32::from(oldest)) + f64::from(oldest) * (1.0 - passed)
    }

    /// Returns whether no request fell into a whole quarter of the shortest window. The rings must
    /// be advanced to `now`.
    pub(crate) fn has_gap(&self, now: i64) -> bool {
        let number = quarter_of(now);
        (1..WINDOWS as u64 - 1).any(|ago| self.0[0][place(number - ago)] == 0)
    }

    /// Returns the counts of all windows.
    pub(crate) fn counts(&self, now: i64) -> Counts {
        std::array::from_fn(|window| PositiveF16::new(self.count(window, now)))
    }
}

/// Returns a time in milliseconds, which may be negative, as a number that is not, in the same
/// order.
fn unsigned(ms: i64) -> u64 {
    ms.cast_unsigned().wrapping_add(NOT_NEGATIVE)
}

/// Returns the number of the shortest quarter at a time.
fn quarter_of(ms: i64) -> u64 {
    unsigned(ms) / QUARTER_MS
}

fn place(quarter: u64) -> usize {
    (quarter % WINDOWS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_requests_are_counted_exactly() {
        let (mut rings, mut last) = (Rings::default(), 0);
        for step in 0..20_000i64 {
            let now = 1_000_000 + step * 400;
            rings.advance(last, now);
            rings.add(1, now);
            last = now;
        }
        assert!(!rings.has_gap(last));
        for (window, seconds) in SECONDS.iter().enumerate() {
            let count = rings.count(window, last);
            assert!((count - seconds * 2.5).abs() < 2.0, "{seconds}: {count}");
        }
    }

    #[test]
    fn old_requests_leave_the_window_and_a_clock_that_goes_back_changes_nothing() {
        let mut rings = Rings::default();
        rings.add(7, 50_000);
        assert!(rings.has_gap(50_000));
        rings.advance(50_000, 10_000);
        assert_eq!(rings.count(0, 50_000), 7.0);
        rings.advance(50_000, 63_000);
        assert_eq!((rings.count(0, 63_000), rings.count(1, 63_000)), (0.0, 7.0));
        rings.advance(63_000, i64::MAX / 2);
        assert_eq!(rings.count(4, i64::MAX / 2), 0.0);
    }
}
