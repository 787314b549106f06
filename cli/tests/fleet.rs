//! The program as a node of a fleet: what one process fetches another one knows, and who may not join is told so by the exit code.
#![cfg(feature = "fleet")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(unreachable_pub, reason = "the brokers are those of the fleet's own tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

#[path = "../../fleet/tests/nats/servers.rs"]
mod servers;

use servers::{Servers, free_port};

/// A site with one page, under every address. Its thread ends with the process.
fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let body =
                    format!("<html><title>A page</title><h1>A page</h1><p>{}</p></html>", "some words ".repeat(300));
                let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n", body.len());
                let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes());
            });
        }
    });
    format!("http://{address}")
}

fn fetchwise(dir: &Path, url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fetchwise"));
    command.args(words).arg("--data-dir").arg(dir).arg("--json").env("FETCHWISE_FLEET", url);
    command.stdin(Stdio::null());
    command
}

fn run(dir: &Path, url: &str, words: &[&str]) -> Output {
    fetchwise(dir, url, words).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", said(output));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn fetch<'a>(page: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["fetch", page, "--allow-private-network", "--no-browser"], more].concat()
}

/// A server of a node, until it is dropped.
struct Serving(Child);

impl Serving {
    fn start(dir: &Path, url: &str) -> Self {
        let mut child =
            fetchwise(dir, url, &["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = [0];
        // It says where it listens once it has joined.
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        Self(child)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let name = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &name);
        } else {
            std::fs::copy(entry.path(), name).unwrap();
        }
    }
}

struct Place {
    folder: tempfile::TempDir,
    servers: Servers,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), servers: Servers::start(1) }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        self.servers.urls().join(",")
    }
}

#[test]
fn what_one_node_fetches_another_one_knows() {
    let (place, site) = (Place::new(), site());
    let (a, b, url) = (place.dir("a"), place.dir("b"), place.url());
    let made = run(&a, &url, &["fleet", "init"]);
    assert_eq!(String::from_utf8_lossy(&made.stdout).matches("\"made\"").count(), 6, "{}", said(&made));
    assert_eq!(String::from_utf8_lossy(&run(&a, &url, &["fleet", "init"]).stdout).matches("\"there\"").count(), 6);
    let page = format!("{site}/page.html");
    assert_eq!(json(&run(&a, &url, &fetch(&page, &[])))["success"], true);
    let status = json(&run(&b, &url, &["fleet", "status", "--wait", "30s"]));
    assert!(status["quiet"].as_bool().unwrap() && status["broker"].as_bool().unwrap() && status["withheld"] == 0);
    let peer = &status["peers"][0];
    assert!(peer["position"].as_u64().unwrap() > 0 && peer["holes"] == 0, "{status}");
    assert!(["origin", "share", "lag_s", "version"].iter().all(|field| !peer[field].is_null()), "{peer}");
    let explained = json(&run(&b, &url, &["explain", &page, "--no-browser"]));
    let steps = explained["steps"].as_array().unwrap();
    let of = |field: &str| steps.iter().filter_map(|step| step[field].as_f64()).sum::<f64>();
    assert!(of("foreign_total") > 0.5 && of("own_total") == 0.0, "{explained}");
    // Left out, and counted again.
    let node = peer["origin"].as_str().unwrap();
    for (word, counts) in [("exclude", false), ("include", true)] {
        assert_eq!(code(&run(&b, &url, &["fleet", word, node])), 0);
        let status = json(&run(&b, &url, &["fleet", "status", "--wait", "30s"]));
        assert_eq!(status["peers"][0]["excluded"], !counts, "{status}");
    }
    // Forgotten at one, forgotten at the other.
    assert_eq!(code(&run(&a, &url, &["forget", "--domain", "127.0.0.1"])), 0);
    run(&b, &url, &["fleet", "status", "--wait", "30s"]);
    let mut left = f64::MAX;
    for _ in 0..20 {
        json(&run(&b, &url, &["fleet", "status", "--wait", "2s"]));
        let explained = json(&run(&b, &url, &["explain", &page, "--no-browser"]));
        let steps = explained["steps"].as_array().unwrap();
        left = steps.iter().filter(|step| step["type"] == "domain").filter_map(|step| step["total"].as_f64()).sum();
        if left == 0.0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    assert_eq!(left, 0.0, "the other node still knows the domain");
    let owner = json(&run(&b, &url, &["fleet", "owner", &page]));
    assert!(owner["owner"].is_string(), "{owner}");
    assert_eq!(code(&run(&a, &url, &["fleet", "leave"])), 0);
}

#[test]
fn who_may_not_join_is_told_so() {
    let (place, site) = (Place::new(), site());
    let (a, url) = (place.dir("a"), place.url());
    let page = format!("{site}/page.html");
    let serving = Serving::start(&a, &url);
    let status = json(&run(&a, &url, &["fleet", "status", "--wait", "20s"]));
    assert_eq!(status["quiet"], true, "beside a server it tells what that one knows: {status}");
    let copied = place.dir("copied");
    copy(&a, &copied);
    let _ = std::fs::remove_file(copied.join("fleet.status.json"));
    let twin = run(&copied, &url, &fetch(&page, &[]));
    assert_eq!(code(&twin), 3, "{}", said(&twin));
    assert!(said(&twin).contains("in the fleet already"), "{}", said(&twin));
    let config = place.dir("other.toml");
    std::fs::write(&config, "half_life_days = 90\n").unwrap();
    let config = config.to_str().unwrap();
    let other = run(&place.dir("other"), &url, &fetch(&page, &["--config", config]));
    assert_eq!(code(&other), 2, "{}", said(&other));
    assert!(said(&other).contains("half-life"), "{}", said(&other));
    drop(serving);
    // Without a broker a crawl goes on, unless one is required.
    let nobody = format!("nats://127.0.0.1:{}", free_port());
    let alone = run(&place.dir("alone"), &nobody, &fetch(&page, &[]));
    assert_eq!(json(&alone)["success"], true);
    assert!(said(&alone).contains("goes on alone"), "{}", said(&alone));
    let required = place.dir("required.toml");
    std::fs::write(&required, "[fleet]\nrequired = true\n").unwrap();
    let failed = run(&place.dir("alone"), &nobody, &fetch(&page, &["--config", required.to_str().unwrap()]));
    assert_eq!(code(&failed), 1, "{}", said(&failed));
    let far = run(&place.dir("alone"), "nats://me:secret@broker.example", &fetch(&page, &[]));
    assert_eq!(code(&far), 2, "{}", said(&far));
    assert!(said(&far).contains("tls://") && !said(&far).contains("secret"), "{}", said(&far));
}
