//! `testbed`: a crawl of it by `fetch`, the submission of pages, and the ledger.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::fetch::signal;
use crate::support::{PATIENCE, TestDir, lines};

/// Returns the body of a response by HTTP/1.0.
fn ask(method: &str, url: &str, body: &str) -> String {
    let url = url::Url::parse(url).unwrap();
    let mut stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
    write!(stream, "{method} {} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", url.path(), body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_crawl_of_the_testbed_is_counted_and_submitted_pages_are_scored() {
    let place = TestDir::new();
    let kinds = ["static", "shell", "cloudflare", "redirect"];
    let sites: String = kinds.iter().map(|kind| format!("[[site]]\nkind = \"{kind}\"\n")).collect();
    let sites = place.write("sites.toml", sites);
    let mut testbed = place.spawn(&[
        "testbed",
        "--json",
        "--sites",
        &sites,
        "--pages",
        "4",
        "--seed",
        "5",
        "--ledger",
        "ledger.json",
    ]);
    let said = lines(testbed.stdout.take().unwrap());
    let places: Value = serde_json::from_str(&said.recv_timeout(PATIENCE).unwrap()).unwrap();
    let links = place.write("links.txt", ask("GET", places["links"].as_str().unwrap(), ""));
    let fetch =
        ["fetch", "--json", "--input", &links, "--out", "pages", "--allow-network", "127.0.0.0/8", "--wait", "0"];
    let crawl = place.run(&[&fetch[..], &["--no-browser", "--pace", "off"]].concat());
    let results = crawl.json();
    assert_eq!(results.len(), 16, "{}", crawl.stderr);
    let delivered = results.iter().filter(|result| result["success"] == true);
    let page = |result: &Value| {
        let text = std::fs::read(place.path(result["file"].as_str().unwrap())).unwrap();
        json!({"url": result["url"], "text": String::from_utf8_lossy(&text)}).to_string() + "\n"
    };
    let pages: Vec<String> = delivered.map(page).collect();
    let told: Value = serde_json::from_str(&ask("POST", places["pages"].as_str().unwrap(), &pages.concat())).unwrap();
    assert_eq!(told["taken"], pages.len());
    assert!(Value::is_object(&serde_json::from_str(&ask("GET", places["ledger"].as_str().unwrap(), "")).unwrap()));
    signal(&testbed, "-TERM");
    assert!(testbed.wait().unwrap().success());
    let ledger: Value = serde_json::from_slice(&std::fs::read(place.path("ledger.json")).unwrap()).unwrap();
    for kind in ["static", "redirect"] {
        assert_eq!(
            (&ledger["kinds"][kind]["good"], &ledger["kinds"][kind]["wrong"]),
            (&json!(4), &json!(0)),
            "{ledger:#}"
        );
    }
    for kind in ["shell", "cloudflare"] {
        assert_eq!(
            (&ledger["kinds"][kind]["good"], &ledger["kinds"][kind]["wrong"]),
            (&json!(0), &json!(0)),
            "{ledger:#}"
        );
    }
    assert!(ledger["kinds"]["cloudflare"]["blocked"].as_u64() >= Some(1));
    assert_eq!((&ledger["total"]["good"], &ledger["total"]["servable"]), (&json!(8), &json!(16)));
}

#[test]
fn invalid_sites_are_errors() {
    let place = TestDir::new();
    let sites = place.write("sites.toml", "[[site]]\nkind = \"casino\"\n");
    let ran = place.run(&["testbed", "--sites", &sites]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("casino") && ran.stderr.contains("cloudflare"), "{}", ran.stderr);
}
