//! Decisions: the result of a selection, with its label and its rule.
//!
//! Owns: the names of labels and rules, which are contracts of the JSON and of the log.
//!
//! Must not know: how a choice is made.

use strum::VariantArray;

use crate::registry::FetcherId;
use crate::time::Timestamp;
use crate::unknown_name::UnknownName;

/// The label of a decision. Attempts and results carry its name as their `source`.
///
/// ```
/// use fetchwise_types::decision::Source;
///
/// assert_eq!("learned".parse(), Ok(Source::Learned));
/// assert_eq!(Source::Requested.to_string(), "hinted");
/// assert!("lerned".parse::<Source>().unwrap_err().to_string().contains("learned"));
/// ```
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownName, parse_err_fn = no_source)]
#[non_exhaustive]
pub enum Source {
    /// The chosen fetcher is confident for this URL.
    Learned,
    /// The chosen fetcher has the best index, but is not confident.
    Inferred,
    /// A cheaper fetcher is tried, although the evidence favours another one.
    Explore,
    /// The plain fetcher goes first with a short deadline; if it delivers content, that is the
    /// result.
    Probe,
    /// The router table names the fetcher.
    HardCoded,
    /// The caller named the fetcher. Its name in JSON is `hinted`.
    #[strum(serialize = "hinted")]
    Requested,
    /// No request is made now: the link or its host is paused.
    Paused,
}

fn no_source(name: &str) -> UnknownName {
    UnknownName::new("source", name, Source::ALL.iter().map(|source| source.name()))
}

impl Source {
    /// Every label.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name in JSON and in the log.
    #[inline]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the label called `name`.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The rule of the policy that made a choice. `docs/concepts/decisions.md` describes the rules of
/// the default policy.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownName, parse_err_fn = no_rule)]
#[non_exhaustive]
pub enum Rule {
    /// Best index: the highest index of all candidates.
    Index,
    /// Domain confidence: the highest index of the candidates that have evidence on this domain,
    /// because one of them is confident there.
    DomainConfident,
    /// Last attempt: the highest expected worth.
    LastAttempt,
    /// Exploration: a cheaper candidate is tried.
    Explore,
    /// Last-ditch try: about to give up, the cheapest fetcher that is new on the domain.
    LastDitch,
    /// Impassable try: no fetcher gets past the host's vendor, and the best candidate is tried
    /// anyway.
    ImpassableTry,
    /// The cheapest candidate that is confident.
    CheapestConfident,
    /// No candidate is confident, so the probe fetcher goes first.
    ProbeFirst,
    /// The published formula, over a union of attempts.
    Published,
    /// The caller named the fetcher. Its name in JSON is `caller_hint`.
    #[strum(serialize = "caller_hint")]
    Requested,
    /// The router table names the fetcher.
    RouterTable,
    /// Another URL of the host has just been probed, and shares its verdict.
    SharedProbe,
    /// The link or its host is paused.
    Paused,
    /// A rule of the user's own policy.
    Custom,
}

fn no_rule(name: &str) -> UnknownName {
    UnknownName::new("rule", name, Rule::ALL.iter().map(|rule| rule.name()))
}

impl Rule {
    /// Every rule.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name in JSON and in the log.
    #[inline]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the rule in words.
    #[inline]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Index => "the highest index of all candidates",
            Self::DomainConfident => {
                "a candidate is confident on this domain; the highest index of those with evidence here"
            }
            Self::LastAttempt => "the last attempt allowed: the highest expected worth",
            Self::Explore => "exploration: a cheaper candidate is tried",
            Self::ImpassableTry => {
                "no fetcher gets past this host's vendor; the best candidate is tried anyway"
            }
            Self::LastDitch => {
                "about to give up: the cheapest candidate that is new on this domain"
            }
            Self::CheapestConfident => "the cheapest confident candidate",
            Self::ProbeFirst => "no candidate is confident: the probe goes first",
            Self::Published => "the published formula over the union of attempts",
            Self::Requested => "the caller named the fetcher",
            Self::RouterTable => "the router table names the fetcher",
            Self::SharedProbe => "another URL of this host has just been probed",
            Self::Paused => "the link or its host is paused",
            Self::Custom => "the policy's own rule",
        }
    }
}

/// A chosen fetcher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// The fetcher.
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
    /// Whether its breaker on this domain is open and was ignored, because all others are open too
    /// or the caller named it.
    pub breaker_ignored: bool,
}

/// The result of a selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Use this fetcher.
    Selected(Selection),
    /// Make no request before then.
    Paused {
        /// The end of the pause.
        until: Timestamp,
        /// Whether the host is paused, not only this link.
        host: bool,
    },
    /// No further attempt is worth its cost.
    GiveUp,
    /// Not even a first attempt is worth its cost: no fetcher gets past the vendor that blocks on
    /// this host.
    NoViableFetcher,
}

impl Decision {
    /// Returns the selection, if a fetcher is to be used.
    #[inline]
    pub fn selected(&self) -> Option<Selection> {
        match self {
            Self::Selected(take) => Some(*take),
            _ => None,
        }
    }

    /// Returns the rule of the decision in words.
    pub fn rule_text(&self) -> &'static str {
        match self {
            Self::Selected(take) => take.rule.describe(),
            Self::Paused { .. } => Rule::Paused.describe(),
            Self::GiveUp => "no candidate is worth its cost",
            Self::NoViableFetcher => {
                "no candidate is worth even a first attempt behind this host's vendor"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json_and_read_back() {
        let sources = Source::ALL.iter().map(|source| source.name()).collect::<Vec<_>>();
        assert_eq!(
            sources,
            ["learned", "inferred", "explore", "probe", "hard_coded", "hinted", "paused"]
        );
        assert!(Source::ALL.iter().all(|source| source.name().parse() == Ok(*source)));
        assert_eq!(
            (Rule::Requested.name(), Rule::DomainConfident.name()),
            ("caller_hint", "domain_confident")
        );
        assert!(Rule::ALL.iter().all(|rule| rule.to_string().parse() == Ok(*rule)));
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_one() {
        let error = "lerned".parse::<Source>().unwrap_err();
        assert_eq!(error.nearest(), Some("learned"));
        assert_eq!(Source::from_name("Learned"), None, "names have one spelling");
    }
}
