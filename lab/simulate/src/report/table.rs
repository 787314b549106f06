//! Results as text for a terminal: regret by policy and world, and the cases in which a baseline
//! wins.

use std::fmt::Write as _;

use super::PolicyReport;
use super::distinct;

/// The names of the project's own policies, which are compared with baselines.
const OWN: [&str; 3] = ["default", "index", "confident"];

pub(super) fn find<'r>(
    reports: &'r [PolicyReport],
    world: &str,
    policy: &str,
) -> Option<&'r PolicyReport> {
    reports.iter().find(|report| report.world == world && report.policy == policy)
}

/// Returns the mean regret over all worlds, if the policy ran in each of them.
pub(super) fn mean_regret(reports: &[PolicyReport], worlds: &[&str], policy: &str) -> Option<f64> {
    let regrets: Option<Vec<f64>> = worlds
        .iter()
        .map(|world| find(reports, world, policy).map(|report| report.regret))
        .collect();
    regrets.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / all.len() as f64)
}

/// Returns an aligned table of regret per URL, sorted by the mean: one line per policy, one column
/// per world. Below it, one line for each world where a baseline has less regret than `default`.
/// Worlds with vendors have a further table.
pub fn table(reports: &[PolicyReport]) -> String {
    let worlds = distinct(reports, |report| &*report.world);
    let mut policies = distinct(reports, |report| &*report.policy);
    let mean = |policy: &str| mean_regret(reports, &worlds, policy).unwrap_or(f64::INFINITY);
    policies.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    let first = policies.iter().map(|policy| policy.len()).max().unwrap_or(0).max("policy".len());
    let mut out = String::from(
        "regret: cost and lost pages per URL beyond the best choice, in plain requests; less is better\n",
    );
    let _ = write!(out, "{:first$}", "policy");
    for world in &worlds {
        let _ = write!(out, "  {:>width$}", world, width = world.len().max(7));
    }
    out.push_str("     mean\n");
    for policy in &policies {
        let _ = write!(out, "{policy:first$}");
        for world in &worlds {
            let regret = find(reports, world, policy)
                .map_or("-".to_owned(), |report| format!("{:.2}", report.regret));
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
    out.push_str(&vendor_blocks(reports));
    out
}

/// The policy that all others are compared with at vendors' blocks: the same policy without host
/// signals.
const WITHOUT_TAGS: &str = "untagged";

/// Returns the results at vendors' blocks in worlds that have vendors: as shares of those of
/// `untagged` if it ran too, and the mean of the shares over worlds; then how policies follow the
/// changes of whole vendors. Empty without such worlds.
fn vendor_blocks(reports: &[PolicyReport]) -> String {
    let with_vendors: Vec<&PolicyReport> =
        reports.iter().filter(|report| report.vendor_blocks.is_some()).collect();
    if with_vendors.is_empty() {
        return String::new();
    }
    let names = with_vendors.iter().map(|report| report.world.len() + report.policy.len() + 1);
    let first = names.max().unwrap_or(0).max("after a vendor's shift".len());
    let mut out = format!(
        "\n{:first$}  {:>7}  {:>7}  {:>7}  {:>12}  {:>7}  {:>7}  {:>7}  {:>9}\n",
        "worlds with vendors",
        "regret",
        "cold",
        "blocked",
        "blocked cold",
        "bans",
        "blocks",
        "unasked",
        "delivered"
    );
    let mut means: Vec<(&str, Vec<[f64; 6]>)> = Vec::new();
    for report in &with_vendors {
        let Some(base) = with_vendors
            .iter()
            .find(|base| base.world == report.world && base.policy == WITHOUT_TAGS)
        else {
            let _ = writeln!(
                out,
                "{:first$}{}",
                format!("{} {}", report.world, report.policy),
                cells(measures(report), 2)
            );
            continue;
        };
        let shares = ratio(measures(report), measures(base));
        let is_base = report.policy == WITHOUT_TAGS;
        let shown = if is_base { measures(report) } else { shares };
        let unasked =
            report.vendor_blocks.as_ref().map_or(0.0, |vendor_blocks| vendor_blocks.unasked_share);
        let name = format!("{} {}", report.world, report.policy);
        let _ = writeln!(
            out,
            "{name:first$}{}  {unasked:>7.3}  {:>9.4}{}",
            cells(shown, if is_base { 2 } else { 3 }),
            report.success_rate,
            if is_base { "" } else { "  of untagged" }
        );
        if !is_base {
            match means.iter_mut().find(|(policy, _)| *policy == report.policy) {
                Some((_, all)) => all.push(shares),
                None => means.push((&report.policy, vec![shares])),
            }
        }
    }
    for (policy, all) in means {
        let mean = std::array::from_fn(|place| {
            all.iter().map(|of| of[place]).sum::<f64>() / all.len() as f64
        });
        let _ = writeln!(
            out,
            "{:first$}{}  {:>7}  {:>9}  of untagged",
            format!("mean {policy}"),
            cells(mean, 3),
            "",
            ""
        );
    }
    out.push_str(&shifts(&with_vendors, first));
    out
}

/// Returns regret, cold regret, both at vendors' blocks, bans, and blocks.
fn measures(report: &PolicyReport) -> [f64; 6] {
    let (blocked, cold) = report.vendor_blocks.as_ref().map_or((0.0, 0.0), |vendor_blocks| {
        (vendor_blocks.vendor_block_regret, vendor_blocks.vendor_block_cold_regret)
    });
    [report.regret, report.cold_regret, blocked, cold, report.bans_per_1k, report.blocked_per_1k]
}

fn ratio(of: [f64; 6], to: [f64; 6]) -> [f64; 6] {
    std::array::from_fn(|place| if to[place] == 0.0 { 1.0 } else { of[place] / to[place] })
}

fn cells(of: [f64; 6], digits: usize) -> String {
    let widths = [7, 7, 7, 11, 7, 7];
    of.iter().zip(widths).map(|(value, width)| format!("  {value:>width$.digits$}")).collect()
}

/// Returns how often the first fetcher is the oracle's after a vendor's change.
fn shifts(with_vendors: &[&PolicyReport], first: usize) -> String {
    let mut out = String::new();
    for report in with_vendors {
        let Some(shift) =
            report.vendor_blocks.as_ref().and_then(|vendor_blocks| vendor_blocks.shift.as_ref())
        else {
            continue;
        };
        if out.is_empty() {
            let _ = writeln!(
                out,
                "\n{:first$}  {:>7}  {:>15}  {:>15}",
                "after a vendor's shift", "known", "harder 1st, 2nd", "easier 1st, 2nd"
            );
        }
        let share =
            |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.2}"));
        let both = |a, b| format!("{}, {}", share(a), share(b));
        let _ = writeln!(
            out,
            "{:first$}  {:>7}  {:>15}  {:>15}",
            format!("{} {}", report.world, report.policy),
            share(shift.shift_known),
            both(shift.shift_harder_first, shift.shift_harder_second),
            both(shift.shift_easier_first, shift.shift_easier_second)
        );
    }
    out
}

/// Returns a line for each world in which a baseline has less regret than `default`.
pub fn baseline_wins(reports: &[PolicyReport]) -> Vec<String> {
    let mut lines = Vec::new();
    for world in distinct(reports, |report| &*report.world) {
        let Some(ours) = find(reports, world, "default") else { continue };
        let others = reports
            .iter()
            .filter(|r| r.world == world && r.policy != "oracle" && !OWN.contains(&&*r.policy));
        for other in others.filter(|other| other.regret < ours.regret) {
            lines.push(format!(
                "{world}: {} is better than default ({:.2} against {:.2})",
                other.policy, other.regret, ours.regret
            ));
        }
    }
    lines
}
