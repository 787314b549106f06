//! What the counts of a fleet come to, against one node's: as JSON and as tables.

use crate::report::distinct;
use std::fmt::Write as _;

use fetchwise_fleet::model::options::Timing;
use serde::Serialize;

use crate::counters::Tally;
use crate::fleet::cluster_run::Run;
use crate::fleet::topology::{Egress, Way};
use crate::report::{deviation, mean};
use crate::world::World;

/// A fleet that shares may have so many times the regret of one node, and so many times its bans; one that does not has more than the
/// last.
const TARGETS: (f64, f64, f64) = (1.1, 1.3, 1.5);
/// The targets are those of so many nodes,
const TARGET_NODES: usize = 10;
/// that learn so soon from each other.
const TARGET_DELAY_S: f64 = 2.0;

/// How one fleet did in one world, over all seeds. As JSON, one object.
#[derive(Clone, Debug, Serialize)]
pub struct FleetReport {
    /// The world's name.
    pub world: String,
    /// The policy's name.
    pub policy: String,
    /// `one`, `apart`, `sites`, `own` or `sharing`.
    pub topology: &'static str,
    /// How many nodes.
    pub nodes: usize,
    /// After how many seconds at most the others have learned what a node has recorded; null where they do not.
    pub delay_s: Option<f64>,
    /// Which addresses their requests come from.
    pub egress: Egress,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Worth of what was delivered, less costs, a URL.
    pub utility: f64,
    /// How much less than the oracle's that is.
    pub regret: f64,
    /// The standard deviation of regret over the seeds.
    pub regret_sd: f64,
    /// Regret against one node's.
    pub regret_ratio: f64,
    /// Regret over the first three visits of each host.
    pub cold_regret: f64,
    /// The share of URLs that ended with content, dead ones included in the count.
    pub success_rate: f64,
    /// Attempts a URL.
    pub attempts_per_url: f64,
    /// Blocked responses a thousand URLs.
    pub blocked_per_1k: f64,
    /// Bans a thousand URLs.
    pub bans_per_1k: f64,
    /// Bans against one node's; null where that has none.
    pub bans_ratio: Option<f64>,
    /// Messages published a thousand URLs; null where nothing is shared.
    pub messages_per_1k: Option<f64>,
    /// Bytes of messages for each attempt that others learn from; null where nothing is shared.
    pub bytes_per_attempt: Option<f64>,
    /// The mean length of a node's last general image, in bytes; null but in scope `own`.
    pub snapshot_bytes: Option<f64>,
    /// What a node then holds of all others, in bytes.
    pub held_bytes: Option<f64>,
    /// What goes out of the broker to all nodes where each says such an image as often as it may, in bytes a second.
    pub out_bytes_per_s: Option<f64>,
}

impl FleetReport {
    pub(super) fn new(
        world: &World,
        policy: &str,
        seeds: &[u64],
        (nodes, way, egress): (usize, Way, Egress),
        runs: &[&Run],
        oracle: &[Tally],
    ) -> Self {
        let sum = |of: &dyn Fn(&Tally) -> f64| runs.iter().map(|run| of(&run.tally)).sum::<f64>();
        let urls = sum(&|t| t.urls as f64).max(1.0);
        let lost = |run: &Run, o: &Tally| (o.utility - run.tally.utility) / (run.tally.urls as f64).max(1.0);
        let regrets: Vec<f64> = runs.iter().zip(oracle).map(|(run, o)| lost(run, o)).collect();
        let regret = mean(&regrets);
        let cold: f64 = runs.iter().zip(oracle).map(|(run, o)| o.cold_utility - run.tally.cold_utility).sum();
        let traffic = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>() as f64;
        let (messages, facts) = (traffic(|run| run.traffic.messages), traffic(|run| run.traffic.facts));
        let (name, delay_s) = match way {
            _ if nodes == 1 => ("one", None),
            Way::Apart => ("apart", None),
            Way::Sites => ("sites", None),
            Way::Own => ("own", None),
            Way::Sharing(delay) => ("sharing", Some(delay.as_secs_f64())),
        };
        let is_own = way == Way::Own;
        let image = traffic(|run| run.images.bytes) / (nodes.max(1) * runs.len().max(1)) as f64;
        let held = image * nodes.saturating_sub(1) as f64;
        let out = held * nodes as f64 / Timing::default().global_min_interval.as_secs_f64();
        let messages_per_1k = match is_own {
            true => Some(1000.0 * traffic(|run| run.images.said) / urls),
            false => delay_s.map(|_| 1000.0 * messages / urls),
        };
        Self {
            world: world.name.clone(),
            policy: policy.to_owned(),
            topology: name,
            nodes,
            delay_s,
            egress,
            seeds: seeds.to_vec(),
            utility: sum(&|t| t.utility) / urls,
            regret,
            regret_sd: deviation(&regrets, regret),
            regret_ratio: 1.0,
            cold_regret: cold / sum(&|t| t.cold_urls as f64).max(1.0),
            success_rate: sum(&|t| t.successes as f64) / urls,
            attempts_per_url: sum(&|t| t.attempts as f64) / urls,
            blocked_per_1k: 1000.0 * sum(&|t| t.blocked as f64) / urls,
            bans_per_1k: 1000.0 * sum(&|t| t.bans as f64) / urls,
            bans_ratio: None,
            messages_per_1k,
            bytes_per_attempt: delay_s.map(|_| traffic(|run| run.traffic.bytes) / facts.max(1.0)),
            snapshot_bytes: is_own.then_some(image),
            held_bytes: is_own.then_some(held),
            out_bytes_per_s: is_own.then_some(out),
        }
    }

    /// Says how it compares with one node.
    pub(super) fn beside(mut self, one: Option<&Self>) -> Self {
        let (regret, bans) = one.map_or((self.regret, self.bans_per_1k), |one| (one.regret, one.bans_per_1k));
        self.regret_ratio = self.regret / regret;
        self.bans_ratio = (bans > 0.0).then(|| self.bans_per_1k / bans);
        self
    }

    /// What the line of it is called.
    pub(super) fn label(&self) -> String {
        match self.topology {
            "one" => "one node".to_owned(),
            "sites" => format!("{} by site", self.nodes),
            "own" => format!("{} in scope own", self.nodes),
            way => match self.delay_s {
                Some(delay) => format!("{} sharing after {}", self.nodes, span(delay)),
                None => format!("{} {way}", self.nodes),
            },
        }
    }
}

/// Seconds, for people.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 86_400.0 && s % 86_400.0 == 0.0 => format!("{} d", s / 86_400.0),
        s if s >= 3600.0 && s % 3600.0 == 0.0 => format!("{} h", s / 3600.0),
        s if s >= 60.0 && s % 60.0 == 0.0 => format!("{} min", s / 60.0),
        s => format!("{s} s"),
    }
}

/// The mean over worlds of a measure of the fleets called `label`.
pub(super) fn over_worlds(
    reports: &[FleetReport],
    label: &str,
    of: impl Fn(&FleetReport) -> Option<f64>,
) -> Option<f64> {
    let all: Vec<f64> = reports.iter().filter(|report| report.label() == label).filter_map(of).collect();
    (!all.is_empty()).then(|| mean(&all))
}

/// Tables of regret and of bans, a line a fleet and a column a world, each with the mean of what it is against one node; then where a
/// target is missed.
pub fn fleet_table(reports: &[FleetReport]) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let address = if first.egress == Egress::One { "one address" } else { "an address each" };
    let mut out = format!("{}, {address}\n", first.policy);
    part(&mut out, reports, "regret a URL", |report| report.regret, |report| Some(report.regret_ratio));
    out.push('\n');
    part(&mut out, reports, "bans a thousand URLs", |report| report.bans_per_1k, |report| report.bans_ratio);
    let missed = missed(reports);
    if !missed.is_empty() {
        out.push('\n');
    }
    for line in missed {
        let _ = writeln!(out, "{line}");
    }
    out
}

fn part(
    out: &mut String,
    reports: &[FleetReport],
    title: &str,
    of: impl Fn(&FleetReport) -> f64,
    ratio: impl Fn(&FleetReport) -> Option<f64>,
) {
    let worlds = distinct(reports, |report| report.world.clone());
    let labels = distinct(reports, FleetReport::label);
    let width = labels.iter().map(String::len).chain([title.len()]).max().unwrap_or(0);
    let _ = write!(out, "{title:width$}");
    for world in &worlds {
        let _ = write!(out, "  {world:>width$}", width = world.len().max(7));
    }
    out.push_str("     mean  against one\n");
    for label in &labels {
        let _ = write!(out, "{label:width$}");
        for world in &worlds {
            let found = reports.iter().find(|report| report.world == *world && report.label() == *label);
            let cell = found.map_or("-".to_owned(), |report| format!("{:.2}", of(report)));
            let _ = write!(out, "  {cell:>width$}", width = world.len().max(7));
        }
        let mean = over_worlds(reports, label, |report| Some(of(report))).unwrap_or(0.0);
        let _ = match over_worlds(reports, label, &ratio) {
            Some(ratio) => writeln!(out, "  {mean:>7.2}  {ratio:>11.2}"),
            None => writeln!(out, "  {mean:>7.2}  {:>11}", "-"),
        };
    }
}

/// Where ten nodes with one address do worse than they are meant to.
pub(super) fn missed(reports: &[FleetReport]) -> Vec<String> {
    let mut lines = Vec::new();
    for report in reports.iter().filter(|r| r.nodes == TARGET_NODES && r.egress == Egress::One) {
        let mut say = |what: &str, ratio: f64, target: &str| {
            lines.push(format!(
                "{}: {} have {ratio:.2} times one node's {what}; {target}",
                report.world,
                report.label()
            ));
        };
        let (regret, bans, apart) = TARGETS;
        match report.topology {
            "sharing" if report.delay_s.is_some_and(|delay| delay <= TARGET_DELAY_S) => {
                if report.regret_ratio > regret {
                    say("regret", report.regret_ratio, &format!("at most {regret} is wanted"));
                }
                if let Some(ratio) = report.bans_ratio.filter(|ratio| *ratio > bans) {
                    say("bans", ratio, &format!("at most {bans} is wanted"));
                }
            }
            "apart" if report.regret_ratio < apart => {
                say("regret", report.regret_ratio, &format!("{apart} or more was expected"));
            }
            _ => {}
        }
    }
    lines
}
