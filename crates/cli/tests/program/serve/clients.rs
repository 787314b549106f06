//! The clients of `examples/clients` crawl a site on loopback through a real server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use fetchwise_testsite::requirements::{python, skip};
use serde_json::Value;

use super::server::Server;

const TOKEN: &str = "a-token-of-the-clients";

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/clients").join(name)
}

/// A site with a page, and a block page at `/block`.
fn site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or_default();
            let is_block = head[..read].starts_with(b"GET /block");
            let (status, body) = match is_block {
                true => ("403 Forbidden", "<h1>Access denied</h1>".to_owned()),
                false => (
                    "200 OK",
                    format!(
                        "<h1>News</h1><p>{}</p>",
                        "A page with enough words in it to be one. ".repeat(20)
                    ),
                ),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

fn crawl(mut client: Command) {
    let server = Server::start_in(
        tempfile::tempdir().unwrap(),
        &["--pace", "off"],
        &[("FETCHWISE_TOKEN", TOKEN)],
    );
    let site = site();
    client.args([format!("http://{site}/news"), format!("http://{site}/block")]);
    client.env("FETCHWISE_URL", format!("http://{}", server.address)).env("FETCHWISE_TOKEN", TOKEN);
    let output = client.output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let ends: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ends.len(), 2, "{stdout}{stderr}");
    assert_eq!(ends[0]["end"], "delivered", "{stdout}");
    assert_eq!(
        (&ends[1]["end"], &ends[1]["error_type"]),
        (&"failed".into(), &"blocked_403".into()),
        "{stdout}"
    );
    assert_eq!(output.status.code(), Some(1), "one of them was not delivered");
    let rows = server.get("/v1/stats").of(200);
    assert_eq!(
        (&rows[0]["attempts"], &rows[0]["delivered"], &rows[0]["banned"]),
        (&2.into(), &1.into(), &1.into())
    );
}

#[test]
fn the_one_in_python_crawls() {
    let Some(python) = python() else { return };
    let mut python = Command::new(python);
    python.arg(example("fetchwise_client.py"));
    crawl(python);
}

#[test]
fn the_one_in_go_crawls() {
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("client");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(".").current_dir(example("go"));
    go.envs([("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")])
        .env("GOCACHE", built.path().join("cache"));
    match go.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip("tests with Go (no go)");
        }
        Err(error) => panic!("{error}"),
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let vet = Command::new("go").arg("vet").current_dir(example("go")).output().unwrap();
            assert!(vet.status.success(), "{}", String::from_utf8_lossy(&vet.stderr));
            crawl(Command::new(program));
        }
    }
}
