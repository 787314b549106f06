//! The extractors of the query and the path. They refuse an invalid value with a problem.
//!
//! Invariant: no route responds with the plain text of axum's own extractors.
//!
//! Must not know: which parameters a route has. `query_parameters` checks their names.

use std::error::Error as _;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::decision_context::wrong;
use crate::problem::Problem;

/// The parsed query of a request.
pub(super) struct Query<T>(pub(super) T);

/// The parsed parameters of a request's path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let extract::Query(value) =
            extract::Query::try_from_uri(&parts.uri).map_err(|error| invalid_query(&error))?;
        Ok(Self(value))
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let extracted = extract::Path::from_request_parts(parts, state).await;
        let extract::Path(value) = extracted.map_err(|error| invalid_path(&error))?;
        Ok(Self(value))
    }
}

fn invalid_query(error: &QueryRejection) -> Problem {
    // The source is the parser's error, which names the parameter.
    wrong(format!(
        "invalid query: {}",
        error.source().map_or_else(|| error.body_text(), ToString::to_string)
    ))
}

fn invalid_path(error: &PathRejection) -> Problem {
    wrong(format!("invalid path: {}", error.body_text()))
}
