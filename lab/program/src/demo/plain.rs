//! The demo as a table with a line per round, or as JSON lines.

use std::sync::Arc;

use fetchwise::config::Config;
use fetchwise::decision::Source;
use fetchwise::pace::PaceMode;
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::rfc3339;
use fetchwise_terminal::{CHOSEN, DIM, ERROR, HEADING, Table, note, styled};
use fetchwise_testsite::demo_sites::{DemoSite, demo_sites};
use fetchwise_testsite::origin::Origin;
use serde::Serialize;

use super::args::DemoArgs;
use super::crawler::{Crawler, CrawlerOptions};
use super::sites::serve;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::shutdown;

/// The number of rounds at the start and at the end that the final comparison covers.
const COMPARED: usize = 4;
/// The width of a column.
const WIDTH: usize = 12;

/// A fetch, as JSON.
#[derive(Serialize)]
struct FetchJson<'a> {
    round: usize,
    place: &'a str,
    url: &'a str,
    fetcher: Option<&'a str>,
    source: Option<&'static str>,
    confidence: Option<f64>,
    status: Option<u16>,
    success: bool,
    error_type: Option<&'a str>,
    error: Option<&'a str>,
    requests: u32,
    bytes: u64,
    paused_until: Option<String>,
}

impl<'a> FetchJson<'a> {
    fn new(round: usize, place: &'a str, report: &'a Report) -> Self {
        Self {
            round,
            place,
            url: &report.url,
            fetcher: report.fetcher.as_deref(),
            source: report.source.map(Source::name),
            // Confidence belongs to a fetcher: without one there is none.
            confidence: report.fetcher.as_ref().map(|_| report.confidence),
            status: report.status,
            success: report.success,
            error_type: report.error_type,
            error: report.message.as_deref(),
            requests: report.requests,
            bytes: report.bytes,
            paused_until: report.paused_until.map(rfc3339::format_time),
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &DemoArgs, out: &mut Output) -> Result<Exit, Failure> {
    let places = demo_sites();
    let origin = serve(&places)?;
    let dir = tempfile::tempdir().map_err(|error| {
        Failure::failed(format_args!("cannot create a temporary directory: {error}"))
    })?;
    let mut config = Config::default();
    // The demo sites run on this machine, so no pace is needed.
    config.pace.mode = Some(PaceMode::Off);
    let options = CrawlerOptions {
        dir: args.data_dir.as_deref().unwrap_or(dir.path()),
        config: &config,
        browser: &args.browser()?,
        has_queue: false,
        is_served: args.serve,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let ended = runtime.block_on(async {
        let mut stop = shutdown::listen().map_err(Failure::failed)?;
        let crawler = Crawler::open(&options).await?;
        if let Some(served) = &crawler.dashboard {
            note(format_args!("serving the dashboard at {}", served.url));
        }
        let ended = tokio::select! {
            ended = crawl(&crawler.pipeline, &places, &origin, usize::from(args.rounds), out) => ended,
            Ok(()) = stop.changed() => Err(Failure::failed("interrupted")),
        };
        if let Some(served) = crawler.dashboard.as_ref().filter(|_| ended.is_ok()) {
            note(format_args!("the dashboard stays at {} until Ctrl-C", served.url));
            let _ = stop.changed().await;
        }
        crawler.close().await.and(ended)
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    ended.map(|()| Exit::Done)
}

/// Crawls all rounds.
async fn crawl(
    pipeline: &Arc<Pipeline>,
    places: &[DemoSite],
    origin: &Origin,
    rounds: usize,
    out: &mut Output,
) -> Result<(), Failure> {
    if !out.json {
        introduce(places, out)?;
    }
    let mut history: Vec<Vec<Report>> = places.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let tasks: Vec<_> = places
            .iter()
            .map(|place| {
                let (pipeline, link) =
                    (Arc::clone(pipeline), Link::new(origin.url(place.host, &place.path(round))));
                tokio::spawn(
                    async move { Report { response: None, ..pipeline.fetch(&link).await } },
                )
            })
            .collect();
        for ((task, place), past) in tasks.into_iter().zip(places).zip(&mut history) {
            let report = task
                .await
                .map_err(|error| Failure::failed(format_args!("bug in fetchwise: {error}")))?;
            if out.json {
                out.object(&FetchJson::new(round + 1, place.name, &report))?;
            }
            past.push(report);
        }
        if !out.json {
            let cells: String = history.iter().filter_map(|past| past.last()).map(cell).collect();
            out.line(format_args!("{:>5}  {}", round + 1, cells.trim_end()))?;
        }
        out.flush()?;
    }
    if !out.json {
        compare(places, &history, out)?;
    }
    note(format_args!(
        "{} requests for {} pages",
        requests(history.iter().flatten()),
        pages(history.iter().flatten())
    ));
    Ok(())
}

fn introduce(places: &[DemoSite], out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&["site", "address", ""]);
    for place in places {
        table.row([place.name.to_owned(), place.host.to_owned(), place.about.to_owned()]);
    }
    out.line(table)?;
    out.line(styled(
        DIM,
        "\nOne page of each site per round: the fetcher that delivered, and the number of requests. ? probe, - \
         inferred, ~ exploring, ! learned.\n",
    ))?;
    let heads: String = places.iter().map(|place| format!("{:<WIDTH$}", place.name)).collect();
    out.line(styled(HEADING, format_args!("round  {}", heads.trim_end())))
}

/// Returns a fetch in the width of a column.
fn cell(report: &Report) -> String {
    let fetcher = match report.fetcher.as_deref() {
        Some("direct_access") => "direct",
        Some("playwright") => "browser",
        Some("playwright_stealth") => "stealth",
        Some(other) => other,
        None => "",
    };
    let mark = match report.source {
        Some(Source::Probe) => "?",
        Some(Source::Inferred) => "-",
        Some(Source::Explore) => "~",
        Some(Source::Learned) => "!",
        _ => "",
    };
    let (text, style) = match report {
        Report { success: true, source: Some(Source::Learned), .. } => {
            (format!("{fetcher}{mark} {}", report.requests), CHOSEN)
        }
        Report { success: true, .. } => {
            (format!("{fetcher}{mark} {}", report.requests), anstyle::Style::new())
        }
        Report { error_type: Some(Report::PAUSED), .. } => ("paused".to_owned(), DIM),
        _ => (format!("failed {}", report.requests), ERROR),
    };
    let text: String = text.chars().take(WIDTH - 1).collect();
    format!("{}{:pad$}", styled(style, &text), "", pad = WIDTH - text.chars().count())
}

/// Prints the cost of the first and the last rounds, and the latest choice.
fn compare(places: &[DemoSite], history: &[Vec<Report>], out: &mut Output) -> Result<(), Failure> {
    let heads = ["site", ">requests per page, at first", ">at last", "now"];
    let mut table = Table::new(&heads);
    for (place, past) in places.iter().zip(history) {
        let half = COMPARED.min(past.len() / 2);
        let per_page = |reports: &[Report]| match pages(reports.iter()) {
            0 => "no page".to_owned(),
            pages => format!("{:.2}", requests(reports.iter()) as f64 / pages as f64),
        };
        let now = past.last().map_or_else(String::new, |last| match last {
            Report { error_type: Some(Report::PAUSED), .. } => "paused".to_owned(),
            last => {
                let fetcher = last.fetcher.as_deref().unwrap_or("none");
                let source = last.source.map_or("", Source::name);
                format!("{fetcher}, {source} (confidence {:.2})", last.confidence)
            }
        });
        table.row([
            place.name.to_owned(),
            per_page(&past[..half]),
            per_page(&past[past.len() - half..]),
            now,
        ]);
    }
    out.line(format_args!("\n{table}"))
}

fn requests<'r>(reports: impl Iterator<Item = &'r Report>) -> u64 {
    reports.map(|report| u64::from(report.requests)).sum()
}

fn pages<'r>(reports: impl Iterator<Item = &'r Report>) -> usize {
    reports.filter(|report| report.success).count()
}
