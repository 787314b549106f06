//! Explanations of decisions: as the JSON that `fetchwise explain --json` prints, and as HTML for a notebook.
//!
//! Must not know: Python and JavaScript.

use std::fmt::{self, Write};

use fetchwise::decision::{Decision as Decided, Rule, Source};
use fetchwise::explain_text::DecisionText;
use fetchwise::rfc3339;
use fetchwise::selector::{CandidateView, Counterfactual, Explanation, HostSignalView, Selector};
use fetchwise::time::Timestamp;
use serde_json::{Value, json};

/// Costs and indexes are shown up to this many times the worth of a page. Beyond it they mean nothing.
const COST_MOST: f64 = 10.0;

/// Returns the fields of `fetchwise explain --json` that do not depend on the program.
pub fn value(selector: &Selector, asked: &str, of: &Explanation) -> Value {
    let most = COST_MOST * selector.settings().page_value;
    let take = of.decision.selected();
    let chosen = take.map(|take| selector.fetcher_name(take.fetcher));
    let (decision, rule) = match (&of.decision, take) {
        (_, Some(take)) => (take.source.name(), take.rule.name()),
        (Decided::Paused { .. }, _) => (Source::Paused.name(), Rule::Paused.name()),
        (Decided::NoViableFetcher, _) => ("none", "no_viable_fetcher"),
        _ => ("none", "none"),
    };
    let paused_until = match of.decision {
        Decided::Paused { until, .. } => Some(rfc3339::format_time(until)),
        _ => None,
    };
    let steps = of.steps.iter().enumerate().map(|(place, step)| {
        json!({
            "type": step.kind, "value": step.value, "fetcher": step.fetcher, "deciding": of.deciding == Some(place),
            "success": step.success, "total": step.total, "exact_success": step.exact_success,
            "exact_total": step.exact_total, "blocked": step.blocked, "attempts": step.attempts,
            "p_before": step.estimate_before, "p_after": step.estimate_after,
        })
    });
    json!({
        "url": asked, "decision": decision, "fetcher": chosen,
        "confidence": take.map(|take| take.confidence), "sample_size": take.map(|take| take.sample_size),
        "rule": rule, "propensity": take.map(|take| take.propensity), "paused_until": paused_until,
        "rule_text": of.decision.rule_text(), "policy": selector.policy_name(),
        "heuristics": of.heuristics.iter().map(|h| json!({"type": h.kind, "value": h.value})).collect::<Vec<_>>(),
        "candidates": of.candidates.iter().map(|c| candidate(c, chosen, most)).collect::<Vec<_>>(),
        "steps": steps.collect::<Vec<_>>(),
        "counterfactuals": of.counterfactuals.iter().filter_map(|c| counterfactual(c, most)).collect::<Vec<_>>(),
        "host_showed": of.shown.iter().map(tag).collect::<Vec<_>>(),
    })
}

fn candidate(c: &CandidateView, chosen: Option<&str>, most: f64) -> Value {
    let mut out = json!({
        "fetcher": c.fetcher, "chosen": chosen == Some(&c.fetcher), "cost": c.cost, "p": c.success, "b": c.block,
        "index": c.index.max(-most), "last": c.last_worth, "confidence": c.confidence, "sample_size": c.sample_size,
        "confident": c.confident, "domain_attempts": c.domain_attempts, "open": c.open, "excluded": c.excluded,
    });
    if let (Some(of), Some(fields)) = (c.measured, out.as_object_mut()) {
        let measured = json!({
            "configured_cost": of.configured, "request_ms": of.request_ms, "plain_ms": of.plain_ms,
        });
        fields.insert("measured".to_owned(), measured);
    }
    out
}

fn counterfactual(of: &Counterfactual, most: f64) -> Option<Value> {
    Some(match of {
        Counterfactual::WithoutDomain { decision, candidate } => json!({
            "kind": "without_domain_evidence",
            "decision": decision.selected().map_or("none", |take| take.source.name()),
            "fetcher": candidate.as_ref().map(|c| &c.fetcher), "p": candidate.as_ref().map(|c| c.success),
            "index": candidate.as_ref().map(|c| c.index.max(-most)),
            "confidence": candidate.as_ref().map(|c| c.confidence),
        }),
        Counterfactual::CheapestAlternative { candidate, expected_cost, expected_cost_chosen } => json!({
            "kind": "cheapest_alternative", "fetcher": candidate.fetcher, "cost": candidate.cost,
            "p": candidate.success, "index": candidate.index.max(-most), "open": candidate.open,
            "expected_cost": expected_cost.min(most), "expected_cost_chosen": expected_cost_chosen.min(most),
        }),
        _ => return None,
    })
}

fn tag(view: &HostSignalView) -> Value {
    let day = |at: Timestamp| rfc3339::format(at).split('T').next().unwrap_or_default().to_owned();
    let fetchers = view.fetchers.iter().map(|of| {
        json!({
            "fetcher": of.fetcher, "success_rate": of.success_rate, "attempts": of.attempts, "hosts": of.hosts,
            "category_rate": of.category_rate, "weight": of.weight, "turned_at": of.turned_at.map(rfc3339::format),
        })
    });
    json!({
        "tag": view.tag, "vendor": view.is_vendor, "last_shown": day(view.last_shown),
        "fetchers": fetchers.collect::<Vec<_>>(),
    })
}

/// Returns an explanation for a notebook: the same text, and the candidates.
pub fn html(selector: &Selector, asked: &str, of: &Explanation) -> String {
    let DecisionText { head, rest } = DecisionText::new(&of.decision, selector);
    let mut out = format!(
        "<div class=\"fetchwise-explanation\"><p><code>{}</code></p><p><b>{}</b> {}</p><ol>",
        Escaped(asked),
        Escaped(&head),
        Escaped(rest.trim_start())
    );
    for reason in of.own_reasons(selector) {
        let _ = write!(out, "<li>{}</li>", Escaped(&reason));
    }
    out.push_str(
        "</ol><table><thead><tr><th>candidate</th><th>cost</th><th>success</th><th>blocked</th><th>index</th>\
         <th>attempts</th></tr></thead><tbody>",
    );
    let most = COST_MOST * selector.settings().page_value;
    for c in &of.candidates {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{:.3}</td><td>{:.3}</td><td>{:.1}</td><td>{:.1}</td></tr>",
            Escaped(&c.fetcher),
            c.cost,
            c.success,
            c.block,
            c.index.max(-most),
            c.sample_size
        );
    }
    out.push_str("</tbody></table></div>");
    out
}

/// A text inside of HTML, outside of attributes.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            c if c.is_control() => f.write_char('\u{fffd}'),
            c => f.write_char(c),
        })
    }
}
