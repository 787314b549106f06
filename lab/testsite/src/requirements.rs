//! Programs and permissions that some tests need and a machine may lack.
//!
//! Owns: the decision whether such a test runs, is skipped or fails, and the list of skipped tests
//! that `make test` prints at its end.
//!
//! Invariants: a test that is skipped prints `SKIPPED`, and adds a line to the file that
//! `FETCHWISE_SKIPPED_LIST` names. If `FETCHWISE_SYSTEM_TESTS` is set, a missing program fails the
//! test.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Reports that a test is skipped, and what the machine lacks.
///
/// # Panics
/// If the list of skipped tests cannot be written.
pub fn skip(why: &str) {
    println!("SKIPPED: {why}");
    if let Some(list) = std::env::var_os("FETCHWISE_SKIPPED_LIST") {
        let list = std::fs::OpenOptions::new().create(true).append(true).open(list);
        let written = list.and_then(|mut list| list.write_all(format!("{why}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot list a skipped test: {error}"));
    }
}

/// Returns what was found, and reports the test as skipped if it is missing.
///
/// # Panics
/// If it is missing and `FETCHWISE_SYSTEM_TESTS` is set.
#[track_caller]
pub fn required<T, E: std::fmt::Display>(found: Result<T, E>, why: &str) -> Option<T> {
    found
        .inspect_err(|missing| {
            assert!(std::env::var_os("FETCHWISE_SYSTEM_TESTS").is_none(), "{why}: {missing}");
            skip(why);
        })
        .ok()
}

/// Returns the name of the Python interpreter, and reports the test as skipped if there is none.
///
/// # Panics
/// If there is none and `FETCHWISE_SYSTEM_TESTS` is set.
#[track_caller]
pub fn python() -> Option<&'static str> {
    const NAME: &str = "python3";
    let found =
        Command::new(NAME).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    required(found, "tests with Python (no python3)").map(|_| NAME)
}

/// The reason for which tests with a real browser are skipped.
pub const NO_CHROMIUM: &str =
    "tests with a real browser (no Chromium: `make chromium` installs it)";
/// The reason for which tests with a file system of their own are skipped.
pub const NO_MOUNT: &str =
    "tests with a full file system (this machine does not allow users to mount)";
/// The reason for which tests with a network of their own are skipped.
pub const NO_NETWORK: &str =
    "tests with a network of their own (this machine does not allow users to make one)";
