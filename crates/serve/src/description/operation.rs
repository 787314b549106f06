//! A route's description of itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::schemas::{SchemaOf, Schemas};
use crate::auth;
use crate::problem::ProblemResponse;

/// Examples of bodies and responses, by operation: `body`, or the status.
const EXAMPLES: &str = include_str!("examples.json");
const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// A method of a route.
pub(crate) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    name: &'static str,
    described: Value,
    path_parameter: Option<&'static str>,
    query: Option<SchemaOf>,
    body: Option<Content>,
    responses: BTreeMap<u16, (&'static str, Content)>,
}

/// A body of a media type.
type Content = (&'static str, SchemaOf);

impl Operation {
    /// Creates the operation called `name`, without responses.
    pub(crate) fn new(
        method: &'static str,
        path: &'static str,
        tag: &'static str,
        name: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            method,
            path,
            name,
            described: json!({ "operationId": name, "tags": [tag], "summary": summary }),
            path_parameter: None,
            query: None,
            body: None,
            responses: BTreeMap::new(),
        }
    }

    /// Returns it with what `describe` adds.
    pub(crate) fn with(self, describe: impl FnOnce(Self) -> Self) -> Self {
        describe(self)
    }

    /// Adds a description to the summary.
    pub(crate) fn note(mut self, text: &str) -> Self {
        self.described["description"] = json!(text);
        self
    }

    /// Describes the parameter in the path.
    pub(crate) fn parameter(self, text: &'static str) -> Self {
        Self { path_parameter: Some(text), ..self }
    }

    /// Adds the fields of `T` as parameters of the query.
    pub(crate) fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(T::json_schema), ..self }
    }

    /// Adds a body of JSON.
    pub(crate) fn body<T: JsonSchema>(self) -> Self {
        Self { body: Some((JSON, |schemas| schemas.subschema_for::<T>())), ..self }
    }

    /// Adds a body of JSON lines.
    pub(crate) fn lines<T: JsonSchema>(self) -> Self {
        Self {
            body: Some(("application/x-ndjson", |schemas| schemas.subschema_for::<T>())),
            ..self
        }
    }

    /// Adds a response of JSON with the status 200.
    pub(crate) fn ok<T: JsonSchema>(self, text: &'static str) -> Self {
        self.responds::<T>(200, JSON, text)
    }

    /// Adds the status of a failure whose response is the usual problem.
    pub(crate) fn problem(self, status: u16, text: &'static str) -> Self {
        self.fails::<ProblemResponse<'_>>(status, text)
    }

    /// Adds the failure of a route that responds once attempts are in the log.
    pub(crate) fn stores_attempts(self) -> Self {
        let text = "The log cannot store the attempts now, there is no room for the body, or the server is loading; send it again";
        self.problem(503, text)
    }

    /// Adds the status of a failure.
    pub(crate) fn fails<T: JsonSchema>(self, status: u16, text: &'static str) -> Self {
        self.responds::<T>(status, PROBLEM, text)
    }

    /// Adds a response.
    pub(crate) fn responds<T: JsonSchema>(
        mut self,
        status: u16,
        media: &'static str,
        text: &'static str,
    ) -> Self {
        self.responses.insert(status, (text, (media, |schemas| schemas.subschema_for::<T>())));
        self
    }

    /// Adds the failures that have the same cause in each route, unless it describes them itself.
    fn with_usual_problems(mut self) -> Self {
        let mut usual = Vec::new();
        match auth::is_open(self.path) {
            true => self.described["security"] = json!([]),
            false => usual.extend([
                (401, "Missing or invalid token"),
                (403, "The request comes from a page of another origin"),
                (429, "Too many requests per second"),
            ]),
        }
        if self.body.is_some() {
            usual.extend([
                (400, "The body is not valid for this route"),
                (408, "The body did not arrive in time"),
                (413, "The body is larger than the limit"),
                (422, "Unknown field or query parameter"),
                (503, "There is no room for the body now, or the server is loading or stopping; retry later"),
            ]);
        } else if self.path.starts_with("/v1/") {
            usual.push((422, "Unknown query parameter"));
        }
        usual.retain(|(status, _)| !self.responses.contains_key(status));
        usual.into_iter().fold(self, |all, (status, text)| all.problem(status, text))
    }

    /// Returns it as the document has it.
    pub(super) fn into_json(self, schemas: &mut Schemas) -> Value {
        let examples: Value = serde_json::from_str(EXAMPLES).unwrap();
        let name = self.name;
        let example = |of: &str| examples[name].get(of).cloned();
        let all = self.with_usual_problems();
        let mut described = all.described;
        let parameters =
            parameters(all.path, all.path_parameter, all.query.map(|of| schemas.read(of)));
        if !parameters.is_empty() {
            described["parameters"] = json!(parameters);
        }
        if let Some((media, of)) = all.body {
            let content = json!({ media: content(schemas.read(of), example("body")) });
            described["requestBody"] = json!({ "required": true, "content": content });
        }
        for (status, (text, (media, of))) in all.responses {
            let status = status.to_string();
            let content = json!({ media: content(schemas.written(of), example(&status)) });
            described["responses"][status] = json!({ "description": text, "content": content });
        }
        described
    }
}

fn content(schema: Value, example: Option<Value>) -> Value {
    let mut content = json!({ "schema": schema });
    if let Some(example) = example {
        content["example"] = example;
    }
    content
}

/// Returns the parameters of a path, and of a query with the fields of `query`.
fn parameters(path: &str, described: Option<&str>, query: Option<Value>) -> Vec<Value> {
    let name =
        path.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(name, _)| name);
    assert_eq!(
        name.is_some(),
        described.is_some(),
        "{path}: a parameter in the path has a description"
    );
    let in_path = name.map(|name| {
        let schema = json!({ "type": "string" });
        json!({ "name": name, "in": "path", "required": true, "schema": schema, "description": described })
    });
    let query = query.unwrap_or_default();
    let in_query = query["properties"].as_object().into_iter().flatten().map(|(name, schema)| {
        let mut schema = schema.clone();
        let is_required =
            query["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
        let mut parameter = json!({ "name": name, "in": "query", "required": is_required });
        if let Some(text) = schema.as_object_mut().and_then(|schema| schema.remove("description")) {
            parameter["description"] = text;
        }
        // A query has no null.
        if let Some(kind) = schema["type"].as_array().and_then(|kinds| kinds.first()).cloned() {
            schema["type"] = kind;
        }
        parameter["schema"] = schema;
        parameter
    });
    in_path.into_iter().chain(in_query).collect()
}
