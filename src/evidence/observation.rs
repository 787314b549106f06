//! What evidence reads of an attempt, wherever the attempt lies.
//!
//! Owns the trait that live attempts, those of a log and those of other processes are learned from by. Must not know what is learned.

use fetchwise_types::attempt::{Attempt, Hint};
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// What evidence reads of an attempt, whether it is in memory or in the bytes of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) url: &'a str,
    /// What its URL led to, where the URL itself has not come along.
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
pub(crate) trait Observed {
    fn facts(&self) -> Facts<'_>;
    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str));

    /// Whether it comes from another process, and so perhaps late: then memories of what came last hear of it only where it is not
    /// older than what they know.
    fn is_foreign(&self) -> bool {
        false
    }
}

impl Observed for Attempt {
    fn facts(&self) -> Facts<'_> {
        Facts {
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

/// The domain that an attempt is tagged with.
pub(super) fn domain_of(attempt: &impl Observed) -> Option<&str> {
    let mut domain = None;
    attempt.each_heuristic(&mut |kind, value| {
        if kind == "domain" && domain.is_none() {
            domain = Some(value);
        }
    });
    domain
}
