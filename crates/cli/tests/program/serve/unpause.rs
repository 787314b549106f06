//! `fetchwise unpause` alongside a server: it finds the server by the data directory, and the pause
//! ends at once and in the log.

use std::process::Output;

use serde_json::{Value, json};

use super::server::{Server, attempt, lines, program};

const TOKEN: &str = "a-token-that-is-long-enough";

fn paused(server: &Server) {
    let blocks: Vec<Value> = (0..3)
        .map(|n| attempt(&format!("https://blocks.example/{n}"), "direct_access", false))
        .collect();
    server.ask("POST", "/v1/attempts", &lines(&blocks)).of(200);
    assert_eq!(server.get("/v1/hosts?state=paused").of(200)[0]["host"], "blocks.example");
}

/// Runs `unpause` as on a machine without Unix sockets: it asks the server by HTTP.
fn unpause(server: &Server, args: &[&str], token: Option<&str>) -> Output {
    let _ = std::fs::remove_file(server.dir.path().join("data/control.sock"));
    let mut command = program(&server.dir);
    command.args(["unpause", "--json"]).args(args);
    token.map(|token| command.env("FETCHWISE_TOKEN", token));
    command.output().unwrap()
}

fn one(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_host_and_a_link_are_unpaused_through_the_server_of_the_directory() {
    let server = Server::start(&["--pace", "off"]);
    paused(&server);
    let said = one(&unpause(&server, &["www.blocks.example"], None));
    assert_eq!((&said["host"], &said["unpaused"]), (&json!("blocks.example"), &json!(true)));
    assert_eq!(said["server"], format!("http://{}", server.address));
    assert!(said["was_paused_until"].is_string());
    assert_eq!(server.get("/v1/hosts?state=paused").of(200), json!([]));
    assert_eq!(
        one(&unpause(&server, &["blocks.example"], None))["unpaused"],
        false,
        "it is not paused any more"
    );

    // As given; the log stores it in the form of URLs.
    let link = "https://shut.example/a?b=c d#e";
    let begun =
        server.post("/v1/visits", &json!({ "url": "https://shut.example/a", "id": link })).of(201);
    let path = format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap());
    server
        .post(&path, &json!({ "outcome": "blocked_403", "status": 429, "retry_after": 600 }))
        .of(200);
    assert_eq!(
        server.get("/v1/links?state=paused").of(200)[0]["link"],
        "https://shut.example/a?b=c%20d"
    );
    let said = one(&unpause(&server, &["--link", link], None));
    assert_eq!((&said["link"], &said["unpaused"]), (&json!(link), &json!(true)));
    assert_eq!(server.get("/v1/links?state=paused").of(200), json!([]));
    let (dir, ..) = server.end("-KILL");
    let server = Server::start_in(dir, &[], &[]);
    assert_eq!(
        server.get("/v1/links?state=paused").of(200),
        json!([]),
        "the release is in the log"
    );
}

#[test]
fn a_server_with_tokens_requires_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir, &["--pace", "off"], &[("FETCHWISE_TOKEN", TOKEN)]);
    paused(&server);
    let refused = unpause(&server, &["blocks.example"], None);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && words.contains("FETCHWISE_TOKEN"), "{words}");
    // A server's own token file has hashes, which grant no access.
    std::fs::write(server.dir.path().join("hashes.txt"), format!("sha256:{}\n", "0".repeat(64)))
        .unwrap();
    let hashes = unpause(&server, &["blocks.example", "--token-file", "hashes.txt"], None);
    let words = String::from_utf8(hashes.stderr).unwrap();
    assert!(
        hashes.status.code() == Some(2) && words.contains("hashes.txt contains hashes"),
        "{words}"
    );
    std::fs::write(server.dir.path().join("token.txt"), format!("{TOKEN}\n")).unwrap();
    assert_eq!(
        one(&unpause(&server, &["blocks.example", "--token-file", "token.txt"], None))["unpaused"],
        true
    );
    assert_eq!(one(&unpause(&server, &["blocks.example"], Some(TOKEN)))["unpaused"], false);
    assert_eq!(server.get("/v1/hosts?state=paused").of(200), json!([]));
}

#[test]
fn a_missing_server_is_an_error() {
    let server = Server::start(&[]);
    let address = format!("http://{}", server.address);
    let (dir, ..) = server.end("-TERM");
    let output =
        program(&dir).args(["unpause", "blocks.example", "--server", &address]).output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && words.contains("check that the server runs"),
        "{words}"
    );
}
