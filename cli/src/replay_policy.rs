//! `replay-policy`: what a policy would have been worth on the log that another one made.

use serde::Serialize;

use super::args::ReplayPolicyArgs;
use super::failure::{Exit, Failure};
use super::out::{Out, Table, note, percent, plain};
use super::pass;
use super::settings::Settings;
use fetchwise::judge::{Estimate, Judge, Verdict};
use fetchwise::policy;

#[derive(Serialize)]
struct VerdictJson<'a> {
    policy: &'a str,
    estimate: f64,
    ci_low: f64,
    ci_high: f64,
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

#[derive(Serialize)]
struct EstimateJson {
    estimate: f64,
    ci_low: f64,
    ci_high: f64,
}

impl From<Estimate> for EstimateJson {
    fn from(of: Estimate) -> Self {
        Self { estimate: of.value, ci_low: of.ci_low, ci_high: of.ci_high }
    }
}

/// Runs the command.
pub(crate) fn run(args: &ReplayPolicyArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let mut judges = args.policy.iter().map(|name| judge(name.trim(), settings)).collect::<Result<Vec<Judge>, _>>()?;
    let now = settings.clock.now();
    pass::attempts(&dir, |mut attempt| {
        // As when evidence is read: what the clock was wrong about counts as of now.
        attempt.attempted_at = attempt.attempted_at.min(now);
        judges.iter_mut().for_each(|judge| judge.add(&attempt));
    })?;
    let verdicts: Vec<Verdict> = judges.into_iter().map(Judge::verdict).collect();
    for verdict in &verdicts {
        for warning in &verdict.warnings {
            note(format_args!("warning: {}: {}", plain(&verdict.policy), plain(warning)));
        }
    }
    if out.json {
        return verdicts.iter().try_for_each(|verdict| out.object(&json(verdict))).map(|()| Exit::Done);
    }
    let mut table = Table::new(&[
        "policy",
        ">worth a fetch",
        ">95 % interval",
        ">by propensity",
        ">fetches",
        ">agreed",
        ">effective",
    ]);
    for verdict in &verdicts {
        let of = verdict.doubly_robust;
        table.row([
            verdict.policy.clone(),
            format!("{:.2}", of.value),
            format!("{:.2} to {:.2}", of.ci_low, of.ci_high),
            format!("{:.2}", verdict.inverse_propensity.value),
            verdict.fetches.to_string(),
            percent((verdict.fetches > 0).then(|| verdict.agreed as f64 / verdict.fetches as f64)),
            format!("{:.0}", verdict.effective_sample),
        ]);
    }
    if let Some(any) = verdicts.first() {
        let of = any.logged;
        let interval = format!("{:.2} to {:.2}", of.ci_low, of.ci_high);
        let dash = || "-".to_owned();
        table.row([
            "(the log)".to_owned(),
            format!("{:.2}", of.value),
            interval,
            dash(),
            any.fetches.to_string(),
            dash(),
            dash(),
        ]);
    }
    out.line(table)?;
    Ok(Exit::Done)
}

fn judge(name: &str, settings: &Settings) -> Result<Judge, Failure> {
    let policy = policy::by_name(name).ok_or_else(|| {
        Failure::usage(format_args!("there is no policy {name:?}"))
            .advise(format!("there are: {}", policy::NAMES.join(", ")))
    })?;
    Ok(Judge::new(settings.unlearned(policy)?))
}

fn json(verdict: &Verdict) -> VerdictJson<'_> {
    let of = verdict.doubly_robust;
    VerdictJson {
        policy: &verdict.policy,
        estimate: of.value,
        ci_low: of.ci_low,
        ci_high: of.ci_high,
        effective_sample: verdict.effective_sample,
        ips: verdict.inverse_propensity.into(),
        logged: verdict.logged.into(),
        fetches: verdict.fetches,
        agreed: verdict.agreed,
        unsupported_share: verdict.unsupported_share,
        left_out: verdict.left_out,
        supported: verdict.warnings.is_empty(),
        warnings: &verdict.warnings,
    }
}
