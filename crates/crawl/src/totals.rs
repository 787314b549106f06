//! The totals of a run.

use std::collections::{BTreeMap, BTreeSet};

use crate::link_end::LinkEnd;
use fetchwise::heuristic::url::{domain_of, parse};
use fetchwise::pipeline::Report;
use fetchwise::time::Timestamp;

/// The error type of a link whose task panicked.
pub(crate) const INTERNAL: &str = "internal_error";
/// The maximum number of hosts that are remembered by name.
const MAX_HOSTS: usize = 10_000;

/// The totals of a run.
#[derive(Debug, Default)]
pub struct Totals {
    /// Links whose page was delivered.
    pub delivered: u64,
    /// The site says that the page does not exist: 404 or 410.
    pub missing: u64,
    /// Links that failed otherwise.
    pub failed: u64,
    /// Links that were left for a pause.
    pub paused: u64,
    /// Not fetched: no route, fetcher, store or valid URL.
    pub unclassified: u64,
    /// Links that an earlier run finished.
    pub skipped: u64,
    /// Links that an earlier line of the input has already named.
    pub duplicates: u64,
    /// Requests, with those of links that had to be tried again.
    pub requests: u64,
    /// Bytes of delivered bodies.
    pub bytes: u64,
    /// The number of links by error type.
    pub errors: BTreeMap<String, u64>,
    /// The hosts of links that were left for a pause.
    pub paused_hosts: PausedHosts,
    /// The hosts of the links, up to a limit.
    pub hosts: BTreeMap<String, HostTotals>,
}

/// The totals of a host.
#[derive(Debug, Default)]
pub struct HostTotals {
    /// Its links.
    pub links: u64,
    /// Links whose page was delivered.
    pub delivered: u64,
    /// Links that failed: neither delivered, missing nor paused.
    pub failed: u64,
    /// The error type of the last one that failed.
    pub error: Option<String>,
    /// Links that were not requested because robots.txt could not be read.
    pub robots_unread: u64,
}

/// The hosts of links that a run left for a pause.
#[derive(Debug, Default)]
pub struct PausedHosts {
    names: BTreeSet<String>,
    /// The end of the last pause.
    pub until: Option<Timestamp>,
}

impl Totals {
    /// Adds a result.
    pub fn add(&mut self, report: &Report) {
        self.requests += u64::from(report.requests);
        if let Some(error_type) = report.error_type.filter(|_| !report.success) {
            *self.errors.entry(error_type.to_owned()).or_default() += 1;
        }
        let end = LinkEnd::of(report);
        let host = parse(&report.url)
            .ok()
            .and_then(|url| url.host_str().map(|host| domain_of(host).to_owned()));
        if let Some(host) = host
            && (self.hosts.len() < MAX_HOSTS || self.hosts.contains_key(&host))
        {
            let totals = self.hosts.entry(host).or_default();
            totals.links += 1;
            totals.delivered += u64::from(end == LinkEnd::Delivered);
            totals.robots_unread += u64::from(report.robots_unread);
            if matches!(end, LinkEnd::Failed | LinkEnd::FailedHere) {
                totals.failed += 1;
                totals.error = report.error_type.map(str::to_owned);
            }
        }
        if end == LinkEnd::Paused {
            self.paused_hosts.add(report);
        }
        match end {
            LinkEnd::Delivered => {
                self.delivered += 1;
                self.bytes += report.bytes;
            }
            _ if !report.is_classified() || report.error_type == Some(INTERNAL) => {
                self.unclassified += 1
            }
            LinkEnd::Missing => self.missing += 1,
            LinkEnd::Paused => self.paused += 1,
            LinkEnd::Failed | LinkEnd::FailedHere => self.failed += 1,
        }
    }

    /// Returns the number of links that were not delivered, although the site has them as far as is
    /// known.
    pub fn not_delivered(&self) -> u64 {
        self.failed + self.paused + self.unclassified
    }
}

impl PausedHosts {
    fn add(&mut self, report: &Report) {
        self.until = self.until.max(report.paused_until);
        if self.names.len() < MAX_HOSTS
            && let Some(host) = parse(&report.url)
                .ok()
                .and_then(|url| url.host_str().map(|host| domain_of(host).to_owned()))
        {
            self.names.insert(host);
        }
    }

    /// Returns the hosts by name.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_counts_once() {
        let mut totals = Totals::default();
        let of = |error_type| Report {
            url: "http://a.e.org/x".to_owned(),
            error_type,
            success: error_type.is_none(),
            ..Report::default()
        };
        for error in [
            None,
            Some("not_found"),
            Some("timeout"),
            Some(Report::PAUSED),
            Some(Report::NO_FETCHER),
        ] {
            totals.add(&of(error));
        }
        let counts =
            [totals.delivered, totals.missing, totals.failed, totals.paused, totals.unclassified];
        assert_eq!((counts, totals.not_delivered(), totals.errors.len()), ([1; 5], 3, 4));
        assert_eq!(totals.paused_hosts.names().collect::<Vec<_>>(), ["a.e.org"]);
    }
}
