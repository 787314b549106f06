//! Explanations in words: the decision in one line, and at most three reasons for it.
//!
//! Must not know: where they are shown, and what a terminal can show.

use std::fmt;

use crate::selector::{
    Counterfactual, EvidenceStep, Explanation, HostSignalFetcher, HostSignalView, Selector,
};
use fetchwise_types::decision::Decision;
use fetchwise_types::heuristic::HOST_SHOWED;
use fetchwise_types::rfc3339;
use fetchwise_types::time::Timestamp;

/// The most reasons of a decision.
const MAX_REASONS: usize = 3;
/// The step that the plain fetcher's outcomes make for the others.
const PLAIN_OUTCOMES: &str = "met_here";

/// A decision in one line, in two parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionText {
    /// The fetcher, or the words for no fetcher.
    pub head: String,
    /// The rest of the line: nothing, or the label and the confidence, or the end of a pause.
    pub rest: String,
}

impl fmt::Display for DecisionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rest.as_str() {
            "" => f.write_str(&self.head),
            rest => write!(f, "{} {rest}", self.head),
        }
    }
}

impl DecisionText {
    /// Returns the text of a decision of `selector`.
    pub fn new(decision: &Decision, selector: &Selector) -> Self {
        let (head, rest) = match decision {
            Decision::Selected(take) => (
                selector.fetcher_name(take.fetcher).to_owned(),
                format!(
                    " {} (confidence {:.2} over {:.1} attempts)",
                    take.source.name(),
                    take.confidence,
                    take.sample_size
                ),
            ),
            Decision::Paused { until, host } => {
                let what = if *host { "its host is paused" } else { "paused" };
                (what.to_owned(), pause(*until, selector.now()))
            }
            Decision::GiveUp => ("no fetcher is worth a try".to_owned(), String::new()),
            Decision::NoViableFetcher => {
                ("no viable fetcher: none gets past this host's vendor".to_owned(), String::new())
            }
        };
        Self { head, rest }
    }
}

/// Returns the rest of a pause and its end: `for 9 min, until 2026-01-31T05:21:43Z`.
pub fn pause(until: Timestamp, now: Timestamp) -> String {
    let seconds = until.since(now).as_secs();
    let rest = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days", seconds / 86_400),
    };
    let end = rfc3339::format_time(until);
    let end = end.split_once('.').map_or_else(|| end.clone(), |(whole, _)| format!("{whole}Z"));
    format!("for {rest}, until {end}")
}

impl Explanation {
    /// Returns the explanation as `fetchwise explain` prints it: `asked`, the decision, and the
    /// reasons by number.
    pub fn text(&self, selector: &Selector, asked: &str) -> String {
        let mut text = format!("{asked}\n\n{}", DecisionText::new(&self.decision, selector));
        for (place, reason) in self.own_reasons(selector).iter().enumerate() {
            text.push_str(&format!("\n  {}. {reason}", place + 1));
        }
        // Names come from the log and values from URLs; neither may move a terminal's cursor.
        text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
    }

    /// Returns the reasons for a decision among the candidates of `selector`.
    pub fn own_reasons(&self, selector: &Selector) -> Vec<String> {
        let chosen = self.decision.selected().map(|take| selector.fetcher_name(take.fetcher));
        let is_candidate = |name: &str| self.candidates.iter().any(|c| c.fetcher == name);
        self.reasons(chosen, self.decision.rule_text(), is_candidate)
    }

    /// Returns the reasons for choosing `chosen` by the rule `rule`: the evidence, the rule, and
    /// the alternative. Fetchers for which `is_here` is false do not appear.
    pub fn reasons(
        &self,
        chosen: Option<&str>,
        rule: &str,
        is_here: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let deciding = self.deciding.and_then(|place| self.steps.get(place));
        let subject = chosen.or_else(|| best(self, &is_here));
        let step = deciding
            .filter(|step| counts(step) && is_here(&step.fetcher))
            .or_else(|| own_step(self, subject?));
        let evidence = match step {
            Some(step) => evidence_text(step),
            None => {
                "no evidence yet: the chances are the defaults of the fetchers' classes".to_owned()
            }
        };
        let mut reasons = vec![evidence, rule.to_owned()];
        reasons.extend(behind_signal(self, chosen, &is_here));
        reasons.extend(alternative(self, chosen, &is_here));
        reasons.truncate(MAX_REASONS);
        reasons
    }

    /// Returns what was known of fetchers: first of `chosen`, then of those with the most evidence.
    pub fn known(&self, chosen: &str) -> Vec<String> {
        let mut names: Vec<(&str, f64)> =
            self.candidates.iter().map(|c| (c.fetcher.as_str(), c.sample_size)).collect();
        names.sort_by(|a, b| (b.0 == chosen).cmp(&(a.0 == chosen)).then(b.1.total_cmp(&a.1)));
        let steps = names.iter().filter_map(|(name, _)| own_step(self, name));
        steps.take(MAX_REASONS).map(evidence_text).collect()
    }
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
    let value = &step.value;
    let place = match step.kind.as_str() {
        "global" => "on all hosts".to_owned(),
        "domain" => format!("on {value}"),
        "site" => format!("on the site {value}"),
        "domain_path" => format!("in the section {value} of this domain"),
        "suffix" => format!("on URLs that end in {value}"),
        "path_depth" => format!("on URLs of depth {value}"),
        "hint" => format!("after the failure {value}"),
        HOST_SHOWED => format!("on hosts that showed {value}"),
        kind if value.is_empty() || value == "true" => format!("on URLs with {kind}"),
        kind => format!("on URLs with {kind} {value}"),
    };
    let attempts = match step.total.round() {
        count if count < 1.0 => "less than one attempt".to_owned(),
        1.0 => "1 attempt".to_owned(),
        count => format!("{count:.0} attempts"),
    };
    format!(
        "{} delivered {:.0} % of {attempts} {place}",
        step.fetcher,
        100.0 * step.success / step.total
    )
}

/// Returns the results behind a signal that the host showed, of the chosen fetcher or else of one
/// that was tried.
fn behind_signal(
    explanation: &Explanation,
    chosen: Option<&str>,
    is_here: impl Fn(&str) -> bool,
) -> Option<String> {
    let here = |name: &str| is_here(name);
    let views = || explanation.shown.iter();
    let of_chosen = views().find_map(|view| {
        Some((view, view.fetchers.iter().find(|of| chosen == Some(&of.fetcher))?))
    });
    let of_any = || {
        views().find_map(|view| Some((view, view.fetchers.iter().find(|of| here(&of.fetcher))?)))
    };
    let (view, of) = of_chosen.or_else(of_any)?;
    Some(format!("this host showed {}: {}", view.tag, signal_result(view, of)))
}

/// Returns the result of a fetcher on hosts with a signal.
pub fn signal_result(view: &HostSignalView, of: &HostSignalFetcher) -> String {
    format!(
        "{} {} in {:.0} % of {:.0} attempts on {} hosts",
        of.fetcher,
        if view.is_vendor { "got past it" } else { "delivered" },
        100.0 * of.success_rate,
        of.attempts,
        of.hosts,
    )
}

/// Returns what another fetcher would cost, or which one would be used without the domain's
/// evidence.
fn alternative(
    explanation: &Explanation,
    chosen: Option<&str>,
    is_here: impl Fn(&str) -> bool,
) -> Option<String> {
    let name = chosen?;
    explanation.counterfactuals.iter().rev().find_map(|of| match of {
        Counterfactual::CheapestAlternative { candidate, expected_cost, expected_cost_chosen }
            if is_here(&candidate.fetcher) =>
        {
            Some(format!(
                "a page costs {} with {name} on average, and {} with {}",
                page_cost(*expected_cost_chosen),
                page_cost(*expected_cost),
                candidate.fetcher,
            ))
        }
        Counterfactual::WithoutDomain { candidate: Some(candidate), .. }
            if is_here(&candidate.fetcher) && candidate.fetcher != name =>
        {
            Some(format!("without the domain's evidence: {}", candidate.fetcher))
        }
        _ => None,
    })
}

/// Returns the cost of a page, up to a limit.
pub fn page_cost(cost: f64) -> String {
    if cost < 1000.0 { format!("{cost:.1}") } else { "over 1000".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_pause_has_its_rest_and_its_end_to_the_second() {
        let now = Timestamp::from_millis(1_790_000_000_123);
        assert_eq!(
            pause(now.saturating_add(Duration::from_secs(600)), now),
            "for 10 min, until 2026-09-21T14:23:20Z"
        );
    }
}
