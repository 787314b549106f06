//! One visit as it is counted: when it began, and how it ended.
//!
//! Invariant: each visit that has asked for its first step ends once, as "abandoned" where nobody went on to its end.

use std::sync::Arc;

use super::Meter;
use super::counts::{Counts, ENDS, Via, add};
use fetchwise_types::time::Timestamp;

/// Counts a visit when it begins and when it ends.
#[derive(Debug)]
pub(crate) struct Watch {
    counts: Arc<Counts>,
    begun: Option<Timestamp>,
    is_over: bool,
}

impl Watch {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self { counts: Arc::clone(meter.counts()), begun: None, is_over: false }
    }

    /// The visit asks for a step.
    #[inline]
    pub(crate) fn steps(&mut self, now: Timestamp) {
        if self.begun.is_none() {
            self.begun = Some(now);
            add(&self.counts.visits_begun);
        }
    }

    /// The visit has ended so: a number of [`ENDS`]. A visit that made no request and came to no decision has the label `undecided`.
    pub(crate) fn ended(&mut self, end: usize, undecided: Option<usize>, now: Timestamp) {
        let Some(begun) = self.begun.filter(|_| !self.is_over) else { return };
        self.is_over = true;
        if let Some(count) = self.counts.visits.get(end) {
            add(count);
        }
        if let Some(source) = undecided {
            self.counts.undecided(Via::Visit, source);
        }
        self.counts.visit_durations[usize::from(end != 0)].add(now.since(begun));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.begun.is_some() && !self.is_over {
            add(&self.counts.visits[ENDS.len() - 1]);
        }
    }
}
