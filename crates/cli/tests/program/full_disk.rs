//! `fetch` on a file system that fills up during the run and has space again later. It is a real one, so this test
//! needs a machine that allows users to mount.

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
    let (mut input, results, messages) =
        (child.stdin.take().unwrap(), lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let mut asked = 0;
    let mut ask = |count: u32| {
        let urls: String = (asked..asked + count).map(|n| origin.url(HOST, &format!("/articles/{n}\n"))).collect();
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
    let mut filler = OpenOptions::new().append(true).create(true).open(place.path("small/filler")).unwrap();
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
