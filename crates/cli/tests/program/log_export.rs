//! `import`, `export`, `ban-rate`, `stats`, and logs that are locked, torn or damaged.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use fetchwise_testsite::origin::{Origin, Site};
use serde_json::{Value, json};

use crate::support::{DAY, Ran, TestDir, now, segments};

fn attempt(url: &str, at: i64, error: Option<&str>) -> Value {
    json!({"url": url, "fetcher": "direct_access", "success": error.is_none(), "error_type": error, "attempted_at": at})
}

#[test]
fn an_invalid_line_is_reported_and_the_rest_imported() {
    let place = TestDir::new();
    // Equal times would make the two a duplicate, so that the clock is read once.
    let at = now();
    let good = |n: i64| attempt("https://e.org/", at - n, None);
    let text = format!("{}\nno json\n\n{}\n{}\n", good(1), json!({"url": "x"}), good(2));
    let file = place.write("a.jsonl", [text.as_bytes(), b"\xff\xfe\n"].concat());
    let ran = place.run(&["import", &file, "--json"]);
    assert_eq!(ran.code, 1);
    let sum = ran.one();
    let counts =
        ["lines", "imported", "duplicates", "failed"].map(|name| sum[name].as_u64().unwrap());
    assert_eq!(counts, [5, 2, 0, 3]);
    for want in ["a.jsonl:2: not a JSON object", "a.jsonl:4: `url`", "a.jsonl:6: not valid UTF-8"] {
        assert!(ran.stderr.contains(want), "{want}: {}", ran.stderr);
    }
    assert_eq!(place.run(&["export"]).json().len(), 2);
}

#[test]
fn importing_twice_changes_nothing_and_an_export_imports_to_the_same() {
    let place = TestDir::new();
    let line = attempt("https://e.org/a", now(), Some("blocked_captcha"));
    let text = format!("{line}\n{line}\n{}\n", attempt("https://e.org/b", now(), None));
    let sums = [(), ()].map(|()| {
        let sum = place.run_with(&["import", "-", "--json"], &text).one();
        (sum["imported"].as_u64().unwrap(), sum["duplicates"].as_u64().unwrap())
    });
    assert_eq!(sums, [(2, 1), (0, 3)]);
    let exported = place.run(&["export"]).stdout;
    let other = TestDir::new();
    assert_eq!(other.run_with(&["import", "-"], &exported).code, 0);
    assert_eq!(other.run(&["export"]).stdout, exported);
    let csv = place.run(&["export", "--format", "csv"]).stdout;
    assert!(
        csv.starts_with("id,link,url,fetcher,success,is_banned,error_type,")
            && csv.lines().count() == 3,
        "{csv}"
    );
}

#[test]
fn exported_attempts_have_the_fields_that_programs_rely_on() {
    let place = TestDir::new();
    place.import([attempt("https://www.e.org/a.pdf", 1_790_000_000_123, Some("timeout"))]);
    let line = place.run(&["export"]).one();
    let mut names: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let want = [
        "arm",
        "attempted_at",
        "confidence",
        "duration_ms",
        "error_type",
        "fetcher",
        "heuristics",
        "hint",
        "http_status",
        "id",
        "is_banned",
        "link",
        "propensity",
        "response_headers",
        "rule",
        "shadow_fetcher",
        "source",
        "success",
        "try_no",
        "url",
        "weight",
    ];
    assert_eq!(names, want);
    assert_eq!(line["attempted_at"], "2026-09-21T14:13:20.123Z");
    assert_eq!((line["weight"].as_f64(), line["is_banned"].as_bool()), (Some(0.5), Some(false)));
    assert!(line["heuristics"].as_array().unwrap().iter().any(|h| h["type"] == "domain_suffix"));
}

#[test]
fn unknown_fields_are_ignored_with_one_warning() {
    let place = TestDir::new();
    let lines: String = (0..3)
        .map(|n| {
            let mut line = attempt("https://e.org/", now() - n, None);
            line["colour"] = json!("red");
            format!("{line}\n")
        })
        .collect();
    let ran = place.run_with(&["import", "-"], lines);
    assert_eq!((ran.code, ran.stderr.matches("colour").count()), (0, 1), "{}", ran.stderr);
}

#[test]
fn ban_rate_counts_whole_utc_days_and_is_null_without_attempts() {
    let place = TestDir::new();
    let today = "2026-03-10T00:00:00Z";
    let midnight = 1_773_100_800_000;
    place.import([
        attempt("https://www.e.org/1", midnight, Some("blocked_403")),
        attempt("https://e.org/2", midnight - 1, None),
        attempt("https://e.org/3", midnight - 6 * DAY, None),
        attempt("https://e.org/4", midnight - 6 * DAY - 1, Some("blocked_captcha")),
        attempt("https://other.org/", midnight, Some("blocked_403")),
    ]);
    let rate = |days: &str, now: &str| {
        place.run(&["ban-rate", "WWW.e.org", "--days", days, "--now", now, "--json"]).one()
    };
    let day = json!({"domain": "e.org", "days": 1, "attempts": 1, "banned": 1, "rate": 1.0, "complete_since": null});
    assert_eq!(rate("1", today), day);
    let week = rate("7", today);
    assert_eq!((week["attempts"].as_u64(), week["banned"].as_u64()), (Some(3), Some(1)));
    let none = rate("3", "2026-05-01T00:00:00Z");
    assert_eq!((none["attempts"].as_u64(), &none["rate"]), (Some(0), &Value::Null));
}

#[test]
fn stats_add_up_by_domain_and_fetcher() {
    let place = TestDir::new();
    let with = |url: &str, error, source: &str, n: i64| {
        let mut line = attempt(url, now() - n, error);
        line["source"] = json!(source);
        line
    };
    place.import([
        with("https://a.org/", None, "learned", 1),
        with("https://a.org/", None, "probe", 2),
        with("https://a.org/", Some("blocked_captcha"), "explore", 3),
        with("https://a.org/", None, "learned", 4),
        with("https://b.org/", None, "probe", 5),
    ]);
    let rows = place.run(&["stats", "--by", "domain", "--json"]).json();
    assert_eq!((rows[0]["key"].as_str(), rows[1]["key"].as_str()), (Some("a.org"), Some("b.org")));
    let numbers = ["attempts", "success_rate", "ban_rate", "learned", "probed", "explored"];
    assert_eq!(
        numbers.map(|name| rows[0][name].as_f64().unwrap()),
        [4.0, 0.75, 0.25, 0.5, 0.25, 0.25]
    );
    let rows = place.run(&["stats", "--by", "fetcher", "--json"]).json();
    assert_eq!(
        (rows.len(), rows[0]["key"].as_str(), rows[0]["attempts"].as_u64()),
        (1, Some("direct_access"), Some(5))
    );
    let empty = TestDir::new();
    std::fs::create_dir(empty.data()).unwrap();
    assert!(empty.run(&["stats"]).stdout.contains("no attempts yet"));
}

#[test]
fn stats_have_pages_costs_and_what_is_missing() {
    let place = TestDir::new();
    let with = |url: &str, fetcher: &str, error, try_no: u32, at: i64| {
        let mut line = attempt(url, at, error);
        (line["fetcher"], line["try_no"]) = (json!(fetcher), json!(try_no));
        line
    };
    let (day, old) = (now() - 3_600_000, now() - 10 * DAY);
    place.import([
        with("https://a.org/", "direct_access", Some("wrong_tool"), 1, day),
        with("https://a.org/", "playwright", None, 2, day + 1),
        with("https://a.org/gone", "direct_access", Some("not_found"), 1, day + 2),
        with("https://b.org/", "direct_access", None, 1, day + 3),
        with("https://b.org/", "direct_access", None, 1, old),
        with("https://c.org/", "direct_access", Some("not_found"), 1, old),
    ]);
    let rows = |args: &[&str]| place.run(&[&["stats", "--json"], args].concat()).json();
    let numbers = |row: &Value| {
        [
            "attempts",
            "delivered",
            "visits",
            "missing",
            "cost",
            "cost_per_page",
            "browser_only_cost",
            "saved",
            "success_rate",
        ]
        .map(|name| row[name].as_f64().unwrap_or(f64::NAN))
    };
    let by_cost = rows(&["--by", "domain", "--sort", "cost"]);
    assert_eq!(by_cost[0]["key"], "a.org");
    assert_eq!(numbers(&by_cost[0]), [3.0, 1.0, 2.0, 1.0, 22.0, 22.0, 20.0, -0.1, 0.5]);
    assert_eq!(
        (&by_cost[0]["fetcher"], &by_cost[1]["fetcher"]),
        (&json!("playwright"), &json!("direct_access"))
    );
    assert_eq!(numbers(&by_cost[1]), [2.0, 2.0, 2.0, 0.0, 2.0, 1.0, 40.0, 0.95, 1.0]);
    // Nothing was delivered, so nothing can have been saved.
    let nothing = &rows(&["--domain", "c.org"])[0];
    assert_eq!(
        (&nothing["cost"], &nothing["browser_only_cost"], &nothing["saved"]),
        (&json!(1.0), &json!(null), &json!(null))
    );
    // The range and the limit.
    assert_eq!(rows(&["--by", "domain", "--sort", "cost", "--limit", "1"]).len(), 1);
    assert_eq!(rows(&["--since", "2d"])[0]["attempts"], 4);
    assert_eq!(rows(&["--until", "2d", "--domain", "www.b.org"])[0]["attempts"], 1);
    assert!(rows(&["--domain", "nobody.org"]).is_empty());
    assert!(place.run(&["stats", "--domain", "nobody.org"]).stdout.contains("no attempts match"));
    let outcomes = rows(&["--by", "outcome"]);
    let keys: Vec<_> = outcomes.iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["content", "not_found", "wrong_tool"]);
    let shown = place.run(&["stats", "--by", "domain"]).stdout;
    assert!(shown.contains("browser only") && shown.contains("-10.0 %"), "{shown}");
    assert!(place.run(&["stats", "--decisions"]).stdout.contains("inferred"));
    // A configured cost counts instead of the class's.
    let config =
        "[[fetcher]]\nname = \"playwright\"\ncost = 30\n[[fetcher]]\nname = \"direct_access\"\n";
    let dear = rows(&["--config", &place.write("costs.toml", config)]);
    assert_eq!(
        (dear[0]["cost"].as_f64(), dear[0]["browser_only_cost"].as_f64()),
        (Some(35.0), Some(90.0))
    );
    let late = place.run(&["stats", "--since", "1d", "--until", "2d"]);
    assert_eq!((late.code, late.stderr.contains("--since is later than --until")), (2, true));
}

#[test]
fn csv_has_flat_columns_and_can_be_imported_again() {
    let place = TestDir::new();
    let mut lines = vec![
        attempt("https://www.a.org/", now() - 5000, Some("wrong_tool")),
        attempt("https://www.a.org/", now() - 4000, None),
        attempt("https://b.co.uk/=x", now() - 3000, Some("not_found")),
    ];
    lines[0]["response_headers"] = json!({"content-length": "1234", "server": "a \"quoted\", one"});
    (lines[1]["fetcher"], lines[1]["try_no"]) = (json!("playwright"), json!(2));
    lines[2]["link"] = json!("=cmd|x");
    lines[2]["heuristics"] = json!([{"type": "note", "value": "two\nlines"}]);
    place.import(lines);
    let ran = place.run(&["export", "--format", "csv"]);
    let mut reader = csv::Reader::from_reader(ran.stdout.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let cell = |row: usize, name: &str| {
        rows[row].get(heads.iter().position(|head| head == name).unwrap()).unwrap()
    };
    assert_eq!(
        ["domain", "site", "cost", "bytes"].map(|name| cell(0, name)),
        ["a.org", "a.org", "1", "1234"]
    );
    assert_eq!(
        (cell(1, "cost"), cell(1, "visit")),
        ("20", cell(0, "id")),
        "two requests of one visit"
    );
    assert_eq!((cell(2, "site"), cell(2, "visit")), ("b.co.uk", cell(2, "id")));
    let only = place.run(&["export", "--format", "csv", "--domain", "www.a.org"]).stdout;
    assert!(only.contains("a.org") && !only.contains("b.co.uk"), "{only}");
    // Another directory, from CSV: the attempts are the same.
    let file = place.write("attempts.csv", &ran.stdout);
    let other = TestDir::new();
    let copy = other.write("attempts.csv", &ran.stdout);
    assert_eq!(other.run(&["import", &copy, "--json"]).one()["imported"], 3);
    assert_eq!(other.run(&["export"]).stdout, place.run(&["export"]).stdout);
    assert_eq!(place.run(&["import", &file, "--json"]).one()["duplicates"], 3);
    // Rows that cannot be read are named, and the rest is imported.
    let broken = format!(
        "url,fetcher,success,attempted_at\nhttps://c.org/,f,true,{}\nhttps://d.org/,f\n\"",
        now()
    );
    let ran = other.run(&["import", &other.write("broken.csv", broken)]);
    assert!(
        ran.code == 1 && ran.stderr.contains("broken.csv:3: invalid row: expected 4 cells"),
        "{}",
        ran.stderr
    );
    assert_eq!(other.run(&["stats", "--domain", "c.org", "--json"]).one()["attempts"], 1);
    // A file of another kind is named in one line, and so is a format that nobody knows.
    for (name, bytes, what) in [
        ("a.db", &b"SQLite format 3\0"[..], "a SQLite database"),
        ("a.gz", b"\x1f\x8b\x08", "compressed"),
        ("a.json", b"[{\"url\": 1}]", "a JSON array"),
        ("a.xlsx", b"PK\x03\x04", "a ZIP archive or a spreadsheet"),
        (
            "a.txt",
            b"https://a.org/\nhttps://b.org/\n",
            "neither JSON lines nor a CSV file of attempts",
        ),
        (
            "b.csv",
            b"address,tool\nhttps://a.org/,f\n",
            "neither JSON lines nor a CSV file of attempts",
        ),
    ] {
        let ran = other.run(&["import", &other.write(name, bytes)]);
        assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
        let want =
            format!("{name} is {what}: import reads JSON lines, CSV and Parquet of attempts");
        assert!(ran.code == 2 && ran.stderr.contains(&want), "{}", ran.stderr);
    }
    let many: String = (0..50).map(|n| format!("{{\"url\": {n}}}\n")).collect();
    let ran = other.run_with(&["import", "-"], many);
    assert_eq!(ran.stderr.lines().count(), 11, "{}", ran.stderr);
    assert!(ran.stderr.contains("40 more invalid lines"), "{}", ran.stderr);
}

/// `-o` takes the format from the name, and each of the formats but SQLite can be imported again.
#[test]
fn an_exported_file_has_the_format_of_its_name_and_imports_to_the_same() {
    let place = TestDir::new();
    let mut lines = vec![
        attempt("https://www.a.org/", now() - 5000, Some("wrong_tool")),
        attempt("https://www.a.org/", now() - 4000, None),
        attempt("https://b.co.uk/", now() - 3000, Some("x_own")),
    ];
    lines[0]["response_headers"] = json!({"content-length": "1234", "server": "a \"quoted\", one"});
    (lines[1]["propensity"], lines[1]["confidence"], lines[1]["rule"]) =
        (json!(1.0), json!(0.25), json!("index"));
    lines[2]["heuristics"] = json!([{"type": "note", "value": "two\nlines", "importance": 0.1}]);
    place.import(lines);
    let all = place.run(&["export"]).stdout;
    for name in ["a.jsonl", "a.ndjson", "a.csv", "a.parquet"] {
        let ran = place.run(&["export", "-o", name]);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""), "{name}");
        let other = TestDir::new();
        let copy = other.write(name, std::fs::read(place.path(name)).unwrap());
        let sum = other.run(&["import", &copy, "--json"]).one();
        assert_eq!(
            (&sum["imported"], &sum["unknown_fields"]),
            (&json!(3), &json!([])),
            "{name}: {sum}"
        );
        assert_eq!(other.run(&["export"]).stdout, all, "{name}");
        assert_eq!(other.run(&["import", &copy, "--json"]).one()["duplicates"], 3);
    }
    assert_eq!(place.run(&["export", "--out", "a.db"]).code, 0);
    assert!(std::fs::read(place.path("a.db")).unwrap().starts_with(b"SQLite format 3"));
    assert_eq!(place.run(&["export", "-o", "-"]).stdout, all);
    assert_eq!(place.run(&["export", "-o", "a.txt", "--format", "jsonl"]).code, 0);
    assert_eq!(std::fs::read_to_string(place.path("a.txt")).unwrap(), all);
    // Nothing is overwritten unasked, and no half file stays.
    for name in ["a.csv", "a.db"] {
        let again = place.run(&["export", "-o", name]);
        assert!(again.code == 2 && again.stderr.contains("already exists"), "{}", again.stderr);
        assert_eq!(place.run(&["export", "-o", name, "--force"]).code, 0);
    }
    for (args, words) in [
        (&["-o", "a.xls"][..], "cannot tell the format of a.xls"),
        (&["-o", "a.toml"], "TOML need a router table"),
        (&["--force"], "--force needs a file"),
    ] {
        let ran = place.run(&[&["export"], args].concat());
        assert!(ran.code == 2 && ran.stderr.contains(words), "{}", ran.stderr);
    }
    let ran = place.run(&["export", "-o", "nowhere/a.csv"]);
    assert!(ran.code == 1 && ran.stderr.contains("cannot write nowhere/a.csv"), "{}", ran.stderr);
    let parts = std::fs::read_dir(place.path(".")).unwrap().flatten();
    assert_eq!(
        parts.filter(|file| file.file_name().to_string_lossy().starts_with(".part-")).count(),
        0
    );
    // Files that begin as Parquet does and are none, or that have other columns.
    let broken = place.run(&["import", &place.write("broken.parquet", b"PAR1\x15\x00")]);
    assert!(
        broken.code == 1 && broken.stderr.contains("is not valid Parquet"),
        "{}",
        broken.stderr
    );
    let piped = place.run_with(&["import", "-"], std::fs::read(place.path("a.parquet")).unwrap());
    assert!(piped.code == 2 && piped.stderr.contains("stdin has Parquet"), "{}", piped.stderr);
}

/// A log of `count` attempts.
fn written(count: i64) -> TestDir {
    let place = TestDir::new();
    place.import((0..count).map(|n| attempt(&format!("https://e.org/{n}"), now() - n, None)));
    place
}

#[test]
fn a_torn_tail_is_reported_and_repaired_by_a_writer_only() {
    let place = written(3);
    let origin = Origin::start([("127.0.0.1", Site::slow(Duration::from_millis(50)))]).unwrap();
    let urls: Vec<String> = (0..200).map(|n| origin.url("127.0.0.1", &format!("/{n}"))).collect();
    let mut args = vec![
        "fetch",
        "--json",
        "--no-browser",
        "--allow-private-network",
        "--concurrency",
        "1",
        "--pace",
        "off",
    ];
    args.extend(urls.iter().map(String::as_str));
    let mut crawler = place.spawn(&args);
    let mut first = String::new();
    BufReader::new(crawler.stdout.take().unwrap()).read_line(&mut first).unwrap();
    crawler.kill().unwrap();
    crawler.wait().unwrap();
    // Killed in the middle of a write: the first bytes of a frame follow the last whole one.
    let last = segments(&place.data()).pop().unwrap();
    let mut content = std::fs::read(&last).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    content.truncate(end.next_multiple_of(16).min(content.len()));
    content.resize(end.next_multiple_of(16), 0);
    content.extend([0xf1, 0x46, 0x57, 0x72, 0xee, 0xee, 0xee, 0xee, 0xff, 0, 0, 0]);
    std::fs::write(&last, &content).unwrap();
    let before = segments(&place.data());
    for args in [
        &["stats", "--json"][..],
        &["export"],
        &["select", "https://e.org/"],
        &["ban-rate", "e.org"],
    ] {
        let ran = place.run(args);
        assert!(
            ran.code == 0 && ran.stderr.contains("torn tail"),
            "{args:?}: {} {}",
            ran.code,
            ran.stderr
        );
        assert!(ran.stderr.contains("records kept"), "{}", ran.stderr);
    }
    assert_eq!(segments(&place.data()), before, "reading repairs nothing");
    let kept = place.run(&["export"]).json().len();
    assert!(kept >= 4, "{kept}");
    let ran = place
        .run_with(&["import", "-"], format!("{}\n", attempt("https://e.org/new", now(), None)));
    assert!(ran.code == 0 && ran.stderr.contains("torn tail"), "{}", ran.stderr);
    let ran = place.run(&["export"]);
    assert!(ran.json().len() == kept + 1 && !ran.stderr.contains("torn tail"), "{}", ran.stderr);
}

#[test]
fn damage_in_the_middle_makes_every_command_exit_with_3() {
    let place = written(200);
    let segment = segments(&place.data()).remove(0);
    let mut content = std::fs::read(&segment).unwrap();
    content[4096 + 3000] ^= 1;
    std::fs::write(&segment, content).unwrap();
    let line = format!("{}\n", attempt("https://e.org/new", now(), None));
    for args in [
        &["stats"][..],
        &["export"],
        &["select", "https://e.org/"],
        &["ban-rate", "e.org"],
        &["import", "-"],
    ] {
        let ran = place.run_with(args, &line);
        assert!(
            ran.code == 3 && ran.stderr.contains("damaged"),
            "{args:?}: {} {}",
            ran.code,
            ran.stderr
        );
    }
}

#[test]
fn a_missing_tail_of_a_sealed_segment_is_damage() {
    let place = written(50);
    let segment = segments(&place.data()).pop().unwrap();
    let content = std::fs::read(&segment).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap();
    std::fs::write(&segment, &content[..end - 200]).unwrap();
    assert_eq!(place.run(&["stats"]).code, 3);
}

#[test]
fn one_writer_at_a_time_alongside_readers() {
    let place = written(3);
    let (journal, _) =
        fetchwise::journal::Journal::open(&place.data(), Default::default()).unwrap();
    let ran = place
        .run_with(&["import", "-"], format!("{}\n", attempt("https://e.org/new", now(), None)));
    assert!(ran.code == 3 && ran.stderr.contains("locked by"), "{}", ran.stderr);
    assert_eq!(place.run(&["export"]).json().len(), 3);
    drop(journal);
    assert_eq!(place.run_with(&["import", "-"], "").code, 0);
}

#[test]
fn a_data_directory_that_cannot_be_written_is_a_clear_error() {
    let place = TestDir::new();
    place.write("file", "");
    let line = format!("{}\n", attempt("https://e.org/", now(), None));
    let ran = place.run_with(&["import", "-", "--data-dir", "file/data"], line);
    assert!(ran.code == 1 && ran.stderr.contains("file/data"), "{} {}", ran.code, ran.stderr);
}

#[test]
fn a_reader_of_the_first_line_gets_no_error() {
    let place = written(2000);
    let script = format!("'{}' export | head -n 1", env!("CARGO_BIN_EXE_fetchwise"));
    let ran = Ran::from(place.other_program("sh").args(["-c", &script]).output().unwrap());
    assert_eq!((ran.stdout.lines().count(), ran.stderr.as_str()), (1, ""));
}

/// `FETCHWISE_BLESS=1` writes what is missing.
#[test]
fn the_log_of_every_release_exports_unchanged() {
    let all = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/journal");
    let mut releases = 0;
    for release in std::fs::read_dir(all).unwrap() {
        let release = release.unwrap().path();
        let ran = TestDir::new().run(&["export", "--data-dir", release.to_str().unwrap()]);
        let path = release.join("attempts.jsonl");
        if std::env::var_os("FETCHWISE_BLESS").is_some() && !path.exists() {
            std::fs::write(&path, &ran.stdout).unwrap();
        }
        assert!(ran.stdout == std::fs::read_to_string(&path).unwrap(), "{}", ran.stdout);
        releases += 1;
    }
    assert!(releases > 0);
}
