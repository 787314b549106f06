//! What a run shows on a terminal.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::requirements::required;

use crate::support::{Ran, TestDir};

use super::pauses::one_that_blocks_at_first;
use super::*;

#[test]
fn text_output_shows_the_results() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let url = origin.url(HOST, "/a");
    let ran: Ran = place.run(&[&["fetch", &url, "http://10.0.0.1/"][..], &PLAIN].concat());
    assert!(
        ran.stdout.contains("ok  ") && ran.stdout.contains("refused_address"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains(", 0."), "a fast page took some milliseconds: {}", ran.stdout);
    assert!(ran.stderr.contains("1 delivered, 1 failed"), "{}", ran.stderr);
}

/// Returns whether the program `script` can give a program its own terminal. Otherwise reports the
/// test as skipped.
fn has_terminals() -> bool {
    let found = Command::new("script").arg("--version").output();
    required(found, "tests on a terminal (no program `script`)").is_some()
}

/// Runs `fetch` on its own terminal with this many columns, like `sshd`. Returns what the terminal
/// got.
fn on_a_terminal(place: &TestDir, columns: u16, more: &str) -> String {
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let line =
        format!("stty rows 40 cols {columns}; '{program}' fetch {} {more}", PLAIN[..5].join(" "));
    let mut script = place.other_program("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    let ran = script.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn a_terminal_has_one_live_region_within_its_width() {
    if !has_terminals() {
        return;
    }
    let place = TestDir::new();
    let origin =
        Origin::start([(HOST, Site::slow(Duration::from_millis(300))), (OTHER, Site::NOT_FOUND)])
            .unwrap();
    let urls: String = (0..12).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect();
    place.write("urls.txt", urls + &origin.url(OTHER, "/gone"));
    for columns in [120, 80, 60] {
        let shown = on_a_terminal(&place, columns, "--input urls.txt --concurrency 2 --rate 20");
        assert!(shown.contains("13 lines, robots.txt ignored") || columns < 80, "{shown}");
        assert!(shown.contains("/13  ") && shown.contains("slowest:  127.0.0.1"), "{shown}");
        assert!(
            shown.contains("not_found") && !without_escapes(&shown).contains("ok  "),
            "only failures get a line: {shown}"
        );
        assert!(shown.contains("12 delivered, 1 missing"), "{shown}");
        // Lines of the region are padded to the width, so that gaps separate them.
        let text = without_escapes(&shown);
        let region = text.split(['\r', '\n']).flat_map(|line| line.split("    "));
        for line in region.filter(|line| line.contains(" delivered  ") || line.contains("/13  ")) {
            assert!(line.trim().chars().count() < usize::from(columns), "{columns}: {line}");
        }
    }
    assert!(
        without_escapes(&on_a_terminal(&place, 80, "--input urls.txt --pace off -v"))
            .contains("ok  ")
    );
    let quiet = on_a_terminal(&place, 80, "--input urls.txt --pace off -q");
    assert_eq!(without_escapes(&quiet).trim(), "", "{quiet}");
}

#[test]
fn a_terminal_counts_down_to_the_next_trial_while_pauses_are_all_that_is_left() {
    if !has_terminals() {
        return;
    }
    let place = TestDir::new();
    let (_origin, _) = one_that_blocks_at_first(&place, "20m");
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let options = "--input urls.txt --config c.toml --concurrency 1 --wait 30m";
    let line = format!("stty rows 40 cols 120; '{program}' fetch {} {options}", PLAIN.join(" "));
    let mut script = place.other_program("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut terminal, mut shown) = (child.stdout.take().unwrap(), Vec::new());
    let mut rests = HashSet::new();
    // It changes by itself: nothing is fetched meanwhile.
    while rests.len() < 3 {
        let mut part = [0; 4096];
        let count = terminal.read(&mut part).unwrap();
        shown.extend_from_slice(&part[..count]);
        let text = without_escapes(&String::from_utf8_lossy(&shown));
        assert!(count > 0, "it ended: {text}");
        let rest = |after: &str| after.split_once(", last at ").map(|(rest, _)| rest.to_owned());
        rests =
            text.split("paused links of 1 host, next trial in ").skip(1).filter_map(rest).collect();
    }
    // Ctrl-C.
    child.stdin.take().unwrap().write_all(b"\x03").unwrap();
    terminal.read_to_end(&mut shown).unwrap();
    child.wait().unwrap();
    let text = without_escapes(&String::from_utf8_lossy(&shown));
    assert!(!text.contains("waiting 0 s") && text.contains("interrupted"), "{text}");
    let is_rest =
        |rest: &String| ["19 min ", "20 min 0 "].iter().any(|begin| rest.starts_with(begin));
    assert!(rests.iter().all(is_rest), "{rests:?}");
}

/// Returns `text` without escape sequences.
fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            c => plain.push(c),
        }
    }
    plain
}

#[test]
fn colours_can_be_chosen() {
    let place = TestDir::new();
    let run = |more: &[&str]| {
        place.run(&[&["fetch", "http://10.0.0.1/", "http://10.0.0.2/"], &PLAIN[..], more].concat())
    };
    assert!(run(&["--color", "always"]).stdout.contains("\x1b["));
    assert!(
        !run(&["--color", "never"]).stdout.contains("\x1b[") && !run(&[]).stdout.contains("\x1b[")
    );
}

#[test]
fn the_end_of_a_list_is_a_report() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::NOT_FOUND)]).unwrap();
    let urls = [
        origin.url(HOST, "/a"),
        origin.url(HOST, "/b"),
        origin.url(OTHER, "/c"),
        "http://10.0.0.1/".to_owned(),
    ];
    let input = place.write("urls.txt", urls.join("\n"));
    let ran = place.run(&[&["fetch", "--input", &input], &PLAIN[..]].concat());
    for want in [
        "4 lines, robots.txt ignored, data in",
        "no browser",
        "2 delivered, 1 missing, 1 failed",
        "not delivered: 1 not_found, 1 refused_address",
        "direct_access      2",
        "cost per page",
        "always direct_access",
        "--only failed",
    ] {
        assert!(ran.stderr.contains(want), "{want}\n{}", ran.stderr);
    }
    let quiet = place.run(&[&["fetch", "--input", &input, "-q"], &PLAIN[..]].concat());
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

/// `script` gives the program its own terminal, like `sshd`.
#[test]
fn on_a_terminal_the_demo_draws_and_ends_with_the_costs() {
    if !has_terminals() {
        return;
    }
    let place = TestDir::new();
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let line = format!("stty rows 40 cols 120; '{program}' demo --rounds 2 --no-browser");
    let mut script = place.other_program("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let ran = script.stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{shown}");
    for text in ["demo sites, one page per round", "the mill: learning a pace", "\x1b[?1049l"] {
        assert!(shown.contains(text), "{text}\n{shown}");
    }
    // The picture disappears at the end; the summary stays.
    let sum = shown.rsplit("\x1b[?1049l").next().unwrap();
    assert!(sum.contains("always direct") && sum.contains("library"), "{sum}");
    assert!(!place.data().exists());
}
