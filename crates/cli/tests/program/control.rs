//! Control of a running `fetch` from a second process, through the socket in its data directory.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;

use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::poll::{found, until_blocking};
use serde_json::{Value, json};

use crate::serve::server::ask_at;
use crate::support::{PATIENCE, TestDir, lines, send_signal, wait_for};

const HOST: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";
const PLAIN: [&str; 7] =
    ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore", "--pace", "off"];

fn socket(place: &TestDir) -> PathBuf {
    place.data().join("control.sock")
}

/// Starts a run and returns its results.
fn begin(place: &TestDir, more: &[&str]) -> (Child, Receiver<String>) {
    let args = [&["fetch", "--json"][..], more, &PLAIN].concat();
    let mut child = place.spawn(&args);
    let results = lines(child.stdout.take().unwrap());
    (child, results)
}

/// Starts a run whose only link hangs, and waits until it can be controlled.
fn begin_one_that_hangs(place: &TestDir) -> (Origin, Child) {
    let origin = Origin::start([(HOST, Site::slow(PATIENCE * 2))]).unwrap();
    let (child, _) = begin(place, &[&origin.url(HOST, "/hangs"), "--timeout", "600s"]);
    until_blocking("the run can be controlled", || UnixStream::connect(socket(place)).is_ok());
    (origin, child)
}

/// Sends bytes to the socket of a run and returns its answer; none if it closes the connection
/// without one.
fn send(place: &TestDir, bytes: &[u8]) -> Option<Value> {
    let mut stream = UnixStream::connect(socket(place)).unwrap();
    // The run may have closed its side of a request that is too long.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    (!line.is_empty())
        .then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
}

#[test]
fn links_of_a_host_that_another_process_unpauses_are_fetched_at_once() {
    for way in [&["unpause", HOST][..], &["unpause", "--host", HOST]] {
        let place = TestDir::new();
        let (first, then) = (Box::new(Site::FORBIDDEN), Box::new(Site::Static));
        let origin = Origin::start([
            (HOST, Site::Drifting { after: 3, first, then }),
            (OTHER, Site::Static),
        ])
        .unwrap();
        let mut urls: Vec<String> = (0..8).map(|n| origin.url(HOST, &format!("/{n}"))).collect();
        urls.push(origin.url(OTHER, "/a"));
        let input = place.write("urls.txt", urls.join("\n"));
        // The pause is longer than any patience.
        place.write("c.toml", "[tuning]\nblocked_base = \"20h\"\nhost_block_threshold = 3\n");
        let more = ["--input", &input, "--config", "c.toml", "--concurrency", "1", "--wait", "24h"];
        let (mut child, results) = begin(&place, &more);
        wait_for(&results, &origin.url(OTHER, "/a"));
        let answer = found("the host is paused", || {
            let ran = place.run(&[way, &["--json"]].concat());
            if ran.code == 0 && ran.one()["unpaused"] == true {
                Ok(ran.one())
            } else {
                Err(ran.stderr + &ran.stdout)
            }
        });
        assert_eq!(
            (&answer["host"], &answer["pid"]),
            (&json!(HOST), &json!(child.id())),
            "{answer}"
        );
        assert!(answer["was_paused_until"].is_string() && answer["server"].is_null(), "{answer}");
        // Pages in progress may have blocked the host once more.
        until_blocking("the run ends", || {
            let ended = child.try_wait().unwrap();
            if ended.is_none() {
                place.run(way);
            }
            ended.is_some()
        });
        assert_eq!(child.wait().unwrap().code(), Some(4));
        let ended: Vec<Value> =
            results.iter().map(|line| serde_json::from_str(&line).unwrap()).collect();
        let delivered = ended.iter().filter(|line| line["success"] == true).count();
        assert!(
            delivered >= 4 && ended.iter().all(|line| line["error_type"] != "paused"),
            "{ended:#?}"
        );
        assert!(!socket(&place).exists(), "the socket is removed at the end");
        let alone = place.run(&["unpause", HOST, "--json"]).one();
        assert_eq!((&alone["unpaused"], &alone["pid"]), (&json!(false), &Value::Null), "{alone}");
    }
}

#[test]
fn a_link_that_another_process_unpauses_is_fetched_at_once() {
    let place = TestDir::new();
    let (first, then) = (Box::new(Site::FORBIDDEN), Box::new(Site::Static));
    let origin = Origin::start([(HOST, Site::Drifting { after: 1, first, then })]).unwrap();
    place.write("c.toml", "[tuning]\nblocked_base = \"20h\"\n");
    let link = origin.url(HOST, "/a");
    let list = place.write("list.jsonl", format!("{{\"url\":\"{link}\",\"id\":\"article 7\"}}\n"));
    let args = ["--input", &*list, "--config", "c.toml", "--wait", "24h", "--restart"];
    let (mut child, _) = begin(&place, &args);
    child.wait().unwrap();
    // Now the link is paused, and the run waits for it alone.
    let (mut child, results) = begin(&place, &args);
    until_blocking("the run can be controlled", || UnixStream::connect(socket(&place)).is_ok());
    let ran = place.run(&["unpause", "--link", "article 7"]);
    let actor = format!("(done by the running fetch, pid {})", child.id());
    assert!(
        ran.code == 0
            && ran.stdout.contains("unpaused; it was paused until")
            && ran.stdout.contains(&actor)
    );
    wait_for(&results, "\"success\":true");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_running_fetch_forgets_what_another_process_names() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static), (OTHER, Site::slow(PATIENCE * 2))]).unwrap();
    let urls = [origin.url(HOST, "/a"), origin.url(HOST, "/b"), origin.url(OTHER, "/hangs")];
    let input = place.write("urls.txt", urls.join("\n"));
    let (mut child, results) = begin(&place, &["--input", &input, "--timeout", "600s"]);
    (0..2).for_each(|_| drop(wait_for(&results, HOST)));
    let known = || place.run(&["attempts", "--json", "--domain", HOST]).json().len();
    assert!(known() >= 2);
    let forgot = place.run(&["forget", "--domain", HOST, "--json"]).one();
    assert_eq!((&forgot["domain"], &forgot["pid"]), (&json!(HOST), &json!(child.id())), "{forgot}");
    assert!(forgot["attempts"].as_u64() >= Some(2), "{forgot}");
    assert_eq!(known(), 0);
    let again = place.run(&["forget", "--domain", HOST]);
    assert!(
        again.code == 0 && again.stdout.contains("nothing to forget (done by the running fetch"),
        "{}",
        again.stdout
    );
    child.kill().unwrap();
    child.wait().unwrap();
    // A killed run leaves its socket, which nobody answers: the command does the work itself.
    assert!(socket(&place).exists());
    let alone = place.run(&["forget", "--domain", HOST, "--json"]).one();
    assert_eq!((&alone["attempts"], &alone["pid"]), (&json!(0), &Value::Null), "{alone}");
}

#[test]
fn any_bytes_on_the_socket_get_a_clear_error_and_change_nothing() {
    let place = TestDir::new();
    let (_origin, mut child) = begin_one_that_hangs(&place);
    let long = [vec![b'a'; 200_000], b"\n".to_vec()].concat();
    let nested = "[".repeat(60_000);
    let cases: [(&[u8], &str); 12] = [
        (b"hello\n", "invalid request"),
        (b"\xff\xfe\x00\n", "invalid request"),
        (b"\n", "invalid request"),
        (b"{\"command\":\"unpause\"", "invalid request"),
        (b"{\"command\":\"stop\"}\n", "invalid request"),
        (b"{\"command\":\"unpause\",\"host\":7}\n", "invalid request"),
        (b"{\"command\":\"unpause\",\"host\":\"a.org\",\"why\":1}\n", "invalid request"),
        (b"{\"command\":\"unpause\"}\n", "either a host or a link"),
        (
            b"{\"command\":\"forget\",\"domain\":\"a.org\",\"link\":\"x\"}\n",
            "either a domain or a link",
        ),
        (b"{\"command\":\"unpause\",\"host\":\"a b\"}\n", "domain is not valid"),
        (&long, "longer than 65536 bytes"),
        (nested.as_bytes(), "invalid request"),
    ];
    for (bytes, error) in cases {
        let answer = send(&place, bytes).unwrap();
        let said = answer["error"].as_str().unwrap_or_default();
        assert!(
            said.contains(error) && said.len() < 400 && answer.get("done").is_none(),
            "{error}: {answer}"
        );
        assert_eq!(answer["pid"], json!(child.id()), "{answer}");
    }
    assert_eq!(send(&place, b""), None);
    // Clients that say nothing take no place from others.
    let _silent: Vec<UnixStream> =
        (0..4).map(|_| UnixStream::connect(socket(&place)).unwrap()).collect();
    let fine = send(&place, b"{\"command\":\"unpause\",\"host\":\"a.org\"}\n").unwrap();
    assert_eq!((&fine["done"]["unpaused"], fine.get("error")), (&json!(false), None), "{fine}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_socket_is_private_replaces_a_stale_one_and_is_removed_at_the_end() {
    let place = TestDir::new();
    std::fs::create_dir(place.data()).unwrap();
    drop(UnixListener::bind(socket(&place)).unwrap());
    let (_origin, mut child) = begin_one_that_hangs(&place);
    let file = std::fs::symlink_metadata(socket(&place)).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let left = std::fs::read_dir(place.data()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(".control")));
    send_signal(&child, "-TERM");
    send_signal(&child, "-TERM");
    child.wait().unwrap();
    assert!(!socket(&place).exists());
}

#[test]
fn a_data_directory_with_a_long_path_can_be_controlled_too() {
    let place = TestDir::new();
    let data = place.path(&"d".repeat(120));
    let origin = Origin::start([(HOST, Site::slow(PATIENCE * 2))]).unwrap();
    let url = origin.url(HOST, "/hangs");
    let args = [&["fetch", "--json", &url, "--timeout", "600s"][..], &PLAIN].concat();
    let mut child = place
        .command(&args)
        .env("FETCHWISE_DATA_DIR", &data)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until_blocking("there is a socket", || data.join("control.sock").exists());
    let asked = place
        .command(&["unpause", "a.org", "--json"])
        .env("FETCHWISE_DATA_DIR", &data)
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(
        (&answer["unpaused"], &answer["pid"]),
        (&json!(false), &json!(child.id())),
        "{answer}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The pace and a cost, as a file has them.
fn settings(rate: &str, cost: &str) -> String {
    format!(
        "[pace]\nmode = \"fixed\"\ninitial_rate = {rate}\n[fetcher.playwright]\ncost = {cost}\n"
    )
}

/// Returns a part of what the dashboard of a run shows.
fn shown(dashboard: &str, part: &str) -> Value {
    ask_at(dashboard.parse().unwrap(), None, "GET", "/v1/dashboard", b"").unwrap().of(200)[part]
        .clone()
}

/// Returns what a request by the browser costs.
fn browser_cost(dashboard: &str) -> Value {
    shown(dashboard, "browser_request_cost")
}

#[test]
fn a_running_fetch_takes_pace_and_costs_of_the_changed_file_and_refuses_an_invalid_one() {
    let place = TestDir::new();
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let urls: Vec<String> = (0..6).map(|n| origin.url(HOST, &format!("/{n}"))).collect();
    let input = place.write("urls.txt", urls.join("\n"));
    // The second page is due after hours.
    place.write("c.toml", settings("0.0001", "20"));
    let own = [
        "fetch",
        "--json",
        "--input",
        &input,
        "--config",
        "c.toml",
        "--serve=127.0.0.1:0",
        "--wait",
        "24h",
    ];
    let mut child = place.spawn(&[&own[..], &PLAIN[..5]].concat());
    let (results, said) =
        (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let line = wait_for(&said, "http://");
    let dashboard = line.split("http://").nth(1).unwrap().trim_end_matches('/').to_owned();
    wait_for(&results, "\"success\":true");
    assert_eq!(browser_cost(&dashboard), json!(20.0));

    // Its second setting is wrong, so its first one has no effect either.
    place.write("c.toml", settings("20", "-1"));
    let checked = place.run(&["config", "check", "c.toml"]);
    let why = "expected a number above 0";
    assert!(
        checked.code == 2 && checked.stdout.contains(why),
        "{} {}",
        checked.stdout,
        checked.stderr
    );
    let refused = place.run(&["reload"]);
    assert!(refused.code == 1 && refused.stdout.is_empty(), "{}", refused.stdout);
    let words = ["the running fetch, pid", "all settings are unchanged: c.toml, line 5", why];
    assert!(words.iter().all(|word| refused.stderr.contains(word)), "{}", refused.stderr);
    assert_eq!(browser_cost(&dashboard), json!(20.0));

    place.write("c.toml", settings("20", "7.5"));
    let reloaded = place.run(&["reload", "--json"]).one();
    assert_eq!(reloaded["pid"], json!(child.id()));
    let text = reloaded["reloaded"].as_str().unwrap();
    let words = [
        "reloaded c.toml: mode learning",
        "pace: initial_rate 0.0001 -> 20",
        "cost: playwright 20 -> 7.5",
    ];
    assert!(
        words.iter().all(|word| text.contains(word)) && !text.contains("after a restart"),
        "{text}"
    );
    let events = shown(&dashboard, "events");
    let event = |place: usize| (events[place]["event"].as_str(), events[place]["text"].as_str());
    assert_eq!(
        (event(0), event(1)),
        ((Some("started"), None), (Some("reloaded"), Some(text))),
        "{events}"
    );
    until_blocking("the dashboard counts with the new cost", || {
        browser_cost(&dashboard) == json!(7.5)
    });
    assert_eq!(results.iter().filter(|line| line.contains("\"success\":true")).count(), 5);
    assert!(child.wait().unwrap().success());
    // Readers of the log count with the new cost too, without the file.
    let stored = place.run(&["fetchers", "--json"]).json();
    let browser = stored.iter().find(|row| row["name"] == "playwright").unwrap();
    assert_eq!(browser["cost"], json!(7.5), "{browser}");
    let alone = place.run(&["reload"]);
    assert!(
        alone.code == 1 && alone.stderr.contains("no fetch or serve is running in"),
        "{}",
        alone.stderr
    );
}
