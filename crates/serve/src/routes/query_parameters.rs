//! The check of query parameters: a route of the API takes those that its description names, and
//! refuses others.
//!
//! Owns: which parameters each operation has, read from the description. So no route takes one that
//! is not described.
//!
//! Must not know: values. The routes check them.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;

use super::openapi::DESCRIPTION;
use crate::problem::Problem;
use fetchwise::unknown_name::UnknownName;

/// Only these routes are checked: probes and scrapers add parameters to the others.
const CHECKED: &str = "/v1/";

/// The part of the description that lists parameters.
#[derive(Deserialize)]
struct Description<'a> {
    #[serde(borrow)]
    paths: HashMap<&'a str, HashMap<&'a str, Operation<'a>>>,
}

#[derive(Deserialize)]
struct Operation<'a> {
    #[serde(borrow, default)]
    parameters: Vec<Parameter<'a>>,
}

#[derive(Deserialize)]
struct Parameter<'a> {
    name: &'a str,
    #[serde(rename = "in")]
    place: &'a str,
}

static DESCRIBED: LazyLock<Option<Description<'static>>> =
    LazyLock::new(|| serde_json::from_str(DESCRIPTION).ok());

/// Refuses a request with a query parameter that its operation does not have.
pub(super) async fn check(request: Request, next: Next) -> Result<Response, Problem> {
    let query = request.uri().query().unwrap_or_default();
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if !query.is_empty()
        && let Some(known) = route.and_then(|route| parameters(route, request.method()))
    {
        refuse_unknown(query, &known)?;
    }
    Ok(next.run(request).await)
}

/// Returns the names of an operation's parameters; none if the description does not list the
/// operation.
fn parameters(route: &str, method: &Method) -> Option<Vec<&'static str>> {
    let operations = DESCRIBED.as_ref()?.paths.get(route).filter(|_| route.starts_with(CHECKED))?;
    let method = if method == Method::HEAD {
        "get".to_owned()
    } else {
        method.as_str().to_ascii_lowercase()
    };
    let operation = operations.get(method.as_str())?;
    Some(
        operation
            .parameters
            .iter()
            .filter(|one| one.place == "query")
            .map(|one| one.name)
            .collect(),
    )
}

fn refuse_unknown(query: &str, known: &[&'static str]) -> Result<(), Problem> {
    let mut names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
    let Some(unknown) = names.find(|name| !known.contains(&&**name)) else { return Ok(()) };
    let shown: String = unknown.chars().take(100).collect();
    let words = UnknownName::new("query parameter", &shown, known.iter().copied()).to_string();
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_parameter", words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_lists_the_parameters() {
        assert_eq!(parameters("/v1/stats", &Method::GET), Some(vec!["by", "limit"]));
        assert_eq!(parameters("/v1/stats", &Method::HEAD), parameters("/v1/stats", &Method::GET));
        assert_eq!(parameters("/v1/mode", &Method::GET), Some(vec![]));
        assert_eq!(parameters("/metrics", &Method::GET), None);
        assert_eq!(parameters("/v1/stats", &Method::DELETE), None);
    }

    #[test]
    fn an_unknown_parameter_is_refused_with_the_nearest_one() {
        let error = refuse_unknown("by=domain&limt=7", &["by", "limit"]).unwrap_err();
        assert_eq!(
            error.words(),
            "unknown query parameter \"limt\"; did you mean \"limit\"? expected by or limit"
        );
        assert!(refuse_unknown("by=domain&limit=7", &["by", "limit"]).is_ok());
        assert!(refuse_unknown("a", &[]).unwrap_err().words().ends_with("none is known"));
    }
}
