//! A `fetchwise serve` of the test, and plain HTTP to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fetchwise_testsite::program;
use serde_json::{Value, json};

use super::chrome::PATIENCE;

/// Returns the program for a data directory.
pub(crate) fn program(data: &Path) -> Command {
    let mut command = program::command(env!("CARGO_BIN_EXE_fetchwise"), data.parent().unwrap());
    command.env("FETCHWISE_DATA_DIR", data);
    command
}

/// Returns what a command prints with `--json`.
pub(crate) fn lines(data: &Path, args: &[&str]) -> Vec<Value> {
    let output = program(data).args(args).arg("--json").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A server.
pub(crate) struct Server {
    child: Child,
    /// The address, `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    host: String,
    token: Option<String>,
}

impl Server {
    /// Starts one, with a token if there is one, and waits until it has read the log.
    pub(crate) fn start(data: &Path, token: Option<&str>) -> Self {
        Self::start_with(data, token, &[])
    }

    /// Does the same with more options.
    pub(crate) fn start_with(data: &Path, token: Option<&str>, options: &[&str]) -> Self {
        Self::launch(data, token, &[&["--all-fetchers"], options].concat())
    }

    /// Starts one with only those fetchers that this machine has.
    pub(crate) fn start_bare(data: &Path, options: &[&str]) -> Self {
        Self::launch(data, None, options)
    }

    fn launch(data: &Path, token: Option<&str>, options: &[&str]) -> Self {
        let mut command = program(data);
        command.args(["serve", "--listen", "127.0.0.1:0", "--json"]).args(options);
        command.stdout(Stdio::piped());
        if let Some(token) = token {
            command.env("FETCHWISE_TOKEN", token);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let url = said["url"].as_str().unwrap().to_owned();
        let host = url.trim_start_matches("http://").to_owned();
        let server = Self { child, url, host, token: token.map(str::to_owned) };
        let begun = Instant::now();
        while server.ask("GET", "/readyz", None).0 != 200 {
            assert!(begun.elapsed() < PATIENCE, "never ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Makes one request on its own connection and returns status and body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.unwrap_or_default();
        let token = self
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{token}Content-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "{head}");
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Returns JSON from a path.
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Records attempts, which must all be accepted.
    pub(crate) fn record(&self, attempts: &[Value]) {
        let body: String = attempts.iter().map(|attempt| format!("{attempt}\n")).collect();
        let (status, answer) = self.ask("POST", "/v1/attempts", Some(&body));
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["accepted"], json!(attempts.len()), "{answer}");
    }

    /// Kills it, like a power failure.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
