//! `/openapi.json` against real responses: those of every route fit the description, which names
//! all of their fields.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::server::{Response, Server, attempt, lines};

/// The description, and which of its operations were checked.
pub(crate) struct Described {
    all: Value,
    seen: BTreeSet<(String, String, String)>,
}

impl Described {
    pub(crate) fn of(server: &Server) -> Self {
        Self { all: server.get("/openapi.json").of(200), seen: BTreeSet::new() }
    }

    /// Checks a response against the description of its route.
    #[track_caller]
    pub(crate) fn check(&mut self, method: &str, path: &str, answer: &Response) {
        let status = answer.status.to_string();
        let pointer = path.replace('~', "~0").replace('/', "~1");
        let head = answer.head.to_ascii_lowercase();
        let kind =
            head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        let kind = kind.trim().replace('/', "~1");
        let at = format!("/paths/{pointer}/{method}/responses/{status}/content/{kind}/schema");
        assert!(
            self.all.pointer(&at).is_some(),
            "{method} {path} answers {status} as {kind}, which is not described: {answer:?}"
        );
        // In a reference, which is a URI, braces are percent-encoded.
        let reference = format!("#{at}").replace('{', "%7B").replace('}', "%7D");
        let schema = json!({ "$ref": reference, "paths": self.all["paths"], "components": self.all["components"] });
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let body = answer.json();
        let errors: Vec<String> = validator
            .iter_errors(&body)
            .map(|error| format!("{}: {error}", error.instance_path))
            .collect();
        assert!(errors.is_empty(), "{method} {path} {status}: {errors:#?}\n{body:#}");
        // RFC 9457.
        let is_failure = answer.status >= 400 && body.get("error_type").is_some();
        assert!(
            !is_failure || body["status"] == answer.status && body["detail"] == body["error"],
            "{body:#}"
        );
        self.names(&body, &self.all.pointer(&at).unwrap().clone(), path);
        self.seen.insert((path.to_owned(), method.to_owned(), status));
    }

    /// Returns whether the schema names every field of the value.
    #[track_caller]
    fn names(&self, value: &Value, schema: &Value, at: &str) {
        let schemas = self.open(schema);
        match value {
            Value::Array(all) => {
                for item in all {
                    let items: Vec<&Value> =
                        schemas.iter().filter_map(|schema| schema.get("items")).collect();
                    self.names(item, &json!({ "anyOf": items }), at);
                }
            }
            Value::Object(map)
                if schemas.iter().any(|schema| schema.get("properties").is_some()) =>
            {
                for (name, field) in map {
                    let known: Vec<&Value> = schemas
                        .iter()
                        .filter_map(|schema| schema["properties"].get(name))
                        .collect();
                    assert!(!known.is_empty(), "{at}: the field {name} is not described");
                    self.names(field, &json!({ "anyOf": known }), &format!("{at}/{name}"));
                }
            }
            _ => {}
        }
    }

    /// Returns the schemas that a schema may refer to.
    fn open(&self, schema: &Value) -> Vec<Value> {
        if let Some(name) = schema["$ref"].as_str() {
            return self.open(self.all.pointer(name.trim_start_matches('#')).unwrap());
        }
        match ["oneOf", "anyOf"].iter().find_map(|name| schema[*name].as_array()) {
            Some(all) => all.iter().flat_map(|schema| self.open(schema)).collect(),
            None => vec![schema.clone()],
        }
    }
}

#[test]
fn every_route_responds_as_described() {
    let server = Server::start(&["--pace", "off"]);
    let mut described = Described::of(&server);
    let mut post = |path: &str, route: &str, body: &Value| {
        let answer = server.post(path, body);
        described.check("post", route, &answer);
        answer.json()
    };
    let told: Vec<Value> =
        (0..6).map(|n| attempt(&format!("https://e.org/a/{n}"), "playwright", true)).collect();
    let blocks: Vec<Value> = (0..3)
        .map(|n| attempt(&format!("https://blocks.org/{n}"), "direct_access", false))
        .collect();
    let select = json!({ "urls": ["https://e.org/a/9", "nonsense", "https://blocks.org/", { "url": "https://f.org/", "tags": { "a": "b" } }] });
    post("/v1/select", "/v1/select", &select);
    post("/v1/select", "/v1/select", &json!({ "urls": [], "prefer": "nobody" }));
    post("/v1/select", "/v1/select", &json!([1]));
    let classify = json!({ "status": 403, "headers": { "Server": "cloudflare" }, "body": "<title>Just a moment...</title> Access denied", "explain": true });
    post("/v1/classify", "/v1/classify", &classify);
    post("/v1/classify", "/v1/classify", &json!({}));
    let visit = post("/v1/visits", "/v1/visits", &json!({ "url": "https://g.org/" }));
    let id = visit["visit"].as_str().unwrap().to_owned();
    post("/v1/visits", "/v1/visits", &json!([{ "url": "https://h.org/" }, { "url": "no" }]));
    post("/v1/visits", "/v1/visits", &json!({ "url": "no" }));
    post(&format!("/v1/visits/{id}/next"), "/v1/visits/{id}/next", &json!({}));
    let report = format!("/v1/visits/{id}/report");
    post(&report, "/v1/visits/{id}/report", &json!({ "outcome": "nonsense" }));
    post(&report, "/v1/visits/{id}/report", &json!({ "outcome": "content" }));
    post(&report, "/v1/visits/{id}/report", &json!({ "outcome": "content" }));
    post("/v1/visits/0/report", "/v1/visits/{id}/report", &json!({}));
    post("/v1/visits/report", "/v1/visits/report", &json!([{ "visit": id, "outcome": "content" }]));
    post("/v1/visits/report", "/v1/visits/report", &json!({}));
    // Without tokens nobody gets a signature.
    post("/v1/sign", "/v1/sign", &json!({ "requests": [{ "url": "https://e.org/" }] }));
    post("/v1/links/unpause", "/v1/links/unpause", &json!({ "link": "https://e.org/" }));
    post("/v1/mode", "/v1/mode", &json!({ "mode": "learning" }));
    post("/v1/mode", "/v1/mode", &json!({ "mode": "split" }));
    for body in [lines(&told), lines(&blocks), b"nonsense".to_vec()] {
        described.check("post", "/v1/attempts", &server.ask("POST", "/v1/attempts", &body));
    }
    for (path, route) in [
        ("/v1/explain?url=https%3A%2F%2Fe.org%2Fa%2F9", "/v1/explain"),
        ("/v1/explain", "/v1/explain"),
        ("/v1/explain?url=no", "/v1/explain"),
        ("/v1/stats?by=domain", "/v1/stats"),
        ("/v1/stats?by=nothing", "/v1/stats"),
        ("/v1/ban-rate?domain=blocks.org", "/v1/ban-rate"),
        ("/v1/ban-rate", "/v1/ban-rate"),
        ("/v1/ban-rate?domain=%20", "/v1/ban-rate"),
        ("/v1/attempts?limit=2", "/v1/attempts"),
        ("/v1/attempts?outcome=blokced", "/v1/attempts"),
        ("/v1/hosts", "/v1/hosts"),
        ("/v1/hosts?state=x", "/v1/hosts"),
        ("/v1/links", "/v1/links"),
        ("/v1/links?state=x", "/v1/links"),
        ("/v1/mode", "/v1/mode"),
        ("/v1/dashboard", "/v1/dashboard"),
        ("/v1/dashboard/domain?domain=blocks.org", "/v1/dashboard/domain"),
        ("/v1/dashboard/domain", "/v1/dashboard/domain"),
        ("/v1/dashboard/domain?domain=e.org&range=weak", "/v1/dashboard/domain"),
        ("/v1/rollout", "/v1/rollout"),
        ("/v1/visits/0", "/v1/visits/{id}"),
        ("/v1/visits", "/v1/visits"),
        ("/healthz", "/healthz"),
        ("/readyz", "/readyz"),
        ("/openapi.json", "/openapi.json"),
    ] {
        described.check("get", route, &server.get(path));
    }
    let other = server.post("/v1/visits", &json!({ "url": "https://i.org/" })).of(201);
    let path = format!("/v1/visits/{}", other["visit"].as_str().unwrap());
    described.check("get", "/v1/visits/{id}", &server.get(&path));
    described.check("delete", "/v1/visits/{id}", &server.ask("DELETE", &path, b""));
    described.check("delete", "/v1/visits/{id}", &server.ask("DELETE", &path, b""));
    described.check(
        "post",
        "/v1/hosts/{domain}/unpause",
        &server.ask("POST", "/v1/hosts/blocks.org/unpause", b""),
    );
    described.check(
        "post",
        "/v1/forget",
        &server.post("/v1/forget", &json!({ "domain": "e.org" })),
    );
    described.check("post", "/v1/forget", &server.post("/v1/forget", &json!({})));
    for (path, methods) in described.all["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let is_seen = described.seen.iter().any(|(seen, by, _)| seen == path && by == method);
            // The Prometheus metrics and the dashboard are not JSON and have separate tests.
            assert!(
                is_seen || ["/metrics", "/"].contains(&path.as_str()),
                "{method} {path} was not tried"
            );
        }
    }
}

/// Programs are generated from it: every operation has a name, a subject and examples that fit.
#[test]
fn every_operation_has_a_name_a_tag_and_examples() {
    let all: Value = serde_json::from_str(include_str!("../../../../serve/openapi.json")).unwrap();
    let tags: BTreeSet<&str> =
        all["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    let mut names = BTreeSet::new();
    for (path, methods) in all["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let at = format!("{method} {path}");
            let name = operation["operationId"]
                .as_str()
                .unwrap_or_else(|| panic!("{at} has no operationId"));
            assert!(names.insert(name.to_owned()), "two operations are called {name}");
            let tag = operation["tags"][0].as_str().unwrap_or_default();
            assert!(tags.contains(tag), "{at}: unknown tag {tag:?}");
            let ended_well = operation["responses"]
                .as_object()
                .unwrap()
                .iter()
                .filter(|(status, _)| status.starts_with('2'));
            let responses: Vec<&Value> = ended_well.flat_map(|(_, said)| contents(said)).collect();
            assert!(
                responses.iter().any(|content| content.get("example").is_some()),
                "{at}: no example of a response"
            );
            let requests = contents(&operation["requestBody"]);
            assert!(
                requests.iter().all(|content| content.get("example").is_some()),
                "{at}: no example of a body"
            );
            for content in responses.into_iter().chain(requests) {
                let Some(example) = content.get("example").filter(|example| !example.is_string())
                else {
                    continue;
                };
                let mut schema = content["schema"].clone();
                schema["components"] = all["components"].clone();
                let validator = jsonschema::draft202012::new(&schema).unwrap();
                let errors: Vec<String> =
                    validator.iter_errors(example).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{at}: {errors:#?}");
            }
        }
    }
}

/// Returns the contents of a response or of a request body.
fn contents(of: &Value) -> Vec<&Value> {
    of["content"].as_object().map(|kinds| kinds.values().collect()).unwrap_or_default()
}

#[test]
fn every_described_schema_is_used() {
    let server = Server::start(&[]);
    let described = Described::of(&server);
    assert_eq!(described.all["openapi"], "3.1.0");
    for (path, methods) in described.all["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{id}", "0").replace("{domain}", "e.org");
            let answer = server.ask(&method.to_ascii_uppercase(), &path, b"{}");
            let is_missing = answer.status == 405 || answer.body.contains("no_such_route");
            assert!(!is_missing, "{method} {path}: {answer:?}");
        }
    }
}
