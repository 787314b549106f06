//! `testbed`: the addresses that it prints, the submission of pages, and the ledger at its end.

use serde_json::{Value, json};

use crate::support::{PATIENCE, ask, command, lines, run, send_signal, wait_for};

#[test]
fn submitted_pages_are_scored_and_the_ledger_is_written_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("sites.toml"),
        "[[site]]\nkind = \"static\"\n[[site]]\nkind = \"shell\"\n",
    )
    .unwrap();
    let args = [
        "testbed",
        "--json",
        "--sites",
        "sites.toml",
        "--pages",
        "4",
        "--seed",
        "5",
        "--ledger",
        "ledger.json",
    ];
    let mut testbed = command(&folder, &args).spawn().unwrap();
    let said = lines(testbed.stdout.take().unwrap());
    let places: Value = serde_json::from_str(&said.recv_timeout(PATIENCE).unwrap()).unwrap();
    let links = ask("GET", places["links"].as_str().unwrap(), "");
    let page = |link: &str| json!({"url": link, "text": ask("GET", link, "")}).to_string() + "\n";
    let pages: Vec<String> = links.lines().map(page).collect();
    let told: Value =
        serde_json::from_str(&ask("POST", places["pages"].as_str().unwrap(), &pages.concat()))
            .unwrap();
    assert_eq!((&told["taken"], pages.len()), (&json!(8), 8));
    assert!(Value::is_object(
        &serde_json::from_str(&ask("GET", places["ledger"].as_str().unwrap(), "")).unwrap()
    ));
    send_signal(&testbed, "-TERM");
    assert!(testbed.wait().unwrap().success());
    let ledger: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("ledger.json")).unwrap()).unwrap();
    let score = |kind: &str| {
        (ledger["kinds"][kind]["good"].clone(), ledger["kinds"][kind]["wrong"].clone())
    };
    assert_eq!(
        (score("static"), score("shell")),
        ((json!(4), json!(0)), (json!(0), json!(4))),
        "{ledger:#}"
    );
}

#[test]
fn a_testbed_over_https_writes_the_certificate_to_trust() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sites.toml"), "[[site]]\nkind = \"static\"\n").unwrap();
    let args = [
        "testbed",
        "--json",
        "--tls",
        "--ca-file",
        "ca.pem",
        "--sites",
        "sites.toml",
        "--pages",
        "2",
    ];
    let mut testbed = command(&folder, &args).spawn().unwrap();
    let said = lines(testbed.stdout.take().unwrap());
    let places: Value = serde_json::from_str(&said.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert_eq!(places["ca_file"], "ca.pem");
    assert!(
        std::fs::read_to_string(folder.path().join("ca.pem"))
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE")
    );
    assert!(ask("GET", places["links"].as_str().unwrap(), "").starts_with("https://"));
    send_signal(&testbed, "-TERM");
    assert!(testbed.wait().unwrap().success());
}

#[test]
fn a_testbed_without_submitted_pages_says_so() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sites.toml"), "[[site]]\nkind = \"static\"\n").unwrap();
    let mut testbed =
        command(&folder, &["testbed", "--sites", "sites.toml", "--pages", "2"]).spawn().unwrap();
    let said = lines(testbed.stdout.take().unwrap());
    wait_for(&said, "ledger  http://");
    send_signal(&testbed, "-TERM");
    wait_for(&said, "0 of 2 available pages");
    wait_for(&said, "no page was submitted");
    assert!(testbed.wait().unwrap().success());
}

#[test]
fn invalid_sites_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sites.toml"), "[[site]]\nkind = \"casino\"\n").unwrap();
    let ran = run(&folder, &["testbed", "--sites", "sites.toml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("casino") && ran.stderr.contains("cloudflare"), "{}", ran.stderr);
}
