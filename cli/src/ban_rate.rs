//! `ban-rate`: how often a domain blocked.

use clap::Args;
use serde::Serialize;

use super::failure::{Exit, Failure};
use super::input::read_domain;
use super::out::{Out, percent};
use super::pass;
use super::settings::Settings;
use fetchwise::analytics::DayHistory;

/// Say how often a domain blocked, in whole UTC days
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise ban-rate example.org --days 7 --json")]
pub(crate) struct BanRateArgs {
    /// The domain, with or without www.
    #[arg(value_name = "DOMAIN")]
    pub(crate) domain: String,
    /// The last so many days, today included
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: u32,
}

#[derive(Serialize)]
struct BanRateJson<'a> {
    domain: &'a str,
    days: u32,
    attempts: u64,
    banned: u64,
    rate: Option<f64>,
}

/// Runs the command.
pub(crate) fn run(args: &BanRateArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let domain = read_domain(&args.domain)?;
    let mut history = DayHistory::default();
    pass::attempts(&settings.existing_dir()?, |attempt| {
        if attempt.heuristic("domain") == Some(&domain) {
            history.observe(&attempt);
        }
    })?;
    let sum = history.rate(args.days, settings.clock.now());
    let (attempts, banned, rate) = (sum.attempts, sum.banned, sum.rate());
    if out.json {
        out.object(&BanRateJson { domain: &domain, days: args.days, attempts, banned, rate })?;
    } else {
        let days = if args.days == 1 { "today".to_owned() } else { format!("in {} days", args.days) };
        match rate {
            Some(_) => {
                out.line(format_args!("{domain}: {banned} of {attempts} attempts blocked {days} ({})", percent(rate)))?
            }
            None => out.line(format_args!("{domain}: no attempts {days}"))?,
        }
    }
    Ok(Exit::Done)
}
