//! Display of results: a line per URL, a progress bar, and a summary at the end.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::commands::fetch::input_feed::InputPosition;
use crate::terminal::exit::Failure;
use crate::terminal::output::{CHOSEN, DIM, ERROR, Output, note, plain, styled};
use crate::terminal::pace_text::span;
use fetchwise::decision::Source;
use fetchwise::heuristic::url::{MAX_URL_BYTES, shorten};
use fetchwise::pipeline::{CrawlDelayCut, Report};
use fetchwise::rfc3339;

/// The error type of a link whose task panicked.
pub(super) const INTERNAL: &str = "internal_error";
/// The error type of an invalid line of input.
const INVALID_LINE: &str = "invalid_line";

/// A result as JSON.
#[derive(Serialize)]
pub(crate) struct ReportJson<'a> {
    /// Null for an invalid line.
    url: Option<Cow<'a, str>>,
    id: Option<&'a str>,
    line: Option<u64>,
    position: Option<u64>,
    fetcher: Option<&'a str>,
    source: Option<&'static str>,
    confidence: Option<f64>,
    status: Option<u16>,
    success: bool,
    error_type: Option<&'a str>,
    error: Option<&'a str>,
    is_banned: bool,
    requests: u32,
    bytes: u64,
    duration_ms: u64,
    file: Option<&'a Path>,
    paused_until: Option<String>,
    /// The host that delivered instead of the site.
    served_by: Option<&'a str>,
    /// The date of an archive's copy.
    archived_at: Option<String>,
}

impl<'a> ReportJson<'a> {
    /// Returns the result of the link with the caller's `id`, with its place in the input if there is one.
    pub(crate) fn new(place: Option<InputPosition>, id: Option<&'a str>, report: &'a Report) -> Self {
        Self {
            url: Some(url(report)),
            id,
            line: place.and_then(InputPosition::line),
            position: place.and_then(InputPosition::position),
            fetcher: report.fetcher.as_deref(),
            source: report.source.map(Source::name),
            // Confidence belongs to a fetcher: without one there is none.
            confidence: report.fetcher.as_ref().map(|_| report.confidence),
            status: report.status,
            success: report.success,
            error_type: report.error_type,
            error: report.message.as_deref(),
            is_banned: report.is_banned,
            requests: report.requests,
            bytes: report.bytes,
            duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            file: report.file.as_deref(),
            paused_until: report.paused_until.map(rfc3339::format),
            served_by: report.provenance.as_ref().map(|provenance| &*provenance.by),
            archived_at: report.provenance.as_ref().and_then(|provenance| provenance.captured).map(rfc3339::format),
        }
    }
}

/// Returns the URL as given, shortened if it exceeds the limit for URLs.
fn url(report: &Report) -> Cow<'_, str> {
    match report.url.len() > MAX_URL_BYTES {
        true => Cow::Owned(shorten(&report.url)),
        false => Cow::Borrowed(&report.url),
    }
}

/// The totals of a run.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) paused: u64,
    /// Not fetched: no route, fetcher, store or valid URL.
    pub(super) unclassified: u64,
    pub(super) skipped: u64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.requests += u64::from(report.requests);
        match report {
            Report { success: true, .. } => {
                self.delivered += 1;
                self.bytes += report.bytes;
            }
            report if !report.is_classified() || report.error_type == Some(INTERNAL) => self.unclassified += 1,
            Report { error_type: Some(Report::PAUSED), .. } => self.paused += 1,
            _ => self.failed += 1,
        }
    }
}

/// The display of a run.
pub(super) struct ResultDisplay<'o> {
    out: &'o mut Output,
    bar: ProgressBar,
    begun: Instant,
    /// The remaining time, as text.
    pace: String,
    pub(super) sum: Totals,
}

impl<'o> ResultDisplay<'o> {
    /// Returns a display with a progress bar, which shows on a terminal only.
    pub(super) fn new(out: &'o mut Output, total: Option<u64>) -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr()),
            false => ProgressBar::hidden(),
        };
        let template = match total {
            Some(_) => "{bar:30} {pos}/{len}  {per_sec}  {msg}",
            None => "{spinner} {pos}  {per_sec}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { out, bar, begun: Instant::now(), pace: String::new(), sum: Totals::default() }
    }

    /// Prints a result.
    pub(super) fn report(&mut self, place: InputPosition, id: Option<&str>, report: &Report) -> Result<(), Failure> {
        self.sum.add(report);
        if self.out.json {
            self.out.object(&ReportJson::new(Some(place), id, report))?;
        } else {
            let line = text(place, &url(report), report);
            let out = &mut *self.out;
            // Flush while the bar is hidden, so that the two do not overwrite each other.
            self.bar.suspend(|| out.line(line).and_then(|()| out.flush()))?;
        }
        self.step()
    }

    /// Prints an invalid line of input.
    pub(super) fn bad_line(&mut self, line: u64, error: &str) -> Result<(), Failure> {
        self.sum.unclassified += 1;
        match self.out.json {
            true => {
                let (error_type, message) = (Some(INVALID_LINE), Some(error.to_owned()));
                let report = Report { error_type, message, ..Report::default() };
                let json = ReportJson::new(Some(InputPosition::Line(line)), None, &report);
                self.out.object(&ReportJson { url: None, ..json })?;
            }
            false => {
                let text = format!("{}  input line {line}: {}", styled(ERROR, "failed"), plain(error));
                let out = &mut *self.out;
                self.bar.suspend(|| out.line(text).and_then(|()| out.flush()))?;
            }
        }
        self.step()
    }

    /// Counts a link that an earlier run finished.
    pub(super) fn skipped(&mut self) {
        self.sum.skipped += 1;
        self.bar.inc(1);
    }

    /// Reports that a host's Crawl-delay exceeds the limit.
    pub(super) fn crawl_delay_cut(&self, cut: &CrawlDelayCut) {
        self.note(&format!(
            "{} requests a Crawl-delay of {}, limited to {} (`[pace] max_crawl_delay`)",
            plain(&cut.host),
            span(cut.asked),
            span(cut.believed)
        ));
    }

    /// Prints a message above the bar.
    pub(super) fn note(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    /// Prints the summary on stderr.
    pub(super) fn finish(self) -> Totals {
        self.bar.finish_and_clear();
        let sum = self.sum;
        let mut parts = vec![format!("{} delivered", sum.delivered)];
        let more = [
            (sum.failed, "failed"),
            (sum.paused, "paused"),
            (sum.unclassified, "not fetched"),
            (sum.skipped, "done by an earlier run"),
        ];
        parts.extend(more.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
        parts.push(requests(sum.requests));
        parts.push(format!("{} in {:.1} s", HumanBytes(sum.bytes), self.begun.elapsed().as_secs_f64()));
        note(parts.join(", "));
        sum
    }

    /// Sets the remaining time.
    pub(super) fn pace(&mut self, pace: String) {
        self.pace = pace;
        self.say();
    }

    /// Returns whether the bar is visible.
    pub(super) fn is_seen(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Returns the number of remaining results, if known.
    pub(super) fn left(&self) -> Option<u64> {
        self.bar.length().map(|all| all.saturating_sub(self.bar.position()))
    }

    fn say(&self) {
        let sum = &self.sum;
        self.bar.set_message(format!("{} delivered, {} requests{}", sum.delivered, sum.requests, self.pace));
    }

    fn step(&mut self) -> Result<(), Failure> {
        self.bar.inc(1);
        self.say();
        // A reader sees each result as soon as it is available.
        self.out.flush()
    }
}

/// Returns a result as text.
fn text(place: InputPosition, url: &str, report: &Report) -> String {
    let fetcher = report.fetcher.as_deref().unwrap_or("-");
    let source = report.source.map_or("-", Source::name);
    let line = place.line().map_or_else(String::new, |line| format!("line {line}, "));
    let how = format!("{line}{} {source}, {}", plain(fetcher), requests(report.requests.into()));
    if report.success {
        let file = report.file.as_ref().map(|file| format!(" -> {}", plain(&file.to_string_lossy())));
        let bytes = HumanBytes(report.bytes);
        let copy = report.provenance.as_ref().map(|provenance| match provenance.day() {
            Some(day) => format!(", {}'s copy of {day}", plain(&provenance.by)),
            None => format!(", from {}", plain(&provenance.by)),
        });
        let how = format!("{how}{}", copy.unwrap_or_default());
        let tail = styled(DIM, format_args!("({how}, {bytes}, {:.2} s)", report.duration.as_secs_f64()));
        return format!("{}  {}{}  {tail}", styled(CHOSEN, "ok"), plain(url), file.unwrap_or_default());
    }
    let error_type = report.error_type.unwrap_or("failed");
    let is_new = |message: &&str| *message != error_type && error_type != Report::PAUSED;
    let message = report.message.as_deref().filter(is_new).map(|message| format!(": {}", plain(message)));
    let message = message.unwrap_or_default();
    let until = report.paused_until.map(|until| format!("; paused until {}", rfc3339::format(until)));
    let tail = styled(DIM, format_args!("({how})"));
    format!("{}  {}{message}{}  {tail}", styled(ERROR, error_type), plain(url), until.unwrap_or_default())
}

fn requests(count: u64) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}
