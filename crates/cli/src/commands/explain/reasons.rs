//! The reasons for a decision in words, at most three.
//!
//! Must not know: where they are shown.

use crate::commands::explain::text::{page_cost, signal_result};
use crate::terminal::output::plain;
use fetchwise::heuristic::HOST_SHOWED;
use fetchwise::selector::{Counterfactual, EvidenceStep, Explanation};

/// The most reasons of a decision.
const MAX_REASONS: usize = 3;
/// The step that the plain fetcher's outcomes make for the others.
const PLAIN_OUTCOMES: &str = "met_here";

/// Returns the reasons for choosing `chosen` by the rule `rule`: the evidence, the rule, and the alternative. Fetchers
/// for which `is_here` is false do not appear.
pub(crate) fn reasons(
    explanation: &Explanation,
    chosen: Option<&str>,
    rule: &str,
    is_here: impl Fn(&str) -> bool,
) -> Vec<String> {
    let deciding = explanation.deciding.and_then(|place| explanation.steps.get(place));
    let subject = chosen.or_else(|| best(explanation, &is_here));
    let step =
        deciding.filter(|step| counts(step) && is_here(&step.fetcher)).or_else(|| own_step(explanation, subject?));
    let evidence = match step {
        Some(step) => evidence_text(step),
        None => "no evidence yet: the chances are the defaults of the fetchers' classes".to_owned(),
    };
    let mut reasons = vec![evidence, plain(rule)];
    reasons.extend(behind_signal(explanation, chosen, &is_here));
    reasons.extend(alternative(explanation, chosen, &is_here));
    reasons.truncate(MAX_REASONS);
    reasons
}

/// Returns what was known of fetchers: first of `chosen`, then of those with the most evidence.
pub(crate) fn known(explanation: &Explanation, chosen: &str) -> Vec<String> {
    let mut names: Vec<(&str, f64)> =
        explanation.candidates.iter().map(|c| (c.fetcher.as_str(), c.sample_size)).collect();
    names.sort_by(|a, b| (b.0 == chosen).cmp(&(a.0 == chosen)).then(b.1.total_cmp(&a.1)));
    let steps = names.iter().filter_map(|(name, _)| own_step(explanation, name));
    steps.take(MAX_REASONS).map(evidence_text).collect()
}

/// Returns the candidate with the highest index, as if nothing were paused.
fn best(explanation: &Explanation, is_here: impl Fn(&str) -> bool) -> Option<&str> {
    let here = explanation.candidates.iter().filter(|c| is_here(&c.fetcher));
    here.max_by(|a, b| a.index.total_cmp(&b.index)).map(|c| c.fetcher.as_str())
}

/// Returns the most specific step with attempts of a fetcher.
fn own_step<'e>(explanation: &'e Explanation, fetcher: &str) -> Option<&'e EvidenceStep> {
    explanation.steps.iter().rfind(|step| step.fetcher == fetcher && counts(step))
}

fn counts(step: &EvidenceStep) -> bool {
    step.kind != PLAIN_OUTCOMES && step.total > 0.0
}

fn evidence_text(step: &EvidenceStep) -> String {
    let value = plain(&step.value);
    let place = match step.kind.as_str() {
        "global" => "on all hosts".to_owned(),
        "domain" => format!("on {value}"),
        "site" => format!("on the site {value}"),
        "domain_path" => format!("in the section {value} of this domain"),
        "suffix" => format!("on URLs that end in {value}"),
        "path_depth" => format!("on URLs of depth {value}"),
        "hint" => format!("after the failure {value}"),
        HOST_SHOWED => format!("on hosts that showed {value}"),
        kind if value.is_empty() || value == "true" => format!("on URLs with {}", plain(kind)),
        kind => format!("on URLs with {} {value}", plain(kind)),
    };
    let attempts = match step.total.round() {
        count if count < 1.0 => "less than one attempt".to_owned(),
        1.0 => "1 attempt".to_owned(),
        count => format!("{count:.0} attempts"),
    };
    format!("{} delivered {:.0} % of {attempts} {place}", plain(&step.fetcher), 100.0 * step.success / step.total)
}

/// Returns the results behind a signal that the host showed, of the chosen fetcher or else of one that was tried.
fn behind_signal(explanation: &Explanation, chosen: Option<&str>, is_here: impl Fn(&str) -> bool) -> Option<String> {
    let here = |name: &str| is_here(name);
    let views = || explanation.shown.iter();
    let of_chosen = views().find_map(|view| Some((view, view.fetchers.iter().find(|of| chosen == Some(&of.fetcher))?)));
    let of_any = || views().find_map(|view| Some((view, view.fetchers.iter().find(|of| here(&of.fetcher))?)));
    let (view, of) = of_chosen.or_else(of_any)?;
    Some(format!("this host showed {}: {}", plain(&view.tag), signal_result(view, of)))
}

/// Returns what another fetcher would cost, or which one would be used without the domain's evidence.
fn alternative(explanation: &Explanation, chosen: Option<&str>, is_here: impl Fn(&str) -> bool) -> Option<String> {
    let name = chosen?;
    let chosen = plain(name);
    explanation.counterfactuals.iter().rev().find_map(|of| match of {
        Counterfactual::CheapestAlternative { candidate, expected_cost, expected_cost_chosen }
            if is_here(&candidate.fetcher) =>
        {
            Some(format!(
                "a page costs {} with {chosen} on average, and {} with {}",
                page_cost(*expected_cost_chosen),
                page_cost(*expected_cost),
                plain(&candidate.fetcher),
            ))
        }
        Counterfactual::WithoutDomain { candidate: Some(candidate), .. }
            if is_here(&candidate.fetcher) && candidate.fetcher != name =>
        {
            Some(format!("without the domain's evidence: {}", plain(&candidate.fetcher)))
        }
        _ => None,
    })
}
