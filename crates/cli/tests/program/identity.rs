//! `identity`: keys, what is published, signed requests and their checks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::identity::{KeyDir, KeyEntry, KeySet, SigningKey, directory};
use fetchwise::response::header;
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;
use fetchwise_testsite::origin::{Certificate, Origin, Site};
use fetchwise_testsite::requirements::{NO_CHROMIUM, required};
use serde_json::{Value, json};

use crate::support::{Ran, TestDir};

/// The key of RFC 9421 B.1.4.
const RFC_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n";
const DAY: i64 = 86_400;

/// Returns a place with a config and a key.
fn with_key() -> (TestDir, String) {
    let place = TestDir::new();
    place.write("c.toml", "[identity]\nkeys = 'keys'\n");
    let made = run(
        &place,
        &[
            "init",
            "--agent",
            "https://bot.example",
            "--name",
            "ExampleBot",
            "--contact",
            "b@example.org",
            "--json",
        ],
    );
    let made_json = made.one();
    assert_eq!(
        (made.code, made_json["agent"].as_str()),
        (0, Some("https://bot.example")),
        "{}",
        made.stderr
    );
    place.write("c.toml", made_json["config"].as_str().unwrap());
    let kid = made_json["kid"].as_str().unwrap().to_owned();
    (place, kid)
}

fn run(place: &TestDir, args: &[&str]) -> Ran {
    place.run(&[&["identity"], args, &["--config", "c.toml"]].concat())
}

/// Returns all private keys in the place, as base64 has them.
fn secrets(place: &TestDir) -> Vec<String> {
    let files = fs::read_dir(place.path("keys")).unwrap().map(|entry| entry.unwrap().path());
    let pems = files.filter(|path| path.extension().is_some_and(|extension| extension == "pem"));
    // The last 43 characters: the first ones are those of the format.
    pems.map(|path| fs::read_to_string(path).unwrap().lines().nth(1).unwrap()[21..].to_owned())
        .collect()
}

#[test]
fn init_prints_the_section_for_the_config_and_show_the_key() {
    let (place, kid) = with_key();
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("keys"), mode(&format!("keys/{kid}.pem"))), (0o700, 0o600));
    let shown = run(&place, &["show", "--json"]).one();
    assert_eq!(
        (shown["keys"][0]["kid"].as_str(), shown["keys"][0]["state"].as_str()),
        (Some(&*kid), Some("active"))
    );
    assert_eq!(
        shown["user_agent"],
        "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/bot)"
    );
    let in_browsers = shown["browser_user_agent"].as_str().unwrap();
    assert!(
        in_browsers.contains("compatible; ExampleBot/1.0; +https://bot.example/bot) Chrome/"),
        "{in_browsers}"
    );
    let again = run(&place, &["init"]);
    assert!(again.code == 2 && again.stderr.contains("identity rotate"), "{}", again.stderr);
    let bad = place.run(&["identity", "init", "--agent", "http://bot.example", "--name", "B"]);
    assert!(bad.code == 2 && bad.stderr.contains("https origin"), "{}", bad.stderr);
    let secret = &secrets(&place)[0];
    for ran in [
        run(&place, &["show"]),
        run(&place, &["sign", "https://e.org/"]),
        run(&place, &["directory", "--out", "site"]),
    ] {
        assert!(
            ran.code == 0 && !ran.stdout.contains(secret) && !ran.stderr.contains(secret),
            "{}",
            ran.stderr
        );
    }
    assert!(!fs::read_to_string(place.path("site/bot.json")).unwrap().contains(secret));
}

#[test]
fn keys_lie_in_the_users_configuration_directory_or_in_a_variable() {
    let place = TestDir::new();
    let home = place.path("config");
    let at_home = |args: &[&str]| {
        Ran::from(place.command(args).env("XDG_CONFIG_HOME", &home).output().unwrap())
    };
    let made = at_home(&["identity", "init", "--agent", "https://bot.example", "--name", "B"]);
    assert!(
        made.code == 0 && made.stdout.starts_with("[identity]\nagent = \"https://bot.example\"\n"),
        "{}",
        made.stderr
    );
    assert!(home.join("fetchwise/identity/keys.toml").exists());
    // Without an agent in the config the key changes nothing.
    assert_eq!(at_home(&["config", "check"]).code, 0);
    let pem =
        fs::read_dir(home.join("fetchwise/identity")).unwrap().map(|entry| entry.unwrap().path());
    let pem = pem
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "pem"))
        .unwrap();
    place.write("c.toml", "[identity]\nagent = 'https://bot.example'\nkey_env = 'BOT_KEY'\n");
    let sign = |text: &str| {
        let mut command =
            place.command(&["identity", "sign", "https://e.org/", "--config", "c.toml", "--json"]);
        Ran::from(command.env("BOT_KEY", text).output().unwrap())
    };
    let signed = sign(&fs::read_to_string(pem).unwrap()).one();
    assert!(signed["headers"]["Signature"].as_str().unwrap().starts_with("sig1=:"));
    for (text, want) in
        [("", "BOT_KEY"), ("hunter2", "BEGIN PRIVATE KEY"), (RFC_KEY, "published test key")]
    {
        let ran = sign(text);
        assert!(
            ran.code == 2 && ran.stderr.contains(want) && ran.stderr.contains("hint"),
            "{}",
            ran.stderr
        );
        assert!(
            !ran.stderr.contains("hunter2") && !ran.stderr.contains("hSEqVTm50"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn keys_that_cannot_be_used_end_every_command_with_2_and_the_way_out() {
    let (place, kid) = with_key();
    let pem = place.path(&format!("keys/{kid}.pem"));
    let chmod = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
    };
    let refused = |want: &str| {
        for args in [
            &["identity", "sign", "https://e.org/", "--config", "c.toml"] as &[&str],
            &["identity", "rotate", "--config", "c.toml"],
            &["fetch", "--config", "c.toml", "--no-browser", "https://127.0.0.1:1/"],
            &["config", "check", "c.toml"],
        ] {
            let ran = place.run(args);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(ran.code == 2 && said.contains(want), "{args:?}: {} {said}", ran.code);
        }
    };
    chmod(&pem, 0o640);
    refused("chmod 600");
    chmod(&pem, 0o600);
    chmod(&place.path("keys"), 0o755);
    refused("chmod 700");
    chmod(&place.path("keys"), 0o700);
    let kept = fs::read(&pem).unwrap();
    fs::write(&pem, "nonsense").unwrap();
    refused("BEGIN PRIVATE KEY");
    fs::write(&pem, RFC_KEY).unwrap();
    refused("published test key");
    fs::write(&pem, kept).unwrap();
    assert_eq!(run(&place, &["show"]).code, 0);
    for (config, want) in [
        ("agent = 'http://bot.example'", "expected an https origin"),
        ("agent = 'https://bot.example'\nmode = 'sometimes'", "unknown variant `sometimes`"),
        ("agent = 'https://bot.example'\nafter_refusal = 'sulk'", "after_refusal"),
        ("mode = 'always'", "missing identity.agent"),
    ] {
        place.write("bad.toml", format!("[identity]\nkeys = 'keys'\n{config}\n"));
        let ran =
            place.run(&["fetch", "--config", "bad.toml", "--no-browser", "https://127.0.0.1:1/"]);
        assert!(ran.code == 2 && ran.stderr.contains(want), "{config}: {}", ran.stderr);
    }
}

#[test]
fn a_signed_request_verifies_and_a_changed_one_exits_with_1() {
    let (place, kid) = with_key();
    let url = "https://shop.example:8443/a/b%20c?q=1";
    let signed = run(&place, &["sign", url]);
    assert_eq!(signed.stdout.lines().count(), 3, "{}", signed.stdout);
    let request = format!(
        "GET /a/b%20c?q=1 HTTP/1.1\r\nHost: shop.example:8443\r\n{}\r\n",
        signed.stdout.replace('\n', "\r\n")
    );
    place.write("r.txt", &request);
    let valid = run(&place, &["verify", "--request", "r.txt", "--json"]);
    assert_eq!((valid.code, valid.one()["kid"].as_str()), (0, Some(&*kid)), "{}", valid.stderr);
    for (from, to) in [
        ("GET", "HEAD"),
        ("/a/", "/b/"),
        ("shop.example", "shop2.example"),
        ("bot.example", "bad.example"),
    ] {
        place.write("r.txt", request.replace(from, to));
        let ran = run(&place, &["verify", "--request", "r.txt"]);
        assert!(ran.code == 1 && ran.stderr.contains("wrong signature"), "{from}: {}", ran.stderr);
    }
    let plain = run(&place, &["sign", "http://shop.example/"]);
    assert!(plain.code == 2 && plain.stderr.contains("only https"), "{}", plain.stderr);
    place.write("r.txt", &request);
    let later = rfc3339::format(Timestamp::from_millis((seconds_now() + 61) * 1000));
    assert_eq!(run(&place, &["verify", "--request", "r.txt", "--now", &later]).code, 1);
}

#[test]
fn a_registration_is_recorded_in_the_data_directory() {
    let place = TestDir::new();
    let recorded = place.run(&[
        "identity",
        "registered",
        "Cloudflare",
        "--json",
        "--now",
        "2026-11-24T02:00:00Z",
    ]);
    assert_eq!(recorded.one()["registered_at"], "2026-11-24T02:00:00.000Z", "{}", recorded.stderr);
    assert_eq!(place.run(&["identity", "registered", "human"]).code, 0);
    let read = fetchwise::identity::Registrations::read(&place.data()).unwrap();
    assert_eq!(read.registered_at_ms("cloudflare"), Some(1_795_485_600_000));
    assert!(read.registered_at_ms("perimeterx").is_some());
    let unknown = place.run(&["identity", "registered", "cloudfare"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("cloudflare"), "{}", unknown.stderr);
    assert_eq!(place.run(&["identity", "registered"]).code, 2);
    assert_eq!(fetchwise::identity::Registrations::read(&place.data()).unwrap(), read);
    place.write(
        "r.toml",
        "[[rule]]\nid='g'\nvendor='gatekeeper'\ngrade='strong'\nfind=['abcd']\nnote='x'\n",
    );
    assert_eq!(place.run(&["identity", "registered", "gatekeeper", "--rules", "r.toml"]).code, 0);
}

fn seconds_now() -> i64 {
    crate::support::now() / 1000
}

#[test]
fn a_rotation_overlaps_unless_the_key_is_compromised() {
    let (place, old) = with_key();
    let now = seconds_now() + 60;
    let at = |seconds: i64| rfc3339::format(Timestamp::from_millis(seconds * 1000));
    let rotated = run(&place, &["rotate", "--json", "--now", &at(now)]).one();
    let new = rotated["kid"].as_str().unwrap().to_owned();
    assert_eq!(rotated["signs_from"].as_str(), Some(&*at(now + DAY)));
    assert_eq!(rotated["old_until"].as_str(), Some(&*at(now + 2 * DAY)));
    let published = |seconds: i64| {
        let ran = run(&place, &["directory", "--out", "site", "--now", &at(seconds)]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let file = place.path("site/.well-known/http-message-signatures-directory");
        let body: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        body["keys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|key| key["kid"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let signs = |seconds: i64| {
        let ran = run(&place, &["sign", "https://e.org/", "--now", &at(seconds)]);
        if ran.stdout.contains(&old) {
            "old"
        } else if ran.stdout.contains(&new) {
            "new"
        } else {
            "none"
        }
    };
    assert_eq!(published(now).len(), 2);
    assert_eq!([signs(now), signs(now + DAY - 1), signs(now + DAY + 5)], ["old", "old", "new"]);
    assert_eq!(published(now + 2 * DAY - 1).len(), 2);
    assert_eq!(published(now + 2 * DAY), [&*new]);
    let pending = run(&place, &["rotate", "--now", &at(now + 5)]);
    assert!(pending.code == 2 && pending.stderr.contains("--compromised"), "{}", pending.stderr);
    let stolen = run(&place, &["rotate", "--compromised", "--json", "--now", &at(now + 10)]).one();
    assert_eq!(stolen["old_until"], Value::Null);
    assert_eq!(published(now + 10), [stolen["kid"].as_str().unwrap()]);
    assert_eq!(secrets(&place).len(), 1);
}

#[test]
fn declared_browsers_sign_and_name_the_crawler() {
    let Some(chromium) = required(BrowserFetcher::find(None), NO_CHROMIUM) else { return };
    let chromium = chromium.to_str().unwrap();
    let (place, _) = with_key();
    let section = fs::read_to_string(place.path("c.toml")).unwrap();
    let section = format!("tuning.sign_http = 'loopback'\n{section}");
    place.write("c.toml", &section);
    place.write("own.toml", format!("{section}[[fetcher]]\nname = 'own'\nlike = 'playwright'\n"));
    place.write("document.toml", format!("{section}browser_scope = 'document'\n"));
    place.write("learned.toml", format!("{section}mode = 'learned'\n"));
    let page = "<!doctype html><title>A page</title><p>Some words that a person may read.<script src=/a.js></script>";
    let origin = Origin::start([("127.0.0.1", Site::Html(page.to_owned()))]).unwrap();
    let in_browsers = "compatible; ExampleBot/1.0; +https://bot.example/bot) Chrome/";
    for (fetcher, config, declared, signed) in [
        (
            "direct_signed",
            "c.toml",
            "(compatible; ExampleBot/1.0; +https://bot.example/bot)",
            [Some(true), None],
        ),
        ("browser_signed", "c.toml", in_browsers, [Some(true), Some(true)]),
        ("own", "own.toml", in_browsers, [Some(true), Some(true)]),
        ("browser_signed", "document.toml", in_browsers, [Some(true), Some(false)]),
        ("browser_signed", "learned.toml", in_browsers, [Some(true), Some(true)]),
        ("playwright_stealth", "learned.toml", "", [Some(false), Some(false)]),
    ] {
        let path = format!("/{fetcher}/{config}");
        let before = origin.requests().len();
        let url = origin.url("127.0.0.1", &path);
        let ran = place.run(&[
            "try",
            "--config",
            config,
            "--fetcher",
            fetcher,
            "--chromium",
            chromium,
            "--allow-network",
            "127.0.0.0/8",
            "--json",
            &url,
        ]);
        assert_eq!(ran.one()["status"], 200, "{}{}", ran.stdout, ran.stderr);
        let requests = &origin.requests()[before..];
        let signed_at = |path: &str| {
            let request = requests.iter().find(|request| request.path == path)?;
            let agent = request.user_agent().unwrap();
            assert!(
                agent.contains(declared) && agent.contains("ExampleBot") != declared.is_empty(),
                "{agent}"
            );
            Some(header(&request.headers, "signature").is_some())
        };
        assert_eq!(
            [signed_at(&path), signed_at("/a.js")],
            signed,
            "{fetcher} {config}: {requests:?}"
        );
    }
    let bad = format!("{section}browser_scope = 'third'\n");
    place.write("bad.toml", bad);
    let ran = place.run(&["config", "check", "bad.toml"]);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.code == 2 && said.contains("expected one of `document`, `site`, `all`"), "{said}");
}

const HOST: &str = "127.0.0.1";

/// An agent on an https server of this machine, with the files that `identity directory` writes.
struct PublishedAgent {
    place: TestDir,
    origin: Origin,
}

impl PublishedAgent {
    fn new() -> Self {
        let place = TestDir::new();
        let certificate = Certificate::new([HOST]).unwrap();
        let origin = Origin::start_tls([(HOST, Site::Status(404))], &certificate).unwrap();
        place.write("ca.pem", certificate.authority_pem());
        let agent = origin.url(HOST, "");
        let settings = "[http]\nca_file = 'ca.pem'\n[network]\nallow = ['127.0.0.0/8']\n";
        let section =
            format!("[identity]\nkeys = 'keys'\nagent = '{agent}'\nname = 'ExampleBot'\n");
        place.write("c.toml", format!("{section}{settings}"));
        place.write("closed.toml", format!("{section}[http]\nca_file = 'ca.pem'\n"));
        assert_eq!(run(&place, &["init"]).code, 0);
        let agent = Self { place, origin };
        agent.publish();
        agent
    }

    /// Serves what `identity directory` writes.
    fn publish(&self) {
        let written = run(&self.place, &["directory", "--out", "site"]);
        assert_eq!(written.code, 0, "{}", written.stderr);
        self.serve(self.files(&[]));
    }

    /// Serves the key directory from `directory`, and the rest from files.
    fn serve(&self, directory: Site) {
        let rest = Site::Files(self.place.path("site"));
        let sites = vec![("/.well-known/".to_owned(), directory), ("/".to_owned(), rest)];
        assert!(self.origin.set_site(HOST, Site::Mixed(sites)));
    }

    /// Returns the files with the media type of key directories, and further headers.
    fn files(&self, headers: &[(&str, &str)]) -> Site {
        let media_type = ("content-type", directory::MEDIA_TYPE);
        let headers = headers
            .iter()
            .chain([&media_type])
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Site::WithHeaders {
            headers: headers.collect(),
            behind: Box::new(Site::Files(self.place.path("site"))),
        }
    }

    fn keys(&self) -> KeySet {
        KeyDir::new(self.place.path("keys")).load().unwrap()
    }

    /// Replaces the key directory.
    fn write_directory(&self, text: &str) {
        fs::write(self.place.path("site").join(&directory::WELL_KNOWN[1..]), text).unwrap();
    }

    /// Returns the exit code of `check` with a config, and what it says.
    fn check(&self, config: &str) -> (i32, Value) {
        let ran = self.place.run(&["identity", "check", "--json", "--config", config]);
        (ran.code, ran.one())
    }

    #[track_caller]
    fn assert_problem(&self, config: &str, wanted: &str) {
        let (code, said) = self.check(config);
        let problems = said["problems"].as_array().unwrap();
        let has_it = problems.iter().any(|problem| problem.as_str().unwrap().contains(wanted));
        assert!(code == 1 && said["ok"] == false && has_it, "{wanted}: {code} {said:#}");
    }
}

fn new_key() -> KeyEntry {
    KeyEntry { key: SigningKey::generate().unwrap().0.into(), nbf: None, exp: None }
}

#[test]
fn a_published_directory_passes_the_check_before_and_after_a_rotation() {
    let agent = PublishedAgent::new();
    let (code, said) = agent.check("c.toml");
    assert_eq!((code, &said["ok"], &said["problems"]), (0, &json!(true), &json!([])), "{said:#}");
    assert!(said["warnings"][0].as_str().unwrap().contains("not signed"), "{said:#}");
    assert_eq!(said["card"], agent.origin.url(HOST, "/bot.json"));
    assert_eq!(run(&agent.place, &["rotate"]).code, 0);
    agent.assert_problem("c.toml", "the directory lacks key");
    agent.publish();
    assert_eq!(agent.check("c.toml").0, 0);
    // Signed, and signed for another directory.
    let (keys, now) = (agent.keys(), seconds_now());
    let body = directory::body(&keys, now);
    agent.write_directory(&body);
    let authority = format!("{HOST}:{}", agent.origin.port());
    let signed = directory::sign(&keys, &authority, &body, now);
    let headers = |signature: &str| {
        let input = ("signature-input", signed.input.as_str());
        agent.files(&[("content-digest", &signed.content_digest), input, ("signature", signature)])
    };
    agent.serve(headers(&signed.signature));
    let (code, said) = agent.check("c.toml");
    assert_eq!((code, &said["warnings"]), (0, &json!([])), "{said:#}");
    agent.serve(headers(&directory::sign(&keys, "other.example", &body, now).signature));
    assert_eq!(agent.check("c.toml").0, 1);
    agent.publish();
    let card = agent.place.path("site/bot.json");
    fs::write(&card, fs::read_to_string(&card).unwrap().replace("/bot.json", "/other.json"))
        .unwrap();
    agent.assert_problem("c.toml", "the card's client_id is");
}

#[test]
fn the_check_fails_for_what_a_verifier_cannot_use() {
    let agent = PublishedAgent::new();
    let to = agent.origin.url(HOST, "/moved");
    agent.serve(Site::Redirect { status: 302, to });
    agent.assert_problem("c.toml", "redirect");
    assert_eq!(agent.origin.hits_at(HOST, "/moved"), 0, "a redirect was followed");
    agent.serve(Site::Files(agent.place.path("site")));
    agent.assert_problem("c.toml", "the directory has the content type");
    agent.serve(Site::Status(404));
    agent.assert_problem("c.toml", "status 404, expected 200");
    agent.publish();
    let own = agent.keys().entries().to_vec();
    let body = |more: usize| {
        let foreign = (0..more).map(|_| new_key());
        directory::body(&KeySet::new(own.iter().cloned().chain(foreign).collect()), seconds_now())
    };
    agent.write_directory(&body(1));
    agent.assert_problem("c.toml", "which is not one of the own keys");
    agent.write_directory(&body(10));
    agent.assert_problem("c.toml", "the directory has 11 keys; verifiers may read only 10");
    let padded = |len: usize| format!("{}{}", body(0), " ".repeat(len - body(0).len()));
    agent.write_directory(&padded(64 << 10));
    assert_eq!(agent.check("c.toml").0, 0, "64 KiB are allowed");
    agent.write_directory(&padded((64 << 10) + 1));
    agent.assert_problem("c.toml", "65536");
    agent.write_directory("{\"keys\": 3}");
    agent.assert_problem("c.toml", "the directory is not a JWK Set");
    // An unknown authority.
    agent.publish();
    let config =
        fs::read_to_string(agent.place.path("c.toml")).unwrap().replace("ca_file = 'ca.pem'", "");
    agent.place.write("untrusted.toml", config);
    agent.assert_problem("untrusted.toml", "certificate");
}

#[test]
fn the_check_connects_only_where_the_address_guard_allows_it() {
    let agent = PublishedAgent::new();
    let connections = || agent.origin.connections(HOST.parse().unwrap());
    let before = connections();
    agent.assert_problem("closed.toml", "127.0.0.1");
    let open = fs::read_to_string(agent.place.path("c.toml")).unwrap();
    let own = agent.origin.url(HOST, "");
    for hostile in
        ["https://169.254.169.254", "https://[::ffff:169.254.169.254]", "https://10.255.255.1"]
    {
        agent.place.write("hostile.toml", open.replace(&own, hostile));
        agent.assert_problem("hostile.toml", "may not be dialled");
    }
    assert_eq!(connections(), before);
}

#[test]
fn the_check_gives_up_on_a_server_that_hangs() {
    let agent = PublishedAgent::new();
    agent.serve(Site::Silent);
    agent.assert_problem("c.toml", "did not end within 5s");
}

/// Returns the texts that must not appear anywhere: the private keys, as base64 and as bytes.
fn forbidden(place: &TestDir) -> Vec<Vec<u8>> {
    use base64::Engine as _;
    let files = fs::read_dir(place.path("keys")).unwrap().map(|entry| entry.unwrap().path());
    let pems = files.filter(|path| path.extension().is_some_and(|extension| extension == "pem"));
    let seed = |path| {
        let pem = fs::read_to_string(path).unwrap();
        let der =
            base64::engine::general_purpose::STANDARD.decode(pem.lines().nth(1).unwrap()).unwrap();
        der[der.len() - 32..].to_vec()
    };
    secrets(place).into_iter().map(String::into_bytes).chain(pems.map(seed)).collect()
}

/// Fails if any file below `dir`, besides the keys, has one of the texts.
fn assert_absent(dir: &std::path::Path, texts: &[Vec<u8>]) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += if path.ends_with("keys") { 0 } else { assert_absent(&path, texts) };
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let has = |text: &Vec<u8>| bytes.windows(text.len()).any(|part| part == text);
        assert!(!texts.iter().any(has), "{}", path.display());
        files += 1;
    }
    files
}

#[test]
fn no_output_log_or_archive_of_any_command_has_a_private_key_or_a_signature() {
    let (place, kid) = with_key();
    let certificate = Certificate::new([HOST]).unwrap();
    let origin = Origin::start_tls([(HOST, Site::Static)], &certificate).unwrap();
    place.write("ca.pem", certificate.authority_pem());
    let section = fs::read_to_string(place.path("c.toml")).unwrap();
    place.write("c.toml", format!("{section}[http]\nca_file = 'ca.pem'\n"));
    let mut texts = forbidden(&place);
    let mut said = Vec::new();
    let mut keep = |ran: Ran| {
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        said.push(ran.stdout.into_bytes());
        said.push(ran.stderr.into_bytes());
    };
    let crawl = [
        "--config",
        "c.toml",
        "--no-browser",
        "--allow-network",
        "127.0.0.0/8",
        "--json",
        "--verbose",
    ];
    let urls = ["/a", "/b"].map(|path| origin.url(HOST, path));
    let fetch = |archive: &str| {
        let args =
            [&["fetch"], &crawl[..], &["--robots", "obey", "--warc", archive, &urls[0], &urls[1]]]
                .concat();
        place.run(&args)
    };
    keep(fetch("one.warc"));
    keep(place.run(&["config", "show", "--config", "c.toml"]));
    keep(place.run(&["config", "check", "c.toml"]));
    keep(run(&place, &["show", "--json"]));
    keep(run(&place, &["directory", "--out", "site"]));
    keep(run(&place, &["rotate"]));
    texts.extend(forbidden(&place));
    keep(run(&place, &["rotate", "--compromised", "--json"]));
    texts.extend(forbidden(&place));
    keep(fetch("two.warc"));
    let again = TestDir::new();
    again.write("c.toml", "[identity]\nkeys = 'keys'\n");
    keep(run(&again, &["init", "--agent", "https://bot.example", "--name", "B"]));
    texts.extend(forbidden(&again));
    assert_eq!(texts.len(), 2 * (1 + 2 + 1 + 1));
    let signatures: Vec<Vec<u8>> = origin
        .requests()
        .iter()
        .filter_map(|request| {
            Some(header(&request.headers, "signature")?.as_bytes()[6..90].to_vec())
        })
        .collect();
    assert!(signatures.len() >= 6, "pages and robots.txt of both crawls are signed");
    texts.extend(signatures);
    let has = |said: &Vec<u8>, text: &Vec<u8>| said.windows(text.len()).any(|part| part == text);
    assert!(said.iter().all(|said| texts.iter().all(|text| !has(said, text))));
    assert!(assert_absent(&place.path("."), &texts) > 5);
    // The search would find something: the archive has the public part of the signatures.
    let archive = fs::read(place.path("one.warc")).unwrap();
    assert!(has(&archive, &b"Signature-Input: sig1=".to_vec()) && has(&archive, &kid.into_bytes()));
}

#[test]
fn coverage_authority_leaves_method_and_path_open() {
    let (place, _) = with_key();
    let section = fs::read_to_string(place.path("c.toml")).unwrap();
    place.write("c.toml", format!("tuning.signature_coverage = 'authority'\n{section}"));
    let signed = run(&place, &["sign", "https://shop.example/a"]).stdout;
    assert!(
        signed.contains("Signature-Input: sig1=(\"@authority\" \"signature-agent\";key=\"sig1\")"),
        "{signed}"
    );
    for (line, host, code) in [
        ("GET /a", "shop.example", 0),
        ("HEAD /b?c", "shop.example", 0),
        ("GET /a", "b.example", 1),
    ] {
        place.write("r.txt", format!("{line} HTTP/1.1\nHost: {host}\n{signed}\n"));
        let verified = run(&place, &["verify", "--request", "r.txt"]);
        assert_eq!(verified.code, code, "{line} {host}: {}", verified.stderr);
    }
    place.write("bad.toml", format!("tuning.signature_coverage = 'path'\n{section}"));
    assert_eq!(place.run(&["config", "check", "bad.toml"]).code, 2);
}

#[test]
fn a_request_over_plain_http_is_verified_as_such() {
    let (place, _) = with_key();
    let section = fs::read_to_string(place.path("c.toml")).unwrap();
    place.write("c.toml", format!("tuning.sign_http = 'loopback'\n{section}"));
    for (url, host, scheme, other) in [
        // Each scheme has its own default port.
        ("http://127.0.0.1/a", "127.0.0.1:80", "http", "https"),
        ("https://shop.example/a", "shop.example:443", "https", "http"),
    ] {
        let signed = run(&place, &["sign", url]).stdout;
        place.write("r.txt", format!("GET /a HTTP/1.1\nHost: {host}\n{signed}\n"));
        let verify =
            |scheme: &str| run(&place, &["verify", "--request", "r.txt", "--scheme", scheme]).code;
        assert_eq!((verify(scheme), verify(other)), (0, 1), "{url}");
    }
    assert_eq!(run(&place, &["verify", "--request", "r.txt", "--scheme", "ftp"]).code, 2);
}

#[test]
fn the_address_of_the_crawlers_page_cannot_break_the_user_agent() {
    let (place, _) = with_key();
    let section = fs::read_to_string(place.path("c.toml")).unwrap();
    place.write("c.toml", format!("{section}about = \"https://bot.example/a\\r\\nX-Evil: 1\"\n"));
    let shown = run(&place, &["show", "--json"]).one();
    let agent = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/aX-Evil:%201)";
    assert_eq!(shown["user_agent"], agent);
    let origin = Origin::start([(HOST, Site::Static)]).unwrap();
    let fetch =
        ["fetch", "--config", "c.toml", "--no-browser", "--allow-network", "127.0.0.0/8", "--json"];
    let ran = place.run(&[&fetch[..], &[&origin.url(HOST, "/a")]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(origin.requests()[0].user_agent(), Some(agent));
}

#[test]
fn a_key_that_the_table_does_not_list_is_shown_and_not_used() {
    let (place, kid) = with_key();
    let extra = place.path("keys/extra.pem");
    fs::copy(place.path(&format!("keys/{kid}.pem")), &extra).unwrap();
    fs::write(&extra, SigningKey::generate().unwrap().1.as_bytes()).unwrap();
    let shown = run(&place, &["show", "--json"]);
    assert_eq!(shown.one()["keys"].as_array().unwrap().len(), 1);
    assert!(shown.stderr.contains("extra.pem is not used"), "{}", shown.stderr);
}

/// Makes the key of a place one that has expired.
fn expire_key(place: &TestDir) {
    let table = place.path("keys/keys.toml");
    let text = fs::read_to_string(&table).unwrap();
    let expired = text.lines().map(|line| match line.split_once(" = ") {
        Some(("nbf", _)) => "nbf = 1".to_owned(),
        Some(("exp", _)) => "exp = 2".to_owned(),
        _ => line.to_owned(),
    });
    fs::write(&table, expired.collect::<Vec<_>>().join("\n")).unwrap();
}

#[test]
fn a_fetcher_that_cannot_sign_makes_no_request_and_leaves_no_evidence() {
    let (place, _) = with_key();
    let section = fs::read_to_string(place.path("c.toml")).unwrap();
    let section = format!("tuning.sign_http = 'loopback'\n{section}");
    place.write("always.toml", &section);
    place.write("learned.toml", format!("{section}mode = 'learned'\n"));
    expire_key(&place);
    let origin = Origin::start([(HOST, Site::FORBIDDEN)]).unwrap();
    let fetch = |config: &str, path: &str| {
        let options = ["--no-browser", "--allow-network", "127.0.0.0/8", "--json", "--wait", "0"];
        place.run(
            &[&["fetch", "--config", config], &options[..], &[&origin.url(HOST, path)]].concat(),
        )
    };
    let ran = fetch("always.toml", "/a");
    let result = ran.one();
    assert_eq!(
        (ran.code == 0, &result["error_type"], origin.hits(HOST)),
        (false, &json!("no_fetcher"), 0),
        "{result:#}"
    );
    let error = result["error"].as_str().unwrap();
    assert!(
        error.contains("direct_signed is not available: cannot sign: no key is valid now"),
        "{error}"
    );
    assert!(ran.stderr.contains("nothing is signed"), "{}", ran.stderr);
    // The bug: unsigned requests of `direct_signed` were evidence against it, and two blocks made
    // the host one that refuses signed requests.
    assert_eq!(fetch("learned.toml", "/b").one()["fetcher"], "direct_access");
    let log = place.run(&["export", "--json"]);
    let fetchers: Vec<Value> =
        log.json().into_iter().map(|attempt| attempt["fetcher"].clone()).collect();
    assert!(
        !fetchers.is_empty() && fetchers.iter().all(|name| name == "direct_access"),
        "{fetchers:?}"
    );
}

#[test]
fn headers_that_a_host_has_issued_go_to_that_host_only_and_are_never_shown() {
    let place = TestDir::new();
    let (shop, other) = (HOST, "127.0.0.2");
    let certificate = Certificate::new([shop, other]).unwrap();
    let origin =
        Origin::start_tls([(shop, Site::Static), (other, Site::Static)], &certificate).unwrap();
    let plain = Origin::start([(shop, Site::Static)]).unwrap();
    place.write("ca.pem", certificate.authority_pem());
    let section = format!("[identity.host.'{shop}']\nheaders_env = 'SHOP_HEADERS'\n");
    place.write("c.toml", format!("{section}[http]\nca_file = 'ca.pem'\n"));
    let with = |text: Option<&str>, args: &[&str]| {
        let mut command = place.command(args);
        text.map(|text| command.env("SHOP_HEADERS", text));
        Ran::from(command.output().unwrap())
    };
    let headers = "Signature: sig1=:hunter2:\nX-Shop: hunter2";
    // A page of the shop redirects to another host, and that one back.
    let to = |host: &str, path: &str| Site::Redirect { status: 302, to: origin.url(host, path) };
    let mixed = |path: &str, site| {
        Site::Mixed(vec![(path.to_owned(), site), ("/".to_owned(), Site::Static)])
    };
    origin.set_site(shop, mixed("/1", to(other, "/2")));
    origin.set_site(other, mixed("/2", to(shop, "/3")));
    let fetch =
        ["fetch", "--config", "c.toml", "--no-browser", "--allow-network", "127.0.0.0/8", "--json"];
    let args = [
        &fetch[..],
        &["--robots", "obey", "--warc", "a.warc", "--verbose", "--pace", "off", "--wait", "0"],
    ]
    .concat();
    let urls = [origin.url(shop, "/1"), origin.url(other, "/x"), plain.url(shop, "/plain")];
    let ran = with(Some(headers), &[&args[..], &urls.each_ref().map(String::as_str)].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let mut seen = 0;
    let (https, http) = (origin.requests(), plain.requests());
    assert!(!http.is_empty());
    let all = https
        .iter()
        .map(|request| (request, request.host == shop))
        .chain(http.iter().map(|request| (request, false)));
    for (request, is_shop) in all {
        let got = ["signature", "x-shop"].map(|name| header(&request.headers, name));
        let expected =
            if is_shop { [Some("sig1=:hunter2:"), Some("hunter2")] } else { [None, None] };
        assert_eq!(got, expected, "{} {}", request.host, request.path);
        seen += usize::from(is_shop);
    }
    assert!(seen >= 3, "/1, /3 and robots.txt");
    let shown = with(Some(headers), &["config", "show", "--config", "c.toml"]);
    assert!(shown.code == 0 && shown.stdout.contains("SHOP_HEADERS"), "{}", shown.stdout);
    for said in [&ran.stdout, &ran.stderr, &shown.stdout, &shown.stderr] {
        assert!(!said.contains("hunter2"), "{said}");
    }
    assert!(assert_absent(&place.path("."), &[b"hunter2".to_vec()]) > 3);
    for (text, why) in [
        (None, "the variable SHOP_HEADERS"),
        (Some(""), "it is empty"),
        (Some("hunter2"), "line 1 is not a header"),
        (Some("A: hunter2\u{e4}"), "line 1 is not a header"),
        (Some("Host: hunter2"), "the transport sets host"),
    ] {
        for args in
            [&[&fetch[..], &[urls[1].as_str()]].concat()[..], &["config", "check", "c.toml"]]
        {
            let refused = with(text, args);
            let said = format!("{}{}", refused.stdout, refused.stderr);
            assert!(
                refused.code == 2 && said.contains(why) && !said.contains("hunter2"),
                "{why}: {said}"
            );
        }
    }
}
