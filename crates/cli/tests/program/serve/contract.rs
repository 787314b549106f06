//! Responses of the server have the fields and values of the commands' `--json`.

use serde_json::{Value, json};

use super::server::{Response, Server, attempt, lines};

fn taught() -> Server {
    let server = Server::start(&[]);
    let mut all: Vec<Value> =
        (0..12).map(|n| attempt(&format!("https://e.org/docs/{n}"), "playwright", true)).collect();
    all.extend((0..12).map(|n| {
        let mut one = attempt(&format!("https://e.org/docs/{n}"), "direct_access", false);
        if n > 0 {
            one["error_type"] = json!("wrong_tool");
        }
        one
    }));
    all.extend(
        (0..3).map(|n| attempt(&format!("https://other.net/{n}.pdf"), "direct_access", true)),
    );
    assert_eq!(server.ask("POST", "/v1/attempts", &lines(&all)).of(200)["accepted"], 27);
    server
}

#[test]
fn select_responds_like_the_command_and_in_order() {
    let server = taught();
    let urls = ["https://e.org/docs/99", "https://new.example/", "https://other.net/x.pdf"];
    let answers = server.post("/v1/select", &json!({ "urls": urls })).of(200);
    let beside = server.beside(&[&["select"], &urls[..]].concat());
    assert_eq!(answers.as_array().unwrap().len(), 3);
    for ((answer, beside), url) in answers.as_array().unwrap().iter().zip(&beside).zip(urls) {
        assert_eq!(answer["url"], url);
        for field in [
            "decision",
            "fetcher",
            "mode",
            "rule",
            "paused_until",
            "shadow_fetcher",
            "unavailable_fetcher",
        ] {
            assert_eq!(answer[field], beside[field], "{url}: {field}");
        }
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(answer), keys(beside));
    }
    assert_eq!(answers[0]["fetcher"], "playwright");
}

#[test]
fn an_invalid_url_affects_no_other_url() {
    let server = Server::start(&[]);
    let asked = json!({ "urls": ["https://e.org/", "nonsense", { "url": "https://f.org/", "tried": ["direct_access"] }, { "url": "https://g.org/", "prefer": "plawright" }] });
    let answers = server.post("/v1/select", &asked).of(200);
    assert_eq!(answers[0]["decision"], "probe");
    assert_eq!(
        (&answers[1]["success"], &answers[1]["error_type"]),
        (&json!(false), &json!("invalid_url"))
    );
    assert_eq!(answers[2]["fetcher"], "playwright");
    assert_eq!(answers[3]["error_type"], "invalid_value");
    assert!(
        answers[3]["error"].as_str().unwrap().contains("did you mean \"playwright\"?"),
        "{answers}"
    );
    assert_eq!(server.post("/v1/select", &json!({ "urls": [] })).of(200), json!([]));
}

#[test]
fn a_client_with_few_fetchers_gets_one_of_them() {
    let server = taught();
    let asked = json!({ "urls": ["https://e.org/docs/99"], "fetchers": ["direct_access"] });
    let answer = &server.post("/v1/select", &asked).of(200)[0];
    assert_eq!(
        (&answer["fetcher"], &answer["unavailable_fetcher"]),
        (&json!("direct_access"), &json!("playwright"))
    );
}

#[test]
fn a_fetcher_with_attempts_is_available() {
    let server = Server::start(&[]);
    let url = "https://e.org/a";
    let select = || {
        server.post("/v1/select", &json!({ "urls": [url], "prefer": "archive_proxy" })).of(200)[0]
            .clone()
    };
    assert_eq!(select()["unavailable_fetcher"], "archive_proxy");
    let told: Vec<Value> =
        (0..3).map(|n| attempt(&format!("https://e.org/{n}"), "archive_proxy", true)).collect();
    server.ask("POST", "/v1/attempts", &lines(&told)).of(200);
    assert_eq!(
        (select()["fetcher"].clone(), select()["unavailable_fetcher"].clone()),
        (json!("archive_proxy"), Value::Null)
    );
}

#[test]
fn explain_has_every_field_of_the_command() {
    let server = taught();
    let answer = server.get("/v1/explain?url=https%3A%2F%2Fe.org%2Fdocs%2F99").of(200);
    let beside = server.beside(&["explain", "https://e.org/docs/99"]).remove(0);
    for (field, value) in beside.as_object().unwrap() {
        assert!(answer.get(field).is_some(), "{field} is missing");
        if ["heuristics", "rule_text", "policy", "decision", "fetcher"].contains(&field.as_str()) {
            assert_eq!(&answer[field], value, "{field}");
        }
    }
    assert_eq!(
        answer["candidates"].as_array().unwrap().len(),
        beside["candidates"].as_array().unwrap().len()
    );
    assert_eq!(server.get("/v1/explain").of(400)["error_type"], "bad_request");
    assert_eq!(server.get("/v1/explain?url=nonsense").of(422)["error_type"], "invalid_url");
}

#[test]
fn figures_are_those_of_the_log() {
    let server = taught();
    for by in ["domain", "fetcher", "day", "week"] {
        let answer = server.get(&format!("/v1/stats?by={by}")).of(200);
        assert_eq!(answer.as_array().unwrap(), &server.beside(&["stats", "--by", by]), "{by}");
    }
    assert_eq!(server.get("/v1/stats").of(200).as_array().unwrap(), &server.beside(&["stats"]));
    let error = server.get("/v1/stats?by=dommain").of(422)["error"].to_string();
    assert!(error.contains("domain"), "{error}");
    let rate = server.get("/v1/ban-rate?domain=www.e.org&days=7").of(200);
    assert_eq!(rate, server.beside(&["ban-rate", "e.org", "--days", "7"]).remove(0));
    assert_eq!((&rate["attempts"], &rate["banned"]), (&json!(24), &json!(1)));
}

#[test]
fn figures_are_the_same_after_a_restart() {
    let server = taught();
    let before = server.get("/v1/stats?by=domain").of(200);
    let (dir, code, _) = server.end("-TERM");
    assert_eq!(code, Some(0));
    let server = Server::start_in(dir, &[], &[]);
    assert_eq!(server.get("/v1/stats?by=domain").of(200), before);
}

#[test]
fn classify_reads_a_body_and_never_a_path() {
    let server = Server::start(&[]);
    let page = "<html><title>Just a moment...</title><body>Checking your browser<script src='/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1'></script></body></html>";
    let given = json!({ "status": 403, "headers": { "Server": "cloudflare", "cf-mitigated": "challenge" }, "body": page });
    let answer = server.post("/v1/classify", &given).of(200);
    std::fs::write(server.dir.path().join("page.html"), page).unwrap();
    let beside = server.beside(&[
        "classify",
        "page.html",
        "--status",
        "403",
        "--header",
        "Server: cloudflare",
        "--header",
        "cf-mitigated: challenge",
    ]);
    assert_eq!(answer, beside[0]);
    assert_eq!(
        (&answer["is_blocked"], &answer["error_type"]),
        (&json!(true), &json!("blocked_captcha"))
    );
    let coded = json!({ "status": 403, "headers": [["Server", "cloudflare"], ["cf-mitigated", "challenge"]], "body_base64": "PGgxPkhpPC9oMT4=" });
    assert_eq!(server.post("/v1/classify", &coded).of(200)["is_blocked"], true);
    let path = json!({ "status": 200, "body_path": "/etc/passwd" });
    assert_eq!(server.post("/v1/classify", &path).of(422)["error_type"], "unknown_field");
    assert_eq!(
        server.post("/v1/classify", &json!({ "body_base64": "%%%" })).of(422)["error_type"],
        "invalid_value"
    );
}

#[test]
fn forgetting_empties_figures_evidence_and_pauses() {
    let server = taught();
    let decision = || {
        server.post("/v1/select", &json!({ "urls": ["https://e.org/docs/99"] })).of(200)[0]["decision"].clone()
    };
    assert_eq!(decision(), "learned");
    let forgot = server.post("/v1/forget", &json!({ "domain": "www.e.org" })).of(200);
    assert_eq!((&forgot["domain"], &forgot["attempts"]), (&json!("e.org"), &json!(24)));
    let rows = server.get("/v1/stats?by=domain").of(200);
    assert_eq!(rows.as_array().unwrap(), &server.beside(&["stats", "--by", "domain"]));
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert_ne!(decision(), "learned");
    assert_eq!(server.post("/v1/forget", &json!({})).of(422)["error_type"], "invalid_value");
    assert_eq!(
        server.post("/v1/forget", &json!({ "domain": "new.example" })).of(200)["attempts"],
        0
    );
}

#[test]
fn pages_that_are_not_a_hosts_own_are_listed_with_it() {
    let server = Server::start(&[]);
    let mut parked = attempt("https://parked.example/", "direct_access", true);
    parked["heuristics"] = json!([
        { "type": "domain", "value": "parked.example" },
        { "type": "same_page_other_sites", "value": "default_page" },
    ]);
    assert_eq!(server.ask("POST", "/v1/attempts", &lines([&parked])).of(200)["accepted"], 1);
    let listed = server.get("/v1/hosts").of(200);
    assert_eq!(listed[0]["host"], "parked.example", "{listed}");
    assert_eq!((&listed[0]["default_pages"], &listed[0]["network_blocks"]), (&json!(1), &json!(0)));
    assert_eq!(listed, json!(server.beside(&["hosts"])));
    assert_eq!(server.get("/v1/hosts?host=parked.example").of(200), listed);
    assert_eq!(server.get("/v1/hosts?state=paused").of(200), json!([]));
}

#[test]
fn reported_blocks_pause_their_host_and_unpause_ends_it() {
    let server = Server::start(&[]);
    let blocks: Vec<Value> = (0..3)
        .map(|n| attempt(&format!("https://blocks.example/{n}"), "direct_access", false))
        .collect();
    server.ask("POST", "/v1/attempts", &lines(&blocks)).of(200);
    let paused = server.get("/v1/hosts?state=paused").of(200);
    assert_eq!(paused[0]["host"], "blocks.example", "{paused}");
    assert_eq!(paused[0]["paused_until"], server.beside(&["hosts", "--paused"])[0]["paused_until"]);
    assert_eq!(
        server.post("/v1/select", &json!({ "urls": ["https://blocks.example/9"] })).of(200)[0]["decision"],
        "paused"
    );
    let pause = &server.get("/v1/explain?url=https%3A%2F%2Fblocks.example%2F9").of(200)["pause"];
    assert_eq!(
        (&pause["scope"], &pause["name"], &pause["times"]),
        (&json!("host"), &json!("blocks.example"), &json!(1))
    );
    assert_eq!(pause["until"], paused[0]["paused_until"]);
    assert!(pause["cause"]["text"].as_str().unwrap().ends_with("by direct_access"), "{pause}");
    let beside = server.beside(&["explain", "--all-fetchers", "https://blocks.example/9"]);
    assert_eq!(&beside[0]["pause"], pause, "the command says the same");
    let visit = server.post("/v1/visits", &json!({ "url": "https://blocks.example/9" })).of(201);
    assert_eq!((&visit["step"]["kind"], &visit["step"]["end"]), (&json!("end"), &json!("paused")));
    assert!(visit["step"]["paused_until"].is_string());
    let released = server.ask("POST", "/v1/hosts/blocks.example/unpause", b"").of(200);
    assert_eq!(
        (&released["host"], &released["unpaused"]),
        (&json!("blocks.example"), &json!(true))
    );
    assert_eq!(server.get("/v1/hosts?state=paused").of(200), json!([]));
    assert_eq!(
        server.ask("POST", "/v1/hosts/blocks.example/unpause", b"").of(200)["unpaused"],
        false
    );
    let (dir, ..) = server.end("-KILL");
    let server = Server::start_in(dir, &[], &[]);
    assert_eq!(
        server.get("/v1/hosts?state=paused").of(200),
        json!([]),
        "the release is in the log"
    );
}

#[test]
fn the_mode_can_change_while_the_server_runs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("table.csv"), "domain,fetcher\ne.org,playwright\n").unwrap();
    let server = Server::start_in(dir, &["--router", "table.csv", "--mode", "legacy"], &[]);
    let select =
        || server.post("/v1/select", &json!({ "urls": ["https://e.org/a"] })).of(200)[0].clone();
    assert_eq!(
        (select()["decision"].clone(), select()["mode"].clone()),
        (json!("hard_coded"), json!("legacy"))
    );
    assert_eq!(server.get("/v1/mode").of(200)["routes"], 1);
    assert_eq!(server.post("/v1/mode", &json!({ "mode": "learning" })).of(200)["mode"], "learning");
    assert_eq!(select()["decision"], "probe");
    assert!(
        server.post("/v1/mode", &json!({ "mode": "lerning" })).of(422)["error"]
            .to_string()
            .contains("learning")
    );
    assert_eq!(server.post("/v1/mode", &json!({})).of(422)["error_type"], "invalid_value");
}

#[test]
fn unknown_routes_and_names_are_errors() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/v1/nothing").of(404)["error_type"], "no_such_route");
    assert_eq!(server.get("/v1/select").of(405)["error_type"], "method_not_allowed");
    assert_eq!(server.get("/healthz").of(200)["status"], "ok");
    assert_eq!(server.get("/readyz").of(200)["ready"], true);
}

/// A misspelt field or parameter is refused, as in the config file: it was ignored, and the request
/// did something else.
#[test]
fn unknown_fields_and_parameters_are_refused_with_the_nearest_name() {
    let server = Server::start(&["--pace", "off"]);
    let refused = |answer: Response, kind: &str, meant: &str| {
        let shown = format!("{answer:?}");
        let body = answer.of(422);
        assert_eq!(body["error_type"], kind, "{shown}");
        let error = body["error"].as_str().unwrap();
        assert!(error.contains(&format!("did you mean \"{meant}\"?")), "{error}");
    };
    let url = "https://a.org/";
    for (path, body, meant) in [
        ("/v1/visits", json!({ "url": url, "fetcherz": ["playwright"] }), "fetchers"),
        ("/v1/visits", json!({ "visits": [{ "url": url }], "vists": [] }), "visits"),
        ("/v1/visits", json!({ "ur": url }), "url"),
        ("/v1/select", json!({ "urls": [url], "last_failur": "blocked" }), "last_failure"),
        ("/v1/classify", json!({ "body": "x", "stats": 403 }), "status"),
        ("/v1/forget", json!({ "domain": "a.org", "links": "b" }), "link"),
        ("/v1/mode", json!({ "mod": "legacy" }), "mode"),
        ("/v1/links/unpause", json!({ "link": url, "lnk": url }), "link"),
        ("/v1/visits/report", json!({ "reports": [], "report": [] }), "reports"),
    ] {
        refused(server.post(path, &body), "unknown_field", meant);
    }
    let begun = server.post("/v1/visits", &json!({ "url": url })).of(201);
    let report = format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap());
    refused(
        server.post(&report, &json!({ "outcome": "content", "durationms": 3 })),
        "unknown_field",
        "duration_ms",
    );
    for (path, meant) in [
        ("/v1/stats?by=domain&limt=7", "limit"),
        ("/v1/dashboard?rang=1h", "range"),
        ("/v1/explain?url=https%3A%2F%2Fa.org%2F&tagg=a%3Db", "tag"),
        ("/v1/ban-rate?domain=a.org&day=7", "days"),
        ("/v1/hosts?sate=paused", "state"),
        ("/v1/links?domian=a.org", "domain"),
        ("/v1/visits/0?wait=30", "wait_s"),
    ] {
        refused(server.get(path), "unknown_parameter", meant);
    }
    assert_eq!(server.get("/v1/mode?x=1").of(422)["error_type"], "unknown_parameter");
    // Probes and scrapers may add parameters.
    server.get("/healthz?t=1").of(200);
    // In a list, only the element with the misspelt field fails.
    let many =
        server.post("/v1/visits", &json!([{ "url": url, "tagz": {} }, { "url": url }])).of(200);
    assert_eq!(many[0]["error_type"], "unknown_field", "{many}");
    assert!(many[1]["visit"].is_string(), "{many}");
}

/// The extractors of the web framework responded with a status of 400 and plain text.
#[test]
fn an_invalid_value_in_a_query_or_a_path_is_a_problem_that_names_it() {
    let server = Server::start(&["--pace", "off"]);
    for (method, path, word) in [
        ("GET", "/v1/stats?limit=x", "limit"),
        ("GET", "/v1/stats?by=domain&by=day", "by"),
        ("GET", "/v1/attempts?limit=-1", "limit"),
        ("GET", "/v1/dashboard?limit=1.5", "limit"),
        ("GET", "/v1/dashboard/domain?domain=e.org&domain=f.org", "domain"),
        ("GET", "/v1/hosts?host=a.org&host=b.org", "host"),
        ("GET", "/v1/links?state=paused&state=paused", "state"),
        ("GET", "/v1/ban-rate?domain=e.org&days=0", "days"),
        ("GET", "/v1/visits/0?wait_s=x", "wait_s"),
        ("POST", "/v1/visits/0/next?wait_s=-1", "wait_s"),
        ("GET", "/v1/visits/%ff", "path"),
        ("DELETE", "/v1/visits/%ff", "path"),
        ("POST", "/v1/visits/%ff/report", "path"),
        ("POST", "/v1/hosts/%ff/unpause", "path"),
        ("GET", "/assets/%ff", "path"),
    ] {
        let answer = server.ask(method, path, b"");
        let head = answer.head.to_ascii_lowercase();
        assert!(
            head.contains("content-type: application/problem+json"),
            "{method} {path}: {answer:?}"
        );
        let problem = answer.of(422);
        assert_eq!(
            (&problem["error_type"], &problem["status"]),
            (&json!("invalid_value"), &json!(422)),
            "{path}"
        );
        let words = problem["detail"].as_str().unwrap();
        assert!(words.contains(word) && problem["error"] == words, "{method} {path}: {words}");
    }
}

/// The description promises what the server does: it refuses fields that a request's schema does
/// not list.
#[test]
fn the_schemas_of_requests_are_closed() {
    let all: Value = serde_json::from_str(include_str!("../../../../serve/openapi.json")).unwrap();
    for (path, methods) in all["paths"].as_object().unwrap() {
        // Attempts of other programs may have more fields than fetchwise reads.
        for (_, operation) in methods.as_object().unwrap().iter().filter(|_| path != "/v1/attempts")
        {
            if let Some(content) = operation["requestBody"]["content"].get("application/json") {
                closed(&all, &content["schema"], path);
            }
        }
    }
}

#[track_caller]
fn closed(all: &Value, schema: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        return closed(all, all.pointer(name.trim_start_matches('#')).unwrap(), at);
    }
    for one in ["oneOf", "anyOf"].iter().filter_map(|name| schema[*name].as_array()).flatten() {
        closed(all, one, at);
    }
    match schema["type"].as_str() {
        Some("array") => closed(all, &schema["items"], at),
        Some("object") => assert_eq!(schema["additionalProperties"], false, "{at}: {schema}"),
        _ => {}
    }
}
