//! Queries of the past: `attempts`, `explain --at` and `--attempt`, `links`, `unpause`, and ban
//! rates by day; on logs that were imported, cut off in the middle, or compacted.

use std::io::{Read, Write};
use std::net::TcpListener;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::backoff::LinkState;
use fetchwise::journal::{Journal, JournalOptions, LinkEntry};
use fetchwise::time::Timestamp;
use serde_json::{Value, json};

use crate::support::{DAY, HOUR, TestDir, lines, now, segments, wait_for};

/// A line for `import`; `error` is null for content.
fn line(url: &str, fetcher: &str, error: Value, at: i64) -> Value {
    json!({"url": url, "fetcher": fetcher, "success": error.is_null(), "error_type": error, "attempted_at": at})
}

/// Ten segments, each with forty attempts of one day, the last one of today.
fn ten_days(place: &TestDir) {
    for day in 0..10i64 {
        let options = JournalOptions::default().begin_segment();
        let (journal, _) = Journal::open(&place.data(), options).unwrap();
        for n in 0..40 {
            let at = Timestamp::from_millis(now() - (9 - day) * DAY - n * 1000);
            let url = format!("https://s{}.example.org/d{day}/{n}", n % 4);
            let attempt = Attempt::new(&url::Url::parse(&url).unwrap(), "playwright", at).unwrap();
            let attempt = if n % 8 == 0 {
                attempt.failed(ErrorKind::Blocked403)
            } else {
                attempt.delivered()
            };
            journal.append_attempt(&attempt).unwrap();
        }
        journal.close().unwrap();
    }
}

fn urls(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["url"].as_str()).collect()
}

#[test]
fn a_narrow_time_range_reads_only_a_part_of_the_log() {
    let place = TestDir::new();
    ten_days(&place);
    assert_eq!(segments(&place.data()).len(), 10);
    let ran = place.run(&["attempts", "--since", "36h", "--summary", "--json"]);
    let rows = ran.json();
    let (last, attempts) = rows.split_last().unwrap();
    assert_eq!(attempts.len(), 80, "{}", ran.stderr);
    let count = |name: &str| last["summary"][name].as_u64().unwrap();
    assert_eq!(
        (count("attempts"), count("segments"), count("segments_read")),
        (80, 10, 2),
        "{last}"
    );
    assert!(count("bytes_read") * 4 < count("bytes"), "{last}");
    // The skipped part has no matches: a full scan finds no more.
    let all = place.run(&["export"]).json();
    let since = now() - 36 * HOUR;
    let recent = all.iter().filter(|row| {
        fetchwise::rfc3339::parse(row["attempted_at"].as_str().unwrap()).unwrap().as_millis()
            >= since
    });
    assert_eq!(recent.count(), 80);

    let one = place.run(&["attempts", "--limit", "1", "--summary", "--json"]).json();
    assert_eq!(
        (one.len(), one[1]["summary"]["segments_read"].as_u64()),
        (2, Some(1)),
        "the newest is in the last part"
    );
    let all_rows = place.run(&["attempts", "--oldest-first", "--json"]).json();
    assert_eq!(all_rows, all, "as export has them");
    let mut backwards = place.run(&["attempts", "--json"]).json();
    backwards.reverse();
    assert_eq!(backwards, all);
}

#[test]
fn attempts_are_found_by_url_link_domain_time_and_outcome() {
    let place = TestDir::new();
    let at = now() - HOUR;
    let mut named = line("https://a.org/3", "mine", json!("gremlins"), at + 3);
    named["link"] = json!("article 17");
    place.import([
        line("https://www.a.org/1", "direct_access", json!("blocked_captcha"), at),
        line("https://a.org/2", "playwright", Value::Null, at + 1),
        line("https://b.org/2", "playwright", json!("timeout"), at + 2),
        named,
    ]);
    let found = |args: &[&str]| {
        let ran = place.run(&[&["attempts", "--json", "--oldest-first"], args].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        urls(&ran.json()).join(" ").replace("https://", "")
    };
    assert_eq!(found(&["--domain", "WWW.a.org"]), "www.a.org/1 a.org/2 a.org/3");
    assert_eq!(found(&["--url", "https://me:pw@b.org/2#top"]), "b.org/2");
    assert_eq!(found(&["--link", "article 17"]), "a.org/3");
    assert_eq!(found(&["--outcome", "content"]), "a.org/2");
    assert_eq!(found(&["--outcome", "blocked"]), "www.a.org/1");
    assert_eq!(found(&["--outcome", "gremlins"]), "a.org/3");
    assert_eq!(found(&["--outcome", "failed", "--domain", "b.org"]), "b.org/2");
    let until = fetchwise::rfc3339::format(Timestamp::from_millis(at + 1));
    assert_eq!(found(&["--until", &until]), "www.a.org/1 a.org/2");
    assert_eq!(found(&["--since", &until, "--limit", "2"]), "a.org/2 b.org/2");
    assert_eq!(place.run(&["attempts", "--since", "1h", "--until", "2h"]).code, 2);
    let bad = place.run(&["attempts", "--since", "yesterday"]);
    assert!(bad.code == 2 && bad.stderr.contains("7d"), "{}", bad.stderr);
    // A forgotten attempt is not found in either direction.
    assert_eq!(place.run(&["forget", "--domain", "a.org"]).code, 0);
    assert_eq!(found(&[]), "b.org/2");
    assert_eq!(
        urls(&place.run(&["attempts", "--json", "--limit", "3"]).json()),
        ["https://b.org/2"]
    );
}

#[test]
fn the_text_of_attempts_has_heads_a_limit_and_ids_that_explain_takes() {
    let place = TestDir::new();
    place.import((0..60).map(|n| {
        let mut attempt =
            line(&format!("https://e.org/{n}"), "playwright", Value::Null, now() - 1000 + n);
        attempt["duration_ms"] = json!(if n == 59 { 4 } else { 31_240 });
        attempt
    }));
    let ran = place.run(&["attempts"]);
    let shown: Vec<&str> = ran.stdout.lines().collect();
    assert!(shown[0].starts_with("begin ") && shown[0].ends_with("  url"), "{}", ran.stdout);
    assert_eq!(shown.len(), 51, "{}", ran.stdout);
    assert!(ran.stderr.contains("newest 50") && ran.stderr.contains("--limit"), "{}", ran.stderr);
    assert!(shown[1].contains(" 4 ms  ") && shown[2].contains(" 31.2 s  "), "{}", ran.stdout);
    // Heads are above their columns.
    let column = |name: &str| shown[0].find(name).unwrap();
    assert_eq!(shown[1].find("playwright"), Some(column("fetcher")), "{}", ran.stdout);
    assert_eq!(shown[1].find("https://"), Some(column("url")), "{}", ran.stdout);
    let id =
        place.run(&["attempts", "--json", "--limit", "1"]).one()["id"].as_str().unwrap().to_owned();
    let short = shown[1].split_whitespace().nth(1).unwrap();
    assert!(short.len() == 12 && id.ends_with(short), "{short} {id}");
    assert_eq!(
        place.run(&["explain", "--json", "--attempt", short]).one()["attempt"]["id"],
        json!(id)
    );
    assert_eq!(place.run(&["explain", "--attempt", "0123456789ab"]).code, 1);
    assert_eq!(place.run(&["explain", "--attempt", "12"]).code, 2);
    let all = place.run(&["attempts", "--limit", "70"]);
    assert_eq!((all.stdout.lines().count(), all.stderr.as_str()), (61, ""));
    assert_eq!(place.run(&["attempts", "--json"]).json().len(), 60);
    let misspelt = place.run(&["attempts", "--outcome", "blokced"]);
    assert!(
        misspelt.stderr.contains("hint: ") && misspelt.stderr.contains("\"blocked"),
        "{}",
        misspelt.stderr
    );
}

#[test]
fn hostile_text_is_shown_as_text() {
    let place = TestDir::new();
    let mut evil = line("https://e.org/a", "mine", json!("boom\u{202e}"), now() - 1000);
    evil["link"] = json!("\u{1b}]0;owned\u{7}\r\nlink");
    place.import([evil]);
    let id = place.run(&["attempts", "--json"]).one()["id"].as_str().unwrap().to_owned();
    for args in [&["attempts"][..], &["explain", "--attempt", &id], &["links"], &["hosts"]] {
        let ran = place.run(args);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let shown = format!("{}{}", ran.stdout, ran.stderr);
        let bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!shown.chars().any(bad), "{args:?}: {shown:?}");
    }
}

#[test]
fn a_log_with_a_torn_tail_is_queried_up_to_the_tail() {
    let place = TestDir::new();
    place.import(
        (0..30).map(|n| {
            line(&format!("https://e.org/{n}"), "playwright", Value::Null, now() - 1000 + n)
        }),
    );
    let segment = segments(&place.data()).pop().unwrap();
    let bytes = std::fs::read(&segment).unwrap();
    // Half of a frame at the end, as an interrupted write leaves it.
    std::fs::remove_file(place.data().join("SEGMENTS")).unwrap();
    std::fs::write(&segment, [&bytes[..], &[0xf1, b'F', b'W', b'r', 7, 7, 7, 7, 9, 0]].concat())
        .unwrap();
    let ran = place.run(&["attempts", "--json"]);
    assert_eq!((ran.code, ran.json().len()), (0, 30), "{}", ran.stderr);
}

#[test]
fn the_log_of_a_killed_crawler_is_queried() {
    let place = TestDir::new();
    let serve = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = serve.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in serve.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap_or(0);
                let is_slow = String::from_utf8_lossy(&request[..read]).contains("/slow");
                if is_slow {
                    // Until the process ends.
                    loop {
                        std::thread::park();
                    }
                }
                let body = format!(
                    "<title>t</title><p>{}</p>",
                    "Some words of a page that is long enough. ".repeat(40)
                );
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes());
            });
        }
    });
    let url = |path: &str| format!("http://{address}/{path}");
    let args = [
        "fetch",
        &url("a"),
        &url("slow"),
        "--allow-private-network",
        "--no-browser",
        "--json",
        "--robots",
        "ignore",
    ];
    let mut child = place.spawn(&args);
    let seen = lines(child.stdout.take().unwrap());
    wait_for(&seen, "/a\"");
    // Alongside the crawler the log can be read.
    let beside = place.run(&["attempts", "--json"]);
    assert_eq!(beside.code, 0, "{}", beside.stderr);
    child.kill().unwrap();
    child.wait().unwrap();
    let found = place.run(&["attempts", "--url", &url("a"), "--json"]).one();
    assert_eq!(found["success"], json!(true));
    let id = found["id"].as_str().unwrap();
    let explained = place.run(&["explain", "--attempt", id, "--json"]).one();
    assert_eq!(explained["attempt"]["rule"], found["rule"], "{explained}");
    assert!(
        explained["attempt"]["rule"].is_string() && explained["attempt"]["propensity"].is_number(),
        "{explained}"
    );
    assert_eq!(
        candidate(&explained, "direct_access")["domain_attempts"].as_f64(),
        Some(0.0),
        "nothing was known before it"
    );
    let rate = place.run(&["ban-rate", "127.0.0.1", "--json"]).one();
    assert_eq!((rate["attempts"].as_u64(), rate["banned"].as_u64()), (Some(1), Some(0)));
}

/// At `https://e.org`: twenty plain requests that worked until three days ago, then twenty that
/// were refused, while the browser works.
fn changed(place: &TestDir) {
    let old = (0..20).map(|n| {
        line(&format!("https://e.org/{n}"), "direct_access", Value::Null, now() - 3 * DAY + n)
    });
    place.import(old);
    let new = (0..40).map(|n| {
        let (fetcher, error) = if n % 2 == 0 {
            ("direct_access", json!("blocked_403"))
        } else {
            ("playwright", Value::Null)
        };
        line(&format!("https://e.org/{n}"), fetcher, error, now() - DAY + n)
    });
    place.import(new);
}

fn candidate<'v>(explained: &'v Value, name: &str) -> &'v Value {
    explained["candidates"].as_array().unwrap().iter().find(|of| of["fetcher"] == name).unwrap()
}

#[test]
fn past_evidence_is_that_of_the_attempts_up_to_then() {
    let place = TestDir::new();
    changed(&place);
    let explain = |args: &[&str]| {
        let all = [&["explain", "https://e.org/new", "--all-fetchers", "--json"], args].concat();
        let ran = place.run(&all);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        (ran.one(), ran.stderr)
    };
    assert_eq!(explain(&[]).0["fetcher"], "playwright");
    let (then, _) = explain(&["--at", "2d"]);
    assert_eq!(
        (&then["fetcher"], then["rebuilt"]["records"].as_u64()),
        (&json!("direct_access"), Some(20)),
        "{then}"
    );
    assert_eq!(then["rebuilt"]["missing_before"], Value::Null);
    let (before, _) = explain(&["--at", "5d"]);
    assert_eq!(candidate(&before, "direct_access")["domain_attempts"].as_f64(), Some(0.0));
    // A log that ends at that time gives exactly the same numbers.
    let other = TestDir::new();
    let at = now() - 2 * DAY;
    other.import(place.run(&["attempts", "--until", "2d", "--oldest-first", "--json"]).json());
    let at_text = fetchwise::rfc3339::format(Timestamp::from_millis(at));
    let ended = other
        .run(&["explain", "https://e.org/new", "--all-fetchers", "--json", "--now", &at_text])
        .one();
    let (then, _) = explain(&["--at", &at_text]);
    for name in ["direct_access", "playwright"] {
        for field in ["p", "index", "confidence", "sample_size"] {
            let (a, b) = (
                candidate(&then, name)[field].as_f64().unwrap(),
                candidate(&ended, name)[field].as_f64().unwrap(),
            );
            assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{name} {field}: {a} {b}");
        }
    }
    // A later snapshot is useless for it; an older one is used.
    assert_eq!(place.run(&["snapshot"]).code, 0);
    assert_eq!(explain(&["--at", "2d"]).0["rebuilt"]["snapshot_seq"], Value::Null);
    place.import([line("https://e.org/last", "playwright", Value::Null, now())]);
    let (recent, _) = explain(&["--at", "1h"]);
    assert_eq!(
        (recent["rebuilt"]["snapshot_seq"].as_u64(), recent["rebuilt"]["records"].as_u64()),
        (Some(60), Some(0))
    );
    assert_eq!(recent["fetcher"], "playwright");
    // Compacted attempts are reported as missing.
    let compacted = place.run(&["compact", "--retain", "2"]);
    assert_eq!(compacted.code, 0, "{}", compacted.stderr);
    let (then, said) = explain(&["--at", "36h"]);
    assert!(then["rebuilt"]["missing_before"].is_string(), "{then}");
    assert_eq!(then["rebuilt"]["records"].as_u64(), Some(0), "{then}");
    assert!(said.is_empty(), "JSON says it itself: {said}");
    let words = place.run(&["explain", "https://e.org/new", "--at", "36h", "--all-fetchers"]);
    assert!(
        words.stderr.contains("incomplete") && words.stderr.contains("compacted away"),
        "{}",
        words.stderr
    );
}

#[test]
fn the_decision_of_an_attempt_is_shown_as_recorded() {
    let place = TestDir::new();
    changed(&place);
    let mut first = line("https://e.org/page", "direct_access", json!("blocked_403"), now() - 2000);
    let mut second = line("https://e.org/page", "playwright", Value::Null, now() - 1000);
    for (of, number, rule) in [(&mut first, 1, "explore"), (&mut second, 2, "index")] {
        (of["try_no"], of["rule"]) = (json!(number), json!(rule));
        (of["source"], of["propensity"], of["confidence"]) =
            (json!("learned"), json!(0.25), json!(0.75));
        of["arm"] = json!("learning");
    }
    first["response_headers"] = json!({":chars": "212", ":verdict": "cues: refused, prove-human"});
    let third = line("https://e.org/page", "playwright", Value::Null, now() - 500);
    place.import([first, second, third]);
    let rows = place.run(&["attempts", "--url", "https://e.org/page", "--json"]).json();
    assert_eq!(rows.len(), 3);
    let id = rows[1]["id"].as_str().unwrap();
    let explained = place.run(&["explain", "--attempt", id, "--json"]).one();
    let then = &explained["attempt"];
    assert_eq!(
        (&then["id"], &then["rule"], &then["arm"]),
        (&json!(id), &json!("index"), &json!("learning")),
        "{then}"
    );
    assert_eq!(
        (then["propensity"].as_f64(), then["confidence"].as_f64()),
        (Some(0.25), Some(0.75))
    );
    let fetch = then["fetch"].as_array().unwrap();
    assert_eq!(fetch.len(), 2, "the third one is of another fetch: {fetch:?}");
    assert_eq!(explained["rebuilt"]["records"].as_u64(), Some(61), "everything before it");
    assert!(
        candidate(&explained, "direct_access")["excluded"].as_bool().unwrap(),
        "it had been tried"
    );
    let words = place.run(&["explain", "--attempt", id]);
    assert!(
        words.stdout.contains("recorded decision: playwright") && words.stdout.contains("0.25"),
        "{}",
        words.stdout
    );
    // It shows what was known then, and reconciles nothing: no second decision contradicts the
    // recorded one.
    let lines: Vec<&str> = words.stdout.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines[1].starts_with("recorded decision: playwright"), "{}", words.stdout);
    assert!(words.stdout.contains("known then:\n  1. playwright delivered"), "{}", words.stdout);
    for other in ["archive_proxy", "today's settings select", "cheapest alternative"] {
        assert!(!words.stdout.contains(other), "{other}: {}", words.stdout);
    }
    let full = place.run(&["explain", "--full", "--attempt", id]).stdout;
    assert!(full.contains(">  playwright") && !full.contains("archive_proxy"), "{full}");
    // The reason of a failure is kept with its attempt.
    assert_eq!(explained["attempt"]["verdict"], Value::Null, "{explained}");
    let failed = rows.iter().find(|row| row["success"] == false).unwrap()["id"].as_str().unwrap();
    let explained = place.run(&["explain", "--attempt", failed, "--json"]).one();
    let reason = json!({"rule": "cues", "cues": ["refused", "prove-human"], "visible_chars": 212});
    assert_eq!(explained["attempt"]["verdict"], reason, "{explained}");
    let words = place.run(&["explain", "--attempt", failed]).stdout;
    assert!(
        words.contains("verdict: rule cues (refused, prove-human), 212 visible characters"),
        "{words}"
    );
    let none = place.run(&["explain", "--attempt", "0199f0c5-27c1-7d5e-8c1b-6d0f6f7a9b10"]);
    assert!(none.code == 1 && none.stderr.contains("fetchwise attempts"), "{}", none.stderr);
    assert_eq!(place.run(&["explain"]).code, 2);
}

/// Two paused hosts and two paused links.
fn paused(place: &TestDir) {
    let at = Timestamp::from_millis(now());
    let until = |minutes: i64| Some(Timestamp::from_millis(now() + minutes * 60_000));
    let (journal, _) = Journal::open(&place.data(), JournalOptions::default()).unwrap();
    for domain in ["e.org", "f.org"] {
        journal.append_host(domain, until(10), at).unwrap();
    }
    let hint = Some(fetchwise::attempt::Hint::Blocked);
    let states = [
        (
            "https://e.org/a",
            LinkState { paused_until: until(20), risk_level: 2, hint, ..LinkState::default() },
        ),
        ("https://g.org/a", LinkState { paused_until: until(5), ..LinkState::default() }),
        ("https://g.org/b", LinkState { risk_level: 1, ..LinkState::default() }),
    ];
    for (link, state) in states {
        let domain = link[8..13].to_owned();
        journal.append_link(&LinkEntry { link: link.into(), domain, state, at }).unwrap();
    }
    journal.close().unwrap();
}

#[test]
fn paused_links_and_hosts_are_shown_with_their_reason_and_unpaused() {
    let place = TestDir::new();
    paused(&place);
    let names = |args: &[&str], field: &str| -> Vec<String> {
        place.run(args).json().iter().map(|row| row[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names(&["links", "--json"], "link"),
        ["https://e.org/a", "https://g.org/a", "https://g.org/b"]
    );
    assert_eq!(names(&["links", "--json"], "reason"), ["blocked", "host_held", "unknown"]);
    assert_eq!(
        names(&["links", "--paused", "--json"], "link"),
        ["https://e.org/a", "https://g.org/a"]
    );
    assert_eq!(
        names(&["links", "--at-risk", "--json"], "link"),
        ["https://e.org/a", "https://g.org/b"]
    );
    let row = place.run(&["links", "https://e.org/a", "--json"]).one();
    let left = row["paused_for_s"].as_f64().unwrap();
    assert!(left > 60.0 && left <= 1200.0 && row["host_paused_until"].is_string(), "{row}");
    assert_eq!((row["domain"].as_str(), row["risk_level"].as_u64()), (Some("e.org"), Some(2)));
    assert_eq!(names(&["hosts", "--paused", "--json"], "host"), ["e.org", "f.org"]);
    assert!(place.run(&["links"]).stdout.contains("its host asked for a pause"));

    let released = place.run(&["unpause", "www.e.org", "--json"]).one();
    assert_eq!(
        (&released["host"], &released["unpaused"]),
        (&json!("e.org"), &json!(true)),
        "{released}"
    );
    assert!(released["was_paused_until"].is_string() && released["server"].is_null());
    assert_eq!(names(&["hosts", "--paused", "--json"], "host"), ["f.org"]);
    assert_eq!(place.run(&["unpause", "e.org", "--json"]).one()["unpaused"], json!(false));
    let link = place.run(&["unpause", "--link", "https://e.org/a"]);
    assert!(
        link.code == 0 && link.stdout.contains("unpaused; it was paused until"),
        "{}{}",
        link.stdout,
        link.stderr
    );
    let row = place.run(&["links", "https://e.org/a", "--json"]).one();
    assert_eq!(
        (&row["paused_until"], row["risk_level"].as_u64()),
        (&Value::Null, Some(2)),
        "it stays at risk: {row}"
    );
    for args in [&["unpause"][..], &["unpause", "a b"], &["unpause", "e.org", "--link", "x"]] {
        assert_eq!(place.run(args).code, 2, "{args:?}");
    }
    // The same holds after a snapshot and a compaction.
    assert_eq!(place.run(&["snapshot"]).code, 0);
    assert_eq!(place.run(&["compact"]).code, 0);
    assert_eq!(names(&["hosts", "--paused", "--json"], "host"), ["f.org"]);
    let select = place.run(&["select", "https://e.org/a", "--all-fetchers", "--json"]).one();
    assert_ne!(select["decision"], "paused", "{select}");
}

/// A server that responds to one request with `answer` and passes on the request.
fn answering(answer: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut part) = (String::new(), [0; 4096]);
        while !request.contains("\r\n\r\n")
            || request.contains("/links/") && !request.ends_with('}')
        {
            let read = stream.read(&mut part).unwrap();
            request += &String::from_utf8_lossy(&part[..read]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        sender.send(request).unwrap();
    });
    (address, asked)
}

#[test]
fn alongside_a_server_unpause_asks_the_server() {
    const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 72\r\nconnection: close\r\n\r\n\
        {\"host\":\"e.org\",\"unpaused\":true,\"was_paused_until\":\"2026-01-31T12:00:00Z\"}";
    let place = TestDir::new();
    paused(&place);
    // A server has exclusive access to the log and writes its address.
    let (holder, _) = Journal::open(&place.data(), JournalOptions::default()).unwrap();
    let (address, asked) = answering(DONE);
    std::fs::write(place.data().join("SERVE"), format!("{address}\n")).unwrap();
    let ran = TestDir::command(&place, &["unpause", "e.org", "--json"])
        .env("FETCHWISE_TOKEN", "secret")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let released: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(
        (&released["unpaused"], &released["server"]),
        (&json!(true), &json!(address)),
        "{released}"
    );
    let request = asked.recv().unwrap().to_lowercase();
    assert!(
        request.starts_with("post /v1/hosts/e.org/unpause ")
            && request.contains("authorization: bearer secret"),
        "{request}"
    );
    // The server has ended, and its file is still there.
    let gone = place.run(&["unpause", "e.org"]);
    assert!(
        gone.code == 1 && gone.stderr.contains("check that the server runs"),
        "{}",
        gone.stderr
    );
    drop(holder);
    let (address, asked) =
        answering("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let refused = place.run(&["unpause", "--link", "https://e.org/a?b=c/d", "--server", &address]);
    assert!(refused.code == 1 && refused.stderr.contains("FETCHWISE_TOKEN"), "{}", refused.stderr);
    let request = asked.recv().unwrap();
    assert!(
        request.starts_with("POST /v1/links/unpause ")
            && request.ends_with("{\"link\":\"https://e.org/a?b=c/d\"}"),
        "{request}"
    );
    // Without a server it is done in the log.
    assert_eq!(place.run(&["unpause", "e.org", "--json"]).one()["unpaused"], json!(true));
}

#[test]
fn ban_rates_include_compacted_days() {
    let place = TestDir::new();
    let of = |n: i64, error: Value, days: i64| {
        line(&format!("https://e.org/{n}"), "playwright", error, now() - days * DAY - n)
    };
    place.import(
        (0..20).map(|n| of(n, if n < 5 { json!("rate_limited") } else { Value::Null }, 60)),
    );
    place.import((0..10).map(|n| of(n, if n < 1 { json!("blocked_403") } else { Value::Null }, 0)));
    let rate = |days: &str| {
        let row = place.run(&["ban-rate", "www.E.org", "--days", days, "--json"]).one();
        (
            row["attempts"].as_u64().unwrap(),
            row["banned"].as_u64().unwrap(),
            row["complete_since"].clone(),
        )
    };
    let (short, long) = (rate("7"), rate("80"));
    assert_eq!((short, long), ((10, 1, Value::Null), (30, 6, Value::Null)));
    let compacted = place.run(&["compact", "--retain", "30"]);
    assert_eq!(compacted.code, 0, "{}", compacted.stderr);
    assert_eq!(place.run(&["attempts", "--json"]).json().len(), 10, "they are gone from the log");
    assert_eq!(rate("80"), (30, 6, Value::Null), "and not from the counts");
    // Earlier days come from the log, which reports what is missing.
    let (attempts, banned, since) = rate("200");
    assert!((attempts, banned) == (30, 6) && since.is_string(), "{since}");
    let words = place.run(&["ban-rate", "e.org", "--days", "200"]);
    assert!(
        words.stdout.contains("6 of 30 attempts blocked") && words.stdout.contains("not counted"),
        "{}",
        words.stdout
    );
}

#[test]
fn both_rates_of_a_query_are_over_counted_attempts() {
    let place = TestDir::new();
    let errors = [Value::Null, json!("not_found"), json!("not_found"), json!("wrong_tool")];
    place.import(
        (0..4).map(|n| {
            line(&format!("https://e.org/{n}"), "direct_access", errors[n].clone(), now())
        }),
    );
    let row = place.run(&["query", "--where", "domain=e.org", "--json"]).one();
    assert_eq!((row["attempts"].as_u64(), row["counted"].as_u64()), (Some(4), Some(2)), "{row}");
    assert_eq!(row["success_rate"].as_f64(), Some(0.5));
    assert!((row["decayed_success_rate"].as_f64().unwrap() - 0.5).abs() < 1e-6, "{row}");
}
