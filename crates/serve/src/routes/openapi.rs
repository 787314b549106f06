//! `GET /openapi.json`: the description of all routes. The types in the code make it, and a test
//! compares it with real responses.

use axum::http::StatusCode;
use axum::response::Response;
#[cfg(test)]
use serde_json::{Map, Value};

use crate::json_response;

pub(super) const DESCRIPTION: &str = include_str!("../../openapi.json");

described_routes![(
    "/openapi.json",
    get(description),
    server("getOpenApi", "Get this description"),
    |of| of.ok::<Map<String, Value>>("The description as OpenAPI 3.1")
)];

async fn description() -> Response {
    json_response::bytes(StatusCode::OK, DESCRIPTION, "application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Document;

    /// `FETCHWISE_BLESS=1` writes what differs.
    #[test]
    fn the_description_is_the_one_of_the_types() {
        let made = Document::of(crate::routes::operations());
        let known: Option<Value> = serde_json::from_str(DESCRIPTION).ok();
        let is_same = known.as_ref() == serde_json::to_value(&made).ok().as_ref();
        if !is_same && std::env::var_os("FETCHWISE_BLESS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json"), made.text())
                .unwrap();
            return;
        }
        let text = made.text();
        let first = text.lines().zip(DESCRIPTION.lines()).find(|(made, known)| made != known);
        assert!(
            is_same,
            "crates/serve/openapi.json differs from the types: FETCHWISE_BLESS=1 writes it. First: {first:?}"
        );
    }
}
