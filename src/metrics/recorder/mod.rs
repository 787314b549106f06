//! Where the selector, visits and replay say what has happened, to be counted; nothing at all without the feature `metrics`.
//!
//! Invariant: counting takes no lock, allocates nothing and makes no system call. Must not decide anything, nor know how counts are
//! shown.

#[cfg(feature = "metrics")]
pub(crate) mod counts;
#[cfg(feature = "metrics")]
pub(crate) mod durations;
#[cfg(feature = "metrics")]
pub(crate) mod names;
#[cfg(any(feature = "journal", feature = "metrics"))]
pub(crate) mod outcomes;
#[cfg(feature = "metrics")]
pub(crate) mod visit_timer;

#[cfg(feature = "metrics")]
use std::sync::Arc;

#[cfg(feature = "metrics")]
pub(crate) use crate::metrics::recorder::visit_timer::Watch;
#[cfg(feature = "metrics")]
use counts::Counts;
#[cfg(feature = "metrics")]
use fetchwise_types::attempt::Attempt;
use fetchwise_types::decision::{Decision, Selection};
#[cfg(feature = "metrics")]
use fetchwise_types::registry::FetcherId;

/// Why a host is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nobody counts them"))]
#[repr(usize)]
pub(crate) enum PauseCause {
    /// Several of its links ended blocked.
    Blocked = 0,
    /// It said "not now".
    Limited = 1,
    /// Its pace holds it.
    Pace = 2,
}

impl PauseCause {
    /// In the order of their numbers.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 3] = ["blocked", "limited", "pace"];
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nobody counts them"))]
#[repr(usize)]
pub(crate) enum ProbeEnd {
    /// What it brought was what was wanted.
    Reused = 0,
    /// It was not, and something longer or dearer has to follow.
    Failed = 1,
    /// Another visit's verdict was taken over.
    Shared = 2,
}

impl ProbeEnd {
    /// In the order of their numbers.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 3] = ["reused", "failed", "shared"];
}

/// What a selector counts.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    #[cfg(feature = "metrics")]
    counts: Arc<Counts>,
}

#[cfg_attr(not(feature = "metrics"), allow(unused_variables, clippy::unused_self, reason = "counting is compiled out"))]
impl Meter {
    /// With nothing counted, for a selector with so many candidates.
    pub(crate) fn new(candidates: usize) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            counts: Arc::new(Counts::new(candidates)),
        }
    }

    /// Somebody asked for a decision, and nothing but a decision.
    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        #[cfg(feature = "metrics")]
        self.counts.decided(counts::Via::Select, decision);
    }

    /// A visit hands out a request.
    #[inline]
    pub(crate) fn took(&self, take: &Selection) {
        #[cfg(feature = "metrics")]
        self.counts.took(counts::Via::Visit, take);
    }

    /// An attempt is recorded by `fetcher`; none where there are too many fetchers to tell them apart.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn recorded(&self, attempt: &Attempt, fetcher: Option<FetcherId>) {
        self.counts.recorded(attempt, fetcher);
    }

    /// A host is paused.
    #[inline]
    pub(crate) fn host_paused(&self, cause: PauseCause) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.host_pauses[cause as usize]);
    }

    /// A link is paused.
    #[inline]
    pub(crate) fn link_paused(&self) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.link_pauses);
    }

    /// A host was found to limit: the number of the level whose limit it is taken for.
    #[inline]
    pub(crate) fn tripped(&self, level: usize) {
        #[cfg(feature = "metrics")]
        if let Some(trips) = self.counts.pace_trips.get(level) {
            counts::add(trips);
        }
    }

    /// A wall may be the page's or the pace's.
    #[inline]
    pub(crate) fn doubted(&self) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.pace_doubts);
    }

    /// A visit is told to wait: the number of what it waits for.
    #[inline]
    pub(crate) fn waits(&self, why: usize) {
        #[cfg(feature = "metrics")]
        if let Some(waits) = self.counts.waits.get(why) {
            counts::add(waits);
        }
    }

    /// A probe ended, or was not needed.
    #[inline]
    pub(crate) fn probed(&self, end: ProbeEnd) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.probes[end as usize]);
    }

    /// So many attempts of this outcome are in the log from earlier runs.
    #[cfg(all(feature = "metrics", feature = "journal"))]
    pub(crate) fn found(&self, fetcher: Option<FetcherId>, outcome: usize, attempts: u64) {
        self.counts.found(fetcher, outcome, attempts);
    }

    /// All of it.
    #[cfg(feature = "metrics")]
    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}
