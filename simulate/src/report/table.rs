//! Results as text for a terminal: regret by policy and world, and where a baseline wins.

use std::fmt::Write as _;

use super::PolicyReport;

/// The names under which the project's own policies run; what is compared with baselines.
const OWN: [&str; 3] = ["default", "index", "confident"];

/// The distinct values of `of`, in order of their first appearance.
pub(super) fn distinct<'r>(reports: &'r [PolicyReport], of: impl Fn(&'r PolicyReport) -> &'r str) -> Vec<&'r str> {
    let mut names = Vec::new();
    for report in reports {
        if !names.contains(&of(report)) {
            names.push(of(report));
        }
    }
    names
}

pub(super) fn find<'r>(reports: &'r [PolicyReport], world: &str, policy: &str) -> Option<&'r PolicyReport> {
    reports.iter().find(|report| report.world == world && report.policy == policy)
}

/// Mean regret over all worlds, when the policy ran in each of them.
pub(super) fn mean_regret(reports: &[PolicyReport], worlds: &[&str], policy: &str) -> Option<f64> {
    let regrets: Option<Vec<f64>> =
        worlds.iter().map(|world| find(reports, world, policy).map(|report| report.regret)).collect();
    regrets.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / all.len() as f64)
}

/// An aligned table of regret a URL, the least mean first: one line a policy, one column a world. Below it, for each world
/// where a baseline has less regret than `default`, a line that says so.
pub fn table(reports: &[PolicyReport]) -> String {
    let worlds = distinct(reports, |report| &report.world);
    let mut policies = distinct(reports, |report| &report.policy);
    let mean = |policy: &str| mean_regret(reports, &worlds, policy).unwrap_or(f64::INFINITY);
    policies.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    let first = policies.iter().map(|policy| policy.len()).max().unwrap_or(0).max("policy".len());
    let mut out = format!("{:first$}", "policy");
    for world in &worlds {
        let _ = write!(out, "  {:>width$}", world, width = world.len().max(7));
    }
    out.push_str("     mean\n");
    for policy in &policies {
        let _ = write!(out, "{policy:first$}");
        for world in &worlds {
            let regret = find(reports, world, policy).map_or("-".to_owned(), |report| format!("{:.2}", report.regret));
            let _ = write!(out, "  {:>width$}", regret, width = world.len().max(7));
        }
        let _ = match mean_regret(reports, &worlds, policy) {
            Some(mean) => writeln!(out, "  {mean:>7.2}"),
            None => writeln!(out, "  {:>7}", "-"),
        };
    }
    for line in baseline_wins(reports) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Where a baseline has less regret than `default`.
pub fn baseline_wins(reports: &[PolicyReport]) -> Vec<String> {
    let mut lines = Vec::new();
    for world in distinct(reports, |report| &report.world) {
        let Some(ours) = find(reports, world, "default") else { continue };
        let others = reports.iter().filter(|r| r.world == world && r.policy != "oracle" && !OWN.contains(&&*r.policy));
        for other in others.filter(|other| other.regret < ours.regret) {
            lines.push(format!(
                "{world}: {} is better than default ({:.2} against {:.2})",
                other.policy, other.regret, ours.regret
            ));
        }
    }
    lines
}
