//! Evidence that `max_keys` moved to disk: every reader of the log knows it, and a disk that fails
//! under it makes the server not ready.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use fetchwise_testsite::poll::until_blocking;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{Server, attempt, lines, program};

const SITES: usize = 1200;

/// Returns a directory with a config that keeps few keys in memory.
fn place() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("small.toml"), "max_keys = 60\n").unwrap();
    dir
}

/// A page of the site with this number: every second site delivers to a browser only.
fn url(site: usize) -> String {
    format!("https://site{site}.org/a/{}", site % 7)
}

/// Records what a crawl of these sites found.
fn record(server: &Server, sites: std::ops::Range<usize>) {
    let attempts: Vec<Value> = sites
        .flat_map(|site| {
            let is_plain = site % 2 == 0;
            // Without ids, equal attempts of one moment are one.
            let of = |page, fetcher, success| attempt(&(url(site) + page), fetcher, success);
            [
                of("1", "playwright", true),
                of("2", "direct_access", is_plain),
                of("3", "direct_access", is_plain),
            ]
        })
        .collect();
    let accepted = server.ask("POST", "/v1/attempts", &lines(&attempts)).of(200);
    assert_eq!(accepted["accepted"], attempts.len());
}

/// Returns what `select` prints about every site, without what changes with the second.
fn selected(dir: &TempDir, config: &[&str]) -> Vec<Value> {
    let mut command = program(dir);
    command.args(["select", "--json", "--all-fetchers", "-"]).args(config);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let urls: String = (0..SITES).map(|site| url(site) + "\n").collect();
    child.stdin.take().unwrap().write_all(urls.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let decided: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            json!([line["url"], line["action"], line["fetcher"]])
        })
        .collect();
    assert_eq!(decided.len(), SITES);
    decided
}

/// Returns the decision of an explanation and the attempts in each of its steps.
fn evidence(said: &Value) -> Value {
    let steps = said["steps"].as_array().unwrap().iter();
    let steps: Vec<Value> =
        steps.map(|step| json!([step["type"], step["fetcher"], step["attempts"]])).collect();
    json!([said["fetcher"], steps])
}

fn explained(dir: &TempDir, site: usize, config: &[&str]) -> Value {
    let output = program(dir)
        .args(["explain", "--json", "--all-fetchers", &url(site)])
        .args(config)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    evidence(&serde_json::from_slice(&output.stdout).unwrap())
}

fn folders(data: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(data).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("cold-")).collect()
}

/// Readers had forgotten what does not fit into their memory: `select` and `explain` of the command
/// line, and a server that follows a log.
#[test]
fn every_reader_of_the_log_knows_evidence_that_left_memory() {
    let dir = place();
    let config = dir.path().join("small.toml").to_str().unwrap().to_owned();
    let (data, small) = (dir.path().join("data"), ["--config", &config]);
    let writer = Server::start_in(dir, &["--all-fetchers", small[0], small[1]], &[]);
    record(&writer, 0..SITES / 2);
    let reader = Server::start(&[
        "--all-fetchers",
        "--read-only",
        data.to_str().unwrap(),
        small[0],
        small[1],
    ]);
    record(&writer, SITES / 2..SITES);
    let stats = |server: &Server| server.get("/v1/stats").of(200)[0]["attempts"].clone();
    until_blocking("the reader has all attempts", || stats(&reader) == json!(3 * SITES));
    let all = selected(&writer.dir, &[]);
    let fetchers = |name: &str| all.iter().filter(|line| line[2] == name).count();
    assert!(
        fetchers("playwright") > SITES / 3 && fetchers("direct_access") > SITES / 3,
        "evidence decides"
    );
    assert_eq!(selected(&writer.dir, &small), all);
    for site in (0..SITES).step_by(SITES / 8 + 1) {
        let page = url(site).replace(':', "%3A").replace('/', "%2F");
        let asked =
            |server: &Server| evidence(&server.get(&format!("/v1/explain?url={page}")).of(200));
        let whole = explained(&writer.dir, site, &[]);
        assert_eq!(explained(&writer.dir, site, &small), whole);
        assert_eq!((asked(&writer), asked(&reader)), (whole.clone(), whole));
        let body = json!({ "urls": [url(site)] });
        let chosen = writer.post("/v1/select", &body).of(200)[0]["fetcher"].clone();
        assert_eq!(chosen, all[site][2]);
    }
    // Readers leave nothing in the directory, and a server at its end only its checkpoint.
    assert_eq!(folders(&data), ["cold-0"]);
    let (dir, code, said) = writer.end("-TERM");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(folders(&data), ["cold-checkpoint"]);
    // A reader goes on from it.
    assert_eq!(selected(&dir, &small), all);
    assert_eq!(folders(&data), ["cold-checkpoint"]);
}

#[test]
fn a_disk_that_fails_under_evidence_makes_the_server_not_ready_until_it_works_again() {
    let dir = place();
    let config = dir.path().join("small.toml").to_str().unwrap().to_owned();
    let server = Server::start_in(dir, &["--all-fetchers", "--config", &config], &[]);
    let (folder, away) =
        (server.dir.path().join("data/cold-0"), server.dir.path().join("data/away"));
    std::fs::rename(&folder, &away).unwrap();
    let mut sites = 0;
    until_blocking("the failure shows", || {
        record(&server, sites..sites + 300);
        sites += 300;
        server.get("/readyz").status == 503
    });
    let ready = server.get("/readyz").of(503);
    assert_eq!((&ready["ready"], &ready["log"]), (&json!(false), &json!("degraded")));
    let log = server.get("/v1/dashboard").of(200)["log"].clone();
    let reason = log["reason"].as_str().unwrap();
    assert!(reason.starts_with("evidence on disk: cannot ") && reason.contains("cold-0"), "{log}");
    // Attempts are accepted meanwhile, and none is lost.
    record(&server, sites..sites + 300);
    std::fs::rename(&away, &folder).unwrap();
    until_blocking("the server is ready again", || server.get("/readyz").status == 200);
    let stats = server.get("/v1/stats").of(200);
    assert_eq!(stats[0]["attempts"], 3 * (sites + 300));
}
