//! Servers of one fleet over a real broker: they show each other, and all forget what one is asked
//! to forget.

use fetchwise_testsite::poll::found;
use serde_json::{Value, json};

use crate::brokers::Servers;
use crate::description::Described;
use crate::server::{Server, attempt, lines};

fn node(brokers: &Servers, place: &str) -> Server {
    let variables = [("FETCHWISE_FLEET", brokers.urls()[0].clone())];
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = Server::start_in(tempfile::tempdir().unwrap(), &["--pace", "off"], &variables);
    let told: Vec<Value> =
        (0..8)
            .map(|n| attempt(&format!("https://gone.example/{place}/{n}"), "playwright", true))
            .chain((0..4).map(|n| {
                attempt(&format!("https://{place}.example/{n}"), "playwright", n % 2 == 0)
            }))
            .collect();
    server.ask("POST", "/v1/attempts", &lines(&told)).of(200);
    server
}

/// Returns the fleet status of a server once `is` holds.
#[track_caller]
fn fleet_once(server: &Server, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    found(what, || {
        let fleet = server.get("/v1/dashboard").of(200)["fleet"].clone();
        if is(&fleet) { Ok(fleet) } else { Err(fleet.to_string()) }
    })
}

fn has_all(fleet: &Value) -> bool {
    let is_there = fleet["peers"][0]["present"] == true;
    is_there
        && fleet["converged"] == true
        && fleet["peers"][0]["position"].as_u64() >= Some(12)
        && fleet["peers"][0]["missing_records"] == 0
}

/// Waits until nothing of the domain is left: neither evidence nor figures.
#[track_caller]
fn forgets(server: &Server, domain: &str) {
    let url = format!("/v1/explain?url=https%3A%2F%2F{domain}%2F1");
    found("forgotten", || {
        let explained = server.get(&url).of(200);
        let steps = explained["steps"].as_array().unwrap().iter();
        let weight: f64 = steps
            .filter(|step| step["type"] == "domain")
            .filter_map(|step| step["total"].as_f64())
            .sum();
        let figures = server.get("/v1/stats?by=domain").of(200).to_string();
        let board =
            server.get("/v1/dashboard?range=hour&limit=1000").of(200)["domains"].to_string();
        let is_shown = figures.contains(domain) || board.contains(domain);
        if weight == 0.0 && !is_shown { Ok(()) } else { Err(format!("{weight} {figures} {board}")) }
    });
}

#[test]
fn servers_of_a_fleet_show_each_other_and_forget_together() {
    let mut brokers = Servers::start(1);
    let (a, b) = (node(&brokers, "here"), node(&brokers, "there"));
    let (of_a, of_b) = (fleet_once(&a, "quiet", has_all), fleet_once(&b, "quiet", has_all));
    assert_eq!(
        (&of_a["peers"][0]["node"], &of_b["peers"][0]["node"]),
        (&of_b["node"], &of_a["node"])
    );
    assert_eq!((of_a["broker"].clone(), of_a["withheld"].clone()), (json!(true), json!(0)));
    assert!(of_a["counts"]["received"].as_u64() >= Some(12), "{of_a}");
    let mut described = Described::of(&a);
    described.check("get", "/v1/dashboard", &a.get("/v1/dashboard"));

    // The Prometheus metrics agree.
    let page = a.ask("GET", "/metrics", b"").body;
    for line in [
        "fetchwise_fleet_broker_up 1",
        "fetchwise_fleet_converged 1",
        "fetchwise_fleet_peers{state=\"present\"} 1",
        "fetchwise_fleet_missing_records{state=\"requested\"} 0",
    ] {
        assert!(page.lines().any(|is| is.trim_end_matches(".0") == line), "{line}: {page}");
    }
    let learned = page.lines().find_map(|line| {
        line.strip_prefix("fetchwise_fleet_received_attempts_total{result=\"learned\"} ")
    });
    assert!(learned.unwrap().parse::<u64>().unwrap() >= 12, "{page}");

    let forgot = a.post("/v1/forget", &json!({ "domain": "gone.example" }));
    described.check("post", "/v1/forget", &forgot);
    assert_eq!(forgot.of(200)["fleet_notified"], true);
    forgets(&a, "gone.example");
    forgets(&b, "gone.example");
    let kept = b.get("/v1/stats?by=domain").of(200).to_string();
    assert!(kept.contains("there.example"), "{kept}");
    // Links are not forgotten on other nodes: their names are not published.
    let link = a.post("/v1/forget", &json!({ "link": "https://here.example/0" })).of(200);
    assert_eq!(link["fleet_notified"], false);

    // Without a broker the domain is forgotten here, which is reported, and the same request later
    // notifies the others.
    brokers.kill(0);
    fleet_once(&a, "without a broker", |fleet| {
        fleet["broker"] == false && fleet["converged"] == false
    });
    let alone = a.post("/v1/forget", &json!({ "domain": "there.example" }));
    described.check("post", "/v1/forget", &alone);
    assert_eq!(alone.of(503)["error_type"], "fleet_not_notified");
    forgets(&a, "there.example");
    brokers.revive(0);
    found("told", || {
        let again = a.post("/v1/forget", &json!({ "domain": "there.example" }));
        if again.status == 200 { Ok(()) } else { Err(again.body) }
    });
    forgets(&b, "there.example");
    // A server that is stopped leaves the fleet in order.
    let (_, code, said) = a.end("-TERM");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_server_outside_a_fleet_reports_that() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/v1/dashboard").of(200)["fleet"], Value::Null);
    assert!(!server.get("/metrics").body.contains("fetchwise_fleet_"));
    server
        .ask(
            "POST",
            "/v1/attempts",
            &lines([&attempt("https://gone.example/", "playwright", true)]),
        )
        .of(200);
    assert_eq!(
        server.post("/v1/forget", &json!({ "domain": "gone.example" })).of(200)["fleet_notified"],
        false
    );
}
