//! Disks that fail: a sync that fails once and drops what was written, and a disk that is full
//! during a snapshot. A library before the C library plays the disk, so that the program under test
//! is the real one.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::server::Server;
use crate::support::{TestDir, now};

/// Compiles the library, and returns its path.
fn faulty_disk(place: &TestDir) -> String {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/system/faulty_disk.c");
    let library = place.path("faulty_disk.so");
    let mut compile = Command::new("cc");
    compile
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&library)
        .arg(source);
    assert!(compile.arg("-ldl").status().unwrap().success());
    library.to_str().unwrap().to_owned()
}

fn attempt(n: usize) -> Value {
    json!({"url": format!("https://e.org/{n}"), "fetcher": "direct_access", "success": true, "attempted_at": now()})
}

/// After a failed sync, Linux drops what was written and lets the next sync succeed. A log that
/// takes this for success loses attempts that it has acknowledged.
#[test]
fn nothing_acknowledged_is_lost_when_a_sync_fails_once() {
    let place = TestDir::new();
    let library = faulty_disk(&place);
    for failing in [2, 3, 7] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("sync.toml"), "[log]\ndurability = \"sync\"\n").unwrap();
        let failing = failing.to_string();
        let variables = [("LD_PRELOAD", library.as_str()), ("FAULTY_SYNC", failing.as_str())];
        let mut server = Server::start_in(dir, &["--config", "sync.toml"], &variables);
        let (mut acknowledged, mut refused) = (HashSet::new(), 0);
        for n in 0..20 {
            let response = server.ask("POST", "/v1/attempts", attempt(n).to_string().as_bytes());
            match response.status {
                200 => drop(acknowledged.insert(format!("https://e.org/{n}"))),
                503 => refused += 1,
                _ => panic!("{response:?}"),
            }
        }
        // The log writes what was dropped again, to a new segment, or refuses it.
        let dropped = server.wait_for("faulty disk: dropped ", 0);
        assert!(!dropped.contains("dropped 0 bytes"), "{dropped}");
        assert_eq!(acknowledged.len() + refused, 20);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let logged: HashSet<String> = server
            .beside(&["export"])
            .iter()
            .map(|line| line["url"].as_str().unwrap().to_owned())
            .collect();
        let missing: Vec<_> = acknowledged.difference(&logged).collect();
        assert!(
            missing.is_empty(),
            "sync {failing}: {missing:?} of {} acknowledged",
            acknowledged.len()
        );
    }
}

#[test]
fn a_disk_that_is_full_at_any_write_of_a_snapshot_costs_nothing() {
    let place = TestDir::new();
    let library = faulty_disk(&place);
    place.import((0..200).map(attempt));
    let urls = || place.run(&["export"]).json().len();
    for write in 1.. {
        assert!(write < 200, "the snapshot never succeeds");
        let mut command = place.command(&["snapshot"]);
        command.env("LD_PRELOAD", &library).env("FAULTY_WRITE", write.to_string());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(urls(), 200, "write {write}: {said}");
        assert_eq!(place.run(&["verify"]).code, 0, "write {write}: {said}");
        if output.status.success() {
            assert!(write > 1, "no write was counted");
            break;
        }
        assert!(
            said.contains("free space") || said.contains("No space left"),
            "write {write}: {said}"
        );
        // A snapshot that failed leaves nothing behind that a later one cannot clear away.
        let left = std::fs::read_dir(place.data()).unwrap();
        let left = left.filter(|entry| {
            entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("tmp-")
        });
        assert!(left.count() <= 1, "write {write}");
    }
}
