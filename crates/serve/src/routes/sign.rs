//! `POST /v1/sign`: signatures of requests that the caller makes.
//!
//! Invariants: nobody gets a signature without a token, whatever the address is.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::auth::Client;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::wrong;
#[cfg(test)]
use crate::signing::SignatureHeadersSchema;
use crate::signing::{RequestSigner, SignatureHeaders, Unsigned};
use fetchwise::heuristic::url::parse;

/// The largest number of requests in one call.
const MAX_REQUESTS: usize = 1000;
/// The longest method.
const MAX_METHOD: usize = 32;

described_routes![(
    "/v1/sign",
    post(sign),
    visits("signRequests", "Sign requests that the caller makes"),
    |of| {
        of.note("Returns the headers of one Web Bot Auth signature for each request. A signature is for one request: each redirect and each repetition needs a separate one. It is valid for a minute.")
                .body::<SignBody>()
                .ok::<SignJson>("The headers of each request, in the order of the requests")
                .problem(401, "Missing or invalid token. A server without tokens signs nothing, also for this machine")
                .problem(404, "The server signs no requests: it runs without --sign")
                .problem(
                    422,
                    "A URL that is not signed, such as plain http; an invalid method; or more than 1,000 requests",
                )
                .problem(
                    503,
                    "Nothing can be signed now: no key is valid, or the clock is wrong; or the server is loading or stopping; \
                     retry later",
                )
    }
)];

/// The body.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "Sign")]
#[expect(dead_code, reason = "only its schema is used")]
struct SignBody {
    #[schemars(length(max = MAX_REQUESTS))]
    requests: Vec<ToSign>,
}

/// A request to sign.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RequestToSign"))]
struct ToSign {
    /// An https URL.
    url: String,
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("default" = "GET")))]
    method: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Signed"))]
struct SignJson {
    requests: Vec<SignedJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SignedRequest"))]
struct SignedJson {
    #[cfg_attr(test, schemars(with = "SignatureHeadersSchema"))]
    headers: SignatureHeaders,
}

async fn sign(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
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
    let items = request_body::items(body, "requests", MAX_REQUESTS)?.ok_or_else(|| {
        wrong("missing `requests`: send a list of objects with `url` and `method`")
    })?;
    request_body::known_fields(body, &[&["requests"]])?;
    let signed = items.into_iter().map(|item| {
        let ToSign { url, method } =
            request_body::parse(item.get().as_bytes()).map_err(|problem| {
                // The body as a whole is valid.
                if problem.error_type() == "bad_request" { wrong(problem.words()) } else { problem }
            })?;
        let invalid =
            |words: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_url", words);
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
