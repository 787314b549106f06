//! The report at the end of a run.
//!
//! Must not know: how it is printed.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};

use crate::commands::fetch::result_text::requests;
use crate::commands::fetch::totals::Totals;
use crate::terminal::output::plain;
use crate::terminal::pace_text::span;
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// The number of hosts that a line names.
const NAMED_HOSTS: usize = 3;

/// What the report needs besides the totals.
#[derive(Debug)]
pub(super) struct EndReport {
    pub(super) now: Timestamp,
    /// Whether the command has a list of links.
    pub(super) is_list: bool,
}

impl EndReport {
    /// Returns the lines of the report.
    pub(super) fn lines(&self, totals: &Totals, took: Duration) -> Vec<String> {
        let mut lines = vec![summary(totals, took)];
        lines.extend(self.paused(totals));
        lines
    }

    /// Returns what is left for a pause, its end, and the command that goes on.
    fn paused(&self, totals: &Totals) -> Vec<String> {
        let left = totals.paused;
        let Some(until) = totals.paused_hosts.until.filter(|_| left > 0) else { return Vec::new() };
        let hosts: Vec<String> = totals.paused_hosts.names().take(NAMED_HOSTS).map(plain).collect();
        let more = totals.paused_hosts.names().len().saturating_sub(NAMED_HOSTS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let urls = if left == 1 { "URL is" } else { "URLs are" };
        let (for_, at) = (span(until.since(self.now)), rfc3339::format(until));
        let again = match self.is_list {
            true => "run the same command with --only paused after that, or with --wait",
            false => "run the same command after that, or with --wait forever",
        };
        vec![
            format!("{} {urls} paused for {for_}, until {at}: {}{more}", HumanCount(left), hosts.join(", ")),
            format!("  hint: {again}"),
        ]
    }
}

/// Returns the first line: outcomes, requests, bytes and time.
fn summary(totals: &Totals, took: Duration) -> String {
    let mut parts = vec![format!("{} delivered", totals.delivered)];
    let more = [
        (totals.missing, "missing"),
        (totals.failed, "failed"),
        (totals.paused, "paused"),
        (totals.unclassified, "not fetched"),
        (totals.skipped, "done by an earlier run"),
        (totals.duplicates, "duplicates"),
    ];
    parts.extend(more.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    parts.push(requests(totals.requests));
    parts.push(format!("{} in {:.1} s", HumanBytes(totals.bytes), took.as_secs_f64()));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::pipeline::Report;

    #[test]
    fn paused_links_are_named_with_their_time_and_the_next_command() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let mut totals = Totals { delivered: 3, ..Totals::default() };
        let paused_until = Some(now.saturating_add(Duration::from_secs(600)));
        for n in 0..5 {
            let url = format!("http://h{n}.org/");
            totals.add(&Report { url, error_type: Some(Report::PAUSED), paused_until, ..Report::default() });
        }
        let lines = EndReport { now, is_list: true }.lines(&totals, Duration::from_secs(2));
        assert_eq!(lines[0], "3 delivered, 5 paused, 0 requests, 0 B in 2.0 s");
        assert!(lines[1].starts_with("5 URLs are paused for 10 min, until 2026-"), "{}", lines[1]);
        assert!(lines[1].ends_with("h0.org, h1.org, h2.org and 2 more"), "{}", lines[1]);
        assert!(lines[2].contains("--only paused"), "{}", lines[2]);
    }
}
