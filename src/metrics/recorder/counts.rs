//! The counts themselves: fixed rows of atomics, one for each combination of labels.
//!
//! Invariant: how many rows there are is fixed, whatever comes from outside; what has no row of its own is counted under "other".
//! Everything is relaxed: each number is right a moment later, and nothing is decided by them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::durations::Durations;
use super::names::Names;
use super::outcomes::{OUTCOMES, outcome_of};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::decision::{Decision, Source, Selection};
use fetchwise_types::registry::{MAX_CANDIDATES, FetcherId};

/// Fetchers with rows of their own: as many as there can be candidates, with one more for all others.
pub(crate) const FETCHERS: usize = MAX_CANDIDATES + 1;
/// The row of whoever has none of their own.
pub(crate) const OTHER_FETCHER: usize = MAX_CANDIDATES;
/// Each label of a decision, giving up, and seeing at once that nobody gets past.
pub(crate) const SOURCES: usize = Source::ALL.len() + 2;
/// Vendors with rows of their own. The shipped rules know fewer.
pub(crate) const VENDORS: usize = 128;
/// What visits wait for.
pub(crate) const WAITS: [&str; 5] = ["probe", "trial", "local_fault", "pace", "doubt"];
/// How visits end.
pub(crate) const ENDS: [&str; 8] =
    ["delivered", "failed", "paused", "paced", "no_fetcher_gets_past", "no_route", "no_fetcher", "abandoned"];

/// Who asked for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Via {
    /// Somebody who fetches by himself.
    Select = 0,
    /// A visit.
    Visit = 1,
}

impl Via {
    /// In the order of their numbers.
    pub(crate) const NAMES: [&str; 2] = ["select", "visit"];
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Counts {
    /// By who asked, label and fetcher.
    decisions: Box<[AtomicU64]>,
    /// By fetcher and outcome.
    attempts: Box<[AtomicU64]>,
    /// By candidate, with a last row for all others: of those that delivered, and of those that did not.
    durations: Box<[[Durations; 2]]>,
    /// Of visits that delivered, and of those that did not.
    pub(crate) visit_durations: [Durations; 2],
    pub(crate) blocks: Names<VENDORS>,
    pub(crate) host_pauses: [AtomicU64; 3],
    pub(crate) link_pauses: AtomicU64,
    pub(crate) pace_trips: [AtomicU64; 3],
    pub(crate) pace_doubts: AtomicU64,
    pub(crate) waits: [AtomicU64; WAITS.len()],
    pub(crate) probes: [AtomicU64; 3],
    pub(crate) visits: [AtomicU64; ENDS.len()],
    pub(crate) visits_begun: AtomicU64,
}

/// Adds one.
#[inline]
pub(crate) fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Reads a count.
pub(crate) fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn zeros<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

fn rows(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Counts {
    /// For so many candidates: whoever else has recorded attempts shares a row of durations.
    pub(crate) fn new(candidates: usize) -> Self {
        Self {
            decisions: rows(Via::NAMES.len() * SOURCES * FETCHERS),
            attempts: rows(FETCHERS * OUTCOMES),
            durations: (0..=candidates.min(MAX_CANDIDATES)).map(|_| Default::default()).collect(),
            visit_durations: Default::default(),
            blocks: Names::default(),
            host_pauses: zeros(),
            link_pauses: AtomicU64::new(0),
            pace_trips: zeros(),
            pace_doubts: AtomicU64::new(0),
            waits: zeros(),
            probes: zeros(),
            visits: zeros(),
            visits_begun: AtomicU64::new(0),
        }
    }
}

/// The row of a fetcher.
fn row(fetcher: Option<FetcherId>) -> usize {
    fetcher.map_or(OTHER_FETCHER, |id| id.index().min(OTHER_FETCHER))
}

/// The name of a decision's label.
pub(crate) fn source_name(source: usize) -> &'static str {
    match Source::ALL.get(source) {
        Some(source) => source.name(),
        None if source == Source::ALL.len() => "gave_up",
        None => "no_fetcher_gets_past",
    }
}

impl Counts {
    #[inline]
    pub(crate) fn decided(&self, via: Via, decision: &Decision) {
        match decision {
            Decision::Selected(take) => self.took(via, take),
            Decision::Paused { .. } => self.undecided(via, Source::Paused as usize),
            Decision::GiveUp => self.undecided(via, Source::ALL.len()),
            Decision::NoFetcherGetsPast => self.undecided(via, Source::ALL.len() + 1),
        }
    }

    #[inline]
    pub(crate) fn took(&self, via: Via, take: &Selection) {
        self.decision(via, take.source as usize, row(Some(take.fetcher)));
    }

    /// A decision without a fetcher. It has the last row, which nobody else with its label uses.
    pub(crate) fn undecided(&self, via: Via, source: usize) {
        self.decision(via, source, OTHER_FETCHER);
    }

    fn decision(&self, via: Via, source: usize, fetcher: usize) {
        if let Some(count) = self.decisions.get((via as usize * SOURCES + source) * FETCHERS + fetcher) {
            add(count);
        }
    }

    pub(crate) fn decisions(&self, via: usize, source: usize, fetcher: usize) -> u64 {
        self.decisions.get((via * SOURCES + source) * FETCHERS + fetcher).map_or(0, read)
    }

    pub(crate) fn recorded(&self, attempt: &Attempt, fetcher: Option<FetcherId>) {
        let row = row(fetcher);
        let outcome = outcome_of(attempt.success, attempt.error_type.as_ref());
        if let Some(count) = self.attempts.get(row * OUTCOMES + outcome) {
            add(count);
        }
        if let Some(durations) = self.durations.get(row).or(self.durations.last()) {
            durations[usize::from(!attempt.success)].add_ms(attempt.duration_ms);
        }
        if attempt.is_banned {
            let vendor = attempt.heuristics.iter().find_map(|tag| tag.heuristic.kind.strip_prefix("block_"));
            self.blocks.add(vendor.unwrap_or("unknown"));
        }
    }

    #[cfg(feature = "journal")]
    pub(crate) fn found(&self, fetcher: Option<FetcherId>, outcome: usize, attempts: u64) {
        if let Some(count) = self.attempts.get(row(fetcher) * OUTCOMES + outcome.min(OUTCOMES - 1)) {
            count.fetch_add(attempts, Ordering::Relaxed);
        }
    }

    pub(crate) fn attempts(&self, fetcher: usize, outcome: usize) -> u64 {
        self.attempts.get(fetcher * OUTCOMES + outcome).map_or(0, read)
    }

    /// By candidate, with a last row for all others.
    pub(crate) fn durations(&self) -> &[[Durations; 2]] {
        &self.durations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbered_as_they_are_named() {
        for source in Source::ALL {
            assert_eq!(source_name(*source as usize), source.name());
        }
        assert_eq!((source_name(SOURCES - 2), source_name(SOURCES - 1)), ("gave_up", "no_fetcher_gets_past"));
    }
}
