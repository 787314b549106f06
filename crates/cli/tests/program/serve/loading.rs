//! The server while it loads: health checks, and its end by a signal.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fetchwise_testsite::poll::{found, until_blocking};
use fetchwise_testsite::ports::on_a_free_port;
use serde_json::json;
use tempfile::TempDir;

use super::server::Server;

/// Starts a server that loads until somebody writes to the pipe, which is its file of rules.
fn loading() -> (Server, PathBuf) {
    // It announces its address once it has loaded.
    on_a_free_port(Ipv4Addr::LOCALHOST.into(), |address| {
        let dir = TempDir::new().unwrap();
        let pipe = dir.path().join("rules.toml");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut server = Server::spawn_at(dir, address, &["--rules", pipe.to_str().unwrap()]);
        let listens = found("the server listens", || {
            let has_ended = server.child.try_wait().unwrap().is_some();
            if has_ended {
                Ok(false)
            } else {
                server.try_ask("GET", "/healthz", b"").map(|answer| answer.status == 200)
            }
        });
        listens.then_some((server, pipe))
    })
}

fn wait(server: &Server, path: &str, status: u16) {
    until_blocking(path, || {
        server.try_ask("GET", path, b"").is_ok_and(|answer| answer.status == status)
    });
}

#[test]
fn a_loading_server_responds_to_health_checks_only() {
    let (server, pipe) = loading();
    let ready = server.get("/readyz").of(503);
    assert_eq!((&ready["ready"], &ready["loading"]), (&json!(false), &json!(true)));
    let refused = server.post("/v1/select", &json!({ "urls": ["https://e.org/"] }));
    assert!(refused.head.to_ascii_lowercase().contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(refused.of(503)["error_type"], "loading");
    // Both detectors read the rules.
    let writer = std::thread::spawn(move || {
        while std::fs::exists(&pipe).is_ok_and(|exists| exists) {
            if std::fs::OpenOptions::new().write(true).open(&pipe).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    wait(&server, "/readyz", 200);
    let ready = server.get("/readyz").of(200);
    assert_eq!([&ready["loading"], &ready["log_checking"]], [&json!(false); 2]);
    server.post("/v1/select", &json!({ "urls": ["https://e.org/"] })).of(200);
    // Opening the pipe for reading too lets its writer end.
    let pipe = server.dir.path().join("rules.toml");
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    writer.join().unwrap();
    drop(reader);
}

#[test]
fn a_signal_ends_a_server_that_still_loads() {
    let (server, _pipe) = loading();
    // Nobody writes to the pipe, so it would load forever.
    let (_, code, said) = server.end("-TERM");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("stopped while loading"), "{said}");
}
