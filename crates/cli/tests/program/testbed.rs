//! Crawls of a testbed by `fetch`: the pages that are submitted, and the ledger.

use fetchwise_testsite::benchmark_sites::BenchmarkOptions;
#[cfg(feature = "identity")]
use serde_json::Value;
use serde_json::json;

use crate::identity_costs::Testbed;
#[cfg(feature = "identity")]
use crate::identity_costs::{assert_that_signing_saves_the_browser, create_identity};
use crate::support::TestDir;

#[test]
fn a_crawl_of_the_testbed_is_counted_and_submitted_pages_are_scored() {
    let place = TestDir::new();
    let kinds = ["static", "shell", "cloudflare", "redirect"];
    let sites: String = kinds.iter().map(|kind| format!("[[site]]\nkind = \"{kind}\"\n")).collect();
    let testbed = Testbed::start(&sites, 4, &BenchmarkOptions::default());
    let links = place.write("links.txt", testbed.links());
    let fetch = [
        "fetch",
        "--json",
        "--input",
        &links,
        "--out",
        "pages",
        "--allow-network",
        "127.0.0.0/8",
        "--wait",
        "0",
    ];
    let crawl = place.run(&[&fetch[..], &["--no-browser", "--pace", "off"]].concat());
    let results = crawl.json();
    assert_eq!(results.len(), 16, "{}", crawl.stderr);
    testbed.submit(&place, &results);
    let ledger = testbed.ledger();
    for (kind, good) in [("static", 4), ("redirect", 4), ("shell", 0), ("cloudflare", 0)] {
        let score = &ledger["kinds"][kind];
        assert_eq!(
            (&score["good"], &score["wrong"]),
            (&json!(good), &json!(0)),
            "{kind}: {ledger:#}"
        );
    }
    assert!(ledger["kinds"]["cloudflare"]["blocked"].as_u64() >= Some(1));
    assert_eq!((&ledger["total"]["good"], &ledger["total"]["servable"]), (&json!(8), &json!(16)));
}

/// Runs a crawl of the links of some hosts, and returns its results and the ledger afterwards.
#[cfg(feature = "identity")]
fn crawl(place: &TestDir, testbed: &Testbed, wanted: &str, args: &[&str]) -> (Vec<Value>, Value) {
    let all = testbed.links();
    let links: String =
        all.lines().filter(|link| link.contains(wanted)).flat_map(|link| [link, "\n"]).collect();
    let links = place.write("links.txt", links);
    let fetch = [
        "fetch",
        "--json",
        "--input",
        &links,
        "--no-browser",
        "--allow-network",
        "127.0.0.0/8",
        "--wait",
        "0",
    ];
    let crawl = place.run(&[&fetch[..], args].concat());
    assert!(matches!(crawl.code, 0 | 4), "{}", crawl.stderr);
    (crawl.json(), testbed.ledger())
}

/// The system tests have the size of the acceptance test: 50 sites of each kind.
#[cfg(feature = "identity")]
#[test]
fn signing_saves_the_browser_on_sites_that_verify_bots() {
    assert_that_signing_saves_the_browser(5);
}

#[cfg(feature = "identity")]
#[test]
fn a_signed_crawl_passes_where_bots_are_verified_and_leaves_a_site_that_refuses_it() {
    let place = TestDir::new();
    let section = create_identity(&place);
    let site = |kind: &str, count, pages| {
        format!("[[site]]\nkind = \"{kind}\"\ncount = {count}\npages = {pages}\n")
    };
    let sites = [
        site("static", 3, 5),
        site("verified", 3, 5),
        site("cloudflare", 1, 30),
        site("datadome", 1, 100),
    ];
    let testbed = Testbed::over_https(&place, &sites.concat());
    place.write("always.toml", format!("{section}[http]\nca_file = 'ca.pem'\n"));
    let learned = section.replacen("[identity]", "[identity]\nmode = 'learned'", 1);
    place.write("learned.toml", format!("{learned}[http]\nca_file = 'ca.pem'\n"));
    let fast = ["--config", "always.toml", "--pace", "off"];

    // Hosts 2 to 7: open ones, and those that admit verified bots.
    for host in 2..8 {
        let (results, _) = crawl(&place, &testbed, &format!("https://127.0.77.{host}:"), &fast);
        assert_eq!(results.len(), 5);
        assert!(
            results.iter().all(|r| r["success"] == true && r["fetcher"] == "direct_signed"),
            "{results:#?}"
        );
    }
    let ledger = testbed.ledger();
    for kind in ["static", "verified"] {
        let score = &ledger["kinds"][kind];
        assert_eq!(
            (&score["cost"], &score["blocked"], &score["sent"]),
            (&json!(15), &json!(0), &json!(15)),
            "{ledger:#}"
        );
    }

    let (results, ledger) =
        crawl(&place, &testbed, "https://127.0.77.8:", &["--config", "always.toml"]);
    let requests = ledger["kinds"]["cloudflare"]["requests"].as_u64().unwrap();
    assert!((1..=16).contains(&requests), "{requests}");
    assert!(results.iter().any(|result| result["error_type"] == "left_by_policy"), "{results:#?}");

    let (results, ledger) = crawl(
        &place,
        &testbed,
        "https://127.0.77.9:",
        &["--config", "learned.toml", "--data-dir", "other"],
    );
    let requests = ledger["kinds"]["datadome"]["requests"].as_u64().unwrap();
    assert!((1..=10).contains(&requests), "{requests}");
    let left = results.iter().filter(|result| result["error_type"] == "left_by_policy").count();
    assert!(left >= 80, "{left} of {}", results.len());

    // A crawler without a key is no known bot.
    let (results, _) = crawl(
        &place,
        &testbed,
        "https://127.0.77.5:",
        &["--ca-file", "ca.pem", "--pace", "off", "--data-dir", "unsigned"],
    );
    assert!(results.iter().all(|result| result["success"] == false), "{results:#?}");
}
