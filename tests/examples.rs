//! The examples run, and print what they are there to show. `cargo test` has built them; with `--test examples` alone nobody has.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::path::PathBuf;
use std::process::Command;

/// What an example prints.
fn run(name: &str) -> String {
    // This test is in `deps`, and they are in the folder beside.
    let mut program: PathBuf = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    program.push("examples");
    program.push(name);
    assert!(program.exists(), "{} is not built: cargo test --workspace --all-features builds it", program.display());
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn reqwest_gets_past_the_wall_after_one_refusal() {
    let said = run("reqwest");
    for line in ["127.0.0.2  asked 3 times, refused 0", "127.0.0.3  asked 4 times, refused 1"] {
        assert!(said.lines().any(|said| said == line), "{said}");
    }
}

#[test]
fn a_visit_delivers_behind_the_wall_and_leaves_a_limited_host_alone() {
    let said = run("visit");
    assert_eq!(said.lines().filter(|line| line.starts_with("  delivered")).count(), 6, "{said}");
}

#[test]
fn the_pipeline_delivers_what_can_be_had() {
    let said = run("pipeline");
    assert!(said.lines().filter(|line| line.contains(" bytes by ")).count() >= 10, "{said}");
}

#[test]
fn a_fetcher_of_ones_own_is_asked_and_the_next_one_where_it_has_nothing() {
    let said = run("custom_fetcher");
    assert!(said.contains("by morning") && said.contains("by evening"), "{said}");
}

#[test]
fn decisions_and_verdicts_alone() {
    assert!(run("select").contains("direct_access"));
    assert!(run("detect").contains("react shell"));
}
