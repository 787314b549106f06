//! Lifetime counts of attempts by fetcher and outcome.
//!
//! They cover every attempt that the log accepted, including those that a compaction has dropped
//! since. Forgotten attempts are not counted.
//!
//! Must not know: what attempts teach.

use std::collections::HashMap;

use crate::metrics::recorder::outcome_index::OUTCOMES;
#[cfg(feature = "metrics")]
use crate::selector::Selector;

/// Counts by fetcher and outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OutcomeCounts {
    rows: Vec<(String, [u64; OUTCOMES])>,
    /// The row of each name. A log may have any number of names, since every report can bring a new
    /// one.
    places: HashMap<String, usize>,
}

impl OutcomeCounts {
    /// Counts `attempts` more attempts of `fetcher` with this outcome.
    pub(super) fn add(&mut self, fetcher: &str, outcome: usize, attempts: u64) {
        // A fetcher without attempts has no row, so that counts survive encoding and decoding
        // unchanged.
        if attempts == 0 {
            return;
        }
        let place = self.places.get(fetcher).copied().unwrap_or_else(|| {
            self.rows.push((fetcher.to_owned(), [0; OUTCOMES]));
            self.places.insert(fetcher.to_owned(), self.rows.len() - 1);
            self.rows.len() - 1
        });
        let count = &mut self.rows[place].1[outcome.min(OUTCOMES - 1)];
        *count = count.saturating_add(attempts);
    }

    /// Counts one attempt less.
    pub(super) fn subtract(&mut self, fetcher: &str, outcome: usize) {
        if let Some((_, counts)) =
            self.places.get(fetcher).and_then(|place| self.rows.get_mut(*place))
        {
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
            for (outcome, attempts) in
                counts.iter().enumerate().filter(|(_, attempts)| **attempts > 0)
            {
                f(fetcher, outcome, *attempts);
            }
        }
    }

    /// Reports the counts to the selector, which continues from them.
    #[cfg(feature = "metrics")]
    pub(super) fn report_to(&self, selector: &Selector) {
        self.for_each(|fetcher, outcome, attempts| {
            let id = selector.learned().registry.intern(fetcher);
            selector.recorder().add_logged_attempts(id, outcome, attempts);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_names_is_counted() {
        let mut counts = OutcomeCounts::default();
        for n in 0..80_000 {
            counts.add(&format!("f{}", n % 40_000), n % 3, 1);
        }
        counts.subtract("f7", 1);
        let (mut names, mut attempts) = (0, 0);
        counts.for_each(|_, _, count| (names, attempts) = (names + 1, attempts + count));
        assert_eq!(attempts, 79_999);
        assert!(names >= 40_000, "{names}");
    }
}
