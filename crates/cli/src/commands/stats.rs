//! `stats`: success, blocks and decisions.

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::setup::log_scan;
use crate::setup::peer_attempt_counts;
use crate::setup::peer_attempt_counts::{PeerEvidence, SnapshotCounts};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, Table, percent};
use fetchwise::analytics::{By, Row, Stats};
use fetchwise_serve::json::StatsJson;

/// Sum up success, blocks and decisions
#[derive(Debug, Args)]
#[command(
    after_help = "success_rate and ban_rate are shares of all attempts; learned, inferred, probed and explored are \
    shares of the attempts with a known decision. By day or week they show the progress of learning: probes become \
    learned decisions, and requests per page fall towards one. In a fleet, separate columns show the attempts of \
    peers, and how many of them delivered or were blocked. Peers do not publish their decisions.\n\n\
    Examples:\n  fetchwise stats --by domain\n  fetchwise stats --by day --json"
)]
pub(crate) struct StatsArgs {
    /// Print one row for each of these [default: one row in all]
    #[arg(long, value_enum)]
    pub(crate) by: Option<ByArg>,
}

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByArg {
    /// One row per domain
    Domain,
    /// One row per fetcher
    Fetcher,
    /// One row per UTC day
    Day,
    /// One row per UTC week, named by its Monday
    Week,
}

/// A row; in a fleet with the counts of peers.
#[derive(Serialize)]
struct RowJson<'a> {
    #[serde(flatten)]
    own: StatsJson<'a>,
    #[serde(flatten)]
    fleet: Option<PeerCountsJson>,
}

/// The counts of peers for a row.
#[derive(Serialize)]
struct PeerCountsJson {
    own_attempts: u64,
    peer_attempts: u64,
    /// The part of them that is known as evidence only.
    peer_snapshot_attempts: u64,
    /// Delivered among the other ones.
    peer_delivered: u64,
    peer_banned: u64,
    peer_success_rate: Option<f64>,
    peer_ban_rate: Option<f64>,
    /// The number of nodes with such evidence.
    peer_snapshot_nodes: usize,
}

/// A row: the node's own attempts and those of peers.
struct JoinedRow {
    key: String,
    own: Row,
    theirs: Row,
    folded: SnapshotCounts,
}

impl JoinedRow {
    fn attempts(&self) -> u64 {
        self.theirs.attempts + self.folded.attempts
    }

    fn success_rate(&self) -> Option<f64> {
        self.folded.success_rate(self.theirs.delivered, self.theirs.attempts)
    }

    fn ban_rate(&self) -> Option<f64> {
        self.folded.ban_rate(self.theirs.banned, self.theirs.attempts)
    }

    fn json(&self, told: &PeerEvidence) -> PeerCountsJson {
        PeerCountsJson {
            own_attempts: self.own.attempts,
            peer_attempts: self.attempts(),
            peer_snapshot_attempts: self.folded.attempts,
            peer_delivered: self.theirs.delivered,
            peer_banned: self.theirs.banned,
            peer_success_rate: self.success_rate(),
            peer_ban_rate: self.ban_rate(),
            peer_snapshot_nodes: told.nodes,
        }
    }
}

/// Returns the joined rows: in the order of the node's own, then those that only peers have; days and weeks in their
/// order. Attempts known as evidence only have no days, and their domains are known only if an attempt names them.
fn join_rows(by: By, own: &Stats, theirs: &Stats, told: Option<&PeerEvidence>) -> Vec<JoinedRow> {
    let mut left: HashMap<&str, &Row> = theirs.iter().collect();
    let mut rows: Vec<JoinedRow> = Vec::new();
    for (key, own) in own.rows() {
        let theirs = left.remove(key.as_str()).copied().unwrap_or_default();
        rows.push(JoinedRow { key, own, theirs, folded: SnapshotCounts::default() });
    }
    let alone = theirs.rows().into_iter().filter(|(key, _)| left.contains_key(key.as_str()));
    rows.extend(alone.map(|(key, theirs)| JoinedRow {
        key,
        own: Row::default(),
        theirs,
        folded: SnapshotCounts::default(),
    }));
    if matches!(by, By::Day | By::Week) {
        rows.sort_by(|a, b| a.key.cmp(&b.key));
    }
    let Some(share) = told.filter(|told| told.nodes > 0).map(|told| &told.share) else { return rows };
    let mut folded: HashMap<String, SnapshotCounts> = match by {
        By::All => HashMap::from([("all".to_owned(), share.fetcher_totals().iter().collect())]),
        By::Fetcher => {
            share.fetcher_totals().iter().map(|said| (said.fetcher.clone(), [said].into_iter().collect())).collect()
        }
        By::Domain => {
            let of = share.domain_totals(rows.iter().map(|row| row.key.as_str()));
            of.into_iter().map(|(domain, said)| (domain.to_owned(), said.iter().collect())).collect()
        }
        _ => HashMap::new(),
    };
    for row in &mut rows {
        row.folded = folded.remove(&row.key).unwrap_or_default();
    }
    let mut alone: Vec<(String, SnapshotCounts)> =
        folded.into_iter().filter(|(_, folded)| folded.attempts > 0).collect();
    alone.sort_by(|a, b| b.1.attempts.cmp(&a.1.attempts).then_with(|| a.0.cmp(&b.0)));
    rows.extend(alone.into_iter().map(|(key, folded)| JoinedRow {
        key,
        own: Row::default(),
        theirs: Row::default(),
        folded,
    }));
    rows
}

/// Runs the command.
pub(crate) fn run(args: &StatsArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let (by, head) = match args.by {
        None => (By::All, ""),
        Some(ByArg::Domain) => (By::Domain, "domain"),
        Some(ByArg::Fetcher) => (By::Fetcher, "fetcher"),
        Some(ByArg::Day) => (By::Day, "day"),
        Some(ByArg::Week) => (By::Week, "week of"),
    };
    let dir = settings.existing_dir()?;
    let mut stats = Stats::new(by);
    log_scan::attempts(&dir, |attempt| stats.observe(&attempt))?;
    let mut theirs = Stats::new(by);
    let told = peer_attempt_counts::read(&dir, settings, |fact| theirs.observe_fact(fact))?;
    let right =
        [">attempts", ">success", ">blocked", ">learned", ">inferred", ">probed", ">explored", ">requests/page"];
    let others: &[&str] = if told.is_some() { &[">others' attempts", ">success", ">blocked"] } else { &[] };
    let mut table = Table::new(&[&[head], right.as_slice(), others].concat());
    for both in join_rows(by, &stats, &theirs, told.as_ref()) {
        let row = &both.own;
        if out.json {
            let fleet = told.as_ref().map(|told| both.json(told));
            out.object(&RowJson { own: StatsJson::new(&both.key, row), fleet })?;
            continue;
        }
        let (learned, inferred) = (row.of_decisions(row.learned), row.of_decisions(row.inferred));
        let (probed, explored) = (row.of_decisions(row.probed), row.of_decisions(row.explored));
        let shares = [row.success_rate(), row.ban_rate(), learned, inferred, probed, explored];
        let per_page = row.requests_per_page().map_or_else(|| "-".to_owned(), |requests| format!("{requests:.2}"));
        let own = [both.key.clone(), row.attempts.to_string()].into_iter().chain(shares.map(percent)).chain([per_page]);
        let theirs = [both.attempts().to_string(), percent(both.success_rate()), percent(both.ban_rate())];
        table.row(own.chain(theirs.into_iter().take(others.len())));
    }
    if !out.json {
        match table.is_empty() {
            true => out.line("no attempts yet")?,
            false => out.line(table)?,
        }
        let is_left_out = match by {
            By::Domain => Some("domains that appear nowhere else are not listed"),
            By::Day | By::Week => Some("they have no day and are not counted"),
            _ => None,
        };
        if let Some(note) = told.as_ref().zip(is_left_out).and_then(|(told, what)| told.note(what)) {
            out.line(note)?;
        }
    }
    Ok(Exit::Done)
}
