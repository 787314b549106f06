//! Liveness and readiness of the server.

use axum::Router;
use axum::extract::State as Get;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use super::Shared;
use crate::json_response;
use crate::problem::Problem;
use fetchwise::journal::Health;

/// Returns the routes of a server that is still loading its log. Every other path responds that it
/// is loading.
pub(crate) fn while_loading() -> Router {
    Router::new().route("/healthz", get(health)).route("/readyz", get(not_ready)).fallback(loading)
}

described_routes![
    ("/healthz", get(health), server("checkAlive", "Check whether the server is alive"), |of| {
        of.ok::<HealthJson>("The server is alive")
    }),
    ("/readyz", get(ready), server("checkReady", "Check whether the server accepts work"), |of| {
        of.ok::<ReadyJson>("The server is ready").fails::<ReadyJson>(503, "The server is not ready")
    }),
];

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Health"))]
struct HealthJson {
    #[cfg_attr(test, schemars(extend("const" = "ok")))]
    status: &'static str,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Ready"))]
struct ReadyJson {
    ready: bool,
    #[cfg_attr(test, schemars(extend("enum" = ["good", "degraded", "closed"])))]
    log: &'static str,
    log_checking: bool,
    stopping: bool,
    /// Whether the server is still loading its log.
    loading: bool,
}

/// Responds, which proves that the server is alive.
async fn health() -> Response {
    json_response::json(&HealthJson { status: "ok" })
}

/// Returns whether the log accepts attempts, or for a server that follows a log, whether it can be
/// read. Only clients with a token get details of a failure.
async fn ready(Get(state): Shared) -> Response {
    let is_unreadable = state.followed.as_ref().is_some_and(|followed| followed.error().is_some());
    let log = match state.journal().health() {
        Health::Good if is_unreadable => "degraded",
        Health::Good => "good",
        Health::Degraded { .. } => "degraded",
        _ => "closed",
    };
    let (scanned, stopping) = (state.attempts.is_scanned(), state.is_stopping());
    let ready = log == "good" && scanned && !stopping;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_response::with_status(
        status,
        &ReadyJson { ready, log, log_checking: !scanned, stopping, loading: false },
    )
}

async fn not_ready() -> Response {
    let not_ready = ReadyJson {
        ready: false,
        log: "closed",
        log_checking: true,
        stopping: false,
        loading: true,
    };
    json_response::with_status(StatusCode::SERVICE_UNAVAILABLE, &not_ready)
}

async fn loading() -> Problem {
    Problem::unavailable(
        "loading",
        "the server is loading its log: retry when /readyz responds with 200",
    )
}
