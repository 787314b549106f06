//! Lifetime counts of attempts by fetcher and outcome.
//!
//! They cover every attempt that the log accepted, including those that a compaction has dropped since. Forgotten
//! attempts are not counted.
//!
//! Must not know: what attempts teach.

use crate::metrics::recorder::outcome_index::OUTCOMES;
#[cfg(feature = "metrics")]
use crate::selector::Selector;

/// Counts by fetcher and outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OutcomeCounts {
    rows: Vec<(String, [u64; OUTCOMES])>,
}

impl OutcomeCounts {
    /// Counts `attempts` more attempts of `fetcher` with this outcome.
    pub(super) fn add(&mut self, fetcher: &str, outcome: usize, attempts: u64) {
        // A fetcher without attempts has no row, so that counts survive encoding and decoding unchanged.
        if attempts == 0 {
            return;
        }
        let known = self.rows.iter().position(|(name, _)| name == fetcher);
        let row = known.unwrap_or_else(|| {
            self.rows.push((fetcher.to_owned(), [0; OUTCOMES]));
            self.rows.len() - 1
        });
        let count = &mut self.rows[row].1[outcome.min(OUTCOMES - 1)];
        *count = count.saturating_add(attempts);
    }

    /// Counts one attempt less.
    pub(super) fn subtract(&mut self, fetcher: &str, outcome: usize) {
        if let Some((_, counts)) = self.rows.iter_mut().find(|(name, _)| name == fetcher) {
            let count = &mut counts[outcome.min(OUTCOMES - 1)];
            *count = count.saturating_sub(1);
        }
    }

    /// Adds the counts of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        other.for_each(|fetcher, outcome, attempts| self.add(fetcher, outcome, attempts));
    }

    /// Calls `f` with every count above zero.
    pub(super) fn for_each<'t>(&'t self, mut f: impl FnMut(&'t str, usize, u64)) {
        for (fetcher, counts) in &self.rows {
            for (outcome, attempts) in counts.iter().enumerate().filter(|(_, attempts)| **attempts > 0) {
                f(fetcher, outcome, *attempts);
            }
        }
    }

    /// Reports the counts to the selector, which continues from them.
    #[cfg(feature = "metrics")]
    pub(super) fn report_to(&self, selector: &Selector) {
        self.for_each(|fetcher, outcome, attempts| selector.add_logged_attempts(fetcher, outcome, attempts));
    }
}
