//! The routes: a file for each group. A route reads a request, asks the library, and writes down what that says.
//!
//! To add routes, write a file with a `routes` function, and merge what it returns in [`router`]. What needs no token is listed in
//! `gate`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use prometheus_client::registry::Registry;

use super::metrics::{self, Counted};
use super::problem::Problem;
use super::state::State;
use crate::metrics::fleet::FleetMetrics;

mod attempts;
mod classify;
mod dashboard;
mod decision_context;
mod explain;
mod forget;
mod health;
mod hosts;
mod mode;
mod openapi;
mod report;
mod rollout;
mod select;
mod stats;
mod visits;

/// What a handler gets of what all requests share.
pub(crate) type Shared = axum::extract::State<Arc<State>>;

/// All routes.
pub(crate) fn router(state: Arc<State>) -> Router {
    let (selector, journal) = (Arc::clone(&state.selector), Arc::clone(state.journal()));
    let mut registry = Registry::default();
    if let Some(fleet) = state.fleet() {
        FleetMetrics::register(Arc::clone(fleet), &mut registry);
    }
    let counted = Arc::new(Counted::new(selector, journal, registry));
    Router::new()
        .merge(metrics::routes(Arc::clone(&counted)))
        .merge(health::routes())
        .merge(select::routes())
        .merge(explain::routes())
        .merge(attempts::routes())
        .merge(classify::routes())
        .merge(visits::routes())
        .merge(forget::routes())
        .merge(stats::routes())
        .merge(hosts::routes())
        .merge(mode::routes())
        .merge(openapi::routes())
        .merge(dashboard::routes())
        .merge(rollout::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        // Bodies are read by `bodies::read`, which has the limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(counted, metrics::count))
        .with_state(state)
}

async fn no_route(request: Request) -> Problem {
    let words = format!("there is no route {}: /openapi.json lists them", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, "no_such_route", words)
}

async fn no_method(request: Request) -> Problem {
    let words = format!("{} is not for {}: /openapi.json lists what is", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
}
