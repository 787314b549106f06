//! The dashboard as axe-core sees it: overview and domain page, light and dark, on a wide and on a
//! narrow screen.
//!
//! Owns: which rules count. npm installs axe-core for the test; nothing of it is kept here.
//!
//! Must not know: what the pages show.

use std::process::Command;

use serde_json::{Value, json};

use super::chrome::Chrome;
use super::{crawl, open};

/// The release that the pages are held against. A newer one has new rules, so somebody has to read
/// what it finds.
const AXE: &str = "axe-core@4.14.1";
const RUN: &str = "axe.run(document, { resultTypes: ['violations'], runOnly: { type: 'tag', values: ['wcag2a', \
    'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] } }).then(found => [found.passes.length, \
    found.violations.map(rule => [rule.id, rule.nodes.map(node => node.html.slice(0, 200))])])";

/// Installs axe-core, and returns its script.
fn script() -> String {
    let place = tempfile::tempdir().unwrap();
    let args = [
        "install",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--loglevel=error",
        AXE,
    ];
    let output = Command::new("npm").args(args).current_dir(place.path()).output().expect("npm");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(place.path().join("node_modules/axe-core/axe.min.js")).unwrap()
}

/// Returns the violations of the page as it is. Its rules have run: many of them pass.
fn violations(chrome: &mut Chrome) -> Value {
    let found = chrome.eval(RUN);
    assert!(found[0].as_u64() > Some(20), "{found}");
    found[1].clone()
}

#[test]
fn no_rule_of_axe_is_violated_and_a_planted_violation_is_found() {
    let axe = script();
    let place = tempfile::tempdir().unwrap();
    let (server, mut chrome) = open(&place.path().join("data"), &crawl(), 1440);
    // A mark on the charts, and its line in the list.
    assert_eq!(server.ask("POST", "/v1/mode", Some(r#"{"mode": "learning"}"#)).0, 200);
    for page in ["/", "/?domain=bank.example"] {
        chrome.open(&format!("{}{page}", server.url));
        chrome.until("document.querySelector('#status')?.textContent === 'Live'");
        chrome.until("[...document.querySelectorAll('#events li')].some(line => line.textContent.includes('Settings read again'))");
        if page != "/" {
            chrome.until("document.querySelector('#domain-body').checkVisibility()");
        }
        chrome.eval(
            "document.querySelectorAll('details').forEach(details => { details.open = true })",
        );
        chrome.eval(&axe);
        for scheme in ["light", "dark"] {
            chrome.prefers(scheme, true);
            chrome.until(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
            for width in [1440, 390] {
                chrome.size(width, 900);
                chrome.until(&format!("innerWidth === {width}"));
                assert_eq!(violations(&mut chrome), json!([]), "{page} {scheme} {width}");
            }
        }
    }
    chrome.eval("document.body.append(document.createElement('button'))");
    assert_eq!(violations(&mut chrome)[0][0], json!("button-name"));
}
