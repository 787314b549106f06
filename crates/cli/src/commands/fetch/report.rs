//! Display of results: a line per URL, the progress, and a report at the end.
//!
//! On a terminal a live region shows the progress, and only failures of a list get a line. Without
//! a terminal each result gets a line, and stderr a status line per minute.

use std::collections::HashSet;
use std::io::{self, IsTerminal};
use std::time::Instant;

use crate::commands::fetch::end_report::EndReport;
use crate::commands::fetch::hints;
use crate::commands::fetch::progress::{Progress, StatusTimer};
use crate::commands::fetch::result_text::text;
use crate::terminal::exit::Failure;
use crate::terminal::live_region::{LiveRegion, is_utf8};
use crate::terminal::output::{DIM, ERROR, Output, note_styled, plain, styled};
use crate::terminal::pace_text::span;
use fetchwise::heuristic::url::without_user;
use fetchwise::pipeline::{CrawlDelayCut, Report};
use fetchwise::time::Timestamp;
use fetchwise_crawl::input::position::InputPosition;
use fetchwise_crawl::{CrawlStatus, Totals};
use fetchwise_present::{InputPlace, ReportJson, shown_url};
use fetchwise_serve::CrawlFigures;

/// The error type of an invalid line of input.
const INVALID_LINE: &str = "invalid_line";

/// Which results get a line of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    None,
    Failures,
    All,
}

/// How results are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct DisplayOptions {
    /// Which results get a line; none for the default of the terminal.
    pub(super) lines: Option<Lines>,
    /// Whether the command has a list of links.
    pub(super) is_list: bool,
    /// Whether stdout gets the first page, so that results go to stderr.
    pub(super) prints_page: bool,
}

/// The display of a run.
pub(super) struct ResultDisplay<'o> {
    out: &'o mut Output,
    region: LiveRegion,
    is_utf8: bool,
    lines: Lines,
    options: DisplayOptions,
    begun: Instant,
    progress: Progress,
    status: StatusTimer,
    /// Hints that were printed: each is printed once.
    hints: HashSet<String>,
    /// Whether the display said that users and passwords are not sent.
    is_user_reported: bool,
}

impl<'o> ResultDisplay<'o> {
    /// Returns a display, with a live region for a list on a terminal.
    pub(super) fn new(out: &'o mut Output, options: DisplayOptions) -> Self {
        let is_quiet = options.lines == Some(Lines::None);
        let region = LiveRegion::new(options.is_list && !is_quiet);
        // Lines of delivered pages would only scroll past above the live region.
        let default = match region.is_visible() && io::stdout().is_terminal() && !out.json {
            true => Lines::Failures,
            false => Lines::All,
        };
        let now = Instant::now();
        Self {
            out,
            region,
            is_utf8: is_utf8(),
            lines: options.lines.unwrap_or(default),
            options,
            begun: now,
            progress: Progress::default(),
            status: StatusTimer::new(now),
            hints: HashSet::new(),
            is_user_reported: false,
        }
    }

    /// Prints a result.
    pub(super) fn report(
        &mut self,
        place: InputPosition,
        id: Option<&str>,
        report: &Report,
        now: Timestamp,
    ) -> Result<(), Failure> {
        if !self.is_user_reported && without_user(&report.url) != report.url {
            self.is_user_reported = true;
            self.note(
                "fetchwise: warning: the user and password in a URL are not sent, and not shown",
            );
        }
        if self.out.json {
            self.out.object(&ReportJson::new(in_json(place), id, report))?;
        } else {
            let is_shown = match self.lines {
                Lines::None => false,
                Lines::Failures => !report.success,
                Lines::All => true,
            };
            if is_shown {
                self.line(text(place, &shown_url(report), report, now))?;
            }
            if let Some(hint) = hints::hint(report).filter(|_| self.lines != Lines::None)
                && self.hints.insert(hint.clone())
            {
                self.note(&format!("  {} {}", styled(DIM, "hint:"), plain(&hint)));
            }
        }
        self.flush()
    }

    /// Prints an invalid line of input.
    pub(super) fn bad_line(&mut self, place: InputPosition, error: &str) -> Result<(), Failure> {
        match self.out.json {
            true => {
                let (error_type, message) = (Some(INVALID_LINE), Some(error.to_owned()));
                let report = Report { error_type, message, ..Report::default() };
                let json = ReportJson::new(in_json(place), None, &report);
                self.out.object(&json.without_url())?;
            }
            false if self.lines == Lines::None => {}
            false => {
                let place = match place.queue() {
                    Some((seq, _)) => format!("queue {seq}"),
                    None => format!(
                        "input line {}",
                        place.line().or(place.position()).unwrap_or_default()
                    ),
                };
                self.line(format!("{}  {place}: {}", styled(ERROR, "failed"), plain(error)))?;
            }
        }
        self.flush()
    }

    /// Writes a delivered page to stdout. A terminal gets text without control characters.
    pub(super) fn page(&mut self, body: &[u8]) -> Result<(), Failure> {
        if !io::stdout().is_terminal() {
            self.out.raw(body)?;
            return self.out.flush();
        }
        match std::str::from_utf8(body) {
            Ok(text) => {
                for line in text.lines() {
                    self.out.line(plain(&line.replace('\t', "    ")))?;
                }
                self.out.flush()
            }
            Err(_) => {
                self.note("the page is not UTF-8 text; write it to a file: `> FILE` or --out DIR");
                Ok(())
            }
        }
    }

    /// Prints a line of text: on stderr if stdout gets a page.
    fn line(&mut self, text: String) -> Result<(), Failure> {
        if self.options.prints_page {
            self.note(&text);
            return Ok(());
        }
        let out = &mut *self.out;
        // Flush while the region is hidden, so that the two do not overwrite each other.
        self.region.suspend(|| out.line(text).and_then(|()| out.flush()))
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

    /// Reports that a host rejects the crawler's signature.
    pub(super) fn signature_rejected(&self, host: &str) {
        self.note(&format!(
            "{} rejects this crawler's signature; `fetchwise identity check` compares your keys with what is published",
            plain(host)
        ));
    }

    /// Prints a message above the region.
    pub(super) fn note(&self, text: &str) {
        self.region.suspend(|| note_styled(text));
    }

    /// Prints the report of the end on stderr.
    pub(super) fn finish(self, end: &EndReport, totals: &Totals) {
        self.region.clear();
        if self.lines != Lines::None {
            for line in end.lines(totals, self.begun.elapsed()) {
                note_styled(line);
            }
        }
    }

    /// Returns whether the remaining time is shown.
    pub(super) fn shows_progress(&self) -> bool {
        self.region.is_visible() || self.options.is_list && self.status.is_due(Instant::now())
    }

    /// Updates the progress: the live region, or a status line per minute.
    pub(super) fn update(&mut self, status: &CrawlStatus<'_>) {
        let now = Instant::now();
        self.progress.update(status, now);
        if self.region.is_visible() {
            self.region.draw(&self.progress.lines(
                status.totals,
                self.region.width(),
                self.is_utf8,
            ));
        } else if self.options.is_list && self.lines != Lines::None && self.status.take(now) {
            note_styled(self.progress.status(status.totals));
        }
    }

    /// Returns the progress for the dashboard.
    pub(super) fn figures(&self) -> CrawlFigures {
        self.progress.crawl_figures()
    }

    /// A reader sees each result as soon as it is available.
    fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush()
    }
}

/// Returns the place of a link as its JSON has it.
fn in_json(place: InputPosition) -> InputPlace {
    InputPlace { line: place.line(), position: place.position(), queue: place.queue() }
}
