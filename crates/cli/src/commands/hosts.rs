//! `hosts`: paused hosts, the pace of each host, and the pages that the crawler's network refused.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{DIM, Output, Table, note, plain, styled};
use crate::terminal::pace_text::{rate, span};
use fetchwise::journal::{self, AttemptQuery, Order};
use fetchwise::pace::{Level, PaceExplanation};
use fetchwise::selector::PausedHost;
use fetchwise::time::Timestamp;
use fetchwise_present::{ForeignPages, HostJson};

/// Age in milliseconds up to which pages that are not a host's own are counted.
const FOREIGN_WINDOW_MS: i64 = 24 * 3_600_000;
/// Maximum hosts that the note about such pages names.
const NAMED_HOSTS: usize = 3;

/// Show paused hosts, and the pace of each host that was asked
#[derive(Debug, Args)]
#[command(
    after_help = "rate is the rate at which a host would be asked now; after a restart it begins below the limit. All \
    values come from the log: a running crawl's changes appear within a moment. Pages that this crawler's network \
    refused (a provider, a filter, a captive portal) are counted over the last 24 hours.\n\n\
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
    /// Pages that were not its own, of late.
    foreign: ForeignPages,
}

/// Runs the command.
pub(crate) fn run(
    args: &HostsArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
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
    for (host, foreign) in foreign_pages(&dir, now)? {
        known.entry(host).or_default().foreign = foreign;
    }
    let wanted: Vec<String> = args.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    known.retain(|host, of| {
        (wanted.is_empty() || wanted.contains(host)) && (!args.paused || of.paused.is_some())
    });
    if out.json {
        for (host, of) in &known {
            let (paused, pace) = (of.paused.as_ref(), of.pace.as_ref());
            out.object(&HostJson::new(host, paused, pace, of.foreign, now))?;
        }
        return Ok(Exit::Done);
    }
    if known.is_empty() {
        note(match (args.paused, wanted.is_empty()) {
            (true, true) => "no host is paused",
            (true, false) => "none of these hosts is paused",
            (false, true) => "no host is paused, and no pace is known",
            (false, false) => "nothing is known of these hosts",
        });
        return Ok(Exit::Done);
    }
    out.line(table(&known, now))?;
    note_network_blocks(&known);
    note_flaky(&known);
    if wanted.len() == 1
        && let Some(pace) = known.values().find_map(|of| of.pace.as_ref())
    {
        out.line(styled(DIM, format_args!("\n{pace}")))?;
    }
    Ok(Exit::Done)
}

/// Returns the pages of each host that were not its own, of the last [`FOREIGN_WINDOW_MS`].
fn foreign_pages(dir: &Path, now: Timestamp) -> Result<BTreeMap<String, ForeignPages>, Failure> {
    let mut wanted = AttemptQuery::default();
    wanted.since = Some(Timestamp::from_millis(now.as_millis().saturating_sub(FOREIGN_WINDOW_MS)));
    let mut pages: BTreeMap<String, ForeignPages> = BTreeMap::new();
    journal::attempts(dir, &wanted, Order::NewestFirst, None, |_, attempt| {
        let more = ForeignPages::of(&attempt);
        if more != ForeignPages::default()
            && let Some(host) = attempt.heuristic("domain")
        {
            let of = pages.entry(host.to_owned()).or_default();
            of.network_blocks += more.network_blocks;
            of.default_pages += more.default_pages;
        }
        ControlFlow::Continue(())
    })?;
    Ok(pages)
}

/// Says which hosts fail at any rate.
fn note_flaky(known: &BTreeMap<String, HostState>) {
    let of = |(host, of): (&String, &HostState)| {
        Some((plain(host).to_string(), of.pace.as_ref()?.noise_text()?))
    };
    for (host, noise) in known.iter().filter_map(of).take(NAMED_HOSTS) {
        note(format_args!("{host} is flaky: {noise}"));
    }
}

/// Says how many pages the crawler's network refused, and what helps.
fn note_network_blocks(known: &BTreeMap<String, HostState>) {
    let pages: u64 = known.values().map(|of| of.foreign.network_blocks).sum();
    if pages == 0 {
        return;
    }
    let refused = known.iter().filter(|(_, of)| of.foreign.network_blocks > 0);
    let (mut names, hosts) = (Vec::new(), refused.clone().count());
    names.extend(refused.take(NAMED_HOSTS).map(|(host, _)| plain(host).to_string()));
    let more = if hosts > names.len() {
        format!(" and {} more", hosts - names.len())
    } else {
        String::new()
    };
    let (count, of) = if pages == 1 {
        ("1 page was".to_owned(), "it")
    } else {
        (format!("{pages} pages were"), "them")
    };
    note(format_args!(
        "{count} refused by this crawler's network in the last 24 hours, not by the site: {}{more}\nhint: log in to \
         the network, ask its administrator, or fetch {of} from another network or through a proxy",
        names.join(", ")
    ));
}

fn table(known: &BTreeMap<String, HostState>, now: Timestamp) -> Table {
    let heads = [
        "host",
        ">rate",
        ">parallel",
        ">limit",
        "window",
        ">next rate",
        "next in",
        ">flaky",
        "paused for",
        ">by network",
        ">default",
    ];
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
            cell(pace.and_then(|pace| pace.next_probe).map(|(at, _)| rest(at.since(now)))),
            cell(
                pace.and_then(|pace| pace.error_noise)
                    .map(|share| format!("{:.0} %", 100.0 * share)),
            ),
            cell(of.paused.as_ref().map(|paused| span(paused.paused_until.since(now)))),
            cell((of.foreign.network_blocks > 0).then(|| of.foreign.network_blocks.to_string())),
            cell((of.foreign.default_pages > 0).then(|| of.foreign.default_pages.to_string())),
        ]);
    }
    table
}

/// Returns the time that is left.
fn rest(left: Duration) -> String {
    if left.as_secs() == 0 { "now".to_owned() } else { span(left) }
}
