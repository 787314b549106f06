//! `town`: the sites that crawlers are compared on, served on loopback with a ledger, until somebody ends it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use fetchwise_testsite::benchmark_sites::{BenchmarkSites, Ledger, SitePlan, RENDER_COST, Score, default_plans};
use fetchwise_testsite::submission_server::SubmissionServer;
use serde::{Deserialize, Serialize};

use crate::commands::fetch::shutdown;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{HEADING, Out, Table, note};

/// Serve a town of web sites on this machine that any crawler can be tried on, and count how it does
///
/// Sites of every kind (static, applications, behind walls, limited, short, redirecting, drifting, slow, flaky, broken, traps) each get a
/// loopback address. A list of their pages is served, too: point a crawler at it, and let it hand in what it takes for each page's
/// content. The sites count what they are asked for, refuse and see rendered; the ledger says which pages are good. It ends with
/// Ctrl-C, and prints how the crawler did.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise town\n  fetchwise town --pages 50 --seed 7 --ledger ledger.json\n  \
    fetchwise town --sites sites.toml        [[site]] kind = \"static\", count = 3, pages = 100")]
pub(crate) struct TownArgs {
    /// The sites: a table [[site]] with kind, and count and pages where they are to differ [default: 22 sites of all kinds]
    #[arg(long, value_name = "FILE.toml")]
    sites: Option<PathBuf>,
    /// Pages listed of each site
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pages: u32,
    /// Which pages they are
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the ledger there at the end, as JSON
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sites {
    #[serde(rename = "site")]
    sites: Vec<SitePlan>,
}

/// Where it is, as JSON has it.
#[derive(Serialize)]
struct WhereJson {
    links: String,
    pages: String,
    ledger: String,
}

/// Runs the command.
pub(crate) fn run(args: &TownArgs, out: &mut Out) -> Result<Exit, Failure> {
    let plans = match &args.sites {
        Some(file) => read(file)?,
        None => default_plans(),
    };
    let started = BenchmarkSites::start(&plans, args.pages, args.seed);
    let town = Arc::new(started.map_err(|error| Failure::failed(format_args!("cannot serve the town: {error}")))?);
    let hall = SubmissionServer::start(Arc::clone(&town)).map_err(Failure::failed)?;
    let places = WhereJson { links: hall.url("/links.txt"), pages: hall.url("/pages"), ledger: hall.url("/ledger") };
    if out.json {
        out.object(&places)?;
    } else {
        let WhereJson { links, pages, ledger } = &places;
        out.line(format_args!("links   {links}  ({} of them; as a page: {})", town.links().len(), hall.url("/")))?;
        out.line(format_args!("pages   POST {pages}  a line each: {{\"url\": ..., \"text\": ...}}"))?;
        out.line(format_args!("ledger  {ledger}"))?;
    }
    out.flush()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    runtime.block_on(async {
        let mut stop = shutdown::listen().map_err(Failure::failed)?;
        note("the town is open until Ctrl-C");
        stop.changed().await.map_err(Failure::failed)
    })?;
    let ledger = town.ledger();
    if let Some(file) = &args.ledger {
        let text = serde_json::to_string_pretty(&ledger).map_err(Failure::failed)?;
        let failed = |error| Failure::failed(format_args!("cannot write {}: {error}", file.display()));
        std::fs::write(file, text + "\n").map_err(failed)?;
    }
    if out.json {
        out.object(&ledger)?
    } else {
        show(&ledger, out)?
    }
    Ok(Exit::Done)
}

fn read(file: &std::path::Path) -> Result<Vec<SitePlan>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let sites: Sites = toml::from_str(&text).map_err(|error| failed(&error))?;
    Ok(sites.sites)
}

fn show(ledger: &Ledger, out: &mut Out) -> Result<(), Failure> {
    let heads = ["site", ">listed", ">sent", ">good", ">wrong", ">requests", ">blocked", ">renders", ">cost"];
    let mut table = Table::new(&heads);
    let cells = |name: String, score: &Score| {
        let Score { listed, sent, good, wrong, requests, blocked, renders, cost, .. } = score;
        let figures = [listed, sent, good, wrong, requests, blocked, renders, cost].map(u64::to_string);
        std::iter::once(name).chain(figures).collect::<Vec<_>>()
    };
    for (kind, score) in &ledger.kinds {
        let name = serde_json::to_value(kind).map_err(Failure::failed)?;
        table.row(cells(name.as_str().unwrap_or_default().to_owned(), score));
    }
    table.styled_row(HEADING, cells("all".to_owned(), &ledger.total));
    out.line(table)?;
    let per_hundred = ledger.total.good_per_hundred();
    out.line(format_args!(
        "{} of {} pages that can be had; {per_hundred:.1} good pages for what 100 plain requests cost (a rendered page counts as {RENDER_COST})",
        ledger.total.good, ledger.total.servable
    ))?;
    match ledger.unlisted {
        0 => Ok(()),
        unlisted => out.line(format_args!("{unlisted} pages were handed in that are on no list")),
    }
}
