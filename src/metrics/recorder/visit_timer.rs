//! Timer and end counter of one visit.
//!
//! Invariants: each visit that has requested its first step ends once, as "abandoned" if nobody
//! continues it.

use std::sync::Arc;

use super::MetricsRecorder;
use super::counts::{Counts, ENDS, Via, add};
use fetchwise_types::time::Timestamp;

/// Counts a visit when it begins and when it ends.
#[derive(Debug)]
pub(crate) struct VisitTimer {
    counts: Arc<Counts>,
    begun: Option<Timestamp>,
    is_over: bool,
}

impl VisitTimer {
    pub(crate) fn new(recorder: &MetricsRecorder) -> Self {
        Self { counts: Arc::clone(recorder.counts()), begun: None, is_over: false }
    }

    /// Notes that the visit requests a step.
    #[inline]
    pub(crate) fn steps(&mut self, now: Timestamp) {
        if self.begun.is_none() {
            self.begun = Some(now);
            add(&self.counts.visits_begun);
        }
    }

    /// Counts the end of the visit; `end` is an index into [`ENDS`]. A visit that made no request
    /// and no decision has the label `undecided`.
    pub(crate) fn ended(&mut self, end: usize, undecided: Option<usize>, now: Timestamp) {
        let Some(begun) = self.begun.filter(|_| !self.is_over) else { return };
        self.is_over = true;
        if let Some(count) = self.counts.visits.get(end) {
            add(count);
        }
        if let Some(source) = undecided {
            self.counts.count_undecided(Via::Visit, source);
        }
        self.counts.visit_durations[usize::from(end != 0)].add(now.since(begun));
    }
}

impl Drop for VisitTimer {
    fn drop(&mut self) {
        if self.begun.is_some() && !self.is_over {
            add(&self.counts.visits[ENDS.len() - 1]);
        }
    }
}
