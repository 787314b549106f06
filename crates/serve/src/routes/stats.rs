//! `GET /v1/stats?by=` and `GET /v1/ban-rate?domain=`: statistics of the attempts in the log.

use axum::extract::State as Get;
use axum::response::Response;
use serde::Deserialize;

use super::Shared;
use super::extractors::Query;
use super::forget::read_domain;
use crate::json_response;
use crate::problem::Problem;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::analytics::{BanRate, By};
use fetchwise::time::Timestamp;
use fetchwise_present::{BanRateJson, StatsJson};

const DAY_MS: i64 = 86_400_000;

described_routes![
    (
        "/v1/stats",
        get(stats),
        figures("getStats", "Get statistics: success, blocks and kinds of decisions"),
        |of| {
            of.query::<StatsQuery>()
                .ok::<Vec<StatsJson<'_>>>("One row per group")
                .problem(422, "Unknown grouping")
        }
    ),
    ("/v1/ban-rate", get(ban_rate), figures("getBanRate", "Get the ban rate of a domain"), |of| {
        of.query::<AskedRate>()
            .ok::<BanRateJson<'_>>("The ban rate over whole UTC days")
            .problem(400, "Missing `domain`")
            .problem(422, "The domain is not valid")
    }),
];

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StatsQuery {
    /// Grouping: `all`, `domain`, `fetcher`, `outcome`, `day` or `week`.
    by: Option<String>,
    /// Maximum number of rows.
    limit: Option<usize>,
}

async fn stats(Get(state): Shared, Query(asked): Query<StatsQuery>) -> Result<Response, Problem> {
    let by = match asked.by.as_deref() {
        None | Some("") => By::All,
        Some(name) => name
            .parse()
            .map_err(|error: fetchwise::unknown_name::UnknownName| wrong(error.to_string()))?,
    };
    wait_for_scan(&state).await?;
    state
        .run_blocking(move |state| {
            let stats = state.attempts.stats(by);
            let rows = stats.rows();
            let row = |(key, row)| {
                StatsJson::new(key, row, stats.browser_cost(), stats.last_fetcher(key))
            };
            let rows = rows
                .iter()
                .map(|(key, row)| (key.as_str(), row))
                .take(asked.limit.unwrap_or(usize::MAX));
            json_response::json(&rows.map(row).collect::<Vec<_>>())
        })
        .await
}

/// Waits for the scan of the log.
pub(super) async fn wait_for_scan(state: &State) -> Result<(), Problem> {
    state.attempts.scanned().await.map_err(|_| {
        Problem::internal("cannot read the log: run `fetchwise verify` to find the cause")
    })
}

/// The default number of days of a ban rate.
const DAYS: u32 = 7;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AskedRate {
    /// The domain, with or without `www.`.
    #[cfg_attr(test, schemars(required))]
    domain: Option<String>,
    /// Number of days, counted back from today; 7 by default.
    #[cfg_attr(test, schemars(with = "Option<u32>", range(min = 1)))]
    days: Option<String>,
}

async fn ban_rate(Get(state): Shared, Query(asked): Query<AskedRate>) -> Result<Response, Problem> {
    let domain = asked
        .domain
        .ok_or_else(|| Problem::bad_request("missing `domain`: add it to the query"))?;
    let domain = read_domain(&domain)?;
    let days = match asked.days.as_deref() {
        None => DAYS,
        Some(text) => {
            let days = text.parse().ok().filter(|days| *days > 0);
            days.ok_or_else(|| {
                wrong(format!("invalid number of days {text:?}: expected 1 or more"))
            })?
        }
    };
    let now = state.selector.now();
    let start = |days_ago: u32| {
        Timestamp::from_millis((now.utc_day() - i64::from(days_ago)).saturating_mul(DAY_MS))
    };
    // The server has only the days in memory; `fetchwise ban-rate` reads older days from the log.
    let kept = (days > BanRate::DAYS_KEPT).then(|| start(BanRate::DAYS_KEPT - 1));
    let since = state.selector.ban_rates_since().max(kept).filter(|since| *since > start(days - 1));
    let sum = state.selector.ban_rate_at(&domain, days.min(BanRate::DAYS_KEPT), now);
    Ok(json_response::json(&BanRateJson::new(&domain, days, sum, since)))
}
