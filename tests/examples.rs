//! The examples run, and print what they demonstrate. `cargo test` builds them;
//! `cargo test --test examples` alone does not.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::path::PathBuf;
use std::process::Command;

/// Returns the output of an example.
fn run(name: &str) -> String {
    // This test is in `deps`, and the examples are in the folder next to it.
    let mut program: PathBuf = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    program.push("examples");
    program.push(name);
    assert!(
        program.exists(),
        "{} is not built: cargo test --workspace --all-features builds it",
        program.display()
    );
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn reqwest_gets_past_the_block_after_one_refusal() {
    // Two decisions in a hundred explore, and then the site refuses once more: one of three runs
    // has none of them.
    let expected = ["127.0.0.2  asked 3 times, refused 0", "127.0.0.3  asked 4 times, refused 1"];
    let runs: Vec<String> = (0..3).map(|_| run("reqwest")).collect();
    let has_all =
        |said: &String| expected.iter().all(|line| said.lines().any(|said| said == *line));
    assert!(runs.iter().any(has_all), "{runs:#?}");
}

#[test]
fn a_visit_delivers_past_the_block_and_pauses_a_limited_host() {
    let said = run("visit");
    assert_eq!(said.lines().filter(|line| line.starts_with("  delivered")).count(), 6, "{said}");
}

#[test]
fn the_pipeline_delivers_every_deliverable_page() {
    let said = run("pipeline");
    assert!(said.lines().filter(|line| line.contains(" bytes by ")).count() >= 10, "{said}");
}

#[test]
fn a_custom_fetcher_is_used_and_the_next_one_for_the_pages_that_it_lacks() {
    let said = run("custom_fetcher");
    assert!(said.contains("by morning") && said.contains("by evening"), "{said}");
}

#[test]
fn a_polite_crawler_fetches_all_but_what_robots_txt_forbids() {
    let said = run("polite");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.ends_with(" bytes")).count(), 5, "{said}");
    assert!(
        lines[5].contains("/deeper/1: Some(\"disallowed\")"),
        "in the order of the input: {said}"
    );
    assert!(lines[6].starts_with("5 delivered"), "{said}");
}

#[test]
fn decisions_and_verdicts_alone() {
    assert!(run("select").contains("direct_access"));
    assert!(run("detect").contains("react shell"));
}
