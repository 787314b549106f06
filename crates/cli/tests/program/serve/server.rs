//! The program as a server in its own directory, and a minimal HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fetchwise_testsite::poll::{found, until_blocking};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::send_signal;

/// A time limit that no response reaches on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, which is killed on drop.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    pub(crate) address: SocketAddr,
    /// The address of the public listener, if there is one.
    pub(crate) public: Option<SocketAddr>,
    pub(crate) child: Child,
    token: Option<String>,
    stderr: PathBuf,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the body of a response that must have this status.
    #[track_caller]
    pub(crate) fn of(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }
}

pub(crate) fn program(dir: &TempDir) -> Command {
    let mut command =
        fetchwise_testsite::program::command(env!("CARGO_BIN_EXE_fetchwise"), dir.path());
    command.env("FETCHWISE_DATA_DIR", dir.path().join("data"));
    // Commands that start no browser find one on any machine.
    command.env("FETCHWISE_CHROMIUM", env!("CARGO_BIN_EXE_fetchwise"));
    command
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), args, &[])
    }

    /// Starts the program without waiting until it listens.
    pub(crate) fn spawn_at(dir: TempDir, address: SocketAddr, args: &[&str]) -> Self {
        let stderr = dir.path().join("stderr");
        let mut command = program(&dir);
        command.args(["serve", "--json", "--listen", &address.to_string()]).args(args);
        command.stdout(Stdio::null()).stderr(std::fs::File::create(&stderr).unwrap());
        let child = command.spawn().unwrap();
        Self { dir, address, public: None, child, token: None, stderr }
    }

    pub(crate) fn start_in(dir: TempDir, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let stderr = dir.path().join("stderr");
        let mut command = program(&dir);
        command
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .args(args)
            .envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(&stderr).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("{line:?} {}", std::fs::read_to_string(&stderr).unwrap_or_default())
        });
        let address = said["listening"].as_str().unwrap().parse().unwrap();
        let token = variables
            .iter()
            .find(|(name, _)| *name == "FETCHWISE_TOKEN")
            .map(|(_, token)| token.to_string());
        let public = said["public"].as_str().map(|address| address.parse().unwrap());
        let server = Self { dir, address, public, child, token, stderr };
        until_blocking("the server is ready", || server.get("/readyz").status == 200);
        server
    }

    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits for `words` in its output after the first `from` bytes. Returns all output.
    #[track_caller]
    pub(crate) fn wait_for(&self, words: &str, from: usize) -> String {
        found(words, || {
            let said = self.stderr();
            if said.get(from..).is_some_and(|later| later.contains(words)) {
                Ok(said)
            } else {
                Err(said)
            }
        })
    }

    /// Sends SIGHUP and waits for `words`.
    #[track_caller]
    pub(crate) fn hang_up(&self, words: &str) -> String {
        let from = self.stderr().len();
        send_signal(&self.child, "-HUP");
        self.wait_for(words, from)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.ask("GET", path, b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.ask("POST", path, body.to_string().as_bytes())
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &[u8]) -> Response {
        self.try_ask(method, path, body).unwrap()
    }

    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> std::io::Result<Response> {
        ask_at(self.address, self.token.as_deref(), method, path, body)
    }

    /// Runs another command alongside it, with JSON.
    pub(crate) fn beside(&self, args: &[&str]) -> Vec<Value> {
        let output = program(&self.dir).arg("--json").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(mut self, signal: &str) -> (TempDir, Option<i32>, String) {
        send_signal(&self.child, signal);
        let code = self.child.wait().unwrap().code();
        let said = self.stderr();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        (dir, code, said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn ask_at(
    address: SocketAddr,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &[u8],
) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let bearer =
        token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{bearer}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // A server that rejects a body may close before it has read all of it.
    let _ = stream.write_all(body);
    read(&mut stream)
}

/// Reads one response of a connection that closes after it.
pub(crate) fn read(stream: &mut TcpStream) -> std::io::Result<Response> {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(ended
            .err()
            .unwrap_or_else(|| std::io::Error::other(format!("no answer: {text:?}"))));
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Ok(Response { status, head: head.to_owned(), body: body.to_owned() })
}

/// Returns the current time in milliseconds.
pub(crate) fn now() -> i64 {
    fetchwise::time::Timestamp::now().as_millis()
}

/// Returns an attempt as a line.
pub(crate) fn attempt(url: &str, fetcher: &str, success: bool) -> Value {
    let mut line =
        json!({ "url": url, "fetcher": fetcher, "success": success, "attempted_at": now() });
    if !success {
        line["error_type"] = json!("blocked_403");
    }
    line
}

/// Parses lines of JSON.
pub(crate) fn lines<'v>(values: impl IntoIterator<Item = &'v Value>) -> Vec<u8> {
    values.into_iter().map(|value| format!("{value}\n")).collect::<String>().into_bytes()
}
