//! `explain`: why a fetcher would be used.

use clap::Args;
use serde::Serialize;
use uuid::Uuid;

use super::decide::{Decider, SituationArgs, read_url, show_error};
use super::failure::{Exit, Failure};
use super::out::{CHOSEN, DIM, HEADING, Out, Table, plain, styled};
use super::past::{RebuiltJson, Then, ThenJson, rebuilt_json, show_rebuilt};
use super::settings::Settings;
use super::when::{When, read_when};
use super::why::{counterfactual, day, index, measured_cost, tag_lines};
use fetchwise::decision::{Decision, Rule};
use fetchwise::journal::Moment;
use fetchwise::rfc3339;
use fetchwise::router::Routed;
use fetchwise::selector::{CandidateView, Counterfactual, EvidenceStep, Explanation, TagView};
use fetchwise_serve::shape::{DecisionJson, PaceJson};

/// Say why a fetcher would be used: evidence, candidates, every step of the score
///
/// Considers the fetchers that `fetch` could use, as `select` does.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise explain https://example.org/docs/a.pdf\n  \
    fetchwise explain --last-failure empty https://example.org/app\n  \
    fetchwise explain https://example.org/docs/a.pdf --at 2h\n  \
    fetchwise explain --attempt 0199f0c5-27c1-7d5e-8c1b-6d0f6f7a9b10")]
pub(crate) struct ExplainArgs {
    /// What would be fetched
    #[arg(value_name = "URL", required_unless_present = "attempt")]
    pub(crate) url: Option<String>,
    /// With the evidence and pauses of that time: a time, a day, or so long ago (2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = read_when)]
    pub(crate) at: Option<When>,
    /// The decision that led to this attempt, as it was recorded, and the evidence of that moment
    #[arg(long, value_name = "ID", conflicts_with_all = ["url", "at", "last_failure", "tried", "fetcher"])]
    pub(crate) attempt: Option<Uuid>,
    #[command(flatten)]
    pub(crate) situation: SituationArgs,
}

#[derive(Serialize)]
struct ExplanationJson<'a> {
    #[serde(flatten)]
    decision: DecisionJson<'a>,
    rule_text: &'static str,
    policy: &'a str,
    heuristics: Vec<HeuristicJson<'a>>,
    candidates: Vec<CandidateJson<'a>>,
    steps: Vec<StepJson<'a>>,
    counterfactuals: Vec<CounterfactualJson<'a>>,
    /// How fast the host may be asked; null for one that was never asked.
    pace: Option<PaceJson>,
    host_showed: Vec<TagJson<'a>>,
    /// Of an earlier time only.
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt: Option<RebuiltJson>,
    /// Of an attempt only.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<ThenJson<'a>>,
}

/// What the host showed.
#[derive(Serialize)]
struct TagJson<'a> {
    tag: &'a str,
    vendor: bool,
    last_shown: String,
    fetchers: Vec<TagFetcherJson<'a>>,
}

#[derive(Serialize)]
struct TagFetcherJson<'a> {
    fetcher: &'a str,
    success_rate: f64,
    attempts: f64,
    hosts: u32,
    category_rate: f64,
    weight: f64,
    turned_at: Option<String>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum CounterfactualJson<'a> {
    /// If site, domain and section were unknown.
    WithoutDomainEvidence {
        decision: &'static str,
        fetcher: Option<&'a str>,
        p: Option<f64>,
        index: Option<f64>,
        confidence: Option<f64>,
    },
    /// The cheapest candidate in place of the chosen one.
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

#[derive(Serialize)]
struct HeuristicJson<'a> {
    r#type: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
struct CandidateJson<'a> {
    fetcher: &'a str,
    chosen: bool,
    cost: f64,
    /// What was configured, where the cost is measured, and the milliseconds that it was measured by.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    available: bool,
}

#[derive(Serialize)]
struct StepJson<'a> {
    r#type: &'a str,
    value: &'a str,
    fetcher: &'a str,
    /// The line that decided.
    deciding: bool,
    success: f64,
    total: f64,
    exact_success: f64,
    exact_total: f64,
    blocked: f64,
    attempts: u32,
    p_before: f64,
    p_after: f64,
    /// How much of `exact_total` this node's own log says, and how much others have told; of a node of a fleet only.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    foreign_total: Option<f64>,
}

#[derive(Serialize)]
struct MeasuredJson {
    configured_cost: f64,
    request_ms: f64,
    plain_ms: f64,
}

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    if let Some(id) = args.attempt {
        let then = Then::find(settings, id)?;
        let settings = then.settings(settings);
        let decider = Decider::new(&settings, &then.situation(&args.situation))?.for_link(then.link());
        return explain(decider, then.url(), &settings, Some(&then), out);
    }
    let text = args.url.as_deref().unwrap_or_default();
    let then = args.at.map(|when| when.resolve(&settings.clock)).map(|at| settings.at(Moment::At(at), at));
    let settings = then.as_ref().unwrap_or(settings);
    explain(Decider::new(settings, &args.situation)?, text, settings, None, out)
}

fn explain(
    mut decider: Decider<'_>,
    text: &str,
    settings: &Settings,
    then: Option<&Then>,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let (is_past, now) = (settings.is_past(), settings.clock.now());
    let found = read_url(text).and_then(|url| {
        let decided = decider.decide(&url)?;
        let explanation = decider.selector.explain(&url, &decider.situation(&url))?;
        let own = decider.own.as_ref().map(|own| own.explain(&url, &decider.situation(&url))).transpose()?;
        Ok((decided, explanation, own))
    });
    let (decided, explanation, own) = match found {
        Ok(found) => found,
        Err(error) => return show_error(out, text, &error).map(|()| Exit::Failed),
    };
    let chosen = decided.routed.decision.taken().map(|take| decider.selector.fetcher_name(take.fetcher));
    let rule_text = rule_text(&decided.routed);
    let domain = explanation.heuristics.iter().find(|heuristic| heuristic.kind == "domain");
    let paces = decider.selector.pace().zip(domain);
    let pace = paces.and_then(|(pace, domain)| pace.explain(&domain.value, now));
    if out.json {
        out.object(&ExplanationJson {
            decision: decider.json(text, &decided),
            rule_text,
            policy: decider.selector.policy_name(),
            heuristics: explanation
                .heuristics
                .iter()
                .map(|h| HeuristicJson { r#type: &h.kind, value: &h.value })
                .collect(),
            candidates: explanation.candidates.iter().map(|c| candidate_json(c, chosen, &decider)).collect(),
            steps: explanation
                .steps
                .iter()
                .enumerate()
                .map(|(place, step)| step_json(step, explanation.deciding == Some(place), own.as_ref()))
                .collect(),
            counterfactuals: explanation
                .counterfactuals
                .iter()
                .filter_map(|c| counterfactual_json(c, Bounds::of(&decider)))
                .collect(),
            pace: pace.as_ref().map(PaceJson::from),
            host_showed: explanation.shown.iter().map(tag_json).collect(),
            rebuilt: is_past.then(|| rebuilt_json(&decider.loaded, now)),
            attempt: then.map(Then::json),
        })?;
        return Ok(Exit::Done);
    }
    match then {
        Some(then) => then.show(out)?,
        None => out.line(styled(HEADING, plain(text)))?,
    }
    if is_past {
        show_rebuilt(&decider.loaded, now, out)?;
    }
    if let Some(then) = then {
        then.compare(chosen, out)?;
    }
    out.line(format_args!("\n{}", heuristics(&explanation)))?;
    if explanation.steps.iter().any(|step| step.total > 0.0) {
        out.line(format_args!("\n{}", steps(&explanation)))?;
        if let Some(own) = &own {
            let all: f64 = explanation.steps.iter().map(|step| step.exact_total).sum();
            let own: f64 = explanation.steps.iter().map(|step| own_total(step, own)).sum();
            let foreign = if all > 0.0 { (1.0 - own / all).max(0.0) } else { 0.0 };
            out.line(format_args!("other nodes of the fleet have told {:.0} % of it", 100.0 * foreign))?;
        }
    } else if !explanation.candidates.is_empty() {
        out.line(format_args!("\n{}", styled(DIM, "no evidence yet: the numbers are those of the fetchers' classes")))?;
    }
    if !explanation.candidates.is_empty() {
        out.line(format_args!("\n{}", candidates(&explanation, chosen, &decider)))?;
    }
    out.line(format_args!("\n{}", decider.words(&decided)))?;
    out.line(rule_text)?;
    if let Some(step) = explanation.deciding.and_then(|place| explanation.steps.get(place)) {
        let (kind, value) = (plain(&step.kind), plain(&step.value));
        out.line(format_args!("decided by what {kind} {value} shows of {}", plain(&step.fetcher)))?;
    }
    for line in explanation.candidates.iter().filter_map(measured_cost) {
        out.line(line)?;
    }
    for line in explanation.shown.iter().flat_map(tag_lines) {
        out.line(line)?;
    }
    for line in explanation.counterfactuals.iter().filter_map(|c| counterfactual(c, chosen)) {
        out.line(line)?;
    }
    if let Some(pace) = pace {
        out.line(format_args!("\n{pace}"))?;
    }
    Ok(Exit::Done)
}

fn tag_json(view: &TagView) -> TagJson<'_> {
    let fetchers = view.fetchers.iter().map(|of| TagFetcherJson {
        fetcher: &of.fetcher,
        success_rate: of.success_rate,
        attempts: of.attempts,
        hosts: of.hosts,
        category_rate: of.category_rate,
        weight: of.weight,
        turned_at: of.turned_at.map(rfc3339::format),
    });
    TagJson { tag: &view.tag, vendor: view.is_vendor, last_shown: day(view.last_shown), fetchers: fetchers.collect() }
}

/// What JSON shows at most of a page's cost, in pages. A chance of next to nothing makes the cost of a page as large as one
/// likes, and its index as small: beyond this neither means anything.
const COST_MOST: f64 = 10.0;

/// Costs and indices as JSON has them.
#[derive(Clone, Copy)]
struct Bounds {
    cost_most: f64,
}

impl Bounds {
    fn of(decider: &Decider<'_>) -> Self {
        Self { cost_most: COST_MOST * decider.selector.settings().value }
    }

    fn cost(self, cost: f64) -> f64 {
        cost.min(self.cost_most)
    }

    fn index(self, index: f64) -> f64 {
        index.max(-self.cost_most)
    }
}

fn counterfactual_json(of: &Counterfactual, bounds: Bounds) -> Option<CounterfactualJson<'_>> {
    Some(match of {
        Counterfactual::WithoutDomain { decision, candidate } => CounterfactualJson::WithoutDomainEvidence {
            decision: decision.taken().map_or("none", |take| take.source.name()),
            fetcher: candidate.as_ref().map(|c| c.fetcher.as_str()),
            p: candidate.as_ref().map(|c| c.success),
            index: candidate.as_ref().map(|c| bounds.index(c.index)),
            confidence: candidate.as_ref().map(|c| c.confidence),
        },
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

fn rule_text(routed: &Routed) -> &'static str {
    match routed.decision {
        Decision::Take(take) => take.rule.describe(),
        Decision::Paused { .. } => Rule::Paused.describe(),
        Decision::GiveUp => "no candidate is worth its cost",
        Decision::NoFetcherGetsPast => "no candidate is worth even a first attempt behind this host's vendor",
    }
}

fn candidate_json<'a>(c: &'a CandidateView, chosen: Option<&str>, decider: &Decider<'_>) -> CandidateJson<'a> {
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
        index: Bounds::of(decider).index(c.index),
        last: c.last_worth,
        confidence: c.confidence,
        sample_size: c.sample_size,
        confident: c.confident,
        domain_attempts: c.domain_attempts,
        open: c.open,
        excluded: c.excluded,
        available: decider.is_available(&c.fetcher),
    }
}

/// How much of a step the node's own log says.
fn own_total(step: &EvidenceStep, own: &Explanation) -> f64 {
    let is_same = |of: &&EvidenceStep| of.kind == step.kind && of.value == step.value && of.fetcher == step.fetcher;
    own.steps.iter().find(is_same).map_or(0.0, |own| own.exact_total)
}

fn step_json<'a>(step: &'a EvidenceStep, deciding: bool, own: Option<&Explanation>) -> StepJson<'a> {
    let own_total = own.map(|own| own_total(step, own));
    StepJson {
        own_total,
        foreign_total: own_total.map(|own| (step.exact_total - own).max(0.0)),
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

fn heuristics(explanation: &Explanation) -> Table {
    let mut table = Table::new(&["heuristic", "value"]);
    for heuristic in &explanation.heuristics {
        table.row([heuristic.kind.to_string(), heuristic.value.to_string()]);
    }
    table
}

/// Only cells that hold something: the others leave the estimate as it is.
fn steps(explanation: &Explanation) -> Table {
    let mut table =
        Table::new(&["", "evidence", "value", "fetcher", ">successes", ">of", ">blocked", ">estimate", ">becomes"]);
    let lines = explanation.steps.iter().enumerate().filter(|(_, step)| step.total > 0.0);
    for (place, step) in lines {
        let deciding = explanation.deciding == Some(place);
        let style = if deciding { CHOSEN } else { anstyle::Style::new() };
        let cells = [
            if deciding { ">" } else { " " }.to_owned(),
            step.kind.clone(),
            step.value.clone(),
            step.fetcher.clone(),
            format!("{:.2}", step.success),
            format!("{:.2}", step.total),
            format!("{:.2}", step.blocked),
            format!("{:.3}", step.estimate_before),
            format!("{:.3}", step.estimate_after),
        ];
        table.styled_row(style, cells);
    }
    table
}

/// The candidates; one that is not to be had is shown where evidence speaks of it.
fn candidates(explanation: &Explanation, chosen: Option<&str>, decider: &Decider<'_>) -> Table {
    let heads = ["", "candidate", ">cost", ">p", ">blocked", ">index", ">confidence", ">sample", ""];
    let mut table = Table::new(&heads);
    for c in &explanation.candidates {
        let available = decider.is_available(&c.fetcher);
        if !available && c.sample_size <= 0.0 {
            continue;
        }
        let is_chosen = chosen == Some(&c.fetcher);
        let remarks = [
            (c.confident, "confident"),
            (c.open, "breaker open"),
            (c.measured.is_some(), "cost measured"),
            (!available, "not available"),
            (c.excluded && available, "excluded"),
        ];
        let remarks: Vec<&str> = remarks.iter().filter(|(is, _)| *is).map(|(_, remark)| *remark).collect();
        let cells = [
            if is_chosen { ">" } else { " " }.to_owned(),
            c.fetcher.clone(),
            if c.measured.is_some() { format!("{:.1}", c.cost) } else { format!("{}", c.cost) },
            format!("{:.3}", c.success),
            format!("{:.3}", c.block),
            index(c.index),
            format!("{:.2}", c.confidence),
            format!("{:.1}", c.sample_size),
            remarks.join(", "),
        ];
        let style = match (is_chosen, c.open || c.excluded) {
            (true, _) => CHOSEN,
            (false, true) => DIM,
            (false, false) => anstyle::Style::new(),
        };
        table.styled_row(style, cells);
    }
    table
}
