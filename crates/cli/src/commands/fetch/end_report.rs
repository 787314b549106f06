//! The report at the end of a run: outcomes, fetchers and cost, hosts that need attention, and the
//! next command.
//!
//! Must not know: how it is printed.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};

use crate::commands::fetch::result_text::requests;
use crate::terminal::output::{Table, percent, plain};
use fetchwise::explain_text::pause;
use fetchwise::time::Timestamp;
use fetchwise_crawl::{Alternative, CostReport};
use fetchwise_crawl::{HostTotals, Totals};

/// The number of hosts that the report names.
const NAMED_HOSTS: usize = 3;
/// The number of failed links from which on a host without any page needs attention.
const MIN_FAILED: u64 = 3;
/// The share of links on known hosts from which on an estimate is printed.
const MIN_KNOWN_SHARE: f64 = 0.5;

/// What the report needs besides the totals.
#[derive(Debug)]
pub(super) struct EndReport {
    pub(super) now: Timestamp,
    /// Whether the command has a list of links. The result of a named URL needs no further report.
    pub(super) is_list: bool,
    /// The work queue that the links came from.
    pub(super) queue: Option<String>,
    /// Whether the run was not interrupted.
    pub(super) is_complete: bool,
    pub(super) cost: CostReport,
}

impl EndReport {
    /// Returns the lines of the report.
    pub(super) fn lines(&self, totals: &Totals, took: Duration) -> Vec<String> {
        let mut lines = vec![summary(totals, took)];
        if self.is_list {
            lines.extend(outcomes(totals));
            lines.extend(self.fetchers(totals));
            lines.extend(failing_hosts(totals));
            lines.extend(unread_robots(totals));
        }
        lines.extend(self.paused(totals));
        if self.is_complete {
            lines.extend(self.next_command(totals));
        }
        lines
    }

    /// Returns the requests, pages, cost and rates of each fetcher, and what a single fetcher would
    /// have cost. The rates are those of `stats`: a missing page counts neither for nor against a
    /// fetcher.
    fn fetchers(&self, totals: &Totals) -> Vec<String> {
        if self.cost.fetchers.is_empty() || totals.delivered == 0 {
            return Vec::new();
        }
        let heads =
            ["  fetcher", ">pages", ">requests", ">cost", ">success", ">blocked", ">missing"];
        let mut table = Table::new(&heads);
        for of in &self.cost.fetchers {
            let cost = HumanCount(of.cost.round() as u64).to_string();
            let [pages, requests, missing] =
                [of.counts.delivered, of.counts.attempts, of.counts.missing]
                    .map(|count| HumanCount(count).to_string());
            let [success, blocked] = [of.counts.success_rate(), of.counts.ban_rate()].map(percent);
            table.row([format!("  {}", of.name), pages, requests, cost, success, blocked, missing]);
        }
        let mut lines: Vec<String> = table.to_string().lines().map(str::to_owned).collect();
        let mut costs =
            vec![format!("cost per page {:.1}", self.cost.total() / totals.delivered as f64)];
        let known = |of: &&Alternative| of.known_share >= MIN_KNOWN_SHARE && of.pages >= 0.5;
        costs.extend(self.cost.alternatives.iter().filter(known).map(|of| {
            let pages = HumanCount(of.pages.round() as u64);
            format!("always {} {:.1} for about {pages} pages", plain(&of.name), of.cost / of.pages)
        }));
        lines.push(format!("  {}", costs.join("; ")));
        lines
    }

    /// Returns what is left for a pause, and its end.
    fn paused(&self, totals: &Totals) -> Option<String> {
        let until = totals.paused_hosts.until.filter(|_| totals.paused > 0)?;
        let hosts: Vec<String> = totals.paused_hosts.names().take(NAMED_HOSTS).map(plain).collect();
        let more = totals.paused_hosts.names().len().saturating_sub(NAMED_HOSTS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let urls = if totals.paused == 1 { "URL is" } else { "URLs are" };
        let pause = pause(until, self.now);
        Some(format!(
            "{} {urls} paused {pause}: {}{more}",
            HumanCount(totals.paused),
            hosts.join(", ")
        ))
    }

    /// Returns the command that fetches what is left.
    fn next_command(&self, totals: &Totals) -> Option<String> {
        if let Some(queue) = &self.queue {
            // What a link of a queue ended with is in the results only.
            let when = if totals.paused > 0 { " after that" } else { "" };
            let enqueue = format!("`fetchwise fleet enqueue --queue {} FILE`", plain(queue));
            let is_left = totals.paused + totals.failed > 0;
            return is_left.then(|| {
                format!("  hint: put these links into the queue again{when}, with {enqueue}")
            });
        }
        Some(match (totals.paused > 0, totals.failed > 0) {
            (false, false) => return None,
            (true, _) if !self.is_list => "  hint: run the same command after that, or with --wait forever".to_owned(),
            (false, true) if !self.is_list => return None,
            (true, false) => {
                "  hint: run the same command with --only paused after that, or with --wait forever".to_owned()
            }
            (true, true) => {
                "  hint: run the same command with --only paused after that, and with --only failed for the rest"
                    .to_owned()
            }
            (false, true) => "  hint: run the same command with --only failed to fetch these again".to_owned(),
        })
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
    parts.extend(
        more.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    parts.push(requests(totals.requests));
    parts.push(format!("{} in {:.1} s", HumanBytes(totals.bytes), took.as_secs_f64()));
    parts.join(", ")
}

/// Returns why links were not delivered, the most frequent reason first.
fn outcomes(totals: &Totals) -> Option<String> {
    let mut errors: Vec<(&String, &u64)> = totals.errors.iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let errors: Vec<String> =
        errors.into_iter().map(|(name, count)| format!("{} {name}", HumanCount(*count))).collect();
    (!errors.is_empty()).then(|| format!("  not delivered: {}", errors.join(", ")))
}

/// Returns the hosts of which no page was delivered.
fn failing_hosts(totals: &Totals) -> Option<String> {
    let count =
        |of: &HostTotals| if of.delivered == 0 && of.failed >= MIN_FAILED { of.failed } else { 0 };
    let text = |of: &HostTotals| {
        format!("{} {}", HumanCount(of.failed), of.error.as_deref().unwrap_or("failed"))
    };
    named(totals, count, text).map(|hosts| format!("  no page from {hosts}"))
}

/// Returns the hosts whose links were left because their robots.txt could not be read.
fn unread_robots(totals: &Totals) -> Option<String> {
    let text = |of: &HostTotals| format!("{} not requested", HumanCount(of.robots_unread));
    named(totals, |of| of.robots_unread, text)
        .map(|hosts| format!("  cannot read robots.txt of {hosts}"))
}

/// Returns the hosts with the highest counts, each with what `text` says of it; `None` if no host
/// has any.
fn named(
    totals: &Totals,
    count: impl Fn(&HostTotals) -> u64,
    text: impl Fn(&HostTotals) -> String,
) -> Option<String> {
    let mut hosts: Vec<(&String, &HostTotals)> =
        totals.hosts.iter().filter(|(_, of)| count(of) > 0).collect();
    hosts.sort_by_key(|(name, of)| (std::cmp::Reverse(count(of)), *name));
    let more = hosts.len().saturating_sub(NAMED_HOSTS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named: Vec<String> = hosts
        .iter()
        .take(NAMED_HOSTS)
        .map(|(name, of)| format!("{} ({})", plain(name), text(of)))
        .collect();
    (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::analytics::Row;
    use fetchwise::pipeline::Report;
    use fetchwise_crawl::FetcherCost;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn add(totals: &mut Totals, host: &str, count: u64, error_type: Option<&'static str>) {
        let paused_until = (error_type == Some(Report::PAUSED))
            .then(|| NOW.saturating_add(Duration::from_secs(600)));
        for n in 0..count {
            let (url, success) = (format!("http://{host}/{n}"), error_type.is_none());
            totals.add(&Report {
                url,
                error_type,
                success,
                paused_until,
                requests: 1,
                ..Report::default()
            });
        }
    }

    /// Returns the counts of a fetcher to which everything but missing pages is attributed.
    fn counts(attempts: u64, delivered: u64, missing: u64) -> Row {
        let mut row = Row::default();
        (row.attempts, row.delivered, row.missing, row.judged) =
            (attempts, delivered, missing, attempts - missing);
        row
    }

    fn lines(totals: &Totals, is_list: bool, cost: CostReport) -> Vec<String> {
        let report = EndReport { now: NOW, is_list, queue: None, is_complete: true, cost };
        let lines = report.lines(totals, Duration::from_secs(2));
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn the_report_names_outcomes_fetchers_costs_hosts_and_the_next_command() {
        let mut totals = Totals::default();
        add(&mut totals, "good.org", 90, None);
        add(&mut totals, "good.org", 4, Some("not_found"));
        add(&mut totals, "barred.org", 5, Some("blocked_403"));
        (0..5).for_each(|n| add(&mut totals, &format!("h{n}.org"), 1, Some(Report::PAUSED)));
        let fetchers = vec![
            FetcherCost {
                name: "direct_access".to_owned(),
                counts: counts(100, 80, 4),
                cost: 100.0,
            },
            FetcherCost { name: "playwright".to_owned(), counts: counts(12, 10, 0), cost: 240.0 },
        ];
        let alternative = |name: &str, pages, cost, known_share| Alternative {
            name: name.to_owned(),
            pages,
            cost,
            known_share,
        };
        let alternatives = vec![
            alternative("direct_access", 80.0, 104.0, 1.0),
            alternative("playwright", 90.0, 2080.0, 1.0),
        ];
        let want = "90 delivered, 4 missing, 5 failed, 5 paused, 104 requests, 0 B in 2.0 s
  not delivered: 5 blocked_403, 5 paused, 4 not_found
  fetcher        pages  requests  cost  success  blocked  missing
  direct_access     80       100   100   83.3 %    0.0 %        4
  playwright        10        12   240   83.3 %    0.0 %        0
  cost per page 3.8; always direct_access 1.3 for about 80 pages; always playwright 23.1 for about 90 pages
  no page from barred.org (5 blocked_403)
5 URLs are paused for 10 min, until 2026-09-21T14:23:20Z: h0.org, h1.org, h2.org and 2 more
  hint: run the same command with --only paused after that, and with --only failed for the rest";
        assert_eq!(lines(&totals, true, CostReport { fetchers, alternatives }).join("\n"), want);
    }

    /// A host that cuts off the request for robots.txt looked as if it had cut off each of its
    /// pages.
    #[test]
    fn the_report_names_hosts_whose_robots_txt_could_not_be_read() {
        let mut totals = Totals::default();
        add(&mut totals, "good.org", 9, None);
        for (host, count, error_type) in
            [("mute.org", 4, "network_error"), ("busy.org", 1, Report::PAUSED)]
        {
            for n in 0..count {
                let url = format!("http://{host}/{n}");
                let error_type = Some(error_type);
                totals.add(&Report { url, error_type, robots_unread: true, ..Report::default() });
            }
        }
        let lines = lines(&totals, true, CostReport::default());
        let named =
            "  cannot read robots.txt of mute.org (4 not requested), busy.org (1 not requested)";
        assert!(
            lines.contains(&"  no page from mute.org (4 network_error)".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&named.to_owned()), "{lines:?}");
    }

    #[test]
    fn what_a_queue_left_goes_back_into_the_queue() {
        let hint = |ends: &[Option<&'static str>]| {
            let mut totals = Totals::default();
            ends.iter().for_each(|end| add(&mut totals, "good.org", 1, *end));
            let queue = Some("crawl".to_owned());
            EndReport {
                now: NOW,
                is_list: true,
                queue,
                is_complete: true,
                cost: CostReport::default(),
            }
            .lines(&totals, Duration::from_secs(2))
            .into_iter()
            .find(|line| line.contains("hint:"))
        };
        let command = "with `fetchwise fleet enqueue --queue crawl FILE`";
        let again = format!("  hint: put these links into the queue again, {command}");
        assert_eq!(hint(&[None, Some("timeout")]), Some(again));
        let after = format!("  hint: put these links into the queue again after that, {command}");
        assert_eq!(hint(&[Some(Report::PAUSED), Some("timeout")]), Some(after));
        assert_eq!(hint(&[None, Some("not_found")]), None);
    }

    #[test]
    fn a_named_url_gets_one_line_and_a_doubtful_estimate_none() {
        let mut totals = Totals::default();
        add(&mut totals, "good.org", 1, None);
        assert_eq!(
            lines(&totals, false, CostReport::default()),
            ["1 delivered, 1 request, 0 B in 2.0 s"]
        );
        let fetchers =
            vec![FetcherCost { name: "f".to_owned(), counts: counts(1, 1, 0), cost: 1.0 }];
        let alternatives =
            vec![Alternative { name: "g".to_owned(), pages: 1.0, cost: 1.0, known_share: 0.2 }];
        let lines = lines(&totals, true, CostReport { fetchers, alternatives });
        assert_eq!(lines.last().map(String::as_str), Some("  cost per page 1.0"));
    }
}
