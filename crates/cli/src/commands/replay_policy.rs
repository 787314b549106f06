//! `replay-policy`: off-policy evaluation, the estimated value of a policy on the log of another
//! one.

use clap::Args;
use serde::Serialize;

use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, Table, note, percent, plain};
use fetchwise::off_policy::{Estimate, Evaluation, OffPolicyEvaluator};
use fetchwise::policy;

/// Evaluate a policy on the log of another one (off-policy evaluation)
///
/// Replays the log and lets the policy decide at each first attempt of a fetch. The logged result
/// of that choice is weighted by the probability with which the log's own policy made it. The
/// estimate is the value of a fetch, in plain requests.
#[derive(Debug, Args)]
#[command(
    after_help = "estimate is doubly robust: the selector's own expectation, corrected by the log where both chose \
    the same fetcher. ips is inverse propensity scoring alone; logged is the value of the log itself. Intervals are \
    95 %. Warnings say why the log cannot support the estimate: it has no data about requests that its policy never \
    made.\n\n\
    Policies: default, index, confident, published.\n\n\
    Examples:\n  fetchwise replay-policy --policy index\n  fetchwise replay-policy --policy default,published --json"
)]
pub(crate) struct ReplayPolicyArgs {
    /// Evaluate this policy; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true)]
    pub(crate) policy: Vec<String>,
}

#[derive(Serialize)]
struct EvaluationJson<'a> {
    policy: &'a str,
    estimate: Option<f64>,
    ci_low: Option<f64>,
    ci_high: Option<f64>,
    effective_sample: f64,
    ips: EstimateJson,
    logged: EstimateJson,
    fetches: u64,
    agreed: u64,
    unsupported_share: f64,
    left_out: u64,
    supported: bool,
    warnings: &'a [String],
}

/// An estimate; all null without any fetch.
#[derive(Serialize)]
struct EstimateJson {
    estimate: Option<f64>,
    ci_low: Option<f64>,
    ci_high: Option<f64>,
}

impl EstimateJson {
    fn over(fetches: u64, of: Estimate) -> Self {
        let shown = |value| (fetches > 0).then_some(value);
        Self { estimate: shown(of.value), ci_low: shown(of.ci_low), ci_high: shown(of.ci_high) }
    }
}

/// Runs the command.
pub(crate) fn run(
    args: &ReplayPolicyArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let evaluators = args.policy.iter().map(|name| evaluator(name.trim(), settings));
    let mut evaluators = evaluators.collect::<Result<Vec<_>, _>>()?;
    let now = settings.clock.now();
    log_scan::attempts(&dir, |mut attempt| {
        // As for evidence: a time in the future counts as now.
        attempt.attempted_at = attempt.attempted_at.min(now);
        evaluators.iter_mut().for_each(|evaluator| evaluator.add(&attempt));
    })?;
    let evaluations: Vec<Evaluation> =
        evaluators.into_iter().map(OffPolicyEvaluator::finish).collect();
    for evaluation in &evaluations {
        for warning in &evaluation.warnings {
            note(format_args!("warning: {}: {}", plain(&evaluation.policy), plain(warning)));
        }
    }
    if out.json {
        return evaluations
            .iter()
            .try_for_each(|evaluation| out.object(&json(evaluation)))
            .map(|()| Exit::Done);
    }
    out.line(table(&evaluations))?;
    Ok(Exit::Done)
}

/// Returns a row for each policy, and one for what the log's crawler did.
fn table(evaluations: &[Evaluation]) -> Table {
    let mut table = Table::new(&[
        "policy",
        ">value per fetch",
        ">95 % interval",
        ">by propensity",
        ">fetches",
        ">agreed",
        ">effective",
    ]);
    for evaluation in evaluations {
        let of = evaluation.doubly_robust;
        table.row([
            evaluation.policy.clone(),
            shown(evaluation.fetches, of.value),
            interval(evaluation.fetches, of),
            shown(evaluation.agreed, evaluation.inverse_propensity.value),
            evaluation.fetches.to_string(),
            percent(
                (evaluation.fetches > 0)
                    .then(|| evaluation.agreed as f64 / evaluation.fetches as f64),
            ),
            format!("{:.0}", evaluation.effective_sample),
        ]);
    }
    if let Some(any) = evaluations.first() {
        let of = any.logged;
        let dash = || "-".to_owned();
        table.row([
            "(the log)".to_owned(),
            shown(any.fetches, of.value),
            interval(any.fetches, of),
            dash(),
            any.fetches.to_string(),
            dash(),
            dash(),
        ]);
    }
    table
}

fn interval(fetches: u64, of: Estimate) -> String {
    format!("{} to {}", shown(fetches, of.ci_low), shown(fetches, of.ci_high))
}

/// Returns an estimate over `fetches`; `-` without any.
fn shown(fetches: u64, value: f64) -> String {
    if fetches > 0 { format!("{value:.2}") } else { "-".to_owned() }
}

fn evaluator(name: &str, settings: &Settings) -> Result<OffPolicyEvaluator, Failure> {
    let policy = policy::by_name(name).map_err(Failure::usage)?;
    Ok(OffPolicyEvaluator::new(settings.selector_with_policy(policy)?))
}

fn json(evaluation: &Evaluation) -> EvaluationJson<'_> {
    let of = EstimateJson::over(evaluation.fetches, evaluation.doubly_robust);
    EvaluationJson {
        policy: &evaluation.policy,
        estimate: of.estimate,
        ci_low: of.ci_low,
        ci_high: of.ci_high,
        effective_sample: evaluation.effective_sample,
        ips: EstimateJson::over(evaluation.agreed, evaluation.inverse_propensity),
        logged: EstimateJson::over(evaluation.fetches, evaluation.logged),
        fetches: evaluation.fetches,
        agreed: evaluation.agreed,
        unsupported_share: evaluation.unsupported_share,
        left_out: evaluation.left_out,
        supported: evaluation.warnings.is_empty(),
        warnings: &evaluation.warnings,
    }
}
