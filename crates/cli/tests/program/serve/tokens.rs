//! Access: tokens, hosts and client rates.

use serde_json::json;

use super::server::{Server, ask_at, program};
use crate::support::{TestDir, lines, wait_for};

#[test]
fn a_token_keeps_other_clients_out() {
    let server = Server::start_in(
        tempfile::tempdir().unwrap(),
        &[],
        &[("FETCHWISE_TOKEN", "a-long-secret-of-ours other-secret-of-ours")],
    );
    let ask = |token, path| ask_at(server.address, token, "GET", path, b"").unwrap();
    for (token, status) in [
        (None, 401),
        (Some("wrong"), 401),
        (Some("a-long-secret-of-our"), 401),
        (Some("other-secret-of-ours"), 200),
    ] {
        assert_eq!(ask(token, "/v1/stats").status, status, "{token:?}");
    }
    let refused = ask(None, "/v1/mode");
    assert_eq!(refused.json()["error_type"], "unauthorized");
    assert!(refused.head.to_ascii_lowercase().contains("www-authenticate: bearer"));
    assert_eq!((ask(None, "/healthz").status, ask(None, "/readyz").status), (200, 200));
    assert_eq!(ask(None, "/openapi.json").status, 401);
    let said = server.stderr();
    assert!(!said.contains("secret-of-ours") && !said.contains("wrong"), "{said}");
}

#[test]
fn a_new_token_is_printed_once_and_its_hash_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let made = program(&dir)
        .args(["serve", "--new-token", "--token-file", "tokens.txt"])
        .output()
        .unwrap();
    assert!(made.status.success());
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let kept = std::fs::read_to_string(dir.path().join("tokens.txt")).unwrap();
    assert!(token.len() == 64 && kept.starts_with("sha256:") && !kept.contains(&token));
    let server =
        Server::start_in(dir, &["--token-file", "tokens.txt"], &[("FETCHWISE_TOKEN", &token)]);
    assert_eq!(server.get("/v1/stats").status, 200);
    assert_eq!(ask_at(server.address, None, "GET", "/v1/stats", b"").unwrap().status, 401);
}

#[test]
fn a_server_says_what_is_at_its_address_and_who_may_use_it() {
    for (token, want) in
        [(None, "none: only this machine"), (Some("a-long-secret-of-ours"), "required")]
    {
        let place = TestDir::new();
        let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
        if let Some(token) = token {
            command.env("FETCHWISE_TOKEN", token);
        }
        let mut server = command.spawn().unwrap();
        let said = lines(server.stdout.take().unwrap());
        let url = wait_for(&said, "listening on ").replacen("listening on ", "", 1);
        let shown =
            ["dashboard", "API", "metrics", "data", "token"].map(|what| wait_for(&said, what));
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(
            shown[0].ends_with(&format!("{url}/")) && shown[2].ends_with(&format!("{url}/metrics")),
            "{shown:?}"
        );
        assert!(shown[1].contains("/openapi.json"), "{shown:?}");
        assert!(
            shown[3].contains(place.data().to_str().unwrap()) && shown[4].contains(want),
            "{shown:?}"
        );
    }
}

#[test]
fn an_open_address_requires_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let refused = program(&dir).args(["serve", "--listen", "0.0.0.0:0"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--new-token"), "{said}");
    std::fs::write(dir.path().join("empty.txt"), "# nobody\n").unwrap();
    let refused = program(&dir).args(["serve", "--token-file", "empty.txt"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_page_of_another_site_is_rejected() {
    let server = Server::start(&[]);
    let ask = |host: &str, origin: &str| {
        let mut stream = server.connect();
        let body = json!({ "domain": "e.org" }).to_string();
        let head = format!(
            "POST /v1/forget HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        super::server::read(&mut stream).unwrap().status
    };
    let own = server.address.to_string();
    assert_eq!(ask(&own, ""), 200);
    assert_eq!(ask(&own, &format!("Origin: http://{own}\r\n")), 200);
    assert_eq!(ask(&own, "Origin: https://evil.example\r\n"), 403);
    assert_eq!(ask("evil.example", ""), 403);
}

#[test]
fn each_client_has_its_own_rate_limit() {
    let server = Server::start_in(
        tempfile::tempdir().unwrap(),
        &["--client-rate", "20"],
        &[("FETCHWISE_TOKEN", "first-token-of-ours second-token-of-ours")],
    );
    let ask = |token| ask_at(server.address, Some(token), "GET", "/v1/mode", b"").unwrap();
    let refused = (0..200).map(|_| ask("first-token-of-ours")).find(|answer| answer.status == 429);
    if let Some(refused) = refused {
        assert!(refused.head.to_ascii_lowercase().contains("retry-after: "), "{refused:?}");
        assert_eq!(refused.json()["error_type"], "rate_limited");
        assert_eq!(ask("second-token-of-ours").status, 200);
    } else {
        panic!("two hundred requests in a row, and no limit at twenty a second");
    }
}
