//! `query`: the success rate of each fetcher under a combination of heuristics.

use clap::Args;
use serde::Serialize;

use crate::setup::log_scan;
use crate::setup::peer_attempt_counts;
use crate::setup::peer_attempt_counts::{PeerEvidence, SnapshotCounts};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, Table, percent, plain};
use fetchwise::analytics::{Conditional, Query};
use fetchwise::heuristic::Heuristic;
use fetchwise::heuristic::url::domain_of;

/// Show how often each fetcher delivered, given some heuristics
///
/// Counts the attempts in the log that have all of the heuristics. These counts are exact;
/// `explain` shows estimates from evidence, which is kept per single heuristic.
#[derive(Debug, Args)]
#[command(
    after_help = "attempts are all matches; counted are those whose outcome counts, without failures that the fetcher \
    did not cause (such as a 404). Rates are over the counted ones. success_rate weighs each of them alike. \
    decayed_success_rate weighs as evidence does: an attempt counts half after each half-life, and a timeout half as \
    much as others. In a fleet, separate columns show the attempts of peers, which do not publish failures that the \
    fetcher did not cause.\n\n\
    Examples:\n  \
    fetchwise query --where domain=example.org --where suffix=.pdf\n  \
    fetchwise query --where status_403=true --json"
)]
pub(crate) struct QueryArgs {
    /// Require this heuristic, as TYPE=VALUE; repeatable
    #[arg(long = "where", value_name = "T=V", required = true, value_parser = parse_heuristic)]
    pub(crate) all_of: Vec<(String, String)>,
}

#[derive(Serialize)]
struct ConditionalJson<'a> {
    fetcher: &'a str,
    attempts: u64,
    counted: u64,
    success_rate: Option<f64>,
    decayed_success_rate: Option<f64>,
    decayed_success: f64,
    decayed_attempts: f64,
    #[serde(flatten)]
    fleet: Option<PeerCountsJson>,
}

/// The counts of peers for a fetcher.
#[derive(Serialize)]
struct PeerCountsJson {
    own_attempts: u64,
    peer_attempts: u64,
    /// The part of them that is known as evidence only; counted if the query asks for one domain
    /// and nothing else.
    peer_snapshot_attempts: u64,
    peer_success_rate: Option<f64>,
    peer_decayed_success_rate: Option<f64>,
    peer_decayed_success: f64,
    peer_decayed_attempts: f64,
    /// The number of nodes with such evidence.
    peer_snapshot_nodes: usize,
}

/// A fetcher's row: the node's own attempts and those of peers.
#[derive(Default)]
struct JoinedRow {
    own: Conditional,
    theirs: Conditional,
    folded: SnapshotCounts,
}

impl JoinedRow {
    fn attempts(&self) -> u64 {
        self.theirs.attempts + self.folded.attempts
    }

    fn success_rate(&self) -> Option<f64> {
        self.folded.success_rate(self.theirs.delivered, self.theirs.counted)
    }

    fn total(&self) -> f64 {
        self.theirs.total + self.folded.total
    }

    fn decayed_success_rate(&self) -> Option<f64> {
        (self.total() > 0.0).then(|| (self.theirs.success + self.folded.success) / self.total())
    }

    /// The cells of the node's own attempts.
    fn own_cells(&self) -> [String; 6] {
        let own = &self.own;
        [
            own.fetcher.clone(),
            own.attempts.to_string(),
            own.counted.to_string(),
            percent(own.success_rate()),
            percent(own.decayed_success_rate()),
            format!("{:.2}", own.total),
        ]
    }

    /// The cells of what peers tell.
    fn cells(&self) -> [String; 4] {
        [
            self.attempts().to_string(),
            percent(self.success_rate()),
            percent(self.decayed_success_rate()),
            format!("{:.2}", self.total()),
        ]
    }

    fn json(&self, told: &PeerEvidence) -> PeerCountsJson {
        PeerCountsJson {
            own_attempts: self.own.attempts,
            peer_attempts: self.attempts(),
            peer_snapshot_attempts: self.folded.attempts,
            peer_success_rate: self.success_rate(),
            peer_decayed_success_rate: self.decayed_success_rate(),
            peer_decayed_success: self.theirs.success + self.folded.success,
            peer_decayed_attempts: self.total(),
            peer_snapshot_nodes: told.nodes,
        }
    }
}

/// Returns the domain if the query asks for nothing else; only then the evidence of peers can be
/// counted.
fn only_domain(all_of: &[Heuristic]) -> Option<&str> {
    let [one] = all_of else { return None };
    (one.kind == "domain").then_some(&*one.value)
}

/// Returns the joined rows: in the order of the node's own, then the fetchers that only peers used.
fn join_rows(
    own: &Query,
    theirs: &Query,
    domain: Option<&str>,
    told: Option<&PeerEvidence>,
) -> Vec<JoinedRow> {
    let mut rows: Vec<JoinedRow> =
        own.rows().into_iter().map(|own| JoinedRow { own, ..JoinedRow::default() }).collect();
    let place = |rows: &mut Vec<JoinedRow>, fetcher: &str| {
        rows.iter().position(|row| row.own.fetcher == fetcher).unwrap_or_else(|| {
            let mut row = JoinedRow::default();
            row.own.fetcher = fetcher.to_owned();
            rows.push(row);
            rows.len() - 1
        })
    };
    for other in theirs.rows() {
        let at = place(&mut rows, &other.fetcher);
        rows[at].theirs = other;
    }
    let said = told
        .zip(domain)
        .and_then(|(told, domain)| told.share.domain_totals([domain].into_iter()).remove(domain));
    for said in said.iter().flatten() {
        let at = place(&mut rows, &said.fetcher);
        rows[at].folded = [said].into_iter().collect();
    }
    rows
}

/// Runs the command.
pub(crate) fn run(
    args: &QueryArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let all_of: Vec<Heuristic> =
        args.all_of.iter().map(|(kind, value)| heuristic(kind, value)).collect();
    let now = settings.clock.now();
    let mut query = Query::new(all_of.clone(), settings.decay()?, now);
    let dir = settings.existing_dir()?;
    log_scan::attempts(&dir, |attempt| query.observe(&attempt))?;
    let mut theirs = Query::new(all_of.clone(), settings.decay()?, now);
    let told = peer_attempt_counts::read(&dir, settings, |fact| theirs.observe_fact(fact))?;
    let others: &[&str] =
        if told.is_some() { &[">others' attempts", ">success", ">decayed", ">of"] } else { &[] };
    let own = ["fetcher", ">attempts", ">counted", ">success", ">decayed", ">of"];
    let mut table = Table::new(&[own.as_slice(), others].concat());
    let domain = only_domain(&all_of);
    for both in join_rows(&query, &theirs, domain, told.as_ref()) {
        if out.json {
            let row = &both.own;
            out.object(&ConditionalJson {
                fetcher: &row.fetcher,
                attempts: row.attempts,
                counted: row.counted,
                success_rate: row.success_rate(),
                decayed_success_rate: row.decayed_success_rate(),
                decayed_success: row.success,
                decayed_attempts: row.total,
                fleet: told.as_ref().map(|told| both.json(told)),
            })?;
            continue;
        }
        table.row(both.own_cells().into_iter().chain(both.cells().into_iter().take(others.len())));
    }
    if !out.json {
        match table.is_empty() {
            true => out.line(nothing_found(&all_of))?,
            false => out.line(table)?,
        }
        if let Some(note) = told
            .as_ref()
            .filter(|_| domain.is_none())
            .and_then(|told| told.note("they are not counted"))
        {
            out.line(note)?;
        }
    }
    Ok(Exit::Done)
}

/// Returns what to say when no attempt has all of `wanted`.
fn nothing_found(wanted: &[Heuristic]) -> String {
    let wanted: Vec<String> = wanted.iter().map(|h| format!("{}={}", h.kind, h.value)).collect();
    plain(&format!("no attempt has {}", wanted.join(" and ")))
}

/// Returns a heuristic in the form that attempts have: host names and suffixes in lower case, a
/// domain without `www.`.
fn heuristic(kind: &str, value: &str) -> Heuristic {
    let value = match kind {
        "domain" => domain_of(&value.to_ascii_lowercase()).to_owned(),
        "site" | "suffix" => value.to_ascii_lowercase(),
        _ => value.to_owned(),
    };
    Heuristic::new(kind.to_owned(), value)
}

/// Parses `type=value`.
fn parse_heuristic(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((kind, value)) if !kind.trim().is_empty() => {
            Ok((kind.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!(
            "{text:?} is not a valid heuristic: expected TYPE=VALUE, such as domain=example.org"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_normalized_as_in_attempts() {
        assert_eq!(heuristic("domain", "WWW.Example.org"), Heuristic::new("domain", "example.org"));
        assert_eq!(heuristic("suffix", ".PDF"), Heuristic::new("suffix", ".pdf"));
        assert_eq!(heuristic("mine", "As It Is"), Heuristic::new("mine", "As It Is"));
    }
}
