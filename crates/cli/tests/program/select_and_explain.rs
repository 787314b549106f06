//! `select` and `explain`: the published examples, modes, hints, bad URLs.

use serde_json::{Value, json};

use crate::support::{DAY, HOUR, TestDir, now};

fn attempts(url: &str, fetcher: &str, success: bool, count: usize, ms: i64) -> Vec<Value> {
    let line = |n: usize| {
        let error = if success { Value::Null } else { json!("wrong_tool") };
        json!({"url": format!("{url}{n}"), "fetcher": fetcher, "success": success, "error_type": error,
               "attempted_at": ms + n as i64})
    };
    (0..count).map(line).collect()
}

#[test]
fn without_evidence_select_probes_and_creates_no_data_directory() {
    let place = TestDir::new();
    let ran = place.run(&["select", "https://example.org/", "--json"]);
    let line = ran.one();
    assert_eq!(
        (ran.code, line["decision"].as_str(), line["fetcher"].as_str()),
        (0, Some("probe"), Some("direct_access"))
    );
    assert_eq!((line["confidence"].as_f64(), line["mode"].as_str()), (Some(0.0), Some("learning")));
    assert!(!place.data().exists());
}

#[test]
fn ten_successes_are_learned_and_confident() {
    let place = TestDir::new();
    place.import(attempts("https://wikipedia.org/wiki/", "playwright", true, 10, now() - HOUR));
    let line =
        place.run_with_browser(&["select", "--json", "https://wikipedia.org/wiki/Rust"]).one();
    assert_eq!(
        (line["decision"].as_str(), line["fetcher"].as_str()),
        (Some("learned"), Some("playwright"))
    );
    assert!(
        line["confidence"].as_f64().unwrap() > 0.9 && line["sample_size"].as_f64().unwrap() > 9.9,
        "{line}"
    );
}

/// An import teaches what vendors do, like a crawl. `explain` used to say that nothing was known of
/// other hosts.
#[test]
fn imported_blocks_tell_what_gets_past_their_vendor() {
    let place = TestDir::new();
    let block = json!([{"type": "block_datadome", "value": "true"}]);
    let line = |host: &str, page: usize, fetcher: &str, at: i64| {
        let url = format!("https://{host}/{page}");
        let parsed = url.parse().unwrap();
        let features = fetchwise::heuristic::url::UrlFeatures::extract(&parsed).unwrap();
        let mut tags: Vec<Value> = features
            .heuristics()
            .into_iter()
            .map(|of| json!({"type": of.kind, "value": of.value}))
            .collect();
        let success = fetcher == "playwright_stealth";
        if !success {
            tags.extend(block.as_array().unwrap().iter().cloned());
        }
        let error = if success { Value::Null } else { json!("blocked_captcha") };
        json!({"url": url, "fetcher": fetcher, "success": success, "error_type": error, "heuristics": tags,
            "attempted_at": at})
    };
    let start = now() - DAY;
    let mut lines = Vec::new();
    for host in 0..40 {
        for (page, fetcher) in
            ["direct_access", "playwright", "playwright_stealth"].into_iter().enumerate()
        {
            lines.push(line(
                &format!("h{host}.example"),
                page,
                fetcher,
                start + lines.len() as i64 * 1000,
            ));
        }
    }
    lines.push(line("new.example", 0, "direct_access", start + HOUR));
    place.import(lines);
    let ran = place.run_with_browser(&["explain", "https://new.example/b"]);
    let want = "playwright_stealth got past it in 100 % of";
    assert!(ran.stdout.contains(want) && ran.stdout.contains("on 40 hosts"), "{}", ran.stdout);
    let line = place.run_with_browser(&["select", "--json", "https://new.example/b"]).one();
    assert_eq!(line["fetcher"], "playwright_stealth");
}

#[test]
fn five_successes_give_a_confidence_of_one_half() {
    let place = TestDir::new();
    place.import(attempts("https://wikipedia.org/wiki/", "playwright", true, 5, now()));
    let line =
        place.run_with_browser(&["explain", "--json", "https://wikipedia.org/wiki/Rust"]).one();
    let candidate = line["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["fetcher"] == "playwright")
        .unwrap();
    assert!((candidate["confidence"].as_f64().unwrap() - 0.5).abs() < 1e-3, "{candidate}");
}

#[test]
fn recent_failures_outweigh_old_successes() {
    let place = TestDir::new();
    place.import(attempts("https://e.org/", "playwright", true, 5, now() - 60 * DAY));
    place.import(attempts("https://e.org/x", "playwright", false, 2, now()));
    let line = place.run(&["select", "--json", "https://e.org/y"]).one();
    assert_eq!(line["decision"].as_str(), Some("probe"), "{line}");
    assert!(line["confidence"].as_f64().unwrap() < 0.6);
}

#[test]
fn with_all_fetchers_those_in_the_log_are_candidates() {
    let place = TestDir::new();
    place.import(attempts("https://e.org/", "my_fetcher", true, 10, now()));
    let args = ["select", "--json", "--all-fetchers", "https://e.org/y"];
    let line = place.run(&args).one();
    assert_eq!(
        (line["decision"].as_str(), line["fetcher"].as_str()),
        (Some("learned"), Some("my_fetcher"))
    );
    let args = ["select", "--json", "--all-fetchers", "https://f.org/", "--prefer", "my_fetcher"];
    let line = place.run(&args).one();
    assert_eq!(
        (line["decision"].as_str(), line["fetcher"].as_str()),
        (Some("hinted"), Some("my_fetcher"))
    );
    let ran = place.run(&["select", "https://f.org/", "--prefer", "my_fetchr"]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean \"my_fetcher\""), "{}", ran.stderr);
}

#[test]
fn an_unavailable_fetcher_is_reported_and_not_selected() {
    let place = TestDir::new();
    place.import(attempts("https://e.org/", "my_fetcher", true, 10, now()));
    place.import(attempts("https://b.org/", "playwright", true, 10, now()));
    let urls = ["https://e.org/y", "https://e.org/z", "https://b.org/y"];
    let ran = place.run(&[&["select", "--json", "--no-browser"][..], &urls].concat());
    for (line, unavailable) in ran.json().iter().zip(["my_fetcher", "my_fetcher", "playwright"]) {
        assert_eq!(
            (line["fetcher"].as_str(), line["unavailable_fetcher"].as_str()),
            (Some("direct_access"), Some(unavailable)),
            "{line}"
        );
        assert!(line["unavailable_reason"].is_string());
    }
    assert_eq!(
        ran.stderr.matches("would be selected but is unavailable").count(),
        2,
        "each once: {}",
        ran.stderr
    );
    let line = place.run_with_browser(&["select", "--json", "https://b.org/y"]).one();
    assert_eq!(
        (line["fetcher"].as_str(), line["unavailable_fetcher"].is_null()),
        (Some("playwright"), true)
    );
    let explained = place.run(&["explain", "--json", "--no-browser", "https://b.org/y"]).one();
    let candidates = explained["candidates"].as_array().unwrap();
    let available: Vec<_> =
        candidates.iter().filter(|c| c["available"] == true).map(|c| &c["fetcher"]).collect();
    assert_eq!(
        (available, &explained["unavailable_fetcher"]),
        (vec![&json!("direct_access")], &json!("playwright"))
    );
    let text = place.run(&["explain", "--no-browser", "https://b.org/y"]).stdout;
    assert!(
        text.contains("playwright is not available") && !text.contains("archive_proxy"),
        "{text}"
    );
    // Apart from that remark, only fetchers that exist here appear.
    let full = place.run(&["explain", "--full", "--no-browser", "https://b.org/y"]).stdout;
    assert_eq!(
        (text.matches("playwright").count(), full.matches("playwright").count()),
        (1, 1),
        "{full}"
    );
    // A fetcher of the config is considered even if another program provides it.
    let config = place
        .write("c.toml", "[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'my_fetcher'\n");
    let line = place.run(&["select", "--json", "https://e.org/y", "--config", &config]).one();
    assert_eq!(line["fetcher"].as_str(), Some("my_fetcher"));
}

#[test]
fn a_requested_unavailable_fetcher_is_reported_and_others_are_tried() {
    let place = TestDir::new();
    let config = place
        .write("c.toml", "[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'my_fetcher'\n");
    for (more, want) in [
        (
            &["--prefer", "playwright"][..],
            "--prefer playwright is unavailable, trying others: the browser is turned off",
        ),
        (
            &["--prefer", "archive_proxy"],
            "--prefer archive_proxy is unavailable, trying others: a config must list it",
        ),
        (
            &["--prefer", "my_fetcher", "--config", &config],
            "the config does not say how it gets pages",
        ),
    ] {
        // Nothing listens there: an attempt by the plain fetcher, and its retry.
        let line = [
            &[
                "fetch",
                "http://127.0.0.1:9/",
                "--no-browser",
                "--json",
                "--allow-network",
                "127.0.0.0/8",
            ],
            more,
        ];
        let ran = place.run(&line.concat());
        assert!(
            ran.code == 4 && ran.stderr.contains(want),
            "{more:?}: {} {}",
            ran.code,
            ran.stderr
        );
        assert_eq!(ran.json()[0]["fetcher"], "direct_access", "{}", ran.stdout);
        std::fs::remove_dir_all(place.data()).unwrap();
    }
    let ran = place.run(&["fetch", "http://127.0.0.1:9/", "--no-browser", "--prefer", "lynx"]);
    assert!(ran.code == 2 && ran.stderr.contains("lynx"), "{}", ran.stderr);
    let empty = place.write("urls.txt", "");
    let ran = place.run(&["fetch", "--no-browser", "--input", &empty, "--config", &config]);
    assert!(
        ran.code == 0 && ran.stderr.contains("fetcher my_fetcher is unavailable"),
        "{}",
        ran.stderr
    );
}

#[test]
fn fetchers_beyond_the_limit_are_reported() {
    let place = TestDir::new();
    place.import(
        (0..70)
            .map(|n| attempts("https://e.org/", &format!("fetcher{n}"), true, 1, now()).remove(0)),
    );
    let ran = place.run(&["select", "--all-fetchers", "--json", "https://e.org/"]);
    // Six names are built in.
    assert!(
        ran.code == 0 && ran.stderr.contains("12 of the fetchers in the log cannot be candidates"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_index_stays_within_bounds() {
    let place = TestDir::new();
    place.import(attempts("https://e.org/a/", "direct_access", false, 40, now() - HOUR));
    let args = ["explain", "--json", "--all-fetchers", "https://e.org/a/new"];
    let line = place.run(&args).one();
    let direct = line["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["fetcher"] == "direct_access")
        .unwrap();
    assert_eq!(direct["index"].as_f64(), Some(-1000.0), "{direct}");
    let text = place.run(&["explain", "--full", "--all-fetchers", "https://e.org/a/new"]).stdout;
    assert!(text.contains("not worth it"), "{text}");
}

#[test]
fn unknown_names_are_errors_with_a_suggestion() {
    let place = TestDir::new();
    let routes = place.write("routes.csv", "domain,fetcher\na.org,playwright\nb.org,playwrite\n");
    let columns = place.write("columns.csv", "host,tool\na.org,playwright\n");
    let prior = place.write(
        "prior.toml",
        "[[prior]]\ntype = 'suffix'\nvalue = '.epub'\nfetcher = 'direct'\nsuccess_rate = 0.9\n",
    );
    let twice = place.write("twice.toml", "[[fetcher]]\nname = 'a'\n[[fetcher]]\nname = 'a'\n");
    let empty = place.write("urls.txt", "");
    for (more, want) in [
        (
            ["--router", &routes],
            "routes.csv, line 3: the route of b.org: unknown fetcher \"playwrite\"",
        ),
        (["--router", &routes], "did you mean \"playwright\"?"),
        (
            ["--router", &columns],
            "columns.csv, line 1: invalid columns host, tool: expected domain and fetcher",
        ),
        (["--config", &prior], "did you mean \"direct_access\"?"),
        (["--config", &twice], "twice.toml, line 4: invalid fetcher.1.name \"a\""),
        (["--prefer", "playwrite"], "unknown fetcher \"playwrite\""),
    ] {
        let fetch = ["fetch", "--input", &empty, "--no-browser"];
        for command in [&["select", "https://e.org/"][..], &["explain", "https://e.org/"], &fetch] {
            let ran = place.run(&[command, &more].concat());
            assert!(
                ran.code == 2 && ran.stderr.contains(want),
                "{command:?} {more:?}: {} {}",
                ran.code,
                ran.stderr
            );
        }
    }
}

#[test]
fn the_same_fault_has_the_same_exit_code_in_every_command() {
    let place = TestDir::new();
    let file = place.write("file", "");
    for command in [
        &["fetch", "--no-browser", "--input", "absent"][..],
        &["import", "absent"],
        &["classify", "absent"],
        &["classify", "--batch", "absent"],
        &["stats", "--router", "absent"],
        &["select", "https://e.org/", "--config", "absent"],
    ] {
        let ran = place.run(command);
        assert!(
            ran.code == 2 && ran.stderr.contains("absent"),
            "{command:?}: {} {}",
            ran.code,
            ran.stderr
        );
    }
    for command in [
        &["fetch", "--no-browser", "--input", &file][..],
        &["import", &file],
        &["select", "https://e.org/"],
        &["explain", "https://e.org/"],
        &["stats"],
        &["verify"],
    ] {
        let ran = place.run(&[command, &["--data-dir", &file]].concat());
        assert!(
            ran.code == 2 && ran.stderr.contains("not a directory"),
            "{command:?}: {} {}",
            ran.code,
            ran.stderr
        );
    }
    let bad_lines = b"\xff\n";
    for command in [&["select", "-"][..], &["fetch", "--no-browser", "-"], &["import", "-"]] {
        let ran = place.run_with(command, bad_lines);
        assert_eq!(ran.code, 1, "{command:?}: {}", ran.stderr);
    }
}

#[test]
fn every_reading_command_reports_a_missing_data_directory() {
    let place = TestDir::new();
    let absent = ["--data-dir", "mistyped"];
    for command in [
        &["stats"][..],
        &["export"],
        &["ban-rate", "e.org"],
        &["query", "--where", "domain=e.org"],
        &["importance"],
        &["replay-policy", "--policy", "index"],
        &["verify"],
        &["snapshot"],
        &["compact"],
        &["repair"],
        &["forget", "--domain", "e.org"],
    ] {
        let ran = place.run(&[command, &absent].concat());
        assert!(
            ran.code == 2 && ran.stderr.contains("mistyped"),
            "{command:?}: {} {}",
            ran.code,
            ran.stderr
        );
    }
    for command in [&["select", "https://e.org/"][..], &["explain", "https://e.org/"]] {
        let ran = place.run(&[command, &absent].concat());
        assert!(
            ran.code == 0 && ran.stderr.contains("data directory mistyped does not exist"),
            "{command:?}: {}",
            ran.stderr
        );
    }
    assert!(!place.path("mistyped").exists());
}

#[test]
fn after_a_captcha_comes_stealth_and_after_a_shell_the_browser() {
    let place = TestDir::new();
    for (hint, want) in [("blocked", "playwright_stealth"), ("empty", "playwright")] {
        let args = [
            "select",
            "--json",
            "https://e.org/",
            "--tried",
            "simple_http",
            "--last-failure",
            hint,
        ];
        assert_eq!(place.run_with_browser(&args).one()["fetcher"].as_str(), Some(want), "{hint}");
    }
}

#[test]
fn an_invalid_url_has_its_own_result_and_the_rest_continues() {
    let place = TestDir::new();
    let ran = place.run(&["select", "--json", "nonsense", "ftp://e.org/", "https://e.org/"]);
    let lines = ran.json();
    assert_eq!((ran.code, lines.len()), (1, 3));
    for (line, url) in lines.iter().zip(["nonsense", "ftp://e.org/"]) {
        assert_eq!(
            (line["success"].as_bool(), line["error_type"].as_str()),
            (Some(false), Some("invalid_url"))
        );
        assert_eq!(line["url"].as_str(), Some(url));
        assert!(line["error"].as_str().unwrap().contains(url));
    }
    assert_eq!(lines[2]["decision"].as_str(), Some("probe"));
    let ran = place.run(&["explain", "nonsense", "--json"]);
    assert_eq!((ran.code, ran.one()["error_type"].as_str()), (1, Some("invalid_url")));
}

#[test]
fn the_router_table_serves_legacy_by_flag_and_by_variable() {
    let place = TestDir::new();
    let table = place.write("routes.csv", "domain,fetcher\nexample.org,playwright\n");
    let args =
        ["select", "--json", "https://www.example.org/a", "https://other.org/", "--router", &table];
    let ran =
        Ran::from(place.command(&args).env("LEARNING_MODE_ENABLED", "false").output().unwrap());
    let lines = ran.json();
    assert_eq!(
        (lines[0]["decision"].as_str(), lines[0]["fetcher"].as_str()),
        (Some("hard_coded"), Some("playwright"))
    );
    assert_eq!((ran.code, lines[1]["error_type"].as_str()), (1, Some("no_route")));
    let args = [&args[..], &["--mode", "learning"]].concat();
    let ran =
        Ran::from(place.command(&args).env("LEARNING_MODE_ENABLED", "false").output().unwrap());
    assert_eq!(ran.json()[0]["decision"].as_str(), Some("probe"));
    let ran = place.run(&["select", "https://e.org/", "--mode", "legacy"]);
    assert!(ran.code == 2 && ran.stderr.contains("--router"), "{}", ran.stderr);
}

use crate::support::Ran;

#[test]
fn explain_names_evidence_candidates_and_rule() {
    let place = TestDir::new();
    place.import(attempts("https://wikipedia.org/wiki/", "playwright", true, 10, now() - HOUR));
    let line =
        place.run_with_browser(&["explain", "--json", "https://wikipedia.org/wiki/Rust"]).one();
    let heuristics = line["heuristics"].as_array().unwrap();
    assert!(heuristics.contains(&json!({"type": "domain_path", "value": "wikipedia.org|wiki"})));
    let chosen: Vec<&Value> =
        line["candidates"].as_array().unwrap().iter().filter(|c| c["chosen"] == true).collect();
    assert_eq!((chosen.len(), chosen[0]["fetcher"].as_str()), (1, Some("playwright")));
    assert!(
        line["steps"]
            .as_array()
            .unwrap()
            .iter()
            .any(|s| s["type"] == "domain" && s["total"].as_f64() > Some(9.0))
    );
    assert_eq!(line["rule"].as_str(), Some("domain_confident"));
    let text =
        place.run_with_browser(&["explain", "--full", "https://wikipedia.org/wiki/Rust"]).stdout;
    assert!(text.contains(">  playwright") && text.contains("confident on this domain"), "{text}");
    assert!(!text.contains('\x1b'), "no colours into a pipe");
}

#[test]
fn bad_usage_and_bad_config_end_with_two() {
    let place = TestDir::new();
    let config = place.write("c.toml", "[scoring]\ncolour = 1\n");
    let half_life = place.write("h.toml", "tuning.half_life_days = 3\n");
    for (args, want) in [
        (&["select"][..], "URL"),
        (&["frobnicate"], "frobnicate"),
        (&["select", "https://e.org/", "--config", &config], "colour"),
        (&["select", "https://e.org/", "--config", &half_life], "7 to 365"),
        (&["select", "https://e.org/", "--config", "absent.toml"], "absent.toml"),
        (&["ban-rate", "e.org", "--days", "0"], "--days"),
        (&["fetch", "https://e.org/", "--allow-network", "everything"], "CIDR"),
        (&["fetch", "https://e.org/", "--chromium", "absent"], "absent"),
    ] {
        let ran = place.run(args);
        assert!(
            ran.code == 2 && ran.stderr.contains(want),
            "{args:?}: {} {}",
            ran.code,
            ran.stderr
        );
    }
    let ran = Ran::from(
        place.command(&["stats"]).env("LEARNING_MODE_ENABLED", "maybe").output().unwrap(),
    );
    assert!(ran.code == 2 && ran.stderr.contains("LEARNING_MODE_ENABLED"));
}

#[test]
fn help_completions_and_manual_pages_work() {
    let place = TestDir::new();
    for command in
        ["fetch", "select", "explain", "classify", "import", "export", "ban-rate", "stats"]
    {
        let ran = place.run(&[command, "--help"]);
        assert!(ran.code == 0 && ran.stdout.contains("Example"), "{command}: {}", ran.stdout);
    }
    assert!(place.run(&["completions", "bash"]).stdout.contains("ban-rate"));
    assert!(place.run(&["man"]).stdout.starts_with(".ie"));
    assert_eq!(place.run(&["man", "--out", "man"]).code, 0);
    assert!(place.path("man/fetchwise-fetch.1").exists());
}

#[test]
fn an_explanation_marks_the_decisive_step_and_has_counterfactuals() {
    let place = TestDir::new();
    place.import((0..60).flat_map(|n| {
        attempts(&format!("https://s{n}.org/x/"), "direct_access", true, 1, now() - HOUR)
    }));
    place.import(attempts("https://spa.org/app/", "direct_access", false, 8, now() - HOUR));
    place.import(attempts("https://spa.org/app/", "playwright", true, 12, now() - HOUR / 2));
    let line = place.run_with_browser(&["explain", "--json", "https://spa.org/app/new"]).one();
    assert_eq!(line["fetcher"], "playwright", "{line}");
    let deciding: Vec<&Value> =
        line["steps"].as_array().unwrap().iter().filter(|step| step["deciding"] == true).collect();
    assert_eq!(deciding.len(), 1);
    assert!(
        ["site", "domain", "domain_path"].contains(&deciding[0]["type"].as_str().unwrap()),
        "{}",
        deciding[0]
    );
    let of = |kind: &str| {
        line["counterfactuals"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["kind"] == kind)
            .unwrap()
            .clone()
    };
    assert_eq!(of("without_domain_evidence")["fetcher"], "direct_access");
    let cheapest = of("cheapest_alternative");
    assert_eq!(cheapest["fetcher"], "direct_access");
    assert!(
        cheapest["expected_cost"].as_f64() > cheapest["expected_cost_chosen"].as_f64(),
        "{cheapest}"
    );

    let text = place.run_with_browser(&["explain", "--full", "https://spa.org/app/new"]).stdout;
    for want in [
        "without the domain's evidence: direct_access",
        "cheapest alternative: direct_access",
        "decided by the evidence",
    ] {
        assert!(text.contains(want), "{want}: {text}");
    }
    assert_eq!(
        text.lines().filter(|line| line.starts_with('>')).count(),
        2,
        "the candidate and the line: {text}"
    );
}

/// The decision comes first, then three reasons in words that fit a terminal; the numbers are
/// behind `--full`.
#[test]
fn an_explanation_begins_with_the_decision_and_three_reasons() {
    let place = TestDir::new();
    place.import(attempts("https://spa.org/app/", "direct_access", false, 8, now() - HOUR));
    place.import(attempts("https://spa.org/app/", "playwright", true, 12, now() - HOUR / 2));
    let text = place.run_with_browser(&["explain", "https://spa.org/app/new"]).stdout;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        (lines[0], lines[1].starts_with("playwright  learned")),
        ("https://spa.org/app/new", true),
        "{text}"
    );
    let reasons: Vec<&&str> =
        lines.iter().filter(|line| line.trim_start().starts_with(['1', '2', '3'])).collect();
    assert_eq!((lines.len(), reasons.len()), (6, 3), "{text}");
    assert!(reasons[0].contains("playwright delivered 100 % of 12 attempts"), "{text}");
    assert!(reasons[2].contains("a page costs") && reasons[2].contains("direct_access"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
    let new = TestDir::new().run(&["explain", "https://new.org/", "--no-browser"]).stdout;
    assert!(new.contains("1. no evidence yet"), "{new}");
}

#[test]
fn an_explanation_without_evidence_marks_nothing() {
    let line = TestDir::new().run(&["explain", "--json", "https://new.org/"]).one();
    assert!(line["steps"].as_array().unwrap().iter().all(|step| step["deciding"] == false));
    assert_eq!(line["counterfactuals"][0]["fetcher"], "direct_access");
}

#[test]
fn callers_heuristics_decide_and_those_of_the_url_are_rejected() {
    let place = TestDir::new();
    place.import((0..60).flat_map(|n| {
        let of = |host: &str, fetcher: &str, success: bool, tags: Value| {
            let error = if success { Value::Null } else { json!("wrong_tool") };
            json!({"url": format!("https://{host}{n}.org/v/1"), "fetcher": fetcher, "success": success, "error_type": error,
                   "attempted_at": now() - n, "heuristics": tags})
        };
        let vimeo = |host: &str| {
            json!([{"type": "domain", "value": format!("{host}{n}.org")}, {"type": "path_depth", "value": "2"},
                   {"type": "video_platform", "value": "vimeo"}])
        };
        [
            of("a", "direct_access", true, json!([])),
            of("b", "direct_access", false, vimeo("b")),
            of("b", "youtube_downloader", true, vimeo("b")),
        ]
    }));
    let select = |more: &[&str]| {
        let args = [&["select", "https://new.org/v/1", "--json", "--all-fetchers"], more].concat();
        place.run(&args).one()["fetcher"].as_str().unwrap().to_owned()
    };
    assert_eq!(select(&[]), "direct_access");
    assert_eq!(select(&["--tag", "video_platform=vimeo"]), "youtube_downloader");
    let refused = place.run(&["select", "https://new.org/", "--tag", "domain=e.org"]);
    assert!(
        refused.code == 2 && refused.stderr.contains("the URL determines that type"),
        "{}",
        refused.stderr
    );
}

#[test]
fn explain_shows_the_success_of_fetchers_behind_the_hosts_vendor() {
    let place = TestDir::new();
    let line = |host: &str, fetcher: &str, success: bool, tag: (&str, &str), at: i64| {
        let error = if success { Value::Null } else { json!("blocked_captcha") };
        let heuristic = |kind: &str, value: &str| json!({"type": kind, "value": value});
        json!({"url": format!("https://{host}/"), "fetcher": fetcher, "success": success, "error_type": error,
               "attempted_at": at, "heuristics": [heuristic("domain", host), heuristic("site", host), heuristic(tag.0, tag.1)]})
    };
    let mut lines =
        vec![line("e.org", "direct_access", false, ("block_gate", "true"), now() - HOUR)];
    for n in 0..40 {
        let host = format!("host{n}.net");
        lines.push(line(&host, "direct_access", false, ("block_gate", "true"), now() - 2 * HOUR));
        lines.push(line(
            &host,
            "playwright",
            n % 4 == 0,
            ("host_showed", "block_gate"),
            now() - HOUR,
        ));
    }
    place.import(lines);
    let explained = place.run_with_browser(&["explain", "--json", "https://e.org/new"]).one();
    let shown = &explained["host_showed"][0];
    assert_eq!(
        (shown["tag"].as_str(), shown["vendor"].as_bool()),
        (Some("block_gate"), Some(true)),
        "{explained}"
    );
    let browser = &shown["fetchers"][0];
    assert_eq!(
        (browser["fetcher"].as_str(), browser["hosts"].as_u64()),
        (Some("playwright"), Some(40)),
        "{shown}"
    );
    assert!((browser["success_rate"].as_f64().unwrap() - 0.25).abs() < 0.01, "{shown}");
    let steps = explained["steps"].as_array().unwrap();
    assert!(
        steps.iter().any(|step| step["type"] == "host_showed" && step["value"] == "block_gate"),
        "{explained}"
    );
    let text = place.run_with_browser(&["explain", "https://e.org/new"]).stdout;
    assert!(text.contains("playwright got past it in 25 % of 40 attempts on 40 hosts"), "{text}");
}
