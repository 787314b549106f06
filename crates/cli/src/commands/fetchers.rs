//! `fetchers`: the fetchers, their costs, and why any is unavailable.

use clap::Args;
use serde::Serialize;

use crate::setup::fetcher_availability::{BrowserArgs, FetcherAvailability};
use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{DIM, Output, Table};
use anstyle::Style;
use fetchwise::analytics::Costs;

/// List the fetchers, their costs, and why any is unavailable
///
/// Lists the fetchers of the config; without any, the built-in ones and those in the log. The time
/// is the median over all attempts, the size the median over the pages whose server announced it. A
/// fetcher that renders has no size.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fetchwise fetchers\n  \
    fetchwise fetchers --config crawl.toml --json")]
pub(crate) struct FetchersArgs {
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}

#[derive(Serialize)]
struct FetcherJson<'a> {
    name: &'a str,
    class: &'static str,
    cost: f64,
    quality: f64,
    renders: bool,
    available: bool,
    unavailable_reason: Option<&'a str>,
    attempts: u64,
    median_ms: Option<u64>,
    median_bytes: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(
    args: &FetchersArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    settings.warn_if_dir_missing();
    let available = FetcherAvailability::find(settings, &args.browser)?;
    let (selector, _) = settings.load_selector()?;
    let (mut costs, dir) = (Costs::default(), settings.data_dir()?);
    if dir.is_dir() {
        log_scan::attempts(&dir, |attempt| costs.observe(&attempt))?;
    }
    let mut table = Table::new(&[
        "fetcher",
        "class",
        ">cost",
        ">attempts",
        ">median time",
        ">median size",
        "available",
    ]);
    for (_, spec) in selector.candidates() {
        let why = available.left_out_reason(&spec.name).and_then(|why| why.lines().next());
        let cost = costs.of(&spec.name);
        // A server announces the size of what it sends, which is not the page after its scripts
        // ran.
        let median_bytes = cost.median_bytes.filter(|_| !spec.renders);
        if out.json {
            out.object(&FetcherJson {
                name: &spec.name,
                class: spec.class.name(),
                cost: spec.cost,
                quality: spec.quality,
                renders: spec.renders,
                available: why.is_none(),
                unavailable_reason: why,
                attempts: cost.attempts,
                median_ms: cost.median_ms,
                median_bytes,
            })?;
            continue;
        }
        let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let style = if why.is_some() { DIM } else { Style::new() };
        table.styled_row(
            style,
            [
                spec.name.to_string(),
                spec.class.name().to_owned(),
                format!("{}", spec.cost),
                cost.attempts.to_string(),
                known(cost.median_ms.map(|ms| format!("{ms} ms"))),
                known(median_bytes.map(|bytes| indicatif::HumanBytes(bytes).to_string())),
                why.map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")),
            ],
        );
    }
    if !out.json {
        out.line(table)?;
    }
    Ok(Exit::Done)
}
