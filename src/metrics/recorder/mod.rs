//! Recorder of the counters. The selector, visits and replay report events to it. Without the
//! feature `metrics` it does nothing.
//!
//! Invariants: counting takes no lock, allocates nothing and makes no system call.
//!
//! Must not know: decisions, nor how the counts are exported.

#[cfg(feature = "metrics")]
pub(crate) mod counts;
#[cfg(feature = "metrics")]
pub(crate) mod durations;
#[cfg(feature = "metrics")]
pub(crate) mod name_counts;
#[cfg(any(feature = "journal", feature = "metrics"))]
pub(crate) mod outcome_index;
#[cfg(feature = "metrics")]
pub(crate) mod visit_timer;

#[cfg(feature = "metrics")]
use std::sync::Arc;

#[cfg(feature = "metrics")]
use counts::Counts;
#[cfg(feature = "metrics")]
use fetchwise_types::attempt::Attempt;
use fetchwise_types::decision::{Decision, Selection};
#[cfg(feature = "metrics")]
use fetchwise_types::registry::FetcherId;
#[cfg(feature = "metrics")]
pub(crate) use visit_timer::VisitTimer;

/// Cause of a host's pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nobody counts them"))]
#[repr(usize)]
pub(crate) enum PauseCause {
    /// Several links of the host ended blocked.
    Blocked = 0,
    /// The host responded with a rate limit.
    Limited = 1,
    /// The host's pace holds it.
    Pace = 2,
    /// The host declines this crawler.
    Declined = 3,
}

impl PauseCause {
    /// Names in the order of their numbers.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 4] = ["blocked", "limited", "pace", "declined"];
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nobody counts them"))]
#[repr(usize)]
pub(crate) enum ProbeEnd {
    /// The visit used the probe's response.
    Reused = 0,
    /// The probe failed, and a slower or more expensive request follows.
    Failed = 1,
    /// The visit used the result of another visit's probe.
    Shared = 2,
}

impl ProbeEnd {
    /// Names in the order of their numbers.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 3] = ["reused", "failed", "shared"];
}

/// Counters of a selector.
#[derive(Clone, Debug)]
pub(crate) struct MetricsRecorder {
    #[cfg(feature = "metrics")]
    counts: Arc<Counts>,
}

#[cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, clippy::unused_self, reason = "counting is compiled out")
)]
impl MetricsRecorder {
    /// Creates counters at zero, for a selector with `candidates` candidates.
    pub(crate) fn new(candidates: usize) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            counts: Arc::new(Counts::new(candidates)),
        }
    }

    /// Counts a plain decision, without a visit.
    #[inline]
    pub(crate) fn count_decision(&self, decision: &Decision) {
        #[cfg(feature = "metrics")]
        self.counts.count_decision(counts::Via::Select, decision);
    }

    /// Counts a request that a visit hands out.
    #[inline]
    pub(crate) fn count_selection(&self, take: &Selection) {
        #[cfg(feature = "metrics")]
        self.counts.count_selection(counts::Via::Visit, take);
    }

    /// Counts an attempt by `fetcher`, which is `None` if there are too many fetchers.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn count_attempt(&self, attempt: &Attempt, fetcher: Option<FetcherId>) {
        self.counts.count_attempt(attempt, fetcher);
    }

    /// Counts a host pause.
    #[inline]
    pub(crate) fn count_host_pause(&self, cause: PauseCause) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.host_pauses[cause as usize]);
    }

    /// Counts a link pause.
    #[inline]
    pub(crate) fn count_link_pause(&self) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.link_pauses);
    }

    /// Counts a rate limit that was hit, by the number of the level that it is attributed to.
    #[inline]
    pub(crate) fn count_rate_limit_hit(&self, level: usize) {
        #[cfg(feature = "metrics")]
        if let Some(trips) = self.counts.rate_limit_hits.get(level) {
            counts::add(trips);
        }
    }

    /// Counts a block that may concern either the page or the request rate.
    #[inline]
    pub(crate) fn count_ambiguous_block(&self) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.ambiguous_blocks);
    }

    /// Counts a wait of a visit, by the number of its reason.
    #[inline]
    pub(crate) fn count_wait(&self, why: usize) {
        #[cfg(feature = "metrics")]
        if let Some(waits) = self.counts.waits.get(why) {
            counts::add(waits);
        }
    }

    /// Counts a probe that ended, or that was not needed.
    #[inline]
    pub(crate) fn count_probe(&self, end: ProbeEnd) {
        #[cfg(feature = "metrics")]
        counts::add(&self.counts.probes[end as usize]);
    }

    /// Adds the attempts of one outcome that the log has from earlier runs.
    #[cfg(all(feature = "metrics", feature = "journal"))]
    pub(crate) fn add_logged_attempts(
        &self,
        fetcher: Option<FetcherId>,
        outcome: usize,
        attempts: u64,
    ) {
        self.counts.add_logged_attempts(fetcher, outcome, attempts);
    }

    /// Returns all counters.
    #[cfg(feature = "metrics")]
    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}
