//! The schemas of attempts as JSON: `fetchwise::attempt::json` reads and writes them field by
//! field, and these say the same.

#![expect(dead_code, reason = "only their schemas are used")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

use crate::description::Either;
use fetchwise_present::TimeJson;

/// One line of the body; docs/reference/command-line.md lists all fields that `import` reads.
#[derive(JsonSchema)]
#[schemars(rename = "Attempt", extend("additionalProperties" = true))]
pub(super) struct AttemptSchema {
    url: String,
    /// The URL that responded after redirects; the attempt counts at its host.
    final_url: Option<String>,
    fetcher: String,
    success: bool,
    /// RFC 3339, or milliseconds since 1970.
    attempted_at: Either<TimeJson, i64>,
    #[schemars(extend("format" = "uuid"))]
    id: Option<String>,
    error_type: Option<String>,
    link: Option<String>,
    is_banned: Option<bool>,
    #[schemars(range(min = 100, max = 999))]
    http_status: Option<u16>,
    duration_ms: Option<u64>,
    #[schemars(range(min = 0, max = 1))]
    weight: Option<f64>,
}

/// One attempt, with the fields of `export`; docs/reference/command-line.md explains them.
#[derive(JsonSchema)]
#[schemars(rename = "RecordedAttempt")]
pub(super) struct RecordedAttemptSchema {
    #[schemars(extend("format" = "uuid"))]
    id: String,
    link: String,
    url: String,
    fetcher: String,
    success: bool,
    is_banned: bool,
    error_type: Option<String>,
    http_status: Option<u16>,
    response_headers: BTreeMap<String, String>,
    duration_ms: u64,
    attempted_at: TimeJson,
    source: Option<String>,
    propensity: Option<f64>,
    hint: Option<String>,
    weight: f64,
    try_no: u32,
    shadow_fetcher: Option<String>,
    heuristics: Vec<RecordedHeuristic>,
    rule: Option<String>,
    confidence: Option<f64>,
    arm: Option<String>,
}

/// A heuristic of an attempt.
#[derive(JsonSchema)]
struct RecordedHeuristic {
    r#type: String,
    value: String,
    importance: Option<f32>,
}

#[test]
fn a_recorded_attempt_has_the_fields_of_an_export() {
    let schema = schemars::generate::SchemaSettings::default().for_serialize().into_generator();
    let schema = schema.into_root_schema_for::<RecordedAttemptSchema>().to_value();
    let mut names = fetchwise::attempt::json::FIELDS;
    names.sort_unstable();
    assert!(schema["properties"].as_object().unwrap().keys().eq(names), "{schema}");
    let mut required: Vec<&str> =
        schema["required"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
    required.sort_unstable();
    assert_eq!(required, names);
}
