//! `GET /v1/rollout`: both arms side by side, as `fetchwise rollout --json` has them but for what learning would have been worth in the
//! table's place, which takes a decision for each visit.

use std::sync::Arc;

use axum::Router;
use axum::extract::State as Get;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use super::Shared;
use crate::json_response;
use crate::problem::Problem;
use crate::state::State;
use fetchwise::rollout;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/rollout", get(arms))
}

async fn arms(Get(state): Shared) -> Result<Response, Problem> {
    if let Some(known) = state.board.rollout() {
        return Ok(json_response::bytes(StatusCode::OK, known, "application/json"));
    }
    // It goes through the whole log: one at a time, and what it found serves all who ask within the next while.
    let _place = state.reader.acquire().await.map_err(|_| Problem::internal("the log cannot be read now"))?;
    if let Some(known) = state.board.rollout() {
        return Ok(json_response::bytes(StatusCode::OK, known, "application/json"));
    }
    let reading = Arc::clone(&state);
    let read = move || {
        let costs = rollout::costs_of(&reading.selector);
        rollout::read(reading.journal().dir(), None, costs, None).map(|found| serde_json::to_vec(&found))
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(Ok(found))) => {
            state.board.keep_rollout(&found);
            Ok(json_response::bytes(StatusCode::OK, found, "application/json"))
        }
        _ => Err(Problem::internal("the log cannot be read: `fetchwise verify` says what is wrong")),
    }
}
