//! Reported attempts: an accepted one is in the log, whatever happens next.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Server, ask_at, attempt, lines};

fn id(n: u128) -> String {
    uuid::Uuid::from_u128(n).to_string()
}

#[test]
fn an_invalid_line_is_reported_and_the_rest_accepted() {
    let server = Server::start(&[]);
    let mut body = lines(&[attempt("https://e.org/a", "direct_access", true)]);
    body.extend(b"\n{\"url\": 7}\nnot json\n");
    body.extend(b"{\"url\": \"https://e.org/\xff\"}\n");
    body.extend(lines(&[attempt("https://e.org/b", "direct_access", true)]));
    let taken = server.ask("POST", "/v1/attempts", &body).of(200);
    assert_eq!(taken["accepted"], 2);
    let refused: Vec<u64> = taken["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["line"].as_u64().unwrap())
        .collect();
    assert_eq!(refused, [3, 4, 5]);
    assert!(taken["refused"].as_array().unwrap().iter().all(|of| of["error"].is_string()));
    let nothing = server.ask("POST", "/v1/attempts", b"nonsense\n{}\n").of(422);
    assert_eq!(
        (&nothing["accepted"], nothing["refused"].as_array().unwrap().len()),
        (&json!(0), 2)
    );
    assert_eq!(server.ask("POST", "/v1/attempts", b"").of(200)["accepted"], 0);
    assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], 2);
}

#[test]
fn a_known_attempt_is_accepted_and_not_recorded_again() {
    let server = Server::start(&[]);
    let mut one = attempt("https://e.org/a", "direct_access", true);
    one["id"] = json!(id(7));
    let plain = attempt("https://e.org/b", "direct_access", true);
    let body = lines(&[one.clone(), plain.clone(), one]);
    assert_eq!(server.ask("POST", "/v1/attempts", &body).of(200)["accepted"], 3);
    let again = server.ask("POST", "/v1/attempts", &body).of(200);
    assert_eq!(
        (&again["accepted"], &again["duplicates"], &again["refused"]),
        (&json!(3), &json!(3), &json!([]))
    );
    let (dir, ..) = server.end("-TERM");
    let server = Server::start_in(dir, &[], &[]);
    assert_eq!(
        server.ask("POST", "/v1/attempts", &body).of(200)["duplicates"],
        3,
        "after a restart, too"
    );
    assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], 2);
    assert_eq!(server.beside(&["export"]).len(), 2);
}

/// It counted as accepted, and was dropped.
#[test]
fn another_attempt_with_a_known_id_is_refused() {
    let server = Server::start(&[]);
    let with_id = |url: &str, fetcher: &str, success: bool| {
        let mut one = attempt(url, fetcher, success);
        one["id"] = json!(id(7));
        one
    };
    let one = with_id("https://e.org/a", "direct_access", true);
    let others = [
        with_id("https://e.org/b", "direct_access", true),
        with_id("https://e.org/a", "playwright", true),
        with_id("https://e.org/a", "direct_access", false),
    ];
    let mixed =
        server.ask("POST", "/v1/attempts", &lines(&[one.clone(), others[0].clone()])).of(200);
    assert_eq!((&mixed["accepted"], &mixed["refused"][0]["line"]), (&json!(1), &json!(2)));
    let check = |server: &Server| {
        for other in &others {
            let refused =
                server.ask("POST", "/v1/attempts", &lines(std::slice::from_ref(other))).of(409);
            assert_eq!(
                (&refused["accepted"], &refused["duplicates"]),
                (&json!(0), &json!(0)),
                "{other}"
            );
            assert!(refused["refused"][0]["error"].as_str().unwrap().contains(&id(7)), "{refused}");
        }
        assert_eq!(
            server.ask("POST", "/v1/attempts", &lines(std::slice::from_ref(&one))).of(200)["duplicates"],
            1
        );
        assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], 1);
    };
    check(&server);
    let (dir, ..) = server.end("-TERM");
    check(&Server::start_in(dir, &[], &[]));
}

#[test]
fn the_same_attempt_from_many_clients_is_recorded_once() {
    let server = Server::start(&[]);
    let all: Vec<Value> = (0..200)
        .map(|n| {
            let mut one = attempt(&format!("https://e.org/{n}"), "direct_access", true);
            one["id"] = json!(id(n + 1));
            one
        })
        .collect();
    let body = lines(&all);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(server.ask("POST", "/v1/attempts", &body).of(200)["accepted"], 200)
            });
        }
    });
    assert_eq!(server.beside(&["export"]).len(), 200);
}

/// Sends attempts from several clients until the server is gone, and returns which were
/// acknowledged.
fn under_load(server: Server, signal: &str) -> (tempfile::TempDir, HashSet<String>, Option<i32>) {
    let (acknowledged, stop) =
        (Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicBool::new(false)));
    let address = server.address;
    let clients: Vec<_> = (0..4u128)
        .map(|client| {
            let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
            std::thread::spawn(move || {
                for call in 0u128.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let ids: Vec<String> =
                        (0..20).map(|n| id((client + 1) << 64 | call << 8 | n)).collect();
                    let all: Vec<Value> = ids
                        .iter()
                        .map(|id| {
                            let mut one = attempt(
                                &format!("https://h{client}.org/{id}"),
                                "direct_access",
                                true,
                            );
                            one["id"] = json!(id);
                            one
                        })
                        .collect();
                    let Ok(answer) = ask_at(address, None, "POST", "/v1/attempts", &lines(&all))
                    else {
                        return;
                    };
                    if answer.status == 200 && answer.json()["accepted"] == 20 {
                        acknowledged.lock().unwrap().extend(ids);
                    }
                    if client == 0 {
                        let visit = ask_at(
                            address,
                            None,
                            "POST",
                            "/v1/visits",
                            br#"{"url": "https://v.org/"}"#,
                        );
                        let Ok(visit) = visit else { return };
                        let path = format!(
                            "/v1/visits/{}/report",
                            visit.json()["visit"].as_str().unwrap_or_default()
                        );
                        let _ = ask_at(address, None, "POST", &path, br#"{"outcome": "content"}"#);
                    }
                }
            })
        })
        .collect();
    while acknowledged.lock().unwrap().len() < 400 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (dir, code, _) = server.end(signal);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    let acknowledged = acknowledged.lock().unwrap().clone();
    (dir, acknowledged, code)
}

fn all_there(dir: tempfile::TempDir, acknowledged: &HashSet<String>) {
    let server = Server::start_in(dir, &[], &[]);
    let logged = server.beside(&["export"]);
    let there: HashSet<&str> = logged.iter().map(|of| of["id"].as_str().unwrap()).collect();
    let lost: Vec<&String> =
        acknowledged.iter().filter(|id| !there.contains(id.as_str())).collect();
    assert!(
        lost.is_empty(),
        "{} of {} acknowledged attempts are not in the log",
        lost.len(),
        acknowledged.len()
    );
    assert_eq!(there.len(), logged.len(), "some are there twice");
    assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], logged.len());
    assert_eq!(
        server.get("/v1/stats?by=domain").of(200).as_array().unwrap(),
        &server.beside(&["stats", "--by", "domain"])
    );
}

#[test]
fn a_kill_loses_no_acknowledged_attempt() {
    let (dir, acknowledged, code) = under_load(Server::start(&["--pace", "off"]), "-KILL");
    assert_eq!(code, None);
    all_there(dir, &acknowledged);
}

#[test]
fn a_stop_under_load_loses_no_acknowledged_attempt() {
    let (dir, acknowledged, code) = under_load(Server::start(&["--pace", "off"]), "-TERM");
    assert_eq!(code, Some(0));
    all_there(dir, &acknowledged);
}

#[test]
fn a_visits_report_is_in_the_log_before_the_response() {
    let server = Server::start(&["--pace", "off"]);
    let reports: Vec<Value> = (0..20)
        .map(|n| {
            let begun =
                server.post("/v1/visits", &json!({ "url": format!("https://h{n}.org/") })).of(201);
            json!({ "visit": begun["visit"], "outcome": "content" })
        })
        .collect();
    assert_eq!(
        server.post("/v1/visits/report", &json!(reports)).of(200).as_array().unwrap().len(),
        20
    );
    let (dir, ..) = server.end("-KILL");
    let server = Server::start_in(dir, &[], &[]);
    assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], 20);
}

#[test]
fn a_second_server_of_the_same_directory_is_refused() {
    let server = Server::start(&[]);
    let data = server.dir.path().join("data");
    let said = std::fs::read_to_string(data.join("SERVE")).unwrap();
    assert_eq!(said, format!("http://{}\n", server.address));
    let second = super::server::program(&server.dir)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&second.stderr);
    assert!(
        second.status.code() == Some(3)
            && words.contains(&format!("the server at http://{}", server.address)),
        "{words}"
    );
    assert_eq!(
        std::fs::read_to_string(data.join("SERVE")).unwrap(),
        said,
        "the first one's address stays"
    );
    let (dir, ..) = server.end("-TERM");
    assert!(!dir.path().join("data/SERVE").exists());
}

#[test]
fn attempts_are_listed_page_by_page_with_the_filters_of_the_command() {
    let server = Server::start(&[]);
    let made = |n: u128| {
        let mut one = attempt(
            &format!("https://{}.org/{n}", ["e", "www.f"][n as usize % 2]),
            "direct_access",
            !n.is_multiple_of(3),
        );
        one["id"] = json!(id(n + 1));
        one["attempted_at"] = json!(format!("2026-03-0{}T12:00:00Z", 1 + n / 10));
        one
    };
    server.ask("POST", "/v1/attempts", &lines(&(0..60).map(made).collect::<Vec<_>>())).of(200);
    let paged = |query: &str| {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/v1/attempts?{query}&limit=7&cursor={cursor}")).of(200);
            let attempts = page["attempts"].as_array().unwrap();
            assert!(attempts.len() <= 7);
            all.extend(attempts.iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break all,
            }
        }
    };
    for (query, args) in [
        ("", &[][..]),
        ("order=oldest", &["--oldest-first"]),
        ("domain=f.org", &["--domain", "f.org"]),
        ("domain=www.f.org&outcome=failed", &["--domain", "f.org", "--outcome", "failed"]),
        ("outcome=content&order=oldest", &["--outcome", "content", "--oldest-first"]),
        (
            "since=2026-03-02&until=2026-03-04T00:00:00Z",
            &["--since", "2026-03-02", "--until", "2026-03-04"],
        ),
        ("url=https%3A%2F%2Fe.org%2F4", &["--url", "https://e.org/4"]),
        ("link=https%3A%2F%2Fe.org%2F8", &["--link", "https://e.org/8"]),
    ] {
        let want = server.beside(&[&["attempts"], args].concat());
        assert!(!want.is_empty(), "{query}");
        assert_eq!(paged(query), want, "{query}");
    }
    assert_eq!(
        server.get("/v1/attempts").of(200)["attempts"].as_array().unwrap().len(),
        50,
        "the default limit"
    );
    for (query, word) in [
        ("outcome=blokced_403", "blocked_403"),
        ("order=up", "newest"),
        ("since=yesterday", "7d"),
        ("since=2026-03-02&until=2026-03-01", "later"),
        ("cursor=x", "next"),
        ("domain=%20", "domain"),
        ("url=no", "url"),
    ] {
        let problem = server.get(&format!("/v1/attempts?{query}")).of(422);
        assert!(problem["error"].as_str().unwrap().contains(word), "{query}: {problem}");
    }
}
