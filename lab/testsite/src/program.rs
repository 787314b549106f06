//! Programs as their users meet them, for tests: in a folder of their own, with none of our
//! variables.
//!
//! Owns: how a test starts a program, reads what it prints and sends it a signal. Invariants: no
//! wait passes or fails because it is fast or slow within [`PATIENCE`]. Must not know: what the
//! program is.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

/// A time limit that no step reaches.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the program in this folder. It inherits no variable that changes what ours do.
pub fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FETCHWISE_") {
            command.env_remove(name);
        }
    }
    for name in ["LEARNING_MODE_ENABLED", "CHROME", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// What a run printed, and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code, or -1 after a signal.
    pub code: i32,
    /// All that was printed to stdout.
    pub stdout: String,
    /// All that was printed to stderr.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Returns the results, one JSON object per line.
    ///
    /// # Panics
    /// If a line is none.
    #[track_caller]
    pub fn json(&self) -> Vec<Value> {
        let parse = |line| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{error}: {line}\n{}", self.stderr))
        };
        self.stdout.lines().map(parse).collect()
    }

    /// Returns the only result.
    ///
    /// # Panics
    /// If there is none, or more than one.
    #[track_caller]
    pub fn one(&self) -> Value {
        let mut all = self.json();
        assert_eq!(all.len(), 1, "{}{}", self.stdout, self.stderr);
        all.remove(0)
    }
}

/// Sends a signal to a process that a test has started, by the shell's own `kill`: a machine with
/// nothing but Rust may have no program of that name.
///
/// # Panics
/// If the process has ended.
#[track_caller]
pub fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("/bin/sh")
        .args(["-c", "kill \"$@\"", "sh", signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Returns lines as they appear, so that a test need not wait for the end.
pub fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
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
///
/// # Panics
/// If the program ends before, or after [`PATIENCE`], with what was read.
#[track_caller]
pub fn wait_for(lines: &Receiver<String>, what: &str) -> String {
    let mut seen = String::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(what) => return line,
            Ok(line) => seen += &line,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                panic!("no {what:?} in {seen:?}")
            }
        }
    }
}
