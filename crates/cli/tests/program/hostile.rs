//! The program under attack: stalled readers, full disks, browsers that do not start, files in the
//! way. Malicious servers, pages and children are in the library's `tests/hostile/`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::poll::found;
use fetchwise_testsite::requirements::{NO_MOUNT, skip};

use crate::small_disk::Small;
use crate::support::{PATIENCE, TestDir, lines, send_signal, wait_for};

const HOST: &str = "127.0.0.1";
const PLAIN: [&str; 7] =
    ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore", "--pace", "off"];

fn terminate(child: &Child) {
    send_signal(child, "-TERM");
}

/// The pages of a crawl whose results nobody reads.
const STALLED_PAGES: usize = 800;

/// A run whose output nobody reads, blocked while it prints results.
fn stalled(place: &TestDir, input: &str) -> Child {
    let args = [
        &["fetch", "--json", "--input", input, "--out", "pages", "--concurrency", "4"][..],
        &PLAIN,
    ]
    .concat();
    let child = place.spawn(&args);
    let size = || {
        place.path("pages").read_dir().map_or(0, |hosts| {
            hosts
                .flatten()
                .map(|host| host.path().read_dir().map_or(0, Iterator::count))
                .sum::<usize>()
        })
    };
    // It blocks when the pipe is full, long before the end.
    let (begun, mut before) = (Instant::now(), (0, Instant::now()));
    while before.1.elapsed() < Duration::from_secs(2) || before.0 == 0 && begun.elapsed() < PATIENCE
    {
        let now = size();
        if now != before.0 {
            before = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!((1..STALLED_PAGES).contains(&before.0), "{} pages came: it is not stuck", before.0);
    child
}

#[test]
fn a_stalled_reader_does_not_prevent_a_stop() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    // More results than fit into a pipe.
    let urls: String = (0..STALLED_PAGES)
        .map(|n| origin.url(HOST, &format!("/articles/{n}?{}\n", "x".repeat(300))))
        .collect();
    let input = place.write("urls.txt", urls);

    let mut child = stalled(&place, &input);
    terminate(&child);
    let ended = child.wait().unwrap();
    assert_eq!(ended.code(), Some(1), "one SIGTERM ends it, although nobody reads");

    let mut child = stalled(&place, &input);
    let ended = found("further SIGTERMs end it", || {
        terminate(&child);
        child.try_wait().unwrap().ok_or("it runs")
    });
    assert_eq!(ended.code(), Some(1));

    // Unread results are not lost: the same command prints them again.
    let args = [
        &["fetch", "--json", "--input", &input, "--out", "pages", "--concurrency", "4"][..],
        &PLAIN,
    ]
    .concat();
    let last = place.run(&args);
    assert_eq!(last.code, 0, "{}", last.stderr);
    let pages = place.path("pages").join(HOST);
    assert_eq!(fs::read_dir(pages).unwrap().count(), STALLED_PAGES);
}

#[test]
fn pages_without_disk_space_are_fetched_again_later() {
    let place = TestDir::new();
    let Some(_small) = Small::mount(&place.path("small"), "1m") else {
        skip(NO_MOUNT);
        return;
    };
    let origin = Origin::start([(HOST, Site::slow(Duration::from_millis(20)))]).unwrap();
    let urls: String = (0..60).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let args = [
        &["fetch", "--json", "--input", &input, "--out", "small/pages", "--concurrency", "2"][..],
        &PLAIN,
    ]
    .concat();
    fs::create_dir_all(place.path("small/pages")).unwrap();
    let filler = place.path("small/filler");
    let mut full = OpenOptions::new().append(true).create(true).open(&filler).unwrap();
    for size in [64 << 10, 4096, 64, 1] {
        while full.write_all(&vec![1; size]).is_ok() {}
    }
    let mut child = place.spawn(&args);
    let results = lines(child.stdout.take().unwrap());
    for _ in 0..10 {
        wait_for(&results, "store_error");
    }
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(1));

    drop(full);
    fs::remove_file(filler).unwrap();
    let again = place.run(&args);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let stored = fs::read_dir(place.path("small/pages").join(HOST)).unwrap().count();
    assert_eq!(stored, 60, "every page is there: {}", again.stderr);
}

#[test]
fn a_browser_that_does_not_start_is_reported_once() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let broken = place.path("chromium");
    fs::write(
        &broken,
        "#!/bin/sh\necho 'libfoo.so: cannot open shared object file' >&2\nexit 127\n",
    )
    .unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let urls: String = (0..5).map(|n| origin.url(HOST, &format!("/articles/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let ran = place.run(&[
        "fetch",
        "--json",
        "--input",
        &input,
        "--allow-network",
        "127.0.0.0/8",
        "--prefer",
        "playwright",
        "--concurrency",
        "1",
        "--chromium",
        broken.to_str().unwrap(),
    ]);
    assert_eq!(ran.stderr.matches("the browser does not start").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("libfoo.so"), "{}", ran.stderr);
}

#[test]
fn a_file_in_the_way_is_reported_with_the_option() {
    let place = TestDir::new();
    place.write("pages", "a file");
    for (option, path) in
        [("--out", "pages"), ("--out", "pages/below"), ("--warc", "pages/below/x.warc")]
    {
        let ran =
            place.run(&[&["fetch", "http://127.0.0.1:9/", option, path][..], &PLAIN].concat());
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(
            ran.stderr.contains(option) && ran.stderr.contains("a file has this name"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn cells_that_a_spreadsheet_would_run_are_escaped() {
    let place = TestDir::new();
    let attempt = |link: &str| {
        serde_json::json!({"url": "http://e.org/", "fetcher": "playwright", "success": true, "link": link,
            "attempted_at": "2026-01-31T12:00:00Z"})
    };
    place.import([
        attempt("=cmd|' /C calc'!A0"),
        attempt("@SUM(1)"),
        attempt("+1"),
        attempt("-1"),
        attempt("plain"),
    ]);
    let ran = place.run(&["export", "--format", "csv"]);
    let mut reader = csv::Reader::from_reader(ran.stdout.as_bytes());
    let links: Vec<String> = reader.records().map(|record| record.unwrap()[1].to_owned()).collect();
    assert_eq!(links, ["'=cmd|' /C calc'!A0", "'@SUM(1)", "'+1", "'-1", "plain"]);
    let exact = place.run(&["export"]).json();
    assert_eq!(exact[0]["link"], "=cmd|' /C calc'!A0", "JSON lines are for programs");
}

#[test]
fn settings_that_cannot_work_are_errors() {
    let place = TestDir::new();
    for (text, part) in [
        ("[browser]\ntabs = 0", "invalid browser.tabs 0"),
        ("[tuning]\nsegment_bytes = 1", "invalid tuning.segment_bytes 1"),
        ("max_keys = 0", "invalid max_keys 0"),
        ("[http]\ntimeout = -1.0", "line 2: invalid time -1.0:"),
        ("[[fetcher]]\nname = 'x'\ncost = -1.0", "invalid fetcher.0.cost -1.0"),
        ("[http]\nca_file = 'missing.pem'", "missing.pem"),
    ] {
        let config = place.write("c.toml", text);
        let ran = place.run(&["fetch", "--config", &config, "http://127.0.0.1:9/", "--no-browser"]);
        assert_eq!(ran.code, 2, "{text}: {}", ran.stderr);
        assert!(ran.stderr.contains(part) && !ran.stderr.contains("Some("), "{}", ran.stderr);
    }
    let ran =
        place.run(&["fetch", "--ca-file", "missing.pem", "http://127.0.0.1:9/", "--no-browser"]);
    assert!(ran.code == 2 && ran.stderr.contains("missing.pem"), "{}", ran.stderr);
}

#[test]
fn millions_of_blank_lines_are_skipped() {
    let place = TestDir::new();
    let input = place.write("blank.jsonl", vec![b'\n'; 5_000_000]);
    let fetched = place
        .command(&["fetch", "--input", &input, "--no-browser"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(fetched.status.success());
    assert_eq!(place.run(&["import", &input]).code, 0);
}

#[test]
fn names_of_files_and_values_reach_the_terminal_escaped() {
    // Error messages printed them unchanged: a name could clear the screen, or look like another
    // message.
    let place = TestDir::new();
    let name = "no\u{1b}]0;owned\u{7}\u{202e}such\nerror: forged";
    for args in [
        &["classify", name][..],
        &["classify", "--evaluate", name],
        &["fetch", "--input", name],
        &["import", name],
        &["unpause", "--token-file", name, "e.org"],
        &["export", "--format", "parquet", "--output", name],
        &["serve", "--token-file", name],
        &["serve", "--listen", name],
        &["--data-dir", name, "stats"],
        &["--config", name, "stats"],
        &["--rules", name, "classify", "-"],
        &["--router", name, "select", "https://e.org/"],
        &["--mode", name, "stats"],
        &["stats", "--by", name],
        &["stats", name],
        &[name],
    ] {
        let output = place.command(args).env("CLICOLOR_FORCE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success(), "{args:?}: {said:?}");
        assert!(
            !said.contains("\u{1b}]") && !said.contains('\u{7}') && !said.contains('\u{202e}'),
            "{args:?}: {said:?}"
        );
        assert!(!said.lines().any(|line| line.starts_with("error: forged")), "{args:?}: {said:?}");
    }
}
