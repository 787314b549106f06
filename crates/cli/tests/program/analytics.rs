//! `query`, `importance`, `replay-policy`, and exports for other tools.

use serde_json::{Value, json};

use crate::support::{DAY, HOUR, TestDir, now};
use fetchwise::attempt::Attempt;
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::Selector;

/// An attempt at the site's n-th page: plain requests succeed for `.pdf` and fail for pages; the
/// browser does the opposite.
fn mixed(n: i64, at: i64) -> Value {
    let (is_pdf, is_plain) = (n % 2 == 0, n % 4 < 2);
    let success = is_pdf == is_plain;
    let (suffix, fetcher) =
        (if is_pdf { ".pdf" } else { "" }, if is_plain { "direct_access" } else { "playwright" });
    let error = if success { Value::Null } else { json!("wrong_tool") };
    json!({"url": format!("https://www.e.org/a{n}{suffix}"), "fetcher": fetcher, "success": success, "error_type": error,
           "attempted_at": at})
}

#[test]
fn a_query_counts_what_has_all_of_the_heuristics() {
    let place = TestDir::new();
    place.import((0..40).map(|n| mixed(n, now() - HOUR)));
    place.import([
        json!({"url": "https://other.org/a.pdf", "fetcher": "direct_access", "success": false,
                         "error_type": "blocked_captcha", "attempted_at": now()}),
    ]);
    let rows = place
        .run(&["query", "--where", "domain=WWW.e.org", "--where", "suffix=.pdf", "--json"])
        .json();
    assert_eq!(rows.len(), 2);
    for (fetcher, rate) in [("direct_access", 1.0), ("playwright", 0.0)] {
        let row = rows.iter().find(|row| row["fetcher"] == fetcher).unwrap();
        assert_eq!(
            (row["attempts"].as_u64(), row["success_rate"].as_f64()),
            (Some(10), Some(rate)),
            "{row}"
        );
        assert_eq!(row["decayed_success_rate"].as_f64(), Some(rate));
    }
    let none = place.run(&["query", "--where", "domain=e.org", "--where", "suffix=.zip"]);
    assert_eq!((none.code, none.stdout.trim()), (0, "no attempt has domain=e.org and suffix=.zip"));
    assert_eq!(place.run(&["query"]).code, 2);
    assert_eq!(place.run(&["query", "--where", "domain"]).code, 2);
}

#[test]
fn a_decayed_rate_weighs_recent_attempts_more() {
    let place = TestDir::new();
    let of = |success: bool, at: i64| {
        let error = if success { Value::Null } else { json!("empty_content") };
        json!({"url": "https://e.org/", "fetcher": "playwright", "success": success, "error_type": error, "attempted_at": at})
    };
    let at = now();
    place.import([of(true, at - 30 * DAY), of(false, at)]);
    let row = place.run(&["query", "--where", "domain=e.org", "--json"]).one();
    assert_eq!(row["success_rate"].as_f64(), Some(0.5));
    assert!((row["decayed_success_rate"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-3, "{row}");
}

/// 30 attempts with a captcha, 3 of which succeed, and 30 without, 27 of which succeed.
fn captchas(place: &TestDir) {
    place.import((0..60).map(|n| {
        let has_captcha = n < 30;
        let success = if has_captcha { n % 10 == 0 } else { n % 10 != 0 };
        let error = if success { Value::Null } else { json!("blocked_captcha") };
        let mut tags = vec![json!({"type": "domain", "value": "e.org"})];
        if has_captcha {
            tags.push(json!({"type": "has_captcha", "value": "true"}));
        }
        json!({"url": format!("https://e.org/{n}"), "fetcher": "playwright", "success": success, "error_type": error,
               "attempted_at": now() - HOUR, "heuristics": tags})
    }));
}

#[test]
fn importance_has_gain_and_bits_and_can_be_recorded() {
    let place = TestDir::new();
    captchas(&place);
    // What equals the outcome does not lead: only the response tells it, and no decision can use
    // it.
    let before = place.run(&["importance", "--json"]).json();
    assert!(
        before.iter().all(|row| row["after"] == false && row["type"] != "has_captcha"),
        "{before:?}"
    );
    let text = place.run(&["importance"]).stdout;
    assert!(text.contains("known before the request") && !text.contains("has_captcha"), "{text}");
    let text = place.run(&["importance", "--after"]).stdout;
    let [domain, captcha] = ["domain", "has_captcha"].map(|kind| text.find(kind).unwrap());
    assert!(domain < captcha && text.contains("told by the response"), "{text}");
    let rows = place.run(&["importance", "--after", "--json"]).json();
    assert!(rows.len() > before.len() && rows[..before.len()] == before[..], "{rows:?}");
    let row = |kind: &str, value: Value| {
        rows.iter().find(|row| row["type"] == kind && row["value"] == value).unwrap()
    };
    let captcha = row("has_captcha", json!("true"));
    let fields =
        ["n", "baseline", "conditional_rate", "gain"].map(|name| captcha[name].as_f64().unwrap());
    assert!((fields[3] - 0.4).abs() < 1e-12 && fields[..3] == [30.0, 0.5, 0.1], "{captcha}");
    assert!(
        (captcha["mutual_information_bits"].as_f64().unwrap() - 0.531).abs() < 1e-3,
        "{captcha}"
    );
    assert_eq!(row("has_captcha", Value::Null)["n"].as_u64(), Some(30));
    assert_eq!(row("domain", json!("e.org"))["gain"].as_f64(), Some(0.0));

    assert!(
        place
            .run(&["export"])
            .json()
            .iter()
            .all(|line| line["heuristics"][0]["importance"].is_null())
    );
    let wrote = place.run(&["importance", "--write"]);
    assert!(
        wrote.code == 0 && wrote.stderr.contains("recorded the importance of"),
        "{}",
        wrote.stderr
    );
    let exported = place.run(&["export"]).json();
    let tag = exported[0]["heuristics"]
        .as_array()
        .unwrap()
        .iter()
        .find(|tag| tag["type"] == "has_captcha")
        .unwrap();
    assert!((tag["importance"].as_f64().unwrap() - 0.4).abs() < 1e-6, "{tag}");
}

/// A list of dead links made every heuristic of its site, and the baseline, look worse.
#[test]
fn importance_leaves_out_missing_pages_as_stats_does() {
    let place = TestDir::new();
    place.import((0..120).map(|n| {
        let error = match n % 4 {
            0 => json!("blocked_403"),
            1 | 2 => json!("not_found"),
            _ => Value::Null,
        };
        json!({"url": format!("https://e.org/{n}"), "fetcher": "direct_access", "success": error.is_null(),
               "error_type": error, "attempted_at": now() - HOUR})
    }));
    let stats = place.run(&["stats", "--json"]).one();
    assert_eq!(
        (stats["attempts"].as_u64(), stats["missing"].as_u64()),
        (Some(120), Some(60)),
        "{stats}"
    );
    assert_eq!(stats["success_rate"].as_f64(), Some(0.5), "{stats}");
    let rows = place.run(&["importance", "--json"]).json();
    let domain =
        rows.iter().find(|row| row["type"] == "domain" && row["value"] == "e.org").unwrap();
    let figures = ["n", "baseline", "conditional_rate"].map(|name| domain[name].as_f64().unwrap());
    assert_eq!(figures, [60.0, 0.5, 0.5], "{domain}");
    let text = place.run(&["importance"]).stdout;
    assert!(text.contains("50.0 % of the attempts that count succeed"), "{text}");
}

#[test]
fn importance_reports_a_lack_of_attempts() {
    let place = TestDir::new();
    std::fs::create_dir(place.data()).unwrap();
    let ran = place.run(&["importance", "--write"]);
    assert_eq!((ran.code, ran.stdout.trim()), (0, "no heuristic has more than 10 attempts yet"));
    assert_eq!(std::fs::read_dir(place.data()).unwrap().count(), 0, "nothing is written");
}

/// A log in which the browser, which always works, made one request in five; plain requests work
/// half of the time.
fn logged(place: &TestDir, propensity: bool) {
    place.import((0..400u32).map(|n| {
        let hash = n.wrapping_mul(2_654_435_761) >> 16;
        let (is_browser, works) = (hash % 5 == 0, hash / 5 % 2 == 0);
        let success = is_browser || works;
        let error = if success { Value::Null } else { json!("wrong_tool") };
        let share = if is_browser { 0.2 } else { 0.8 };
        json!({"url": format!("https://d{}.org/{n}", n % 23), "fetcher": if is_browser { "playwright" } else { "direct_access" },
               "success": success, "error_type": error, "attempted_at": now() - HOUR + i64::from(n),
               "propensity": if propensity { json!(share) } else { Value::Null }})
    }));
}

#[test]
fn a_policy_is_evaluated_on_a_log_with_propensities() {
    let place = TestDir::new();
    logged(&place, true);
    let verdict = place.run(&["replay-policy", "--policy", "default", "--json"]).one();
    let number = |name: &str| verdict[name].as_f64().unwrap();
    assert_eq!(verdict["policy"], "default");
    assert!(
        number("ci_low") < number("estimate") && number("estimate") < number("ci_high"),
        "{verdict}"
    );
    assert!(number("effective_sample") > 50.0 && number("fetches") == 400.0, "{verdict}");
    // The value of the log: a page half of the time for 1, always for 20 in one of five.
    assert!((40.0..70.0).contains(&verdict["logged"]["estimate"].as_f64().unwrap()), "{verdict}");
    let both = place.run(&["replay-policy", "--policy", "default,published", "--json"]);
    assert_eq!(both.json().len(), 2);
    assert_eq!(
        both.stdout,
        place.run(&["replay-policy", "--policy", "default,published", "--json"]).stdout
    );
}

#[test]
fn an_unsupported_estimate_has_a_warning() {
    let place = TestDir::new();
    logged(&place, false);
    let ran = place.run(&["replay-policy", "--policy", "index", "--json"]);
    let verdict = ran.one();
    assert_eq!((ran.code, verdict["supported"].as_bool()), (0, Some(false)));
    assert!(
        !verdict["warnings"].as_array().unwrap().is_empty() && ran.stderr.contains("warning"),
        "{}",
        ran.stderr
    );
    let unknown = place.run(&["replay-policy", "--policy", "magic"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("published"), "{}", unknown.stderr);
}

#[test]
fn parquet_output_has_its_magic_bytes() {
    let place = TestDir::new();
    place.import((0..40).map(|n| mixed(n, now() - HOUR)));
    let output = place.command(&["export", "--format", "parquet"]).output().unwrap();
    assert!(output.status.success());
    let bytes = output.stdout;
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let end = bytes.len() - 8;
    let footer = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    assert!(footer < end, "a footer of {footer} bytes in a file of {}", bytes.len());
}

#[test]
fn importance_prunes_as_configured() {
    let place = TestDir::new();
    captchas(&place);
    place.import((0..40).map(|n| mixed(n, now() - HOUR)));
    assert_eq!(place.run(&["importance", "--write"]).code, 0);
    let config = place.write("c.toml", "[tuning]\nimportance = 'prune'\nimportance_min = 0.99\n");
    let depth_lines = |args: &[&str]| {
        let explained =
            place.run(&[&["explain", "https://new.org/b", "--json"], args].concat()).one();
        explained["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|step| step["type"] == "path_depth")
            .count()
    };
    assert!(depth_lines(&[]) > 0);
    assert_eq!(depth_lines(&["--config", &config]), 0);
    let bad = place.write("bad.toml", "[tuning]\nimportance = 'maybe'\n");
    assert_eq!(place.run(&["select", "https://e.org/", "--config", &bad]).code, 2);
}

#[test]
fn an_exported_database_agrees_with_the_commands() {
    let place = TestDir::new();
    place.import((0..400_i64).map(|n| {
        let error = match n % 5 {
            0 => json!("blocked_captcha"),
            1 if n % 3 == 0 => json!("timeout"),
            _ => Value::Null,
        };
        let fetcher = ["direct_access", "playwright"][(n / 5) as usize % 2];
        let url = format!("https://h{}.org/{}.{}", n % 9, n, ["html", "pdf"][n as usize % 2]);
        json!({"url": url, "fetcher": fetcher, "success": error.is_null(), "error_type": error, "attempted_at": now() - n * 1000})
    }));
    assert_eq!(place.run(&["export", "--sqlite", "attempts.db"]).code, 0);
    let db = rusqlite::Connection::open(place.path("attempts.db")).unwrap();
    let baseline: f64 =
        db.query_row("SELECT avg(success) FROM fetcher_attempts", (), |row| row.get(0)).unwrap();
    let gains = "SELECT count(*), avg(a.success), abs(avg(a.success) - ?3) FROM fetcher_attempts a
        JOIN attempt_heuristics h ON a.id = h.attempt WHERE heuristic_type = ?1 AND heuristic_value = ?2";
    let rows = place.run(&["importance", "--json", "--limit", "1000"]).json();
    let mut compared = 0;
    for row in rows.iter().filter(|row| !row["value"].is_null()) {
        let (kind, value) = (row["type"].as_str().unwrap(), row["value"].as_str().unwrap());
        let (n, rate, gain): (i64, f64, f64) = db
            .query_row(gains, rusqlite::params![kind, value, baseline], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .unwrap();
        let close = |field: &str, want: f64| (row[field].as_f64().unwrap() - want).abs() < 1e-9;
        assert!(
            row["n"] == n
                && close("baseline", baseline)
                && close("conditional_rate", rate)
                && close("gain", gain),
            "{row}"
        );
        compared += 1;
    }
    assert!(compared > 10, "{rows:?}");
    for row in place.run(&["stats", "--by", "domain", "--json"]).json() {
        let want: (i64, f64, f64) = db
            .query_row(
                "SELECT count(*), avg(success), avg(is_banned) FROM fetcher_attempts a JOIN attempt_heuristics h ON h.attempt = a.id
                 WHERE heuristic_type = 'domain' AND heuristic_value = ?1",
                [row["key"].as_str().unwrap()],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        let close = |field: &str, want: f64| (row[field].as_f64().unwrap() - want).abs() < 1e-9;
        assert!(
            row["attempts"] == want.0 && close("success_rate", want.1) && close("ban_rate", want.2),
            "{row} {want:?}"
        );
    }
    let again = place.run(&["export", "--sqlite", "attempts.db"]);
    assert!(again.code == 2 && again.stderr.contains("already exists"), "{}", again.stderr);
}

/// The log of a crawler that embeds the library, with fetchers whose names the program does not
/// know.
#[test]
fn a_log_knows_the_class_and_the_cost_of_its_fetchers() {
    let place = TestDir::new();
    let builder = Selector::builder()
        .fetcher(FetcherSpec::plain("http"))
        .fetcher(FetcherSpec::rendering("glass").cost(9.0));
    let selector = builder.journal(place.path("data")).without_pace().build().unwrap();
    for n in 0..12 {
        let url = url::Url::parse(&format!("https://e.org/{n}")).unwrap();
        let fetcher = if n < 10 { "http" } else { "glass" };
        let now = selector.now();
        selector
            .record(
                Attempt::new(&url, fetcher, selector.clock().date_of(now)).unwrap().delivered(),
                now,
            )
            .unwrap();
    }
    selector.close().unwrap();
    let cost = |more: &[&str]| {
        let args = [&["stats", "--data-dir", "data", "--json"], more].concat();
        place.run(&args).one()["cost"].as_f64().unwrap()
    };
    assert_eq!(cost(&[]), 10.0 + 2.0 * 9.0);
    let fetchers = place.run(&["fetchers", "--data-dir", "data", "--json"]).json();
    let of = |name: &str| {
        let row = fetchers.iter().find(|row| row["name"] == name).unwrap();
        (row["class"].as_str().unwrap().to_owned(), row["cost"].as_f64().unwrap())
    };
    assert_eq!(
        [of("http"), of("glass")],
        [("plain".to_owned(), 1.0), ("rendering".to_owned(), 9.0)]
    );
    let exported = place.run(&["export", "--data-dir", "data", "--format", "csv"]).stdout;
    // The last columns are cost, bytes and visit.
    let costs: Vec<&str> =
        exported.lines().skip(1).filter_map(|line| line.rsplit(',').nth(2)).collect();
    assert_eq!(costs, [&["1"; 10][..], &["9"; 2]].concat());
    // A config that lists the fetcher takes precedence, and one that lists others leaves it as it
    // is.
    place.write("own.toml", "[[fetcher]]\nname = 'http'\nclass = 'plain'\ncost = 2\n");
    assert_eq!(cost(&["--config", "own.toml"]), 10.0 * 2.0 + 2.0 * 9.0);
    // A snapshot and a compaction keep it.
    assert_eq!(place.run(&["snapshot", "--data-dir", "data"]).code, 0);
    assert_eq!(place.run(&["compact", "--data-dir", "data"]).code, 0);
    assert_eq!(cost(&[]), 10.0 + 2.0 * 9.0);
}
