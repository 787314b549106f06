//! `GET /v1/stats?by=` and `GET /v1/ban-rate?domain=`: figures of the attempts in the log.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State as Get};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::Shared;
use super::forget::read_domain;
use crate::json::{BanRateJson, StatsJson};
use crate::json_response;
use crate::problem::Problem;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::analytics::{BanRate, By};
use fetchwise::time::Timestamp;

const DAY_MS: i64 = 86_400_000;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/stats", get(stats)).route("/v1/ban-rate", get(ban_rate))
}

#[derive(Deserialize)]
struct Asked {
    by: Option<String>,
    /// So many rows at most.
    limit: Option<usize>,
}

async fn stats(Get(state): Shared, Query(asked): Query<Asked>) -> Result<Response, Problem> {
    let by = match asked.by.as_deref() {
        None | Some("") => By::All,
        Some(name) => name.parse().map_err(|error: fetchwise::unknown_name::UnknownName| wrong(error.to_string()))?,
    };
    looked(&state).await?;
    state
        .aside(move |state| {
            let rows = state.kept.rows(by);
            let rows = rows.iter().take(asked.limit.unwrap_or(usize::MAX));
            json_response::json(&rows.map(|(key, row)| StatsJson::new(key, row)).collect::<Vec<_>>())
        })
        .await
}

/// Waits until the log has been looked at.
pub(super) async fn looked(state: &State) -> Result<(), Problem> {
    state
        .kept
        .looked()
        .await
        .map_err(|_| Problem::internal("the log cannot be read: `fetchwise verify` says what is wrong"))
}

/// The days that a ban rate is over unless the caller says otherwise.
const DAYS: u32 = 7;

#[derive(Deserialize)]
struct AskedRate {
    domain: Option<String>,
    days: Option<String>,
}

async fn ban_rate(Get(state): Shared, Query(asked): Query<AskedRate>) -> Result<Response, Problem> {
    let domain = asked.domain.ok_or_else(|| Problem::bad_request("the query needs a `domain`"))?;
    let domain = read_domain(&domain)?;
    let days = match asked.days.as_deref() {
        None => DAYS,
        Some(text) => {
            let days = text.parse().ok().filter(|days| *days > 0);
            days.ok_or_else(|| wrong(format!("{text:?} is no number of days: 1 or more are")))?
        }
    };
    let now = state.selector.now();
    let start = |days_ago: u32| Timestamp::from_millis((now.utc_day() - i64::from(days_ago)).saturating_mul(DAY_MS));
    // What a server answers at once are the days that are kept; `fetchwise ban-rate` reads the log for those before.
    let kept = (days > BanRate::DAYS_KEPT).then(|| start(BanRate::DAYS_KEPT - 1));
    let since = state.selector.ban_rates_since().max(kept).filter(|since| *since > start(days - 1));
    let sum = state.selector.ban_rate_at(&domain, days.min(BanRate::DAYS_KEPT), now);
    Ok(json_response::json(&BanRateJson::new(&domain, days, sum, since)))
}
