//! The routes, one file per group. A route reads a request, calls the library and writes the
//! result.
//!
//! To add routes, write a file with `described_routes` and list it in `groups`. `auth` lists the
//! paths that need no token.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State as Get};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use prometheus_client::registry::Registry;

use super::metrics::{self, RequestMetrics};
use super::problem::Problem;
use super::state::State;
use crate::metrics::fleet::FleetMetrics;

/// Makes `routes`, and for tests `operations`, which describes the same routes. Each has a path, a
/// method with its handler, a subject with a name and a summary, and what a closure adds to the
/// description.
macro_rules! described_routes {
    ($(($path:literal, $method:ident($handler:expr), $tag:ident($name:literal, $summary:literal), $describe:expr)),+ $(,)?) => {
        pub(super) fn routes() -> axum::Router<std::sync::Arc<crate::state::State>> {
            axum::Router::new()$(.route($path, axum::routing::$method($handler)))+
        }

        #[cfg(test)]
        pub(super) fn operations() -> Vec<crate::description::Operation> {
            use crate::description::Operation;
            vec![$(Operation::new(stringify!($method), $path, stringify!($tag), $name, $summary).with($describe)),+]
        }
    };
}

/// Merges the routes of files, and for tests their descriptions.
macro_rules! groups {
    ($($group:ident),+ $(,)?) => {
        fn described() -> Router<Arc<State>> {
            Router::new()$(.merge($group::routes()))+
        }

        #[cfg(test)]
        fn operations() -> Vec<crate::description::Operation> {
            std::iter::once(metrics::operation())$(.chain($group::operations()))+.collect()
        }
    };
}

#[cfg(test)]
mod attempt_schema;
mod attempts;
mod attention;
mod classify;
mod dashboard;
mod decision_context;
mod domain_board;
mod explain;
mod extractors;
mod forget;
pub(crate) mod health;
mod hosts;
mod mode;
mod openapi;
mod query_parameters;
mod record_attempts;
mod report_body;
mod rollout;
mod select;
mod sign;
mod stats;
mod visits;

groups![
    health,
    select,
    explain,
    record_attempts,
    attempts,
    classify,
    visits,
    sign,
    forget,
    stats,
    hosts,
    mode,
    openapi,
    dashboard,
    domain_board,
    rollout,
];

/// The extractor of the shared state.
pub(crate) type Shared = axum::extract::State<Arc<State>>;

/// Returns all routes.
pub(crate) fn router(state: Arc<State>) -> Router {
    let (selector, journal) = (Arc::clone(&state.selector), Arc::clone(state.journal()));
    let mut registry = Registry::default();
    if let Some(fleet) = state.fleet() {
        FleetMetrics::register(Arc::clone(fleet), &mut registry);
    }
    let counted = Arc::new(RequestMetrics::new(selector, journal, registry));
    Router::new()
        .merge(metrics::routes(Arc::clone(&counted)))
        .merge(dashboard::assets())
        .merge(described())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        // `Bodies::read` reads bodies and enforces the limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(query_parameters::check))
        .layer(from_fn_with_state(Arc::clone(&state), reads_only))
        .layer(from_fn_with_state(counted, metrics::count))
        .with_state(state)
}

/// Refuses what could change something, if the server is for looking only.
async fn reads_only(Get(state): Shared, request: Request, next: Next) -> Result<Response, Problem> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_read || !state.options.read_only {
        return Ok(next.run(request).await);
    }
    let words = match state.followed {
        Some(_) => {
            "this server only follows a log that another process writes: change something there, or end that process and \
             run `fetchwise serve`"
        }
        None => {
            "this server only shows a running crawl: stop the crawl and run `fetchwise serve` to change something"
        }
    };
    Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "read_only", words))
}

async fn no_route(request: Request) -> Problem {
    let words = format!("no such route: {}; /openapi.json lists all routes", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, "no_such_route", words)
}

async fn no_method(request: Request) -> Problem {
    let words = format!(
        "{} does not support {}: /openapi.json lists the methods",
        request.uri().path(),
        request.method()
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
}
