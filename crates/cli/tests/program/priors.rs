//! Portable priors: what one crawler has learned of no single host, and another one starts with.

use serde_json::{Value, json};

use crate::support::{TestDir, now};

const HOUR: i64 = 3_600_000;

fn line(host: &str, path: &str, fetcher: &str, success: bool, tag: (&str, &str), at: i64) -> Value {
    let error = if success { Value::Null } else { json!("blocked_captcha") };
    let heuristic = |kind: &str, value: &str| json!({"type": kind, "value": value});
    let mut tags = vec![
        heuristic("domain", host),
        heuristic("site", host),
        heuristic("section", "confidential"),
    ];
    tags.extend([heuristic("domain_path", &format!("{host}|private")), heuristic(tag.0, tag.1)]);
    json!({"url": format!("https://{host}/private/{path}"), "fetcher": fetcher, "success": success, "error_type": error,
           "attempted_at": at, "heuristics": tags})
}

/// A crawler that has met one vendor on forty hosts: stealth gets past it, and the cheaper browser
/// does not.
fn trained() -> TestDir {
    let place = TestDir::new();
    let mut lines = Vec::new();
    for n in 0..40 {
        let (host, at) = (format!("secret{n}.example"), now() - 3 * HOUR + n);
        lines.push(line(&host, "a.html", "direct_access", false, ("block_gate", "true"), at));
        lines.push(line(
            &host,
            "b.html",
            "playwright",
            false,
            ("host_showed", "block_gate"),
            at + HOUR,
        ));
        lines.push(line(
            &host,
            "c.html",
            "playwright_stealth",
            true,
            ("host_showed", "block_gate"),
            at + 2 * HOUR,
        ));
        lines.iter_mut().rev().take(2).for_each(|line| line["hint"] = json!("blocked"));
        // Files are on other hosts. A signal with the name of a host, and a suffix of one site,
        // belong to nobody else.
        let (files, odd) = (format!("secret-files{n}.example"), format!("secret-odd{n}.example"));
        lines.push(line(&files, "d.pdf", "direct_access", true, ("suffix", ".pdf"), at));
        lines.push(line(&files, "e.zzz", "direct_access", true, ("suffix", ".zzz"), at));
        lines.push(line(
            &odd,
            "f",
            "direct_access",
            false,
            ("block_waf.secret.example", "true"),
            at,
        ));
        lines.push(line(
            &odd,
            "g",
            "direct_access",
            false,
            ("host_showed", "block_waf.secret.example"),
            at + HOUR,
        ));
    }
    place.import(lines);
    place
}

#[test]
fn an_export_has_no_host_and_no_path_and_a_few_kilobytes() {
    let place = trained();
    assert_eq!(place.run(&["priors", "export", "priors.json"]).code, 0);
    let text = std::fs::read_to_string(place.path("priors.json")).unwrap();
    assert!(text.len() < 8192, "{} bytes", text.len());
    for part in
        ["secret", "example", "private", "confidential", ".zzz", "section", "domain", "site"]
    {
        assert!(!text.contains(part), "{part}: {text}");
    }
    for part in [r#""block_gate""#, r#"".pdf""#, r#""hint""#, r#""playwright""#] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let file: Value = serde_json::from_str(&text).unwrap();
    for of in file["priors"].as_array().unwrap() {
        for (_, numbers) in of["fetchers"].as_object().unwrap() {
            assert!(numbers[1].as_f64() <= Some(50.0), "a cell has a bounded mass: {of}");
        }
    }
    let again = place.run(&["priors", "export", "priors.json"]);
    assert!(again.code == 2 && again.stderr.contains("--force"), "{}", again.stderr);
    assert_eq!(place.run(&["priors", "export", "-"]).stdout, text);
}

#[test]
fn a_crawler_with_priors_knows_a_vendor_from_its_first_block() {
    let text = trained().run(&["priors", "export", "-"]).stdout;
    let block =
        || line("new.org", "a.html", "direct_access", false, ("block_gate", "true"), now() - HOUR);
    let select = |place: &TestDir, args: &[&str]| {
        let all = [&["select", "--json", "https://new.org/private/b.html"], args].concat();
        place.run_with_browser(&all).one()["fetcher"].as_str().unwrap().to_owned()
    };
    let (cold, warm) = (TestDir::new(), TestDir::new());
    let file = warm.write("priors.json", &text);
    assert_eq!(warm.run(&["priors", "import", &file]).code, 0);
    for place in [&cold, &warm] {
        place.import([block()]);
    }
    assert_eq!(
        (select(&cold, &[]), select(&warm, &[])),
        ("playwright".to_owned(), "playwright_stealth".to_owned())
    );
    let file = cold.write("priors.json", &text);
    assert_eq!(select(&cold, &["--priors", &file]), "playwright_stealth");
    // They are no evidence: a snapshot and a compaction do not touch them, and nothing grows by
    // being passed on.
    assert_eq!(warm.run(&["snapshot"]).code, 0);
    assert_eq!(warm.run(&["compact"]).code, 0);
    assert_eq!(select(&warm, &[]), "playwright_stealth");
    assert!(!warm.run(&["priors", "export", "-"]).stdout.contains("block_gate"));
    // Own evidence outweighs them.
    warm.import((0..80).flat_map(|n| {
        let (host, at) = (format!("h{n}.net"), now() - HOUR + n);
        [
            line(&host, "a.html", "direct_access", false, ("block_gate", "true"), at),
            line(
                &host,
                "b.html",
                "playwright_stealth",
                false,
                ("host_showed", "block_gate"),
                at + 1,
            ),
            line(&host, "c.html", "playwright", true, ("host_showed", "block_gate"), at + 2),
        ]
    }));
    assert_eq!(select(&warm, &[]), "playwright");
}

#[test]
fn a_file_that_is_not_one_of_priors_is_refused() {
    let place = TestDir::new();
    let host = r#"{"format": "fetchwise-priors", "version": 1, "priors": [
        {"type": "domain", "value": "e.org", "content": "page", "fetchers": {"playwright": [1, 10]}}]}"#;
    for (text, why) in [
        ("{}", "not a file of priors"),
        (host, "invalid prior domain"),
        ("", "not a file of priors"),
    ] {
        let file = place.write("x.json", text);
        for args in
            [&["priors", "import", &file][..], &["select", "https://e.org/", "--priors", &file]]
        {
            let ran = place.run(args);
            assert!(ran.code == 2 && ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
        }
    }
    assert!(!place.data().exists());
}
