//! Whether the server lives, and whether it can be sent work.

use axum::Router;
use axum::extract::State as Get;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use std::sync::Arc;

use super::Shared;
use crate::json_response;
use crate::state::State;
use fetchwise::journal::Health;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/healthz", get(health)).route("/readyz", get(ready))
}

#[derive(Serialize)]
struct HealthJson {
    status: &'static str,
}

#[derive(Serialize)]
struct ReadyJson {
    ready: bool,
    /// `good`, `degraded` or `closed`.
    log: &'static str,
    log_checking: bool,
    stopping: bool,
}

/// It answers: that is all.
async fn health() -> Response {
    json_response::json(&HealthJson { status: "ok" })
}

/// Whether attempts would be taken. What is wrong in detail is said to those with a token only.
async fn ready(Get(state): Shared) -> Response {
    let log = match state.journal().health() {
        Health::Good => "good",
        Health::Degraded { .. } => "degraded",
        _ => "closed",
    };
    let (looked, stopping) = (state.kept.has_looked(), state.is_stopping());
    let ready = log == "good" && looked && !stopping;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_response::with_status(status, &ReadyJson { ready, log, log_checking: looked, stopping })
}
