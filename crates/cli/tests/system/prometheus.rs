//! A real Prometheus that scrapes a running server; its dashboard and alerts find the results of
//! the run.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::heuristic::Heuristic;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::CompactOptions;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::poll::{found, until_blocking};
use fetchwise_testsite::ports::on_a_free_port;
use fetchwise_testsite::program;
use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::Serializer;

use crate::support::{PATIENCE, TestDir, lines, wait_for};

/// Attempts of an earlier run: those that a compaction dropped, and those that it kept.
const OLD: u64 = 40;
const KEPT: u64 = 5;
/// Attempts that are posted, and how many of them were blocked.
const POSTED: u64 = 12;
const BLOCKED: u64 = 4;
/// Visits that deliver at their first request.
const VISITS: u64 = 6;

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ops(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops").join(file)
}

/// Makes a request to a server on loopback. HTTP/1.0, so that the response ends with the
/// connection.
fn ask(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: {address}\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, answer[end + 4..].to_vec())
}

fn post(address: &str, path: &str, body: &str) -> Value {
    let (status, _, answer) =
        ask(address, "POST", path, "content-type: application/json\r\n", body);
    let text = String::from_utf8(answer).unwrap();
    assert!((200..=201).contains(&status), "{path}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the result of an expression as Prometheus gives it.
fn query(prometheus: &str, expression: &str) -> Vec<Value> {
    let query = Serializer::new(String::new()).append_pair("query", expression).finish();
    let (status, _, answer) = ask(prometheus, "GET", &format!("/api/v1/query?{query}"), "", "");
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(status, 200, "{expression}: {answer}");
    match answer["data"]["resultType"].as_str().unwrap() {
        "vector" => answer["data"]["result"].as_array().unwrap().clone(),
        other => panic!("{expression}: a {other}"),
    }
}

/// Returns the value of an expression with one result; none without data.
fn number(prometheus: &str, expression: &str) -> Option<f64> {
    query(prometheus, expression)
        .first()
        .map(|row| row["value"][1].as_str().unwrap().parse().unwrap())
}

fn promtool(arguments: &[&str], dir: &Path) {
    let ran = Command::new("promtool").args(arguments).current_dir(dir).output();
    let ran = ran.expect("there is no promtool: .ci/prometheus installs it");
    let said =
        [ran.stdout, ran.stderr].map(|out| String::from_utf8_lossy(&out).into_owned()).concat();
    assert!(ran.status.success(), "promtool {arguments:?}: {said}");
}

/// Checks a page of metrics. promtool must not find anything.
fn lint(file: &Path, page: &str) {
    fs::write(file, page).unwrap();
    let linted = fs::File::open(file).unwrap();
    let parsed =
        Command::new("promtool").args(["check", "metrics"]).stdin(linted).output().unwrap();
    let said = [parsed.stdout, parsed.stderr]
        .map(|out| String::from_utf8_lossy(&out).into_owned())
        .concat();
    assert!(parsed.status.success() && said.is_empty(), "promtool finds: {said}");
}

/// The metrics of a crawl (`fetch --metrics`) have no server's page around them, and figures of
/// their own.
#[test]
fn the_metrics_of_a_crawl_pass_promtools_check() {
    let (place, host) = (TestDir::new(), "127.0.77.1");
    let origin =
        Origin::start([(host.to_owned(), Site::slow(Duration::from_millis(100)))]).unwrap();
    let urls: String = (0..500).map(|n| origin.url(host, &format!("/{n}\n"))).collect();
    let input = place.write("urls.txt", urls);
    let fetch =
        ["fetch", "--json", "--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore"];
    let more = ["--concurrency", "2", "--metrics", "127.0.0.1:0", "--input", &input];
    let mut crawl = Running(place.spawn(&[&fetch[..], &more].concat()));
    let results = lines(crawl.0.stdout.take().unwrap());
    let said = lines(crawl.0.stderr.take().unwrap());
    let line = wait_for(&said, "http://");
    let address = line.split("http://").nth(1).unwrap().strip_suffix("/metrics").unwrap();
    results.recv_timeout(PATIENCE).unwrap();
    let (status, head, page) = ask(address, "GET", "/metrics", "accept: text/plain\r\n", "");
    let page = String::from_utf8(page).unwrap();
    assert!(status == 200 && head.contains("text/plain"), "{head}");
    assert!(
        page.contains("\nfetchwise_crawl_queue_links ")
            && page.contains("\nfetchwise_attempts_total{"),
        "{page}"
    );
    lint(&place.path("crawl.txt"), &page);
}

/// A log with attempts that a compaction dropped, so that its metrics exist.
fn earlier_run(dir: &Path) {
    let now = Timestamp::now();
    let old = Timestamp::from_millis(now.as_millis() - 200 * 86_400_000);
    let selector = Selector::builder().journal(dir).build().unwrap();
    for n in 0..OLD + KEPT {
        let url = Url::parse(&format!("https://old.example/{n}")).unwrap();
        let at = if n < OLD { old } else { now };
        selector.record(Attempt::new(&url, "direct_access", at).unwrap().delivered(), now).unwrap();
    }
    drop(selector);
    let fresh = Selector::builder().build().unwrap();
    let done =
        maintenance::compact(dir, &fresh, &CompactOptions::default(), now, &mut |_, _| {}).unwrap();
    assert_eq!(done.attempts, (OLD + KEPT, KEPT));
}

/// A server that is a node of the fleet over `broker`.
fn serve(dir: &Path, broker: &str) -> (Running, String) {
    let mut server = program::command(env!("CARGO_BIN_EXE_fetchwise"), dir.parent().unwrap())
        .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .args(["--fleet", broker])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    (Running(server), said["listening"].as_str().unwrap().to_owned())
}

/// A Prometheus with the repository's configuration, except address and scrape interval.
fn prometheus(dir: &Path, target: &str) -> (Running, String) {
    for file in ["alerts.yml", "prometheus.yml"] {
        let text = fs::read_to_string(ops("prometheus").join(file)).unwrap();
        let text =
            text.replace("127.0.0.1:7117", target).replace("_interval: 15s", "_interval: 1s");
        assert!(
            file != "prometheus.yml" || text.contains(target) && text.contains("interval: 1s"),
            "{text}"
        );
        fs::write(dir.join(file), text).unwrap();
    }
    on_a_free_port(Ipv4Addr::LOCALHOST.into(), |address| {
        let address = address.to_string();
        let child = Command::new("prometheus")
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
            .args(["--enable-feature=native-histograms", "--log.level=warn"])
            .spawn()
            .expect("there is no prometheus: .ci/prometheus installs it");
        let mut running = Running(child);
        let is_ready = found("Prometheus is ready", || {
            if running.0.try_wait().unwrap().is_some() {
                return Ok(false);
            }
            let listens = TcpStream::connect(&address).is_ok();
            if listens && ask(&address, "GET", "/-/ready", "", "").0 == 200 {
                Ok(true)
            } else {
                Err("not ready")
            }
        });
        is_ready.then_some((running, address))
    })
}

/// One round of everything that a crawler does over HTTP.
fn crawl(server: &str, round: u64) {
    let line = |n: u64| {
        let is_blocked = n < BLOCKED;
        let error = if is_blocked { json!(ErrorKind::BlockedCaptcha.name()) } else { Value::Null };
        let shown = if is_blocked { "block_datadome\"} 1\n" } else { "status_200" };
        let tag = Heuristic::flag(shown);
        json!({
            "url": format!("https://posted{round}.example/{n}"), "fetcher": "playwright", "success": !is_blocked,
            "attempted_at": fetchwise::rfc3339::format(Timestamp::now()), "is_banned": is_blocked, "error_type": error, "duration_ms": 700 + n, "http_status": if is_blocked { 403 } else { 200 },
            "heuristics": [{ "type": tag.kind, "value": tag.value }],
        })
        .to_string()
    };
    let lines: Vec<String> = (0..POSTED).map(line).collect();
    assert_eq!(post(server, "/v1/attempts", &lines.join("\n"))["accepted"], POSTED);
    post(
        server,
        "/v1/select",
        &json!({ "urls": ["https://old.example/x", "https://new.example/"] }).to_string(),
    );
    for n in 0..VISITS {
        let begun = post(
            server,
            "/v1/visits",
            &json!({ "url": format!("https://visit{round}-{n}.example/") }).to_string(),
        );
        let (visit, step) = (begun["visit"].as_str().unwrap(), &begun["step"]);
        assert_eq!(step["kind"], "fetch", "{begun}");
        let report = json!({ "outcome": "content", "status": 200, "duration_ms": 120 }).to_string();
        let ended = post(server, &format!("/v1/visits/{visit}/report"), &report);
        assert_eq!(ended["step"]["end"], "delivered", "{ended}");
    }
}

/// Returns all expressions of the dashboard, with its variables filled in.
fn expressions_of_dashboard() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(ops("grafana/fetchwise.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let of = |panel: &Value| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets
            .into_iter()
            .map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    };
    let put_in = |text: String| {
        let text =
            text.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*");
        assert!(!text.contains('$'), "a variable that is not put in: {text}");
        text
    };
    panels.flat_map(of).map(|(title, text)| (title, put_in(text))).collect()
}

#[test]
fn alerts_are_rules_that_fire_when_they_should() {
    let dir = ops("prometheus");
    promtool(&["check", "rules", "alerts.yml"], &dir);
    promtool(&["check", "config", "prometheus.yml"], &dir);
    promtool(&["test", "rules", "alerts_test.yml"], &dir);
    let (alerts, tests) = (
        fs::read_to_string(dir.join("alerts.yml")).unwrap(),
        fs::read_to_string(dir.join("alerts_test.yml")).unwrap(),
    );
    let reference = include_str!("../../../../docs/reference/metrics.md");
    let names: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let tried = |how: &str| tests.contains(&format!("- name: {name}, {how}\n"));
        assert!(tried("fires") && tried("does not fire"), "{name} is not tried out");
        assert!(
            reference.contains(&format!("| {name} | ")),
            "docs/reference/metrics.md does not say what to do about {name}"
        );
    }
}

#[test]
fn a_real_prometheus_finds_the_results_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    earlier_run(&data);
    let brokers = crate::brokers::Servers::start(1);
    let broker = brokers.urls().join(",");
    let (_server, server) = serve(&data, &broker);
    let (_prometheus, prometheus) = prometheus(dir.path(), &server);
    until_blocking("the first scrape", || {
        number(&prometheus, "up{job=\"fetchwise\"} == 1").is_some()
    });
    crawl(&server, 1);
    let attempts = |rounds: u64| (OLD + KEPT + rounds * (POSTED + VISITS)) as f64;
    let total = "sum(fetchwise_attempts_total)";
    until_blocking("the first round", || number(&prometheus, total) == Some(attempts(1)));
    crawl(&server, 2);
    until_blocking("the second round", || number(&prometheus, total) == Some(attempts(2)));

    // Attempts of another node of the fleet are counted as evidence, not as attempts of this one.
    let (_other, other) = serve(&dir.path().join("other"), &broker);
    crawl(&other, 3);
    let learned = "fetchwise_fleet_received_attempts_total{result=\"learned\"}";
    until_blocking("the other node", || {
        number(&prometheus, learned) == Some((POSTED + VISITS) as f64)
    });
    // The nodes' table is read only periodically.
    until_blocking("the other node's word", || {
        number(&prometheus, "fetchwise_fleet_peers{state=\"present\"}") == Some(1.0)
    });
    // Compacted attempts, and those before the node joined, are in its evidence snapshot.
    let published =
        "fetchwise_fleet_published_attempts_total and fetchwise_fleet_unpublished_records == 0";
    let since = attempts(2) - (OLD + KEPT) as f64;
    until_blocking("what it publishes", || number(&prometheus, published) == Some(since));
    assert_eq!(number(&prometheus, total), Some(attempts(2)));

    // A native histogram has a count without a separate series.
    let count = "sum(histogram_count(fetchwise_attempt_duration_seconds))";
    assert_eq!(
        number(&prometheus, count),
        Some(attempts(2) - (OLD + KEPT) as f64),
        "native histograms"
    );
    assert_eq!(query(&prometheus, "fetchwise_attempt_duration_seconds_bucket"), [] as [Value; 0]);
    let median =
        "histogram_quantile(0.5, sum(fetchwise_attempt_duration_seconds{fetcher=\"playwright\"}))";
    let median = number(&prometheus, median).unwrap();
    assert!((0.64..=0.78).contains(&median), "{median} s: within one bucket of 0.7 s");
    let blocked = format!("fetchwise_blocks_total{{vendor=~\"datadome.*\"}} == {}", 2 * BLOCKED);
    let blocked = query(&prometheus, &blocked);
    assert_eq!(blocked.len(), 1, "a vendor's name is one text");
    assert_eq!(blocked[0]["metric"]["vendor"], "datadome\"} 1\u{fffd}");

    for (title, expression) in expressions_of_dashboard() {
        let rows = query(&prometheus, &expression);
        assert!(!rows.is_empty(), "{title}: no data for {expression}");
    }
    until_blocking("all rules", || {
        let (_, _, answer) = ask(&prometheus, "GET", "/api/v1/rules", "", "");
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let rules = answer["data"]["groups"][0]["rules"].as_array().unwrap().clone();
        assert!(rules.iter().all(|rule| rule["health"] != "err"), "{rules:#?}");
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
    });

    // A client that requests text gets the same numbers with classic buckets.
    let (status, head, page) = ask(&server, "GET", "/metrics", "accept: text/plain\r\n", "");
    let page = String::from_utf8(page).unwrap();
    assert!(status == 200 && head.contains("text/plain"), "{head}");
    lint(&dir.path().join("page.txt"), &page);
    assert!(page.contains("fetchwise_attempt_duration_seconds_bucket{le=\"+Inf\""));
    let counted = page.lines().filter(|line| line.starts_with("fetchwise_attempts_total{"));
    let counted: f64 =
        counted.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!(counted, attempts(2));
}
