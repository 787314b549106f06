//! Rollouts against real servers on loopback: a learning arm that is worse, one that is better, and
//! modes that change while pages are fetched.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use fetchwise_testsite::origin::{Origin, Site};
use serde_json::{Value, json};

use crate::support::{TestDir, lines, now, send_signal, wait_for};

const PLAIN: [&str; 7] =
    ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore", "--pace", "off"];
const HOSTS: usize = 40;

/// A fetcher that costs almost nothing and delivers nothing.
const CHEAP: &str = r#"
while IFS= read -r line; do
  case $line in
    *'"cancel"'*) ;;
    *'"id":'*)
      id=${line#*'"id":'}
      printf '{"id":%s,"status":503,"headers":[],"body":"<h1>Service unavailable</h1>"}\n' "${id%%[,\}]*}" ;;
  esac
done
"#;

fn host(n: usize) -> String {
    format!("127.0.72.{}", n + 1)
}

/// Forty hosts of articles, a table that routes all of them to `routed`, and `more` in the config.
fn site(place: &TestDir, routed: &str, more: &str) -> Origin {
    let origin = Origin::start((0..HOSTS).map(|n| (host(n), Site::Static))).unwrap();
    let mut table = "domain,fetcher\n".to_owned();
    (0..HOSTS).for_each(|n| writeln!(table, "{},{routed}", host(n)).unwrap());
    place.write("routes.csv", table);
    place.write("cheap.sh", CHEAP);
    let fetchers = "[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'cheap'\nclass = 'plain'\ncost = 0.1\nprior = 0.99\n\
                    command = ['/bin/sh', 'cheap.sh']\n";
    place.write(
        "c.toml",
        format!("mode = 'split'\nsplit_share = 0.5\nrouter = 'routes.csv'\n{more}\n{fetchers}"),
    );
    origin
}

/// The URLs of some pages of each host, one host after the other in turn.
fn pages(place: &TestDir, origin: &Origin, name: &str, many: usize) -> String {
    let all: String = (0..many)
        .flat_map(|page| (0..HOSTS).map(move |n| (page, n)))
        .map(|(page, n)| origin.url(&host(n), &format!("/{name}/{page}\n")))
        .collect();
    place.write(&format!("{name}.txt"), all)
}

fn fetch(input: &str) -> Vec<&str> {
    [&["fetch", "--json", "--config", "c.toml", "--input", input][..], &PLAIN[..]].concat()
}

fn rollout(place: &TestDir, more: &[&str]) -> Value {
    place.run(&[&["rollout", "--config", "c.toml", "--json"][..], more].concat()).one()
}

/// One attempt per URL, and learning always tries the cheap fetcher again.
const WORSE: &str = "[scoring]\nmax_attempts = 1\n[tuning]\nexplore_rate = 1.0\nmax_explore_rate = 1.0\nrollout_min_pages = 20\nrollout_min_hosts = 5\n";

#[test]
fn a_worse_learning_arm_is_out_of_service_until_it_is_resumed() {
    let place = TestDir::new();
    let origin = site(&place, "direct_access", WORSE);
    // All decisions are made before the first results, so that learning cannot learn in time how
    // bad the cheap fetcher is.
    let input = pages(&place, &origin, "first", 8);
    let first = place.run(&[&fetch(&input)[..], &["--concurrency", "320"]].concat());
    assert_eq!(first.code, 4, "{}", first.stderr);
    assert!(first.stderr.contains("FELL BACK TO THE ROUTER TABLE"), "{}", first.stderr);
    let found = rollout(&place, &[]);
    let fallen = &found["fallen_back"];
    assert_eq!(
        (fallen["from"].as_str(), fallen["look"]["is_worse"].as_bool()),
        (Some("split"), Some(true)),
        "{found}"
    );
    assert!(found["difference"]["success"]["value"].as_f64().unwrap() < -0.05, "{found}");
    assert_eq!(
        found["until"], fallen["at"],
        "what the table served from then on is not learning's doing"
    );

    // A restart and read-only commands know about it.
    let second = place.run(&fetch(&pages(&place, &origin, "second", 2)));
    assert!(second.stderr.contains("learning is out of service since"), "{}", second.stderr);
    let results = second.json();
    assert!(
        results.iter().all(|result| result["source"] == "hard_coded" && result["success"] == true),
        "{results:?}"
    );
    let url = origin.url(&host(0), "/asked");
    let asked = |place: &TestDir| {
        place.run_with_browser(&["select", "--config", "c.toml", "--json", &url]).one()
    };
    assert_eq!(asked(&place)["decision"], "hard_coded");
    // Another share does not resume learning.
    let config = std::fs::read_to_string(place.path("c.toml")).unwrap();
    place.write("c.toml", config.replace("split_share = 0.5", "split_share = 1.0"));
    assert_eq!(asked(&place)["decision"], "hard_coded");
    let shown = place.run(&["rollout", "--config", "c.toml"]);
    assert!(
        shown.stdout.contains("OUT OF SERVICE") && shown.stdout.contains("--resume"),
        "{}",
        shown.stdout
    );

    let resumed = place.run(&["rollout", "--resume", "--json"]).one();
    assert_eq!(resumed["resumed"], true);
    assert_ne!(asked(&place)["decision"], "hard_coded");
    assert_eq!(place.run(&["rollout", "--resume", "--json"]).one()["resumed"], false);
    let after = rollout(&place, &[]);
    assert_eq!(
        (after["fallen_back"].is_null(), after["looks"].as_u64()),
        (true, Some(0)),
        "{after}"
    );
    // All earlier attempts are still in the log.
    assert!(rollout(&place, &["--since", "1d"])["arms"][1]["visits"].as_u64().unwrap() >= 80);
}

#[test]
fn a_better_learning_arm_stays_and_the_figures_add_up() {
    let place = TestDir::new();
    // The table routes every host to the fetcher that delivers nothing.
    let origin = site(&place, "cheap", "[tuning]\nrollout_min_pages = 20\nrollout_min_hosts = 5\n");
    let ran = place.run(&fetch(&pages(&place, &origin, "better", 6)));
    assert!(!ran.stderr.contains("FELL BACK"), "{}", ran.stderr);
    let found = rollout(&place, &[]);
    assert!(found["fallen_back"].is_null() && found["looks"].as_u64().unwrap() > 0, "{found}");
    assert_eq!(found["last_look"]["is_worse"], false);
    assert!(found["difference"]["success"]["ci_low"].as_f64().unwrap() > 0.0, "{found}");
    assert_eq!(found["stage"]["mode"], "split");
    let sum = |values: &[&Value]| values.iter().map(|value| value.as_f64().unwrap()).sum::<f64>();
    let is_one = |values: &[&Value]| assert!((sum(values) - 1.0).abs() < 1e-9, "{values:?}");
    let arms = found["arms"].as_array().unwrap();
    is_one(&[&arms[0]["share_of_visits"], &arms[1]["share_of_visits"]]);
    for arm in arms {
        is_one(&[&arm["shares"]["delivered"], &arm["shares"]["blocked"], &arm["shares"]["failed"]]);
        is_one(
            &arm["fetchers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|fetcher| &fetcher["share"])
                .collect::<Vec<_>>(),
        );
        let success = &arm["success"];
        assert_eq!(success["method"], "wilson_by_host");
        assert!(success["ci_low"].as_f64() <= success["value"].as_f64(), "{success}");
    }
    is_one(&[&found["agreement"]["agreed_share"], &found["agreement"]["differed_share"]]);
    // The visits of both arms are the first attempts in the log.
    let exported = place.run(&["export"]).json();
    let mut begun: HashMap<String, u64> = HashMap::new();
    for attempt in exported.iter().filter(|attempt| attempt["try_no"] == 1) {
        *begun.entry(attempt["arm"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    for arm in arms {
        assert_eq!(
            arm["visits"].as_u64(),
            begun.get(arm["arm"].as_str().unwrap()).copied(),
            "{begun:?}"
        );
    }
}

#[test]
fn a_disabled_guard_keeps_a_worse_arm_in_service() {
    let place = TestDir::new();
    let origin = site(&place, "direct_access", &format!("{WORSE}[rollout]\nfall_back = false\n"));
    let ran = place.run(&fetch(&pages(&place, &origin, "off", 4)));
    assert!(!ran.stderr.contains("FELL BACK"), "{}", ran.stderr);
    assert!(rollout(&place, &[])["fallen_back"].is_null());
}

#[test]
fn mode_share_and_table_change_under_load_without_a_dropped_request() {
    let place = TestDir::new();
    let origin = site(&place, "direct_access", "[rollout]\nfall_back = false\n");
    for n in 0..HOSTS {
        origin.set_site(&host(n), Site::slow(Duration::from_millis(40)));
    }
    let config = std::fs::read_to_string(place.path("c.toml")).unwrap();
    // Without the fetcher that delivers nothing, each page is delivered by either arm.
    let config = config.split("[[fetcher]]\nname = 'cheap'").next().unwrap().to_owned();
    let write = |mode: &str, share: &str| {
        let text = config.replace("mode = 'split'", mode).replace("split_share = 0.5", share);
        place.write("c.toml", text)
    };
    write("mode = 'legacy'", "");
    let input = pages(&place, &origin, "load", 30);
    let mut child = place.spawn(&fetch(&input));
    let (results, messages) =
        (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let mut seen: Vec<Value> = Vec::new();
    let mut take = |many: usize| {
        for _ in 0..many {
            let line = results.recv_timeout(crate::support::PATIENCE).unwrap();
            seen.push(serde_json::from_str(&line).unwrap());
        }
    };
    let hang_up = |expected: &str| {
        send_signal(&child, "-HUP");
        wait_for(&messages, expected);
    };
    for (mode, share, words) in [
        ("mode = 'shadow'", "", ": mode shadow"),
        ("mode = 'split'", "split_share = 0.25", ": mode split, 25.0 % of the hosts"),
        ("mode = 'splat'", "", "settings are unchanged"),
        ("mode = 'split'", "split_share = 7.0", "invalid split_share 7.0: expected 0 to 1"),
        ("mode = 'learning'", "", ": mode learning"),
    ] {
        take(40);
        write(mode, share);
        hang_up(words);
    }
    place.write("routes.csv", format!("domain,fetcher\n{},nobody\n", host(0)));
    hang_up("routes.csv, line 2: the route of 127.0.72.1: unknown fetcher \"nobody\"");
    take(HOSTS * 30 - 200);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(seen.len(), HOSTS * 30);
    assert!(
        seen.iter().all(|result| result["success"] == true),
        "{:?}",
        seen.iter().find(|r| r["success"] != true)
    );
    for n in 0..HOSTS {
        for page in 0..30 {
            assert_eq!(origin.hits_at(&host(n), &format!("/load/{page}")), 1, "each page once");
        }
    }
    // The arm of each attempt is the one that served it.
    let mut arms: HashMap<(Option<&str>, bool), u64> = HashMap::new();
    let exported = place.run(&["export"]).json();
    for attempt in &exported {
        *arms.entry((attempt["arm"].as_str(), attempt["shadow_fetcher"].is_null())).or_default() +=
            1;
        assert_eq!(attempt["source"] == "hard_coded", attempt["arm"] == "legacy", "{attempt}");
    }
    for kind in
        [(Some("legacy"), true), (Some("legacy"), false), (Some("learning"), false), (None, true)]
    {
        assert!(arms.get(&kind).is_some_and(|count| *count > 0), "{kind:?}: {arms:?}");
    }
}

/// A signal that arrived while the log was being read ended the process, because nothing listened
/// yet.
#[cfg(target_os = "linux")]
#[test]
fn an_early_signal_is_handled_once_the_crawler_runs() {
    let place = TestDir::new();
    let origin = site(&place, "direct_access", "");
    let mut child = place.command(&fetch("-")).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let (results, messages) =
        (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    // The process listens once it catches the signal, as the system reports.
    let status = format!("/proc/{}/status", child.id());
    let catches = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let mask =
            text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap() & 1 == 1
    };
    while !catches() {
        std::thread::sleep(Duration::from_millis(1));
    }
    send_signal(&child, "-HUP");
    wait_for(&messages, ": mode split");
    std::io::Write::write_all(&mut input, format!("{}\n", origin.url(&host(0), "/x")).as_bytes())
        .unwrap();
    // Either arm may serve it, with any result (so the exit code is 0 or 4): the crawler lives.
    assert!(results.recv_timeout(crate::support::PATIENCE).unwrap().contains("/x"));
    drop(input);
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 4)));
}

#[test]
fn a_running_crawler_applies_resume() {
    let place = TestDir::new();
    let origin = site(&place, "direct_access", WORSE);
    // All decisions at once, as above: otherwise learning may learn in time.
    place.run(
        &[&fetch(&pages(&place, &origin, "first", 8))[..], &["--concurrency", "320"]].concat(),
    );
    let mut child = place.command(&fetch("-")).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    let messages = lines(child.stderr.take().unwrap());
    wait_for(&messages, "learning is out of service since");
    assert_eq!(place.run(&["rollout", "--resume", "--json"]).one()["resumed"], true);
    wait_for(&messages, "learning is back in service");
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn learned_evidence_is_exported_as_a_table_that_can_be_read() {
    let place = TestDir::new();
    let attempt = |host: &str, fetcher: &str, n: i64, success: bool| {
        json!({"url": format!("https://{host}/{n}"), "fetcher": fetcher, "success": success,
               "error_type": if success { Value::Null } else { "empty_content".into() }, "attempted_at": now() - n * 1000})
    };
    let mut all: Vec<Value> =
        (0..12).map(|n| attempt("www.spa.example", "playwright", n, true)).collect();
    all.extend((0..12).map(|n| attempt("spa.example", "direct_access", n, false)));
    all.extend((0..12).map(|n| attempt("static.example", "direct_access", n, true)));
    all.push(attempt("new.example", "direct_access", 1, true));
    place.import(all);
    let summary = place.run(&["export", "--router", "learned.csv", "--json"]).one();
    assert_eq!(
        (summary["routes"].as_u64(), summary["left_out"].as_u64()),
        (Some(2), Some(1)),
        "{summary}"
    );
    let text = std::fs::read_to_string(place.path("learned.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["domain", "fetcher", "confidence", "attempts"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1][3]), ("spa.example", "playwright", "12"));
    assert_eq!((rows[2][0], rows[2][1], rows[2][3]), ("static.example", "direct_access", "12"));
    assert!(rows[1][2].parse::<f64>().unwrap() > 0.6);
    // A table that people wrote is not overwritten by mistake.
    let again = place.run(&["export", "--router", "learned.csv"]);
    assert!(again.code == 2 && again.stderr.contains("--force"), "{}", again.stderr);
    assert_eq!(place.run(&["export", "--router", "learned.csv", "--force"]).code, 0);
    let toml = place.run(&["export", "--router", "-", "--format", "toml"]);
    place.write("learned.toml", &toml.stdout);
    for table in ["learned.csv", "learned.toml"] {
        let args =
            ["select", "--json", "--mode", "legacy", "--router", table, "https://spa.example/x"];
        let decided = place.run_with_browser(&args);
        assert_eq!(decided.one()["fetcher"], "playwright", "{table}: {}", decided.stderr);
        assert!(
            !decided.stderr.contains("unavailable"),
            "what export writes needs no warning: {}",
            decided.stderr
        );
    }
    assert_eq!(place.run(&["export", "--format", "toml"]).code, 2);
}

#[test]
fn a_table_has_domains_with_compacted_attempts() {
    let place = TestDir::new();
    let origin = Origin::start([(host(0), Site::Static)]).unwrap();
    let urls: String = (0..15).map(|n| origin.url(&host(0), &format!("/a/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let ran = place.run(&[
        "fetch",
        "--input",
        &input,
        "--allow-network",
        "127.0.0.0/8",
        "--no-browser",
        "--robots",
        "ignore",
        "--rate",
        "200",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let table = || place.run(&["export", "--router", "-"]).stdout;
    let before = table();
    assert!(
        before.lines().any(|line| line.starts_with(&format!("{},direct_access,", host(0)))),
        "{before}"
    );
    let compacted = place.run(&["compact", "--retain", "0", "--trust-clock", "--json"]).one();
    assert_eq!(compacted["attempts_after"], 0, "{compacted}");
    assert!(place.run(&["export"]).stdout.is_empty());
    assert_eq!(table(), before, "with the same number of attempts");
}

#[test]
fn a_table_may_have_more_columns_in_any_order_with_a_warning() {
    let place = TestDir::new();
    place.write("t.csv", "owner,fetcher,domain\nme,playwright,a.example\n");
    let args = ["select", "--json", "--mode", "legacy", "--router", "t.csv", "https://a.example/"];
    let decided = place.run_with_browser(&args);
    assert_eq!(decided.one()["fetcher"], "playwright");
    assert!(
        decided.stderr.contains("t.csv, line 1: ignored column \"owner\""),
        "{}",
        decided.stderr
    );
}

#[test]
fn an_unreadable_rollout_state_is_an_error() {
    let place = TestDir::new();
    place.import([
        json!({"url": "https://a.example/", "fetcher": "direct_access", "success": true, "attempted_at": now()}),
    ]);
    std::fs::write(place.data().join("rollout.json"), "{").unwrap();
    let ran = place.run(&["rollout"]);
    assert!(ran.code == 2 && ran.stderr.contains("rollout.json"), "{}", ran.stderr);
    std::fs::remove_file(place.data().join("rollout.json")).unwrap();
    let none = rollout_without_config(&place);
    assert_eq!(
        (none["arms"][0]["visits"].as_u64(), none["unknown"].as_u64()),
        (Some(0), Some(1)),
        "{none}"
    );
    assert_eq!(place.run(&["rollout", "--since", "soon"]).code, 2);
}

fn rollout_without_config(place: &TestDir) -> Value {
    place.run(&["rollout", "--json"]).one()
}
