//! `fetch` on a file system that fills up during the run and has space again later. It is a real
//! one, so this test needs a machine that allows users to mount. And commands whose files may not
//! grow.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Stdio;

use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::requirements::{NO_MOUNT, skip};

use crate::small_disk::Small;
use crate::support::{PATIENCE, TestDir, lines, wait_for};

const HOST: &str = "127.0.0.1";

#[test]
fn fetching_continues_while_the_log_has_no_space_and_nothing_is_lost() {
    let place = TestDir::new();
    let Some(_small) = Small::mount(&place.path("small"), "3m") else {
        skip(NO_MOUNT);
        return;
    };
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let data = place.path("small/data");
    let mut child = place
        .command(&[
            "fetch",
            "-",
            "--json",
            "--no-browser",
            "--allow-network",
            "127.0.0.0/8",
            "--concurrency",
            "4",
            "--pace",
            "off",
        ])
        .env("FETCHWISE_DATA_DIR", &data)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, results, messages) = (
        child.stdin.take().unwrap(),
        lines(child.stdout.take().unwrap()),
        lines(child.stderr.take().unwrap()),
    );
    let mut asked = 0;
    let mut ask = |count: u32| {
        let urls: String =
            (asked..asked + count).map(|n| origin.url(HOST, &format!("/articles/{n}\n"))).collect();
        asked += count;
        input.write_all(urls.as_bytes()).unwrap();
    };
    let delivered = |count: u32| {
        for _ in 0..count {
            let line = results.recv_timeout(PATIENCE).unwrap();
            assert!(line.contains("\"success\":true"), "{line}");
        }
    };
    ask(5);
    delivered(5);
    // Fill the rest, to the last byte.
    let mut filler =
        OpenOptions::new().append(true).create(true).open(place.path("small/filler")).unwrap();
    for size in [64 << 10, 4096, 64, 1] {
        while filler.write_all(&vec![1; size]).is_ok() {}
    }
    // The preallocated space is used up first.
    ask(3000);
    delivered(3000);
    wait_for(&messages, "the attempt log is degraded");
    drop(filler);
    fs::remove_file(place.path("small/filler")).unwrap();
    wait_for(&messages, "has recovered");
    ask(5);
    delivered(5);
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut names = std::collections::HashSet::new();
    let export = place.command(&["export"]).env("FETCHWISE_DATA_DIR", &data).output().unwrap();
    for line in String::from_utf8(export.stdout).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        names.insert(line["url"].as_str().unwrap().to_owned());
    }
    assert_eq!(names.len(), 3010, "an attempt of every URL is in the log");
    let verify = place.command(&["verify"]).env("FETCHWISE_DATA_DIR", &data).output().unwrap();
    assert_eq!(verify.status.code(), Some(0));
}

/// Runs a command whose files may have 16 or 32 KiB, as the shell counts. A signal ended it without
/// a word.
fn limited(place: &TestDir, args: &str) -> (Option<i32>, String) {
    let script = format!("ulimit -f 32; exec {} {args}", env!("CARGO_BIN_EXE_fetchwise"));
    let mut command = place.other_program("sh");
    command.args(["-c", &script]);
    let ran = command.stdin(Stdio::null()).output().unwrap();
    (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_silent_end() {
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let place = TestDir::new();
    let urls: String = (0..2_000).map(|n| origin.url(HOST, &format!("/articles/{n}\n"))).collect();
    fs::write(place.path("urls"), urls).unwrap();
    let line = |n: u32| {
        format!(
            "{{\"url\":\"https://e.org/{n}\",\"fetcher\":\"mine\",\"success\":true,\"attempted_at\":{}}}\n",
            1_790_000_000_000_u64
        )
    };
    fs::write(place.path("attempts"), (0..5_000).map(line).collect::<String>()).unwrap();
    let fetch = "fetch --no-browser --allow-network 127.0.0.0/8 --pace off --quiet";
    let of = |name: &str| format!("--data-dir {}", place.path(name).display());
    let has_log = |name: &str| {
        let filled =
            place.run(&["import", "attempts", "--data-dir", place.path(name).to_str().unwrap()]);
        assert_eq!(filled.code, 0, "{}", filled.stderr);
        of(name)
    };
    for (command, code) in [
        (format!("{fetch} --input urls {}", of("a")), 1),
        (format!("import attempts {}", of("b")), 1),
        (format!("export --out exported.jsonl {}", has_log("c")), 1),
        (format!("export {} > printed.jsonl", of("c")), 1),
        (format!("{fetch} --input urls --warc crawl.warc {}", of("d")), 1),
    ] {
        let (ended, said) = limited(&place, &command);
        assert_eq!(ended, Some(code), "{command}: {said}");
        assert!(said.contains("File too large"), "{command}: {said}");
    }
}
