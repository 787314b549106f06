//! Kills of this process and of its watchers, and the state after them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};

use fetchwise_testsite::poll::until;

use crate::support::{bounded, chromium, dialer, get, is_alone, within};
use crate::tempers::{Hostile, Temper};

/// Returns processes whose command line contains `text`, with their command lines.
fn processes(text: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(text) {
            found.push((pid, line));
        }
    }
    found
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// Starts Chromium with its temporary files in `TMPDIR`, reports it, and waits to be killed.
#[tokio::test]
async fn a_process_that_holds_a_browser() {
    if !is_alone() {
        // It is the victim of the tests below.
        return;
    }
    let server = Hostile::start(Temper::LeadsOn(0)).await;
    let program = chromium().unwrap();
    let browser = BrowserFetcher::new(program, BrowserOptions::default(), dialer()).unwrap();
    get(&browser, &server.url("/"), &within(120)).await.unwrap();
    fs::write(std::env::temp_dir().join("ready"), "").unwrap();
    // It ends by itself, in case the test that would kill it has failed.
    tokio::time::sleep(Duration::from_secs(600)).await;
}

/// Starts that process (none without a Chromium), with `dir` as its home and its folder for
/// temporary files, and waits for its browser.
async fn victim(dir: &Path) -> Option<std::process::Child> {
    chromium()?;
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "signals::a_process_that_holds_a_browser", "--nocapture"])
        .env("FETCHWISE_TEST_ALONE", "1")
        .env("TMPDIR", dir)
        .env("HOME", dir.join("home"))
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_CACHE_HOME")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the browser does not come up", || dir.join("ready").exists()).await;
    Some(child)
}

fn profiles(dir: &Path) -> usize {
    let named = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with("fetchwise-chromium-")
    };
    fs::read_dir(dir).unwrap().flatten().filter(named).count()
}

#[tokio::test]
async fn a_browser_ends_with_its_process_even_if_its_watcher_was_killed_first() {
    bounded(async {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut child) = victim(dir.path()).await else { return };
        let mark = dir.path().join("fetchwise-chromium-").to_string_lossy().into_owned();
        let watchers =
            || processes(&mark).into_iter().filter(|(_, line)| line.contains("fetchwise-watcher"));
        let first = watchers().map(|(pid, _)| pid).next().expect("there is a watcher");
        kill(first);
        until("the watcher is not replaced", || watchers().any(|(pid, _)| pid != first)).await;
        // All at once, so that no process is left to kill the browser.
        for (watcher, _) in watchers() {
            kill(watcher);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for (watcher, _) in watchers() {
            kill(watcher);
        }
        until("the browser lives on", || processes(&mark).is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn files_of_a_killed_process_are_removed_and_its_home_is_unchanged() {
    bounded(async {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        let Some(mut child) = victim(dir.path()).await else { return };
        assert_eq!(profiles(dir.path()), 1);
        let home = || -> Vec<_> {
            let list = Command::new("find")
                .arg(dir.path().join("home"))
                .args(["-type", "f"])
                .output()
                .unwrap();
            String::from_utf8(list.stdout).unwrap().lines().map(str::to_owned).collect()
        };
        assert_eq!(home(), Vec::<String>::new(), "Chromium keeps everything in its profile");
        child.kill().unwrap();
        child.wait().unwrap();
        until("the profile stays", || profiles(dir.path()) == 0).await;
        let mark = dir.path().to_string_lossy().into_owned();
        until("processes stay", || processes(&mark).is_empty()).await;
    })
    .await;
}
