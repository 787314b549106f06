//! `POST /v1/select`: selection of a fetcher for one or many URLs.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State as Get;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;

use super::Shared;
use crate::json::ProblemJson;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::{CallerContext, ResolvedContext, wrong};
use crate::state::State;
use fetchwise::heuristic::url::parse;
use fetchwise::router::RouteError;

/// The number of decisions before other tasks get a turn: some hundred microseconds of work.
const IN_A_ROW: usize = 128;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/select", post(select))
}

#[derive(Deserialize)]
struct SelectRequest {
    urls: Vec<Item>,
    /// The statements about all URLs.
    #[serde(flatten)]
    said: CallerContext,
}

/// A URL, or a URL with its own statements.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a URL as text, or an object with a `url`")]
enum Item {
    Url(String),
    Link {
        url: String,
        #[serde(flatten)]
        said: CallerContext,
    },
}

async fn select(Get(state): Shared, body: Body) -> Result<Response, Problem> {
    let body = request_body::read(body, state.options.max_body, state.options.body_time).await?;
    let asked: SelectRequest = request_body::parse(&body)?;
    if asked.urls.len() > state.options.max_items {
        return Err(wrong(format!(
            "too many URLs in one call: {}, at most {}",
            asked.urls.len(),
            state.options.max_items
        )));
    }
    let all = ResolvedContext::of(&asked.said, &state)?;
    let mut out = Vec::with_capacity(64 + 256 * asked.urls.len());
    out.push(b'[');
    for (place, item) in asked.urls.iter().enumerate() {
        if place > 0 {
            out.push(b',');
            if place % IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
        match item {
            Item::Url(url) => decide(&state, url, None, &all, &mut out),
            Item::Link { url, said } => match ResolvedContext::of(&said.clone().or(&asked.said), &state) {
                Ok(known) => decide(&state, url, said.id.as_deref(), &known, &mut out),
                Err(problem) => write(&mut out, &ProblemJson::of_url(Some(url), problem.error_type(), problem.words())),
            },
        }
    }
    out.push(b']');
    Ok(json_response::bytes(StatusCode::OK, out, "application/json"))
}

fn decide(state: &State, text: &str, id: Option<&str>, known: &ResolvedContext, out: &mut Vec<u8>) {
    let decided = parse(text.trim()).map_err(RouteError::from).and_then(|url| known.decide(id, &url, state));
    match decided {
        Ok(decided) => write(out, &known.json(text, &decided, state)),
        Err(error) => write(out, &ProblemJson::of_route(text, &error)),
    }
}

fn write(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}
