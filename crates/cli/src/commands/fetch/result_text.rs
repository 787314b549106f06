//! The text form of a result.

use indicatif::HumanBytes;

use crate::terminal::output::{CHOSEN, DIM, ERROR, plain, styled};
use crate::terminal::pace_text::took;
use fetchwise::decision::Source;
use fetchwise::explain_text::pause;
use fetchwise::pipeline::Report;
use fetchwise::time::Timestamp;
use fetchwise_crawl::input::position::InputPosition;

/// Returns a result as text at `now`.
pub(super) fn text(place: InputPosition, url: &str, report: &Report, now: Timestamp) -> String {
    let source = report.source.map_or("-", Source::name);
    let line = match place {
        InputPosition::Line(line) => format!("line {line}, "),
        InputPosition::Queue { seq, is_redelivered: true, .. } => {
            format!("queue {seq}, redelivered, ")
        }
        InputPosition::Queue { seq, .. } => format!("queue {seq}, "),
        InputPosition::Position(_) | InputPosition::Added(_) => String::new(),
    };
    // Without a fetcher no request was made.
    let how = match &report.fetcher {
        Some(fetcher) => {
            format!("{line}{} {source}, {}", plain(fetcher), requests(report.requests.into()))
        }
        None => format!("{line}{}", requests(report.requests.into())),
    };
    if report.success {
        let file =
            report.file.as_ref().map(|file| format!(" -> {}", plain(&file.to_string_lossy())));
        let bytes = HumanBytes(report.bytes);
        let copy = report.provenance.as_ref().map(|provenance| match provenance.day() {
            Some(day) => format!(", {}'s copy of {day}", plain(&provenance.by)),
            None => format!(", from {}", plain(&provenance.by)),
        });
        let unchanged = if report.not_modified { ", not modified" } else { "" };
        let how = format!("{how}{}{unchanged}", copy.unwrap_or_default());
        let tail = styled(DIM, format_args!("({how}, {bytes}, {})", took(report.duration)));
        return format!(
            "{}  {}{}  {tail}",
            styled(CHOSEN, "ok"),
            plain(url),
            file.unwrap_or_default()
        );
    }
    let error_type = report.error_type.unwrap_or("failed");
    let is_new = |message: &&str| *message != error_type;
    let message = report.message.as_deref().filter(is_new).map(|message| {
        // `not_found (status 404)` begins with the type, which the line has already.
        match message.strip_prefix(error_type).and_then(|rest| rest.strip_prefix(' ')) {
            Some(rest) => format!(" {}", plain(rest)),
            None => format!(": {}", plain(message)),
        }
    });
    let message = message.unwrap_or_default();
    let until = report.paused_until.map(|until| format!("; paused {}", pause(until, now)));
    let tail = styled(DIM, format_args!("({how})"));
    format!(
        "{}  {}{message}{}  {tail}",
        styled(ERROR, error_type),
        plain(url),
        until.unwrap_or_default()
    )
}

pub(super) fn requests(count: u64) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}
