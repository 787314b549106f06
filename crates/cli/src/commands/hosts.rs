//! `hosts`: paused hosts, and the pace of each host.

use std::collections::BTreeMap;

use clap::Args;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{DIM, Output, Table, note, plain, styled};
use crate::terminal::pace_text::{rate, span};
use fetchwise::pace::{Level, PaceExplanation};
use fetchwise::selector::PausedHost;
use fetchwise::time::Timestamp;
use fetchwise_serve::json::HostJson;

/// Show paused hosts, and the pace of each host that was asked
#[derive(Debug, Args)]
#[command(
    after_help = "rate is the rate at which a host would be asked now; after a restart it begins below the limit. All \
    values come from the log: a running crawl's changes appear within a moment.\n\n\
    Examples:\n  fetchwise hosts\n  fetchwise hosts --paused --json"
)]
pub(crate) struct HostsArgs {
    /// Show only hosts that are paused now
    #[arg(long)]
    pub(crate) paused: bool,
    /// Show only these hosts
    #[arg(value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
}

/// The known state of a host.
#[derive(Default)]
struct HostState {
    paused: Option<PausedHost>,
    pace: Option<PaceExplanation>,
}

/// Runs the command.
pub(crate) fn run(args: &HostsArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    settings.existing_dir()?;
    let (selector, _) = settings.load_selector()?;
    let now = settings.clock.now();
    let mut known: BTreeMap<String, HostState> = BTreeMap::new();
    for paused in selector.paused_hosts(now) {
        let host = paused.domain.clone();
        known.entry(host).or_default().paused = Some(paused);
    }
    if let Some(pace) = selector.pace() {
        for (level, name) in pace.hosts() {
            if level == Level::Host
                && let Some(explained) = pace.explain(&name, now)
            {
                known.entry(name.into()).or_default().pace = Some(explained);
            }
        }
    }
    let wanted: Vec<String> = args.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    known.retain(|host, of| (wanted.is_empty() || wanted.contains(host)) && (!args.paused || of.paused.is_some()));
    if out.json {
        for (host, of) in &known {
            out.object(&HostJson::new(host, of.paused.as_ref(), of.pace.as_ref(), now))?;
        }
        return Ok(Exit::Done);
    }
    if known.is_empty() {
        note("no host is paused, and no pace is known");
        return Ok(Exit::Done);
    }
    out.line(table(&known, now))?;
    if wanted.len() == 1
        && let Some(pace) = known.values().find_map(|of| of.pace.as_ref())
    {
        out.line(styled(DIM, format_args!("\n{pace}")))?;
    }
    Ok(Exit::Done)
}

fn table(known: &BTreeMap<String, HostState>, now: Timestamp) -> Table {
    let heads = ["host", ">rate", ">parallel", ">limit", "window", ">next rate", "in", ">flaky", "paused for"];
    let mut table = Table::new(&heads);
    for (host, of) in known {
        let pace = of.pace.as_ref();
        let cell = |text: Option<String>| text.unwrap_or_default();
        table.row([
            plain(host),
            cell(pace.map(|pace| rate(pace.rate))),
            cell(pace.map(|pace| pace.parallel.to_string())),
            cell(pace.and_then(|pace| pace.limit).map(rate)),
            cell(pace.and_then(|pace| pace.ceiling).map(|(_, window)| window.to_owned())),
            cell(pace.and_then(|pace| pace.next_probe).map(|(_, next)| rate(next))),
            cell(pace.and_then(|pace| pace.next_probe).map(|(at, _)| span(at.since(now)))),
            cell(pace.and_then(|pace| pace.error_noise).map(|share| format!("{:.0} %", 100.0 * share))),
            cell(of.paused.as_ref().map(|paused| span(paused.paused_until.since(now)))),
        ]);
    }
    table
}
