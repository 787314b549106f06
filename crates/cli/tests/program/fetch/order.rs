//! The order of results, and hosts that delay only their own links.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::poll::until_blocking;

use crate::support::{PATIENCE, Ran, TestDir, lines, send_signal, wait_for};

use super::stopping::runs_left;
use super::*;

/// Two fast pages and, between them, one that takes longer than this file's time limit.
fn one_that_hangs(place: &TestDir, more: &[&str]) -> (Origin, Child, Receiver<String>) {
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::slow(PATIENCE * 2))]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(OTHER, "/hangs"), origin.url(HOST, "/b")];
    let input = place.write("urls.txt", urls.join("\n"));
    let mut child =
        place.spawn(&[&fetch(&["--input", &input, "--timeout", "600s"])[..], more].concat());
    let results = lines(child.stdout.take().unwrap());
    (origin, child, results)
}

fn line_number(result: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(result).unwrap()["line"].as_u64()
}

#[test]
fn a_hanging_url_delays_no_other() {
    let place = TestDir::new();
    let (_origin, mut child, results) = one_that_hangs(&place, &[]);
    let mut seen: Vec<_> =
        (0..2).map(|_| line_number(&results.recv_timeout(PATIENCE).unwrap())).collect();
    seen.sort();
    assert_eq!(seen, [Some(1), Some(3)]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn ordered_results_wait_for_earlier_ones() {
    let place = TestDir::new();
    let (origin, mut child, results) = one_that_hangs(&place, &["--ordered"]);
    assert_eq!(line_number(&results.recv_timeout(PATIENCE).unwrap()), Some(1));
    let third = format!("{}\"", origin.url(HOST, "/b"));
    until_blocking("the third result is kept", || {
        let file = held_results(&place.data())
            .and_then(|path| std::fs::read(path).ok())
            .unwrap_or_default();
        memchr::memmem::find(&file, third.as_bytes()).is_some()
    });
    assert!(results.try_recv().is_err(), "the third result waits for the second");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A host that is asked every ten minutes, with more links than a run once read ahead, and after
/// them those of a host that may be asked at any rate.
fn a_long_list(place: &TestDir) -> (Origin, String, Vec<String>) {
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::Static)]).unwrap();
    let rates = format!(
        "[pace]\nmode = 'fixed'\ninitial_rate = 1000.0\nmax_rate = 1000.0\n[pace.host.'{OTHER}']\nrate = 0.002"
    );
    let slow = (0..10_500).map(|n| origin.url(OTHER, &format!("/{n}")));
    let urls = slow.chain((0..20).map(|n| origin.url(HOST, &format!("/{n}")))).collect();
    (origin, place.write("c.toml", rates), urls)
}

/// Starts a run that keeps the pace of the config.
fn begin_paced(place: &TestDir, config: &str, more: &[&str]) -> (Child, Receiver<String>) {
    let loopback = ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore"];
    let args = [&["fetch", "--json", "--config", config][..], &loopback, more].concat();
    let mut child =
        place.command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let results = lines(child.stdout.take().unwrap());
    (child, results)
}

#[test]
fn a_host_at_the_end_of_a_long_list_does_not_wait_for_the_slow_one_before_it() {
    let place = TestDir::new();
    let (_origin, config, urls) = a_long_list(&place);
    let input = place.write("urls.txt", urls.join("\n"));
    for from in ["file", "stdin"] {
        let more = if from == "file" { ["--input", &*input] } else { ["--restart", "-"] };
        let (mut child, results) = begin_paced(&place, &config, &more);
        let (mut stdin, text) = (child.stdin.take().unwrap(), urls.join("\n") + "\n");
        let writing = std::thread::spawn(move || {
            let _ = stdin.write_all(if from == "stdin" { text.as_bytes() } else { b"" });
            // It stays open: more links may come.
            stdin
        });
        let mut seen = Vec::new();
        while seen.len() < 20 {
            let line = line_number(&results.recv_timeout(PATIENCE).unwrap()).unwrap();
            seen.extend((line > 10_500).then_some(line));
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(10_501..=10_520), "{from}");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(writing.join().unwrap());
    }
}

#[test]
fn a_link_that_waits_to_try_again_takes_no_place() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::SERVER_ERROR)]).unwrap();
    // The second try of the failing page has to wait for fifty seconds, the other page for nothing.
    let rates =
        format!("[pace]\nmode = 'fixed'\ninitial_rate = 100.0\n[pace.host.'{OTHER}']\nrate = 0.02");
    let config = place.write("c.toml", rates);
    let (fails, good) = (origin.url(OTHER, "/a"), origin.url(HOST, "/b"));
    let (mut child, results) = begin_paced(&place, &config, &[&fails, &good, "--concurrency", "1"]);
    let first: serde_json::Value =
        serde_json::from_str(&results.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert_eq!((first["url"].as_str(), origin.hits(OTHER)), (Some(&*good), 1), "{first}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn ordered_results_that_wait_do_not_stop_the_run() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::slow(PATIENCE * 2))]).unwrap();
    let mut urls = vec![origin.url(OTHER, "/hangs")];
    urls.extend((0..10_500).map(|n| format!("{{ {n}")));
    urls.push(origin.url(HOST, "/last"));
    let input = place.write("urls.txt", urls.join("\n"));
    let mut child = place.spawn(&fetch(&["--input", &input, "--timeout", "600s", "--ordered"]));
    let (results, said) =
        (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let begun = std::time::Instant::now();
    while origin.hits(HOST) == 0 {
        assert!(begun.elapsed() < PATIENCE, "the last link waits for the first one");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(results.try_recv().is_err(), "all wait for the first link");
    send_signal(&child, "-INT");
    wait_for(&said, "Ctrl-C again");
    send_signal(&child, "-INT");
    // What is finished is printed in order, although the first link is not.
    let mut shown = 0;
    for (result, line) in results.iter().zip(2..) {
        assert_eq!(line_number(&result), Some(line));
        shown += 1;
    }
    assert!(shown >= 10_500, "{shown}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// Returns the file of the results that wait.
fn held_results(data: &Path) -> Option<PathBuf> {
    let mut names =
        std::fs::read_dir(data).into_iter().flatten().map(|entry| entry.unwrap().path());
    names.find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("held-"))
    })
}

/// Kills a run of `--ordered` whose first link hangs and whose other links are finished: 20 pages,
/// an invalid line, a missing page. Afterwards the first link does not hang any more. Returns the
/// input.
fn killed_while_results_wait(place: &TestDir, origin: &Origin) -> String {
    assert!(origin.set_site(OTHER, Site::slow(PATIENCE * 2)));
    let mut urls = vec![origin.url(OTHER, "/hangs")];
    urls.extend((0..20).map(|n| origin.url(HOST, &format!("/page-{n}-"))));
    urls.extend(["{ no link".to_owned(), origin.url(THIRD, "/missing")]);
    let input = place.write("urls.txt", urls.join("\n"));
    let args = ["--input", &input, "--out", "pages", "--timeout", "600s", "--ordered"];
    let child = place.spawn(&fetch(&args));
    let begun = std::time::Instant::now();
    let is_saved = || {
        let file = held_results(&place.data())
            .and_then(|path| std::fs::read(path).ok())
            .unwrap_or_default();
        let has = |part: &str| memchr::memmem::find(&file, part.as_bytes()).is_some();
        (0..20).all(|n| has(&format!("/page-{n}-"))) && has("/missing")
    };
    while !is_saved() {
        assert!(begun.elapsed() < PATIENCE, "the results are not saved");
        std::thread::sleep(Duration::from_millis(20));
    }
    send_signal(&child, "-KILL");
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.stdout, "", "all wait for the first link");
    assert!(origin.set_site(OTHER, Site::Static));
    input
}

#[test]
fn a_killed_run_prints_the_results_that_waited_without_fetching_them_again() {
    let origin = Origin::start([HOST, OTHER, THIRD].map(|host| (host, Site::Static))).unwrap();
    assert!(origin.set_site(THIRD, Site::NOT_FOUND));
    for order in [Some("--ordered"), None] {
        let place = TestDir::new();
        let input = killed_while_results_wait(&place, &origin);
        let only = place.run(&fetch(&["--input", &input, "--out", "pages", "--only", "failed"]));
        assert!(only.code == 1 && only.stderr.contains("interrupted"), "{}", only.stderr);
        let before = [HOST, OTHER, THIRD].map(|host| origin.hits(host));
        let args = [&["--input", &input, "--out", "pages"][..], order.as_slice()].concat();
        let ran = place.run(&fetch(&args));
        let hits = [HOST, OTHER, THIRD].map(|host| origin.hits(host));
        assert_eq!(hits, [before[0], before[1] + 1, before[2]], "{}", ran.stderr);
        let results = ran.json();
        let mut lines: Vec<_> =
            results.iter().map(|result| result["line"].as_u64().unwrap()).collect();
        if order.is_none() {
            lines.sort_unstable();
        }
        assert!(lines.into_iter().eq(1..=23), "{}", ran.stdout);
        for result in results {
            let want = match result["line"].as_u64() {
                Some(22) => "invalid_line",
                Some(23) => "not_found",
                _ => {
                    let page = place.path(result["file"].as_str().unwrap());
                    assert!(page.exists() && result["requests"] == 1, "{result}");
                    continue;
                }
            };
            assert_eq!(result["error_type"], want);
        }
        assert_eq!(
            (ran.code, runs_left(&place.data()), held_results(&place.data())),
            (1, 0, None),
            "a bad line"
        );
        let again = place.run(&fetch(&args));
        assert_eq!(again.json().len(), 23);
        assert_eq!(origin.hits(HOST), before[0] + 20, "a run that was completed fetches again");
    }
}

#[test]
fn damaged_results_that_waited_are_reported_and_fetched_again() {
    let origin = Origin::start([HOST, OTHER, THIRD].map(|host| (host, Site::Static))).unwrap();
    let flip = |file: &mut Vec<u8>| {
        let at = memchr::memmem::find(file, b"/page-7-").unwrap();
        file[at + 6] = b'8';
    };
    let of_another = |file: &mut Vec<u8>| {
        let place = TestDir::new();
        killed_while_results_wait(&place, &origin);
        *file = std::fs::read(held_results(&place.data()).unwrap()).unwrap();
    };
    for (damage, why) in
        [(&flip as &dyn Fn(&mut Vec<u8>), "it is damaged"), (&of_another, "another run wrote it")]
    {
        let place = TestDir::new();
        let input = killed_while_results_wait(&place, &origin);
        let path = held_results(&place.data()).unwrap();
        let mut file = std::fs::read(&path).unwrap();
        damage(&mut file);
        std::fs::write(&path, file).unwrap();
        let before = origin.hits(HOST);
        let ran = place.run(&fetch(&["--input", &input, "--out", "pages", "--ordered"]));
        assert!(
            ran.stderr.contains("ignoring the unprinted results") && ran.stderr.contains(why),
            "{}",
            ran.stderr
        );
        let lines = ran.json().into_iter().map(|result| result["line"].as_u64().unwrap());
        assert!(lines.eq(1..=23) && origin.hits(HOST) == before + 20, "{}", ran.stdout);
    }
}

#[test]
fn restart_discards_the_results_that_waited() {
    let origin = Origin::start([HOST, OTHER, THIRD].map(|host| (host, Site::Static))).unwrap();
    let place = TestDir::new();
    let input = killed_while_results_wait(&place, &origin);
    let before = origin.hits(HOST);
    let ran = place.run(&fetch(&["--input", &input, "--out", "pages", "--ordered", "--restart"]));
    assert!(ran.json().len() == 23 && origin.hits(HOST) == before + 20, "{}", ran.stdout);
}

#[cfg(target_os = "linux")]
#[test]
fn concurrency_is_limited_by_the_open_files_limit() {
    let place = TestDir::new();
    let program = env!("CARGO_BIN_EXE_fetchwise");
    let script =
        format!("ulimit -n 256; exec {program} fetch --concurrency 5000 http://127.0.0.1:9/");
    let ran = Ran::from(
        Command::new("sh")
            .args(["-c", &script])
            .env("FETCHWISE_DATA_DIR", place.data())
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("instead of 5000") && ran.stderr.contains("256 files"),
        "{}",
        ran.stderr
    );
}
