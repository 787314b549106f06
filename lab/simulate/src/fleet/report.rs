//! The results of a fleet, compared with one node: as JSON and as tables.

use crate::report::distinct;
use std::fmt::Write as _;

use fetchwise_fleet::model::options::Timing;
use serde::Serialize;

use crate::counters::Counters;
use crate::fleet::cluster_run::Run;
use crate::fleet::topology::{Egress, Topology};
use crate::report::{deviation, mean};
use crate::world::World;

/// The maximum regret and bans of a sharing fleet, as multiples of one node's, and the minimum
/// regret of a fleet that does not share.
const TARGETS: (f64, f64, f64) = (1.1, 1.3, 1.5);
/// The number of nodes for which the targets hold,
const TARGET_NODES: usize = 10;
/// and their maximum delay.
const TARGET_DELAY_S: f64 = 2.0;

/// The results of one fleet in one world, over all seeds. As JSON, one object.
#[derive(Clone, Debug, Serialize)]
pub struct FleetReport {
    /// The world's name.
    pub world: String,
    /// The policy's name.
    pub policy: String,
    /// `one`, `apart`, `sites`, `own` or `sharing`.
    pub topology: &'static str,
    /// The number of nodes.
    pub nodes: usize,
    /// The maximum time in seconds until the others observe a recorded attempt; null if they do
    /// not.
    pub delay_s: Option<f64>,
    /// The addresses of their requests.
    pub egress: Egress,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Value of the delivered pages minus costs, per URL.
    pub utility: f64,
    /// Utility lost against the oracle, per URL.
    pub regret: f64,
    /// The standard deviation of regret over the seeds.
    pub regret_sd: f64,
    /// Regret as a multiple of one node's.
    pub regret_ratio: f64,
    /// Regret over the first three visits of each host.
    pub cold_regret: f64,
    /// The share of URLs that ended with content, with dead URLs in the total.
    pub success_rate: f64,
    /// Attempts per URL.
    pub attempts_per_url: f64,
    /// Blocked responses per thousand URLs.
    pub blocked_per_1k: f64,
    /// Bans per thousand URLs.
    pub bans_per_1k: f64,
    /// Bans as a multiple of one node's; null if that has none.
    pub bans_ratio: Option<f64>,
    /// Published messages per thousand URLs; null if nothing is shared.
    pub messages_per_1k: Option<f64>,
    /// Bytes of messages per remote attempt; null if nothing is shared.
    pub bytes_per_attempt: Option<f64>,
    /// The mean size of a node's last global snapshot, in bytes; null outside scope `own`.
    pub snapshot_bytes: Option<f64>,
    /// The bytes that a node then holds of all others.
    pub held_bytes: Option<f64>,
    /// The bytes per second that the broker sends to all nodes if each publishes its snapshot at
    /// the highest rate.
    pub out_bytes_per_s: Option<f64>,
}

impl FleetReport {
    pub(super) fn new(
        world: &World,
        policy: &str,
        seeds: &[u64],
        (nodes, way, egress): (usize, Topology, Egress),
        runs: &[&Run],
        oracle: &[Counters],
    ) -> Self {
        let sum =
            |of: &dyn Fn(&Counters) -> f64| runs.iter().map(|run| of(&run.tally)).sum::<f64>();
        let urls = sum(&|t| t.urls as f64).max(1.0);
        let lost = |run: &Run, o: &Counters| {
            (o.utility - run.tally.utility) / (run.tally.urls as f64).max(1.0)
        };
        let regrets: Vec<f64> = runs.iter().zip(oracle).map(|(run, o)| lost(run, o)).collect();
        let regret = mean(&regrets);
        let cold: f64 =
            runs.iter().zip(oracle).map(|(run, o)| o.cold_utility - run.tally.cold_utility).sum();
        let traffic = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>() as f64;
        let (messages, facts) =
            (traffic(|run| run.traffic.messages), traffic(|run| run.traffic.facts));
        let (name, delay_s) = match way {
            _ if nodes == 1 => ("one", None),
            Topology::Apart => ("apart", None),
            Topology::Sites => ("sites", None),
            Topology::Own => ("own", None),
            Topology::Sharing(delay) => ("sharing", Some(delay.as_secs_f64())),
        };
        let is_own = way == Topology::Own;
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

    /// Adds the comparison with one node.
    pub(super) fn beside(mut self, one: Option<&Self>) -> Self {
        let (regret, bans) =
            one.map_or((self.regret, self.bans_per_1k), |one| (one.regret, one.bans_per_1k));
        self.regret_ratio = self.regret / regret;
        self.bans_ratio = (bans > 0.0).then(|| self.bans_per_1k / bans);
        self
    }

    /// Returns the label of its line.
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

/// Returns a duration for people.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 86_400.0 && s % 86_400.0 == 0.0 => format!("{} d", s / 86_400.0),
        s if s >= 3600.0 && s % 3600.0 == 0.0 => format!("{} h", s / 3600.0),
        s if s >= 60.0 && s % 60.0 == 0.0 => format!("{} min", s / 60.0),
        s => format!("{s} s"),
    }
}

/// Returns the mean over worlds of a measure of the fleets called `label`.
pub(super) fn over_worlds(
    reports: &[FleetReport],
    label: &str,
    of: impl Fn(&FleetReport) -> Option<f64>,
) -> Option<f64> {
    let all: Vec<f64> =
        reports.iter().filter(|report| report.label() == label).filter_map(of).collect();
    (!all.is_empty()).then(|| mean(&all))
}

/// Returns tables of regret and of bans, one line per fleet and one column per world, each with the
/// mean ratio to one node; then the missed targets.
pub fn fleet_table(reports: &[FleetReport]) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let address = if first.egress == Egress::One { "one address" } else { "one address per node" };
    let mut out = format!("{}, {address}\n", first.policy);
    part(
        &mut out,
        reports,
        "regret per URL",
        |report| report.regret,
        |report| Some(report.regret_ratio),
    );
    out.push('\n');
    part(
        &mut out,
        reports,
        "bans per thousand URLs",
        |report| report.bans_per_1k,
        |report| report.bans_ratio,
    );
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
            let found =
                reports.iter().find(|report| report.world == *world && report.label() == *label);
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

/// Returns a line for each target that ten nodes with one address miss.
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
                    say("regret", report.regret_ratio, &format!("target: at most {regret}"));
                }
                if let Some(ratio) = report.bans_ratio.filter(|ratio| *ratio > bans) {
                    say("bans", ratio, &format!("target: at most {bans}"));
                }
            }
            "apart" if report.regret_ratio < apart => {
                say("regret", report.regret_ratio, &format!("expected: at least {apart}"));
            }
            _ => {}
        }
    }
    lines
}
