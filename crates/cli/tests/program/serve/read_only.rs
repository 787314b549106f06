//! `serve --read-only`: it follows the log of a running server or of a dead process, locks nothing
//! and changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use fetchwise_testsite::poll::until_blocking as until;
use serde_json::{Value, json};

use super::server::{Server, attempt, lines, program};

fn follow(data: &Path) -> Server {
    Server::start(&["--all-fetchers", "--read-only", data.to_str().unwrap()])
}

fn record(server: &Server, attempts: &[Value]) {
    assert_eq!(server.ask("POST", "/v1/attempts", &lines(attempts)).of(200)["refused"], json!([]));
}

#[test]
fn it_follows_what_another_process_records() {
    let writer = Server::start(&["--all-fetchers"]);
    let pages = |host: &str, from: usize| -> Vec<Value> {
        (from..from + 20)
            .map(|n| attempt(&format!("https://{host}/a/{n}"), "playwright", true))
            .collect()
    };
    record(&writer, &pages("e.org", 0));
    let reader = follow(&writer.dir.path().join("data"));
    let agrees = || {
        let of = |path: &str| [writer.get(path).of(200), reader.get(path).of(200)];
        let [a, b] = of("/v1/stats?by=domain");
        let [mut c, mut d] = of("/v1/attempts?limit=1000");
        for page in [&mut c, &mut d] {
            page["attempts"].as_array_mut().unwrap().sort_by_key(|one| one["id"].to_string());
        }
        a == b && c == d
    };
    assert!(agrees(), "what was there at its start");
    record(&writer, &pages("f.org", 0));
    until("new attempts appear", agrees);
    let explain = "/v1/explain?url=https%3A%2F%2Ff.org%2Fa%2F99";
    let evidence = |server: &Server| {
        let said = server.get(explain).of(200);
        let steps = said["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| [&step["type"], &step["fetcher"]].map(Value::clone));
        (said["fetcher"].clone(), steps.collect::<Vec<_>>())
    };
    let (_, steps) = evidence(&reader);
    assert!(steps.contains(&[json!("domain"), json!("playwright")]), "{steps:?}");
    assert_eq!(evidence(&reader), evidence(&writer));
    // A pause, and its end.
    let blocks: Vec<Value> =
        (0..6).map(|n| attempt(&format!("https://b.org/{n}"), "direct_access", false)).collect();
    record(&writer, &blocks);
    let paused = |server: &Server| -> Vec<(Value, Value)> {
        let hosts = server.get("/v1/hosts?state=paused").of(200);
        hosts
            .as_array()
            .unwrap()
            .iter()
            .map(|host| (host["host"].clone(), host["paused_until"].clone()))
            .collect()
    };
    until("the pause appears", || {
        !paused(&reader).is_empty() && paused(&reader) == paused(&writer)
    });
    assert_eq!(writer.ask("POST", "/v1/hosts/b.org/unpause", b"").of(200)["unpaused"], true);
    until("the pause ends", || paused(&reader).is_empty());
    // A forgotten domain leaves the figures, and what follows counts.
    writer.post("/v1/forget", &json!({ "domain": "e.org" })).of(200);
    record(&writer, &pages("e.org", 7));
    until("a domain is forgotten", agrees);
    let rows = reader.get("/v1/stats?by=domain").of(200);
    let row = rows.as_array().unwrap().iter().find(|row| row["key"] == "e.org").unwrap();
    assert_eq!(row["attempts"], 20);
    // The writer dies. Its log is still shown.
    let (_dir, ..) = writer.end("-KILL");
    assert_eq!(reader.get("/v1/stats").of(200)[0]["attempts"], 46);
    let log = &reader.get("/v1/dashboard").of(200)["log"];
    assert_eq!((&log["state"], &log["reason"]), (&json!("followed"), &json!(null)));
}

#[test]
fn it_changes_nothing_and_refuses_what_would() {
    let writer = Server::start(&[]);
    record(&writer, &[attempt("https://e.org/", "playwright", true)]);
    let (place, ..) = writer.end("-TERM");
    let data = place.path().join("data");
    let files = || -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path());
        let read = |file: std::path::PathBuf| {
            let bytes = if file.is_file() { std::fs::read(&file).unwrap() } else { Vec::new() };
            (file.file_name().unwrap().to_str().unwrap().to_owned(), bytes)
        };
        entries.map(read).collect()
    };
    let before = files();
    let reader = follow(&data);
    for (method, path, body) in [
        ("POST", "/v1/attempts", "{}"),
        ("POST", "/v1/visits", r#"{"url": "https://e.org/"}"#),
        ("POST", "/v1/forget", r#"{"domain": "e.org"}"#),
        ("POST", "/v1/hosts/e.org/unpause", ""),
        ("POST", "/v1/mode", r#"{"mode": "legacy"}"#),
        ("DELETE", "/v1/visits/1", ""),
    ] {
        let refused = reader.ask(method, path, body.as_bytes());
        assert!(
            refused.head.to_ascii_lowercase().contains("content-type: application/problem+json"),
            "{refused:?}"
        );
        let problem = refused.of(405);
        assert_eq!(
            (&problem["error_type"], &problem["status"]),
            (&json!("read_only"), &json!(405))
        );
        assert!(problem["detail"].as_str().unwrap().contains("follows a log"), "{problem}");
    }
    assert_eq!(reader.get("/v1/dashboard").of(200)["read_only"], true);
    // The directory is free: another process may write there, and finds no trace.
    let import = program(&place).arg("stats").output().unwrap();
    assert!(import.status.success(), "{import:?}");
    let (_own, code, _) = reader.end("-TERM");
    assert_eq!((code, files() == before), (Some(0), true));
    // While it follows, a writer can start.
    let reader = follow(&data);
    let writer = Server::start_in(place, &[], &[]);
    record(&writer, &[attempt("https://f.org/", "playwright", true)]);
    until("the attempt appears", || reader.get("/v1/stats").of(200)[0]["attempts"] == 2);
}

#[test]
fn a_locked_directory_says_how_to_watch_it() {
    let writer = Server::start(&[]);
    let said = |place: &tempfile::TempDir| {
        let output = program(place).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let server = said(&writer.dir);
    assert!(
        server.contains("is locked by pid") && server.contains("serve --read-only"),
        "{server}"
    );
    // Without an address a crawl has the lock.
    std::fs::remove_file(writer.dir.path().join("data/SERVE")).unwrap();
    let crawl = said(&writer.dir);
    assert!(crawl.contains("fetch --serve") && crawl.contains("serve --read-only"), "{crawl}");
    let missing = program(&writer.dir).args(["serve", "--read-only", "nowhere"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nowhere"), "{missing:?}");
}

/// It said that it was ready, and showed what it had read.
#[test]
fn a_directory_that_is_gone_makes_it_not_ready() {
    let writer = Server::start(&["--all-fetchers"]);
    record(&writer, &[attempt("https://e.org/1", "playwright", true)]);
    let (dir, code, said) = writer.end("-TERM");
    assert_eq!(code, Some(0), "{said}");
    let (data, away, empty) =
        (dir.path().join("data"), dir.path().join("away"), dir.path().join("empty"));
    let reader = follow(&data);
    assert_eq!(reader.get("/readyz").of(200)["log"], "good");
    let is_ready = |want: bool| {
        until("readiness follows the directory", || (reader.get("/readyz").status == 200) == want);
    };
    std::fs::rename(&data, &away).unwrap();
    is_ready(false);
    assert_eq!(reader.get("/readyz").of(503)["log"], "degraded");
    // Another directory in its place is not the log either.
    std::fs::create_dir(&data).unwrap();
    until("it was looked at again", || {
        reader.get("/v1/dashboard").of(200).to_string().contains("is gone")
    });
    is_ready(false);
    std::fs::rename(&data, &empty).unwrap();
    std::fs::rename(&away, &data).unwrap();
    is_ready(true);
}
