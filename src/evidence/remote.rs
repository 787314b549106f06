//! An attempt of another process, reduced to what evidence reads, and the totals of all of one
//! process.
//!
//! Owns: the data that travels between the nodes of a fleet.
//!
//! Invariants: evidence learns from a remote attempt by the same rule as from a local one.
//!
//! Must not know: how the data travels.

use super::{Observation, ObservedFields};
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// An attempt of another process, without the fields that evidence does not read: it has neither
/// URL nor headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RemoteAttempt<'a> {
    /// Time of the attempt.
    pub at: Timestamp,
    /// The fetcher.
    pub fetcher: &'a str,
    /// Weight, from 0 to 1.
    pub weight: f64,
    /// Whether it delivered content.
    pub success: bool,
    /// Whether it was blocked.
    pub is_banned: bool,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Hint from the failure before it.
    pub hint: Option<Hint>,
    /// Whether its URL led to a file, by the settings of the node that made it.
    pub is_file: bool,
    /// Type and value of each of its heuristics, in order.
    pub heuristics: &'a [(&'a str, &'a str)],
}

impl RemoteAttempt<'_> {
    /// Returns the site of the attempt, or its domain if it has no site.
    pub fn site(&self) -> Option<&str> {
        self.heuristics
            .iter()
            .find(|(kind, _)| *kind == "site")
            .map(|(_, value)| *value)
            .or_else(|| self.domain())
    }

    /// Returns the domain of the attempt.
    pub fn domain(&self) -> Option<&str> {
        self.heuristics.iter().find(|(kind, _)| *kind == "domain").map(|(_, value)| *value)
    }
}

/// A remote attempt that updates recent pairs however late it arrives.
pub(crate) struct InOrderAttempt<'f, 'a>(&'f RemoteAttempt<'a>);

impl<'a> RemoteAttempt<'a> {
    pub(crate) fn as_in_order(&self) -> InOrderAttempt<'_, 'a> {
        InOrderAttempt(self)
    }
}

impl Observation for InOrderAttempt<'_, '_> {
    fn fields(&self) -> ObservedFields<'_> {
        self.0.fields()
    }

    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str)) {
        self.0.each_heuristic(f);
    }
}

impl Observation for RemoteAttempt<'_> {
    fn fields(&self) -> ObservedFields<'_> {
        ObservedFields {
            url: "",
            kind: Some(if self.is_file { ContentKind::File } else { ContentKind::Page }),
            fetcher: self.fetcher,
            at: self.at,
            weight: self.weight,
            success: self.success,
            is_banned: self.is_banned,
            duration_ms: self.duration_ms,
            hint: self.hint,
        }
    }

    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str)) {
        self.heuristics.iter().for_each(|(kind, value)| f(kind, value));
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// The totals of an evidence snapshot for one fetcher.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FetcherTotals {
    /// The fetcher.
    pub fetcher: String,
    /// Number of attempts, undecayed.
    pub attempts: u64,
    /// Decayed weight of successes, as of the snapshot's time.
    pub success: f64,
    /// Decayed weight of all attempts.
    pub total: f64,
    /// Decayed weight of blocked attempts.
    pub blocked: f64,
}
