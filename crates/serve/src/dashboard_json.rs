//! The JSON of the dashboard: time series, tables and the health of the log.

use serde::Serialize;

use crate::crawl_progress::CrawlFigures;
#[cfg(test)]
use crate::event_marks::EventKind;
use crate::event_marks::EventMark;
use crate::time_series::SeriesWindow;
use fetchwise_present::{
    FleetJson, HostJson, ImportanceJson, PaceJson, PauseCause, StatsJson, TimeJson,
};

/// The whole response.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Dashboard"))]
pub(crate) struct BoardJson<'a> {
    pub(crate) now: TimeJson,
    pub(crate) started_at: TimeJson,
    pub(crate) version: &'static str,
    pub(crate) mode: &'static str,
    /// Whether the server accepts nothing but reads.
    pub(crate) read_only: bool,
    /// The poll interval for the page, in milliseconds.
    pub(crate) poll_ms: u64,
    /// Whether the figures include the attempts that were in the log at the start.
    pub(crate) complete: bool,
    pub(crate) range: &'static str,
    /// None if no crawl runs alongside the server.
    pub(crate) crawl: Option<CrawlJson>,
    pub(crate) attention: AttentionJson,
    pub(crate) series: SeriesJson<'a>,
    /// What happened within the time of the series, the oldest first.
    pub(crate) events: Vec<EventJson>,
    /// The cost of a request by the cheapest browser; none without a browser.
    pub(crate) browser_request_cost: Option<f64>,
    /// All attempts in the log.
    pub(crate) all: StatsJson<'a>,
    pub(crate) fetchers: Vec<FetcherJson<'a>>,
    pub(crate) domains: DomainsJson<'a>,
    /// The hosts with the most attempts in the last ten minutes.
    pub(crate) busy: Vec<BusyJson<'a>>,
    pub(crate) heuristics: Vec<ImportanceJson<'a>>,
    pub(crate) log: LogJson,
    /// None if the server is not part of a fleet.
    pub(crate) fleet: Option<FleetJson>,
}

/// Something that happened, for a mark on the charts.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DashboardEvent"))]
pub(crate) struct EventJson {
    at: TimeJson,
    /// The start of the process, the pause of a host, the early end of a pause, or a change of
    /// settings.
    #[cfg_attr(test, schemars(extend("enum" = <EventKind as strum::VariantNames>::VARIANTS)))]
    event: &'static str,
    /// The host or the link, or what was read again; none if there is nothing to say.
    text: Option<String>,
}

impl From<EventMark> for EventJson {
    fn from(mark: EventMark) -> Self {
        let text = (!mark.text.is_empty()).then_some(mark.text);
        Self { at: mark.at.into(), event: mark.kind.into(), text }
    }
}

/// How far the crawl alongside the server is.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DashboardCrawl"))]
pub(crate) struct CrawlJson {
    /// The number of links; none if it is unknown.
    total: Option<u64>,
    /// The number of finished links, with those of an earlier run.
    done: u64,
    /// The number of links that are not finished; none if it is unknown.
    left: Option<u64>,
    /// Finished links per second.
    rate: Option<f64>,
    /// The time for the links that wait for no pause.
    seconds_left: Option<u64>,
    /// The number of links that wait for the end of a pause.
    paused_links: u64,
    /// The number of hosts of paused links.
    paused_hosts: u64,
    /// The end of the first pause.
    next_pause_end: Option<TimeJson>,
    /// The end of the last pause.
    last_pause_end: Option<TimeJson>,
}

impl From<CrawlFigures> for CrawlJson {
    fn from(of: CrawlFigures) -> Self {
        Self {
            total: of.total,
            done: of.done,
            left: of.left,
            rate: of.rate,
            seconds_left: of.remaining.map(|left| left.as_secs()),
            paused_links: of.paused_links,
            paused_hosts: of.paused_hosts,
            next_pause_end: of.next_pause_end.map(TimeJson::of_process),
            last_pause_end: of.last_pause_end.map(TimeJson::of_process),
        }
    }
}

/// Figures by period, each list in the order of time; the last period is incomplete.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Series"))]
pub(crate) struct SeriesJson<'a> {
    /// The start of the first period, in seconds since 1970.
    start: i64,
    step_s: i64,
    attempts: Vec<u64>,
    delivered: Vec<u64>,
    banned: Vec<u64>,
    /// Attempts at pages that do not exist.
    missing: Vec<u64>,
    /// Attempts that count for or against their fetcher.
    judged: Vec<u64>,
    /// Fetches of a link, each with one or more requests.
    visits: Vec<u64>,
    decided: Vec<u64>,
    learned: Vec<u64>,
    inferred: Vec<u64>,
    probed: Vec<u64>,
    explored: Vec<u64>,
    /// The total cost of the attempts in plain requests, by the configured costs of fetchers.
    cost: Vec<f64>,
    fetchers: Vec<WorkJson<'a>>,
}

/// The attempts of a fetcher.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FetcherSeries"))]
struct WorkJson<'a> {
    fetcher: &'a str,
    /// The cost of a request.
    cost: f64,
    attempts: Vec<u64>,
}

impl<'a> SeriesJson<'a> {
    /// Creates the series. `fetchers` are the names that the buckets count by, with the cost of a
    /// request.
    pub(crate) fn new(shown: &SeriesWindow, fetchers: &'a [(String, f64)]) -> Self {
        let mut series = Self {
            start: shown.start.as_millis() / 1000,
            step_s: shown.step_ms / 1000,
            ..Self::default()
        };
        for bucket in &shown.buckets {
            let row = &bucket.row;
            series.attempts.push(row.attempts);
            series.delivered.push(row.delivered);
            series.banned.push(row.banned);
            series.missing.push(row.missing);
            series.judged.push(row.judged);
            series.visits.push(row.visits);
            series.decided.push(row.decided);
            series.learned.push(row.learned);
            series.inferred.push(row.inferred);
            series.probed.push(row.probed);
            series.explored.push(row.explored);
            let costs =
                bucket.fetchers.iter().zip(fetchers).map(|(count, (_, cost))| *count as f64 * cost);
            // The sum of nothing would be -0.
            series.cost.push(costs.fold(0.0, |sum, cost| sum + cost));
        }
        let work = |(place, (fetcher, cost)): (usize, &'a (String, f64))| {
            let counts =
                shown.buckets.iter().map(|bucket| bucket.fetchers.get(place).copied().unwrap_or(0));
            WorkJson { fetcher, cost: *cost, attempts: counts.collect() }
        };
        series.fetchers = fetchers
            .iter()
            .enumerate()
            .map(work)
            .filter(|of| of.attempts.iter().any(|n| *n > 0))
            .collect();
        series
    }
}

/// Everything that an operator should look at first.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Attention"))]
pub(crate) struct AttentionJson {
    /// The number of all items, including those that are not listed.
    pub(crate) total: usize,
    /// The most important first.
    pub(crate) items: Vec<AttentionItem>,
}

/// Something that an operator should look at.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AttentionItem"))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum AttentionItem {
    /// The log does not accept attempts, or has lost some.
    #[cfg_attr(test, schemars(title = "LogAttention"))]
    Log { state: &'static str, reason: Option<String>, lost: u64, is_followed: bool },
    /// A host that delivers much less than before, or next to nothing.
    #[cfg_attr(test, schemars(title = "FailingHost"))]
    Failing {
        host: String,
        /// The attempts of the last ten minutes that count, and those that delivered.
        judged: u64,
        delivered: u64,
        /// The share that delivered before; none if too few attempts are known.
        usual_rate: Option<f64>,
    },
    /// A host that is paused.
    #[cfg_attr(test, schemars(title = "PausedHost"))]
    Paused { host: String, until: TimeJson, times_paused: u8, cause: Option<PauseCause> },
    /// A host that gets less than a request in ten seconds.
    #[cfg_attr(test, schemars(title = "SlowHost"))]
    Slow { host: String, pace: Box<PaceJson> },
}

/// One domain, with its figures over time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DomainDashboard"))]
pub(crate) struct DomainBoardJson<'a> {
    pub(crate) now: TimeJson,
    pub(crate) domain: &'a str,
    pub(crate) range: &'static str,
    pub(crate) row: StatsJson<'a>,
    /// Attempts in the last ten minutes.
    pub(crate) recent: u64,
    pub(crate) host: HostJson<'a>,
    /// The block before the pause.
    pub(crate) cause: Option<PauseCause>,
    pub(crate) series: SeriesJson<'a>,
    pub(crate) browser_request_cost: Option<f64>,
}

/// A row of the fetchers' table.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "FetcherRow"))]
pub(crate) struct FetcherJson<'a> {
    #[serde(flatten)]
    pub(crate) row: StatsJson<'a>,
    /// The cost of a request, in plain requests.
    pub(crate) request_cost: f64,
}

/// A part of the domains' table.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DomainsTable"))]
pub(crate) struct DomainsJson<'a> {
    /// The number of all domains.
    pub(crate) total: usize,
    /// The number of domains that match the search.
    pub(crate) matching: usize,
    pub(crate) rows: Vec<DomainJson<'a>>,
}

/// A row of the domains' table.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DomainRow"))]
pub(crate) struct DomainJson<'a> {
    #[serde(flatten)]
    pub(crate) row: StatsJson<'a>,
    /// Attempts in the last ten minutes.
    pub(crate) recent: u64,
}

/// A host with recent requests.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "BusyHost"))]
pub(crate) struct BusyJson<'a> {
    pub(crate) host: &'a str,
    /// Attempts in the last ten minutes.
    pub(crate) recent: u64,
    pub(crate) pace: Option<PaceJson>,
}

/// The health of the log.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "LogState"))]
pub(crate) struct LogJson {
    pub(crate) dir: String,
    /// `good`, `degraded`, `closed`, or `followed` if another process writes it.
    pub(crate) state: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// Accepted records that are not known to be on disk.
    pub(crate) lag_records: u64,
    pub(crate) queued_records: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) synced_at: Option<TimeJson>,
    pub(crate) compacted_at: Option<TimeJson>,
    /// Records since the start that are lost.
    pub(crate) lost: u64,
}
