//! Parts of an explanation in words: costs, host signals and counterfactuals.
//! `fetchwise::explain_text` has the decision and its reasons.
//!
//! Invariant: names and values are as they came. Who prints a line makes it harmless.
//!
//! Must not know: where the words are shown.

use fetchwise::explain_text::{page_cost, signal_result};
use fetchwise::rfc3339;
use fetchwise::selector::{CandidateView, Counterfactual, HostSignalFetcher, HostSignalView};
use fetchwise::time::Timestamp;

/// Returns how a measured cost was computed.
pub fn measured_cost(c: &CandidateView) -> Option<String> {
    let measured = c.measured?;
    Some(format!(
        "cost of {}: a request takes {:.0} ms here, a plain one {:.0} ms on average: {:.1} plain requests \
         (configured: {}, from {} to {})",
        c.fetcher,
        measured.request_ms,
        measured.plain_ms,
        c.cost,
        measured.configured,
        measured.configured / 4.0,
        measured.configured * 4.0,
    ))
}

/// Returns what the host showed, one line per fetcher that was tried on other hosts with the same
/// signal; only those for which `is_here` is true.
pub fn tag_lines(view: &HostSignalView, is_here: impl Fn(&str) -> bool) -> Vec<String> {
    let head = format!("host_showed {} (last on {})", view.tag, day(view.last_shown));
    let category = if view.is_vendor { "all blocks" } else { "all such hosts" };
    let line = |of: &HostSignalFetcher| {
        let turned = of
            .turned_at
            .map(|at| format!("; changed on {}: earlier attempts here do not count", day(at)));
        format!(
            "{head}: {} ({category}: {:.0} %); weight {:.1} against this host's own{}",
            signal_result(view, of),
            100.0 * of.category_rate,
            of.weight,
            turned.unwrap_or_default(),
        )
    };
    match view.fetchers.is_empty() {
        true => vec![format!("{head}: no attempts yet on other hosts after they had shown it")],
        false => view.fetchers.iter().filter(|of| is_here(&of.fetcher)).map(line).collect(),
    }
}

/// Returns the day of a time.
pub(crate) fn day(at: Timestamp) -> String {
    rfc3339::format(at).split('T').next().unwrap_or_default().to_owned()
}

/// Returns a counterfactual as text.
pub fn counterfactual(of: &Counterfactual, chosen: Option<&str>) -> Option<String> {
    Some(match of {
        Counterfactual::WithoutDomain { decision, candidate } => {
            let name =
                candidate.as_ref().map_or_else(|| "no fetcher".to_owned(), |c| c.fetcher.clone());
            let details = candidate.as_ref().zip(decision.selected()).map_or_else(
                String::new,
                |(c, take)| {
                    format!(
                        " ({}, p {:.3}, index {})",
                        take.source.name(),
                        c.success,
                        index(c.index)
                    )
                },
            );
            format!("without the domain's evidence: {name}{details}")
        }
        Counterfactual::CheapestAlternative { candidate, expected_cost, expected_cost_chosen } => {
            format!(
                "cheapest alternative: {} at {} per request{}; with p {:.3} a page costs {} on average, {} by {}",
                candidate.fetcher,
                candidate.cost,
                if candidate.open { ", its breaker is open" } else { "" },
                candidate.success,
                page_cost(*expected_cost),
                page_cost(*expected_cost_chosen),
                chosen.unwrap_or("the chosen one"),
            )
        }
        _ => return None,
    })
}

/// Returns an index as text. Below zero a try costs more than a page is worth, and the exact value
/// means nothing.
pub fn index(index: f64) -> String {
    if index < 0.0 { "not worth it".to_owned() } else { format!("{index:.1}") }
}
