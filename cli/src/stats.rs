//! `stats`: success, blocks and learning.

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::foreign::{self, Foreign};
use super::out::{Out, Table, percent};
use super::pass;
use super::settings::Settings;
use fetchwise::analytics::{By, Row, Stats};
use fetchwise_serve::shape::StatsJson;

/// Add up success, blocks and how decisions were made
#[derive(Debug, Args)]
#[command(
    after_help = "success_rate and ban_rate are shares of all attempts; learned, inferred, probed and explored are shares of \
    the attempts whose decision is known. By day or week they show how learning gets on: probes give way to what was \
    learned, and requests for a delivered page fall towards one. In a fleet, what other nodes have told stands beside it in columns of \
    its own: their attempts, and how many of these delivered and were blocked. How they were decided is not told.\n\n\
    Examples:\n  fetchwise stats --by domain\n  fetchwise stats --by day --json"
)]
pub(crate) struct StatsArgs {
    /// A row for each; without it one row for all
    #[arg(long, value_enum)]
    pub(crate) by: Option<ByArg>,
}

/// What a row of statistics is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByArg {
    /// A row a domain
    Domain,
    /// A row a fetcher
    Fetcher,
    /// A row a UTC day
    Day,
    /// A row a UTC week, by its Monday
    Week,
}

/// A row; in a fleet with what other nodes have told.
#[derive(Serialize)]
struct RowJson<'a> {
    #[serde(flatten)]
    own: StatsJson<'a>,
    #[serde(flatten)]
    fleet: Option<ToldJson>,
}

/// What other nodes have told of a row.
#[derive(Serialize)]
struct ToldJson {
    own_attempts: u64,
    foreign_attempts: u64,
    foreign_delivered: u64,
    foreign_banned: u64,
    foreign_success_rate: Option<f64>,
    foreign_ban_rate: Option<f64>,
    /// Nodes of which older attempts are known as evidence only.
    foreign_folded_nodes: usize,
}

impl ToldJson {
    fn new(own: &Row, theirs: &Row, told: Foreign) -> Self {
        Self {
            own_attempts: own.attempts,
            foreign_attempts: theirs.attempts,
            foreign_delivered: theirs.delivered,
            foreign_banned: theirs.banned,
            foreign_success_rate: theirs.success_rate(),
            foreign_ban_rate: theirs.ban_rate(),
            foreign_folded_nodes: told.folded,
        }
    }
}

/// The rows of both: in the order of the node's own, then what others alone have; days and weeks in theirs.
fn together(by: By, own: &Stats, theirs: &Stats) -> Vec<(String, Row, Row)> {
    let mut left: HashMap<&str, &Row> = theirs.iter().collect();
    let mut rows: Vec<(String, Row, Row)> = Vec::new();
    for (key, row) in own.rows() {
        let theirs = left.remove(key.as_str()).copied().unwrap_or_default();
        rows.push((key, row, theirs));
    }
    let alone = theirs.rows().into_iter().filter(|(key, _)| left.contains_key(key.as_str()));
    rows.extend(alone.map(|(key, theirs)| (key, Row::default(), theirs)));
    if matches!(by, By::Day | By::Week) {
        rows.sort_by(|a, b| a.0.cmp(&b.0));
    }
    rows
}

/// Runs the command.
pub(crate) fn run(args: &StatsArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let (by, head) = match args.by {
        None => (By::All, ""),
        Some(ByArg::Domain) => (By::Domain, "domain"),
        Some(ByArg::Fetcher) => (By::Fetcher, "fetcher"),
        Some(ByArg::Day) => (By::Day, "day"),
        Some(ByArg::Week) => (By::Week, "week of"),
    };
    let dir = settings.existing_dir()?;
    let mut stats = Stats::new(by);
    pass::attempts(&dir, |attempt| stats.observe(&attempt))?;
    let mut theirs = Stats::new(by);
    let told = foreign::facts(&dir, |fact| theirs.observe_fact(fact))?;
    let right =
        [">attempts", ">success", ">blocked", ">learned", ">inferred", ">probed", ">explored", ">requests/page"];
    let others: &[&str] = if told.is_some() { &[">others' attempts", ">success", ">blocked"] } else { &[] };
    let mut table = Table::new(&[&[head], right.as_slice(), others].concat());
    for (key, row, theirs) in together(by, &stats, &theirs) {
        if out.json {
            let fleet = told.map(|told| ToldJson::new(&row, &theirs, told));
            out.object(&RowJson { own: StatsJson::new(&key, &row), fleet })?;
            continue;
        }
        let (learned, inferred) = (row.of_decisions(row.learned), row.of_decisions(row.inferred));
        let (probed, explored) = (row.of_decisions(row.probed), row.of_decisions(row.explored));
        let shares = [row.success_rate(), row.ban_rate(), learned, inferred, probed, explored];
        let per_page = row.requests_per_page().map_or_else(|| "-".to_owned(), |requests| format!("{requests:.2}"));
        let own = [key, row.attempts.to_string()].into_iter().chain(shares.map(percent)).chain([per_page]);
        let theirs = [theirs.attempts.to_string(), percent(theirs.success_rate()), percent(theirs.ban_rate())];
        table.row(own.chain(theirs.into_iter().take(others.len())));
    }
    if !out.json {
        match table.is_empty() {
            true => out.line("no attempts yet")?,
            false => out.line(table)?,
        }
        if let Some(note) = told.and_then(Foreign::note) {
            out.line(note)?;
        }
    }
    Ok(Exit::Done)
}
