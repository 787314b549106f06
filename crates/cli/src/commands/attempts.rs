//! `attempts`: queries for single attempts.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::parse::attempt_range::AttemptRange;
use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, ERROR, HEADING, Output, note, plain, styled};
use crate::terminal::pace_text::took;
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::json::to_json_line;
use fetchwise::heuristic::url::parse;
use fetchwise::journal::{self, AttemptQuery, Order, OutcomeFilter, QueryStats};
use fetchwise::rfc3339;
use fetchwise::unknown_name::UnknownName;
use fetchwise_serve::attempt_filter::parse_outcome;

/// The number of attempts that text output shows unless `--limit` says otherwise.
const DEFAULT_LIMIT: u64 = 50;
/// The number of digits at the end of an id that text output shows.
pub(crate) const SHORT_ID: usize = 12;

/// Show single attempts by URL, link, domain, time or outcome
///
/// Prints attempts from the log in the order of recording, the newest first. It skips parts of the
/// log without attempts of the requested time; with --limit the newest part may be enough. Text has
/// the last twelve digits of each id.
#[derive(Debug, Args)]
#[command(
    after_help = "With --json, each attempt is a line in the format of export and import. explain --attempt takes an id, or \
    its last twelve digits.\n\
    --oldest-first and --until read the log from the requested time to its end, because forgotten attempts are \
    recorded there.\n\n\
    Examples:\n  fetchwise attempts --domain example.org --outcome blocked --since 2h\n  \
    fetchwise attempts --url https://example.org/a --limit 5\n  \
    fetchwise attempts --since 2026-01-31 --until 2026-02-01T06:00:00Z --oldest-first --json"
)]
pub(crate) struct AttemptsArgs {
    /// Show only attempts at this URL
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Show only attempts of this link, as given to fetch: its id or its URL
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,
    #[command(flatten)]
    pub(crate) range: AttemptRange,
    /// Show only this outcome: content, failed, blocked, or an error type
    #[arg(long, value_name = "OUTCOME", value_parser = parse_outcome)]
    pub(crate) outcome: Option<OutcomeFilter>,
    /// Show at most N attempts [default: 50 as text, all with --json]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Show the oldest attempts first
    #[arg(long)]
    pub(crate) oldest_first: bool,
    /// Report at the end how much of the log was read
    #[arg(long)]
    pub(crate) summary: bool,
}

#[derive(Serialize)]
struct SummaryJson {
    summary: Counts,
}

#[derive(Serialize)]
struct Counts {
    attempts: u64,
    segments: u64,
    segments_read: u64,
    bytes: u64,
    bytes_read: u64,
    compacted_before: Option<String>,
}

/// Runs the command.
pub(crate) fn run(
    args: &AttemptsArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let mut wanted = args.range.query(&settings.clock)?;
    wanted.url = args.url.as_deref().map(read_url).transpose()?;
    wanted.link.clone_from(&args.link);
    wanted.ended.clone_from(&args.outcome);
    let order = if args.oldest_first { Order::OldestFirst } else { Order::NewestFirst };
    let limit = args.limit.or((!out.json).then_some(DEFAULT_LIMIT));
    let (mut failed, mut is_first) = (None, true);
    let found = journal::attempts(&dir, &wanted, order, limit, |_, attempt| {
        let heading =
            if std::mem::take(&mut is_first) && !out.json { out.line(heading()) } else { Ok(()) };
        let text = if out.json { to_json_line(&attempt) } else { line(&attempt) };
        let shown = heading.and_then(|()| out.line(text));
        match shown {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                failed = Some(failure);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    let found = found?;
    warn_torn_tail(found.torn_tail.as_ref());
    tell(args, limit, &wanted, &found, out)?;
    Ok(Exit::Done)
}

/// Prints the notes and the summary at the end.
fn tell(
    args: &AttemptsArgs,
    limit: Option<u64>,
    wanted: &AttemptQuery,
    found: &QueryStats,
    out: &mut Output,
) -> Result<(), Failure> {
    out.flush()?;
    match limit.filter(|limit| found.shown >= *limit) {
        None => log_scan::note_compacted(found, wanted),
        Some(limit) if args.limit.is_none() => {
            let which = if args.oldest_first { "oldest" } else { "newest" };
            note(format_args!("these are the {which} {limit}: --limit N shows more"));
        }
        Some(_) => {}
    }
    if !out.json && found.shown == 0 {
        note("no attempt matches");
        if let Some(OutcomeFilter::Error(name)) = &wanted.ended
            && ErrorKind::from_name(name).is_none()
        {
            let known = ErrorKind::ALL.iter().map(|kind| kind.name());
            note(format_args!("  hint: {}", UnknownName::new("error type", name, known)));
        }
    }
    if args.summary {
        let ((segments, segments_read), (bytes, bytes_read)) = (found.segments, found.bytes);
        if out.json {
            let compacted_before = found.compacted_before.map(rfc3339::format);
            let attempts = found.shown;
            let summary =
                Counts { attempts, segments, segments_read, bytes, bytes_read, compacted_before };
            return out.object(&SummaryJson { summary });
        }
        out.flush()?;
        note(format_args!(
            "{} attempts; read {segments_read} of {segments} segments, {bytes_read} of {bytes} bytes",
            found.shown
        ));
    }
    Ok(())
}

/// Returns the heads of the columns.
fn heading() -> String {
    let heads = format!(
        "{:<24}  {:<SHORT_ID$}  {:<16}  {:>6}  {:>7}  {:<18}  url",
        "begin", "id", "outcome", "status", "time", "fetcher"
    );
    styled(HEADING, heads)
}

/// Returns an attempt as one line.
fn line(attempt: &Attempt) -> String {
    let outcome = match (&attempt.error_type, attempt.success) {
        (_, true) => styled(CHOSEN, format_args!("{:<16}", "content")),
        (Some(error), _) => styled(ERROR, format_args!("{:<16}", plain(error.name()))),
        (None, false) => styled(ERROR, format_args!("{:<16}", "failed")),
    };
    let status = attempt.http_status.map_or_else(|| "-".to_owned(), |status| status.to_string());
    let time = took(Duration::from_millis(attempt.duration_ms));
    let id = attempt.id.simple().to_string();
    let id = &id[id.len() - SHORT_ID..];
    let named = if attempt.link == attempt.url {
        String::new()
    } else {
        format!("  ({})", plain(&attempt.link))
    };
    format!(
        "{}  {id}  {outcome}  {status:>6}  {time:>7}  {:<18}  {}{named}",
        rfc3339::format(attempt.attempted_at),
        plain(&attempt.fetcher),
        plain(&attempt.url),
    )
}

/// Returns a URL in the form that attempts have.
fn read_url(text: &str) -> Result<String, Failure> {
    let url = parse(text.trim())
        .map_err(|error| Failure::usage(format_args!("{}: {error}", plain(text))))?;
    Ok(url.into())
}
