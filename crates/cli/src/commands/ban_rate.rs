//! `ban-rate`: the ban rate of a domain.

use std::ops::ControlFlow;
use std::path::Path;

use clap::Args;

use crate::parse::input::read_domain;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{DIM, Output, percent, plain, styled};
use fetchwise::analytics::{BanRate, DayHistory};
use fetchwise::journal::{self, AttemptQuery, Order};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;
use fetchwise_present::BanRateJson;

/// Show how often a domain blocked, in whole UTC days
///
/// The last ninety days come from daily counts, which include compacted attempts. Earlier days come
/// from the attempts that are still in the log.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise ban-rate example.org --days 7 --json")]
pub(crate) struct BanRateArgs {
    /// Domain, with or without www.
    #[arg(value_name = "DOMAIN")]
    pub(crate) domain: String,
    /// Count the last N days, including today
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: u32,
}

const DAY_MS: i64 = 86_400_000;

/// Runs the command.
pub(crate) fn run(
    args: &BanRateArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let domain = read_domain(&args.domain)?;
    let (dir, now) = (settings.existing_dir()?, settings.clock.now());
    let (selector, _) = settings.load_selector()?;
    let mut sum = selector.ban_rate_at(&domain, args.days, now);
    let mut since = selector.ban_rates_since();
    let first = now.utc_day().saturating_sub(i64::from(args.days) - 1);
    if args.days > BanRate::DAYS_KEPT {
        let (older, cutoff) = before_what_is_kept(&dir, &domain, args.days, now)?;
        sum = sum.plus(older);
        since = since.max(cutoff);
    }
    // A cutoff before the first requested day does not matter.
    let since = since.filter(|since| since.as_millis() > first.saturating_mul(DAY_MS));
    let (attempts, banned, rate) = (sum.attempts, sum.banned, sum.rate());
    if out.json {
        out.object(&BanRateJson::new(&domain, args.days, sum, since))?;
        return Ok(Exit::Done);
    }
    let (name, days) = (
        plain(&domain),
        if args.days == 1 { "today".to_owned() } else { format!("in {} days", args.days) },
    );
    match rate {
        Some(_) => out.line(format_args!(
            "{name}: {banned} of {attempts} attempts blocked {days} ({})",
            percent(rate)
        ))?,
        None => out.line(format_args!("{name}: no attempts {days}"))?,
    }
    if let Some(since) = since {
        let since = rfc3339::format(since);
        out.line(styled(
            DIM,
            format_args!("attempts before {since} were compacted away and are not counted"),
        ))?;
    }
    Ok(Exit::Done)
}

/// Returns the ban rate of the attempts before the daily counts, and the time before which attempts
/// may be missing.
fn before_what_is_kept(
    dir: &Path,
    domain: &str,
    days: u32,
    now: Timestamp,
) -> Result<(BanRate, Option<Timestamp>), Failure> {
    let start = |day: i64| Timestamp::from_millis(day.saturating_mul(DAY_MS));
    let today = now.utc_day();
    let mut wanted = AttemptQuery::default();
    wanted.domain = Some(domain.to_owned());
    wanted.since = Some(start(today.saturating_sub(i64::from(days) - 1)));
    let until = start(today.saturating_sub(i64::from(BanRate::DAYS_KEPT) - 1))
        .as_millis()
        .saturating_sub(1);
    wanted.until = Some(Timestamp::from_millis(until));
    let mut history = DayHistory::default();
    let found = journal::attempts(dir, &wanted, Order::OldestFirst, None, |_, attempt| {
        history.observe(&attempt);
        ControlFlow::Continue(())
    })?;
    Ok((history.rate(days, now), found.compacted_before))
}
