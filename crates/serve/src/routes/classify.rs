//! `POST /v1/classify`: classification of a response that the caller fetched.

#[cfg(test)]
use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::Shared;
use crate::auth::Client;
#[cfg(test)]
use crate::description::Either;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body::{self, AnyJson};
use crate::routes::decision_context::wrong;
use fetchwise::detect::Scratch;
use fetchwise::response::{Header, Page};
use fetchwise_present::{VerdictJson, headers};

described_routes![(
    "/v1/classify",
    post(classify),
    attempts("classifyResponse", "Classify a response that the caller fetched"),
    |of| of
        .body::<ResponseParts>()
        .ok::<VerdictJson>("The verdict")
        .problem(422, "Missing body, or two bodies")
)];

/// Headers as [`headers`] reads them.
#[cfg(test)]
pub(super) type HeadersSchema =
    Either<BTreeMap<String, Either<String, Vec<String>>>, Vec<[String; 2]>>;

/// A response to classify.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Response"))]
pub(super) struct ResponseParts {
    #[serde(default)]
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) final_url: Option<String>,
    #[serde(default)]
    #[cfg_attr(test, schemars(range(min = 100, max = 999)))]
    pub(super) status: Option<u16>,
    /// An object of names and values (a value may be a list), or a list of pairs of name and value.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Option<HeadersSchema>"))]
    pub(super) headers: AnyJson,
    #[serde(default)]
    pub(super) body: Option<String>,
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("contentEncoding" = "base64")))]
    pub(super) body_base64: Option<String>,
    /// Whether to list all rules that matched.
    #[serde(default)]
    explain: bool,
}

impl ResponseParts {
    /// Creates a response from headers and a body alone.
    pub(super) fn of(headers: AnyJson, body: Option<String>, body_base64: Option<String>) -> Self {
        Self {
            url: None,
            final_url: None,
            status: None,
            headers,
            body,
            body_base64,
            explain: false,
        }
    }

    /// Returns the body as bytes.
    ///
    /// # Errors
    /// 422 if there are two bodies, or `body_base64` is not valid base64.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Problem> {
        match (self.body.take(), self.body_base64.take()) {
            (Some(_), Some(_)) => {
                Err(wrong("duplicate body: send a `body` or a `body_base64`, not both"))
            }
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(text)) => BASE64_STANDARD
                .decode(text.trim())
                .map_err(|error| wrong(format!("`body_base64` is not valid base64: {error}"))),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Returns the headers.
    ///
    /// # Errors
    /// 422 if they are neither an object nor a list of pairs.
    pub(super) fn headers(&mut self) -> Result<Vec<Header>, Problem> {
        headers(self.headers.0.take()).ok_or_else(|| {
            wrong(
                "`headers` must be an object of names and values, or a list of [name, value] pairs",
            )
        })
    }

    /// Returns the status, 200 by default.
    ///
    /// # Errors
    /// 422 if it is not a valid status.
    pub(super) fn status(&self) -> Result<u16, Problem> {
        match self.status {
            None => Ok(200),
            Some(status @ 100..=999) => Ok(status),
            Some(other) => Err(wrong(format!("invalid status {other}: expected 100 to 999"))),
        }
    }
}

async fn classify(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    // A long page takes milliseconds.
    let read = state.run_blocking(move |state| {
        let mut given: ResponseParts = request_body::parse(&body)?;
        if given.body.is_none() && given.body_base64.is_none() {
            return Err(wrong("missing body: send a `body` or a `body_base64`"));
        }
        let (headers, body, status) = (given.headers()?, given.bytes()?, given.status()?);
        let (url, final_url) = (given.url.as_deref(), given.final_url.as_deref());
        let page = Page { url, final_url, status, headers: &headers, body: &body };
        Ok(json_response::json(&VerdictJson::read(
            &state.classifier,
            &page,
            given.explain,
            &mut Scratch::default(),
        )))
    });
    read.await?
}
