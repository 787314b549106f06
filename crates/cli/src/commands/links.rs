//! `links`: links that are paused or at risk, with the reason.

use std::collections::HashSet;

use clap::Args;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, Table, note, plain};
use crate::terminal::pace_text::span;
use fetchwise::backoff::LinkState;
use fetchwise::selector::LinkAtRisk;
use fetchwise::time::Timestamp;
use fetchwise_crawl::{LeftForPause, left_for_pause};
use fetchwise_present::LinkJson;

/// Show links that are paused or failed last time, with countdown and reason
///
/// A link that delivered last time is not at risk and not shown. With both options, a link must
/// match both.
#[derive(Debug, Args)]
#[command(
    after_help = "risk is the number of failed fetches in a row, at most 5: each doubles the next pause.\n\n\
    Examples:\n  fetchwise links --paused\n  fetchwise links --at-risk --json\n  fetchwise links \
    https://example.org/a"
)]
pub(crate) struct LinksArgs {
    /// Show only links that are paused now, or that a run left for a pause
    #[arg(long)]
    pub(crate) paused: bool,
    /// Show only links whose last fetch failed, not those paused by their host
    #[arg(long)]
    pub(crate) at_risk: bool,
    /// Show only these links
    #[arg(value_name = "LINK")]
    pub(crate) links: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(
    args: &LinksArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let (selector, _) = settings.load_selector()?;
    let now = settings.clock.now();
    let mut links = selector.links_at_risk();
    let known: HashSet<String> = links.iter().map(|of| of.link.clone()).collect();
    // A link that was left because its host is paused was not tried, so the log does not know it.
    let left = left_for_pause(&dir).map_err(|error| {
        Failure::failed(format_args!("cannot read the state of the last runs: {error}"))
    })?;
    let is_left = |left: &LeftForPause| {
        let state = selector.link_state(&left.link);
        !known.contains(&left.link) && state.last_attempt_at.is_none_or(|at| at < left.at)
    };
    let left = left.into_iter().filter(is_left).map(|left| left.link).collect::<HashSet<_>>();
    links.extend(left.iter().map(|link| LinkAtRisk::new(link.clone(), LinkState::default())));
    links.sort_by(|a, b| a.link.cmp(&b.link));
    links.retain(|of| {
        (args.links.is_empty() || args.links.contains(&of.link))
            && (!args.paused || of.state.pause_at(now).is_some() || left.contains(&of.link))
            && (!args.at_risk || of.state.risk_level > 0)
    });
    let host_pause = |of: &LinkAtRisk| {
        of.domain
            .as_deref()
            .and_then(|domain| selector.host_pause(domain))
            .filter(|until| *until > now)
    };
    if out.json {
        for of in &links {
            out.object(&LinkJson::new(of, host_pause(of), now))?;
        }
        return Ok(Exit::Done);
    }
    if links.is_empty() {
        note(if args.links.is_empty() {
            "no link is paused or at risk"
        } else {
            "none of these links is paused or at risk"
        });
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["link", ">paused for", ">risk", "reason", ">host paused for"]);
    let left =
        |until: Option<Timestamp>| until.map_or_else(String::new, |until| span(until.since(now)));
    for of in &links {
        let (risk, reason) = (of.state.risk_level.to_string(), of.reason().to_string());
        table.row([
            plain(&of.link),
            left(of.state.pause_at(now)),
            risk,
            reason,
            left(host_pause(of)),
        ]);
    }
    out.line(table)?;
    Ok(Exit::Done)
}
