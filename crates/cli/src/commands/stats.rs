//! `stats`: pages, requests, cost, success, blocks and decisions.

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::parse::attempt_range::AttemptRange;
use crate::setup::log_scan;
use crate::setup::peer_attempt_counts;
use crate::setup::peer_attempt_counts::{PeerEvidence, SnapshotCounts};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, Table, percent};
use fetchwise::analytics::{By, Row, Stats};
use fetchwise::journal::{self, AttemptQuery};
use fetchwise_present::StatsJson;

/// Sum up pages, requests, cost, success and blocks
#[derive(Debug, Args)]
#[command(
    after_help = "The cost is in plain requests: a request costs as much as its fetcher does in the config. \
    `browser only` is the cost of a request by the cheapest browser for each delivered page, and `saved` is the share \
    of it that was not spent. Neither has a figure where no page was delivered.\n\
    `success` is the share of the requests that a fetcher is credited with or blamed for: a missing page or an \
    unknown host name counts for none. `blocked` is the share of all requests.\n\
    --decisions shows the kinds of decisions instead, as shares of the requests with a known one. By day or week they \
    show the progress of learning: probes become learned decisions, and requests per page fall towards one.\n\
    In a fleet, separate columns show the attempts of peers, and how many of them delivered or were blocked. Peers \
    publish neither decisions nor costs.\n\n\
    Examples:\n  fetchwise stats --by domain --since 7d --sort cost --limit 20\n  \
    fetchwise stats --by outcome --domain example.org\n  \
    fetchwise stats --by day --decisions\n  \
    fetchwise stats --by fetcher --json"
)]
pub(crate) struct StatsArgs {
    /// Print one row for each of these [default: one row in all]
    #[arg(long, value_enum)]
    pub(crate) by: Option<ByArg>,
    #[command(flatten)]
    pub(crate) range: AttemptRange,
    /// Sort the rows by this, the largest first [default: requests; days and weeks by time]
    #[arg(long, value_enum)]
    pub(crate) sort: Option<SortArg>,
    /// Print at most N rows
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Show the kinds of decisions instead of the cost
    #[arg(long)]
    pub(crate) decisions: bool,
}

/// The figure that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortArg {
    /// Number of requests
    Requests,
    /// Number of delivered pages
    Pages,
    /// Cost of the requests
    Cost,
    /// Cost of a delivered page; rows without a page come first
    CostPerPage,
    /// Number of blocked requests
    Blocked,
    /// Number of requests for missing pages
    Missing,
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
    /// One row per outcome: content, or an error type
    Outcome,
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

/// Returns the joined rows: in the order of the node's own, then those that only peers have; days
/// and weeks in their order. Attempts known as evidence only have no days, and their domains are
/// known only if an attempt names them.
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
    let Some(share) = told.filter(|told| told.nodes > 0).map(|told| &told.share) else {
        return rows;
    };
    let mut folded: HashMap<String, SnapshotCounts> = match by {
        By::All => HashMap::from([("all".to_owned(), share.fetcher_totals().iter().collect())]),
        By::Fetcher => share
            .fetcher_totals()
            .iter()
            .map(|said| (said.fetcher.clone(), [said].into_iter().collect()))
            .collect(),
        By::Domain => {
            let of = share.domain_totals(rows.iter().map(|row| row.key.as_str()));
            of.into_iter()
                .map(|(domain, said)| (domain.to_owned(), said.iter().collect()))
                .collect()
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

/// Sorts rows by a figure, the largest first.
fn sort_rows(rows: &mut [JoinedRow], by: SortArg) {
    let figure = |row: &JoinedRow| {
        let own = &row.own;
        match by {
            SortArg::Requests => own.attempts as f64,
            SortArg::Pages => own.delivered as f64,
            SortArg::Cost => own.cost,
            SortArg::CostPerPage => own.cost_per_page().unwrap_or(f64::INFINITY),
            SortArg::Blocked => own.banned as f64,
            SortArg::Missing => own.missing as f64,
        }
    };
    // The sort is stable: rows with the same figure keep their order.
    rows.sort_by(|a, b| figure(b).total_cmp(&figure(a)));
}

/// Returns a cost with few digits.
fn cost(value: Option<f64>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") },
    )
}

/// The heads of the columns with cost, and those with the kinds of decisions.
const COST_HEADS: &[&str] = &[
    ">pages",
    ">requests",
    ">cost",
    ">cost/page",
    ">browser only",
    ">saved",
    ">success",
    ">blocked",
    ">missing",
    "last fetcher",
];
const DECISION_HEADS: &[&str] = &[
    ">requests",
    ">success",
    ">blocked",
    ">learned",
    ">inferred",
    ">probed",
    ">explored",
    ">requests/page",
];
const PEER_HEADS: &[&str] = &[">others' attempts", ">success", ">blocked"];

/// Runs the command.
pub(crate) fn run(
    args: &StatsArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let (by, head) = match args.by {
        None => (By::All, ""),
        Some(ByArg::Domain) => (By::Domain, "domain"),
        Some(ByArg::Fetcher) => (By::Fetcher, "fetcher"),
        Some(ByArg::Day) => (By::Day, "day"),
        Some(ByArg::Week) => (By::Week, "week of"),
        Some(ByArg::Outcome) => (By::Outcome, "outcome"),
    };
    let dir = settings.existing_dir()?;
    let query = args.range.query(&settings.clock)?;
    let selector = settings.empty_selector()?;
    let mut stats =
        Stats::with_costs(by, &settings.specs(&selector, &journal::survey(&dir)?.registered));
    log_scan::matching(&dir, &query, |attempt| stats.observe(&attempt))?;
    let mut theirs = Stats::new(by);
    let told = peer_attempt_counts::read(&dir, settings, |fact| {
        let is_in_time = query.since.is_none_or(|since| fact.at >= since)
            && query.until.is_none_or(|until| fact.at <= until);
        if is_in_time && query.domain.as_deref().is_none_or(|domain| fact.domain() == Some(domain))
        {
            theirs.observe_fact(fact);
        }
    })?;
    // Attempts that are known as evidence only have no time, and no list by domain.
    let is_ranged = query != AttemptQuery::default();
    let folded = told.as_ref().filter(|_| !is_ranged);
    let mut rows = join_rows(by, &stats, &theirs, folded);
    if let Some(sort) = args.sort {
        sort_rows(&mut rows, sort);
    }
    rows.truncate(args.limit.unwrap_or(usize::MAX));
    if out.json {
        return rows
            .iter()
            .try_for_each(|both| {
                let own = stats_json(&stats, both);
                out.object(&RowJson { own, fleet: told.as_ref().map(|told| both.json(told)) })
            })
            .map(|()| Exit::Done);
    }
    let table = table((by, head), args.decisions, &rows, &stats, told.is_some());
    match table.is_empty() {
        true if is_ranged => out.line("no attempts match")?,
        true => out.line("no attempts yet")?,
        false => out.line(table)?,
    }
    let is_left_out = match by {
        _ if is_ranged => Some("they have no time and are not counted"),
        By::Domain => Some("domains that appear nowhere else are not listed"),
        By::Day | By::Week => Some("they have no day and are not counted"),
        By::Outcome => Some("their outcomes are not counted"),
        _ => None,
    };
    if let Some(note) = told.as_ref().zip(is_left_out).and_then(|(told, what)| told.note(what)) {
        out.line(note)?;
    }
    Ok(Exit::Done)
}

fn stats_json<'a>(stats: &'a Stats, both: &'a JoinedRow) -> StatsJson<'a> {
    StatsJson::new(&both.key, &both.own, stats.browser_cost(), stats.last_fetcher(&both.key))
}

/// Returns the table of `rows`; with the columns of peers if they have told of theirs.
fn table(
    (by, head): (By, &str),
    decisions: bool,
    rows: &[JoinedRow],
    stats: &Stats,
    has_peers: bool,
) -> Table {
    let own_heads = match (decisions, by) {
        (true, _) => DECISION_HEADS,
        // A fetcher's own row does not need its name again.
        (false, By::Fetcher) => &COST_HEADS[..COST_HEADS.len() - 1],
        (false, _) => COST_HEADS,
    };
    let others: &[&str] = if has_peers { PEER_HEADS } else { &[] };
    let mut table = Table::new(&[&[head], own_heads, others].concat());
    for both in rows {
        let own = if decisions { decision_cells(&both.own) } else { cost_cells(both, stats) };
        let theirs =
            [both.attempts().to_string(), percent(both.success_rate()), percent(both.ban_rate())];
        let cells = [both.key.clone()].into_iter().chain(own.into_iter().take(own_heads.len()));
        table.row(cells.chain(theirs.into_iter().take(others.len())));
    }
    table
}

/// Returns the cells below [`DECISION_HEADS`].
fn decision_cells(row: &Row) -> Vec<String> {
    let rates = [row.success_rate(), row.ban_rate()].map(percent);
    let shares = [row.learned, row.inferred, row.probed, row.explored];
    let shares = shares.map(|count| percent(row.of_decisions(count)));
    let per_page =
        row.requests_per_page().map_or_else(|| "-".to_owned(), |requests| format!("{requests:.2}"));
    [row.attempts.to_string()].into_iter().chain(rates).chain(shares).chain([per_page]).collect()
}

/// Returns the cells below [`COST_HEADS`].
fn cost_cells(both: &JoinedRow, stats: &Stats) -> Vec<String> {
    let (row, figures) = (&both.own, stats_json(stats, both));
    let rates = [row.success_rate(), row.ban_rate()].map(percent);
    let counts = [row.delivered, row.attempts].map(|count| count.to_string());
    let costs = [Some(row.cost), row.cost_per_page(), figures.browser_only_cost].map(cost);
    let rest = [row.missing.to_string(), stats.last_fetcher(&both.key).unwrap_or("-").to_owned()];
    counts
        .into_iter()
        .chain(costs)
        .chain([percent(figures.saved)])
        .chain(rates)
        .chain(rest)
        .collect()
}
