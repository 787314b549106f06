//! `GET` and `POST /v1/mode`: who decides, evidence or the router table, looked at and changed while the server runs.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State as Get;
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::rfc3339;
use fetchwise::router::Mode;
use fetchwise::unknown_name::UnknownName;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/mode", get(mode).post(change))
}

#[derive(Serialize)]
struct ModeJson {
    mode: &'static str,
    split_share: f64,
    /// Domains in the router table.
    routes: usize,
    /// Since when and why learning is out of service; null where it is not.
    fallen_back: Option<FallBackJson>,
}

#[derive(Serialize)]
struct FallBackJson {
    at: String,
    from: &'static str,
    split_share: f64,
    reason: String,
}

#[derive(Deserialize)]
struct Wish {
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    split_share: Option<f64>,
    /// Puts learning back into service after a fall-back.
    #[serde(default)]
    resume: bool,
}

async fn mode(Get(state): Shared) -> Response {
    let router = state.selector.router();
    json_response::json(&ModeJson {
        mode: router.mode.name(),
        split_share: router.split_share,
        routes: router.table.len(),
        fallen_back: state.selector.fallen_back().map(|of| FallBackJson {
            at: rfc3339::format(of.at),
            from: of.from.name(),
            split_share: of.split_share,
            reason: of.reason.clone(),
        }),
    })
}

async fn change(Get(state): Shared, body: Body) -> Result<Response, Problem> {
    let body = request_body::read(body, state.options.max_body, state.options.body_time).await?;
    let wish: Wish = request_body::parse(&body)?;
    if wish.mode.is_none() && wish.split_share.is_none() && !wish.resume {
        return Err(wrong("nothing to change: send a `mode`, a `split_share`, or `resume`"));
    }
    let mut router = (*state.selector.router()).clone();
    if let Some(name) = &wish.mode {
        router.mode = name.parse::<Mode>().map_err(|error: UnknownName| wrong(error.to_string()))?;
    }
    router.split_share = wish.split_share.unwrap_or(router.split_share);
    state.selector.set_router(router).map_err(|error| wrong(error.to_string()))?;
    if wish.resume {
        resume(&state)?;
    }
    Ok(mode(Get(state)).await)
}

/// Puts learning back into service. Where a guard has taken it out, the guard is told: it would do so again otherwise.
fn resume(state: &State) -> Result<(), Problem> {
    match &state.guard {
        None => state.selector.resume(),
        Some(guard) => {
            guard.resume(&state.selector).map_err(|error| {
                Problem::internal(format!("learning is back in service until the server ends, and not longer: {error}"))
            })?;
        }
    }
    Ok(())
}
