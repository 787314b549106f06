//! `identity`: keys, what is published, signed requests and their checks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::response::header;
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;
use fetchwise_testsite::origin::{Origin, Site};
use fetchwise_testsite::requirements::{NO_CHROMIUM, required};
use serde_json::Value;

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
        &["init", "--agent", "https://bot.example", "--name", "ExampleBot", "--contact", "b@example.org", "--json"],
    );
    let made_json = made.one();
    assert_eq!((made.code, made_json["agent"].as_str()), (0, Some("https://bot.example")), "{}", made.stderr);
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
    pems.map(|path| fs::read_to_string(path).unwrap().lines().nth(1).unwrap()[21..].to_owned()).collect()
}

#[test]
fn init_prints_the_section_for_the_config_and_show_the_key() {
    let (place, kid) = with_key();
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("keys"), mode(&format!("keys/{kid}.pem"))), (0o700, 0o600));
    let shown = run(&place, &["show", "--json"]).one();
    assert_eq!((shown["keys"][0]["kid"].as_str(), shown["keys"][0]["state"].as_str()), (Some(&*kid), Some("active")));
    assert_eq!(shown["user_agent"], "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://bot.example/bot)");
    let in_browsers = shown["browser_user_agent"].as_str().unwrap();
    assert!(in_browsers.contains("compatible; ExampleBot/1.0; +https://bot.example/bot) Chrome/"), "{in_browsers}");
    let again = run(&place, &["init"]);
    assert!(again.code == 2 && again.stderr.contains("identity rotate"), "{}", again.stderr);
    let bad = place.run(&["identity", "init", "--agent", "http://bot.example", "--name", "B"]);
    assert!(bad.code == 2 && bad.stderr.contains("https origin"), "{}", bad.stderr);
    let secret = &secrets(&place)[0];
    for ran in
        [run(&place, &["show"]), run(&place, &["sign", "https://e.org/"]), run(&place, &["directory", "--out", "site"])]
    {
        assert!(ran.code == 0 && !ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{}", ran.stderr);
    }
    assert!(!fs::read_to_string(place.path("site/bot.json")).unwrap().contains(secret));
}

#[test]
fn keys_lie_in_the_users_configuration_directory_or_in_a_variable() {
    let place = TestDir::new();
    let home = place.path("config");
    let at_home = |args: &[&str]| Ran::from(place.command(args).env("XDG_CONFIG_HOME", &home).output().unwrap());
    let made = at_home(&["identity", "init", "--agent", "https://bot.example", "--name", "B"]);
    assert!(
        made.code == 0 && made.stdout.starts_with("[identity]\nagent = \"https://bot.example\"\n"),
        "{}",
        made.stderr
    );
    assert!(home.join("fetchwise/identity/keys.toml").exists());
    // Without an agent in the config the key changes nothing.
    assert_eq!(at_home(&["config", "check"]).code, 0);
    let pem = fs::read_dir(home.join("fetchwise/identity")).unwrap().map(|entry| entry.unwrap().path());
    let pem = pem.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "pem")).unwrap();
    place.write("c.toml", "[identity]\nagent = 'https://bot.example'\nkey_env = 'BOT_KEY'\n");
    let sign = |text: &str| {
        let mut command = place.command(&["identity", "sign", "https://e.org/", "--config", "c.toml", "--json"]);
        Ran::from(command.env("BOT_KEY", text).output().unwrap())
    };
    let signed = sign(&fs::read_to_string(pem).unwrap()).one();
    assert!(signed["headers"]["Signature"].as_str().unwrap().starts_with("sig1=:"));
    for (text, want) in [("", "BOT_KEY"), ("hunter2", "BEGIN PRIVATE KEY"), (RFC_KEY, "published test key")] {
        let ran = sign(text);
        assert!(ran.code == 2 && ran.stderr.contains(want) && ran.stderr.contains("hint"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("hunter2") && !ran.stderr.contains("hSEqVTm50"), "{}", ran.stderr);
    }
}

#[test]
fn keys_that_cannot_be_used_end_every_command_with_2_and_the_way_out() {
    let (place, kid) = with_key();
    let pem = place.path(&format!("keys/{kid}.pem"));
    let chmod = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
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
        let ran = place.run(&["fetch", "--config", "bad.toml", "--no-browser", "https://127.0.0.1:1/"]);
        assert!(ran.code == 2 && ran.stderr.contains(want), "{config}: {}", ran.stderr);
    }
}

#[test]
fn a_signed_request_verifies_and_a_changed_one_exits_with_1() {
    let (place, kid) = with_key();
    let url = "https://shop.example:8443/a/b%20c?q=1";
    let signed = run(&place, &["sign", url]);
    assert_eq!(signed.stdout.lines().count(), 3, "{}", signed.stdout);
    let request =
        format!("GET /a/b%20c?q=1 HTTP/1.1\r\nHost: shop.example:8443\r\n{}\r\n", signed.stdout.replace('\n', "\r\n"));
    place.write("r.txt", &request);
    let valid = run(&place, &["verify", "--request", "r.txt", "--json"]);
    assert_eq!((valid.code, valid.one()["kid"].as_str()), (0, Some(&*kid)), "{}", valid.stderr);
    for (from, to) in
        [("GET", "HEAD"), ("/a/", "/b/"), ("shop.example", "shop2.example"), ("bot.example", "bad.example")]
    {
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
    let recorded = place.run(&["identity", "registered", "Cloudflare", "--json", "--now", "2026-11-24T02:00:00Z"]);
    assert_eq!(recorded.one()["registered_at"], "2026-11-24T02:00:00.000Z", "{}", recorded.stderr);
    assert_eq!(place.run(&["identity", "registered", "human"]).code, 0);
    let read = fetchwise::identity::Registrations::read(&place.data()).unwrap();
    assert_eq!(read.registered_at_ms("cloudflare"), Some(1_795_485_600_000));
    assert!(read.registered_at_ms("perimeterx").is_some());
    let unknown = place.run(&["identity", "registered", "cloudfare"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("cloudflare"), "{}", unknown.stderr);
    assert_eq!(place.run(&["identity", "registered"]).code, 2);
    assert_eq!(fetchwise::identity::Registrations::read(&place.data()).unwrap(), read);
    place.write("r.toml", "[[rule]]\nid='g'\nvendor='gatekeeper'\ngrade='strong'\nfind=['abcd']\nnote='x'\n");
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
        body["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
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
    let section = format!("{section}http = 'loopback'\n");
    place.write("c.toml", &section);
    place.write("own.toml", format!("{section}[[fetcher]]\nname = 'own'\nlike = 'playwright'\n"));
    place.write("document.toml", format!("{section}browser_scope = 'document'\n"));
    place.write("learned.toml", format!("{section}mode = 'learned'\n"));
    let page = "<!doctype html><title>A page</title><p>Some words that a person may read.<script src=/a.js></script>";
    let origin = Origin::start([("127.0.0.1", Site::Html(page.to_owned()))]).unwrap();
    let in_browsers = "compatible; ExampleBot/1.0; +https://bot.example/bot) Chrome/";
    for (fetcher, config, declared, signed) in [
        ("direct_signed", "c.toml", "(compatible; ExampleBot/1.0; +https://bot.example/bot)", [Some(true), None]),
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
            assert!(agent.contains(declared) && agent.contains("ExampleBot") != declared.is_empty(), "{agent}");
            Some(header(&request.headers, "signature").is_some())
        };
        assert_eq!([signed_at(&path), signed_at("/a.js")], signed, "{fetcher} {config}: {requests:?}");
    }
    let bad = format!("{section}browser_scope = 'third'\n");
    place.write("bad.toml", bad);
    let ran = place.run(&["config", "check", "bad.toml"]);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.code == 2 && said.contains("expected one of `document`, `site`, `all`"), "{said}");
}
