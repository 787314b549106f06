//! What a server publishes and signs, held against a verifier that shares no code with it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fetchwise_testsite::poll::found;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;
use web_bot_auth::WebBotAuthVerifier;
use web_bot_auth::components::{CoveredComponent, DerivedComponent, HTTPField};
use web_bot_auth::keyring::{Algorithm, KeyRing};
use web_bot_auth::message_signatures::{MessageVerifier, SignedMessage};

use super::description::Described;
use super::server::{Response, Server, ask_at, program, read};

const TOKEN: &str = "a-long-secret-of-ours";
const DIRECTORY: &str = "/.well-known/http-message-signatures-directory";

/// Returns a place with a config and a key.
fn with_key() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = "[identity]\nagent = 'https://bot.example'\nname = 'ExampleBot'\nkeys = 'keys'\nips = ['192.0.2.0/24']\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    run(&dir, &["identity", "init", "--config", "c.toml"], 0);
    dir
}

/// Starts a server that signs, and returns it with the keys that it publishes.
fn start_signing(dir: TempDir) -> (Server, KeyRing) {
    run(&dir, &["identity", "directory", "--out", "site", "--config", "c.toml"], 0);
    let text = std::fs::read_to_string(dir.path().join("site").join(&DIRECTORY[1..])).unwrap();
    let args = ["--config", "c.toml", "--sign", "--pace", "off"];
    let server = Server::start_in(dir, &args, &[("FETCHWISE_TOKEN", TOKEN)]);
    (server, keyring(&serde_json::from_str(&text).unwrap()))
}

fn run(dir: &TempDir, args: &[&str], code: i32) -> String {
    let ran = program(dir).args(args).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(ran.status.code(), Some(code), "{args:?}: {said}");
    said
}

/// Starts a server with a public listener, and returns the address of the latter.
fn start_publicly(dir: TempDir, args: &[&str]) -> (Server, SocketAddr) {
    let args = [&["--config", "c.toml", "--public", "127.0.0.1:0"], args].concat();
    let server = Server::start_in(dir, &args, &[]);
    let public = server.public.unwrap();
    (server, public)
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    read(&mut stream).unwrap()
}

fn get(address: SocketAddr, path: &str) -> Response {
    ask(address, "GET", path, "Host: bot.example\r\n")
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    let lines = response.head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A response or a request as a verifier sees it.
struct Message {
    authority: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
}

impl SignedMessage for Message {
    fn lookup_component(&self, component: &CoveredComponent) -> Vec<String> {
        match component {
            CoveredComponent::Derived(DerivedComponent::Authority { .. }) => {
                vec![self.authority.clone()]
            }
            CoveredComponent::Derived(DerivedComponent::Method { .. }) => vec![self.method.clone()],
            CoveredComponent::Derived(DerivedComponent::Path { .. }) => vec![self.path.clone()],
            CoveredComponent::HTTP(HTTPField { name, parameters }) => {
                let all = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
                // `Signature-Agent` is a dictionary with one member.
                let value = |text: &String| match parameters.0.is_empty() {
                    true => text.clone(),
                    false => text.split_once('=').unwrap().1.to_owned(),
                };
                all.map(|(_, text)| value(text)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the keys that a directory publishes.
fn keyring(directory: &Value) -> KeyRing {
    let mut ring = KeyRing::default();
    for key in directory["keys"].as_array().unwrap() {
        let x = URL_SAFE_NO_PAD.decode(key["x"].as_str().unwrap()).unwrap();
        ring.import_raw(key["kid"].as_str().unwrap().to_owned(), Algorithm::Ed25519, x);
    }
    ring
}

/// Returns whether the member `label` of the response's signatures is valid for `authority`.
fn is_directory_valid(response: &Response, authority: &str, label: &str) -> bool {
    let named = ["content-digest", "signature-input", "signature"];
    let headers = named.map(|name| (name.to_owned(), header(response, name).unwrap().to_owned()));
    let message = Message {
        authority: authority.to_owned(),
        method: String::new(),
        path: String::new(),
        headers: headers.into(),
    };
    let ring = keyring(&response.json());
    MessageVerifier::parse(&message, |(known, _)| known.as_str() == label)
        .is_ok_and(|parsed| parsed.verify(&ring, None).is_ok())
}

/// Returns whether `headers` sign a request.
fn is_request_valid(method: &str, url: &str, headers: &Value, ring: &KeyRing) -> bool {
    let url: Url = url.parse().unwrap();
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let headers = headers.as_object().unwrap().iter();
    let message = Message {
        authority: format!("{}{port}", url.host_str().unwrap()),
        method: method.to_owned(),
        path: url.path().to_owned(),
        headers: headers
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect(),
    };
    WebBotAuthVerifier::parse(&message).is_ok_and(|parsed| parsed.verify(ring, None).is_ok())
}

#[test]
fn the_public_listener_serves_a_signed_directory_card_page_and_ranges() {
    let (server, public) = start_publicly(with_key(), &[]);
    let directory = get(public, DIRECTORY);
    assert_eq!(
        (directory.status, header(&directory, "content-type")),
        (200, Some("application/http-message-signatures-directory+json"))
    );
    assert_eq!(header(&directory, "cache-control"), Some("public, max-age=86400"));
    assert!(is_directory_valid(&directory, "bot.example", "sig1"), "{directory:?}");
    assert!(!is_directory_valid(&directory, "other.example", "sig1"));
    let card = get(public, "/bot.json").of(200);
    assert_eq!(card["client_id"], "https://bot.example/bot.json");
    assert!(
        card["web_bot_auth"].get("rfc9309-compliance").is_none(),
        "robots.use is not set: {card}"
    );
    assert!(card["web_bot_auth"]["rate-expectation"].is_string(), "{card}");
    let ranges = get(public, "/bot-ips.json");
    assert_eq!(header(&ranges, "content-type"), Some("application/jafar+json"));
    assert_eq!(ranges.json()["prefixes"][0]["ipv4Prefix"], "192.0.2.0/24");
    let page = get(public, "/bot");
    assert!(
        header(&page, "content-type").unwrap().starts_with("text/html")
            && page.body.contains("ExampleBot")
    );
    for path in [DIRECTORY, "/bot", "/bot.json", "/bot-ips.json"] {
        let whole = get(public, path);
        let head = ask(public, "HEAD", path, "Host: bot.example\r\n");
        assert_eq!(
            (head.status, head.body.as_str(), header(&head, "etag")),
            (200, "", header(&whole, "etag")),
            "{path}"
        );
        let held =
            format!("Host: bot.example\r\nIf-None-Match: {}\r\n", header(&whole, "etag").unwrap());
        assert_eq!(ask(public, "GET", path, &held).status, 304, "{path}");
    }
    // The private key is in none of them, and the API is elsewhere.
    let (_, code, said) = server.end("-TERM");
    assert_eq!(code, Some(0), "{said}");
    assert!(TcpStream::connect(public).is_err());
}

#[test]
fn the_public_listener_refuses_other_hosts_other_methods_and_the_api() {
    let (server, public) = start_publicly(with_key(), &[]);
    for host in ["other.example", "127.0.0.1", "bot.example:8443", "bot.example.evil.example"] {
        assert_eq!(
            ask(public, "GET", DIRECTORY, &format!("Host: {host}\r\n")).status,
            421,
            "{host}"
        );
    }
    assert_eq!(ask(public, "GET", DIRECTORY, &format!("Host: {public}\r\n")).status, 421);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let refused = ask(public, method, DIRECTORY, "Host: bot.example\r\n");
        assert_eq!(
            (refused.status, header(&refused, "allow")),
            (405, Some("GET, HEAD")),
            "{method}"
        );
    }
    for path in [
        "/",
        "/v1/stats",
        "/v1/mode",
        "/v1/dashboard",
        "/metrics",
        "/healthz",
        "/openapi.json",
        "/assets/x",
    ] {
        assert_eq!(get(public, path).status, 404, "{path}");
    }
    assert_eq!(server.get("/bot.json").status, 404);
}

#[test]
fn a_rotation_is_published_at_once_and_each_key_signs() {
    let (server, public) = start_publicly(with_key(), &[]);
    run(&server.dir, &["identity", "rotate", "--config", "c.toml"], 0);
    let directory = found("the new key is published", || {
        let directory = get(public, DIRECTORY);
        let is_new = directory.json()["keys"].as_array().unwrap().len() == 2;
        if is_new { Ok(directory) } else { Err(directory.body) }
    });
    assert!(["sig1", "sig2"].iter().all(|label| is_directory_valid(
        &directory,
        "bot.example",
        label
    )));
}

#[test]
fn publishing_and_signing_need_an_identity_and_signing_a_token() {
    let dir = with_key();
    let said = run(&dir, &["serve", "--listen", "127.0.0.1:0", "--public", "127.0.0.1:0"], 2);
    assert!(said.contains("identity.agent"), "{said}");
    let said = run(&dir, &["serve", "--listen", "127.0.0.1:0", "--sign", "--config", "c.toml"], 2);
    assert!(said.contains("without a token") && said.contains("--new-token"), "{said}");
    std::fs::write(dir.path().join("tokens.txt"), TOKEN).unwrap();
    let said =
        run(&dir, &["serve", "--listen", "127.0.0.1:0", "--sign", "--token-file", "tokens.txt"], 2);
    assert!(said.contains("identity.agent"), "{said}");
    std::fs::write(
        dir.path().join("n.toml"),
        "[identity]\nagent = 'https://bot.example'\nkeys = 'keys'\nmode = 'never'\n",
    )
    .unwrap();
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--sign",
        "--token-file",
        "tokens.txt",
        "--config",
        "n.toml",
    ];
    assert!(run(&dir, &args, 2).contains("identity.mode"));
    // Without --sign there is no way to a signature.
    let server = Server::start_in(dir, &["--config", "c.toml"], &[("FETCHWISE_TOKEN", TOKEN)]);
    let refused =
        server.post("/v1/sign", &json!({ "requests": [{ "url": "https://shop.example/" }] }));
    assert_eq!(refused.of(404)["error_type"], "signing_off");
    let visit = server.post("/v1/visits", &json!({ "url": "https://shop.example/" })).of(201);
    let step = &visit["step"];
    assert!(step["fetcher"] == "direct_access" && step.get("headers").is_none(), "{visit}");
}

#[test]
fn clients_get_signatures_of_https_requests() {
    let dir = with_key();
    let directory = run(&dir, &["identity", "directory", "--out", "site", "--config", "c.toml"], 0);
    assert!(directory.contains(DIRECTORY), "{directory}");
    let text = std::fs::read_to_string(dir.path().join("site").join(&DIRECTORY[1..])).unwrap();
    let ring = keyring(&serde_json::from_str(&text).unwrap());
    let server =
        Server::start_in(dir, &["--config", "c.toml", "--sign"], &[("FETCHWISE_TOKEN", TOKEN)]);
    let wanted = [
        ("GET", "https://shop.example/a/b%20c?q=1"),
        ("POST", "https://shop.example:8443/"),
        ("GET", "https://m\u{fc}nchen.example/x"),
    ];
    let requests: Vec<Value> =
        wanted.iter().map(|(method, url)| json!({ "url": url, "method": method })).collect();
    let mut described = Described::of(&server);
    let signed = server.post("/v1/sign", &json!({ "requests": requests }));
    described.check("post", "/v1/sign", &signed);
    let signed = signed.of(200);
    let mut inputs = std::collections::HashSet::new();
    for ((method, url), signed) in wanted.iter().zip(signed["requests"].as_array().unwrap()) {
        assert!(is_request_valid(method, url, &signed["headers"], &ring), "{url}: {signed}");
        assert!(!is_request_valid("HEAD", url, &signed["headers"], &ring));
        assert!(!is_request_valid(method, "https://shop.example/other", &signed["headers"], &ring));
        assert!(inputs.insert(signed["headers"]["Signature-Input"].to_string()));
    }
    let default = server
        .post("/v1/sign", &json!({ "requests": [{ "url": "https://shop.example/" }] }))
        .of(200);
    assert!(is_request_valid(
        "GET",
        "https://shop.example/",
        &default["requests"][0]["headers"],
        &ring
    ));
    let page = |n| json!({ "url": format!("https://shop.example/{n}") });
    let many = |count: usize| json!({ "requests": (0..count).map(page).collect::<Vec<_>>() });
    assert_eq!(
        server.post("/v1/sign", &many(1000)).of(200)["requests"].as_array().unwrap().len(),
        1000
    );
    for body in [
        many(1001),
        json!({ "requests": [page(1), { "url": "http://shop.example/" }] }),
        json!({ "requests": [{ "url": "ftp://shop.example/" }] }),
        json!({ "requests": [{ "url": "nonsense" }] }),
        json!({ "requests": [{ "url": "https://shop.example/", "method": "GET / HTTP" }] }),
        json!({ "requests": [{ "url": "https://shop.example/", "header": "x" }] }),
        json!({ "requests": "all" }),
        json!({}),
        json!({ "url": "https://shop.example/" }),
    ] {
        let refused = server.post("/v1/sign", &body);
        described.check("post", "/v1/sign", &refused);
        assert!([400, 422].contains(&refused.status), "{body}: {refused:?}");
    }
    let body = json!({ "requests": [page(1)] }).to_string();
    for token in [None, Some("wrong-secret-of-others")] {
        let refused = ask_at(server.address, token, "POST", "/v1/sign", body.as_bytes()).unwrap();
        assert_eq!(refused.status, 401, "{token:?}");
    }
}

#[test]
fn a_visit_hands_out_the_signature_of_each_request_of_a_fetcher_that_signs() {
    let (server, ring) = start_signing(with_key());
    let begun = server.post("/v1/visits", &json!({ "url": "https://shop.example/a" }));
    Described::of(&server).check("post", "/v1/visits", &begun);
    let begun = begun.of(201);
    let first = &begun["step"];
    assert_eq!(first["fetcher"], "direct_signed");
    assert!(is_request_valid("GET", "https://shop.example/a", &first["headers"], &ring), "{begun}");
    let path = format!("/v1/visits/{}", begun["visit"].as_str().unwrap());
    let again = server.get(&path).of(200);
    assert!(
        is_request_valid("GET", "https://shop.example/a", &again["step"]["headers"], &ring),
        "{again}"
    );
    assert_ne!(again["step"]["headers"], first["headers"]);
    // A page that scripts fill goes to the browser, which gets the signature of the document.
    let browser =
        server.post(&format!("{path}/report"), &json!({ "outcome": "wrong_tool" })).of(200);
    assert_eq!(browser["step"]["fetcher"], "browser_signed");
    assert!(
        is_request_valid("GET", "https://shop.example/a", &browser["step"]["headers"], &ring),
        "{browser}"
    );
    // Cloudflare reads the older form, and its responses show it.
    let first = server.post("/v1/visits", &json!({ "url": "https://cf.example/a" })).of(201);
    assert!(
        first["step"]["headers"]["Signature-Agent"].as_str().unwrap().starts_with("sig1="),
        "{first}"
    );
    let report = json!({ "outcome": "content", "headers": { "CF-Ray": "8f" } });
    server
        .post(&format!("/v1/visits/{}/report", first["visit"].as_str().unwrap()), &report)
        .of(200);
    let second = server.post("/v1/visits", &json!({ "url": "https://cf.example/b" })).of(201);
    assert_eq!(second["step"]["headers"]["Signature-Agent"], "\"https://bot.example\"", "{second}");
    assert!(is_request_valid("GET", "https://cf.example/b", &second["step"]["headers"], &ring));
    let plain = server.post("/v1/visits", &json!({ "url": "http://shop.example/b" })).of(201);
    assert!(plain["step"].get("headers").is_none(), "{plain}");
}

#[test]
fn with_always_a_visit_never_hides_and_a_host_that_refuses_is_left() {
    let (server, ring) = start_signing(with_key());
    let (mut fetchers, mut left) = (Vec::new(), 0);
    for number in 0..30 {
        let url = format!("https://refuses.example/{number}");
        let mut visit = server.post("/v1/visits", &json!({ "url": url })).of(201);
        let path = format!("/v1/visits/{}/report", visit["visit"].as_str().unwrap());
        while visit["step"]["kind"] == "fetch" {
            assert!(is_request_valid("GET", &url, &visit["step"]["headers"], &ring), "{visit}");
            fetchers.push(visit["step"]["fetcher"].as_str().unwrap().to_owned());
            let report = json!({ "outcome": "blocked_403", "status": 403, "headers": { "Accept-Signature": "sig1=()" } });
            visit = server.post(&path, &report).of(200);
        }
        left += usize::from(visit["step"]["error_type"] == "left_by_policy");
    }
    assert!((2..=16).contains(&fetchers.len()) && left >= 14, "{left}: {fetchers:?}");
    assert!(
        fetchers.iter().all(|name| ["direct_signed", "browser_signed"].contains(&name.as_str())),
        "{fetchers:?}"
    );
    // Attempts have the names of fetchers that sign, so that no evidence of unsigned ones is mixed
    // in.
    let attempts = server.get("/v1/attempts?domain=refuses.example&limit=100").of(200);
    let logged = attempts["attempts"].as_array().unwrap();
    assert_eq!(logged.len(), fetchers.len(), "{attempts}");
    assert!(
        logged.iter().all(|attempt| attempt["fetcher"].as_str().unwrap().ends_with("_signed")),
        "{attempts}"
    );
    let asks = |attempt: &Value| {
        attempt["heuristics"].as_array().unwrap().iter().any(|tag| tag["type"] == "asks_signature")
    };
    assert!(logged.iter().all(asks), "{attempts}");
}

#[test]
fn with_learned_a_visit_signs_only_for_the_fetchers_that_sign() {
    let dir = with_key();
    let config = std::fs::read_to_string(dir.path().join("c.toml")).unwrap();
    std::fs::write(
        dir.path().join("c.toml"),
        format!("{config}mode = 'learned'\nafter_refusal = 'escalate'\n"),
    )
    .unwrap();
    let (server, ring) = start_signing(dir);
    let step = |fetcher: Option<&str>| {
        let fetchers: Option<Vec<&str>> = fetcher.map(|fetcher| vec![fetcher]);
        let url = format!("https://{}.example/", fetcher.unwrap_or("any").replace('_', "-"));
        let visit = server.post("/v1/visits", &json!({ "url": url, "fetchers": fetchers })).of(201);
        let step = &visit["step"];
        let is_signed = step
            .get("headers")
            .is_some_and(|headers| is_request_valid("GET", &url, headers, &ring));
        (step["fetcher"].as_str().unwrap().to_owned(), is_signed, step.get("headers").is_some())
    };
    assert_eq!(step(None), ("direct_signed".to_owned(), true, true));
    for name in ["direct_access", "playwright", "playwright_stealth"] {
        assert_eq!(step(Some(name)), (name.to_owned(), false, false));
    }
    for name in ["direct_signed", "browser_signed"] {
        assert_eq!(step(Some(name)), (name.to_owned(), true, true));
    }
}

#[test]
fn both_addresses_are_printed() {
    let dir = with_key();
    let mut command = program(&dir);
    let args = [
        "serve",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--public",
        "127.0.0.1:0",
        "--config",
        "c.toml",
    ];
    let mut child =
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let public = said["public"].as_str().unwrap().parse().unwrap();
    let status = get(public, "/bot").status;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(status, 200, "{said}");
}

#[test]
fn a_hangup_makes_a_server_sign_with_the_new_key() {
    let dir = with_key();
    let server =
        Server::start_in(dir, &["--config", "c.toml", "--sign"], &[("FETCHWISE_TOKEN", TOKEN)]);
    let input = || {
        let body = json!({ "requests": [{ "url": "https://shop.example/" }] });
        let signed = server.post("/v1/sign", &body).of(200);
        signed["requests"][0]["headers"]["Signature-Input"].as_str().unwrap().to_owned()
    };
    let kid = |said: &str| {
        serde_json::from_str::<Value>(said).unwrap()["kid"].as_str().unwrap().to_owned()
    };
    let rotate = || {
        let args = ["identity", "rotate", "--compromised", "--config", "c.toml", "--json"];
        let ran = program(&server.dir).args(args).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        kid(&String::from_utf8(ran.stdout).unwrap())
    };
    let new = rotate();
    assert!(!input().contains(&new), "the keys are read every hour");
    server.hang_up("reloaded");
    assert!(input().contains(&new));
    // Keys that cannot be read change nothing, and the next hangup reads them.
    let newest = rotate();
    let table = server.dir.path().join("keys/keys.toml");
    let kept = std::fs::read(&table).unwrap();
    std::fs::write(&table, "key = 3").unwrap();
    server.hang_up("reload failed");
    assert!(input().contains(&new));
    std::fs::write(&table, kept).unwrap();
    server.hang_up("reloaded");
    assert!(input().contains(&newest));
}
