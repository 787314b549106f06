//! `simulate`: worlds by name and from files, whose names are harmless on a terminal.

use crate::support::run;

/// A name that would reverse the text after it, and hide a part.
const HOSTILE: &str = "\u{202e}gpj.exe\u{200b}";

#[test]
fn a_world_that_is_printed_can_be_run_and_its_name_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    for (world, policy) in [("W1", "default"), ("pace", "pace")] {
        let printed = run(&folder, &["simulate", "--show-world", world]).stdout;
        let renamed = |line: &str| match line.split_once(" = ") {
            // The fetchers of a world have the names of real ones.
            Some(("name", name)) if !name.contains('_') && name != "\"playwright\"" => {
                format!("name = \"{HOSTILE}\"")
            }
            Some(("urls" | "sites" | "hosts", _)) if world == "W1" => line.replace("000", "0"),
            _ => line.to_owned(),
        };
        let text: Vec<String> = printed.lines().map(renamed).collect();
        std::fs::write(folder.path().join("evil.toml"), text.join("\n")).unwrap();
        let args = [
            "simulate",
            "--world",
            "evil.toml",
            "--policy",
            policy,
            "--seeds",
            "1",
            "--html",
            "page.html",
        ];
        let ran = run(&folder, &args);
        assert_eq!(ran.code, 0, "{world}: {}", ran.stderr);
        let said = ran.stdout + &ran.stderr;
        assert!(said.contains("gpj.exe") && !said.contains('\u{202e}'), "{world}: {said}");
        assert!(
            std::fs::read_to_string(folder.path().join("page.html")).unwrap().contains("gpj.exe"),
            "{world}"
        );
    }
}

#[test]
fn a_world_that_does_not_exist_is_invalid_usage() {
    let folder = tempfile::tempdir().unwrap();
    for args in
        [&["simulate", "--world", "absent.toml"][..], &["simulate", "--show-world", "absent"]]
    {
        let ran = run(&folder, args);
        assert!(
            ran.code == 2 && ran.stderr.contains("absent"),
            "{args:?}: {} {}",
            ran.code,
            ran.stderr
        );
    }
}
