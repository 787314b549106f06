//! The OpenAPI description, made from the types that the routes read and write.
//!
//! Owns: the form of the document, and the responses that every route has.
//!
//! Invariants: each schema is the one of a type, and each name belongs to one schema. An object of
//! a request has no other fields than those of its type, as `request_body` parses it.
//!
//! Must not know: which routes there are. Each describes itself, as an [`Operation`].

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use schemas::Schemas;

mod operation;
mod schemas;

pub(crate) use operation::Operation;

// One of two types. A doc comment would be its description.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum Either<A, B> {
    A(A),
    B(B),
}

// An object with the fields of two types, as `request_body::parse_both` reads it. It has the name
// of the first one, and its description.
#[derive(JsonSchema)]
#[schemars(rename = "{A}")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Both<A, B> {
    #[schemars(flatten)]
    a: A,
    #[schemars(flatten)]
    b: B,
}

/// The document.
#[derive(Serialize)]
pub(crate) struct Document {
    openapi: &'static str,
    #[serde(rename = "x-generated")]
    generated: &'static str,
    info: Value,
    servers: Value,
    security: Value,
    tags: Value,
    paths: Value,
    components: Value,
}

impl Document {
    /// Creates the document of `operations`.
    pub(crate) fn of(operations: Vec<Operation>) -> Self {
        let mut schemas = Schemas::default();
        let mut paths = json!({});
        for operation in operations {
            let (path, method) = (operation.path, operation.method);
            paths[path][method] = operation.into_json(&mut schemas);
        }
        Self {
            openapi: "3.1.0",
            generated: "from the types of the code, by FETCHWISE_BLESS=1 cargo test -p fetchwise-serve description",
            info: json!({
                "title": "fetchwise",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Chooses a fetcher for each URL and learns from every attempt: decisions, attempts, visits and \
                    figures. Bodies match the `--json` output of the commands. Releases add fields and never remove or rename them.",
                "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            }),
            servers: json!([{ "url": "/" }]),
            security: json!([{ "bearer": [] }]),
            tags: json!([
                { "name": "decisions", "description": "Choose fetchers, and explain the choice" },
                { "name": "visits", "description": "Fetch a link step by step: which fetcher, when, and what after its result" },
                { "name": "attempts", "description": "Record and list attempts, and classify responses" },
                { "name": "hosts", "description": "Pauses of hosts and links" },
                { "name": "figures", "description": "Statistics, dashboard and metrics" },
                { "name": "server", "description": "State of the server" },
            ]),
            paths,
            components: json!({
                "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
                "schemas": schemas.into_components(),
            }),
        }
    }

    /// Returns it as text, indented.
    pub(crate) fn text(&self) -> String {
        let mut out = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(b" ");
        self.serialize(&mut serde_json::Serializer::with_formatter(&mut out, format)).unwrap();
        String::from_utf8(out).unwrap() + "\n"
    }
}
