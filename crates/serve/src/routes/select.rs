//! `POST /v1/select`: selection of a fetcher for one or many URLs.

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde::de::IgnoredAny;
use url::Url;

use super::Shared;
use crate::auth::Client;
#[cfg(test)]
use crate::description::{Both, Either};
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::{CallerContext, ResolvedContext};
use crate::state::State;
use fetchwise::heuristic::url::{UrlError, parse};
use fetchwise::router::RouteError;
use fetchwise::selector::Selector;
#[cfg(test)]
use fetchwise_present::DecisionJson;
use fetchwise_present::ProblemJson;

described_routes![(
    "/v1/select",
    post(select),
    decisions("selectFetchers", "Select a fetcher for each URL"),
    |of| {
        of.note(
        "Send many URLs in one request: the server requests the evidence of 16 of them from memory before it decides \
         the first.",
    )
    .body::<Both<Urls, CallerContext>>()
    .ok::<Vec<Either<DecisionJson<'_>, ProblemJson<'_>>>>("One decision or error per URL, in the order of the request")
    .problem(422, "Unknown name or invalid tag")
    }
)];

/// The URLs to select fetchers for, with statements about all of them.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Select"))]
struct Urls {
    /// URLs, or objects with a URL and its own statements, which come before those about all.
    #[serde(rename = "urls")]
    #[cfg_attr(test, schemars(with = "Vec<Either<String, Both<Link, CallerContext>>>"))]
    _urls: IgnoredAny,
}

/// A URL with its own statements.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SelectUrl"))]
struct Link {
    url: String,
    /// The caller's id for the link, to which pauses apply; default: the URL.
    #[serde(default)]
    id: Option<String>,
}

async fn select(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let out = state.with_body(body, |state, body| decide_all(state, body)).await??;
    Ok(json_response::bytes(StatusCode::OK, out, "application/json"))
}

/// One item of the body, read.
struct Asked {
    text: String,
    url: Result<Url, UrlError>,
    id: Option<String>,
    /// The item's own context; `Ok(None)` for that of all.
    own: Result<Option<ResolvedContext>, Problem>,
}

/// Decides about the URLs of a body in groups, so that only few of them are in memory besides the
/// text.
fn decide_all(state: &State, body: &[u8]) -> Result<Vec<u8>, Problem> {
    let Some(urls) =
        request_body::items(body, "urls", state.options.max_items)?.filter(|_| is_object(body))
    else {
        return Err(Problem::bad_request(
            "the body is not valid for this route: expected an object with `urls`",
        ));
    };
    // The statements about all URLs.
    let (Urls { .. }, said): (_, CallerContext) = request_body::parse_both(body)?;
    let all = ResolvedContext::of(&said, state)?;
    let mut out = Vec::with_capacity(64 + 256 * urls.len());
    out.push(b'[');
    for group in urls.chunks(Selector::PREFETCHED) {
        let mut read = Vec::with_capacity(group.len());
        for item in group {
            read.push(asked(state, item.get().as_bytes(), &said)?);
        }
        state.selector.prefetch(read.iter().filter_map(|asked| asked.url.as_ref().ok()));
        for asked in read {
            if out.len() > 1 {
                out.push(b',');
            }
            decide(state, asked, &all, &mut out);
        }
    }
    out.push(b']');
    Ok(out)
}

/// Reads one item: a URL as text, or an object with a URL and its own statements.
fn asked(state: &State, item: &[u8], said: &CallerContext) -> Result<Asked, Problem> {
    let (text, id, own) = match item.first() {
        Some(b'"') => (request_body::parse(item)?, None, Ok(None)),
        Some(b'{') => {
            let (Link { url, id }, own): (_, CallerContext) = request_body::parse_both(item)?;
            (url, id, ResolvedContext::of(&own.or(said), state).map(Some))
        }
        _ => {
            return Err(Problem::bad_request(
                "the body is not valid for this route: expected a URL as text, or an object with a `url`",
            ));
        }
    };
    Ok(Asked { url: parse(text.trim()), text, id, own })
}

fn is_object(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
}

fn decide(state: &State, asked: Asked, all: &ResolvedContext, out: &mut Vec<u8>) {
    let Asked { text, url, id, own } = asked;
    let known = match &own {
        Ok(own) => own.as_ref().unwrap_or(all),
        Err(problem) => {
            return write(
                out,
                &ProblemJson::of_url(Some(&text), problem.error_type(), problem.words()),
            );
        }
    };
    match url.map_err(RouteError::from).and_then(|url| known.decide(id.as_deref(), &url, state)) {
        Ok(decided) => write(out, &known.json(&text, &decided, state)),
        Err(error) => write(out, &ProblemJson::of_route(&text, &error)),
    }
}

fn write(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}
