//! `classify`: verdicts about responses from elsewhere, single ones or a batch.
//!
//! Invariants: the results of a batch come in the order of its lines, for any number of threads.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::parse::input::{is_stdin, open, open_lines, unreadable};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, DIM, ERROR, Output, Table, plain, shown, styled};
use fetchwise::detect;
use fetchwise::detect::{Detector, Scratch};
use fetchwise::response::{Header, Page};
use fetchwise_crawl::input::lines::Line;
use fetchwise_present::{VerdictJson, headers};

/// Classify a response: blocked, application shell, empty, or content
#[derive(Debug, Args)]
#[command(
    after_help = "A line of a batch is {\"url\", \"status\", \"headers\", \"body_path\"}; a relative body_path is \
    relative to the batch file.\n\n\
    Examples:\n  \
    fetchwise classify page.html --status 403 --header 'Server: cloudflare' --explain\n  \
    curl -s https://example.org/ | fetchwise classify -\n  \
    fetchwise classify --batch responses.jsonl --json\n  \
    fetchwise classify --batch labelled.jsonl --evaluate"
)]
pub(crate) struct ClassifyArgs {
    /// Read the body from this file; - reads stdin
    #[arg(value_name = "FILE", required_unless_present_any = ["batch", "show_rules"], conflicts_with = "batch")]
    pub(crate) file: Option<PathBuf>,
    /// Use this HTTP status
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..1000))]
    pub(crate) status: u16,
    /// Add a response header; repeatable
    #[arg(long, value_name = "'K: V'", value_parser = parse_header, conflicts_with = "batch")]
    pub(crate) header: Vec<Header>,
    /// Use this as the requested URL
    #[arg(long, value_name = "URL", conflicts_with = "batch")]
    pub(crate) url: Option<String>,
    /// Classify many responses; - reads the lines from stdin
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) batch: Option<PathBuf>,
    /// Evaluate the detector: each line of the batch has a `label`
    #[arg(long, requires = "batch")]
    pub(crate) evaluate: bool,
    /// Show all rule matches and their positions
    #[arg(long)]
    pub(crate) explain: bool,
    /// Set the confidence that a block needs, 0.05 to 1
    #[arg(long, value_name = "N", value_parser = parse_confidence)]
    pub(crate) block_threshold: Option<f32>,
    /// Classify by seven keywords in the text, for comparison
    #[arg(long, conflicts_with = "rules")]
    pub(crate) keywords: bool,
    /// Print the built-in rules and stop
    #[arg(long)]
    pub(crate) show_rules: bool,
}

/// The maximum length of a batch line in bytes.
const MAX_LINE_BYTES: usize = 4 << 20;
/// The number of lines that are read before their results are printed.
const BLOCK_LINES: usize = 1024;
/// The number of bytes of a body that the detector reads.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The result for an invalid line of a batch.
#[derive(Serialize)]
struct LineErrorJson {
    url: Option<String>,
    line: u64,
    success: bool,
    error_type: &'static str,
    error: String,
}

/// A line of a batch. Other fields are ignored, so that a labelled corpus can be read.
#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    headers: Option<Value>,
    body_path: PathBuf,
}

/// Runs the command.
pub(crate) fn run(
    args: &ClassifyArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if args.show_rules {
        out.raw(Detector::shipped_rules().as_bytes())?;
        return Ok(Exit::Done);
    }
    let options = settings.detector_options();
    let options = args.block_threshold.map_or(options, |sure| options.with_block_threshold(sure));
    let detector = if args.keywords { Detector::keywords() } else { settings.detector()? };
    let detector = detector.with_options(options.with_max_bytes(MAX_BODY_BYTES).counting_all());
    if let Some(path) = args.batch.as_ref().filter(|_| args.evaluate) {
        let report = detect::evaluate(&detector, path).map_err(Failure::failed)?;
        return if out.json { out.object(&report) } else { out.line(report) }.map(|()| Exit::Done);
    }
    match (&args.batch, &args.file) {
        (Some(path), _) => batch(&detector, path, args.explain, out),
        (None, Some(path)) => single(&detector, path, args, out),
        (None, None) => Err(Failure::usage("missing input: expected FILE or --batch FILE.jsonl")),
    }
}

fn single(
    detector: &Detector,
    path: &Path,
    args: &ClassifyArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let body = if is_stdin(path) { read_body(io::stdin().lock()) } else { read_body(open(path)?) };
    let body = body.map_err(|error| unreadable(path, &error))?;
    let url = args.url.as_deref();
    let page =
        Page { url, final_url: None, status: args.status, headers: &args.header, body: &body };
    let verdict = VerdictJson::read(detector, &page, args.explain, &mut Scratch::default());
    if out.json {
        out.object(&verdict)?;
    } else {
        text(&verdict, out)?;
    }
    Ok(Exit::Done)
}

/// Classifies a batch on all processors, one block of lines after the other.
fn batch(
    detector: &Detector,
    path: &Path,
    explain: bool,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut lines = open_lines(path, MAX_LINE_BYTES)?;
    let folder =
        if is_stdin(path) { Path::new("") } else { path.parent().unwrap_or(Path::new("")) };
    let mut exit = Exit::Done;
    let mut table = Table::new(&["verdict", "url", "reason"]);
    loop {
        let mut block: Vec<Line> = Vec::with_capacity(BLOCK_LINES);
        while block.len() < BLOCK_LINES
            && let Some(line) = lines.next_line().map_err(|error| unreadable(path, &error))?
        {
            if !line.text.as_ref().is_ok_and(|text| text.trim().is_empty()) {
                block.push(line);
            }
        }
        if block.is_empty() {
            break;
        }
        for result in read_block(detector, folder, explain, &block) {
            match result {
                Ok(verdict) if out.json => out.object(&verdict)?,
                Ok(verdict) => {
                    let name = verdict
                        .url
                        .clone()
                        .or(verdict.body_path.as_ref().map(|path| path.display().to_string()));
                    table.row([
                        label(&verdict).to_owned(),
                        name.unwrap_or_default(),
                        verdict.reason.clone(),
                    ]);
                }
                Err(error) => {
                    exit = Exit::Failed;
                    match out.json {
                        true => out.object(&error)?,
                        false => {
                            table.row([
                                "error".to_owned(),
                                format!("line {}", error.line),
                                error.error,
                            ]);
                        }
                    }
                }
            }
        }
    }
    if !table.is_empty() {
        out.line(table)?;
    }
    Ok(exit)
}

/// Returns the results of a block of lines, in their order.
fn read_block(
    detector: &Detector,
    folder: &Path,
    explain: bool,
    block: &[Line],
) -> Vec<Result<VerdictJson, LineErrorJson>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(block.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut scratch, mut done) = (Scratch::default(), Vec::new());
        loop {
            // Relaxed: the counter only hands out each number once.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(line) = block.get(index) else { return done };
            done.push((index, read_line(detector, folder, explain, line, &mut scratch)));
        }
    };
    let mut all: Vec<_> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            match other.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

fn read_line(
    detector: &Detector,
    folder: &Path,
    explain: bool,
    line: &Line,
    scratch: &mut Scratch,
) -> Result<VerdictJson, LineErrorJson> {
    let fail = |url: Option<String>, error_type, error: String| LineErrorJson {
        url,
        line: line.number,
        success: false,
        error_type,
        error,
    };
    let text = line.text.as_ref().map_err(|error| fail(None, "invalid_line", error.to_string()))?;
    let item: Item = serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
        fail(None, "invalid_line", format!("{reason} (column {})", error.column()))
    })?;
    let headers = match headers(item.headers.unwrap_or_default()) {
        Some(headers) => headers,
        None => {
            let error =
                "`headers` must be an object of names and values, or a list of [name, value] pairs"
                    .to_owned();
            return Err(fail(item.url, "invalid_line", error));
        }
    };
    let path = folder.join(&item.body_path);
    let body = match File::open(&path).and_then(read_body) {
        Ok(body) => body,
        Err(error) => {
            return Err(fail(
                item.url,
                "unreadable_body",
                format!("cannot read {}: {error}", shown(&path)),
            ));
        }
    };
    let status = item.status.unwrap_or(200);
    let page =
        Page { url: item.url.as_deref(), final_url: None, status, headers: &headers, body: &body };
    let mut verdict = VerdictJson::read(detector, &page, explain, scratch);
    verdict.body_path = Some(item.body_path);
    Ok(verdict)
}

/// Returns the body, up to the limit.
fn read_body(from: impl Read) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    from.take(MAX_BODY_BYTES as u64).read_to_end(&mut body)?;
    Ok(body)
}

fn label(verdict: &VerdictJson) -> &'static str {
    match verdict {
        VerdictJson { is_queued: true, .. } => "waiting room",
        VerdictJson { is_blocked: true, .. } => "blocked",
        VerdictJson { has_spa: true, .. } => "shell",
        VerdictJson { is_empty: true, .. } => "empty",
        VerdictJson { error_type: None, .. } => "content",
        _ => "failed",
    }
}

fn text(verdict: &VerdictJson, out: &mut Output) -> Result<(), Failure> {
    let style = if verdict.error_type.is_none() { CHOSEN } else { ERROR };
    out.line(format_args!("{}: {}", styled(style, label(verdict)), plain(&verdict.reason)))?;
    if let Some(error_type) = &verdict.error_type {
        out.line(format_args!("an attempt by a plain request would count as {error_type}"))?;
    }
    let mut table = Table::new(&["heuristic", "value"]);
    for heuristic in &verdict.heuristics {
        table.row([heuristic.r#type.to_string(), heuristic.value.to_string()]);
    }
    out.line(format_args!("\n{table}"))?;
    let Some(matches) = &verdict.matches else { return Ok(()) };
    let mut table = Table::new(&["match", "vendor", "grade", "place", ">offset", "text"]);
    for m in matches.iter().filter(|m| m.counted) {
        table.row([
            m.rule.clone(),
            m.vendor.clone().unwrap_or_default(),
            m.grade.to_owned(),
            m.place.to_owned(),
            m.offset.map(|offset| offset.to_string()).unwrap_or_default(),
            m.text.clone(),
        ]);
    }
    match table.is_empty() {
        true => out.line("\nno rule matched")?,
        false => out.line(format_args!("\n{table}"))?,
    }
    if let Some(cues) = &verdict.cues {
        let mut table = Table::new(&["cue", ">weight", "text"]);
        for cue in &cues.cues {
            table.row([cue.id.clone(), cue.weight.to_string(), cue.text.clone()]);
        }
        out.line(format_args!("\n{table}"))?;
        let without_core = if cues.core { "" } else { ", but none of them is a required one" };
        let (sum, threshold, own) = (cues.sum, cues.threshold, cues.own_chars);
        out.line(format_args!(
            "the cues add up to {sum}, a block needs {threshold}{without_core}; {own} characters are not about a block"
        ))?;
    }
    // Parts of rules match on most pages; a program that needs all of them uses JSON.
    match matches.iter().filter(|m| !m.counted).count() {
        0 => Ok(()),
        parts => out.line(styled(
            DIM,
            format_args!("{parts} more parts of rules matched without effect (--json lists them)"),
        )),
    }
}

/// Parses a confidence.
fn parse_confidence(text: &str) -> Result<f32, String> {
    let sure = text.parse().ok().filter(|sure| (0.05..=1.0).contains(sure));
    sure.ok_or_else(|| {
        format!("{text:?} is not a valid confidence: expected a number from 0.05 to 1")
    })
}

/// Parses `Name: value`.
fn parse_header(text: &str) -> Result<Header, String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok(Header::new(name.trim(), value.trim()))
        }
        _ => Err(format!("{text:?} is not a valid header: expected 'Name: value'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_needs_a_name() {
        assert_eq!(parse_header("Server:  nginx "), Ok(Header::new("Server", "nginx")));
        assert!(parse_header(": x").is_err() && parse_header("x").is_err());
    }
}
