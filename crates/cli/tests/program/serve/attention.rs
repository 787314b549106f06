//! The attention list of `GET /v1/dashboard`: slow hosts, and records that the log has lost.

use fetchwise_testsite::poll::found;
use serde_json::{Value, json};

use super::server::{Server, attempt, lines};

fn attention(server: &Server) -> Value {
    server.get("/v1/dashboard").of(200)["attention"].clone()
}

#[test]
fn a_host_below_a_request_in_ten_seconds_is_listed_and_a_faster_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[pace.host.'slow.example']\nrate = 0.05\n[pace.host.'slower.example']\nrate = 0.02\n\
                  [pace.host.'steady.example']\nrate = 0.2\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    let server = Server::start_in(dir, &["--config", "c.toml"], &[]);
    assert_eq!(attention(&server), json!({ "total": 0, "items": [] }));
    for host in ["slow", "slower", "steady"] {
        let begun = server
            .post("/v1/visits", &json!({ "url": format!("https://{host}.example/") }))
            .of(201);
        let report = format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap());
        let ended = server.post(&report, &json!({ "outcome": "content", "status": 200 })).of(200);
        assert_eq!(ended["step"]["end"], "delivered", "{ended}");
    }
    let found = attention(&server);
    let items: Vec<_> =
        found["items"].as_array().unwrap().iter().map(|of| (&of["kind"], &of["host"])).collect();
    let slow = json!("slow");
    // The slowest first.
    assert_eq!(
        items,
        [(&slow, &json!("slower.example")), (&slow, &json!("slow.example"))],
        "{found}"
    );
    assert_eq!(
        (&found["total"], &found["items"][1]["pace"]["rate"]),
        (&json!(2), &json!(0.05)),
        "{found}"
    );
    assert_eq!(found["items"][1]["pace"]["fixed"], true, "{found}");
}

#[test]
fn lost_records_come_first_and_stay_listed_when_the_log_works_again() {
    let server = Server::start(&["--pace", "off"]);
    let record = |of: &[Value]| server.ask("POST", "/v1/attempts", &lines(of));
    let pages: Vec<Value> =
        (0..7).map(|n| attempt(&format!("https://e.org/{n}"), "playwright", true)).collect();
    record(&pages).of(200);
    let blocks: Vec<Value> =
        (0..6).map(|n| attempt(&format!("https://b.org/{n}"), "direct_access", false)).collect();
    record(&blocks).of(200);
    let paused = attention(&server);
    assert_eq!(
        (&paused["total"], &paused["items"][0]["kind"]),
        (&json!(1), &json!("paused")),
        "{paused}"
    );
    // The log makes a new directory as soon as it notices, so the old one leaves its place first.
    let gone = server.dir.path().join("gone");
    std::fs::rename(server.dir.path().join("data"), &gone).unwrap();
    std::fs::remove_dir_all(gone).unwrap();
    let found = found("the log works again", || {
        let found = attention(&server);
        let is_good = found["items"][0]["kind"] == "log" && found["items"][0]["state"] == "good";
        if is_good { Ok(found) } else { Err(found) }
    });
    assert_eq!(
        (&found["total"], &found["items"][1]["kind"]),
        (&json!(2), &json!("paused")),
        "{found}"
    );
    let lost = found["items"][0]["lost"].as_u64().unwrap();
    assert!(lost >= 13, "{found}");
    assert_eq!(server.get("/v1/dashboard").of(200)["log"]["lost"], lost);
    record(&[attempt("https://e.org/new", "playwright", true)]).of(200);
}
