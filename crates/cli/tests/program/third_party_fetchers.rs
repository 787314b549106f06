//! Fetchers that ask another service for a page: their configuration, their pages, and their
//! availability.

use std::net::{IpAddr, Ipv4Addr};

use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::services::archive::{Capture, WebArchive};
use fetchwise_testsite::services::proxy::{ForwardProxy, ProxyOptions};
use fetchwise_testsite::services::{Reply, Service};
use serde_json::{Value, json};

use crate::support::TestDir;

const SITE: &str = "127.0.0.31";
const ARCHIVE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 32));

fn story() -> String {
    let text =
        "The council met on Tuesday and agreed on the plan for the harbour, which had been put off twice. ".repeat(20);
    format!(
        "<html><head><title>Harbour</title></head><body><h1>Harbour</h1><p>{text}</p></body></html>"
    )
}

fn by_name<'j>(rows: &'j [Value], key: &str, name: &str) -> &'j Value {
    rows.iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

#[test]
fn fetchers_lists_availability_with_reasons() {
    let place = TestDir::new();
    let names = [
        "direct_access",
        "playwright",
        "playwright_stealth",
        "archive_proxy",
        "youtube_downloader",
    ];
    let rows = place.run(&["fetchers", "--no-browser", "--json"]).json();
    for (name, class, is_there, why) in [
        (names[0], "plain", true, ""),
        (names[1], "rendering", false, "the browser is turned off"),
        (names[2], "stealth", false, "the browser is turned off"),
        (names[3], "archive", false, "a config must list it"),
        (names[4], "special", false, "a config must list it"),
    ] {
        let row = by_name(&rows, "name", name);
        assert_eq!((&row["class"], &row["available"]), (&json!(class), &json!(is_there)), "{row}");
        assert!(row["unavailable_reason"].as_str().unwrap_or_default().contains(why), "{row}");
        assert_eq!(row["unavailable_reason"].is_null(), is_there, "{row}");
        assert!(row["cost"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!((&row["attempts"], &row["median_ms"]), (&json!(0), &Value::Null), "{row}");
    }
    place.write(
        "c.toml",
        "[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'archive_proxy'\n\
         [[fetcher]]\nname = 'mine'\ncommand = ['no-such-program-here']\n[[fetcher]]\nname = 'theirs'\ncost = 3.5\n",
    );
    let rows = place.run(&["fetchers", "--config", "c.toml", "--json"]).json();
    assert_eq!(rows.len(), 4);
    assert_eq!(by_name(&rows, "name", "archive_proxy")["available"], true);
    assert_eq!(by_name(&rows, "name", "mine")["available"], false);
    assert!(
        by_name(&rows, "name", "mine")["unavailable_reason"]
            .as_str()
            .unwrap()
            .contains("no-such-program-here")
    );
    assert_eq!(
        (&by_name(&rows, "name", "theirs")["cost"], &by_name(&rows, "name", "theirs")["available"]),
        (&json!(3.5), &json!(false))
    );
    let text = place.run(&["fetchers", "--config", "c.toml"]).stdout;
    assert!(text.contains("archive_proxy") && text.contains("no: "), "{text}");
}

#[test]
fn request_costs_are_learned_from_attempts() {
    let place = TestDir::new();
    place.import((0..5).map(|n| {
        json!({"url": format!("https://example.org/{n}"), "fetcher": "direct_access", "success": true,
               "attempted_at": "2026-01-01T00:00:00Z", "duration_ms": 100 * (n + 1), "http_status": 200,
               "response_headers": {"content-length": (1000 * (n + 1)).to_string()}})
    }));
    let rows = place.run(&["fetchers", "--no-browser", "--json"]).json();
    let row = by_name(&rows, "name", "direct_access");
    assert_eq!(
        (&row["attempts"], &row["median_ms"], &row["median_bytes"]),
        (&json!(5), &json!(300), &json!(3000))
    );
    // The length that a server announces is not that of the rendered page.
    place.import([
        json!({"url": "https://example.org/app", "fetcher": "playwright", "success": true,
        "attempted_at": "2026-01-01T00:00:00Z", "duration_ms": 900, "http_status": 200,
        "response_headers": {"content-length": "202"}}),
    ]);
    let rows = place.run(&["fetchers", "--no-browser", "--json"]).json();
    let row = by_name(&rows, "name", "playwright");
    assert_eq!((&row["median_ms"], &row["median_bytes"]), (&json!(900), &Value::Null));
}

#[test]
fn select_never_selects_an_unavailable_fetcher() {
    let place = TestDir::new();
    let lines = ["archive_proxy", "mine"].into_iter().flat_map(|fetcher| {
        (0..30).map(move |n| {
            json!({"url": format!("https://example.org/{n}"), "fetcher": fetcher, "success": true,
                   "attempted_at": chrono::Utc::now().to_rfc3339()})
        })
    });
    let blocked = (0..30).map(|n| {
        json!({"url": format!("https://example.org/{n}"), "fetcher": "direct_access", "success": false,
               "error_type": "blocked_403", "attempted_at": chrono::Utc::now().to_rfc3339()})
    });
    place.import(lines.chain(blocked));
    place.write(
        "c.toml",
        "[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'mine'\ncost = 1.5\ncommand = ['no-such-program-here']\n\
         [[fetcher]]\nname = 'archive_proxy'\n",
    );
    let ran = place.run(&["select", "--config", "c.toml", "--json", "https://example.org/7"]);
    let decided = ran.one();
    assert_eq!(decided["fetcher"], "archive_proxy", "{decided}");
    assert_eq!(decided["unavailable_fetcher"], "mine", "{decided}");
    let ran = place.run(&["select", "--no-browser", "--json", "https://example.org/7"]);
    assert_ne!(ran.one()["fetcher"], "archive_proxy", "no config asks for it");
}

#[test]
fn a_blocked_page_comes_from_the_configured_archive_with_its_date() {
    let place = TestDir::new();
    let origin = Origin::start([(SITE, Site::FORBIDDEN)]).unwrap();
    let url = origin.url(SITE, "/a");
    let captures = vec![
        Capture::page("20240601080000", &url, &story()),
        Capture::page("20100101000000", &url, &story()),
    ];
    let archive = WebArchive::start(ARCHIVE, captures).unwrap();
    place.write(
        "c.toml",
        format!(
            "[network]\nallow_private = true\n[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'archive_proxy'\nprior = 0.9\n\
             [fetcher.archive]\nwanted = 2011-05-31\n[[fetcher.archive.from]]\nwayback = '{}'\n",
            archive.service().url("/")
        ),
    );
    let ran = place.run(&["fetch", "--config", "c.toml", "--json", "--out", "pages", &url]);
    let result = ran.one();
    assert_eq!(
        (&result["fetcher"], &result["success"]),
        (&json!("archive_proxy"), &json!(true)),
        "{result}{}",
        ran.stderr
    );
    assert_eq!(result["served_by"], "127.0.0.32");
    assert_eq!(result["archived_at"], "2010-01-01T00:00:00.000Z");
    assert!(
        std::fs::read_to_string(place.path(result["file"].as_str().unwrap()))
            .unwrap()
            .contains("Harbour")
    );
    let attempts = place.run(&["export"]).json();
    let last = attempts.last().unwrap();
    let tags = last["heuristics"].as_array().unwrap();
    assert!(
        tags.iter().any(|tag| tag["type"] == "archived_at" && tag["value"] == "2010-01-01"),
        "{last}"
    );

    let tried = place.run(&["try", "--config", "c.toml", "--json", &url]).json();
    let (direct, copy) =
        (by_name(&tried, "fetcher", "direct_access"), by_name(&tried, "fetcher", "archive_proxy"));
    assert_eq!(
        (&direct["error_type"], &direct["status"]),
        (&json!("blocked_403"), &json!(403)),
        "{direct}"
    );
    assert_eq!(
        (&copy["success"], &copy["archived_at"]),
        (&json!(true), &result["archived_at"]),
        "{copy}"
    );
    let text = place.run(&["try", "--config", "c.toml", &url]).stdout;
    assert!(
        text.contains("blocked_403") && text.contains("127.0.0.32's copy of 2010-01-01"),
        "{text}"
    );
    assert_eq!(place.run(&["export"]).json().len(), attempts.len(), "a try records nothing");
}

#[test]
fn try_shows_unavailable_fetchers_last() {
    let place = TestDir::new();
    let origin = Origin::start([(SITE, Site::Static)]).unwrap();
    place.write(
        "c.toml",
        "[network]\nallow_private = true\n[[fetcher]]\nname = 'mine'\ncost = 0.5\ncommand = ['no-such-program-here']\n\
         [[fetcher]]\nname = 'direct_access'\n",
    );
    let text = place.run(&["try", "--config", "c.toml", &origin.url(SITE, "/a")]).stdout;
    let first: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(first, ["fetcher", "direct_access", "mine"], "{text}");
}

#[test]
fn two_ways_to_get_pages_or_an_archive_without_an_address_are_invalid() {
    let place = TestDir::new();
    for (text, part) in [
        (
            "[[fetcher]]\nname = 'a'\ncommand = ['x']\narchive = {}",
            "line 4: invalid fetcher.0.archive",
        ),
        ("[[fetcher]]\nname = 'a'\narchive = { from = [{}] }", "either wayback or timegate"),
        ("[[fetcher]]\nname = 'a'\narchive = { wanted = 'soon' }", "invalid date"),
        (
            "[[fetcher]]\nname = 'a'\narchive = { from = [{ timegate = 'ftp://e' }] }",
            "expected http or https",
        ),
    ] {
        place.write("c.toml", text);
        let ran = place.run(&["fetchers", "--config", "c.toml"]);
        assert_eq!(ran.code, 2, "{text}");
        assert!(ran.stderr.contains(part), "{text}: {}", ran.stderr);
    }
}

#[test]
fn a_fetcher_through_a_proxy_has_its_own_name_and_evidence() {
    let place = TestDir::new();
    let origin = Origin::start([(SITE, Site::Static)]).unwrap();
    let temper = ProxyOptions {
        upstream: SITE.parse().unwrap(),
        credentials: Some(("me".to_owned(), "hush-hush".to_owned())),
        refuses: false,
    };
    let proxy = ForwardProxy::start(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 33)), temper).unwrap();
    place.write(
        "c.toml",
        format!(
            "[network]\nallow_private = true\n[[fetcher]]\nname = 'by_socks'\nproxy = 'socks5://{0}'\n\
             proxy_user_env = 'PROXY_USER'\ncost = 2.5\n[[fetcher]]\nname = 'by_http'\nproxy = 'http://me:hush-hush@{0}'\ncost = 3.0\n",
            proxy.address()
        ),
    );
    let rows = place.run(&["fetchers", "--config", "c.toml", "--json"]).json();
    let row = by_name(&rows, "name", "by_socks");
    assert_eq!(
        (&row["class"], &row["cost"], &row["available"]),
        (&json!("plain"), &json!(2.5), &json!(false))
    );
    assert!(row["unavailable_reason"].as_str().unwrap().contains("PROXY_USER"), "{row}");

    let url = origin.url(SITE, "/a");
    let line = ["fetch", "--config", "c.toml", "--json", &url];
    let output = place.command(&line).env("PROXY_USER", "me:hush-hush").output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&result["success"], &result["fetcher"]),
        (&json!(true), &json!("by_socks")),
        "{result}"
    );
    assert_eq!(proxy.requests(), [format!("SOCKS {SITE}:{}", origin.port())]);
    let line = ["try", "--config", "c.toml", "--json", &url];
    let output = place.command(&line).env("PROXY_USER", "me:wrong-hush").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let tried: Vec<Value> = output
        .stdout
        .split(|b| *b == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    assert_eq!(by_name(&tried, "fetcher", "by_socks")["error_type"], "proxy_error", "{text}");
    assert_eq!(by_name(&tried, "fetcher", "by_http")["success"], true, "{text}");
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn a_configured_search_api_uses_the_key_of_the_environment_and_never_shows_it() {
    let place = TestDir::new();
    let service = Service::start(ARCHIVE, |asked| match asked.parameter("k").as_deref() {
        Some("hush-hush") => Reply::status(200).body(
            "application/json",
            r#"{"hits":[{"link":"http://127.0.0.31:9/a","head":"A title","text":"What it says."}]}"#,
        ),
        _ => Reply::status(401),
    })
    .unwrap();
    let search = format!(
        "[network]\nallow_private = true\n[[fetcher]]\nname = 'other_press'\n[fetcher.search]\nurl = '{}?k={{key}}&u={{url}}'\n\
         key_env = 'PRESS_KEY'\nrecords = '/hits'\naddress = '/link'\ntitle = '/head'\nbody = '/text'\n[[fetcher]]\nname = 'nytime_searcher'\n",
        service.url("/find")
    );
    place.write("c.toml", search);
    let rows = place.run(&["fetchers", "--config", "c.toml", "--json"]).json();
    for (name, variable) in [("other_press", "PRESS_KEY"), ("nytime_searcher", "NYTIMES_API_KEY")] {
        let row = by_name(&rows, "name", name);
        assert_eq!((&row["class"], &row["available"]), (&json!("special"), &json!(false)), "{row}");
        assert!(row["unavailable_reason"].as_str().unwrap().contains(variable), "{row}");
    }
    let line = ["fetch", "--config", "c.toml", "--json", "--out", "pages", "http://127.0.0.31:9/a"];
    let output = place.command(&line).env("PRESS_KEY", "hush-hush").output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&result["success"], &result["served_by"]),
        (&json!(true), &json!("127.0.0.32")),
        "{result}"
    );
    assert_eq!(result["archived_at"], Value::Null);
    let file = std::fs::read(place.path(result["file"].as_str().unwrap())).unwrap();
    let record: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!((&record["title"], &record["body"]), (&json!("A title"), &json!("What it says.")));
    let line = ["fetch", "--config", "c.toml", "--json", "http://127.0.0.31:9/a"];
    let refused = place.command(&line).env("PRESS_KEY", "hush-wrong").output().unwrap();
    let exported = place.run(&["export"]);
    for text in [
        &output.stdout,
        &output.stderr,
        &refused.stdout,
        &refused.stderr,
        exported.stdout.as_bytes(),
    ] {
        assert!(
            !String::from_utf8_lossy(text).contains("hush"),
            "{}",
            String::from_utf8_lossy(text)
        );
    }
    let last = exported.json().pop().unwrap();
    assert_eq!(
        (&last["error_type"], &last["is_banned"]),
        (&json!("proxy_error"), &json!(false)),
        "{last}"
    );
}

#[test]
fn a_downloader_and_a_solver_are_available_if_their_programs_exist() {
    let place = TestDir::new();
    place.write(
        "c.toml",
        "[[fetcher]]\nname = 'youtube_downloader'\n[fetcher.download]\nprogram = 'no-such-program-here'\nmax_time = '5m'\n\
         [[fetcher]]\nname = 'solver'\nsolver = 'http://127.0.0.1:8191/v1'\n[[fetcher]]\nname = 'direct_access'\n\
         [[fetcher]]\nname = 'farm'\ncdp = 'ws://127.0.0.1:9/devtools/browser/x'\ncost = 0.5\n",
    );
    let rows = place.run(&["fetchers", "--config", "c.toml", "--json"]).json();
    let downloader = by_name(&rows, "name", "youtube_downloader");
    assert_eq!(
        (&downloader["class"], &downloader["available"]),
        (&json!("special"), &json!(false)),
        "{downloader}"
    );
    assert!(
        downloader["unavailable_reason"].as_str().unwrap().contains("no-such-program-here"),
        "{downloader}"
    );
    let solver = by_name(&rows, "name", "solver");
    assert_eq!(
        (&solver["class"], &solver["renders"]),
        (&json!("stealth"), &json!(true)),
        "{solver}"
    );
    assert_eq!(solver["available"], true, "{solver}");
    let farm = by_name(&rows, "name", "farm");
    assert_eq!(
        (&farm["class"], &farm["renders"], &farm["cost"]),
        (&json!("rendering"), &json!(true), &json!(0.5)),
        "{farm}"
    );
    // An unreachable browser is unavailable, and another fetcher is used.
    let origin = Origin::start([(SITE, Site::Static)]).unwrap();
    let url = origin.url(SITE, "/a");
    let line = [
        "fetch",
        "--config",
        "c.toml",
        "--allow-private-network",
        "--prefer",
        "farm",
        "--json",
        &url,
    ];
    let result = place.run(&line).one();
    assert_eq!(
        (&result["success"], &result["fetcher"]),
        (&json!(true), &json!("direct_access")),
        "{result}"
    );
}

#[test]
fn a_solvers_page_is_delivered_and_a_missing_solver_is_not_the_sites_fault() {
    let place = TestDir::new();
    let origin = Origin::start([(SITE, Site::FORBIDDEN)]).unwrap();
    let service = Service::start(ARCHIVE, |asked| {
        let ask: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let solution =
            json!({"url": ask["url"], "status": 200, "headers": {"content-type": "text/html"}, "response": story()});
        Reply::status(200)
            .body("application/json", json!({"status": "ok", "message": "", "solution": solution}).to_string())
    })
    .unwrap();
    let config = |address: &str| {
        format!(
            "[network]\nallow_private = true\n[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'solver'\ncost = 5.0\nsolver = '{address}'\n"
        )
    };
    place.write("c.toml", config(&service.url("/v1")));
    let url = origin.url(SITE, "/a");
    let result = place.run(&["fetch", "--config", "c.toml", "--json", &url]).one();
    assert_eq!(
        (&result["success"], &result["fetcher"]),
        (&json!(true), &json!("solver")),
        "{result}"
    );
    place.write("gone.toml", config("http://127.0.0.1:9/v1"));
    let result =
        place.run(&["fetch", "--config", "gone.toml", "--json", "--data-dir", "other", &url]).one();
    assert_eq!(
        (&result["success"], &result["error_type"]),
        (&json!(false), &json!("blocked_403")),
        "{result}"
    );
}

#[test]
fn a_video_platform_is_derived_from_the_url_and_kept_with_attempts() {
    let place = TestDir::new();
    let explained = place
        .run(&["explain", "--no-browser", "--json", "https://www.youtube.com/watch?v=1"])
        .one();
    let tags = explained["heuristics"].as_array().unwrap();
    assert!(
        tags.iter().any(|tag| tag["type"] == "video_platform" && tag["value"] == "youtube"),
        "{explained}"
    );
}
