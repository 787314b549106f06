//! `rollout`: a comparison of both arms, their agreement, and whether learning is in service.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, DIM, ERROR, HEADING, Output, Table, note, plain, styled};
use fetchwise::ab_test::{Agreement, ArmFigures, Differing, Figure, GuardSettings, Window};
use fetchwise::rfc3339;
use fetchwise::rollout::{Rollout, RolloutSummary, ShadowWorth, Worth, costs_of, window_of};
use fetchwise::router::Mode;
use fetchwise::time::Timestamp;

/// The number of hosts shown where the arms differ; JSON has more.
const HOSTS_SHOWN: usize = 10;
/// The number of fetcher pairs shown per host.
const PAIRS_SHOWN: usize = 3;

/// Compare learning with the router table, or put learning back into service
///
/// Shows both arms: success, cost, requests per page, bans and latency, each with a 95 % interval
/// that treats hosts, not requests, as the sample. In the modes shadow and split it also shows how
/// often the arms agree, where they differ, and the estimated value of learning where the table
/// served. Without --since it covers the current stage: the time since mode, share or table
/// changed.
#[derive(Debug, Args)]
#[command(after_help = "TIME is RFC 3339, a day (2026-01-31), or an age (7d, 12h).\n\n\
    Examples:\n  \
    fetchwise rollout\n  \
    fetchwise rollout --since 7d --json\n  \
    fetchwise rollout --resume        put learning back into service; applies to a running crawler")]
pub(crate) struct RolloutArgs {
    /// Count visits that began at this time or later [default: begin of the stage]
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Count visits that began before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<When>,
    /// Put learning back into service after a fall-back
    #[arg(long, conflicts_with_all = ["since", "until"])]
    pub(crate) resume: bool,
}

/// A point in time on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    At(Timestamp),
    Ago(Duration),
}

impl When {
    fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(span) => {
                let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
                Timestamp::from_millis(now.as_millis().saturating_sub(ms))
            }
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = rfc3339::parse(text).or_else(|_| rfc3339::parse(&format!("{text}T00:00:00Z")));
        match (at, humantime::parse_duration(text)) {
            (Ok(at), _) => Ok(Self::At(at)),
            (_, Ok(span)) => Ok(Self::Ago(span)),
            _ => {
                Err("expected 2026-01-31T12:00:00Z, 2026-01-31, or an age such as 7d or 12h"
                    .to_owned())
            }
        }
    }
}

#[derive(Serialize)]
struct ResumedJson {
    resumed: bool,
    reason: Option<String>,
}

/// Runs the command.
pub(crate) fn run(
    args: &RolloutArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let kept = settings.rollout()?;
    if args.resume {
        return resume(settings, out);
    }
    let now = settings.clock.now();
    let window = match (args.since, args.until) {
        (None, None) => window_of(kept.as_ref()),
        (since, until) => {
            Window { since: since.map(|when| when.at(now)), until: until.map(|when| when.at(now)) }
        }
    };
    let policy = settings.config.policy.as_deref().unwrap_or("default");
    let blank = settings
        .selector_with_policy(fetchwise::policy::by_name(policy).map_err(Failure::usage)?)?;
    let mut fold = RolloutSummary::new(window, costs_of(&blank)).with_shadow(blank);
    log_scan::attempts(&dir, |mut attempt| {
        // As for evidence: a time in the future counts as now.
        attempt.attempted_at = attempt.attempted_at.min(now);
        fold.observe(&attempt);
    })?;
    let rollout = fold.finish(kept);
    for warning in &rollout.comparison.warnings {
        note(format_args!("warning: {}", plain(warning)));
    }
    if out.json {
        return out.object(&rollout).map(|()| Exit::Done);
    }
    show(&rollout, &settings.config.guard(), out).map(|()| Exit::Done)
}

/// Puts learning back into service.
fn resume(settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let mut kept = settings.rollout()?.unwrap_or_default();
    let lifted = kept.resume(settings.clock.now());
    if lifted.is_some() {
        kept.write(&dir).map_err(Failure::failed)?;
    }
    if out.json {
        out.object(&ResumedJson {
            resumed: lifted.is_some(),
            reason: lifted.map(|fallen| fallen.reason),
        })?;
        return Ok(Exit::Done);
    }
    match lifted {
        Some(fallen) => out.line(format_args!(
            "learning is back in service: a new stage begins, and a running crawler applies it within a moment\n\
             it was out of service since {}: {}",
            rfc3339::format(fallen.at),
            plain(&fallen.reason)
        ))?,
        None => out.line("learning is in service: there is nothing to resume")?,
    }
    Ok(Exit::Done)
}

fn show(rollout: &Rollout, guard: &GuardSettings, out: &mut Output) -> Result<(), Failure> {
    out.line(stage_text(rollout))?;
    if let Some(fallen) = rollout.fallen_back.as_ref().filter(|_| guard.is_on) {
        out.line(styled(
            ERROR,
            format_args!(
                "learning is OUT OF SERVICE since {}: {}\n  hint: put it back with fetchwise rollout --resume",
                rfc3339::format(fallen.at),
                plain(&fallen.reason)
            ),
        ))?;
    }
    let [learning, legacy] = &rollout.comparison.arms;
    if learning.visits + legacy.visits == 0 {
        out.line(
            "no arm has served a visit yet: docs/guides/rollout.md explains how to start a rollout",
        )?;
        return Ok(());
    }
    out.line("")?;
    out.line(comparison_table(rollout))?;
    out.line(styled(
        DIM,
        "95 % intervals for one look, with hosts as the sample: shares by Wilson, cost and requests by a bootstrap \
         over hosts, latency by Woodruff, differences by Newcombe",
    ))?;
    let left_out = rollout.comparison.named + rollout.comparison.unknown;
    if left_out > 0 {
        out.line(styled(
            DIM,
            format_args!("left out: {left_out} visits without a decision of an arm"),
        ))?;
    }
    if rollout.agreement.asked > 0 {
        out.line("")?;
        print_agreement(&rollout.agreement, out)?;
    }
    if let Some(shadow) = &rollout.shadow {
        out.line("")?;
        print_shadow_value(shadow, out)?;
    }
    out.line("")?;
    out.line(guard_text(rollout, guard))
}

fn stage_text(rollout: &Rollout) -> String {
    let span = match (&rollout.since, &rollout.until) {
        (None, None) => "all visits in the log".to_owned(),
        (Some(since), None) => format!("visits since {since}"),
        (None, Some(until)) => format!("visits until {until}"),
        (Some(since), Some(until)) => format!("visits from {since} to {until}"),
    };
    match &rollout.stage {
        None => format!("{span}; no stage has begun: no crawler ran with a router table"),
        Some(stage) => {
            let share = match stage.mode == Mode::Split.name() {
                true => {
                    format!(" with {:.1} % of the hosts to learning", 100.0 * stage.split_share)
                }
                false => String::new(),
            };
            let (mode, routes, began) =
                (plain(&stage.mode), stage.routes, rfc3339::format(stage.began));
            format!("{span}; current stage: {mode}{share}, {routes} routes, since {began}")
        }
    }
}

/// Returns the table of both arms and their difference.
fn comparison_table(rollout: &Rollout) -> Table {
    let [learning, legacy] = &rollout.comparison.arms;
    let apart = rollout.comparison.difference.as_ref();
    let mut table = Table::new(&["", "learning", "legacy", "learning minus legacy"]);
    let of_all = percents(&[learning, legacy].map(|arm| arm.share_of_visits.unwrap_or_default()));
    let visits = |arm: &ArmFigures, share: &str| format!("{} ({share})", arm.visits);
    table.row([
        "visits".into(),
        visits(learning, &of_all[0]),
        visits(legacy, &of_all[1]),
        String::new(),
    ]);
    let row = |table: &mut Table, name: &str, of: &dyn Fn(&ArmFigures) -> String| {
        table.row([name.to_owned(), of(learning), of(legacy), String::new()]);
    };
    row(&mut table, "hosts", &|arm| arm.hosts.to_string());
    row(&mut table, "requests", &|arm| arm.requests.to_string());
    let shares = [learning, legacy].map(|arm| {
        arm.shares.map_or_else(
            || vec!["-".to_owned(); 3],
            |of| percents(&[of.delivered, of.blocked, of.failed]),
        )
    });
    for (place, name) in ["delivered", "lost to blocks", "failed otherwise"].into_iter().enumerate()
    {
        table.row([
            name.to_owned(),
            shares[0][place].clone(),
            shares[1][place].clone(),
            String::new(),
        ]);
    }
    let figures: [FigureRow<'_>; 6] = [
        ("success", |arm| &arm.success, apart.map(|d| &d.success), Unit::Percent),
        ("cost per page", |arm| &arm.cost_per_page, apart.map(|d| &d.cost_per_page), Unit::Number),
        (
            "requests per page",
            |arm| &arm.requests_per_page,
            apart.map(|d| &d.requests_per_page),
            Unit::Number,
        ),
        ("blocked visits", |arm| &arm.ban_rate, apart.map(|d| &d.ban_rate), Unit::Percent),
        ("latency, p50", |arm| &arm.latency_p50_ms, apart.map(|d| &d.latency_p50_ms), Unit::Time),
        ("latency, p95", |arm| &arm.latency_p95_ms, apart.map(|d| &d.latency_p95_ms), Unit::Time),
    ];
    for (name, of, apart, unit) in figures {
        let apart = apart.map_or_else(String::new, |figure| unit.words(figure, true));
        table.row([
            name.to_owned(),
            unit.words(of(learning), false),
            unit.words(of(legacy), false),
            apart,
        ]);
    }
    let first = [learning, legacy].map(|arm| {
        let shares =
            percents(&arm.fetchers.iter().map(|fetcher| fetcher.share).collect::<Vec<_>>());
        let names =
            arm.fetchers.iter().zip(shares).map(|(of, share)| format!("{} {share}", of.fetcher));
        names.take(3).collect::<Vec<_>>().join(", ")
    });
    let [learning, legacy] = first;
    table.row(["first fetcher".to_owned(), learning, legacy, String::new()]);
    table
}

/// A row: its name, the figure of an arm, the difference of both, and its unit.
type FigureRow<'f> = (&'static str, fn(&ArmFigures) -> &Figure, Option<&'f Figure>, Unit);

/// The unit of a figure.
#[derive(Clone, Copy)]
enum Unit {
    Percent,
    Number,
    Time,
}

impl Unit {
    fn words(self, figure: &Figure, is_difference: bool) -> String {
        let (Some(value), Some(low), Some(high)) = (figure.value, figure.ci_low, figure.ci_high)
        else {
            return "-".to_owned();
        };
        let number = |value: f64, signed: bool| {
            let sign = if signed && value > 0.0 { "+" } else { "" };
            match self {
                Self::Percent => format!("{sign}{:.1}", 100.0 * value),
                Self::Number => format!("{sign}{value:.2}"),
                Self::Time => format!("{sign}{value:.0}"),
            }
        };
        let unit = match self {
            Self::Percent if is_difference => " points",
            Self::Percent => " %",
            Self::Number => "",
            Self::Time => " ms",
        };
        let [value, low, high] = [value, low, high].map(|value| number(value, is_difference));
        format!("{value}{unit} ({low} to {high})")
    }
}

/// Returns shares as percentages with one digit, rounded so that they add up to the sum of the
/// shares.
fn percents(shares: &[f64]) -> Vec<String> {
    let tenths: Vec<f64> = shares.iter().map(|share| share * 1000.0).collect();
    let mut floors: Vec<i64> = tenths.iter().map(|tenth| tenth.floor() as i64).collect();
    let whole = tenths.iter().sum::<f64>().round() as i64;
    let mut by_rest: Vec<usize> = (0..tenths.len()).collect();
    by_rest.sort_by(|a, b| tenths[*b].fract().total_cmp(&tenths[*a].fract()));
    let missing = usize::try_from(whole - floors.iter().sum::<i64>()).unwrap_or_default();
    by_rest.into_iter().take(missing).for_each(|place| floors[place] += 1);
    floors.into_iter().map(|tenth| format!("{}.{} %", tenth / 10, tenth % 10)).collect()
}

fn print_agreement(of: &Agreement, out: &mut Output) -> Result<(), Failure> {
    let shares =
        percents(&[of.agreed_share.unwrap_or_default(), of.differed_share.unwrap_or_default()]);
    out.line(format_args!(
        "{} visits with decisions of both arms: the same fetcher in {}, different ones in {}",
        of.asked, shares[0], shares[1]
    ))?;
    if let (Some(table), Some(learning)) = (of.first_cost_table, of.first_cost_learning) {
        out.line(format_args!(
            "a first request costs {table:.2} by the table and {learning:.2} by learning, in plain requests; one that does \
             not deliver is followed by another"
        ))?;
    }
    if of.hosts.is_empty() {
        return Ok(());
    }
    let mut table =
        Table::new(&["differences", "table", "learning", ">visits", ">of", ">first requests only"]);
    let row = |name: String, differing: &Differing, of: u64| {
        let Differing { table, learning, visits, first_cost, .. } = differing;
        [
            name,
            table.clone(),
            learning.clone(),
            visits.to_string(),
            of.to_string(),
            format!("{first_cost:+.0}"),
        ]
    };
    for (place, differing) in of.pairs.iter().take(PAIRS_SHOWN).enumerate() {
        let name =
            if place == 0 { format!("all {} hosts", of.hosts_differing) } else { String::new() };
        table.styled_row(HEADING, row(name, differing, of.asked));
    }
    for host in of.hosts.iter().take(HOSTS_SHOWN) {
        for (place, differing) in host.pairs.iter().take(PAIRS_SHOWN).enumerate() {
            let name = if place == 0 { host.host.clone() } else { String::new() };
            table.row(row(name, differing, host.asked));
        }
    }
    out.line(table)
}

fn print_shadow_value(shadow: &ShadowWorth, out: &mut Output) -> Result<(), Failure> {
    let words = |of: &Worth| format!("{:.2} ({:.2} to {:.2})", of.value, of.ci_low, of.ci_high);
    out.line(styled(
        HEADING,
        "estimated value of learning where the table served, in plain requests per visit",
    ))?;
    out.line(format_args!(
        "the table {}; learning {}; gain {}; over {} visits",
        words(&shadow.table),
        words(&shadow.learning),
        words(&shadow.gain),
        shadow.visits
    ))?;
    for warning in &shadow.warnings {
        out.line(styled(DIM, format_args!("not reliable: {}", plain(warning))))?;
    }
    Ok(())
}

fn guard_text(rollout: &Rollout, guard: &GuardSettings) -> String {
    let is_split = rollout.stage.as_ref().is_some_and(|stage| stage.mode == Mode::Split.name());
    if !guard.is_on {
        return "the guard is off (rollout.fall_back): it cannot take learning out of service"
            .to_owned();
    }
    if rollout.fallen_back.is_some() {
        return styled(DIM, "the guard is inactive while learning is out of service");
    }
    if !is_split {
        return styled(
            DIM,
            "the guard works in mode split only: other modes have no two arms to compare",
        );
    }
    match (&rollout.last_look, rollout.next_look_at) {
        (Some(look), Some(next)) => format!(
            "{}: {look}; the next look is at {next} visits of the smaller arm",
            styled(CHOSEN, "learning is not significantly worse")
        ),
        _ => format!(
            "the guard has not looked yet: each arm needs {} visits and {} hosts that the other arm could have served",
            guard.visits_min, guard.hosts_min
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_shares_keep_their_sum() {
        for shares in [
            vec![1.0 / 3.0; 3],
            vec![0.0005, 0.9995],
            vec![0.123_45, 0.5, 0.376_55],
            vec![1.0, 0.0],
        ] {
            let shown = percents(&shares);
            let tenths: i64 = shown
                .iter()
                .map(|text| text.replace(['.', ' ', '%'], "").parse::<i64>().unwrap())
                .sum();
            assert_eq!(tenths, 1000, "{shown:?}");
        }
        assert_eq!(percents(&[0.0, 0.0]), ["0.0 %", "0.0 %"]);
    }

    #[test]
    fn times_are_points_days_or_ages() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        assert_eq!(
            "7d".parse::<When>().unwrap().at(now).as_millis(),
            now.as_millis() - 7 * 86_400_000
        );
        assert_eq!("2026-01-31".parse::<When>(), "2026-01-31T00:00:00Z".parse());
        assert!(["", "soon", "2026-13-01", "-1d"].iter().all(|text| text.parse::<When>().is_err()));
    }
}
