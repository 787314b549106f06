//! Runs of the program in a separate directory, and requests to what it serves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;
use url::Url;

/// A time limit that no step reaches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program with these arguments, in a folder. It inherits none of our variables.
pub(crate) fn command(folder: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fetchwise-lab"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FETCHWISE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("CHROME").env_remove("NO_COLOR").current_dir(folder.path()).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a run printed, and how it ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run(folder: &tempfile::TempDir, args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } = command(folder, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }
}

impl Ran {
    /// Returns the results, one JSON object per line.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Sends a signal by the shell's own `kill`: a machine with nothing but Rust may have no program of that name.
pub(crate) fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("/bin/sh").args(["-c", "kill \"$@\"", "sh", signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Returns lines as they appear, so that a test need not wait for the end.
pub(crate) fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Waits for a line with `what` in it.
pub(crate) fn wait_for(lines: &Receiver<String>, what: &str) -> String {
    let mut seen = String::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(what) => return line,
            Ok(line) => seen += &line,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => panic!("no {what:?} in {seen:?}"),
        }
    }
}

/// Returns the body of a response by HTTP/1.0.
pub(crate) fn ask(method: &str, url: &str, body: &str) -> String {
    let url = Url::parse(url).unwrap();
    let host = url.host_str().unwrap();
    let mut stream = TcpStream::connect((host, url.port().unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = &url[url::Position::BeforePath..];
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}
