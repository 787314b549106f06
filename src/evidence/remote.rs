//! An attempt of another process, reduced to what evidence reads, and the whole evidence of one such process.
//!
//! Owns: the data that travels between the nodes of a fleet.
//!
//! Invariants: evidence learns from a remote attempt by the same rule as from a local one.
//!
//! Must not know: how the data travels.

use std::collections::HashMap;

use super::{Observation, ObservedFields};
use crate::evidence::evidence_image::EvidenceImage;
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// An attempt of another process, without the fields that evidence does not read: it has neither URL nor headers.
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
        self.heuristics.iter().find(|(kind, _)| *kind == "site").map(|(_, value)| *value).or_else(|| self.domain())
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

/// The evidence of one process's attempts, as plain columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvidenceSnapshot(pub(crate) EvidenceImage);

impl EvidenceSnapshot {
    /// Returns the time at which entries were checked for having faded.
    pub fn as_of(&self) -> Timestamp {
        self.0.as_of
    }

    /// Returns the half-life of the weights in milliseconds; `None` without weights.
    pub fn half_life_ms(&self) -> Option<u64> {
        self.0.decay.map(|decay| decay.half_life().as_millis() as u64)
    }

    /// Returns the number of keys.
    pub fn keys(&self) -> usize {
        self.0.entries.len()
    }

    /// Returns the decayed weight of all entries.
    pub fn weight(&self) -> f64 {
        self.0.weight()
    }

    /// Returns whether all weights have decayed below `least`.
    pub fn has_faded(&self, least: f64) -> bool {
        self.0.has_faded(least)
    }

    /// Returns the totals of all attempts by fetcher.
    pub fn fetcher_totals(&self) -> Vec<FetcherTotals> {
        self.0.fetcher_totals()
    }

    /// Returns the totals of some domains by fetcher. The snapshot has no names, so the caller must name the domains.
    /// Cost: a pass over all keys.
    pub fn domain_totals<'d>(&self, domains: impl Iterator<Item = &'d str>) -> HashMap<&'d str, Vec<FetcherTotals>> {
        self.0.domain_totals(domains)
    }

    /// Returns whether the snapshot has evidence of this domain itself.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.0.has_domain(domain)
    }

    /// Removes this domain itself. Evidence about other domains of the site of its name stays.
    pub fn forget_domain(&mut self, domain: &str) {
        self.0.forget_domain(domain);
    }

    /// Returns the snapshot without anything that belongs to one domain or site. It keeps all attempts together, flags,
    /// hints, depths, suffixes, signals and the user's heuristics. Cost: a pass over all keys.
    pub fn global_part(&self) -> Self {
        Self(self.0.global_part())
    }

    /// Returns the part that belongs to the domains of some sites: those whose hash (xxh3-64 of the site's name)
    /// `wants` accepts. Cost: a pass over all keys.
    pub fn of_sites(&self, wants: impl Fn(u64) -> bool) -> Self {
        Self(self.0.of_sites(wants))
    }

    /// Returns whether no part of it belongs to one domain or site.
    pub fn is_global(&self) -> bool {
        self.0.is_global()
    }

    /// Returns whether `attempts` attempts could have produced the snapshot by `now`.
    pub fn is_plausible_for(&self, attempts: u64, now: Timestamp) -> bool {
        self.0.is_plausible_for(attempts, now)
    }

    /// Removes the lighter half of the keys, except those that every snapshot has. Returns false if there are no
    /// others.
    pub fn lighten(&mut self) -> bool {
        self.0.lighten()
    }

    /// Returns the first difference from `other` that exceeds rounding: an entry's key and a description.
    pub fn difference(&self, other: &Self) -> Option<(u64, &'static str)> {
        self.0.difference(&other.0)
    }

    /// Returns the largest difference between exact weights of the two snapshots, as a fraction of the larger one, and
    /// its key. A cell that only one of them has counts as zero in the other. Recent weights depend on the order of
    /// arrival and are not compared.
    pub fn distance(&self, other: &Self) -> (f64, u64) {
        self.0.distance(&other.0)
    }
}
