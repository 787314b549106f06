//! `query`: how often each fetcher delivered where all of some heuristics hold.

use clap::Args;
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::out::{Out, Table, percent};
use super::pass;
use super::settings::Settings;
use fetchwise::analytics::Query;
use fetchwise::heuristic::Heuristic;
use fetchwise::heuristic::url::domain_of;

/// Say how often each fetcher delivered, given all of some heuristics
///
/// Counts the attempts in the log that are tagged with every one of them: exact, where `explain` shows what evidence, which
/// is kept by single heuristics, makes of it.
#[derive(Debug, Args)]
#[command(
    after_help = "attempts are all that match, counted those whose outcome counts: what the fetcher is not to blame for (a 404, say) \
    does not. Both rates are shares of the counted ones: success_rate with each of them alike, decayed_success_rate by what evidence goes \
    by, where an attempt weighs half as much after each half-life and a timeout half of others.\n\n\
    Examples:\n  \
    fetchwise query --where domain=example.org --where suffix=.pdf\n  \
    fetchwise query --where status_403=true --json"
)]
pub(crate) struct QueryArgs {
    /// A heuristic that attempts must have, as TYPE=VALUE; repeatable
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
}

/// Runs the command.
pub(crate) fn run(args: &QueryArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let all_of: Vec<Heuristic> = args.all_of.iter().map(|(kind, value)| heuristic(kind, value)).collect();
    let now = settings.clock.now();
    let mut query = Query::new(all_of.clone(), settings.decay()?, now);
    pass::attempts(&settings.existing_dir()?, |attempt| query.observe(&attempt))?;
    let mut table = Table::new(&["fetcher", ">attempts", ">counted", ">success", ">decayed", ">of"]);
    for row in query.rows() {
        let (success_rate, decayed_success_rate) = (row.success_rate(), row.decayed_success_rate());
        if out.json {
            out.object(&ConditionalJson {
                fetcher: &row.fetcher,
                attempts: row.attempts,
                counted: row.counted,
                success_rate,
                decayed_success_rate,
                decayed_success: row.success,
                decayed_attempts: row.total,
            })?;
            continue;
        }
        let (attempts, counted) = (row.attempts.to_string(), row.counted.to_string());
        let total = format!("{:.2}", row.total);
        table.row([row.fetcher, attempts, counted, percent(success_rate), percent(decayed_success_rate), total]);
    }
    if !out.json {
        match table.is_empty() {
            true => {
                let wanted: Vec<String> = all_of.iter().map(|h| format!("{}={}", h.kind, h.value)).collect();
                out.line(super::out::plain(&format!("no attempt has {}", wanted.join(" and "))))?;
            }
            false => out.line(table)?,
        }
    }
    Ok(Exit::Done)
}

/// A heuristic as attempts are tagged with it: host names and suffixes in lower case, a domain without `www.`.
fn heuristic(kind: &str, value: &str) -> Heuristic {
    let value = match kind {
        "domain" => domain_of(&value.to_ascii_lowercase()).to_owned(),
        "site" | "suffix" => value.to_ascii_lowercase(),
        _ => value.to_owned(),
    };
    Heuristic::new(kind.to_owned(), value)
}

/// Reads `type=value`.
fn parse_heuristic(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((kind, value)) if !kind.trim().is_empty() => Ok((kind.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{text:?} is no heuristic: expected TYPE=VALUE, as in domain=example.org")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_attempts_are_tagged() {
        assert_eq!(heuristic("domain", "WWW.Example.org"), Heuristic::new("domain", "example.org"));
        assert_eq!(heuristic("suffix", ".PDF"), Heuristic::new("suffix", ".pdf"));
        assert_eq!(heuristic("mine", "As It Is"), Heuristic::new("mine", "As It Is"));
    }
}
