//! An attempt of another process, as far as evidence reads it; and the evidence of one such process as a whole.
//!
//! Owns what travels between the nodes of a fleet. Invariant: a fact is learned from by the very rule that attempts are. Must not
//! know how either travels.

use std::collections::HashMap;

use super::{Facts, Observed};
use crate::evidence::columns::Image;
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// An attempt without what evidence does not read: neither URL nor headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fact<'a> {
    /// When it was made.
    pub at: Timestamp,
    /// By which fetcher.
    pub fetcher: &'a str,
    /// How much it counts, from 0 to 1.
    pub weight: f64,
    /// Whether it brought content.
    pub success: bool,
    /// Whether it was blocked.
    pub is_banned: bool,
    /// How long it took.
    pub duration_ms: u64,
    /// What the failure before it looked like.
    pub hint: Option<Hint>,
    /// Whether its URL led to a file, by the settings of whoever made it.
    pub is_file: bool,
    /// Type and value of each of its heuristics, in order.
    pub heuristics: &'a [(&'a str, &'a str)],
}

impl Fact<'_> {
    /// The site that it is tagged with; the domain where there is none.
    pub fn site(&self) -> Option<&str> {
        self.heuristics.iter().find(|(kind, _)| *kind == "site").map(|(_, value)| *value).or_else(|| self.domain())
    }

    /// The domain that it is tagged with.
    pub fn domain(&self) -> Option<&str> {
        self.heuristics.iter().find(|(kind, _)| *kind == "domain").map(|(_, value)| *value)
    }
}

/// A fact that counts as news however late it comes.
pub(crate) struct News<'f, 'a>(&'f Fact<'a>);

impl<'a> Fact<'a> {
    pub(crate) fn as_news(&self) -> News<'_, 'a> {
        News(self)
    }
}

impl Observed for News<'_, '_> {
    fn facts(&self) -> Facts<'_> {
        self.0.facts()
    }

    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str)) {
        self.0.each_heuristic(f);
    }
}

impl Observed for Fact<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts {
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

    fn is_foreign(&self) -> bool {
        true
    }
}

/// What a share says of the attempts by one fetcher.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Said {
    /// The fetcher.
    pub fetcher: String,
    /// How many attempts there were, whatever they weigh now.
    pub attempts: u64,
    /// What those that delivered weigh at the time that the share is of.
    pub success: f64,
    /// What all of them weigh.
    pub total: f64,
    /// What those that were blocked weigh.
    pub blocked: f64,
}

/// What the attempts of one process have shown, as plain columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share(pub(crate) Image);

impl Share {
    /// The time that faded entries were judged by.
    pub fn as_of(&self) -> Timestamp {
        self.0.as_of
    }

    /// The half-life that its weights fade by, in milliseconds; none where it has no weights.
    pub fn half_life_ms(&self) -> Option<u64> {
        self.0.decay.map(|decay| decay.half_life().as_millis() as u64)
    }

    /// How many keys it has evidence of.
    pub fn keys(&self) -> usize {
        self.0.entries.len()
    }

    /// The decayed weight of all entries.
    pub fn weight(&self) -> f64 {
        self.0.weight()
    }

    /// Whether none of its weights is worth `least` any more.
    pub fn has_faded(&self, least: f64) -> bool {
        self.0.has_faded(least)
    }

    /// What it says of all attempts together, by fetcher.
    pub fn said(&self) -> Vec<Said> {
        self.0.said()
    }

    /// What it says of some domains, by fetcher. Names are not in it: who wants to know has to name them. Cost: a pass over all keys.
    pub fn said_of<'d>(&self, domains: impl Iterator<Item = &'d str>) -> HashMap<&'d str, Vec<Said>> {
        self.0.said_of(domains)
    }

    /// Whether it has evidence of this domain itself.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.0.has_domain(domain)
    }

    /// Leaves out what is of this domain itself; what other domains of the site of its name have shown stays.
    pub fn forget_domain(&mut self, domain: &str) {
        self.0.forget_domain(domain);
    }

    /// Without what belongs to one domain or site. What is left belongs to all: all attempts together, flags, hints, depths, suffixes,
    /// tags, and heuristics of a user's own. Cost: a pass over all keys.
    pub fn general(&self) -> Self {
        Self(self.0.general())
    }

    /// What belongs to the domains of some sites: those of which `wants` says so, given xxh3-64 of the site's name. Cost: a pass over all
    /// keys.
    pub fn of_sites(&self, wants: impl Fn(u64) -> bool) -> Self {
        Self(self.0.of_sites(wants))
    }

    /// Whether nothing in it belongs to one domain or site.
    pub fn is_general(&self) -> bool {
        self.0.is_general()
    }

    /// Whether so many attempts could have shown it by `now`.
    pub fn is_of(&self, attempts: u64, now: Timestamp) -> bool {
        self.0.is_of(attempts, now)
    }

    /// Leaves out the lighter half of its keys, but for those that every share has. False where it has no others.
    pub fn lighten(&mut self) -> bool {
        self.0.lighten()
    }

    /// Where this and `other` differ by more than rounding, if anywhere: an entry's key and what about it.
    pub fn difference(&self, other: &Self) -> Option<(u64, &'static str)> {
        self.0.difference(&other.0)
    }

    /// The farthest that an exact weight of this and `other` are apart, as a share of the larger one, and of which key it is. A cell that
    /// only one of them has counts as nothing in the other. Recent weights, which depend on the order of arrival, are not looked at.
    pub fn distance(&self, other: &Self) -> (f64, u64) {
        self.0.distance(&other.0)
    }
}
