//! `GET /v1/rollout`: both arms side by side, as `fetchwise rollout --json`. The estimate of
//! learning on the table's visits is missing, because it needs a decision per visit.

use std::sync::Arc;

use axum::extract::State as Get;
use axum::http::StatusCode;
use axum::response::Response;

#[cfg(test)]
use serde_json::{Map, Value};

use super::Shared;
use crate::json_response;
use crate::problem::Problem;
use fetchwise::rollout;

described_routes![(
    "/v1/rollout",
    get(arms),
    figures("getRollout", "Compare both arms of a rollout, as `fetchwise rollout --json`"),
    |of| of.ok::<Map<String, Value>>("The comparison over the current stage")
)];

async fn arms(Get(state): Shared) -> Result<Response, Problem> {
    if let Some(known) = state.dashboard.rollout() {
        return Ok(json_response::bytes(StatusCode::OK, known, "application/json"));
    }
    // This reads the whole log. Only one request at a time does so, and the cache serves the
    // requests that follow.
    let _place =
        state.reader.acquire().await.map_err(|_| Problem::internal("cannot read the log now"))?;
    if let Some(known) = state.dashboard.rollout() {
        return Ok(json_response::bytes(StatusCode::OK, known, "application/json"));
    }
    let reading = Arc::clone(&state);
    let read = move || {
        let costs = rollout::costs_of(&reading.selector);
        rollout::read(reading.log_dir(), None, costs, None).map(|found| serde_json::to_vec(&found))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(Ok(found))) => {
            state.dashboard.keep_rollout(&found);
            Ok(json_response::bytes(StatusCode::OK, found, "application/json"))
        }
        _ => {
            Err(Problem::internal("cannot read the log: run `fetchwise verify` to find the cause"))
        }
    }
}
