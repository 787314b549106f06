//! Runs of the program in a separate directory.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// Sends a signal to a process that a test has started, by the shell's own `kill`: a machine with nothing but Rust may
/// have no program of that name.
#[track_caller]
pub(crate) fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("/bin/sh").args(["-c", "kill \"$@\"", "sh", signal, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// A directory to run the program in; its data directory does not exist at first.
pub(crate) struct TestDir {
    dir: TempDir,
}

/// The output of a run.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Writes a file and returns its name.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), text).unwrap();
        name.to_owned()
    }

    /// Returns the program with `args`, in this directory and with its data directory. It inherits none of our
    /// variables.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.other_program(env!("CARGO_BIN_EXE_fetchwise"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns another program that may start ours, such as a shell. It inherits none of our variables either.
    pub(crate) fn other_program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FETCHWISE_") {
                command.env_remove(name);
            }
        }
        for name in ["LEARNING_MODE_ENABLED", "CHROME", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.current_dir(self.dir.path()).env("FETCHWISE_DATA_DIR", self.data());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// Runs the program with an available browser, on any machine: for commands that start none.
    pub(crate) fn run_with_browser(&self, args: &[&str]) -> Ran {
        let browser = env!("CARGO_BIN_EXE_fetchwise");
        Ran::from(self.command(args).env("FETCHWISE_CHROMIUM", browser).output().unwrap())
    }

    /// Runs the program with `text` on stdin.
    pub(crate) fn run_with(&self, args: &[&str], text: impl AsRef<[u8]>) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // A program that ends before it has read everything closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(text.as_ref());
        Ran::from(child.wait_with_output().unwrap())
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// Imports these attempts, which must all be valid.
    pub(crate) fn import(&self, lines: impl IntoIterator<Item = Value>) {
        let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
        let ran = self.run_with(&["import", "-"], text);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
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
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the only result.
    pub(crate) fn one(&self) -> Value {
        let mut all = self.json();
        assert_eq!(all.len(), 1, "{}{}", self.stdout, self.stderr);
        all.remove(0)
    }
}

/// Returns the segments of a log, the oldest first.
pub(crate) fn segments(data: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "fwl"));
    all.sort();
    all
}

/// Returns the current time in milliseconds.
pub(crate) fn now() -> i64 {
    fetchwise::time::Timestamp::now().as_millis()
}

pub(crate) const HOUR: i64 = 3_600_000;
pub(crate) const DAY: i64 = 24 * HOUR;

/// A time limit that no step reaches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

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
