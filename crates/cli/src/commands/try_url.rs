//! `try`: one URL with each fetcher, and a comparison of the results. Nothing is recorded.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use url::Url;

use super::fetch::args::RequestArgs;
use crate::commands::fetch::build_crawler::{guard, limits, visits};
use crate::commands::fetch::build_fetchers::BuiltFetchers;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::setup::decider::read_url;
use crate::setup::fetcher_availability::FetcherAvailability;
use crate::setup::identity::Identity;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, DIM, ERROR, Output, Table};
use crate::terminal::pace_text::took;
use fetchwise::attempt::ErrorType;
use fetchwise::detect::Detector;
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise::fetch_result::{FetchResult, Outcome};
use fetchwise::heuristic::url::{shorten, without_user};
use fetchwise::pipeline::DetectorJudge;
use fetchwise::registry::FetcherSpec;
use fetchwise::response::header;
use fetchwise::rfc3339;

/// A fetcher that misses its deadline is stopped this much later.
const GRACE: Duration = Duration::from_secs(2);

/// Try one URL with each fetcher and compare the results
///
/// Each fetcher makes one request, one after the other, the cheapest first. `try` records nothing
/// and ignores pauses: it is for a person who wants to see what each fetcher delivers.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fetchwise try https://example.org/\n  \
    fetchwise try --fetcher direct_access --fetcher archive_proxy --config crawl.toml --json https://example.org/")]
pub(crate) struct TryArgs {
    /// Fetch this URL
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Use only this fetcher; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) fetcher: Vec<String>,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
}

/// The result of one request.
#[derive(Debug, Default, Serialize)]
struct TriedJson {
    url: String,
    fetcher: String,
    available: bool,
    success: bool,
    error_type: Option<String>,
    error: Option<String>,
    status: Option<u16>,
    content_type: Option<String>,
    bytes: u64,
    duration_ms: u64,
    final_url: Option<String>,
    served_by: Option<String>,
    archived_at: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &TryArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let url = read_url(&args.url).map_err(Failure::usage)?;
    let crawl_options = CrawlOptions {
        allow_network: args.request.allow_network.clone(),
        allow_private_network: args.request.allow_private_network,
        browser: args.request.browser.clone(),
        timeout: args.request.timeout,
        max_body: args.request.max_body,
        ca_file: args.request.ca_file.clone(),
        ..CrawlOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let ended = runtime.block_on(try_all(args, settings, &crawl_options, &url, out));
    // A name lookup blocks a thread that cannot be stopped.
    runtime.shutdown_timeout(Duration::from_millis(500));
    ended
}

async fn try_all(
    args: &TryArgs,
    settings: &Settings,
    crawl_options: &CrawlOptions,
    url: &Url,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let available = FetcherAvailability::find(settings, &crawl_options.browser)?;
    let selector = settings.config.selector_with_built_in().build().map_err(Failure::usage)?;
    let mut specs: Vec<FetcherSpec> = selector.candidates().map(|(_, spec)| spec.clone()).collect();
    if !args.fetcher.is_empty() {
        let wanted =
            args.fetcher.iter().map(|name| crate::setup::decider::candidate(&selector, name));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = wanted.into_iter().map(|id| selector.fetcher_name(id)).collect();
        specs.retain(|spec| names.contains(&&*spec.name));
    }
    specs.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let made = BuiltFetchers::build(
        settings,
        crawl_options,
        &available,
        &Identity::load(settings)?,
        guard(settings, crawl_options)?,
    )?;
    let detector = settings.detector()?;
    let limits = Limits {
        deadline: visits(settings, crawl_options).deadline,
        max_redirects: visits(settings, crawl_options).max_redirects,
        ..limits(settings, crawl_options)
    };
    let mut table = Table::new(&["fetcher", "outcome", ">status", ">size", ">time", "details"]);
    let mut left_out = Vec::new();
    for spec in &specs {
        let tried = match made.fetchers.iter().find(|fetcher| fetcher.name() == &*spec.name) {
            Some(fetcher) => one(&**fetcher, spec, url, &limits, &detector).await,
            None => {
                let why = available.left_out_reason(&spec.name).unwrap_or("it is unavailable");
                unavailable(spec, why)
            }
        };
        let tried = TriedJson { url: without_user(&args.url).into_owned(), ..tried };
        match out.json {
            true => out.object(&tried)?,
            false if !tried.available => left_out.push(tried),
            false => show(&tried, &mut table),
        }
    }
    made.children.close().await;
    left_out.iter().for_each(|tried| show(tried, &mut table));
    if !out.json {
        out.line(table)?;
    }
    Ok(Exit::Done)
}

fn unavailable(spec: &FetcherSpec, why: &str) -> TriedJson {
    TriedJson {
        fetcher: spec.name.to_string(),
        error_type: Some("no_fetcher".to_owned()),
        error: why.lines().next().map(str::to_owned),
        ..TriedJson::default()
    }
}

/// Makes one request and returns its result.
async fn one(
    fetcher: &dyn Fetcher,
    spec: &FetcherSpec,
    url: &Url,
    limits: &Limits,
    detector: &Detector,
) -> TriedJson {
    let begun = Instant::now();
    let judge = DetectorJudge(detector);
    let request = Request { judge: Some(&judge), ..Request::new(url, limits) };
    let fetched = tokio::time::timeout(limits.deadline + GRACE, fetcher.fetch(request)).await;
    let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let tried = match fetched {
        Ok(Ok(response)) => came(&response, spec, url, detector),
        Ok(Err(error)) if error.unavailable => unavailable(spec, &error.message),
        Ok(Err(error)) => failed(&error),
        Err(_) => TriedJson {
            error_type: Some("timeout".to_owned()),
            error: Some(format!("no response within {} s", limits.deadline.as_secs_f64())),
            available: true,
            ..TriedJson::default()
        },
    };
    TriedJson { fetcher: spec.name.to_string(), duration_ms, ..tried }
}

fn came(response: &Response, spec: &FetcherSpec, url: &Url, detector: &Detector) -> TriedJson {
    let mut answer: FetchResult = detector.judge_page(&response.page(url));
    if response.truncated {
        answer.outcome = answer.outcome.truncated();
    }
    if let Some(provenance) = &response.provenance {
        answer = answer.with_provenance(provenance.clone());
    }
    let error = answer.outcome.counts_as(spec).err();
    let leads_on = matches!(answer.outcome, Outcome::Redirect { .. });
    TriedJson {
        available: true,
        success: error.is_none() || leads_on,
        error: error
            .is_some()
            .then(|| answer.message.clone().unwrap_or_else(|| answer.outcome.to_string())),
        error_type: error
            .as_ref()
            .filter(|_| !leads_on)
            .map(|error: &ErrorType| error.name().to_owned()),
        status: Some(response.status),
        content_type: header(&response.headers, "content-type").map(str::to_owned),
        bytes: response.body.len(),
        final_url: Some(response.final_url.to_string()),
        served_by: response.provenance.as_ref().map(|provenance| provenance.by.to_string()),
        archived_at: response
            .provenance
            .as_ref()
            .and_then(|provenance| provenance.captured)
            .map(rfc3339::format),
        ..TriedJson::default()
    }
}

fn failed(error: &FetchError) -> TriedJson {
    TriedJson {
        available: true,
        error_type: Some(error.kind.name().to_owned()),
        error: Some(error.message.clone()),
        status: error.status,
        ..TriedJson::default()
    }
}

fn show(tried: &TriedJson, table: &mut Table) {
    let dash = || "-".to_owned();
    let outcome = match &tried.error_type {
        None => "ok".to_owned(),
        Some(error_type) => error_type.clone(),
    };
    let copy = tried.archived_at.as_ref().zip(tried.served_by.as_ref());
    let copy =
        copy.map(|(at, by)| format!("{by}'s copy of {}", at.split('T').next().unwrap_or_default()));
    let served = copy.or_else(|| tried.served_by.as_ref().map(|by| format!("from {by}")));
    let what = [served, tried.error.as_deref().map(shorten), tried.content_type.clone()];
    let style = match (tried.success, tried.available) {
        (true, _) => CHOSEN,
        (false, true) => ERROR,
        (false, false) => DIM,
    };
    table.styled_row(
        style,
        [
            tried.fetcher.clone(),
            outcome,
            tried.status.map_or_else(dash, |status| status.to_string()),
            if tried.success { indicatif::HumanBytes(tried.bytes).to_string() } else { dash() },
            if tried.available { took(Duration::from_millis(tried.duration_ms)) } else { dash() },
            what.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ],
    );
}
