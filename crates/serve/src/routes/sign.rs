//! `POST /v1/sign`: signatures of requests that the caller makes.
//!
//! Invariants: nobody gets a signature without a token, whatever the address is.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::auth::Client;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::wrong;
use crate::signing::{RequestSigner, SignatureHeaders, Unsigned};
use crate::state::State;
use fetchwise::heuristic::url::parse;

/// The largest number of requests in one call.
const MAX_REQUESTS: usize = 1000;
/// The longest method.
const MAX_METHOD: usize = 32;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/sign", post(sign))
}

/// A request to sign.
#[derive(Debug, Deserialize)]
struct ToSign {
    url: String,
    /// GET by default.
    #[serde(default)]
    method: Option<String>,
}

#[derive(Debug, Serialize)]
struct SignJson {
    requests: Vec<SignedJson>,
}

#[derive(Debug, Serialize)]
struct SignedJson {
    headers: SignatureHeaders,
}

async fn sign(Get(state): Shared, Extension(client): Extension<Client>, body: Body) -> Result<Response, Problem> {
    if !matches!(client, Client::Token(_)) {
        let words = "missing token: signatures are for clients with a token only";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", words));
    }
    let Some(signer) = state.signer().map(Arc::clone) else {
        let words = "this server signs no requests: start it with --sign";
        return Err(Problem::new(StatusCode::NOT_FOUND, "signing_off", words));
    };
    let body = state.bodies.read(client, body).await?;
    // A signature takes some 30 microseconds.
    let signed = state.run_blocking(move |_| sign_all(&*signer, &body)).await??;
    Ok(json_response::json(&SignJson { requests: signed }))
}

fn sign_all(signer: &dyn RequestSigner, body: &[u8]) -> Result<Vec<SignedJson>, Problem> {
    let items = request_body::items(body, "requests", MAX_REQUESTS)?
        .ok_or_else(|| wrong("missing `requests`: send a list of objects with `url` and `method`"))?;
    request_body::known_fields(body, &[&["requests"]])?;
    let signed = items.into_iter().map(|item| {
        let ToSign { url, method } = request_body::parse(item.get().as_bytes()).map_err(|problem| {
            // The body as a whole is valid.
            if problem.error_type() == "bad_request" { wrong(problem.words()) } else { problem }
        })?;
        let invalid = |words: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_url", words);
        let url = parse(url.trim()).map_err(|error| invalid(error.to_string()))?;
        let method = method.as_deref().unwrap_or("GET");
        if !is_method(method) {
            return Err(wrong(format!("{method:?} is not a valid method")));
        }
        match signer.sign(method, &url) {
            Ok(headers) => Ok(SignedJson { headers }),
            Err(Unsigned::Request(words)) => Err(invalid(format!("{url} is not signed: {words}"))),
            Err(Unsigned::Now(words)) => Err(Problem::unavailable("cannot_sign", words)),
        }
    });
    signed.collect()
}

/// Returns whether `text` is a token of HTTP.
fn is_method(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_!#$%&'*+.^`|~".contains(&byte);
    (1..=MAX_METHOD).contains(&text.len()) && text.bytes().all(is_token)
}
