//! `GET /openapi.json`: the description of all routes. A test compares it with real responses.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use crate::json_response;
use crate::state::State;

pub(super) const DESCRIPTION: &str = include_str!("../openapi.json");

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/openapi.json", get(description))
}

async fn description() -> Response {
    json_response::bytes(StatusCode::OK, DESCRIPTION, "application/json")
}
