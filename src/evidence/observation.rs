//! The view of an attempt that evidence learns from, wherever the attempt is stored.
//!
//! Owns: the trait for live attempts, those of the log and those of other processes.
//!
//! Must not know: what evidence learns.

use fetchwise_types::attempt::{Attempt, Hint};
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// The fields of an attempt that evidence reads, from memory or from the bytes of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedFields<'a> {
    pub(crate) url: &'a str,
    /// File or page, if the URL itself is not available.
    pub(crate) kind: Option<ContentKind>,
    pub(crate) fetcher: &'a str,
    pub(crate) at: Timestamp,
    pub(crate) weight: f64,
    pub(crate) success: bool,
    pub(crate) is_banned: bool,
    pub(crate) duration_ms: u64,
    pub(crate) hint: Option<Hint>,
}

/// An attempt that evidence can learn from without a copy.
pub(crate) trait Observation {
    fn fields(&self) -> ObservedFields<'_>;
    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str));

    /// Returns whether the attempt comes from another process and may therefore be late. Recent
    /// pairs then learn from it only if it is not older than their newest attempt.
    fn is_remote(&self) -> bool {
        false
    }
}

impl Observation for Attempt {
    fn fields(&self) -> ObservedFields<'_> {
        ObservedFields {
            url: &self.url,
            kind: None,
            fetcher: &self.fetcher,
            at: self.attempted_at,
            weight: self.weight,
            success: self.success,
            is_banned: self.is_banned,
            duration_ms: self.duration_ms,
            hint: self.hint,
        }
    }

    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str)) {
        for tag in &self.heuristics {
            f(&tag.heuristic.kind, &tag.heuristic.value);
        }
    }
}

/// Returns the domain of an attempt.
pub(super) fn domain_of(attempt: &impl Observation) -> Option<&str> {
    let mut domain = None;
    attempt.each_heuristic(&mut |kind, value| {
        if kind == "domain" && domain.is_none() {
            domain = Some(value);
        }
    });
    domain
}
