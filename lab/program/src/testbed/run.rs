//! Serves the sites of the testbed on loopback, with a ledger, until Ctrl-C.

use std::path::PathBuf;
use std::sync::Arc;

use fetchwise_terminal::{HEADING, Table, note, shown};
use fetchwise_testsite::benchmark_sites::{
    BenchmarkOptions, BenchmarkSites, Ledger, RENDER_COST, Score, SitePlan, default_plans,
};
use fetchwise_testsite::origin::VerifiedBots;
use fetchwise_testsite::submission_server::SubmissionServer;
use serde::{Deserialize, Serialize};

use super::args::TestbedArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::shutdown;

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
    /// The certificate to trust, if the sites are served over https.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &TestbedArgs, out: &mut Output) -> Result<Exit, Failure> {
    let plans = match &args.sites {
        Some(file) => read(file)?,
        None => default_plans(),
    };
    let bots = args.bot_keys.as_deref().map(known_bots).transpose()?.unwrap_or_default();
    let options = BenchmarkOptions { is_https: args.tls, bots };
    let started = BenchmarkSites::start_with(&plans, args.pages, args.seed, &options);
    let testbed = Arc::new(
        started
            .map_err(|error| Failure::failed(format_args!("cannot serve the testbed: {error}")))?,
    );
    let submissions = SubmissionServer::start(Arc::clone(&testbed)).map_err(Failure::failed)?;
    let ca_file = testbed.authority_pem().map(|pem| write_authority(args, pem)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    // Before the places are printed: their reader may end the testbed at once.
    let mut stop = {
        let _entered = runtime.enter();
        shutdown::listen().map_err(Failure::failed)?
    };
    let places = WhereJson {
        links: submissions.url("/links.txt"),
        pages: submissions.url("/pages"),
        ledger: submissions.url("/ledger"),
        ca_file,
    };
    if out.json {
        out.object(&places)?;
    } else {
        let WhereJson { links, pages, ledger, ca_file } = &places;
        out.line(format_args!(
            "links   {links}  ({} of them; as a page: {})",
            testbed.links().len(),
            submissions.url("/")
        ))?;
        out.line(format_args!(
            "pages   POST {pages}  one per line: {{\"url\": ..., \"text\": ...}}"
        ))?;
        out.line(format_args!("ledger  {ledger}"))?;
        if let Some(file) = ca_file {
            out.line(format_args!(
                "ca      {}  to trust, as http.ca_file or --ca-file",
                shown(file)
            ))?;
        }
    }
    out.flush()?;
    runtime.block_on(async {
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

/// Reads the keys of bots.
fn known_bots(file: &std::path::Path) -> Result<VerifiedBots, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {error}", shown(file)));
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    VerifiedBots::from_directory(&text).map_err(|error| {
        failed(&error).advise("write one with `fetchwise identity directory --out DIR`")
    })
}

/// Writes the certificate that clients have to trust, and returns its file.
fn write_authority(args: &TestbedArgs, pem: &str) -> Result<PathBuf, Failure> {
    let by_default =
        || std::env::temp_dir().join(format!("fetchwise-testbed-{}.pem", std::process::id()));
    let file = args.ca_file.clone().unwrap_or_else(by_default);
    let failed = |error| Failure::failed(format_args!("cannot write {}: {error}", shown(&file)));
    std::fs::write(&file, pem).map_err(failed)?;
    Ok(file)
}

fn read(file: &std::path::Path) -> Result<Vec<SitePlan>, Failure> {
    let failed =
        |error: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {error}", shown(file)));
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let sites: Sites = toml::from_str(&text).map_err(|error| failed(&error))?;
    Ok(sites.sites)
}

fn show(ledger: &Ledger, out: &mut Output) -> Result<(), Failure> {
    let heads = [
        "site",
        ">listed",
        ">sent",
        ">good",
        ">wrong",
        ">requests",
        ">blocked",
        ">renders",
        ">cost",
    ];
    let mut table = Table::new(&heads);
    let cells = |name: String, score: &Score| {
        let Score { listed, sent, good, wrong, requests, blocked, renders, cost, .. } = score;
        let figures =
            [listed, sent, good, wrong, requests, blocked, renders, cost].map(u64::to_string);
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
    if ledger.unlisted > 0 {
        out.line(format_args!("{} submitted pages are not on the list", ledger.unlisted))?;
    }
    // A crawler that delivered everything and submitted nothing looks as if it had failed.
    if ledger.total.good + ledger.total.wrong + ledger.unlisted == 0 {
        out.line("no page was submitted, so none counts as good: docs/guides/testbed.md shows how to submit those of `fetch --out`")?;
    }
    Ok(())
}
