//! A server whose file system fills up and has space again later: it reports that, continues to
//! decide, acknowledges only what is in the log, and accepts repeated attempts once. It is a real
//! file system, so this test needs a machine that allows users to mount.

use std::fs::{self, OpenOptions};
use std::io::Write;

use fetchwise_testsite::poll::until_blocking;
use fetchwise_testsite::requirements::{NO_MOUNT, skip};
use serde_json::{Value, json};

use super::server::{Server, attempt, lines, program};
use crate::small_disk::Small;

/// A hundred attempts with their own ids.
fn batch(number: u128) -> Vec<u8> {
    let all: Vec<Value> = (0..100)
        .map(|n| {
            let mut one = attempt(&format!("https://e.org/{number}/{n}"), "direct_access", true);
            one["id"] = json!(uuid::Uuid::from_u128((number + 1) << 32 | n).to_string());
            one
        })
        .collect();
    lines(&all)
}

#[test]
fn a_full_disk_is_reported_and_nothing_lost_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(&dir.path().join("small"), "3m") else {
        skip(NO_MOUNT);
        return;
    };
    let (data, filler) = (dir.path().join("small/data"), dir.path().join("small/filler"));
    let server = Server::start_in(
        dir,
        &["--pace", "off"],
        &[("FETCHWISE_DATA_DIR", data.to_str().unwrap())],
    );
    assert_eq!(server.ask("POST", "/v1/attempts", &batch(0)).of(200)["accepted"], 100);
    // Fill the rest, to the last byte.
    let mut file = OpenOptions::new().append(true).create(true).open(&filler).unwrap();
    for size in [64 << 10, 4096, 64, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    drop(file);
    // The preallocated space is used up first.
    let mut acknowledged = 1;
    let refused = loop {
        let answer = server.ask("POST", "/v1/attempts", &batch(acknowledged));
        if answer.status != 200 {
            break answer.of(503);
        }
        acknowledged += 1;
        assert!(acknowledged < 10_000, "the file system is never full");
    };
    assert_eq!(refused["error_type"], "log_degraded", "{refused}");
    let ready = server.get("/readyz").of(503);
    assert_eq!((&ready["ready"], &ready["log"]), (&json!(false), &json!("degraded")));
    let log = server.get("/v1/dashboard").of(200)["log"].clone();
    assert!(log["state"] == "degraded" && log["reason"].is_string(), "{log}");
    assert!(server.get("/metrics").body.contains("\nfetchwise_log_healthy 0"));
    // Requests that only read still get a response.
    let chosen = server.post("/v1/select", &json!({ "urls": ["https://e.org/x"] })).of(200);
    assert_eq!(chosen[0]["fetcher"], "direct_access");

    fs::remove_file(&filler).unwrap();
    until_blocking("the server is ready again", || server.get("/readyz").status == 200);
    // A client sends rejected attempts again, and they count once.
    assert_eq!(server.ask("POST", "/v1/attempts", &batch(acknowledged)).of(200)["accepted"], 100);
    let expected = usize::try_from((acknowledged + 1) * 100).unwrap();
    assert_eq!(server.get("/v1/stats").of(200)[0]["attempts"], expected);
    let (dir, code, said) = server.end("-TERM");
    assert_eq!(code, Some(0), "{said}");
    let run =
        |args: &[&str]| program(&dir).args(args).env("FETCHWISE_DATA_DIR", &data).output().unwrap();
    assert_eq!(String::from_utf8(run(&["export"]).stdout).unwrap().lines().count(), expected);
    assert_eq!(run(&["verify"]).status.code(), Some(0));
    drop(small);
}
