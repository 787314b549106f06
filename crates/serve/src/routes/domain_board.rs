//! `GET /v1/dashboard/domain`: the figures of one domain over time, its pause and its pace.

use std::ops::ControlFlow;

use axum::extract::State as Get;
use axum::response::Response;
use serde::Deserialize;
use strum::VariantNames;

use super::Shared;
use super::attempts::{known_domain, unreadable};
use super::attention::cause_of;
use super::dashboard::{named, request_cost};
use super::extractors::Query;
use crate::dashboard_json::{DomainBoardJson, SeriesJson};
use crate::json_response;
use crate::problem::Problem;
use crate::state::State;
use crate::time_series::{Range, Series};
use fetchwise::journal::{self, AttemptQuery, JournalError, Order};
use fetchwise::time::Timestamp;
use fetchwise_present::{HostJson, StatsJson};

described_routes![(
    "/v1/dashboard/domain",
    get(domain),
    figures(
        "getDomainDashboard",
        "Get the figures of one domain over time, its pause and its pace"
    ),
    |of| {
        of.note("For the dashboard's page only: its fields may change in any release")
            .query::<DomainQuery>()
            .ok::<DomainBoardJson<'_>>("The current figures")
            .problem(400, "Missing `domain`")
            .problem(422, "Invalid or unknown value")
    }
)];

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DomainQuery {
    /// The domain, with or without `www.`.
    #[cfg_attr(test, schemars(required))]
    domain: Option<String>,
    /// The period up to now.
    #[cfg_attr(test, schemars(extend("enum" = Range::VARIANTS, "default" = <&str>::from(Range::default()))))]
    range: Option<String>,
}

async fn domain(Get(state): Shared, Query(asked): Query<DomainQuery>) -> Result<Response, Problem> {
    let range: Range = named("range", asked.range.as_deref(), Range::VARIANTS)?;
    let domain = asked
        .domain
        .ok_or_else(|| Problem::bad_request("missing `domain`: add it to the query"))?;
    let domain = known_domain(&state, &domain)?;
    // What was reported before this request is in the response. If the log fails, `readyz` reports
    // it.
    let _ = state.journal().settled().await;
    state.run_blocking(move |state| board(state, &domain, range).map_err(unreadable)).await?
}

fn board(state: &State, domain: &str, range: Range) -> Result<Response, JournalError> {
    let now = state.selector.now();
    let date = state.selector.clock().date_of(now);
    let series = series(state, domain, range, date)?;
    let names: Vec<(String, f64)> =
        series.fetchers().map(|name| (name.to_owned(), request_cost(state, name))).collect();
    let (row, fetcher, (recent, foreign), browser) =
        state.attempts.with_domains(|stats, series| {
            let fetcher = stats.last_fetcher(domain).map(str::to_owned);
            (
                stats.row(domain).copied().unwrap_or_default(),
                fetcher,
                (series.recent(domain, date), series.foreign_pages_of(domain, date)),
                stats.browser_cost(),
            )
        });
    let paused = state.selector.paused_hosts(now).into_iter().find(|of| of.domain == domain);
    let pace = state.selector.pace().and_then(|pace| pace.explain(domain, now));
    Ok(json_response::json(&DomainBoardJson {
        now: date.into(),
        domain,
        range: range.into(),
        row: StatsJson::new(domain, &row, browser, fetcher.as_deref()),
        recent,
        host: HostJson::new(domain, paused.as_ref(), pace.as_ref(), foreign, now),
        cause: cause_of(state, domain, now),
        series: SeriesJson::new(&series.fitted_window(range, date), &names),
        browser_request_cost: browser,
    }))
}

/// Reads the attempts of a domain from the log.
fn series(
    state: &State,
    domain: &str,
    range: Range,
    now: Timestamp,
) -> Result<Series, JournalError> {
    let mut query = AttemptQuery::default();
    query.domain = Some(domain.to_owned());
    query.since = Some(Timestamp::from_millis(now.as_millis().saturating_sub(range.length_ms())));
    let mut series = Series::default();
    journal::attempts(state.log_dir(), &query, Order::NewestFirst, None, |_, attempt| {
        series.observe(&attempt, now);
        ControlFlow::Continue(())
    })?;
    Ok(series)
}
