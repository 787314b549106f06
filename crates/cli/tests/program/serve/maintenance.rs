//! Background maintenance of a server: old attempts are compacted while it responds, and its
//! figures agree with the log again.

use std::time::Duration;

use fetchwise_testsite::poll::found_within;
use serde_json::{Value, json};

use super::server::{Server, attempt, lines, now};

/// More than the log's disk limit allows, also when they are packed.
const ATTEMPTS: usize = 24_000;
const DOMAINS: usize = 7;
const MAX_DISK: u64 = 1 << 20;

#[test]
fn the_log_is_compacted_alongside_the_server_and_the_figures_agree() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), "[log]\nmax_disk_bytes = '1MiB'\n").unwrap();
    let server = Server::start_in(dir, &["--config", "c.toml", "--pace", "off"], &[]);
    let begun = now();
    for call in 0..ATTEMPTS / 1000 {
        let told: Vec<Value> = (0..1000)
            .map(|n| {
                let mut one = attempt(
                    &format!("https://d{}.example/{call}/{n}", n % DOMAINS),
                    "playwright",
                    n % 9 != 0,
                );
                one["attempted_at"] =
                    json!(begun - 20 * 86_400_000 + i64::try_from(call * 1000 + n).unwrap() * 1000);
                one
            })
            .collect();
        assert_eq!(server.ask("POST", "/v1/attempts", &lines(&told)).of(200)["accepted"], 1000);
    }
    server.wait_for("compacted the attempt log in the background", 0);

    // The attempts came faster than compaction. Once it is done, the log is within its limit, and
    // the server agrees with the log.
    found_within(Duration::from_secs(600), "server and log agree", || {
        // First what costs a request: a process for each look would take the processor from the
        // compaction.
        let board = server.get("/v1/dashboard").of(200);
        if board["log"]["bytes"].as_u64().unwrap() >= MAX_DISK {
            return Err(format!("{}: {}", board["log"], server.stderr()));
        }
        let (shown, logged) = (
            server.get("/v1/stats?by=domain").of(200),
            server.beside(&["stats", "--by", "domain"]),
        );
        let agree = *shown.as_array().unwrap() == logged;
        if agree { Ok(()) } else { Err(format!("{shown} and {logged:?}: {}", server.stderr())) }
    });
    let all = |server: &Server| server.get("/v1/stats").of(200)[0]["attempts"].as_u64().unwrap();
    let left = all(&server);
    assert!(left < ATTEMPTS as u64, "something was dropped");
    let board = server.get("/v1/dashboard").of(200);
    assert_eq!((&board["all"]["attempts"], &board["complete"]), (&json!(left), &json!(true)));
    assert!(board["log"]["compacted_at"].is_string(), "{}", board["log"]);

    // Evidence and counts are never dropped.
    let chosen =
        &server.post("/v1/select", &json!({ "urls": ["https://d1.example/new"] })).of(200)[0];
    assert_eq!(
        (&chosen["decision"], &chosen["fetcher"]),
        (&json!("learned"), &json!("playwright"))
    );
    let metrics = server.get("/metrics").body;
    let counted = metrics.lines().filter(|line| line.starts_with("fetchwise_attempts_total{"));
    let counted: u64 =
        counted.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert_eq!(counted, ATTEMPTS as u64);
    assert!(metrics.contains("fetchwise_log_last_compaction_timestamp_seconds"), "{metrics}");
    // The server still accepts attempts and counts them once.
    let one = attempt("https://d1.example/after", "playwright", true);
    server.ask("POST", "/v1/attempts", &lines(&[one])).of(200);
    assert_eq!(all(&server), left + 1);
}
