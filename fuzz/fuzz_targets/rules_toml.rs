//! Rule files, as bytes and built from fields: an error names its line, and accepted rules are used
//! without a panic, on a page made from the file itself.
#![no_main]

use std::sync::LazyLock;

use fetchwise::detect::{Detector, Explanation, Scratch};
use fetchwise::response::{Header, Page};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// It lives through all inputs, as in a crawler.
static RELOADED: LazyLock<Detector> = LazyLock::new(Detector::new);

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(String),
    Rules(Vec<Rule>),
}

#[derive(Arbitrary, Debug)]
struct Rule {
    id: u8,
    grade: u8,
    vendor: Option<u8>,
    lists: Vec<(u8, Vec<String>)>,
    also: Vec<Vec<String>>,
    places: Vec<u8>,
    status: Vec<u16>,
    numbers: Vec<(u8, u32)>,
    flags: Vec<(u8, bool)>,
    confidence: Option<f32>,
}

const GRADES: [&str; 14] = [
    "mitigated",
    "strong",
    "title",
    "sentence",
    "weak",
    "shell",
    "refusal",
    "queue",
    "presence",
    "spa",
    "paywall",
    "not_found",
    "cue",
    "sure",
];
const LISTS: [&str; 9] =
    ["find", "title", "title_starts", "title_part", "text", "refresh", "header", "cookie", "host"];
const PLACES: [&str; 5] = ["code", "text", "noscript", "hidden", "inert"];
const NUMBERS: [&str; 8] = [
    "max_visible_chars",
    "max_links",
    "max_inputs",
    "max_images",
    "max_frames",
    "max_bytes",
    "max_visible_chars_200",
    "max_links_200",
];
const FLAGS: [&str; 8] = [
    "noindex",
    "refusal",
    "mount",
    "scripts",
    "title_absent",
    "always",
    "component",
    "application",
];

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.iter().map(|i| quoted(i)).collect::<Vec<_>>().join(", "))
}

fn toml(rules: &[Rule]) -> String {
    let mut out = String::new();
    for rule in rules.iter().take(20) {
        out += &format!(
            "[[rule]]\nid = \"r{}\"\ngrade = \"{}\"\nnote = \"x\"\n",
            rule.id,
            GRADES[rule.grade as usize % GRADES.len()]
        );
        if let Some(vendor) = rule.vendor {
            out += &format!("vendor = \"v{vendor}\"\n");
        }
        for (field, items) in &rule.lists {
            out += &format!("{} = {}\n", LISTS[*field as usize % 9], list(items));
        }
        if !rule.also.is_empty() {
            out += &format!(
                "also = [{}]\n",
                rule.also.iter().map(|g| list(g)).collect::<Vec<_>>().join(", ")
            );
        }
        if !rule.places.is_empty() {
            let places: Vec<_> =
                rule.places.iter().map(|p| PLACES[*p as usize % 5].to_owned()).collect();
            out += &format!("places = {}\n", list(&places));
        }
        if !rule.status.is_empty() {
            out += &format!("status = {:?}\n", rule.status);
        }
        for (field, number) in &rule.numbers {
            out += &format!("{} = {number}\n", NUMBERS[*field as usize % NUMBERS.len()]);
        }
        for (field, flag) in &rule.flags {
            out += &format!("{} = {flag}\n", FLAGS[*field as usize % FLAGS.len()]);
        }
        if let Some(confidence) = rule.confidence.filter(|c| c.is_finite()) {
            out += &format!("confidence = {confidence:.3}\n");
        }
    }
    out
}

fuzz_target!(|input: Input| {
    let rules = match input {
        Input::Bytes(text) => text,
        Input::Rules(rules) => toml(&rules),
    };
    let before = RELOADED.rule_count();
    if let Err(error) = RELOADED.reload(&rules) {
        assert!(error.to_string().contains("line "), "{error}\n{rules}");
        assert_eq!(RELOADED.rule_count(), before);
        return;
    }
    let headers = [
        Header::new("Content-Type", "text/html"),
        Header::new("Server", "r1"),
        Header::new("Set-Cookie", "r=1"),
    ];
    let html = format!(
        "<title>{rules}</title><script>{rules}</script><p>{rules}<p hidden>{rules}</p><!-- {rules}"
    );
    for body in
        [html.as_str(), "<title>r1</title><script>document.cookie=1;location.reload()</script>", ""]
    {
        for status in [200, 403] {
            let page = Page {
                url: Some("http://r1/"),
                final_url: None,
                status,
                headers: &headers,
                body: body.as_bytes(),
            };
            let Explanation { verdict, matches, .. } =
                RELOADED.explain(&page, &mut Scratch::default());
            assert!((0.0..=1.0).contains(&verdict.confidence));
            if let Some(rule) = verdict.rule.as_ref().filter(|rule| &***rule != "cues") {
                assert!(
                    matches.iter().any(|m| m.rule == *rule && m.counted) || matches.len() == 256,
                    "{rule}\n{rules}"
                );
            }
        }
    }
});
