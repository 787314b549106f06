//! A decision.

use serde::Serialize;

use fetchwise::decision::{Decision, Rule, Selection, Source};
use fetchwise::rfc3339;
use fetchwise::router::{Mode, Routed};
use fetchwise::selector::Selector;

/// The label and rule of a link for which no fetcher can pass the vendor of its host.
const NO_VIABLE_FETCHER: &str = "no_viable_fetcher";

/// One decision.
#[derive(Debug, Serialize)]
pub struct DecisionJson<'a> {
    url: &'a str,
    decision: &'static str,
    fetcher: Option<&'a str>,
    confidence: Option<f64>,
    sample_size: Option<f64>,
    mode: &'static str,
    rule: &'static str,
    propensity: Option<f64>,
    paused_until: Option<String>,
    /// The fetcher that the other arm would have selected, in the modes shadow and split.
    shadow_fetcher: Option<&'a str>,
    /// The fetcher that would be selected if it were available.
    unavailable_fetcher: Option<&'a str>,
    unavailable_reason: Option<&'a str>,
}

/// A candidate that is preferred by evidence or by the caller but is unavailable.
#[derive(Clone, Copy, Debug)]
pub struct Unavailable<'a> {
    /// The name of the candidate.
    pub fetcher: &'a str,
    /// Why it is unavailable.
    pub reason: Option<&'a str>,
}

impl<'a> DecisionJson<'a> {
    /// Creates the JSON of a decision of `selector` about `url`, as the caller wrote it.
    pub fn new(
        url: &'a str,
        selector: &'a Selector,
        mode: Mode,
        routed: &Routed,
        unavailable: Option<Unavailable<'a>>,
    ) -> Self {
        let shadow = routed.shadow.map(|id| selector.fetcher_name(id));
        let base = match routed.decision {
            Decision::Selected(take) => Self::of_take(url, selector, mode, &take),
            Decision::Paused { until, .. } => {
                let (label, rule) = (Source::Paused.name(), Rule::Paused.name());
                let until = rfc3339::format(selector.clock().date_of(until));
                Self { paused_until: Some(until), ..Self::without_fetcher(url, mode, label, rule) }
            }
            Decision::GiveUp => Self::without_fetcher(url, mode, "none", "none"),
            Decision::NoViableFetcher => Self::without_fetcher(url, mode, "none", NO_VIABLE_FETCHER),
        };
        Self {
            shadow_fetcher: shadow,
            unavailable_fetcher: unavailable.map(|of| of.fetcher),
            unavailable_reason: unavailable.and_then(|of| of.reason),
            ..base
        }
    }

    /// Creates the JSON of a decision of which only the selection is known.
    pub fn of_take(url: &'a str, selector: &'a Selector, mode: Mode, take: &Selection) -> Self {
        Self {
            fetcher: Some(selector.fetcher_name(take.fetcher)),
            confidence: Some(take.confidence),
            sample_size: Some(take.sample_size),
            propensity: Some(take.propensity),
            ..Self::without_fetcher(url, mode, take.source.name(), take.rule.name())
        }
    }

    fn without_fetcher(url: &'a str, mode: Mode, decision: &'static str, rule: &'static str) -> Self {
        Self {
            url,
            decision,
            fetcher: None,
            confidence: None,
            sample_size: None,
            mode: mode.name(),
            rule,
            propensity: None,
            paused_until: None,
            shadow_fetcher: None,
            unavailable_fetcher: None,
            unavailable_reason: None,
        }
    }
}
