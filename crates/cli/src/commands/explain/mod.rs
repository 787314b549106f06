//! `explain`: the reasons for a decision.

pub(crate) mod historical;
use clap::Args;
use serde::Serialize;

use crate::commands::explain::historical::{
    AttemptId, HistoricalDecision, HistoricalDecisionJson, RebuiltJson, rebuilt_json, show_rebuilt,
};
use crate::parse::time_arg::{TimeArg, parse_time_arg};
use crate::setup::decider::{ContextArgs, Decider, LocalDecision, read_url, show_error};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, DIM, HEADING, Output, Table, plain, styled};
use fetchwise::heuristic::url::without_user;
use fetchwise::journal::AsOf;
use fetchwise::pace::PaceExplanation;
use fetchwise::selector::{Counterfactual, Explanation};
use fetchwise_present::explanation_text::{counterfactual, index, measured_cost, tag_lines};
use fetchwise_present::{ExplainInput, ExplanationJson, PauseJson, own_total};

/// Explain which fetcher would be used, and why: the decision, then three reasons
///
/// Considers the fetchers that `fetch` could use, as `select` does, and shows no others. --full
/// adds the evidence, every candidate, each step of the score and the pace of the host.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise explain https://example.org/docs/a.pdf\n  \
    fetchwise explain --full https://example.org/docs/a.pdf\n  \
    fetchwise explain --last-failure empty https://example.org/app\n  \
    fetchwise explain https://example.org/docs/a.pdf --at 2h\n  \
    fetchwise explain --attempt 0199f0c5-27c1-7d5e-8c1b-6d0f6f7a9b10")]
pub(crate) struct ExplainArgs {
    /// Explain the decision for this URL
    #[arg(value_name = "URL", required_unless_present = "attempt")]
    pub(crate) url: Option<String>,
    /// Use the evidence and pauses of this time: a time, a day or an age (2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = parse_time_arg)]
    pub(crate) at: Option<TimeArg>,
    /// Show the recorded decision behind this attempt, by its id or the last twelve digits of it,
    /// and what was known at that moment
    #[arg(long, value_name = "ID", conflicts_with_all = ["url", "at", "last_failure", "tried", "prefer"])]
    pub(crate) attempt: Option<AttemptId>,
    /// Show the evidence, every candidate and each step of the score
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// An explanation, and additions for a past decision.
#[derive(Serialize)]
struct ExplainedJson<'a> {
    #[serde(flatten)]
    explanation: ExplanationJson<'a>,
    /// Only with `--at` or `--attempt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt: Option<RebuiltJson>,
    /// Only with `--attempt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<HistoricalDecisionJson<'a>>,
}

/// Runs the command.
pub(crate) fn run(
    args: &ExplainArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if let Some(id) = &args.attempt {
        let then = HistoricalDecision::find(settings, id)?;
        let settings = then.settings(settings);
        let decider = Decider::new(&settings, &then.context(&args.context))?.for_link(then.link());
        return explain(decider, then.url(), &settings, (Some(&then), args.full), out);
    }
    let text = args.url.as_deref().unwrap_or_default();
    let then = args
        .at
        .map(|when| when.resolve(&settings.clock))
        .map(|at| settings.as_of(AsOf::At(at), at));
    let settings = then.as_ref().unwrap_or(settings);
    explain(Decider::new(settings, &args.context)?, text, settings, (None, args.full), out)
}

fn explain(
    mut decider: Decider<'_>,
    text: &str,
    settings: &Settings,
    (then, is_full): (Option<&HistoricalDecision>, bool),
    out: &mut Output,
) -> Result<Exit, Failure> {
    let text = &without_user(text);
    let now = settings.clock.now();
    let found = read_url(text).and_then(|url| {
        let decided = decider.decide(&url)?;
        let explanation = decider.selector.explain(&url, &decider.context(&url))?;
        let own = decider
            .own
            .as_ref()
            .map(|own| own.explain(&url, &decider.context(&url)))
            .transpose()?;
        Ok((url, decided, explanation, own))
    });
    let (url, decided, explanation, own) = match found {
        Ok(found) => found,
        Err(error) => return show_error(out, text, &error).map(|()| Exit::Failed),
    };
    // An attempt was made, so nothing was paused then.
    let paused = if then.is_none() { decider.pause(&url, &decided)? } else { None };
    let domain = explanation.heuristics.iter().find(|heuristic| heuristic.kind == "domain");
    let paces = decider.selector.pace().zip(domain);
    let pace = paces.and_then(|(pace, domain)| pace.explain(&domain.value, now));
    if out.json {
        let (selector, routed) = (&decider.selector, &decided.routed);
        let asked = ExplainInput {
            selector,
            routed,
            explanation: &explanation,
            pace: pace.as_ref(),
            own: own.as_ref(),
        };
        let decision = decider.json(text, &decided);
        out.object(&ExplainedJson {
            explanation: ExplanationJson::new(decision, asked, |name| decider.is_available(name))
                .with_pause(paused),
            rebuilt: settings.is_historical().then(|| rebuilt_json(&decider.loaded, now)),
            attempt: then.map(HistoricalDecision::json),
        })?;
        return Ok(Exit::Done);
    }
    let explained =
        ExplainedUrl { decider: &decider, then, decided: &decided, explanation, own, pace };
    explained.print_reasons(text, paused.as_ref(), out)?;
    if settings.is_historical() {
        out.line("")?;
        show_rebuilt(&decider.loaded, now, out)?;
    }
    if is_full {
        explained.print_evidence(out)?
    } else {
        explained.print_end(out)?
    }
    Ok(Exit::Done)
}

/// The explanation of one URL, for people.
struct ExplainedUrl<'a> {
    decider: &'a Decider<'a>,
    then: Option<&'a HistoricalDecision>,
    decided: &'a LocalDecision,
    explanation: Explanation,
    /// The explanation by the evidence of this node alone.
    own: Option<Explanation>,
    pace: Option<PaceExplanation>,
}

impl ExplainedUrl<'_> {
    /// Returns the fetcher that was chosen.
    fn chosen(&self) -> Option<&str> {
        self.decided
            .routed
            .decision
            .selected()
            .map(|take| self.decider.selector.fetcher_name(take.fetcher))
    }

    /// Returns whether a fetcher is one of the candidates. An attempt was decided among the
    /// fetchers of its time; of those, the ones with attempts are known.
    fn is_here(&self, name: &str) -> bool {
        let has_attempts =
            || self.explanation.candidates.iter().any(|c| c.fetcher == name && c.sample_size > 0.0);
        match self.then {
            Some(then) => name == then.fetcher() || has_attempts(),
            None => self.decider.is_available(name),
        }
    }

    /// Prints the decision and its reasons.
    fn print_reasons(
        &self,
        text: &str,
        paused: Option<&PauseJson>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        if let Some(then) = self.then {
            then.show(out)?;
            out.line("\nknown then:")?;
            let known = self.explanation.known(then.fetcher());
            return list(
                if known.is_empty() {
                    vec!["nothing about any fetcher here".to_owned()]
                } else {
                    known
                },
                out,
            );
        }
        out.line(styled(HEADING, plain(text)))?;
        out.line(format_args!("\n{}", self.decider.text(self.decided)))?;
        let rule = match paused {
            Some(paused) => paused.text(),
            None => self.decided.routed.decision.rule_text().to_owned(),
        };
        list(self.explanation.reasons(self.chosen(), &rule, |name| self.is_here(name)), out)
    }

    /// Prints what follows the reasons where the evidence is not asked for.
    fn print_end(&self, out: &mut Output) -> Result<(), Failure> {
        if let Some(noise) = self.pace.as_ref().and_then(PaceExplanation::noise_text) {
            out.line(format_args!("\nflaky: {noise}"))?;
        }
        let words =
            "--full shows the evidence, every candidate, each step of the score and the pace";
        out.line(format_args!("\n{}", styled(DIM, words)))
    }

    /// Prints the evidence, the candidates and the pace.
    fn print_evidence(&self, out: &mut Output) -> Result<(), Failure> {
        let explanation = &self.explanation;
        let is_here = |name: &str| self.is_here(name);
        out.line(format_args!("\n{}", heuristics(explanation)))?;
        if explanation.steps.iter().any(|step| step.total > 0.0 && is_here(&step.fetcher)) {
            out.line(format_args!("\n{}", steps(explanation, self.then.is_none(), is_here)))?;
            if let Some(own) = &self.own {
                let all: f64 = explanation.steps.iter().map(|step| step.exact_total).sum();
                let own: f64 = explanation.steps.iter().map(|step| own_total(step, own)).sum();
                let foreign = if all > 0.0 { (1.0 - own / all).max(0.0) } else { 0.0 };
                out.line(format_args!(
                    "{:.0} % of it comes from other nodes of the fleet",
                    100.0 * foreign
                ))?;
            }
        }
        if !explanation.candidates.is_empty() {
            let shown = self.then.map_or(self.chosen(), |then| Some(then.fetcher()));
            out.line(format_args!("\n{}", candidates(explanation, shown, is_here)))?;
        }
        self.print_details(out)?;
        match &self.pace {
            Some(pace) => out.line(format_args!("\n{pace}")),
            None => Ok(()),
        }
    }

    /// Prints the deciding step, and single lines about candidates and heuristics.
    fn print_details(&self, out: &mut Output) -> Result<(), Failure> {
        let explanation = &self.explanation;
        let is_here = |name: &str| self.is_here(name);
        let deciding = explanation.deciding.and_then(|place| explanation.steps.get(place));
        if let Some(step) = deciding.filter(|step| self.then.is_none() && is_here(&step.fetcher)) {
            let what = [plain(&step.kind), plain(&step.value)].join(" ");
            out.line(format_args!(
                "\ndecided by the evidence of {} for {}",
                what.trim_end(),
                plain(&step.fetcher)
            ))?;
        }
        for line in
            explanation.candidates.iter().filter(|c| is_here(&c.fetcher)).filter_map(measured_cost)
        {
            out.line(plain(&line))?;
        }
        for line in explanation.shown.iter().flat_map(|view| tag_lines(view, is_here)) {
            out.line(plain(&line))?;
        }
        let is_about_here = |of: &&Counterfactual| of_fetcher(of).is_none_or(is_here);
        let others = explanation
            .counterfactuals
            .iter()
            .filter(|_| self.then.is_none())
            .filter(is_about_here);
        for line in others.filter_map(|c| counterfactual(c, self.chosen())) {
            out.line(plain(&line))?;
        }
        Ok(())
    }
}

/// Prints numbered lines.
fn list(lines: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    lines
        .iter()
        .enumerate()
        .try_for_each(|(place, line)| out.line(format_args!("  {}. {}", place + 1, plain(line))))
}

/// Returns the fetcher that a counterfactual is about.
fn of_fetcher(of: &Counterfactual) -> Option<&str> {
    match of {
        Counterfactual::WithoutDomain { candidate, .. } => {
            candidate.as_ref().map(|c| c.fetcher.as_str())
        }
        Counterfactual::CheapestAlternative { candidate, .. } => Some(&candidate.fetcher),
        _ => None,
    }
}

fn heuristics(explanation: &Explanation) -> Table {
    let mut table = Table::new(&["heuristic", "value"]);
    for heuristic in &explanation.heuristics {
        table.row([heuristic.kind.to_string(), heuristic.value.to_string()]);
    }
    table
}

/// Returns the steps with evidence; the others leave the estimate unchanged.
fn steps(explanation: &Explanation, marks_deciding: bool, is_here: impl Fn(&str) -> bool) -> Table {
    let mut table = Table::new(&[
        "",
        "evidence",
        "value",
        "fetcher",
        ">successes",
        ">of",
        ">blocked",
        ">estimate",
        ">becomes",
    ]);
    let lines = explanation
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.total > 0.0 && is_here(&step.fetcher));
    for (place, step) in lines {
        let deciding = marks_deciding && explanation.deciding == Some(place);
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

/// Returns the candidates for which `is_here` is true.
fn candidates(
    explanation: &Explanation,
    chosen: Option<&str>,
    is_here: impl Fn(&str) -> bool,
) -> Table {
    let heads =
        ["", "candidate", ">cost", ">p", ">blocked", ">index", ">confidence", ">sample", ""];
    let mut table = Table::new(&heads);
    for c in explanation.candidates.iter().filter(|c| is_here(&c.fetcher)) {
        let is_chosen = chosen == Some(&c.fetcher);
        let remarks = [
            (c.confident, "confident"),
            (c.open, "breaker open"),
            (c.measured.is_some(), "cost measured"),
            (c.excluded, "excluded"),
        ];
        let remarks: Vec<&str> =
            remarks.iter().filter(|(is, _)| *is).map(|(_, remark)| *remark).collect();
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
