//! The JSON of an explanation: a decision with its evidence.

use serde::Serialize;
use serde_json::Value;

use super::{DecisionJson, HeuristicJson, PaceJson, PauseJson, TimeJson};
use crate::explanation_text::day;
use fetchwise::decision::Decision;
use fetchwise::pace::PaceExplanation;
use fetchwise::router::Routed;
use fetchwise::selector::{
    CandidateView, Counterfactual, EvidenceStep, Explanation, HostSignalView, Selector,
};

/// A decision with the evidence and the steps behind it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Explanation"))]
pub struct ExplanationJson<'a> {
    #[serde(flatten)]
    decision: DecisionJson<'a>,
    rule_text: &'static str,
    policy: &'a str,
    heuristics: Vec<HeuristicJson<'a>>,
    candidates: Vec<CandidateJson<'a>>,
    steps: Vec<StepJson<'a>>,
    counterfactuals: Vec<CounterfactualJson<'a>>,
    /// The pace of the host, which only a program adds; null for a host without requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(!skip_serializing_if, with = "Option<PaceJson>"))]
    pace: Option<Option<PaceJson>>,
    host_showed: Vec<TagJson<'a>>,
    /// What is paused, after which attempt, and how often; only for a paused URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "PauseJson"))]
    pause: Option<PauseJson>,
}

/// The inputs of an explanation.
#[derive(Clone, Copy, Debug)]
pub struct ExplainInput<'a> {
    /// The selector that decided.
    pub selector: &'a Selector,
    /// The decision.
    pub routed: &'a Routed,
    /// Its explanation.
    pub explanation: &'a Explanation,
    /// The pace of the host.
    pub pace: Option<&'a PaceExplanation>,
    /// The explanation by the node's own log alone; only for a node of a fleet.
    pub own: Option<&'a Explanation>,
}

impl<'a> ExplanationJson<'a> {
    /// Creates the explanation of `decision`. `is_available` says which candidates are available.
    pub fn new(
        decision: DecisionJson<'a>,
        asked: ExplainInput<'a>,
        is_available: impl Fn(&str) -> bool,
    ) -> Self {
        let ExplainInput { selector, routed, explanation, pace, own } = asked;
        let mut json = Self::evidence(decision, selector, &routed.decision, explanation);
        for candidate in &mut json.candidates {
            candidate.available = Some(is_available(candidate.fetcher));
        }
        if let Some(own) = own {
            json.steps
                .iter_mut()
                .zip(&explanation.steps)
                .for_each(|(json, step)| json.split(step, own));
        }
        json.pace = Some(pace.map(PaceJson::from));
        json
    }

    /// Creates the explanation of the decision that `selector` alone makes about `asked`: the
    /// fields that need no program.
    pub fn of_selector(
        selector: &'a Selector,
        asked: &'a str,
        explanation: &'a Explanation,
    ) -> Self {
        let decision = DecisionJson::of_selector(asked, selector, &explanation.decision);
        Self::evidence(decision, selector, &explanation.decision, explanation)
    }

    fn evidence(
        decision: DecisionJson<'a>,
        selector: &'a Selector,
        decided: &Decision,
        explanation: &'a Explanation,
    ) -> Self {
        let bounds = Bounds::of(selector);
        let chosen = decided.selected().map(|take| selector.fetcher_name(take.fetcher));
        let heuristics = explanation.heuristics.iter();
        let candidates = explanation.candidates.iter();
        let steps = explanation.steps.iter().enumerate();
        let counterfactuals = explanation.counterfactuals.iter();
        Self {
            decision,
            rule_text: decided.rule_text(),
            policy: selector.policy_name(),
            heuristics: heuristics.map(HeuristicJson::from).collect(),
            candidates: candidates.map(|c| candidate_json(c, chosen, bounds)).collect(),
            steps: steps
                .map(|(at, step)| step_json(step, explanation.deciding == Some(at)))
                .collect(),
            counterfactuals: counterfactuals
                .filter_map(|c| counterfactual_json(c, bounds))
                .collect(),
            pace: None,
            host_showed: explanation.shown.iter().map(tag_json).collect(),
            pause: None,
        }
    }

    /// Returns it as a value. Names and numbers always have one.
    pub fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Adds what is paused, and why.
    #[must_use]
    pub fn with_pause(self, pause: Option<PauseJson>) -> Self {
        Self { pause, ..self }
    }
}

/// A signal of the host.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "HostSignals"))]
struct TagJson<'a> {
    tag: &'a str,
    vendor: bool,
    last_shown: String,
    fetchers: Vec<TagFetcherJson<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "HostSignalsOfFetcher")
)]
struct TagFetcherJson<'a> {
    fetcher: &'a str,
    success_rate: f64,
    attempts: f64,
    hosts: u32,
    category_rate: f64,
    weight: f64,
    turned_at: Option<TimeJson>,
}

/// What would be without some evidence, or with another fetcher.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Counterfactual"))]
#[serde(tag = "kind", rename_all = "snake_case")]
enum CounterfactualJson<'a> {
    /// The decision without evidence about site, domain and section.
    #[cfg_attr(feature = "schema", schemars(title = "WithoutDomainEvidence"))]
    WithoutDomainEvidence {
        decision: &'static str,
        fetcher: Option<&'a str>,
        p: Option<f64>,
        index: Option<f64>,
        confidence: Option<f64>,
    },
    /// The cheapest candidate instead of the chosen one.
    #[cfg_attr(feature = "schema", schemars(title = "CheapestAlternative"))]
    CheapestAlternative {
        fetcher: &'a str,
        cost: f64,
        p: f64,
        index: f64,
        open: bool,
        expected_cost: f64,
        expected_cost_chosen: f64,
    },
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Candidate"))]
struct CandidateJson<'a> {
    fetcher: &'a str,
    chosen: bool,
    cost: f64,
    /// The configured cost, if the cost is measured, and the measured milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "MeasuredJson"))]
    measured: Option<MeasuredJson>,
    p: f64,
    b: f64,
    index: f64,
    last: f64,
    confidence: f64,
    sample_size: f64,
    confident: bool,
    domain_attempts: f64,
    open: bool,
    excluded: bool,
    /// Whether it is available to the caller; only a program knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(!skip_serializing_if, with = "bool"))]
    available: Option<bool>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "EvidenceStep"))]
struct StepJson<'a> {
    r#type: &'a str,
    value: &'a str,
    fetcher: &'a str,
    /// Whether this step decided.
    deciding: bool,
    success: f64,
    total: f64,
    exact_success: f64,
    exact_total: f64,
    blocked: f64,
    attempts: u32,
    p_before: f64,
    p_after: f64,
    /// The parts of `exact_total` from this node's own log and from peers; only for a node of a
    /// fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    own_total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    peer_total: Option<f64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MeasuredCost"))]
struct MeasuredJson {
    configured_cost: f64,
    request_ms: f64,
    plain_ms: f64,
}

fn tag_json(view: &HostSignalView) -> TagJson<'_> {
    let fetchers = view.fetchers.iter().map(|of| TagFetcherJson {
        fetcher: &of.fetcher,
        success_rate: of.success_rate,
        attempts: of.attempts,
        hosts: of.hosts,
        category_rate: of.category_rate,
        weight: of.weight,
        turned_at: of.turned_at.map(TimeJson::from),
    });
    TagJson {
        tag: &view.tag,
        vendor: view.is_vendor,
        last_shown: day(view.last_shown),
        fetchers: fetchers.collect(),
    }
}

/// The upper limit of costs for programs, in pages. A tiny chance of success makes the cost of a
/// page arbitrarily large and its index arbitrarily small; beyond this limit neither has a meaning.
const COST_MOST: f64 = 10.0;

/// The limits of costs and indices.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    cost_most: f64,
}

impl Bounds {
    pub(crate) fn of(selector: &Selector) -> Self {
        Self { cost_most: COST_MOST * selector.settings().page_value }
    }

    fn cost(self, cost: f64) -> f64 {
        cost.min(self.cost_most)
    }

    pub(crate) fn index(self, index: f64) -> f64 {
        index.max(-self.cost_most)
    }
}

fn counterfactual_json(of: &Counterfactual, bounds: Bounds) -> Option<CounterfactualJson<'_>> {
    Some(match of {
        Counterfactual::WithoutDomain { decision, candidate } => {
            CounterfactualJson::WithoutDomainEvidence {
                decision: decision.selected().map_or("none", |take| take.source.name()),
                fetcher: candidate.as_ref().map(|c| c.fetcher.as_str()),
                p: candidate.as_ref().map(|c| c.success),
                index: candidate.as_ref().map(|c| bounds.index(c.index)),
                confidence: candidate.as_ref().map(|c| c.confidence),
            }
        }
        Counterfactual::CheapestAlternative { candidate, expected_cost, expected_cost_chosen } => {
            CounterfactualJson::CheapestAlternative {
                fetcher: &candidate.fetcher,
                cost: candidate.cost,
                p: candidate.success,
                index: bounds.index(candidate.index),
                open: candidate.open,
                expected_cost: bounds.cost(*expected_cost),
                expected_cost_chosen: bounds.cost(*expected_cost_chosen),
            }
        }
        _ => return None,
    })
}

fn candidate_json<'a>(
    c: &'a CandidateView,
    chosen: Option<&str>,
    bounds: Bounds,
) -> CandidateJson<'a> {
    CandidateJson {
        fetcher: &c.fetcher,
        chosen: chosen == Some(&c.fetcher),
        cost: c.cost,
        measured: c.measured.map(|of| MeasuredJson {
            configured_cost: of.configured,
            request_ms: of.request_ms,
            plain_ms: of.plain_ms,
        }),
        p: c.success,
        b: c.block,
        index: bounds.index(c.index),
        last: c.last_worth,
        confidence: c.confidence,
        sample_size: c.sample_size,
        confident: c.confident,
        domain_attempts: c.domain_attempts,
        open: c.open,
        excluded: c.excluded,
        available: None,
    }
}

/// Returns the part of a step's attempts that comes from the node's own log.
pub fn own_total(step: &EvidenceStep, own: &Explanation) -> f64 {
    let is_same = |of: &&EvidenceStep| {
        of.kind == step.kind && of.value == step.value && of.fetcher == step.fetcher
    };
    own.steps.iter().find(is_same).map_or(0.0, |own| own.exact_total)
}

impl StepJson<'_> {
    /// Adds the parts of the attempts from the node's own log and from peers.
    fn split(&mut self, step: &EvidenceStep, own: &Explanation) {
        let own = own_total(step, own);
        self.own_total = Some(own);
        self.peer_total = Some((step.exact_total - own).max(0.0));
    }
}

fn step_json(step: &EvidenceStep, deciding: bool) -> StepJson<'_> {
    StepJson {
        own_total: None,
        peer_total: None,
        r#type: &step.kind,
        value: &step.value,
        fetcher: &step.fetcher,
        deciding,
        success: step.success,
        total: step.total,
        exact_success: step.exact_success,
        exact_total: step.exact_total,
        blocked: step.blocked,
        attempts: step.attempts,
        p_before: step.estimate_before,
        p_after: step.estimate_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::router::Mode;
    use fetchwise::selector::SelectContext;
    use std::collections::BTreeSet;

    fn names(value: &Value) -> BTreeSet<&str> {
        value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_program_adds_fields_and_changes_none() {
        let selector = Selector::builder().build().unwrap();
        let (asked, context) = ("https://example.org/a.pdf", SelectContext::default());
        let url = fetchwise::heuristic::url::parse(asked).unwrap();
        let explanation = selector.explain(&url, &context).unwrap();
        let routed = Routed { decision: explanation.decision, arm: Mode::Learning, shadow: None };
        let alone = ExplanationJson::of_selector(&selector, asked, &explanation).value();
        let decision = DecisionJson::new(asked, &selector, selector.router().mode, &routed, None);
        let input = ExplainInput {
            selector: &selector,
            routed: &routed,
            explanation: &explanation,
            pace: None,
            own: None,
        };
        let program = ExplanationJson::new(decision, input, |_| true).value();
        let added = BTreeSet::from([
            "mode",
            "pace",
            "shadow_fetcher",
            "unavailable_fetcher",
            "unavailable_reason",
        ]);
        assert_eq!(&names(&program) - &names(&alone), added);
        assert_eq!(
            &names(&program["candidates"][0]) - &names(&alone["candidates"][0]),
            BTreeSet::from(["available"])
        );
        for name in names(&alone).into_iter().filter(|name| *name != "candidates") {
            assert_eq!(program[name], alone[name], "{name}");
        }
    }
}
