//! `snapshot`, `compact`, `verify`, `repair`, `forget`: on logs that are whole, damaged, in use, or
//! cut off in the middle.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use fetchwise::attempt::Attempt;
use fetchwise::journal::{Durability, Journal, JournalOptions};
use fetchwise::time::Timestamp;
use fetchwise_testsite::requirements::python;
use serde_json::{Value, json};
use url::Url;

use crate::support::{DAY, TestDir, lines, now, segments, wait_for};

/// `count` attempts at ten hosts, every second one 120 days old.
fn history(count: i64) -> impl Iterator<Item = Value> {
    (0..count).map(|n| {
        let age = if n % 2 == 0 { 120 * DAY } else { 3_600_000 };
        let error = (n % 5 == 0).then_some("blocked_captcha");
        let fetcher = if n / 10 % 2 == 0 { "direct_access" } else { "playwright" };
        json!({
            "url": format!("https://h{}.e.org/p{}/{n}", n % 10, n % 3), "fetcher": fetcher,
            "success": error.is_none(), "error_type": error, "attempted_at": now() - age - n,
        })
    })
}

fn place_with(count: i64) -> TestDir {
    let place = TestDir::new();
    place.import(history(count));
    place
}

/// The numbers of a decision as of tomorrow: weights decay during a test, and the compared ones
/// must not.
fn choice(place: &TestDir) -> Value {
    static TOMORROW: LazyLock<String> = LazyLock::new(|| {
        fetchwise::rfc3339::format(fetchwise::time::Timestamp::from_millis(now() + DAY))
    });
    place.run(&["explain", "--json", "--now", &TOMORROW, "https://h1.e.org/p1/new"]).one()["candidates"].clone()
}

fn exported(place: &TestDir) -> usize {
    place.run(&["export"]).json().len()
}

/// Returns whether two explanations have the same numbers, up to rounding.
fn assert_near(a: &Value, b: &Value) {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).for_each(|(a, b)| assert_near(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.iter().for_each(|(key, a)| assert_near(a, &b[key]))
        }
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap(), y.as_f64().unwrap());
            assert!((x - y).abs() <= 1e-6 * x.abs().max(y.abs()).max(1.0), "{x} and {y}");
        }
        _ => assert_eq!(a, b),
    }
}

#[test]
fn maintenance_has_the_fields_that_programs_rely_on_and_changes_no_decision() {
    let place = place_with(1000);
    let before = choice(&place);
    let taken = place.run(&["snapshot", "--json"]).one();
    assert_eq!((taken["covers_seq"].as_u64(), taken["records"].as_u64()), (Some(1000), Some(1000)));
    assert!(
        taken["bytes"].as_u64() > Some(4096)
            && taken["file"].as_str().unwrap().starts_with("snap-")
    );
    assert_near(&before, &choice(&place));
    let again = place.run(&["snapshot", "--json"]).one();
    assert_eq!(again["file"], Value::Null, "nothing is new");

    let verified = place.run(&["verify", "--json"]);
    let found = verified.one();
    assert_eq!(
        (verified.code, found["sound"].as_bool(), found["attempts"].as_u64()),
        (0, Some(true), Some(1000))
    );
    assert_eq!(
        (found["refold"].as_str(), found["refolded_records"].as_u64()),
        (Some("same"), Some(1000))
    );

    let dry = place.run(&["compact", "--dry-run", "--json"]).one();
    assert_eq!(
        (dry["attempts_before"].as_u64(), dry["attempts_after"].as_u64()),
        (Some(1000), Some(500))
    );
    assert_eq!(exported(&place), 1000, "a dry run changes nothing");
    let done = place.run(&["compact", "--json"]).one();
    for pair in ["attempts_before", "attempts_after"] {
        assert_eq!(done[pair], dry[pair]);
    }
    let bytes = |name: &str| done[name].as_u64().unwrap();
    assert!(bytes("bytes_after") < bytes("bytes_before") * 7 / 10, "{done}");
    let on_disk: u64 =
        segments(&place.data()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!(bytes("bytes_after"), on_disk);
    assert!(blocks(&place) > 0, "nothing was packed");
    assert_near(&before, &choice(&place));
    assert_eq!((exported(&place), place.run(&["verify"]).code), (500, 0));
    let text = place.run(&["compact"]);
    assert!(
        text.stdout.contains("attempts  500 -> 500") && text.stdout.contains("segments  "),
        "{}",
        text.stdout
    );
}

#[test]
fn compacted_attempts_are_not_imported_again() {
    let place = place_with(40);
    place.run(&["compact"]);
    let lines: String = history(40).map(|line| format!("{line}\n")).collect();
    let ran = place.run_with(&["import", "-", "--json"], lines);
    let sum = ran.one();
    // The ids of the other half depend on the time of this call, so they are new.
    assert_eq!((ran.code, sum["failed"].as_u64()), (1, Some(20)));
    assert!(ran.stderr.contains("stdin:1: made before"), "{}", ran.stderr);
}

#[test]
fn a_jumped_clock_is_refused_unless_trusted() {
    let place = place_with(10);
    let later = "2099-01-01T00:00:00Z";
    let ran = place.run(&["compact", "--now", later]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.stderr.contains("hours old") && ran.stderr.contains("--trust-clock"),
        "{}",
        ran.stderr
    );
    assert_eq!(exported(&place), 10);
    assert_eq!(place.run(&["compact", "--now", later, "--trust-clock"]).code, 0);
    assert_eq!(exported(&place), 0);
}

#[test]
fn a_snapshot_waits_for_a_plausible_clock_and_the_log_stays_readable() {
    let place = place_with(10);
    assert_eq!(place.run(&["snapshot"]).code, 0);
    let lines: String = history(20).skip(10).map(|line| format!("{line}\n")).collect();
    assert_eq!(place.run_with(&["import", "-"], lines).code, 0);
    let ran = place.run(&["snapshot", "--now", "1970-01-02T00:00:00Z"]);
    assert_eq!(ran.code, 3);
    assert!(
        ran.stderr.contains("implausible clock") && ran.stderr.contains("--trust-clock"),
        "{}",
        ran.stderr
    );
    assert_eq!(place.run(&["snapshot", "--now", "1970-01-02T00:00:00Z", "--trust-clock"]).code, 0);
    assert_eq!(place.run(&["stats"]).code, 0);
    assert_eq!(place.run(&["verify"]).code, 0);
    assert_eq!(place.run(&["snapshot"]).code, 0);
}

#[test]
fn a_forgotten_domain_disappears_everywhere() {
    let place = place_with(100);
    place.run(&["snapshot"]);
    let forgot = place.run(&["forget", "--domain", "WWW.h3.e.org", "--json"]).one();
    assert_eq!(
        (forgot["domain"].as_str(), forgot["attempts"].as_u64()),
        (Some("h3.e.org"), Some(10))
    );
    assert_eq!(exported(&place), 90);
    let by = place.run(&["stats", "--by", "domain", "--json"]).json();
    assert!(by.len() == 9 && by.iter().all(|row| row["key"] != "h3.e.org"));
    let steps =
        place.run(&["explain", "--json", "https://h3.e.org/p1/x"]).one()["steps"].to_string();
    assert!(!steps.contains("h3.e.org"), "{steps}");
    let done = place.run(&["compact", "--json"]).one();
    assert_eq!(done["forgotten"].as_u64(), Some(10));
    assert!(segments(&place.data()).iter().all(|path| !contains(path, b"h3.e.org/p")));

    let link = place.run(&["forget", "--link", "https://h1.e.org/p1/1"]);
    assert!(
        link.stdout.contains("forgotten; the next compact removes its 1 attempts"),
        "{}",
        link.stdout
    );
    let nothing = place.run(&["forget", "--domain", "never.seen"]);
    assert!(
        nothing.code == 0 && nothing.stdout.contains("nothing to forget"),
        "{}",
        nothing.stdout
    );
    for wrong in [
        &["forget"][..],
        &["forget", "--domain", "a", "--link", "b"],
        &["forget", "--domain", "a b"],
    ] {
        assert_eq!(place.run(wrong).code, 2, "{wrong:?}");
    }
}

/// Returns how many frames of packed attempts the segments have.
fn blocks(place: &TestDir) -> usize {
    let is_block = |frame: &[u8]| frame.starts_with(b"\xf1FWr") && frame[36..38] == [4, 0];
    let frames = |content: &[u8]| {
        (4096..content.len() - 48).step_by(16).filter(|&at| is_block(&content[at..])).count()
    };
    segments(&place.data()).iter().map(|path| frames(&std::fs::read(path).unwrap())).sum()
}

fn contains(path: &Path, needle: &[u8]) -> bool {
    std::fs::read(path).unwrap().windows(needle.len()).any(|window| window == needle)
}

#[test]
fn damage_is_found_quarantined_and_repaired_with_a_report_of_the_loss() {
    let place = place_with(2000);
    let segment = segments(&place.data()).remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
    std::fs::write(&segment, &bytes).unwrap();

    let ran = place.run(&["verify", "--json"]);
    let found = ran.one();
    assert_eq!((ran.code, found["sound"].as_bool()), (3, Some(false)));
    let damage = &found["damage"][0];
    let (first, last) =
        (damage["first_seq"].as_u64().unwrap(), damage["last_seq"].as_u64().unwrap());
    assert!(1 <= first && first <= last && last <= 2000, "{damage}");
    let select = place.run(&["select", "https://h1.e.org/"]);
    assert!(select.code == 3 && select.stderr.contains("repair --salvage"), "{}", select.stderr);

    let apart = place.run(&["repair", "--json"]);
    assert_eq!((apart.code, apart.one()["quarantined"].as_array().unwrap().len()), (3, 1));
    assert_eq!(std::fs::read(&segment).unwrap(), bytes, "without --salvage nothing is changed");
    let mended = place.run(&["repair", "--salvage", "--json"]);
    assert_eq!((mended.code, mended.one()["segments_rewritten"].as_u64()), (0, Some(1)));
    assert_eq!(exported(&place) as u64, 2000 - (last - first + 1));
    assert_eq!(place.run(&["verify"]).code, 0);
    let nothing = place.run(&["repair", "--salvage"]);
    assert!(nothing.code == 0 && nothing.stdout.contains("no damage found"), "{}", nothing.stdout);
}

#[test]
fn a_damaged_manifest_is_rebuilt() {
    let place = place_with(50);
    place.run(&["snapshot"]);
    for name in ["SEGMENTS", "SNAPSHOT"] {
        let path = place.data().join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[50] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(place.run(&["verify"]).code, 3, "{name}");
        let ran = place.run(&["repair", "--rebuild-manifest", "--json"]);
        assert_eq!(
            (ran.code, ran.one()["manifests_rewritten"][0].as_str()),
            (0, Some(name)),
            "{}",
            ran.stderr
        );
        assert_eq!((place.run(&["verify"]).code, exported(&place)), (0, 50), "{name}");
    }
}

#[test]
fn alongside_a_writer_only_snapshot_and_compact_work() {
    let place = place_with(300);
    let (journal, _) = Journal::open(&place.data(), JournalOptions::default()).unwrap();
    for command in [&["snapshot"][..], &["verify"], &["compact", "--dry-run"], &["compact"]] {
        let ran = place.run(command);
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.stderr);
    }
    let ran = place.run(&["compact"]);
    assert!(ran.stderr.contains("a crawler is running"), "{}", ran.stderr);
    let holder = format!("pid {}", std::process::id());
    for command in [&["repair"][..], &["forget", "--domain", "h1.e.org"], &["import", "/dev/null"]]
    {
        let ran = place.run(command);
        assert!(
            ran.code == 3 && ran.stderr.contains(&holder),
            "{command:?}: {} {}",
            ran.code,
            ran.stderr
        );
    }
    journal.close().unwrap();
    assert_eq!(place.run(&["forget", "--domain", "h1.e.org"]).code, 0);
}

#[test]
fn every_command_reports_a_torn_tail_and_keeps_every_record() {
    for command in [
        &["snapshot"][..],
        &["compact"],
        &["compact", "--dry-run"],
        &["verify"],
        &["repair"],
        &["forget", "--domain", "h1.e.org"],
    ] {
        let place = place_with(50);
        // Half of the closing mark, as a crash at the very end leaves it.
        let segment = segments(&place.data()).pop().unwrap();
        let len = segment.metadata().unwrap().len();
        std::fs::File::options().write(true).open(&segment).unwrap().set_len(len - 10).unwrap();
        let ran = place.run(command);
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("torn tail") && ran.stderr.contains("50"),
            "{command:?}: {}",
            ran.stderr
        );
        assert_eq!(
            place.run(&["verify", "--json"]).one()["sound"].as_bool(),
            Some(true),
            "{command:?}"
        );
    }
}

#[test]
fn maintenance_creates_no_directory() {
    let place = TestDir::new();
    for command in [
        &["snapshot"][..],
        &["verify"],
        &["compact"],
        &["repair"],
        &["forget", "--domain", "a.org"],
    ] {
        let ran = place.run(command);
        assert!(
            ran.code == 2 && ran.stderr.contains("does not exist"),
            "{command:?}: {}",
            ran.stderr
        );
    }
    assert!(!place.data().exists());
}

#[test]
fn many_new_records_lead_to_a_snapshot() {
    let place = TestDir::new();
    write_together(&place.data(), 99_998);
    let import = |n| {
        place.import([json!({"url": format!("https://h1.e.org/{n}"), "fetcher": "playwright", "success": true, "attempted_at": now()})])
    };
    let snapshots = || -> Vec<String> {
        let names = place
            .data()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("snap-")).collect()
    };
    import(1);
    assert_eq!(snapshots(), [""; 0], "so much is replayed in no time");
    import(2);
    let covers = format!("snap-{:016x}-", 100_000);
    assert!(matches!(&snapshots()[..], [one] if one.starts_with(&covers)), "{:?}", snapshots());
}

/// A compaction killed at any moment leaves a directory that opens with the same evidence.
#[test]
fn a_compaction_that_is_killed_leaves_a_sound_log() {
    let rounds = match std::env::var("FETCHWISE_FAULTS").as_deref() {
        Ok("full") => 200,
        Ok("ci") => 40,
        _ => 8,
    };
    let place = place_with(4000);
    let (mut killed, mut known) = (0, choice(&place));
    for round in 0..rounds {
        let mut child = place.spawn(&["compact", "--retain", "30"]);
        std::thread::sleep(Duration::from_millis(round * 97 % 400));
        // It may have ended already.
        let _ = child.kill();
        let ended = child.wait().unwrap().code() == Some(0);
        killed += u64::from(!ended);
        let verified = place.run(&["verify", "--json"]);
        assert_eq!(verified.code, 0, "round {round}: {} {}", verified.stdout, verified.stderr);
        assert_near(&known, &choice(&place));
        if ended {
            // Now there is something to do again.
            let more =
                history(4000).filter(|line| line["attempted_at"].as_i64() > Some(now() - DAY));
            place.import(more);
            known = choice(&place);
        }
    }
    assert!(killed > 0, "none was killed in time");
    assert_eq!(place.run(&["compact", "--retain", "30"]).code, 0);
    assert!(blocks(&place) > 0, "nothing was packed");
    println!(
        "FAULTS | + | compaction killed by SIGKILL, {killed} of {rounds} before its end | {rounds} | 0 | 0 |"
    );
}

/// Appends attempts as one batch.
fn write_together(data: &Path, count: i64) {
    let options =
        JournalOptions::default().durability(Durability::Os).linger(Duration::from_secs(60));
    let (journal, _) = Journal::open(data, options).unwrap();
    for n in 0..count {
        let url = Url::parse(&format!("https://t{}.e.org/p{}/{n}", n % 10, n % 3)).unwrap();
        let attempt = Attempt::new(&url, "direct_access", Timestamp::from_millis(now() - n))
            .unwrap()
            .delivered();
        journal.append_attempt(&attempt).unwrap();
    }
    journal.flush().wait().unwrap();
    journal.close().unwrap();
}

#[test]
fn the_format_page_suffices_for_an_independent_reader_in_python() {
    let Some(python) = python() else { return };
    let place = place_with(500);
    place.run(&["compact"]);
    let packed = blocks(&place);
    assert!(packed > 0, "the compaction packed nothing");
    write_together(&place.data(), 600);
    assert!(blocks(&place) > packed, "the writer packed nothing");
    place.import(history(30).filter(|line| line["attempted_at"].as_i64() > Some(now() - DAY)));
    place.run(&["forget", "--domain", "h4.e.org"]);
    place.run(&["forget", "--link", "https://h1.e.org/p1/1"]);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/read_log.py");
    let output = Command::new(python).arg(script).arg(place.data()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let own = place.run(&["export"]).json();
    assert!(own.len() > 200 && own.len() == read.len(), "{} and {}", own.len(), read.len());
    for (mut read, mut own) in read.into_iter().zip(own) {
        let millis =
            read.as_object_mut().unwrap().remove("attempted_at_ms").unwrap().as_i64().unwrap();
        let text = own.as_object_mut().unwrap().remove("attempted_at").unwrap();
        let at = fetchwise::rfc3339::parse(text.as_str().unwrap()).unwrap();
        assert_eq!(millis, at.as_millis());
        assert_eq!(read, own);
    }
}

#[test]
fn a_crawl_compacts_expired_attempts_in_the_background() {
    let place = TestDir::new();
    place.write("c.toml", "[tuning]\nsegment_bytes = '64KiB'\n");
    // URLs that no packing makes small: the old attempts must fill more than a few segments.
    let mut state = 1u64;
    let mut digits = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", state ^ state >> 33)
    };
    let long = history(4000).map(|mut of| {
        let path: String = (0..12).map(|_| digits()).collect();
        of["url"] = format!("{}?{path}", of["url"].as_str().unwrap()).into();
        of
    });
    // As in a real log, older records precede newer ones.
    let (old, new): (Vec<Value>, Vec<Value>) =
        long.partition(|of| of["attempted_at"].as_i64().unwrap() < now() - 90 * DAY);
    for part in [old, new] {
        let text: String = part.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(place.run_with(&["import", "-", "--config", "c.toml"], text).code, 0);
    }
    let before = choice(&place);
    let fetch = ["fetch", "-", "--no-browser", "--json", "--config", "c.toml"];
    let mut crawl = place.command(&fetch).stdin(Stdio::piped()).spawn().unwrap();
    let said = lines(crawl.stderr.take().unwrap());
    wait_for(&said, "compacted the attempt log in the background");
    drop(crawl.stdin.take());
    assert_eq!(crawl.wait().unwrap().code(), Some(0));
    // Whole segments are removed: the last one of the old attempts contains new ones.
    let left = exported(&place);
    assert!((2000..2500).contains(&left), "{left} of 4000 are left");
    assert_near(&before, &choice(&place));
}
