//! `GET` and `POST /v1/mode`: the decision mode (evidence or router table), read and changed while
//! the server runs.

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::auth::Client;
use crate::event_marks::EventKind;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::router::Mode;
use fetchwise::unknown_name::UnknownName;
use fetchwise_present::TimeJson;

described_routes![
    ("/v1/mode", get(mode), server("getMode", "Get the decision mode"), |of| {
        of.ok::<ModeJson>("The mode, the share of learned decisions and the router table")
    }),
    (
        "/v1/mode",
        post(change),
        server("setMode", "Change the decision mode while the server runs"),
        |of| {
            of.body::<ModeChange>()
                .ok::<ModeJson>("The mode after the change")
                .problem(422, "Unknown mode, or the mode needs a router table")
        }
    ),
];

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Mode"))]
struct ModeJson {
    #[cfg_attr(test, schemars(extend("enum" = <Mode as strum::VariantNames>::VARIANTS)))]
    mode: &'static str,
    split_share: f64,
    /// Domains in the router table.
    routes: usize,
    /// Since when and why learning is off; null if it is on.
    fallen_back: Option<FallBackJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Fallback"))]
struct FallBackJson {
    at: TimeJson,
    from: &'static str,
    split_share: f64,
    reason: String,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ModeChange"))]
struct ModeChange {
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("enum" = <Mode as strum::VariantNames>::VARIANTS)))]
    mode: Option<String>,
    #[serde(default)]
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    split_share: Option<f64>,
    /// Whether to turn learning on again after a rollback to the router table.
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
            at: of.at.into(),
            from: of.from.name(),
            split_share: of.split_share,
            reason: of.reason.clone(),
        }),
    })
}

async fn change(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let change_request: ModeChange =
        state.with_body(body, |_, body| request_body::parse(body)).await??;
    if change_request.mode.is_none()
        && change_request.split_share.is_none()
        && !change_request.resume
    {
        return Err(wrong("nothing to change: send a `mode`, a `split_share`, or `resume`"));
    }
    let mut router = (*state.selector.router()).clone();
    if let Some(name) = &change_request.mode {
        router.mode =
            name.parse::<Mode>().map_err(|error: UnknownName| wrong(error.to_string()))?;
    }
    router.split_share = change_request.split_share.unwrap_or(router.split_share);
    state.selector.set_router(router).map_err(|error| wrong(error.to_string()))?;
    if change_request.resume {
        resume(&state)?;
    }
    let text = format!("mode {}", state.selector.router().mode);
    state.attempts.marks().add(state.selector.clock().date(), EventKind::Reloaded, &text);
    Ok(mode(Get(state)).await)
}

/// Turns learning on again. If the automatic rollback turned it off, it is reset, because it would
/// turn learning off again.
fn resume(state: &State) -> Result<(), Problem> {
    match &state.guard {
        None => state.selector.resume(),
        Some(guard) => {
            guard.resume(&state.selector).map_err(|error| {
                Problem::internal(format!("learning is on only until the server stops: {error}"))
            })?;
        }
    }
    Ok(())
}
