//! Counters: fixed rows of atomics, one for each combination of labels.
//!
//! Every access is relaxed: each number is right a moment later, and no decision depends on it.
//!
//! Invariants: the number of rows is fixed, whatever comes from outside. Names without a row are
//! counted as "other".

use std::sync::atomic::{AtomicU64, Ordering};

use super::durations::Durations;
use super::name_counts::NameCounts;
use super::outcome_index::{OUTCOMES, outcome_of};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::decision::{Decision, Selection, Source};
use fetchwise_types::registry::{FetcherId, MAX_CANDIDATES};

/// Rows of fetchers: one for each possible candidate, and one for all other fetchers.
pub(crate) const FETCHERS: usize = MAX_CANDIDATES + 1;
/// Row of all fetchers that are not candidates.
pub(crate) const OTHER_FETCHER: usize = MAX_CANDIDATES;
/// Labels of decisions: each source, giving up, and no viable fetcher.
pub(crate) const SOURCES: usize = Source::ALL.len() + 2;
/// Rows of vendors. The shipped rules know fewer.
pub(crate) const VENDORS: usize = 128;
/// Reasons of waits.
pub(crate) const WAITS: [&str; 5] = ["probe", "trial", "local_fault", "pace", "doubt"];
/// Ends of visits: those that a visit reports, and being dropped without one.
pub(crate) const ENDS: [&str; 8] = [
    "delivered",
    "failed",
    "paused",
    "paced",
    "no_viable_fetcher",
    "no_route",
    "no_fetcher",
    "abandoned",
];

/// Origin of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Via {
    /// Caller that fetches by itself.
    Select = 0,
    /// Visit.
    Visit = 1,
}

impl Via {
    /// Names in the order of their numbers.
    pub(crate) const NAMES: [&str; 2] = ["select", "visit"];
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Decisions by origin, label and fetcher.
    decisions: Box<[AtomicU64]>,
    /// Attempts by fetcher and outcome.
    attempts: Box<[AtomicU64]>,
    /// Durations of delivered and of failed attempts by candidate, with a last row for all others.
    durations: Box<[[Durations; 2]]>,
    /// Durations of delivered and of failed visits.
    pub(crate) visit_durations: [Durations; 2],
    pub(crate) blocks: NameCounts<VENDORS>,
    pub(crate) host_pauses: [AtomicU64; 4],
    pub(crate) link_pauses: AtomicU64,
    pub(crate) rate_limit_hits: [AtomicU64; 3],
    pub(crate) ambiguous_blocks: AtomicU64,
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
    /// Creates counters for `candidates` candidates. All other fetchers share one row of durations.
    pub(crate) fn new(candidates: usize) -> Self {
        Self {
            decisions: rows(Via::NAMES.len() * SOURCES * FETCHERS),
            attempts: rows(FETCHERS * OUTCOMES),
            durations: (0..=candidates.min(MAX_CANDIDATES)).map(|_| Default::default()).collect(),
            visit_durations: Default::default(),
            blocks: NameCounts::default(),
            host_pauses: zeros(),
            link_pauses: AtomicU64::new(0),
            rate_limit_hits: zeros(),
            ambiguous_blocks: AtomicU64::new(0),
            waits: zeros(),
            probes: zeros(),
            visits: zeros(),
            visits_begun: AtomicU64::new(0),
        }
    }
}

/// Returns the row of a fetcher.
fn row(fetcher: Option<FetcherId>) -> usize {
    fetcher.map_or(OTHER_FETCHER, |id| id.index().min(OTHER_FETCHER))
}

/// Returns the name of a decision's label.
pub(crate) fn source_name(source: usize) -> &'static str {
    match Source::ALL.get(source) {
        Some(source) => source.name(),
        None if source == Source::ALL.len() => "gave_up",
        None => "no_viable_fetcher",
    }
}

impl Counts {
    #[inline]
    pub(crate) fn count_decision(&self, via: Via, decision: &Decision) {
        match decision {
            Decision::Selected(take) => self.count_selection(via, take),
            Decision::Paused { .. } => self.count_undecided(via, Source::Paused as usize),
            Decision::GiveUp => self.count_undecided(via, Source::ALL.len()),
            Decision::NoViableFetcher => self.count_undecided(via, Source::ALL.len() + 1),
        }
    }

    #[inline]
    pub(crate) fn count_selection(&self, via: Via, take: &Selection) {
        self.decision(via, take.source as usize, row(Some(take.fetcher)));
    }

    /// Counts a decision without a fetcher in the last row, which no other decision with its label
    /// uses.
    pub(crate) fn count_undecided(&self, via: Via, source: usize) {
        self.decision(via, source, OTHER_FETCHER);
    }

    fn decision(&self, via: Via, source: usize, fetcher: usize) {
        if let Some(count) =
            self.decisions.get((via as usize * SOURCES + source) * FETCHERS + fetcher)
        {
            add(count);
        }
    }

    pub(crate) fn decisions(&self, via: usize, source: usize, fetcher: usize) -> u64 {
        self.decisions.get((via * SOURCES + source) * FETCHERS + fetcher).map_or(0, read)
    }

    pub(crate) fn count_attempt(&self, attempt: &Attempt, fetcher: Option<FetcherId>) {
        let row = row(fetcher);
        let outcome = outcome_of(attempt.success, attempt.error_type.as_ref());
        if let Some(count) = self.attempts.get(row * OUTCOMES + outcome) {
            add(count);
        }
        if let Some(durations) = self.durations.get(row).or(self.durations.last()) {
            durations[usize::from(!attempt.success)].add_ms(attempt.duration_ms);
        }
        if attempt.is_banned {
            let vendor =
                attempt.heuristics.iter().find_map(|tag| tag.heuristic.kind.strip_prefix("block_"));
            self.blocks.add(vendor.unwrap_or("unknown"));
        }
    }

    #[cfg(feature = "journal")]
    pub(crate) fn add_logged_attempts(
        &self,
        fetcher: Option<FetcherId>,
        outcome: usize,
        attempts: u64,
    ) {
        if let Some(count) = self.attempts.get(row(fetcher) * OUTCOMES + outcome.min(OUTCOMES - 1))
        {
            count.fetch_add(attempts, Ordering::Relaxed);
        }
    }

    pub(crate) fn attempts(&self, fetcher: usize, outcome: usize) -> u64 {
        self.attempts.get(fetcher * OUTCOMES + outcome).map_or(0, read)
    }

    /// Returns the durations by candidate, with a last row for all others.
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
        assert_eq!(
            (source_name(SOURCES - 2), source_name(SOURCES - 1)),
            ("gave_up", "no_viable_fetcher")
        );
    }
}
