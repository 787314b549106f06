//! `testbed`: web sites to compare crawlers on, served on loopback with a ledger until Ctrl-C.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use fetchwise_testsite::benchmark_sites::{BenchmarkSites, Ledger, RENDER_COST, Score, SitePlan, default_plans};
use fetchwise_testsite::submission_server::SubmissionServer;
use serde::{Deserialize, Serialize};

use crate::commands::fetch::shutdown;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{HEADING, Output, Table, note, shown};

/// Serve web sites on this machine that any crawler can be tested on
///
/// Each site gets a loopback address. There are sites of many kinds: static, applications, blocking, limited, short,
/// redirecting, drifting, slow, flaky, broken, traps. A server lists their pages: let a crawler fetch the list and
/// submit the content of each page. The sites count requests, blocks and rendered pages; the ledger tells which pages
/// are good. Ctrl-C ends the testbed and prints the score.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise testbed\n  fetchwise testbed --pages 50 --seed 7 --ledger ledger.json\n  \
    fetchwise testbed --sites sites.toml        [[site]] kind = \"static\", count = 3, pages = 100"
)]
pub(crate) struct TestbedArgs {
    /// Read the sites from tables [[site]]: kind, and optionally count and pages [default: 22 sites of all kinds]
    #[arg(long, value_name = "FILE.toml")]
    sites: Option<PathBuf>,
    /// List N pages of each site
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pages: u32,
    /// Choose the pages by this seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the ledger to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sites {
    #[serde(rename = "site")]
    sites: Vec<SitePlan>,
}

/// The addresses of the testbed, as JSON.
#[derive(Serialize)]
struct WhereJson {
    links: String,
    pages: String,
    ledger: String,
}

/// Runs the command.
pub(crate) fn run(args: &TestbedArgs, out: &mut Output) -> Result<Exit, Failure> {
    let plans = match &args.sites {
        Some(file) => read(file)?,
        None => default_plans(),
    };
    let started = BenchmarkSites::start(&plans, args.pages, args.seed);
    let town = Arc::new(started.map_err(|error| Failure::failed(format_args!("cannot serve the testbed: {error}")))?);
    let hall = SubmissionServer::start(Arc::clone(&town)).map_err(Failure::failed)?;
    let places = WhereJson { links: hall.url("/links.txt"), pages: hall.url("/pages"), ledger: hall.url("/ledger") };
    if out.json {
        out.object(&places)?;
    } else {
        let WhereJson { links, pages, ledger } = &places;
        out.line(format_args!("links   {links}  ({} of them; as a page: {})", town.links().len(), hall.url("/")))?;
        out.line(format_args!("pages   POST {pages}  one per line: {{\"url\": ..., \"text\": ...}}"))?;
        out.line(format_args!("ledger  {ledger}"))?;
    }
    out.flush()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    runtime.block_on(async {
        let mut stop = shutdown::listen().map_err(Failure::failed)?;
        note("the testbed is open until Ctrl-C");
        stop.changed().await.map_err(Failure::failed)
    })?;
    let ledger = town.ledger();
    if let Some(file) = &args.ledger {
        let text = serde_json::to_string_pretty(&ledger).map_err(Failure::failed)?;
        let failed = |error| Failure::failed(format_args!("cannot write {}: {error}", shown(file)));
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
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {error}", shown(file)));
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let sites: Sites = toml::from_str(&text).map_err(|error| failed(&error))?;
    Ok(sites.sites)
}

fn show(ledger: &Ledger, out: &mut Output) -> Result<(), Failure> {
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
        "{} of {} available pages; {per_hundred:.1} good pages for the cost of 100 plain requests (a rendered page \
         costs {RENDER_COST})",
        ledger.total.good, ledger.total.servable
    ))?;
    match ledger.unlisted {
        0 => Ok(()),
        unlisted => out.line(format_args!("{unlisted} submitted pages are not on the list")),
    }
}
