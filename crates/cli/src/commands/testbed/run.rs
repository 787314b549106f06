//! Serves the sites of the testbed on loopback, with a ledger, until Ctrl-C.

use std::sync::Arc;

use fetchwise_testsite::benchmark_sites::{BenchmarkSites, Ledger, RENDER_COST, Score, SitePlan, default_plans};
use fetchwise_testsite::submission_server::SubmissionServer;
use serde::{Deserialize, Serialize};

use super::args::TestbedArgs;
use crate::commands::fetch::shutdown;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{HEADING, Output, Table, note, shown};

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
    let testbed =
        Arc::new(started.map_err(|error| Failure::failed(format_args!("cannot serve the testbed: {error}")))?);
    let submissions = SubmissionServer::start(Arc::clone(&testbed)).map_err(Failure::failed)?;
    let places = WhereJson {
        links: submissions.url("/links.txt"),
        pages: submissions.url("/pages"),
        ledger: submissions.url("/ledger"),
    };
    if out.json {
        out.object(&places)?;
    } else {
        let WhereJson { links, pages, ledger } = &places;
        out.line(format_args!(
            "links   {links}  ({} of them; as a page: {})",
            testbed.links().len(),
            submissions.url("/")
        ))?;
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
    let ledger = testbed.ledger();
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
