//! `GET /` and `/assets/`: the dashboard's page; `GET /v1/dashboard`: its figures.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State as Get;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use strum::VariantNames;

use super::extractors::{Path, Query};
use super::{Shared, attention};
use crate::assets;
use crate::dashboard_json::{
    BoardJson, BusyJson, DomainJson, DomainsJson, FetcherJson, LogJson, SeriesJson,
};
use crate::json_response;
use crate::problem::Problem;
use crate::routes::decision_context::wrong;
use crate::state::State;
use crate::time_series::Range;
use fetchwise::analytics::{By, Row};
use fetchwise::journal::Health;
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;
use fetchwise_present::{PaceJson, StatsJson, TimeJson};

/// The poll interval of the page. With the time that a response takes it is below the five seconds
/// within which an operator sees a host in trouble.
const POLL: Duration = Duration::from_secs(3);
/// The default and the maximum number of rows of domains.
const DOMAINS: (usize, usize) = (15, 1000);
const BUSY: usize = 12;
const HEURISTICS: usize = 60;

described_routes![
    ("/", get(page), figures("getDashboardPage", "Get the dashboard"), |of| of.responds::<String>(
        200,
        "text/html",
        "The page"
    )),
    (
        "/v1/dashboard",
        get(dashboard),
        figures(
            "getDashboard",
            "Get the figures of the dashboard: series over time, paces, heuristics, health of the log"
        ),
        |of| {
            of.note("For the dashboard's page only: its fields may change in any release")
                .query::<DashboardQuery>()
                .ok::<BoardJson<'_>>("The current figures")
        }
    ),
];

/// Returns the route of the page's files, which is not part of the API.
pub(super) fn assets() -> Router<Arc<State>> {
    Router::new().route("/assets/{*name}", get(asset))
}

async fn page(headers: HeaderMap) -> Result<Response, Problem> {
    assets::answer(assets::PAGE, &headers).ok_or_else(|| Problem::internal("the page is missing"))
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let none =
        || Problem::new(StatusCode::NOT_FOUND, "no_such_file", "the dashboard has no such file");
    assets::answer(&name, &headers).ok_or_else(none)
}

/// The sort key of the domains' table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Sort {
    Key,
    #[default]
    Attempts,
    SuccessRate,
    BanRate,
    Learned,
    RequestsPerPage,
    Missing,
    Cost,
    CostPerPage,
    Recent,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DashboardQuery {
    /// The period of the series.
    #[cfg_attr(test, schemars(extend("enum" = Range::VARIANTS, "default" = <&str>::from(Range::default()))))]
    range: Option<String>,
    /// The figure that orders the domains; `attempts` by default.
    #[cfg_attr(test, schemars(extend("enum" = Sort::VARIANTS)))]
    sort: Option<String>,
    /// Rising or falling.
    #[cfg_attr(test, schemars(extend("enum" = ["asc", "desc"], "default" = "desc")))]
    order: Option<String>,
    /// Text that the names of the domains contain.
    search: Option<String>,
    /// Maximum number of domains.
    limit: Option<usize>,
}

/// The parsed query.
#[derive(Debug)]
struct DashboardRequest {
    range: Range,
    sort: Sort,
    ascending: bool,
    search: String,
    limit: usize,
}

pub(super) fn named<T: std::str::FromStr + Default>(
    what: &'static str,
    name: Option<&str>,
    known: &[&str],
) -> Result<T, Problem> {
    match name.filter(|name| !name.is_empty()) {
        None => Ok(T::default()),
        Some(name) => name
            .parse()
            .map_err(|_| wrong(UnknownName::new(what, name, known.iter().copied()).to_string())),
    }
}

impl DashboardRequest {
    fn read(asked: DashboardQuery) -> Result<Self, Problem> {
        let ascending = match asked.order.as_deref() {
            Some("asc") => true,
            None | Some("" | "desc") => false,
            Some(other) => {
                return Err(wrong(UnknownName::new("order", other, ["asc", "desc"]).to_string()));
            }
        };
        Ok(Self {
            range: named("range", asked.range.as_deref(), Range::VARIANTS)?,
            sort: named("sort", asked.sort.as_deref(), Sort::VARIANTS)?,
            ascending,
            search: asked.search.unwrap_or_default().to_lowercase(),
            limit: asked.limit.unwrap_or(DOMAINS.0).min(DOMAINS.1),
        })
    }
}

async fn dashboard(
    Get(state): Shared,
    Query(asked): Query<DashboardQuery>,
) -> Result<Response, Problem> {
    let wanted = DashboardRequest::read(asked)?;
    // With many domains this takes some milliseconds, and it reads the log's directory.
    let done = tokio::task::spawn_blocking(move || board(&state, &wanted)).await;
    done.map_err(|_| Problem::internal("cannot compute the figures"))
}

/// Returns the configured cost of a request by a fetcher, in plain requests.
pub(super) fn request_cost(state: &State, name: &str) -> f64 {
    state.attempts.request_cost(name)
}

fn board(state: &State, wanted: &DashboardRequest) -> Response {
    let now = state.selector.now();
    let date = state.selector.clock().date_of(now);
    let cost = |name: &str| request_cost(state, name);
    let log = log(state);
    let complete = state.attempts.is_scanned();
    let all = state.attempts.stats(By::All);
    let fetchers = state.attempts.stats(By::Fetcher).rows();
    let browser = all.browser_cost();
    let (total, matching, domains) = domains(state, wanted, date);
    let (shown, names, busy) = state.attempts.with_series(|series| {
        let names: Vec<String> = series.fetchers().map(str::to_owned).collect();
        (series.fitted_window(wanted.range, date), names, series.busy(BUSY, date))
    });
    let names: Vec<(String, f64)> =
        names.into_iter().map(|name| (name.clone(), cost(&name))).collect();
    let heuristics = state
        .dashboard
        .heuristics(|| state.attempts.with_series(|series| series.heuristics(HEURISTICS)));
    let nothing = Row::default();
    let pace = |host: &str| state.selector.pace().and_then(|pace| pace.explain(host, now));
    json_response::json(&BoardJson {
        now: date.into(),
        started_at: state.dashboard.started_at.into(),
        version: env!("CARGO_PKG_VERSION"),
        mode: state.selector.router().mode.name(),
        read_only: state.options.read_only,
        poll_ms: u64::try_from(POLL.as_millis()).unwrap_or(u64::MAX),
        complete,
        range: wanted.range.into(),
        crawl: state.crawl().map(Into::into),
        attention: attention::find(state, &log, now),
        browser_request_cost: browser,
        series: SeriesJson::new(&shown, &names),
        events: state.attempts.marks().since(shown.start).into_iter().map(Into::into).collect(),
        all: StatsJson::new(
            "all",
            all.iter().next().map_or(&nothing, |(_, row)| row),
            browser,
            all.last_fetcher("all"),
        ),
        fetchers: fetchers
            .iter()
            .map(|(name, row)| FetcherJson {
                row: StatsJson::new(name, row, browser, Some(name)),
                request_cost: cost(name),
            })
            .collect(),
        domains: DomainsJson {
            total,
            matching,
            rows: domains.iter().map(|domain| domain.json(browser)).collect(),
        },
        busy: busy
            .iter()
            .map(|(host, recent)| BusyJson {
                host,
                recent: *recent,
                pace: pace(host).as_ref().map(PaceJson::from),
            })
            .collect(),
        heuristics: heuristics.iter().map(Into::into).collect(),
        log,
        fleet: state.fleet().and_then(|fleet| fleet.status()),
    })
}

/// The figures of a domain.
struct Domain {
    key: String,
    row: Row,
    /// Attempts in the last ten minutes.
    recent: u64,
    /// The fetcher of its newest delivered page.
    fetcher: Option<String>,
}

impl Domain {
    /// `browser_cost` is as for [`StatsJson::new`].
    fn json(&self, browser_cost: Option<f64>) -> DomainJson<'_> {
        let row = StatsJson::new(&self.key, &self.row, browser_cost, self.fetcher.as_deref());
        DomainJson { row, recent: self.recent }
    }
}

/// Returns the number of domains, the number that match, and the requested ones in their order.
fn domains(
    state: &State,
    wanted: &DashboardRequest,
    now: Timestamp,
) -> (usize, usize, Vec<Domain>) {
    state.attempts.with_domains(|stats, series| {
        let mut total = 0;
        let mut rows: Vec<(&str, &Row)> = stats
            .iter()
            .inspect(|_| total += 1)
            .filter(|(key, _)| key.contains(&wanted.search))
            .collect();
        let matching = rows.len();
        let figure = |(key, row): &(&str, &Row)| match wanted.sort {
            Sort::Key => None,
            Sort::Attempts => Some(row.attempts as f64),
            Sort::SuccessRate => row.success_rate(),
            Sort::BanRate => row.ban_rate(),
            Sort::Learned => row.of_decisions(row.learned),
            Sort::RequestsPerPage => row.requests_per_page(),
            Sort::Missing => Some(row.missing as f64),
            Sort::Cost => Some(row.cost),
            Sort::CostPerPage => row.cost_per_page(),
            Sort::Recent => Some(series.recent(key, now) as f64),
        };
        let order = |a: &(&str, &Row), b: &(&str, &Row)| {
            let turned = |order: Ordering| if wanted.ascending { order } else { order.reverse() };
            if wanted.sort == Sort::Key {
                return turned(a.0.cmp(b.0));
            }
            // Rows without a figure come last in either order.
            let by_figure = match (figure(a), figure(b)) {
                (Some(a), Some(b)) => turned(a.total_cmp(&b)),
                (a, b) => b.is_some().cmp(&a.is_some()),
            };
            by_figure.then_with(|| b.1.attempts.cmp(&a.1.attempts)).then_with(|| a.0.cmp(b.0))
        };
        if wanted.limit < rows.len() {
            rows.select_nth_unstable_by(wanted.limit, order);
            rows.truncate(wanted.limit);
        }
        rows.sort_unstable_by(order);
        let figures = |(key, row): (&str, &Row)| Domain {
            key: key.to_owned(),
            row: *row,
            recent: series.recent(key, now),
            fetcher: stats.last_fetcher(key).map(str::to_owned),
        };
        let kept = rows.into_iter().map(figures).collect();
        (total, matching, kept)
    })
}

fn log(state: &State) -> LogJson {
    let files = state.dashboard.files(state.log_dir());
    if let Some(followed) = &state.followed {
        let reason = followed.error();
        return LogJson {
            dir: state.log_dir().display().to_string(),
            state: if reason.is_none() { "followed" } else { "degraded" },
            reason,
            segments: files.segments,
            bytes: files.bytes,
            compacted_at: files.compacted_at.map(TimeJson::from),
            ..LogJson::default()
        };
    }
    let journal = state.journal();
    let (name, reason) = match journal.health() {
        Health::Good => ("good", None),
        Health::Degraded { reason, .. } => ("degraded", Some(reason.to_string())),
        _ => ("closed", None),
    };
    let metrics = journal.metrics();
    LogJson {
        dir: journal.dir().display().to_string(),
        state: name,
        reason,
        segments: files.segments,
        bytes: files.bytes,
        lag_records: (metrics.written_seq + metrics.queued_records)
            .saturating_sub(metrics.durable_seq),
        queued_records: metrics.queued_records,
        queued_bytes: metrics.queued_bytes,
        syncs: metrics.syncs,
        synced_at: state.dashboard.synced_at().map(TimeJson::from),
        compacted_at: files.compacted_at.map(TimeJson::from),
        lost: journal.lost().records,
    }
}
