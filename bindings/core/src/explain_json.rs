//! Explanations of decisions: as the JSON that `fetchwise explain --json` prints, and as text in columns.
//!
//! Must not know: Python and JavaScript.

use std::fmt::Write;

use fetchwise::decision::{Decision as Decided, Rule, Source};
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
        "rule_text": rule_text(&of.decision), "policy": selector.policy_name(),
        "heuristics": of.heuristics.iter().map(|h| json!({"type": h.kind, "value": h.value})).collect::<Vec<_>>(),
        "candidates": of.candidates.iter().map(|c| candidate(c, chosen, most)).collect::<Vec<_>>(),
        "steps": steps.collect::<Vec<_>>(),
        "counterfactuals": of.counterfactuals.iter().filter_map(|c| counterfactual(c, most)).collect::<Vec<_>>(),
        "host_showed": of.shown.iter().map(tag).collect::<Vec<_>>(),
    })
}

fn rule_text(decision: &Decided) -> &'static str {
    match decision {
        Decided::Selected(take) => take.rule.describe(),
        Decided::Paused { .. } => Rule::Paused.describe(),
        Decided::GiveUp => "no candidate is worth its cost",
        Decided::NoViableFetcher => "no candidate is worth even a first attempt behind this host's vendor",
    }
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

/// Returns an explanation as text in columns.
pub fn text(selector: &Selector, of: &Explanation) -> String {
    let mut out = format!("{}\n\n", of.url);
    for heuristic in &of.heuristics {
        let _ = writeln!(out, "{:<14} {}", heuristic.kind, heuristic.value);
    }
    if of.steps.iter().any(|step| step.total > 0.0) {
        let _ = writeln!(
            out,
            "\n   {:<14} {:<24} {:<18} {:>9} {:>7}  becomes",
            "evidence", "value", "fetcher", "successes", "of"
        );
        for (place, step) in of.steps.iter().enumerate().filter(|(_, step)| step.total > 0.0) {
            let mark = if of.deciding == Some(place) { '>' } else { ' ' };
            let _ = writeln!(
                out,
                "{mark}  {:<14} {:<24} {:<18} {:>9.2} {:>7.2}  {:.3}",
                step.kind, step.value, step.fetcher, step.success, step.total, step.estimate_after
            );
        }
    }
    let chosen = of.decision.selected().map(|take| selector.fetcher_name(take.fetcher));
    let _ = writeln!(
        out,
        "\n   {:<18} {:>5} {:>6} {:>8} {:>7} {:>11}",
        "candidate", "cost", "p", "blocked", "index", "confidence"
    );
    for c in &of.candidates {
        let mark = if chosen == Some(&c.fetcher) { '>' } else { ' ' };
        let _ = writeln!(
            out,
            "{mark}  {:<18} {:>5} {:>6.3} {:>8.3} {:>7.1} {:>11.2}",
            c.fetcher, c.cost, c.success, c.block, c.index, c.confidence
        );
    }
    let what = match (of.decision.selected(), &of.decision) {
        (Some(take), _) => format!(
            "{}  {} (confidence {:.2} over {:.1} attempts)",
            chosen.unwrap_or_default(),
            take.source,
            take.confidence,
            take.sample_size
        ),
        (None, Decided::Paused { until, .. }) => format!("paused until {}", rfc3339::format_time(*until)),
        _ => "no fetcher".to_owned(),
    };
    let _ = write!(out, "\n{what}\n{}", rule_text(&of.decision));
    out
}
