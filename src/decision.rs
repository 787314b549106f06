//! Decisions: what a selector answers, and under which label.

use crate::registry::FetcherId;
use crate::time::Timestamp;

/// The label of a decision. Attempts and results carry its name as their `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The fetcher taken is confident here.
    Learned,
    /// The best by the index, without being confident.
    Inferred,
    /// A cheaper fetcher is given a chance against the evidence.
    Explore,
    /// The cheap fetcher goes first, for 3 s, and its body is the result when it is content.
    Probe,
    /// The router table says so.
    HardCoded,
    /// The caller says so.
    Hinted,
    /// Not now.
    Paused,
}

impl Source {
    /// Every label.
    pub const ALL: [Self; 7] =
        [Self::Learned, Self::Inferred, Self::Explore, Self::Probe, Self::HardCoded, Self::Hinted, Self::Paused];

    /// Its name in JSON and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Inferred => "inferred",
            Self::Explore => "explore",
            Self::Probe => "probe",
            Self::HardCoded => "hard_coded",
            Self::Hinted => "hinted",
            Self::Paused => "paused",
        }
    }

    /// The label called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

/// Which rule of the policy made a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The highest index of all candidates.
    Index,
    /// The highest index of those that this domain has shown something of (one of them is confident here).
    DomainConfident,
    /// The worth as the last attempt.
    LastAttempt,
    /// Exploration.
    Explore,
    /// One more try by a fetcher that is new on the domain, when about to give up.
    LastDitch,
    /// The cheapest that is confident.
    CheapestConfident,
    /// Nobody is confident: the probe fetcher goes first.
    ProbeFirst,
    /// The published formula over a union of attempts.
    Published,
    /// The caller's hint.
    CallerHint,
    /// The router table.
    RouterTable,
    /// Another of a host's URLs had just been probed: its verdict is shared.
    SharedProbe,
    /// The link or its host is paused.
    Paused,
    /// A policy of the user's own.
    Custom,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 13] = [
        Self::Index,
        Self::DomainConfident,
        Self::LastAttempt,
        Self::Explore,
        Self::LastDitch,
        Self::CheapestConfident,
        Self::ProbeFirst,
        Self::Published,
        Self::CallerHint,
        Self::RouterTable,
        Self::SharedProbe,
        Self::Paused,
        Self::Custom,
    ];

    /// Its name in JSON and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::DomainConfident => "domain_confident",
            Self::LastAttempt => "last_attempt",
            Self::Explore => "explore",
            Self::LastDitch => "last_ditch",
            Self::CheapestConfident => "cheapest_confident",
            Self::ProbeFirst => "probe_first",
            Self::Published => "published",
            Self::CallerHint => "caller_hint",
            Self::RouterTable => "router_table",
            Self::SharedProbe => "shared_probe",
            Self::Paused => "paused",
            Self::Custom => "custom",
        }
    }

    /// The rule called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The rule in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Index => "the highest index of all candidates",
            Self::DomainConfident => {
                "a candidate is confident on this domain; the highest index of those with evidence here"
            }
            Self::LastAttempt => "the last attempt allowed: the highest expected worth",
            Self::Explore => "exploration: a cheaper candidate is given a chance",
            Self::LastDitch => "about to give up: the cheapest candidate that is new on this domain",
            Self::CheapestConfident => "the cheapest confident candidate",
            Self::ProbeFirst => "nobody is confident: the probe goes first",
            Self::Published => "the published formula over the union of attempts",
            Self::CallerHint => "the caller named the fetcher",
            Self::RouterTable => "the router table names the fetcher",
            Self::SharedProbe => "another URL of this host has just been probed",
            Self::Paused => "the link or its host is paused",
            Self::Custom => "the policy's own rule",
        }
    }
}

/// Use this fetcher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Take {
    /// Which one.
    pub fetcher: FetcherId,
    /// The label.
    pub source: Source,
    /// The rule that made the choice.
    pub rule: Rule,
    /// The fetcher's confidence here, 0 to 1.
    pub confidence: f64,
    /// The decayed attempts that confidence rests on.
    pub sample_size: f64,
    /// The chance that the policy gave to this choice.
    pub propensity: f64,
    /// Its breaker on this domain is open, and was ignored: all others' were too, or somebody named it.
    pub breaker_ignored: bool,
}

/// What a selector answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Use this fetcher.
    Take(Take),
    /// Not before then.
    Paused {
        /// When it may be asked again.
        until: Timestamp,
        /// Whether it is the host that is paused, not only this link.
        host: bool,
    },
    /// No further attempt is worth its cost.
    GiveUp,
}

impl Decision {
    /// The fetcher to use, if any.
    pub fn taken(&self) -> Option<Take> {
        match self {
            Self::Take(take) => Some(*take),
            _ => None,
        }
    }
}
