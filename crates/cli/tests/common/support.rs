//! Runs of the program in a separate directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fetchwise_testsite::program;
pub(crate) use fetchwise_testsite::program::{PATIENCE, Ran, lines, send_signal, wait_for};
use serde_json::Value;
use tempfile::TempDir;

/// A directory to run the program in; its data directory does not exist at first.
pub(crate) struct TestDir {
    dir: TempDir,
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

    /// Returns the program with `args`, in this directory and with its data directory. It inherits
    /// none of our variables.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.other_program(env!("CARGO_BIN_EXE_fetchwise"));
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns another program that may start ours, such as a shell. It inherits none of our
    /// variables either.
    pub(crate) fn other_program(&self, program: &str) -> Command {
        let mut command = program::command(program, self.dir.path());
        command.env("FETCHWISE_DATA_DIR", self.data());
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

/// Returns the segments of a log, the oldest first.
pub(crate) fn segments(data: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
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
