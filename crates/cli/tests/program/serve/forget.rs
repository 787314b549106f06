//! `forget` on a running server: evidence, figures, pauses, pace, links and dashboard lose the
//! domain at once, and nothing comes back at the end of the process or after a restart.

use serde_json::{Value, json};

use super::server::{Server, attempt, lines};

/// One visit that a host refuses with an end of the refusal.
fn refused(server: &Server, url: &str, id: Option<&str>) {
    let begun = server.post("/v1/visits", &json!({ "url": url, "id": id })).of(201);
    let path = format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap());
    let report = json!({ "outcome": "blocked_403", "status": 429, "retry_after": 600 });
    assert_eq!(server.post(&path, &report).of(200)["step"]["end"], "failed");
}

/// Everything that a server returns about hosts, links, domains and values of heuristics.
fn everything(server: &Server) -> String {
    let routes = [
        "/v1/hosts",
        "/v1/links",
        "/v1/stats?by=domain",
        "/v1/dashboard?range=hour&limit=1000",
        "/v1/rollout",
        "/metrics",
    ];
    routes
        .map(|route| {
            let answer = server.get(route);
            assert_eq!(answer.status, 200, "{route}: {answer:?}");
            answer.body
        })
        .concat()
}

#[test]
fn nothing_of_a_forgotten_domain_stays_or_comes_back() {
    let server = Server::start(&[]);
    let told: Vec<Value> = (0..12)
        .map(|n| attempt(&format!("https://gone.example/a/{n}"), "playwright", true))
        .chain([attempt("https://stays.example/", "playwright", true)])
        .collect();
    server.ask("POST", "/v1/attempts", &lines(&told)).of(200);
    refused(&server, "https://gone.example/by-its-url", None);
    let begun = server
        .post("/v1/visits", &json!({ "url": "https://stays.example/x", "id": "of stays" }))
        .of(201);
    let path = format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap());
    server.post(&path, &json!({ "outcome": "timeout" })).of(200);
    assert_eq!(server.get("/v1/hosts?state=paused").of(200)[0]["host"], "gone.example");
    let links = server.get("/v1/links").of(200);
    assert!(
        links.as_array().unwrap().iter().any(|of| of["link"] == "https://gone.example/by-its-url"),
        "{links}"
    );
    assert!(
        everything(&server).contains("gone.example"),
        "that the search below can find anything"
    );

    let forgot = server.post("/v1/forget", &json!({ "domain": "gone.example" })).of(200);
    assert_eq!(forgot["attempts"], 13);
    let of_gone = |server: &Server| {
        assert_eq!(server.get("/v1/hosts?host=gone.example").of(200), json!([]));
        let all = everything(server);
        assert!(
            !all.contains("gone.example"),
            "{}",
            &all[all.find("gone.example").unwrap().saturating_sub(300)..]
        );
        assert!(all.contains("stays.example"));
        let explained = server.get("/v1/explain?url=https%3A%2F%2Fgone.example%2Fa%2F1").of(200);
        assert_eq!(
            (&explained["pace"], &explained["decision"]),
            (&Value::Null, &json!("probe")),
            "{explained}"
        );
        assert_eq!(server.get("/v1/ban-rate?domain=gone.example").of(200)["attempts"], 0);
    };
    of_gone(&server);
    // The paces of hosts are written at the end, without the forgotten one.
    let (dir, code, said) = server.end("-TERM");
    assert_eq!(code, Some(0), "{said}");
    of_gone(&Server::start_in(dir, &[], &[]));
}

#[test]
fn links_of_a_forgotten_domain_go_under_any_name() {
    let server = Server::start(&["--pace", "off"]);
    refused(&server, "https://gone.example/1", Some("article 17"));
    refused(&server, "https://stays.example/1", Some("article 18"));
    assert_eq!(server.get("/v1/links").of(200).as_array().unwrap().len(), 2);
    server.post("/v1/forget", &json!({ "domain": "gone.example" })).of(200);
    let left = server.get("/v1/links").of(200);
    assert_eq!((left.as_array().unwrap().len(), &left[0]["link"]), (1, &json!("article 18")));
    assert_eq!(server.beside(&["links"]).len(), 1, "the log says the same");
}

#[test]
fn an_open_request_of_a_forgotten_host_ends_as_usual() {
    let server = Server::start(&[]);
    let begun = server.post("/v1/visits", &json!({ "url": "https://gone.example/1" })).of(201);
    assert_eq!(begun["step"]["kind"], "fetch");
    server.post("/v1/forget", &json!({ "domain": "gone.example" })).of(200);
    let under_way = &server.get("/v1/hosts?host=gone.example").of(200)[0]["pace"];
    assert!(under_way["limit"].is_null() && under_way["lowered_at"].is_null(), "{under_way}");
    let path = format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap());
    assert_eq!(
        server.post(&path, &json!({ "outcome": "content" })).of(200)["step"]["end"],
        "delivered"
    );
    // Later attempts are learned again.
    assert_eq!(server.get("/v1/stats?by=domain").of(200)[0]["attempts"], 1);
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("fetchwise_pace_requests_in_flight 0"), "{metrics}");
}
