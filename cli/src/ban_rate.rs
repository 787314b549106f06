//! `ban-rate`: how often a domain blocked.

use serde::Serialize;

use super::args::BanRateArgs;
use super::failure::{Exit, Failure};
use super::input::read_domain;
use super::out::{Out, percent};
use super::pass;
use super::settings::Settings;
use fetchwise::analytics::DayHistory;

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
