//! Counts of the last steps of time.
//!
//! Invariants: a count is in the step of its time while that step is kept.

use fetchwise::time::Timestamp;

/// Counts of `KINDS` kinds in each of the last `STEPS` steps of `STEP_MS` milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountRing<const KINDS: usize, const STEPS: usize, const STEP_MS: i64> {
    newest: i64,
    counts: [[u32; KINDS]; STEPS],
}

impl<const KINDS: usize, const STEPS: usize, const STEP_MS: i64> Default
    for CountRing<KINDS, STEPS, STEP_MS>
{
    fn default() -> Self {
        Self { newest: 0, counts: [[0; KINDS]; STEPS] }
    }
}

impl<const KINDS: usize, const STEPS: usize, const STEP_MS: i64> CountRing<KINDS, STEPS, STEP_MS> {
    /// The time that it covers, in milliseconds.
    pub(crate) const LENGTH_MS: i64 = STEPS as i64 * STEP_MS;

    /// Adds counts to the step of `when`.
    pub(crate) fn add(&mut self, when: Timestamp, more: [u64; KINDS]) {
        let step = when.as_millis().div_euclid(STEP_MS);
        if step > self.newest {
            for gone in (self.newest + 1).max(step - STEPS as i64 + 1)..=step {
                self.counts[Self::place(gone)] = [0; KINDS];
            }
            self.newest = step;
        }
        if step > self.newest - STEPS as i64 {
            for (sum, more) in self.counts[Self::place(step)].iter_mut().zip(more) {
                *sum = sum.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
            }
        }
    }

    /// Returns the sums of the last steps, that of `now` included.
    pub(crate) fn recent(&self, now: Timestamp) -> [u64; KINDS] {
        let first = now.as_millis().div_euclid(STEP_MS) - STEPS as i64 + 1;
        let mut sums = [0; KINDS];
        self.each(|start, counts| {
            if start.as_millis().div_euclid(STEP_MS) >= first {
                sums.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
            }
        });
        sums
    }

    /// Adds the counts of another ring.
    pub(crate) fn merge(&mut self, other: &Self) {
        other.each(|start, counts| self.add(start, counts));
    }

    fn each(&self, mut f: impl FnMut(Timestamp, [u64; KINDS])) {
        for step in self.newest - STEPS as i64 + 1..=self.newest {
            let counts = self.counts[Self::place(step)].map(u64::from);
            f(Timestamp::from_millis(step * STEP_MS), counts);
        }
    }

    fn place(step: i64) -> usize {
        step.rem_euclid(STEPS as i64) as usize
    }
}
