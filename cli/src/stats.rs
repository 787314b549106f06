//! `stats`: success, blocks and learning.

use clap::{Args, ValueEnum};

use super::failure::{Exit, Failure};
use super::out::{Out, Table, percent};
use super::pass;
use super::settings::Settings;
use fetchwise::analytics::{By, Stats};
use fetchwise_serve::shape::StatsJson;

/// Add up success, blocks and how decisions were made
#[derive(Debug, Args)]
#[command(
    after_help = "success_rate and ban_rate are shares of all attempts; learned, inferred, probed and explored are shares of \
    the attempts whose decision is known. By day or week they show how learning gets on: probes give way to what was \
    learned, and requests for a delivered page fall towards one.\n\n\
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

/// Runs the command.
pub(crate) fn run(args: &StatsArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let (by, head) = match args.by {
        None => (By::All, ""),
        Some(ByArg::Domain) => (By::Domain, "domain"),
        Some(ByArg::Fetcher) => (By::Fetcher, "fetcher"),
        Some(ByArg::Day) => (By::Day, "day"),
        Some(ByArg::Week) => (By::Week, "week of"),
    };
    let mut stats = Stats::new(by);
    pass::attempts(&settings.existing_dir()?, |attempt| stats.observe(&attempt))?;
    let right =
        [">attempts", ">success", ">blocked", ">learned", ">inferred", ">probed", ">explored", ">requests/page"];
    let mut table = Table::new(&[&[head], right.as_slice()].concat());
    for (key, row) in stats.rows() {
        if out.json {
            out.object(&StatsJson::new(&key, &row))?;
            continue;
        }
        let (learned, inferred) = (row.of_decisions(row.learned), row.of_decisions(row.inferred));
        let (probed, explored) = (row.of_decisions(row.probed), row.of_decisions(row.explored));
        let shares = [row.success_rate(), row.ban_rate(), learned, inferred, probed, explored];
        let per_page = row.requests_per_page().map_or_else(|| "-".to_owned(), |requests| format!("{requests:.2}"));
        table.row([key, row.attempts.to_string()].into_iter().chain(shares.map(percent)).chain([per_page]));
    }
    if !out.json {
        match table.is_empty() {
            true => out.line("no attempts yet")?,
            false => out.line(table)?,
        }
    }
    Ok(Exit::Done)
}
