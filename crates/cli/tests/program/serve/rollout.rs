//! A rollout on a server: the guard compares the arms of visits over HTTP and takes a worse one out
//! of service, which survives a restart and ends when an operator resumes learning.

use std::fmt::Write as _;

use fetchwise_testsite::poll::until_blocking;
use serde_json::{Value, json};

use super::server::Server;

const HOSTS: usize = 40;
/// One attempt per URL, and learning always tries the cheap fetcher again, so it cannot learn how
/// bad that is.
const CONFIG: &str = "mode = 'split'\nsplit_share = 0.5\nrouter = 'routes.csv'\n\
    [scoring]\nmax_attempts = 1\n\
    [tuning]\nexplore_rate = 1.0\nmax_explore_rate = 1.0\nrollout_min_pages = 20\nrollout_min_hosts = 5\n\
    [[fetcher]]\nname = 'direct_access'\n\
    [[fetcher]]\nname = 'cheap'\nclass = 'plain'\ncost = 0.1\nprior = 0.99\ncommand = ['cat']\n";

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut table = "domain,fetcher\n".to_owned();
    (0..HOSTS).for_each(|n| writeln!(table, "h{n}.example,direct_access").unwrap());
    std::fs::write(dir.path().join("routes.csv"), table).unwrap();
    std::fs::write(dir.path().join("c.toml"), CONFIG).unwrap();
    dir
}

fn start(dir: tempfile::TempDir) -> Server {
    Server::start_in(dir, &["--config", "c.toml", "--pace", "off"], &[])
}

/// A crawler whose fetcher `cheap` delivers nothing: one page of each host. Returns the fetchers
/// that were used.
fn round(server: &Server, page: usize) -> Vec<Value> {
    let wishes: Vec<Value> =
        (0..HOSTS).map(|n| json!({ "url": format!("https://h{n}.example/{page}") })).collect();
    let begun = server.post("/v1/visits", &json!(wishes)).of(200);
    let begun = begun.as_array().unwrap().clone();
    let mut steps = begun.clone();
    // A transient failure is requested once more.
    while steps.iter().any(|of| of["step"]["kind"] != "end") {
        let under_way = steps.iter().filter(|of| of["step"]["kind"] != "end");
        let reports: Vec<Value> = under_way
            .map(|of| {
                assert_eq!(of["step"]["kind"], "fetch", "{of}");
                let outcome =
                    if of["step"]["fetcher"] == "cheap" { "server_error" } else { "content" };
                json!({ "visit": of["visit"], "outcome": outcome })
            })
            .collect();
        steps =
            server.post("/v1/visits/report", &json!(reports)).of(200).as_array().unwrap().clone();
    }
    begun.iter().map(|of| of["step"]["decision"].clone()).collect()
}

/// Returns how often learning has been taken out of service.
fn falls(server: &Server) -> usize {
    server.stderr().matches("FELL BACK TO THE ROUTER TABLE").count()
}

/// Fetches pages until `holds` returns true. Returns the number of the last page.
fn fetch_until(server: &Server, what: &str, mut page: usize, holds: impl Fn() -> bool) -> usize {
    until_blocking(what, || {
        page += 1;
        round(server, page);
        holds()
    });
    page
}

#[test]
fn a_worse_arm_falls_back_over_http_until_it_is_resumed() {
    let server = start(place());
    let by_table =
        |server: &Server, page| round(server, page).iter().all(|of| of["decision"] == "hard_coded");
    assert!(!by_table(&server, 0), "learning serves half of the hosts");
    let page =
        fetch_until(&server, "learning is taken out of service", 0, || falls(&server) == 1) + 1;
    assert!(by_table(&server, page), "the table serves everything from then on");
    let mode = server.get("/v1/mode").of(200);
    assert!(mode.to_string().contains("learning"), "{mode}");
    let found = server.beside(&["rollout", "--config", "c.toml"]).remove(0);
    assert_eq!(
        (&found["fallen_back"]["from"], &found["last_look"]["is_worse"]),
        (&json!("split"), &json!(true))
    );

    let (dir, code, _) = server.end("-TERM");
    assert_eq!(code, Some(0));
    let server = start(dir);
    server.wait_for("learning is out of service since", 0);
    assert!(by_table(&server, page + 1), "and after a restart");
    let from = server.stderr().len();
    assert_eq!(server.beside(&["rollout", "--resume"])[0]["resumed"], true);
    server.wait_for("learning is back in service", from);
    assert!(!by_table(&server, page + 2), "until somebody says otherwise");
}

#[test]
fn the_api_resumes_learning() {
    let server = start(place());
    let resume = || {
        let resumed = server
            .post("/v1/mode", &json!({ "mode": "split", "split_share": 0.5, "resume": true }))
            .of(200);
        assert_eq!(resumed["mode"], "split", "{resumed}");
        assert!(resumed["fallen_back"].is_null(), "{resumed}");
    };
    let page = fetch_until(&server, "learning is taken out of service", 0, || falls(&server) == 1);
    resume();
    assert!(round(&server, page + 1).iter().any(|of| of["decision"] != "hard_coded"));
    // The guard looks at the new stage, which it would not do if it had taken learning out of
    // service for the old reason. It may find that learning is worse again.
    let look = || server.get("/v1/rollout").of(200)["last_look"].clone();
    fetch_until(&server, "the guard looks at the new stage", page + 1, || look().is_object());
    assert_eq!(falls(&server), if look()["is_worse"] == true { 2 } else { 1 });
    resume();
    let (dir, ..) = server.end("-TERM");
    let server = start(dir);
    assert!(!server.stderr().contains("out of service"), "{}", server.stderr());
    assert!(server.get("/v1/mode").of(200)["fallen_back"].is_null());
}
