//! The commands of `fetchwise-lab`, which `fetchwise` passes on to the program next to it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Ran, TestDir};

/// Runs a copy of the program that has a folder to itself.
fn run(program: &Path, place: &TestDir, args: &[&str]) -> Ran {
    Ran::from(place.other_program(program.to_str().unwrap()).args(args).output().unwrap())
}

#[test]
fn a_command_of_the_lab_is_passed_on_as_it_was_typed_or_says_where_it_is() {
    let place = TestDir::new();
    let program = place.path("fetchwise");
    let built = env!("CARGO_BIN_EXE_fetchwise");
    // A link, where the temporary folder is on the same file system.
    if std::fs::hard_link(built, &program).is_err() {
        std::fs::copy(built, &program).unwrap();
    }
    for line in [
        "demo",
        "--json demo --plain --rounds 3",
        "testbed --help",
        "simulate --world W1 --data-dir d",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = run(&program, &place, &words);
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.lines().count()),
            (2, "", 1),
            "{line}: {}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains("cargo run --release -p fetchwise-lab -- "),
            "{line}: {}",
            ran.stderr
        );
    }
    let lab = place.path("fetchwise-lab");
    place.write("fetchwise-lab", "#!/bin/sh\necho \"$@\"\nexit 3\n");
    std::fs::set_permissions(&lab, std::fs::Permissions::from_mode(0o755)).unwrap();
    for line in [
        "demo",
        "--json demo --plain --rounds 3",
        "testbed --help",
        "simulate --world W1 --data-dir d",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = run(&program, &place, &words);
        assert_eq!((ran.code, ran.stdout.trim_end()), (3, line), "{}", ran.stderr);
    }
}
