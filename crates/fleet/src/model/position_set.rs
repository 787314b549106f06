//! Interval sets of log positions.
//!
//! Owns: which positions of an epoch were seen and which are missing.
//!
//! Invariants: runs are sorted and neither overlap nor touch.
//!
//! Must not know: what a position holds.

use serde::{Deserialize, Serialize};

/// A set of positions, stored as runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Intervals {
    runs: Vec<(u64, u64)>,
}

impl Intervals {
    /// Returns the set of all positions from `first` to `last`; empty if `last` is less than
    /// `first`.
    pub fn of(first: u64, last: u64) -> Self {
        let mut all = Self::default();
        all.insert(first, last);
        all
    }

    /// Inserts the positions from `first` to `last`. Cost: a binary search, and a move of later
    /// runs for an insertion in the middle.
    pub fn insert(&mut self, first: u64, last: u64) {
        if first > last {
            return;
        }
        // Runs that overlap or touch the new one merge with it.
        let begin =
            self.runs.partition_point(|run| run.1.checked_add(1).is_some_and(|next| next < first));
        let end =
            self.runs.partition_point(|run| last.checked_add(1).is_none_or(|next| run.0 <= next));
        if begin >= end {
            self.runs.insert(begin, (first, last));
        } else {
            let merged = (first.min(self.runs[begin].0), last.max(self.runs[end - 1].1));
            self.runs[begin] = merged;
            self.runs.drain(begin + 1..end);
        }
        let neighbours = &self.runs[begin.saturating_sub(1)..self.runs.len().min(begin + 2)];
        debug_assert!(are_apart(neighbours), "runs overlap or touch: {neighbours:?}");
    }

    /// Inserts all positions of another set.
    pub fn extend(&mut self, other: &Self) {
        other.runs.iter().for_each(|(first, last)| self.insert(*first, *last));
    }

    /// Returns whether the set contains a position.
    pub fn contains(&self, position: u64) -> bool {
        self.covers(position, position)
    }

    /// Returns whether the set contains all positions from `first` to `last`.
    pub fn covers(&self, first: u64, last: u64) -> bool {
        if first > last {
            return true;
        }
        let index = self.runs.partition_point(|run| run.1 < first);
        self.runs.get(index).is_some_and(|run| run.0 <= first && last <= run.1)
    }

    /// Returns whether the set contains all positions of another set.
    pub fn includes(&self, other: &Self) -> bool {
        other.runs.iter().all(|(first, last)| self.covers(*first, *last))
    }

    /// Returns the greatest position; none for an empty set.
    pub fn top(&self) -> Option<u64> {
        self.runs.last().map(|run| run.1)
    }

    /// Returns the runs in order.
    pub fn runs(&self) -> &[(u64, u64)] {
        &self.runs
    }

    /// Returns the gaps from `first` to `last` in order.
    pub fn holes(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut next = Some(first).filter(|first| *first <= last);
        let mut runs = self.runs[self.runs.partition_point(|run| run.1 < first)..].iter();
        std::iter::from_fn(move || {
            while let Some(from) = next.filter(|from| *from <= last) {
                match runs.next() {
                    Some(run) if run.0 > last => {
                        next = None;
                        return Some((from, last));
                    }
                    Some(run) => {
                        next = run.1.checked_add(1);
                        if from < run.0 {
                            return Some((from, run.0 - 1));
                        }
                    }
                    None => {
                        next = None;
                        return Some((from, last));
                    }
                }
            }
            None
        })
    }

    /// Returns the number of missing positions from `first` to `last`.
    pub fn missing(&self, first: u64, last: u64) -> u64 {
        count(self.holes(first, last))
    }
}

/// Returns whether runs are sorted and neither overlap nor touch.
fn are_apart(runs: &[(u64, u64)]) -> bool {
    runs.windows(2).all(|pair| pair[0].1.checked_add(1).is_some_and(|next| next < pair[1].0))
}

/// Returns the number of positions in runs, saturating.
pub fn count(runs: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    runs.into_iter()
        .fold(0, |sum: u64, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
}

impl From<Intervals> for Vec<(u64, u64)> {
    fn from(all: Intervals) -> Self {
        all.runs
    }
}

impl TryFrom<Vec<(u64, u64)>> for Intervals {
    type Error = &'static str;

    fn try_from(runs: Vec<(u64, u64)>) -> Result<Self, Self::Error> {
        match are_apart(&runs) && runs.iter().all(|run| run.0 <= run.1) {
            true => Ok(Self { runs }),
            false => Err("runs of positions that overlap or are reversed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_equal_a_set_of_positions(
            runs in prop::collection::vec((0u64..200, 0u64..20), 0..60),
            asked in (0u64..200, 0u64..40),
        ) {
            let (mut all, mut naive) = (Intervals::default(), BTreeSet::new());
            for (first, len) in &runs {
                all.insert(*first, first + len);
                naive.extend(*first..=first + len);
                prop_assert!(all.runs().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            }
            let (first, last) = (asked.0, asked.0 + asked.1);
            prop_assert_eq!(all.top(), naive.last().copied());
            for position in 0..230 {
                prop_assert_eq!(all.contains(position), naive.contains(&position));
            }
            prop_assert_eq!(all.covers(first, last), (first..=last).all(|p| naive.contains(&p)));
            let holes: Vec<u64> = all.holes(first, last).flat_map(|(a, b)| a..=b).collect();
            let missing: Vec<u64> = (first..=last).filter(|p| !naive.contains(p)).collect();
            prop_assert_eq!(all.missing(first, last), missing.len() as u64);
            prop_assert_eq!(holes, missing);
            let again: Intervals = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
            prop_assert!(again == all && all.includes(&again));
        }
    }

    #[test]
    fn the_greatest_position_is_not_special() {
        let mut all = Intervals::of(u64::MAX, u64::MAX);
        assert_eq!(
            all.holes(u64::MAX - 1, u64::MAX).collect::<Vec<_>>(),
            [(u64::MAX - 1, u64::MAX - 1)]
        );
        all.insert(0, u64::MAX - 1);
        assert_eq!(all.runs(), [(0, u64::MAX)]);
        assert!(all.holes(0, u64::MAX).next().is_none());
        assert!(serde_json::from_str::<Intervals>("[[5,9],[9,12]]").is_err());
        assert!(serde_json::from_str::<Intervals>("[[5,4]]").is_err());
    }
}
