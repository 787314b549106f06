//! A decision.

use serde::Serialize;

use super::TimeJson;
use fetchwise::decision::{Decision, Rule, Selection, Source};
use fetchwise::router::{Mode, Routed};
use fetchwise::selector::Selector;

/// The label and rule of a link for which no fetcher can pass the vendor of its host.
const NO_VIABLE_FETCHER: &str = "no_viable_fetcher";

/// One decision.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Decision"))]
pub struct DecisionJson<'a> {
    url: &'a str,
    /// `learned`, `inferred`, `explore`, `probe`, `hard_coded`, `hinted`, `paused`, or `none`.
    decision: &'static str,
    fetcher: Option<&'a str>,
    confidence: Option<f64>,
    sample_size: Option<f64>,
    /// How decisions are made; absent where there is no router.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(!skip_serializing_if, with = "String", extend("enum" = <Mode as strum::VariantNames>::VARIANTS)))]
    mode: Option<&'static str>,
    rule: &'static str,
    propensity: Option<f64>,
    paused_until: Option<TimeJson>,
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schemars(with = "ProgramJson<'_>"))]
    program: Option<ProgramJson<'a>>,
}

/// What only a program with a router and fetchers knows of a decision.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ProgramJson<'a> {
    /// The fetcher that the other arm would have selected, in the modes shadow and split.
    shadow_fetcher: Option<&'a str>,
    /// The fetcher that would be selected if it were available.
    unavailable_fetcher: Option<&'a str>,
    /// The reason why it is unavailable.
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
        let program = ProgramJson {
            shadow_fetcher: routed.shadow.map(|id| selector.fetcher_name(id)),
            unavailable_fetcher: unavailable.map(|of| of.fetcher),
            unavailable_reason: unavailable.and_then(|of| of.reason),
        };
        let base = Self::of_selector(url, selector, &routed.decision);
        Self { mode: Some(mode.name()), program: Some(program), ..base }
    }

    /// Creates the JSON of a decision of which only the selection is known.
    pub fn of_take(url: &'a str, selector: &'a Selector, mode: Mode, take: &Selection) -> Self {
        let program = Some(ProgramJson::default());
        Self { mode: Some(mode.name()), program, ..Self::selected(url, selector, take) }
    }

    /// Creates the JSON of a decision of `selector` alone, without a router.
    pub fn of_selector(url: &'a str, selector: &'a Selector, decision: &Decision) -> Self {
        match decision {
            Decision::Selected(take) => Self::selected(url, selector, take),
            Decision::Paused { until, .. } => {
                let until = TimeJson::from(selector.clock().date_of(*until));
                let paused = Self::without_fetcher(url, Source::Paused.name(), Rule::Paused.name());
                Self { paused_until: Some(until), ..paused }
            }
            Decision::GiveUp => Self::without_fetcher(url, "none", "none"),
            Decision::NoViableFetcher => Self::without_fetcher(url, "none", NO_VIABLE_FETCHER),
        }
    }

    fn selected(url: &'a str, selector: &'a Selector, take: &Selection) -> Self {
        Self {
            fetcher: Some(selector.fetcher_name(take.fetcher)),
            confidence: Some(take.confidence),
            sample_size: Some(take.sample_size),
            propensity: Some(take.propensity),
            ..Self::without_fetcher(url, take.source.name(), take.rule.name())
        }
    }

    fn without_fetcher(url: &'a str, decision: &'static str, rule: &'static str) -> Self {
        Self {
            url,
            decision,
            fetcher: None,
            confidence: None,
            sample_size: None,
            mode: None,
            rule,
            propensity: None,
            paused_until: None,
            program: None,
        }
    }
}
