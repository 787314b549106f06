//! `classify`: single responses, and batches.

use serde_json::json;

use crate::support::TestDir;

const CHALLENGE: &str = "<html><head><title>Just a moment...</title></head><body><div id=\"challenge-form\"></div>\
    <script>window._cf_chl_opt={}</script></body></html>";

fn article() -> String {
    format!(
        "<html><head><title>News</title></head><body>{}</body></html>",
        "<p>A sentence that somebody may read.</p>".repeat(20)
    )
}

#[test]
fn a_challenge_is_blocked_and_an_article_is_content() {
    let place = TestDir::new();
    let file = place.write("c.html", CHALLENGE);
    let ran = place.run(&[
        "classify",
        &file,
        "--status",
        "403",
        "--header",
        "Server: cloudflare",
        "--json",
        "--explain",
    ]);
    let line = ran.one();
    assert_eq!(
        (ran.code, line["is_blocked"].as_bool(), line["vendor"].as_str()),
        (0, Some(true), Some("cloudflare"))
    );
    assert_eq!(line["block_type"].as_str(), Some("blocked_captcha"));
    assert!(line["rule"].is_string() && !line["matches"].as_array().unwrap().is_empty());
    assert!(
        line["heuristics"]
            .as_array()
            .unwrap()
            .contains(&json!({"type": "server_cloudflare", "value": "true"}))
    );
    let line =
        place.run_with(&["classify", "-", "--json", "--url", "https://e.org/"], article()).one();
    assert_eq!(
        (line["is_blocked"].as_bool(), line["is_empty"].as_bool()),
        (Some(false), Some(false))
    );
    assert_eq!(
        (line["url"].as_str(), line["error_type"].is_null()),
        (Some("https://e.org/"), true)
    );
    for field in ["has_spa", "framework", "has_paywall", "high_script_ratio", "text_chars"] {
        assert!(line.get(field).is_some(), "{field}");
    }
}

#[test]
fn a_batch_keeps_the_order_of_its_lines_and_has_relative_paths() {
    let place = TestDir::new();
    std::fs::create_dir_all(place.path("sub/pages")).unwrap();
    place.write("sub/pages/c.html", CHALLENGE);
    place.write("sub/pages/a.html", article());
    let mut lines = String::new();
    for n in 0..3000 {
        let body = ["pages/c.html", "pages/a.html"][n % 2];
        let line = json!({"url": format!("https://e.org/{n}"), "status": 200, "headers": {"Content-Type": "text/html"},
                          "body_path": body, "label": "ignored"});
        lines += &format!("{line}\n");
    }
    let batch = place.write("sub/batch.jsonl", lines);
    let ran = place.run(&["classify", "--batch", &batch, "--json"]);
    let results = ran.json();
    assert_eq!((ran.code, results.len()), (0, 3000));
    for (n, line) in results.iter().enumerate() {
        assert_eq!(line["url"].as_str(), Some(format!("https://e.org/{n}").as_str()));
        assert_eq!(line["is_blocked"].as_bool(), Some(n % 2 == 0), "{n}");
    }
}

#[test]
fn an_invalid_line_of_a_batch_is_reported_and_the_rest_continues() {
    let place = TestDir::new();
    place.write("a.html", article());
    let lines = [
        json!({"url": "https://e.org/1", "body_path": "absent.html"}).to_string(),
        "no json".to_owned(),
        json!({"url": "https://e.org/3", "headers": 7, "body_path": "a.html"}).to_string(),
        json!({"url": "https://e.org/4", "headers": [["Content-Type", "text/html"]], "body_path": "a.html"})
            .to_string(),
    ];
    let batch = place.write("batch.jsonl", lines.join("\n"));
    let ran = place.run(&["classify", "--batch", &batch, "--json"]);
    let results = ran.json();
    assert_eq!((ran.code, results.len()), (1, 4));
    let errors: Vec<_> = results.iter().map(|line| line["error_type"].as_str()).collect();
    assert_eq!(errors, [Some("unreadable_body"), Some("invalid_line"), Some("invalid_line"), None]);
    assert_eq!(
        (results[0]["url"].as_str(), results[1]["line"].as_u64()),
        (Some("https://e.org/1"), Some(2))
    );
}

#[test]
fn rules_can_be_shown_and_added_and_invalid_ones_are_rejected() {
    let place = TestDir::new();
    assert!(place.run(&["classify", "--show-rules"]).stdout.contains("[[rule]]"));
    let rules = place.write("rules.toml", "[[rule]]\nid = 7\n");
    let page = place.write("a.html", article());
    let ran = place.run(&["classify", &page, "--rules", &rules]);
    assert!(ran.code == 2 && ran.stderr.contains("rules.toml"), "{} {}", ran.code, ran.stderr);
}

#[test]
fn keywords_classify_like_the_original_system() {
    let place = TestDir::new();
    let page = place.write("a.html", format!("{}<p>Protected by Cloudflare.</p>", article()));
    assert_eq!(
        place.run(&["classify", &page, "--json"]).one()["is_blocked"].as_bool(),
        Some(false)
    );
    assert_eq!(
        place.run(&["classify", &page, "--json", "--keywords"]).one()["is_blocked"].as_bool(),
        Some(true)
    );
}

#[test]
fn a_labelled_batch_evaluates_the_detector() {
    let place = TestDir::new();
    place.write("c.html", CHALLENGE);
    place.write("a.html", article());
    let line = |label: &str, body: &str| json!({"label": label, "body_path": body}).to_string();
    let labels =
        [line("block", "c.html"), line("content", "a.html"), line("block", "a.html")].join("\n");
    let file = place.write("labels.jsonl", labels);
    let ran = place.run(&["classify", "--batch", &file, "--evaluate", "--json"]);
    let report = ran.one();
    let block = &report["given"]["block"];
    assert_eq!((ran.code, report["pages"].as_u64(), block["hits"].as_u64()), (0, Some(3), Some(1)));
    assert_eq!((block["misses"].as_u64(), block["false_alarms"].as_u64()), (Some(1), Some(0)));
    let text = place.run(&["classify", "--batch", &file, "--evaluate"]).stdout;
    assert!(text.contains("block at status given: recall 50.00 % (1 of 2; 9.5 to 90.5)"), "{text}");
}

#[test]
fn a_batch_is_judged_at_status_200_beside_the_status_it_came_with() {
    let place = TestDir::new();
    place.write("a.html", article());
    let line = json!({"label": "block", "status": 403, "body_path": "a.html"}).to_string();
    let file = place.write("labels.jsonl", line);
    let report = place.run(&["classify", "--batch", &file, "--evaluate", "--json"]).one();
    // Without the status, the rules that it hid match.
    assert_eq!(report["given"]["block"]["hits"].as_u64(), Some(1));
    assert_eq!(report["at_200"]["block"]["misses"].as_u64(), Some(1));
    assert_eq!(report["at_200"]["mistakes"][0]["taken_for"].as_str(), Some("content"));
}

const WALL: &str =
    "<title>Just a moment...</title><script>window._cf_chl_opt={cType:'managed'}</script>";

/// Writes pages into folders that are named for their label, and returns their folder.
fn labelled(place: &TestDir, pages: &[(&str, &str)]) -> String {
    for (path, body) in pages {
        let path = place.path("pages").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, body).unwrap();
    }
    place.path("pages").to_string_lossy().into_owned()
}

#[test]
fn labelled_pages_are_checked_against_their_folders() {
    let place = TestDir::new();
    let content = article();
    let pages = labelled(&place, &[("block/a.html", WALL), ("content/deep/b.html", &content)]);
    let right = place.run(&["detect", "check", &pages]);
    assert_eq!((right.code, &*right.stdout), (0, "2 pages: 0 wrong\n"), "{}", right.stderr);
    labelled(&place, &[("content/c.html", WALL)]);
    let wrong = place.run(&["detect", "check", &pages, "--json"]);
    let lines = wrong.json();
    assert_eq!((wrong.code, lines.len()), (1, 2), "{}", wrong.stdout);
    assert_eq!((&lines[0]["label"], &lines[0]["found"]), (&"content".into(), &"block".into()));
    assert_eq!(lines[1]["summary"]["wrong"], 1);
    assert!(place.run(&["detect", "check", &pages]).stdout.contains("wrong"));
    labelled(&place, &[("misspelt/d.html", WALL)]);
    let unknown = place.run(&["detect", "check", &pages]);
    assert!(unknown.code == 2 && unknown.stderr.contains("labels are block"), "{}", unknown.stderr);
    assert_eq!(place.run(&["detect", "check", &place.path("absent").to_string_lossy()]).code, 1);
}

#[test]
fn a_check_fails_on_what_changed_since_the_baseline_and_not_on_known_mistakes() {
    let place = TestDir::new();
    let pages = labelled(&place, &[("block/a.html", WALL), ("content/known.html", WALL)]);
    let baseline = place.path("verdicts.json").to_string_lossy().into_owned();
    let check = |more: &[&str]| {
        place.run(&[&["detect", "check", &pages, "--baseline", &baseline][..], more].concat())
    };
    assert!(check(&[]).code == 1, "there is none yet");
    assert_eq!(check(&["--save"]).code, 0);
    let known = check(&[]);
    assert!(
        known.code == 0 && known.stdout.contains("1 wrong (0 of them new), 0 changed"),
        "{}",
        known.stdout
    );

    let rule = "[[rule]]\nid = 'mine'\ngrade = 'content'\nfind = ['_cf_chl_opt']\nnote = 'x'\n";
    let rules = place.write("rules.toml", rule);
    let changed = check(&["--rules", &rules, "--json"]);
    let lines = changed.json();
    assert_eq!(
        (changed.code, &lines[0]["before"]["found"]),
        (1, &"block".into()),
        "{}",
        changed.stdout
    );
    assert_eq!(
        (&lines[0]["found"], &lines[2]["summary"]["changed"]),
        (&"content".into(), &2.into())
    );
    assert_eq!(check(&["--rules", &rules, "--save"]).code, 0);
    assert_eq!(check(&["--rules", &rules]).code, 0);

    labelled(&place, &[("content/new.html", "<title>Access denied</title><h1>Access denied</h1>")]);
    let new = check(&["--rules", &rules]);
    assert!(new.code == 1 && new.stdout.contains("(1 of them new)"), "{}", new.stdout);
    std::fs::remove_file(place.path("pages").join("block/a.html")).unwrap();
    assert!(check(&["--rules", &rules]).stdout.contains("1 of the baseline not checked"));
}

#[test]
fn a_list_of_labelled_pages_is_checked_with_their_statuses_or_by_their_bodies() {
    let place = TestDir::new();
    std::fs::create_dir(place.path("set")).unwrap();
    std::fs::write(place.path("set").join("a.html"), article()).unwrap();
    let line = |label: &str| {
        format!(
            "{{\"label\": {label:?}, \"status\": 403, \"body_path\": \"a.html\", \"note\": 1}}\n"
        )
    };
    std::fs::write(place.path("set").join("corpus.jsonl"), line("block")).unwrap();
    let set = place.path("set").to_string_lossy().into_owned();
    assert_eq!(place.run(&["detect", "check", &set]).code, 0);
    assert_eq!(place.run(&["detect", "check", &set, "--by-body"]).code, 1);
    std::fs::write(place.path("set").join("corpus.jsonl"), line("blok")).unwrap();
    let unknown = place.run(&["detect", "check", &set]);
    assert!(unknown.code == 1 && unknown.stderr.contains("unknown label"), "{}", unknown.stderr);
}
