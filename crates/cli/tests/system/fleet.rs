//! The program as a node of a fleet: attempts of one process are known to the others, and exit
//! codes report a failure to join.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use fetchwise_testsite::poll::{found, found_within};
use fetchwise_testsite::ports::RefusingPort;
use fetchwise_testsite::program;
use serde_json::Value;

use crate::brokers::Servers;

/// A site with one page at every path. Its thread ends with the process.
fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let body = format!(
                    "<html><title>A page</title><h1>A page</h1><p>{}</p></html>",
                    "some words ".repeat(300)
                );
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n",
                    body.len()
                );
                let _ =
                    stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes());
            });
        }
    });
    format!("http://{address}")
}

fn fetchwise(dir: &Path, url: &str, words: &[&str]) -> Command {
    let mut command = program::command(env!("CARGO_BIN_EXE_fetchwise"), dir.parent().unwrap());
    command.args(words).arg("--data-dir").arg(dir).arg("--json").env("FETCHWISE_FLEET", url);
    command
}

fn run(dir: &Path, url: &str, words: &[&str]) -> Output {
    fetchwise(dir, url, words).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", said(output));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn fetch<'a>(page: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["fetch", page, "--allow-private-network", "--no-browser"], more].concat()
}

/// A server of a node, which ends on drop.
struct Serving(Child);

impl Serving {
    fn start(dir: &Path, url: &str) -> Self {
        let mut child = fetchwise(dir, url, &["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0];
        // It prints its address once it has joined.
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        Self(child)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (name, kind) = (to.join(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() {
            copy(&entry.path(), &name);
        } else if kind.is_file() {
            // The socket by which a command reaches the process stays with the process.
            std::fs::copy(entry.path(), name).unwrap();
        }
    }
}

struct TestDir {
    folder: tempfile::TempDir,
    servers: Servers,
}

impl TestDir {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), servers: Servers::start(1) }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self) -> String {
        self.servers.urls().join(",")
    }
}

#[test]
fn attempts_of_one_node_are_known_to_another() {
    let (place, site) = (TestDir::new(), site());
    let (a, b, url) = (place.dir("a"), place.dir("b"), place.url());
    let made = run(&a, &url, &["fleet", "init"]);
    assert_eq!(
        String::from_utf8_lossy(&made.stdout).matches("\"created\"").count(),
        8,
        "{}",
        said(&made)
    );
    assert_eq!(
        String::from_utf8_lossy(&run(&a, &url, &["fleet", "init"]).stdout)
            .matches("\"exists\"")
            .count(),
        8
    );
    let page = format!("{site}/page.html");
    assert_eq!(json(&run(&a, &url, &fetch(&page, &[])))["success"], true);
    let status = json(&run(&b, &url, &["fleet", "status", "--wait", "30s"]));
    assert!(
        status["converged"].as_bool().unwrap()
            && status["broker"].as_bool().unwrap()
            && status["withheld"] == 0
    );
    let peer = &status["peers"][0];
    assert!(peer["position"].as_u64().unwrap() > 0 && peer["missing_records"] == 0, "{status}");
    assert!(
        ["node", "snapshot_position", "lag_s", "version"]
            .iter()
            .all(|field| !peer[field].is_null()),
        "{peer}"
    );
    let explained = json(&run(&b, &url, &["explain", &page, "--no-browser"]));
    let steps = explained["steps"].as_array().unwrap();
    let of = |field: &str| steps.iter().filter_map(|step| step[field].as_f64()).sum::<f64>();
    assert!(of("peer_total") > 0.5 && of("own_total") == 0.0, "{explained}");
    // Excluded, and counted again.
    let node = peer["node"].as_str().unwrap();
    for (word, counts) in [("exclude", false), ("include", true)] {
        assert_eq!(code(&run(&b, &url, &["fleet", word, node])), 0);
        let status = json(&run(&b, &url, &["fleet", "status", "--wait", "30s"]));
        assert_eq!(status["peers"][0]["excluded"], !counts, "{status}");
    }
    // Forgotten on one node, forgotten on the other.
    assert_eq!(code(&run(&a, &url, &["forget", "--domain", "127.0.0.1"])), 0);
    run(&b, &url, &["fleet", "status", "--wait", "30s"]);
    found("the other node forgets the domain", || {
        json(&run(&b, &url, &["fleet", "status", "--wait", "2s"]));
        let explained = json(&run(&b, &url, &["explain", &page, "--no-browser"]));
        let steps = explained["steps"].as_array().unwrap();
        let of_domain = steps.iter().filter(|step| step["type"] == "domain");
        let left: f64 = of_domain.filter_map(|step| step["total"].as_f64()).sum();
        if left == 0.0 { Ok(()) } else { Err(left) }
    });
    let owner = json(&run(&b, &url, &["fleet", "owner", &page]));
    assert!(owner["owner"].is_string(), "{owner}");
    assert_eq!(code(&run(&a, &url, &["fleet", "leave"])), 0);
}

#[test]
fn a_node_that_may_not_join_fails() {
    let (place, site) = (TestDir::new(), site());
    let (a, url) = (place.dir("a"), place.url());
    let page = format!("{site}/page.html");
    let serving = Serving::start(&a, &url);
    let status = json(&run(&a, &url, &["fleet", "status", "--wait", "20s"]));
    assert_eq!(
        status["converged"], true,
        "alongside a server it shows the state of that process: {status}"
    );
    let copied = place.dir("copied");
    copy(&a, &copied);
    let _ = std::fs::remove_file(copied.join("fleet.status.json"));
    let twin = run(&copied, &url, &fetch(&page, &[]));
    assert_eq!(code(&twin), 3, "{}", said(&twin));
    assert!(said(&twin).contains("already in the fleet"), "{}", said(&twin));
    let config = place.dir("other.toml");
    std::fs::write(&config, "tuning.half_life_days = 90\n").unwrap();
    let config = config.to_str().unwrap();
    let other = run(&place.dir("other"), &url, &fetch(&page, &["--config", config]));
    assert_eq!(code(&other), 2, "{}", said(&other));
    assert!(said(&other).contains("half-life"), "{}", said(&other));
    drop(serving);
    // Without a broker a crawl continues, unless the broker is required.
    let refusing = RefusingPort::on(Ipv4Addr::LOCALHOST).unwrap();
    let nobody = format!("nats://{}", refusing.address());
    let alone = run(&place.dir("alone"), &nobody, &fetch(&page, &[]));
    assert_eq!(json(&alone)["success"], true);
    assert!(said(&alone).contains("continues alone"), "{}", said(&alone));
    let required = place.dir("required.toml");
    std::fs::write(&required, "[fleet]\nrequired = true\n").unwrap();
    let failed =
        run(&place.dir("alone"), &nobody, &fetch(&page, &["--config", required.to_str().unwrap()]));
    assert_eq!(code(&failed), 1, "{}", said(&failed));
    let far = run(&place.dir("alone"), "nats://me:secret@broker.example", &fetch(&page, &[]));
    assert_eq!(code(&far), 2, "{}", said(&far));
    assert!(said(&far).contains("tls://") && !said(&far).contains("secret"), "{}", said(&far));
}

#[test]
fn a_pool_of_scope_own_shares_global_evidence() {
    let (place, site) = (TestDir::new(), site());
    let (a, b, url) = (place.dir("a"), place.dir("b"), place.url());
    let config = place.dir("own.toml");
    std::fs::write(&config, "[fleet]\nscope = \"own\"\n").unwrap();
    let config = config.to_str().unwrap();
    let page = format!("{site}/page.html");
    assert_eq!(json(&run(&a, &url, &fetch(&page, &["--config", config])))["success"], true);
    let left = run(&a, &url, &["fleet", "leave", "--config", config]);
    assert_eq!(code(&left), 0, "{}", said(&left));
    let status = json(&run(&b, &url, &["fleet", "status", "--wait", "90s", "--config", config]));
    assert!(
        status["scope"] == "own" && status["converged"] == true && status["handover_pending"] == 0,
        "{status}"
    );
    assert!(
        status["peers"][0]["position"].as_u64().unwrap() > 0
            && status["counts"]["global_snapshots_applied"] == 1,
        "{status}"
    );
    let explained =
        json(&run(&b, &url, &["explain", "https://another.example/page.html", "--no-browser"]));
    let steps = explained["steps"].as_array().unwrap();
    let of = |field: &str| steps.iter().filter_map(|step| step[field].as_f64()).sum::<f64>();
    assert!(of("peer_total") > 0.5 && of("own_total") == 0.0, "{explained}");
    // A node that reads everything belongs to another pool.
    let other = run(&place.dir("other"), &url, &fetch(&page, &[]));
    assert_eq!(code(&other), 2, "{}", said(&other));
    assert!(said(&other).contains("the scope own, this one has all"), "{}", said(&other));
}

/// Attempts at pages of `domain`, some of which deliver, as a file for `import`.
fn attempts(place: &TestDir, name: &str, hosts: &[(&str, usize, usize)]) -> PathBuf {
    let at =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let mut lines = String::new();
    for (domain, good, bad) in hosts {
        for n in 0..good + bad {
            let error = if n < *good { serde_json::Value::Null } else { "blocked_403".into() };
            let line = serde_json::json!({
                "url": format!("https://{domain}/{name}/{n}.html"), "fetcher": "direct_access", "success": n < *good,
                "error_type": error, "is_banned": n >= *good, "attempted_at": at as u64, "duration_ms": 20,
            });
            lines.push_str(&format!("{line}\n"));
        }
    }
    let file = place.dir(&format!("{name}.jsonl"));
    std::fs::write(&file, lines).unwrap();
    file
}

/// Imports into a directory outside the fleet.
fn import(place: &TestDir, name: &str, hosts: &[(&str, usize, usize)]) -> PathBuf {
    let (dir, file) = (place.dir(name), attempts(place, name, hosts));
    let mut command = fetchwise(&dir, "", &["import", file.to_str().unwrap()]);
    let done = command.env_remove("FETCHWISE_FLEET").output().unwrap();
    assert_eq!(code(&done), 0, "{}", said(&done));
    dir
}

fn rows(output: &Output) -> Vec<Value> {
    assert_eq!(code(output), 0, "{}", said(output));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn imported_attempts_are_known_to_other_nodes() {
    let place = TestDir::new();
    let (url, b) = (place.url(), place.dir("b"));
    let foreign = |dir: &Path| -> u64 {
        assert_eq!(json(&run(dir, &url, &["fleet", "status", "--wait", "30s"]))["converged"], true);
        let rows = rows(&run(dir, &url, &["stats"]));
        rows.first().map_or(0, |row| row["peer_attempts"].as_u64().unwrap())
    };
    // By the option, and by the environment.
    let (a, first) = (place.dir("a"), attempts(&place, "first", &[("imported.example", 40, 10)]));
    let mut command = fetchwise(&a, "", &["import", first.to_str().unwrap(), "--fleet", &url]);
    let done = json(&command.env_remove("FETCHWISE_FLEET").output().unwrap());
    assert_eq!((&done["imported"], &done["fleet_notified"]), (&50.into(), &true.into()), "{done}");
    assert_eq!(foreign(&b), 50);
    let explained =
        json(&run(&b, &url, &["explain", "https://imported.example/x", "--no-browser"]));
    let of_domain = explained["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|step| step["type"] == "domain")
        .unwrap();
    assert!(of_domain["peer_total"].as_f64().unwrap() > 49.0, "{explained}");
    let again = json(&run(&a, &url, &["import", first.to_str().unwrap()]));
    assert_eq!((&again["imported"], &again["duplicates"]), (&0.into(), &50.into()), "{again}");
    // Without a broker it is imported, and published later.
    let refusing = RefusingPort::on(Ipv4Addr::LOCALHOST).unwrap();
    let nobody = format!("nats://{}", refusing.address());
    let second = attempts(&place, "second", &[("later.example", 7, 0)]);
    let alone = run(&a, &nobody, &["import", second.to_str().unwrap()]);
    assert_eq!(
        (&json(&alone)["imported"], &json(&alone)["fleet_notified"]),
        (&7.into(), &false.into())
    );
    assert!(said(&alone).contains("next joins the fleet"), "{}", said(&alone));
    assert_eq!(foreign(&b), 50);
    foreign(&a);
    assert_eq!(foreign(&b), 57);
    // A node that may not join imports nothing.
    let config = place.dir("other.toml");
    std::fs::write(&config, "tuning.half_life_days = 90\n").unwrap();
    let words = ["import", first.to_str().unwrap(), "--config", config.to_str().unwrap()];
    let other = run(&place.dir("other"), &url, &words);
    assert_eq!(code(&other), 2, "{}", said(&other));
    assert!(rows(&run(&place.dir("other"), &url, &["stats"])).is_empty());
}

#[test]
fn attempts_of_peers_are_counted_separately() {
    let place = TestDir::new();
    let url = place.url();
    let a = import(&place, "a", &[("shared.example", 6, 2), ("theirs.example", 3, 0)]);
    let b = import(&place, "b", &[("shared.example", 1, 3)]);
    let before = rows(&run(&b, &url, &["stats"]));
    assert!(
        before[0].get("peer_attempts").is_none(),
        "a directory that has been in no fleet: {before:?}"
    );
    for dir in [&a, &b, &a] {
        assert_eq!(json(&run(dir, &url, &["fleet", "status", "--wait", "30s"]))["converged"], true);
    }
    let by_domain = |dir: &Path| rows(&run(dir, &url, &["stats", "--by", "domain"]));
    // The counts and results are the same, whether they come one by one or in an evidence snapshot.
    let figures = |row: &Value| {
        ["attempts", "own_attempts", "peer_attempts"].map(|field| row[field].as_u64().unwrap())
    };
    let is_about = |row: &Value, field: &str, rate: f64| {
        assert!((row[field].as_f64().unwrap() - rate).abs() < 0.01, "{field}: {row}");
    };
    let of_b = by_domain(&b);
    assert_eq!((of_b[0]["key"].as_str(), figures(&of_b[0])), (Some("shared.example"), [4, 4, 8]));
    is_about(&of_b[0], "peer_success_rate", 0.75);
    is_about(&of_b[0], "peer_ban_rate", 0.25);
    assert_eq!(figures(&by_domain(&a)[0]), [8, 8, 4]);
    let all = rows(&run(&a, &url, &["stats"]));
    assert_eq!((all.len(), figures(&all[0])), (1, [11, 11, 4]));
    let shown = program::command(env!("CARGO_BIN_EXE_fetchwise"), &place.dir(""))
        .args(["stats", "--data-dir"])
        .arg(&b)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("others' attempts"), "{shown:?}");

    let query =
        |dir: &Path, heuristic: &str| rows(&run(dir, &url, &["query", "--where", heuristic]));
    let [row] = query(&b, "domain=shared.example").try_into().unwrap();
    assert_eq!(
        ["attempts", "own_attempts", "peer_attempts"].map(|f| row[f].as_u64().unwrap()),
        [4, 4, 8],
        "{row}"
    );
    is_about(&row, "success_rate", 0.25);
    is_about(&row, "peer_success_rate", 0.75);
    let weight = row["peer_decayed_attempts"].as_f64().unwrap();
    assert!((weight - 8.0).abs() < 0.01, "{row}");
    let [row] = query(&b, "domain=theirs.example").try_into().unwrap();
    assert_eq!(
        (row["fetcher"].as_str(), row["attempts"].as_u64(), row["peer_attempts"].as_u64()),
        (Some("direct_access"), Some(0), Some(3))
    );

    // A later node takes the snapshots of both, and knows the number and results of their attempts.
    let late = import(&place, "late", &[("shared.example", 1, 0)]);
    json(&run(&late, &url, &["fleet", "status", "--wait", "30s"]));
    let of_late = by_domain(&late);
    assert_eq!(
        (of_late[0]["own_attempts"].as_u64(), of_late[0]["peer_attempts"].as_u64()),
        (Some(1), Some(12))
    );
    let rate = of_late[0]["peer_success_rate"].as_f64().unwrap();
    assert!((rate - 7.0 / 12.0).abs() < 0.01, "{of_late:?}");
    for by in ["all", "fetcher"] {
        let all = match by {
            "all" => rows(&run(&late, &url, &["stats"])),
            by => rows(&run(&late, &url, &["stats", "--by", by])),
        };
        assert_eq!((all.len(), all[0]["peer_attempts"].as_u64()), (1, Some(15)), "{by}: {all:?}");
    }

    // A domain is forgotten in a directory without a running node or broker: in single attempts and
    // in snapshots.
    for (dir, attempts, nodes) in [(&b, 3, 0), (&late, 0, 1)] {
        assert_eq!(query(dir, "domain=theirs.example").len(), 1);
        let mut forget = program::command(env!("CARGO_BIN_EXE_fetchwise"), dir.parent().unwrap());
        let done = forget
            .args(["forget", "--domain", "theirs.example", "--json", "--data-dir"])
            .arg(dir)
            .output()
            .unwrap();
        let told: Value = serde_json::from_slice(&done.stdout).unwrap();
        let figures = ["attempts", "peer_attempts", "peer_snapshot_nodes"]
            .map(|field| told[field].as_u64().unwrap());
        assert_eq!(
            (figures, &told["fleet_notified"]),
            ([0, attempts, nodes], &Value::Bool(false)),
            "{told}"
        );
        assert!(query(dir, "domain=theirs.example").is_empty(), "{dir:?}");
        assert!(by_domain(dir).iter().all(|row| row["key"] != "theirs.example"));
        let explained = json(&run(dir, &url, &["explain", "https://theirs.example/1"]));
        let steps = explained["steps"].as_array().unwrap();
        assert!(!steps.is_empty(), "{explained}");
        let is_own = |step: &&Value| ["domain", "site"].contains(&step["type"].as_str().unwrap());
        let known: f64 =
            steps.iter().filter(is_own).map(|step| step["exact_total"].as_f64().unwrap()).sum();
        assert_eq!(known, 0.0, "{explained}");
    }
    // What it had in common with others disappears as far as attempts are known one by one.
    assert_eq!(figures(&rows(&run(&b, &url, &["stats"]))[0]), [4, 4, 8]);
    // The node notifies the others when it next joins.
    json(&run(&b, &url, &["fleet", "status", "--wait", "30s"]));
    json(&run(&a, &url, &["fleet", "status", "--wait", "30s"]));
    assert!(by_domain(&a).iter().all(|row| row["key"] != "theirs.example"));
    let again = json(&run(&b, &url, &["fleet", "status", "--wait", "30s"]));
    assert_eq!(again["converged"], true, "nothing of it is waited for: {again}");

    // An excluded node does not count.
    let node = json(&run(&a, &url, &["fleet", "status"]))["node"].as_str().unwrap().to_owned();
    assert_eq!(code(&run(&b, &url, &["fleet", "exclude", &node])), 0);
    json(&run(&b, &url, &["fleet", "status", "--wait", "30s"]));
    let left = by_domain(&b);
    assert_eq!(figures(&left[0]), [4, 4, 1], "{left:?}");
}

/// Posts to the server of a directory.
fn post(dir: &Path, path: &str, body: &str) {
    let address = std::fs::read_to_string(dir.join("SERVE")).unwrap();
    let address = address.trim().trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.split(' ').nth(1) == Some("200"), "{answer}");
}

#[test]
fn a_lying_node_is_an_outlier_and_sites_are_divided_among_the_present() {
    let place = TestDir::new();
    let url = place.url();
    let names: Vec<String> = (0..12).map(|n| format!("s{n}.example")).collect();
    let honest: Vec<(&str, usize, usize)> =
        names.iter().map(|name| (name.as_str(), 18, 2)).collect();
    let lies: Vec<(&str, usize, usize)> = names.iter().map(|name| (name.as_str(), 2, 18)).collect();
    let dirs = ["a", "b", "c"].map(|name| place.dir(name));
    let serving = dirs.each_ref().map(|dir| Serving::start(dir, &url));
    // All nodes start before anything is recorded, so that attempts come one by one and not in a
    // snapshot.
    let status =
        |dir: &Path| json(&run(dir, &url, &["fleet", "status", "--outliers", "--wait", "30s"]));
    let once = |is: &dyn Fn(&Value) -> bool| {
        dirs.each_ref().map(|dir| {
            // Each look waits for up to half a minute.
            found_within(std::time::Duration::from_secs(300), "the state of the fleet", || {
                let status = status(dir);
                if is(&status) { Ok(status) } else { Err(status) }
            })
        })
    };
    once(&|status| status["syncing"] == false && status["peers"].as_array().unwrap().len() == 2);
    for (dir, hosts) in dirs.iter().zip([&honest, &honest, &lies]) {
        let file = attempts(&place, dir.file_name().unwrap().to_str().unwrap(), hosts);
        post(dir, "/v1/attempts", &std::fs::read_to_string(file).unwrap());
    }
    let all = once(&|status| {
        status["compared_nodes"] == 3
            && status["peers"]
                .as_array()
                .unwrap()
                .iter()
                .all(|peer| peer["position"].as_u64() >= Some(240))
            && status["converged"] == true
    });
    let origins: Vec<&str> = all.iter().map(|status| status["node"].as_str().unwrap()).collect();
    let alone = &all[0];
    assert_eq!(
        (&alone["compared_nodes"], &alone["shared_sites"]),
        (&3.into(), &12.into()),
        "{alone}"
    );
    let suspects = alone["outliers"].as_array().unwrap();
    assert_eq!(
        suspects.iter().map(|of| of["node"].as_str().unwrap()).collect::<Vec<_>>(),
        [origins[2]],
        "{alone}"
    );
    assert!(suspects[0]["sigma"].as_f64().unwrap() > 5.0 && suspects[0]["sites"] == 12, "{alone}");
    assert_eq!(suspects[0]["differences"][0]["success_rate"].as_f64(), Some(0.1), "{alone}");
    let asked = json(&run(&dirs[0], &url, &["fleet", "status"]));
    assert!(asked.get("outliers").is_none(), "only who asks is told");
    drop(serving);
    // None of the three runs any more, and all were present within ten minutes.
    let urls: Vec<String> = (0..60).map(|n| format!("https://site{n}.example/")).collect();
    let words: Vec<&str> =
        ["fleet", "owner"].into_iter().chain(urls.iter().map(String::as_str)).collect();
    let owners = rows(&run(&dirs[1], &url, &words));
    for origin in &origins {
        assert!(owners.iter().any(|row| row["owner"] == **origin), "{origin} owns nothing");
    }
}

/// Returns the metrics page at an address.
fn figures(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\nAccept: text/plain\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn a_crawl_counts_what_it_publishes() {
    let (place, site) = (TestDir::new(), site());
    let (a, url) = (place.dir("a"), place.url());
    let words = [
        "fetch",
        "--input",
        "-",
        "--allow-private-network",
        "--no-browser",
        "--metrics",
        "127.0.0.1:0",
    ];
    let mut crawl = fetchwise(&a, &url, &words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(crawl.stderr.take().unwrap()).lines();
    let address = said.find_map(|line| {
        Some(line.unwrap().split_once("http://")?.1.trim_end_matches("/metrics").to_owned())
    });
    let address = address.unwrap();
    // Read its later output, so that it never blocks.
    std::thread::spawn(move || said.for_each(drop));
    let mut input = crawl.stdin.take().unwrap();
    writeln!(input, "{site}/page.html").unwrap();
    // The input stays open, and so does the crawl.
    let page = found("an attempt is published", || {
        let page = figures(&address);
        let published = page
            .lines()
            .find_map(|line| line.strip_prefix("fetchwise_fleet_published_attempts_total "));
        let is_published = published.is_some_and(|facts| facts.parse::<f64>().unwrap() >= 1.0);
        if is_published { Ok(page) } else { Err(page) }
    });
    for name in [
        "broker_up 1",
        "epoch 1",
        "delay_seconds_bucket",
        "trials_total{result=\"made\"} 0",
        "published_bytes_total ",
    ] {
        assert!(page.contains(&format!("fetchwise_fleet_{name}")), "{name}: {page}");
    }
    drop(input);
    assert_eq!(crawl.wait().unwrap().code(), Some(0));
}
