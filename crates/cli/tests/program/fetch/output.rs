//! Where results and pages go, and what they hold.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fetchwise_testsite::origin::{Origin, Site};

use crate::support::{Ran, TestDir, send_signal};

use super::*;

#[test]
fn arguments_have_a_position_and_lines_a_line() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(HOST, "/b")];
    let input = place.write("urls.txt", format!("\n{}", origin.url(HOST, "/c")));
    let ran = place.run(&fetch(&[&urls[0], &urls[1], "--input", &input, "--ordered"]));
    let places: Vec<_> =
        ran.json().iter().map(|r| (r["position"].as_u64(), r["line"].as_u64())).collect();
    assert_eq!(places, [(Some(1), None), (Some(2), None), (None, Some(2))]);
}

#[test]
fn a_results_file_says_what_to_fetch_again() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::NOT_FOUND)]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(OTHER, "/b"), "http://10.0.0.1/".to_owned()];
    let input = place.write("urls.txt", urls.join("\n"));
    let first = place.run(&fetch(&["--input", &input]));
    let results = place.write("results.jsonl", &first.stdout);
    let left = |more: &[&str]| {
        let ran = place.run(&fetch(&[&["--retry", &results][..], more].concat()));
        ran.json()
            .iter()
            .map(|line| (line["line"].as_u64().unwrap(), line["url"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&[]), [(3, urls[2].clone())]);
    assert_eq!(left(&["--only", "missing"]), [(2, urls[1].clone())]);
    let wrong = place.run(&fetch(&["--retry", &input]));
    assert!(
        wrong.code == 2 && wrong.stderr.contains("line 1") && wrong.stderr.contains("--json"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn one_url_without_an_output_goes_to_stdout() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Html("<p>one page</p>".repeat(99)))]).unwrap();
    let (a, b) = (origin.url(HOST, "/a"), origin.url(HOST, "/b"));
    let run = |args: &[&str]| place.run(&[&["fetch"], &PLAIN[..], args].concat());
    let page = "<p>one page</p>".repeat(99);
    let one = run(&[&a]);
    assert_eq!((one.code, &one.stdout), (0, &page), "{}", one.stderr);
    assert!(one.stderr.contains("ok  ") && !one.stderr.contains("not kept"), "{}", one.stderr);
    let first = run(&["--out", "-", &a, &b]);
    assert_eq!((first.code, &first.stdout), (0, &page), "{}", first.stderr);
    assert!(!place.path("-").exists() && first.stderr.contains("2 delivered"), "{}", first.stderr);
    assert_eq!(run(&["--out", "-", "--json", &a]).code, 2);
    let input = place.write("urls.txt", format!("{a}\n{b}\n{a}\n"));
    let hits = origin.hits(HOST);
    let list = run(&["--input", &input]);
    assert_eq!(list.stderr.matches("not kept").count(), 1, "{}", list.stderr);
    assert_eq!(
        (list.stdout.matches("ok  ").count(), origin.hits(HOST) - hits),
        (2, 2),
        "{}",
        list.stdout
    );
    assert!(list.stderr.contains("1 duplicate"), "{}", list.stderr);
    assert!(!run(&["--input", &input, "--out", "pages"]).stderr.contains("not kept"));
}

#[test]
fn a_line_may_have_its_own_id_fetcher_and_mode() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let routes = place.write("routes.csv", format!("{HOST},direct_access\n"));
    let url = origin.url(HOST, "/a");
    let text = format!(
        "# a comment\n\n{}\n{}\nnot: json {{\n{{\"ulr\": 1}}\n",
        serde_json::json!({"url": url, "id": "seven", "prefer": "direct_access"}),
        serde_json::json!({"url": url, "learning": false}),
    );
    let ran = place.run_with(&fetch(&["-", "--router", &routes, "--ordered"]), text);
    let lines = ran.json();
    assert_eq!((ran.code, lines.len()), (1, 4), "{}", ran.stdout);
    let numbers: Vec<_> = lines.iter().map(|line| line["line"].as_u64()).collect();
    assert_eq!(numbers, [Some(3), Some(4), Some(5), Some(6)]);
    let fields =
        |line: &serde_json::Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(
        lines.iter().all(|line| fields(line) == fields(&lines[0])),
        "what is absent is null: {}",
        ran.stdout
    );
    assert!(
        lines[1]["id"].is_null() && lines[2]["confidence"].is_null() && lines[3]["url"].is_null()
    );
    assert_eq!(
        (lines[0]["id"].as_str(), lines[0]["source"].as_str()),
        (Some("seven"), Some("hinted"))
    );
    assert_eq!(lines[1]["source"].as_str(), Some("hard_coded"));
    assert_eq!(
        (lines[2]["error_type"].as_str(), lines[3]["error_type"].as_str()),
        (Some("invalid_url"), Some("invalid_line"))
    );
}

/// Returns the files below a folder that contain one of these texts.
fn files_with(dir: &Path, texts: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files_with(&path, texts));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let has =
                |text: &&str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
            found.extend(texts.iter().any(has).then_some(path));
        }
    }
    found
}

#[test]
fn no_file_of_the_data_directory_has_the_values_of_queries_if_they_are_hashed() {
    let place = TestDir::new();
    let origin = Origin::start([
        (HOST, Site::Validators { max_age: None, version: 1 }),
        (OTHER, Site::rate_limited(3600)),
        (THIRD, Site::Static),
    ])
    .unwrap();
    let config =
        place.write("hash.toml", "[log]\nquery = \"hash\"\n[cache]\nuse = \"revalidate\"\n");
    let secret = |host: &str, path: &str| origin.url(host, path).to_string();
    let delivered = secret(HOST, "/articles/1?token=S3CR3T-one&page=S3CR3T-two");
    let paused = secret(OTHER, "/?S3CR3T-three");
    let input = place
        .write("urls.txt", [&*delivered, &paused, &secret(THIRD, "/b?x=S3CR3T-four")].join("\n"));
    let with = |more: &[&str]| {
        place.run(&[&fetch(&["--config", &config, "--input", &input]), more].concat())
    };
    let first = with(&["--warc", "a.warc", "--wait", "0"]);
    assert!(
        first.stdout.contains(&delivered),
        "results name the real URL: {}{}",
        first.stdout,
        first.stderr
    );
    let requested = origin.hits(HOST);
    let archived = std::fs::read_to_string(place.path("a.warc")).unwrap();
    assert!(archived.contains("S3CR3T-one"), "the site gets the real URL, and an archive has it");
    assert_eq!(files_with(&place.data(), &["S3CR3T"]), <[PathBuf; 0]>::default());
    assert!(
        !files_with(&place.data(), &["token=~"]).is_empty(),
        "names of values and their hashes stay"
    );

    // The identity of a link stays: its pause, its attempts, its validators.
    let explained = place.run(&["--config", &config, "explain", "--json", &paused]).one();
    assert!(explained["pause"]["until"].is_string(), "{explained}");
    let attempts =
        place.run(&["--config", &config, "attempts", "--json", "--url", &delivered]).json();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    let again = with(&["--warc", "a.warc", "--wait", "0"]);
    let unchanged = again.json().into_iter().find(|line| line["url"] == *delivered).unwrap();
    assert_eq!(
        (unchanged["not_modified"].as_bool(), origin.hits(HOST)),
        (Some(true), requested + 1),
        "{unchanged}"
    );
    assert!(
        std::fs::read_to_string(place.path("a.warc")).unwrap().matches("S3CR3T-one").count() > 1
    );
    // A later command without the setting hashes as well, and so do snapshots and exports that are
    // imported again.
    place.run(&fetch(&[&secret(THIRD, "/c?x=S3CR3T-five")]));
    assert_eq!(place.run(&["snapshot"]).code, 0);
    let more = serde_json::json!({
        "url": secret(HOST, "/d?token=S3CR3T-six"), "fetcher": "direct_access", "success": true, "attempted_at": 1_790_000_000_000_i64
    });
    place.write("more.jsonl", more.to_string());
    assert_eq!(place.run(&["import", "more.jsonl"]).code, 0);
    // An attempt that is sent again is the same one.
    let known = place.write("known.jsonl", place.run(&["export"]).stdout);
    assert_eq!(place.run(&["import", &known]).code, 0);
    place.run(&["forget", "--link", &paused]);
    assert_eq!(files_with(&place.data(), &["S3CR3T"]), <[PathBuf; 0]>::default());
}

#[test]
fn pages_go_into_a_warc_archive() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(HOST, "/b")];
    let ran = place.run(&fetch(&["--warc", "out/crawl.warc", &urls[0], &urls[1]]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let text =
        String::from_utf8_lossy(&std::fs::read(place.path("out/crawl.warc")).unwrap()).into_owned();
    assert!(urls.iter().all(|url| text.contains(url.as_str())));
    assert_eq!(
        text.matches("WARC-Type: response").count() + text.matches("warc-type: response").count(),
        2
    );
}

/// Returns the URLs and the texts of a data set's file.
fn rows_of(file: &Path) -> Vec<(String, String)> {
    let file = std::fs::File::open(file).unwrap();
    let reader = parquet::file::reader::SerializedFileReader::new(file).unwrap();
    let text = |row: &parquet::record::Row, name: &str| {
        let found = row.get_column_iter().find(|(column, _)| *column == name);
        found.map(|(_, field)| field.to_string().trim_matches('"').to_owned()).unwrap()
    };
    reader
        .into_iter()
        .map(|row| row.unwrap())
        .map(|row| (text(&row, "url"), text(&row, "html")))
        .collect()
}

#[test]
fn pages_go_into_a_data_set_that_holds_every_delivered_page_also_after_signals_and_kills() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::slow(Duration::from_millis(300)))]).unwrap();
    let urls: String = (0..24).map(|n| origin.url(HOST, &format!("/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let more = ["--input", &input, "--concurrency", "2", "--parquet", "out/pages.parquet"];
    let mut delivered = Vec::new();
    for signal in ["-INT", "-KILL"] {
        let mut child = place.spawn(&fetch(&more));
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..4 {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            delivered.push(line);
        }
        send_signal(&child, signal);
        delivered.extend(reader.lines().map_while(Result::ok).filter(|line| line.ends_with('}')));
        let _ = child.wait();
        assert!(
            place.path("out/pages.parquet").exists(),
            "the file of a run that was interrupted is readable"
        );
        assert_eq!(place.path("out/pages.parquet.rows").exists(), signal == "-KILL");
    }
    assert!(origin.set_site(HOST, Site::Static));
    let last = place.run(&fetch(&more));
    assert_eq!(last.code, 0, "{}", last.stderr);
    assert!(
        last.stderr.contains("of an interrupted run")
            && last.stderr.contains("done by an earlier run")
    );
    delivered.extend(last.stdout.lines().map(str::to_owned));
    let (mut stored, mut all) = (HashSet::new(), HashSet::new());
    for name in ["pages.parquet", "pages-00001.parquet"] {
        let file = Path::new("out").join(name);
        for (url, html) in rows_of(&place.path(file.to_str().unwrap())) {
            assert!(html.contains('<'), "{html}");
            all.insert(url.clone());
            stored.insert((url, file.clone()));
        }
    }
    for line in &delivered {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let place = (
            line["url"].as_str().unwrap().to_owned(),
            PathBuf::from(line["file"].as_str().unwrap()),
        );
        assert!(stored.contains(&place), "{line} is in the file that it names");
    }
    assert_eq!((all.len(), std::fs::read_dir(place.path("out")).unwrap().count()), (24, 2));
}

#[test]
fn a_data_set_excludes_other_stores_and_gets_a_named_page() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Pdf)]).unwrap();
    for (option, path) in [("--out", "pages"), ("--warc", "a.warc")] {
        assert_eq!(
            place.run(&fetch(&["--parquet", "a.parquet", option, path, "http://e.org/"])).code,
            2
        );
    }
    let args = ["fetch", "--parquet", "a.parquet", &origin.url(HOST, "/paper")];
    let ran = place.run(&[&args[..], &PLAIN[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains("%PDF"), "the page is not printed");
    let rows = rows_of(&place.path("a.parquet"));
    assert_eq!(rows, [(origin.url(HOST, "/paper").to_string(), "null".to_owned())]);
}

#[test]
fn a_price_a_reserved_page_and_an_unchanged_one_are_named_in_results_and_archives() {
    let place = TestDir::new();
    let sites = [
        (HOST, Site::Toll { price: "USD 0.01".to_owned() }),
        (OTHER, Site::reserved("train-ai")),
        ("127.0.0.3", Site::Validators { max_age: None, version: 0 }),
    ];
    let origin = Origin::start(sites).unwrap();
    let toll = place.run(&fetch(&[&origin.url(HOST, "/a")])).one();
    assert_eq!(
        (&toll["error_type"], &toll["price"]),
        (&"payment_required".into(), &"USD 0.01".into()),
        "{toll}"
    );
    assert!(toll["paused_until"].is_string() && origin.hits(HOST) == 1, "{toll}");

    let training = place.write("training.toml", "[consent]\npurposes = ['train-ai']\n");
    let reserved = origin.url(OTHER, "/a");
    let run = |more: &[&str]| place.run(&fetch(more));
    let skipped = run(&["--config", &training, &reserved]).one();
    assert_eq!(
        (&skipped["error_type"], &skipped["requests"]),
        (&"reserved".into(), &0.into()),
        "{skipped}"
    );
    assert_eq!(origin.hits_at(OTHER, "/a"), 0);
    let marking =
        place.write("marking.toml", "[consent]\npurposes = ['train-ai']\non_reserved = 'mark'\n");
    let marked = run(&["--config", &marking, "--warc", "a.warc", &reserved]).one();
    assert_eq!(
        (&marked["success"], &marked["allowed_for"]),
        (&true.into(), &serde_json::json!([])),
        "{marked}"
    );
    let term = serde_json::json!(
        {"terms": "content-usage", "source": "robots.txt", "purpose": "train-ai", "allowed": false}
    );
    assert_eq!(marked["consent"][0], term);
    let archived = std::fs::read_to_string(place.path("a.warc")).unwrap();
    assert!(
        archived.contains("consent: train-ai=n content-usage robots.txt")
            && archived.contains("allowed-for: none")
    );
    let attempts = place.run(&["export"]).json();
    assert_eq!(attempts.len(), 2, "a page that was not requested is no attempt");
    assert!(
        attempts[1]["response_headers"][":consent"].as_str().unwrap().contains("train-ai=n"),
        "{}",
        attempts[1]
    );

    let caching = place.write("caching.toml", "[cache]\nuse = 'revalidate'\n");
    let input = place.write(
        "urls.txt",
        (0..20).map(|n| origin.url("127.0.0.3", &format!("/{n}\n"))).collect::<String>(),
    );
    let crawl =
        || run(&["--config", &caching, "--input", &input, "--out", "pages", "--ordered"]).json();
    let (first, second) = (crawl(), crawl());
    assert!(
        first.iter().all(|line| line["success"] == true && line.get("not_modified").is_none()),
        "{first:?}"
    );
    for (before, after) in first.iter().zip(&second) {
        assert_eq!(
            (&after["success"], &after["not_modified"], &after["status"]),
            (&true.into(), &true.into(), &304.into())
        );
        assert_eq!((&after["file"], &after["bytes"]), (&before["file"], &0.into()));
    }
    let once = place.run(&[
        "fetch",
        "--config",
        &caching,
        "--no-browser",
        "--allow-network",
        "127.0.0.0/8",
        &origin.url("127.0.0.3", "/0"),
    ]);
    assert!(once.stdout.contains("</html>"), "a page that is printed comes in full");
}

#[cfg(unix)]
#[test]
fn the_umask_says_who_reads_what_is_written_and_the_data_directory_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let url = origin.url(HOST, "/a");
    for (umask, want) in [("077", 0o600), ("022", 0o644), ("002", 0o664)] {
        let place = TestDir::new();
        let run = |args: &[&str]| {
            let script = format!("umask {umask}; exec \"$@\"");
            let mut shell = place.other_program("sh");
            shell
                .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_fetchwise")])
                .args(args)
                .stdin(Stdio::null());
            let ran = Ran::from(shell.output().unwrap());
            assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
            ran
        };
        let file =
            run(&fetch(&["--out", "pages", &url])).one()["file"].as_str().unwrap().to_owned();
        run(&fetch(&["--warc", "a.warc", "--cdx", "a.cdxj", &url]));
        run(&["export", "-o", "a.jsonl"]);
        run(&["export", "--sqlite", "a.sqlite"]);
        run(&["priors", "export", "a.json"]);
        let mode =
            |path: &str| std::fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
        for path in [&*file, "a.warc", "a.cdxj", "a.jsonl", "a.sqlite", "a.json"] {
            assert_eq!(mode(path), want, "umask {umask}: {path}");
        }
        assert_eq!(mode("data"), 0o700, "umask {umask}: its log has the query of every URL");
    }
}

#[test]
fn the_user_and_password_of_a_url_are_neither_shown_nor_kept() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::FORBIDDEN)]).unwrap();
    let with_user = |host: &str| origin.url(host, "/a").replace("http://", "http://me:secret@");
    let bad =
        ["http://me:secret@127.0.0.1:x/", "ftp://me:secret@127.0.0.1/", "me:secret@127.0.0.1/a"];
    let mut urls = vec![with_user(HOST), with_user(OTHER)];
    urls.extend(bad.map(str::to_owned));
    let input = place.write("urls.txt", urls.join("\n"));
    let ran = place.run(&fetch(&["--input", &input, "--wait", "0"]));
    assert!(ran.stderr.contains("the user and password in a URL are not sent"), "{}", ran.stderr);
    assert_eq!(
        ran.json().iter().filter(|line| line["success"] == true).count(),
        1,
        "{}",
        ran.stdout
    );
    let text = place
        .run(&[&["fetch", "--verbose", "--input", &input, "--wait", "0"], &PLAIN[..]].concat());
    let mut shown = vec![ran, text, place.run(&["links"]), place.run(&["export"])];
    for url in &urls {
        shown.push(place.run(&["select", url]));
        shown.push(place.run(&["explain", "--json", url]));
        shown.push(place.run(&[
            "try",
            "--json",
            "--allow-network",
            "127.0.0.0/8",
            "--no-browser",
            url,
        ]));
    }
    for ran in &shown {
        assert!(
            !ran.stdout.contains("secret") && !ran.stderr.contains("secret"),
            "{}{}",
            ran.stdout,
            ran.stderr
        );
    }
}
