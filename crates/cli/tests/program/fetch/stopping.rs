//! Runs that are stopped, killed or changed while they go on.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fetchwise_testsite::origin::{Origin, Site};

use crate::support::{PATIENCE, TestDir, lines, send_signal, wait_for};

use super::*;

#[test]
fn an_archive_torn_by_a_crash_continues_after_its_last_whole_record() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let run = |path: &str| place.run(&fetch(&["--warc", "crawl.warc.gz", &origin.url(HOST, path)]));
    assert_eq!(run("/a").code, 0);
    let archive = place.path("crawl.warc.gz");
    let whole = std::fs::read(&archive).unwrap();
    std::fs::write(&archive, &whole[..whole.len() - 9]).unwrap();
    let ran = run("/b");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("ended in the middle of a record")
            && ran.stderr.contains("crawl.warc.gz.torn-")
    );

    std::fs::write(&archive, [&whole, b"no record".as_slice()].concat()).unwrap();
    let ran = run("/c");
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("is damaged") && ran.stderr.contains("another archive"),
        "{}",
        ran.stderr
    );
}

/// Starts a run of `urls` slow pages and reads its first `lines` results.
fn begin(
    place: &TestDir,
    input: &str,
    lines: usize,
) -> (std::process::Child, Vec<String>, BufReader<std::process::ChildStdout>) {
    let mut child = place.spawn(&fetch(&["--input", input, "--concurrency", "2"]));
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut read = Vec::new();
    for _ in 0..lines {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        read.push(line);
    }
    (child, read, reader)
}

fn urls_of(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let url = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["url"].as_str().unwrap().to_owned()
    };
    lines.into_iter().map(|line| url(line.as_ref())).collect()
}

pub(super) fn runs_left(data: &Path) -> usize {
    let names = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("run-")).count()
}

#[test]
fn a_stopped_or_killed_run_continues_where_it_stopped() {
    let place = TestDir::new();
    // A run takes ten seconds, and is stopped after its first.
    let origin = Origin::start([(HOST, Site::slow(Duration::from_millis(500)))]).unwrap();
    let urls: String = (0..40).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let mut seen = Vec::new();

    let (mut child, read, rest) = begin(&place, &input, 5);
    send_signal(&child, "-INT");
    seen.extend(read);
    seen.extend(rest.lines().map(|line| line.unwrap()));
    assert_eq!(child.wait().unwrap().code(), Some(1), "an interrupted run has failed");
    assert!(seen.len() < 40 && runs_left(&place.data()) == 1);
    let recorded = place.run(&["export"]).json().len();
    assert!(recorded >= seen.len(), "{recorded} of {}: what was shown is in the log", seen.len());

    let (mut child, read, rest) = begin(&place, &input, 5);
    send_signal(&child, "-KILL");
    seen.extend(read);
    seen.extend(rest.lines().map_while(Result::ok).filter(|line| line.ends_with('}')));
    let _ = child.wait();

    assert!(origin.set_site(HOST, Site::Static));
    let last = place.run(&fetch(&["--input", &input, "--concurrency", "2"]));
    assert_eq!(last.code, 0, "{}", last.stderr);
    assert!(last.stderr.contains("done by an earlier run"), "{}", last.stderr);
    let (stopped, last) = (urls_of(&seen), urls_of(last.stdout.lines()));
    let all: HashSet<&String> = stopped.iter().chain(&last).collect();
    assert_eq!(all.len(), 40);
    // The run was killed between printing lines and recording them, so these may appear twice.
    assert!(stopped.len() + last.len() <= 42, "{} and {}", stopped.len(), last.len());
    assert_eq!(runs_left(&place.data()), 0);

    let whole = place.run(&fetch(&["--input", &input, "--concurrency", "8"]));
    assert_eq!(whole.json().len(), 40, "a run that was completed fetches again");
}

#[test]
fn a_second_ctrl_c_ends_a_run_at_once() {
    let place = TestDir::new();
    // A run that waits for the page does not end before the test is given up.
    let origin = Origin::start([(HOST, Site::slow(Duration::from_secs(600)))]).unwrap();
    let mut child = place.spawn(&fetch(&[&origin.url(HOST, "/"), "--timeout", "600s"]));
    while origin.hits(HOST) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    send_signal(&child, "-INT");
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("Ctrl-C again"), "{said}");
    send_signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(place.run(&["export"]).stdout, "", "what was abandoned teaches nothing");
}

#[test]
fn rules_are_reloaded_while_pages_are_fetched() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let rule = |vendor: &str| {
        format!(
            "[[rule]]\nid = \"{vendor}\"\nvendor = \"{vendor}\"\ngrade = \"presence\"\nheader = [\"content-type\"]\nnote = \"a test\"\n"
        )
    };
    place.write("rules.toml", rule("first"));
    let mut child = place
        .command(&fetch(&["-", "--rules", "rules.toml"]))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (results, messages) =
        (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let mut ask = |n: u32| {
        writeln!(input, "{}", origin.url(HOST, &format!("/articles/{n}"))).unwrap();
        assert!(results.recv_timeout(PATIENCE).unwrap().contains("\"success\":true"));
    };
    let hang_up = || {
        send_signal(&child, "-HUP");
    };
    ask(1);
    place.write("rules.toml", rule("second"));
    hang_up();
    wait_for(&messages, "reloaded");
    ask(2);
    place.write("rules.toml", "no rules");
    hang_up();
    wait_for(&messages, "settings are unchanged");
    ask(3);
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let seen: Vec<String> = (place.run(&["export"]).json().iter())
        .map(|attempt| {
            attempt["heuristics"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|h| h["type"].as_str())
                .collect()
        })
        .collect();
    let has = |n: usize, what: &str| seen[n].contains(what);
    assert!(has(0, "waf_first") && has(1, "waf_second") && has(2, "waf_second"), "{seen:?}");
    assert!(!has(0, "waf_second") && !has(1, "waf_first"), "{seen:?}");
}
