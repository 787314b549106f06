//! Visits over HTTP: the form of steps and reports, and their attempts in the log.

use serde_json::{Value, json};

use super::server::Server;

fn begin(server: &Server, url: &str) -> (String, Value) {
    let begun = server.post("/v1/visits", &json!({ "url": url })).of(201);
    (begun["visit"].as_str().unwrap().to_owned(), begun["step"].clone())
}

fn report(server: &Server, visit: &str, body: &Value) -> Value {
    let answer = server.post(&format!("/v1/visits/{visit}/report"), body).of(200);
    assert_eq!(answer["visit"], visit);
    answer["step"].clone()
}

#[test]
fn a_visit_is_fetched_reported_and_delivered() {
    let server = Server::start(&["--pace", "off"]);
    let (visit, step) = begin(&server, "https://e.org/a");
    assert_eq!(
        (&step["kind"], &step["fetcher"], &step["deadline_ms"], &step["is_probe"], &step["url"]),
        (
            &json!("fetch"),
            &json!("direct_access"),
            &json!(3000),
            &json!(true),
            &json!("https://e.org/a")
        )
    );
    assert_eq!(
        (&step["decision"]["decision"], &step["decision"]["fetcher"]),
        (&json!("probe"), &json!("direct_access"))
    );
    let end = report(
        &server,
        &visit,
        &json!({ "outcome": "content", "status": 200, "duration_ms": 120 }),
    );
    assert_eq!(
        (&end["kind"], &end["end"], &end["error_type"]),
        (&json!("end"), &json!("delivered"), &Value::Null)
    );
    assert_eq!(
        (&end["paused_until"], &end["requests"], &end["status"]),
        (&Value::Null, &json!(1), &json!(200))
    );
    assert_eq!((&end["was_trial"], &end["default_page"]), (&json!(false), &json!(false)));
    let logged = server.beside(&["export"]);
    assert_eq!(logged.len(), 1);
    assert_eq!((&logged[0]["duration_ms"], &logged[0]["source"]), (&json!(120), &json!("probe")));
}

#[test]
fn a_block_leads_to_another_fetcher_and_ends_failed_when_none_is_left() {
    let server = Server::start(&["--pace", "off"]);
    let (visit, step) = begin(&server, "https://e.org/a");
    assert_eq!(step["fetcher"], "direct_access");
    let step = report(&server, &visit, &json!({ "outcome": "blocked_403", "status": 403 }));
    assert_eq!((&step["kind"], &step["is_probe"]), (&json!("fetch"), &json!(false)));
    assert_ne!(step["fetcher"], "direct_access");
    let mut step = report(&server, &visit, &json!({ "outcome": "blocked_captcha" }));
    while step["kind"] == "fetch" {
        step = report(&server, &visit, &json!({ "outcome": "blocked_captcha" }));
    }
    assert_eq!(
        (&step["kind"], &step["end"], &step["error_type"]),
        (&json!("end"), &json!("failed"), &json!("blocked_captcha"))
    );
    assert!(step["paused_until"].is_string(), "{step}");
    assert_eq!(server.get("/v1/links?state=paused").of(200)[0]["link"], "https://e.org/a");
    let released = server.post("/v1/links/unpause", &json!({ "link": "https://e.org/a" })).of(200);
    assert_eq!(released["unpaused"], true);
    assert_eq!(server.get("/v1/links?state=paused").of(200), json!([]));
    assert_eq!(server.get("/v1/links").of(200)[0]["reason"], "blocked");
}

#[test]
fn a_whole_response_is_classified() {
    let server = Server::start(&["--pace", "off"]);
    let page = format!(
        "<html><body><h1>News</h1><p>{}</p></body></html>",
        "All the words of a page that has enough of them. ".repeat(20)
    );
    let (visit, _) = begin(&server, "https://e.org/a");
    let end = report(
        &server,
        &visit,
        &json!({ "status": 200, "headers": { "Content-Type": "text/html" }, "body": page }),
    );
    assert_eq!(end["end"], "delivered");
    let (visit, _) = begin(&server, "https://e.org/b");
    let step = report(
        &server,
        &visit,
        &json!({ "status": 403, "headers": [["cf-mitigated", "challenge"]], "body_base64": "PGgxPk5vPC9oMT4=" }),
    );
    assert_eq!(step["kind"], "fetch");
    assert_ne!(step["fetcher"], "direct_access");
    let (visit, step) = begin(&server, "https://stub.org/c");
    assert_eq!(step["fetcher"], "direct_access");
    let stub = "<html><head><meta http-equiv=refresh content='0; url=/c/index.html'></head></html>";
    let step = report(
        &server,
        &visit,
        &json!({ "status": 200, "headers": { "Content-Type": "text/html" }, "body": stub }),
    );
    assert_eq!(
        (&step["kind"], &step["url"]),
        (&json!("fetch"), &json!("https://stub.org/c/index.html"))
    );
    let end = report(&server, &visit, &json!({ "status": 404 }));
    assert_eq!(
        (&end["end"], &end["error_type"], &end["status"]),
        (&json!("failed"), &json!("not_found"), &json!(404))
    );
}

#[test]
fn tags_and_ids_are_kept_with_the_attempt() {
    let server = Server::start(&["--pace", "off"]);
    let wish = json!({ "url": "https://e.org/v", "id": "article 17", "tags": { "video_platform": "vimeo" } });
    let visit = server.post("/v1/visits", &wish).of(201)["visit"].as_str().unwrap().to_owned();
    report(&server, &visit, &json!({ "outcome": "content" }));
    let logged = &server.beside(&["export"])[0];
    assert_eq!(logged["link"], "article 17");
    let tags = logged["heuristics"].as_array().unwrap();
    assert!(
        tags.iter().any(|tag| tag["type"] == "video_platform" && tag["value"] == "vimeo"),
        "{tags:?}"
    );
}

#[test]
fn a_retry_after_is_honoured() {
    let server = Server::start(&[]);
    let (visit, _) = begin(&server, "https://e.org/a");
    let end = report(
        &server,
        &visit,
        &json!({ "outcome": "blocked_403", "status": 429, "retry_after": 120 }),
    );
    assert_eq!((&end["kind"], &end["end"]), (&json!("end"), &json!("failed")));
    let (_, next) = begin(&server, "https://e.org/b");
    assert!(
        next["kind"] == "wait" && next["reason"] == "pace" || next["end"] == "paused",
        "{next}"
    );
    assert_eq!(server.get("/v1/hosts?state=paused").of(200)[0]["host"], "e.org");
}

#[test]
fn the_host_at_the_end_of_a_redirect_is_paused_and_not_the_one_that_redirected() {
    let server = Server::start(&["--pace", "off"]);
    let limited = json!({ "status": 429, "headers": { "Retry-After": "3600" }, "final_url": "https://v.net/page" });
    let by_name = json!({ "outcome": "blocked_403", "status": 429, "retry_after": 3600, "final_url": "https://w.net/" });
    for (path, body, host) in [("a", limited, "v.net"), ("b", by_name, "w.net")] {
        let (visit, _) = begin(&server, &format!("https://short.org/{path}"));
        assert_eq!(report(&server, &visit, &body)["end"], "failed");
        let logged = server.beside(&["export"]).pop().unwrap();
        let tag = |kind: &str| {
            let tags = logged["heuristics"].as_array().unwrap();
            tags.iter().find(|tag| tag["type"] == kind).map(|tag| tag["value"].clone())
        };
        assert_eq!(
            (tag("domain"), tag("redirected_by")),
            (Some(json!(host)), Some(json!("short.org"))),
            "{logged}"
        );
    }
    // A client that follows no redirects reports them, and gets the target as its next request, if
    // that may be asked.
    let redirect = |to: &str| json!({ "status": 302, "headers": { "Location": to } });
    let (visit, step) = begin(&server, "https://short.org/c");
    assert_eq!(step["kind"], "fetch", "{step}");
    let step = report(&server, &visit, &redirect("https://x.net/page"));
    assert_eq!((&step["kind"], &step["url"]), (&json!("fetch"), &json!("https://x.net/page")));
    assert_eq!(report(&server, &visit, &json!({ "status": 404 }))["error_type"], "not_found");
    let (visit, _) = begin(&server, "https://short.org/e");
    let end = report(&server, &visit, &redirect("https://v.net/page"));
    assert_eq!((&end["end"], &end["requests"]), (&json!("paused"), &json!(0)), "{end}");
    let refused = server.post(
        &format!("/v1/visits/{visit}/report"),
        &json!({ "outcome": "content", "final_url": "x" }),
    );
    refused.of(422);
}

#[test]
fn an_attempt_of_another_program_pauses_the_host_that_responded() {
    let server = Server::start(&["--pace", "off"]);
    let lines: Vec<String> = (0..12)
        .map(|n| {
            let at = fetchwise::time::Timestamp::now().as_millis();
            let (url, landed) = (format!("https://short.org/{n}"), format!("https://v.net/{n}"));
            json!({ "url": url, "final_url": landed, "fetcher": "direct_access", "success": false,
                "error_type": "blocked_captcha", "attempted_at": at })
            .to_string()
        })
        .collect();
    let taken = server.ask("POST", "/v1/attempts", lines.join("\n").as_bytes()).of(200);
    assert_eq!(taken["accepted"], 12);
    let paused = server.get("/v1/hosts?state=paused").of(200);
    let hosts: Vec<_> =
        paused.as_array().unwrap().iter().map(|host| host["host"].clone()).collect();
    assert_eq!(hosts, ["v.net"]);
}

#[test]
fn a_visit_waits_for_its_hosts_pace_and_goes_on() {
    let server = Server::start(&["--rate", "2"]);
    let (first, step) = begin(&server, "https://e.org/a");
    assert_eq!(step["kind"], "fetch");
    let (second, step) = begin(&server, "https://e.org/b");
    assert_eq!(step["kind"], "wait", "{step}");
    assert!(step["until"].as_str().unwrap().ends_with('Z') && step["reason"].is_string());
    report(&server, &first, &json!({ "outcome": "content" }));
    let refused = server
        .post(&format!("/v1/visits/{second}/report"), &json!({ "outcome": "content" }))
        .of(409);
    assert_eq!(
        (&refused["error_type"], &refused["step"]["kind"]),
        (&json!("nothing_to_report"), &json!("wait"))
    );
    let step = server.get(&format!("/v1/visits/{second}?wait_s=30")).of(200)["step"].clone();
    assert_eq!(step["kind"], "fetch", "{step}");
    assert_eq!(report(&server, &second, &json!({ "outcome": "content" }))["end"], "delivered");
}

#[test]
fn many_visits_and_many_reports_go_in_one_call_each() {
    let server = Server::start(&["--pace", "off"]);
    let wishes: Vec<Value> = (0..50)
        .map(|n| json!({ "url": format!("https://h{n}.org/") }))
        .chain([json!({ "url": "nonsense" }), json!({})])
        .collect();
    for body in [json!({ "visits": wishes }), json!(wishes)] {
        let begun = server.post("/v1/visits", &body).of(200);
        let begun = begun.as_array().unwrap();
        assert_eq!(begun.len(), 52);
        assert_eq!(
            (&begun[50]["error_type"], &begun[51]["error_type"]),
            (&json!("invalid_url"), &json!("invalid_value"))
        );
        let mut reports: Vec<Value> = begun[..50]
            .iter()
            .map(|of| json!({ "visit": of["visit"], "outcome": "content" }))
            .collect();
        reports.push(json!({ "visit": "00000000000000000000000000000000", "outcome": "content" }));
        let ends = server.post("/v1/visits/report", &json!({ "reports": reports })).of(200);
        let ends = ends.as_array().unwrap();
        assert!(ends[..50].iter().all(|of| of["step"]["end"] == "delivered"), "{ends:?}");
        assert_eq!(ends[50]["error_type"], "unknown_visit");
    }
    assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], 100);
}

#[test]
fn a_repeated_report_counts_once() {
    let server = Server::start(&["--pace", "off"]);
    let (visit, step) = begin(&server, "https://e.org/a");
    assert_eq!(step["number"], 1);
    let blocked = json!({ "number": 1, "outcome": "blocked_403" });
    let step = report(&server, &visit, &blocked);
    assert_eq!((&step["number"], &step["kind"]), (&json!(2), &json!("fetch")));
    assert_eq!(report(&server, &visit, &blocked), step, "the same answer again");
    let early = server
        .post(&format!("/v1/visits/{visit}/report"), &json!({ "number": 7, "outcome": "content" }))
        .of(409);
    assert_eq!(early["error_type"], "no_such_request");
    let content = json!({ "number": 2, "outcome": "content" });
    let end = report(&server, &visit, &content);
    assert_eq!(end["end"], "delivered");
    assert_eq!(report(&server, &visit, &content), end);
    let late = server
        .post(&format!("/v1/visits/{visit}/report"), &json!({ "outcome": "content" }))
        .of(409);
    assert_eq!(
        (&late["error_type"], &late["step"]["end"]),
        (&json!("visit_ended"), &json!("delivered"))
    );
    assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], 2);
}

/// It was acknowledged and dropped.
#[test]
fn another_report_of_the_same_request_is_refused() {
    let server = Server::start(&["--pace", "off"]);
    let (visit, _) = begin(&server, "https://e.org/a");
    let path = format!("/v1/visits/{visit}/report");
    let first = json!({ "number": 1, "outcome": "blocked_403", "status": 403, "duration_ms": 80 });
    let step = report(&server, &visit, &first);
    for other in [
        json!({ "number": 1, "outcome": "content", "status": 200 }),
        json!({ "number": 1, "outcome": "blocked_403", "status": 429 }),
        json!({ "number": 1, "unavailable": "it does not start" }),
    ] {
        let refused = server.post(&path, &other).of(409);
        assert_eq!(
            (&refused["error_type"], &refused["step"]),
            (&json!("already_reported"), &step),
            "{other}"
        );
        let listed = json!([{ "visit": visit, "number": 1, "outcome": "timeout" }]);
        assert_eq!(
            server.post("/v1/visits/report", &listed).of(200)[0]["error_type"],
            "already_reported"
        );
    }
    assert_eq!(report(&server, &visit, &first), step);
    assert_eq!(
        report(&server, &visit, &json!({ "number": 2, "outcome": "content", "status": 200 }))["end"],
        "delivered"
    );
    assert_eq!(
        server.post(&path, &json!({ "number": 2, "outcome": "timeout" })).of(409)["error_type"],
        "already_reported"
    );
    assert_eq!(report(&server, &visit, &first)["end"], "delivered", "the first report again");
    assert_eq!(server.beside(&["export"]).len(), 2);
}

#[test]
fn an_impossible_report_changes_nothing() {
    let server = Server::start(&["--pace", "off"]);
    let (visit, _) = begin(&server, "https://e.org/a");
    let path = format!("/v1/visits/{visit}/report");
    for wrong in [
        json!({ "outcome": "blocked403" }),
        json!({ "outcome": "content", "status": 7 }),
        json!({ "outcome": "content", "duration_ms": -1 }),
        json!({ "outcome": "content", "duration_ms": 9, "local_delay_ms": -1 }),
        json!({ "outcome": "content", "retry_after": -5 }),
        json!({ "body": "x" }),
        json!({ "status": 200, "headers": 5 }),
        json!({ "status": 200, "body": "x", "body_base64": "eA==" }),
    ] {
        assert_eq!(server.post(&path, &wrong).of(422)["error_type"], "invalid_value", "{wrong}");
    }
    assert_eq!(server.post(&path, &json!({})).of(409)["error_type"], "nothing_reported");
    let end = report(&server, &visit, &json!({ "outcome": "x_gremlins" }));
    assert_eq!(end["kind"], "fetch", "{end}");
    assert_eq!(server.beside(&["export"])[0]["error_type"], "x_gremlins");
}

#[test]
fn an_unavailable_fetcher_is_skipped() {
    let server = Server::start(&["--pace", "off"]);
    let (visit, _) = begin(&server, "https://e.org/a");
    let step = report(&server, &visit, &json!({ "unavailable": "it does not start" }));
    assert_ne!(step["fetcher"], "direct_access");
    let ended = server.ask("DELETE", &format!("/v1/visits/{visit}"), b"").of(200);
    assert_eq!(ended["given_up"], true);
    assert_eq!(server.get(&format!("/v1/visits/{visit}")).of(404)["error_type"], "unknown_visit");
    assert_eq!(server.get("/v1/stats").of(200), json!([]), "nobody was asked");
}

#[test]
fn an_abandoned_visit_times_out_and_releases_what_it_held() {
    let server = Server::start(&["--visit-timeout", "2s", "--pace", "off"]);
    // Both in one call, so that the first has not timed out when the second begins.
    let urls = json!([{ "url": "https://e.org/a" }, { "url": "https://e.org/b" }]);
    let begun = server.post("/v1/visits", &urls).of(200);
    let [first, second] = [0, 1].map(|n| begun[n]["visit"].as_str().unwrap());
    assert_eq!(begun[0]["step"]["is_probe"], true);
    // While the first visit probes the host, the second one waits for the result.
    let step = &begun[1]["step"];
    assert_eq!((&step["kind"], &step["reason"]), (&json!("wait"), &json!("probe")));
    let step = server.get(&format!("/v1/visits/{second}?wait_s=60")).of(200)["step"].clone();
    assert_eq!(step["kind"], "fetch", "{step}");
    assert_eq!(
        server
            .post(&format!("/v1/visits/{first}/report"), &json!({ "outcome": "content" }))
            .of(404)["error_type"],
        "unknown_visit"
    );
}

#[test]
fn a_page_that_other_sites_show_ends_as_a_default_page() {
    let server = Server::start(&["--pace", "off"]);
    let page = "<!doctype html><title>Soon</title><h1>This name is parked</h1><p>The owner of this name has not put a page \
        here yet. Come back another day, or ask the registrar who keeps the name for its owner.</p><p>Names are kept for \
        a year at a time, and their owners may renew them at any time before that year has passed.</p>";
    let body = json!({ "status": 200, "headers": { "Content-Type": "text/html" }, "body": page });
    let ends: Vec<Value> = ["parked.org", "parked.net", "parked.com", "parked.io"]
        .map(|site| begin(&server, &format!("https://{site}/")).0)
        .iter()
        .map(|visit| report(&server, visit, &body)["default_page"].clone())
        .collect();
    assert_eq!(ends, [false, false, true, true].map(Value::from));
}
