//! `POST /v1/select`: selection of a fetcher for one or many URLs.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Shared;
use crate::auth::Client;
use crate::json::ProblemJson;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::{CallerContext, ResolvedContext, wrong};
use crate::state::State;
use fetchwise::heuristic::url::parse;
use fetchwise::router::RouteError;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/select", post(select))
}

/// The field of a body that has the URLs.
#[derive(Deserialize)]
struct Urls {
    #[serde(rename = "urls")]
    _urls: IgnoredAny,
}

/// A URL with its own statements.
#[derive(Deserialize)]
struct Link {
    url: String,
}

async fn select(Get(state): Shared, Extension(client): Extension<Client>, body: Body) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let out = state.with_body(body, |state, body| decide_all(state, body)).await??;
    Ok(json_response::bytes(StatusCode::OK, out, "application/json"))
}

/// Decides about the URLs of a body, one after the other, so that one of them at a time is in memory besides the text.
fn decide_all(state: &State, body: &[u8]) -> Result<Vec<u8>, Problem> {
    let Some(urls) = request_body::items(body, "urls", state.options.max_items)?.filter(|_| is_object(body)) else {
        return Err(Problem::bad_request("the body is not valid for this route: expected an object with `urls`"));
    };
    // The statements about all URLs.
    let (Urls { .. }, said): (_, CallerContext) = request_body::parse_both(body)?;
    if said.id.is_some() {
        return Err(wrong("`id` belongs to one URL: send it in an object with that `url`"));
    }
    let all = ResolvedContext::of(&said, state)?;
    let mut out = Vec::with_capacity(64 + 256 * urls.len());
    out.push(b'[');
    for (place, item) in urls.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let text = item.get().as_bytes();
        match text.first() {
            Some(b'"') => {
                let url: String = request_body::parse(text)?;
                decide(state, &url, None, &all, &mut out);
            }
            Some(b'{') => {
                let (Link { url }, own): (_, CallerContext) = request_body::parse_both(text)?;
                let id = own.id.clone();
                match ResolvedContext::of(&own.or(&said), state) {
                    Ok(known) => decide(state, &url, id.as_deref(), &known, &mut out),
                    Err(problem) => {
                        write(&mut out, &ProblemJson::of_url(Some(&url), problem.error_type(), problem.words()));
                    }
                }
            }
            _ => {
                return Err(Problem::bad_request(
                    "the body is not valid for this route: expected a URL as text, or an object with a `url`",
                ));
            }
        }
    }
    out.push(b']');
    Ok(out)
}

fn is_object(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
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
