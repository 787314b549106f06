//! Every rule of the shipped table, on a page made for it and on the nearest page that it must
//! ignore.
//!
//! The pages are made from the table itself. Each marker, title, sentence and header alone must
//! make its rule count, and more visible text than the rule allows must stop it.

use fetchwise_detect::{Detector, DetectorOptions, Explanation, Scratch};
use fetchwise_types::response::{Header, Page};
use toml::{Table, Value};

/// A page under construction.
#[derive(Clone, Default)]
struct Made {
    status: u16,
    final_url: Option<String>,
    headers: Vec<Header>,
    head: String,
    body: String,
}

impl Made {
    fn html(&self) -> String {
        format!("<!DOCTYPE html><html><head>{}</head><body>{}</body></html>", self.head, self.body)
    }
}

fn strings(rule: &Table, field: &str) -> Vec<String> {
    let list = rule.get(field).and_then(Value::as_array);
    list.into_iter().flatten().map(|v| v.as_str().unwrap().to_owned()).collect()
}

/// Returns a text that the pattern matches.
fn fill(pattern: &str) -> String {
    let filled = [
        ("{digits}", "18"),
        ("{hex}", "deb00f17"),
        ("{word}", "g"),
        ("{gap}", " now "),
        ("{end}", ""),
    ];
    filled
        .into_iter()
        .fold(pattern.to_owned(), |text, (wildcard, with)| text.replace(wildcard, with))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn in_place(pattern: &str, place: &str) -> String {
    let text = fill(pattern);
    match place {
        "inert" => format!("<!-- {text} -->"),
        "noscript" => format!("<noscript>{text}</noscript>"),
        "hidden" => format!("<p hidden>{text}</p>"),
        "text" => format!("<p>{text}</p>"),
        _ => format!("<script>{text}</script>"),
    }
}

/// Returns the common part of all pages of the rule: its conditions and its needs besides the
/// evidence.
fn base(rule: &Table) -> Made {
    let place = strings(rule, "places").first().cloned().unwrap_or_default();
    let mut made = Made { status: 200, ..Made::default() };
    if let Some(status) = rule.get("status").and_then(Value::as_array) {
        made.status = u16::try_from(status[0].as_integer().unwrap()).unwrap();
    }
    made.headers.push(Header::new("Content-Type", "text/html"));
    for group in rule.get("also").and_then(Value::as_array).into_iter().flatten() {
        made.body += &in_place(group.as_array().unwrap()[0].as_str().unwrap(), &place);
    }
    let is = |field: &str| rule.get(field).and_then(Value::as_bool) == Some(true);
    if is("noindex") {
        made.head += "<meta name=robots content=\"noindex, nofollow\">";
    }
    if is("mount") {
        made.body += "<div id=x></div>";
    }
    if is("component") {
        made.body += "<x-y></x-y>";
    }
    if is("scripts") || rule["grade"].as_str() == Some("spa") {
        made.body += "<script src=x></script>";
    }
    made
}

/// Returns one page for each piece of evidence, with its name.
fn pages(rule: &Table) -> Vec<(String, Made)> {
    let mut out = Vec::new();
    let mut push = |what: &str, change: &dyn Fn(&mut Made)| {
        let mut made = base(rule);
        change(&mut made);
        out.push((what.to_owned(), made));
    };
    let mut places = strings(rule, "places");
    if places.is_empty() {
        places.push("code".to_owned());
    }
    for pattern in strings(rule, "find") {
        for place in &places {
            push(&format!("find {pattern} in {place}"), &|m| m.body += &in_place(&pattern, place));
        }
    }
    for field in ["title", "title_starts", "title_part"] {
        for title in strings(rule, field) {
            let end = match field {
                "title_starts" => " and more",
                "title_part" => " | Example",
                _ => "",
            };
            push(&format!("{field} {title}"), &|m| {
                m.head += &format!("<title>{}{end}</title>", escape(&title))
            });
        }
    }
    for sentence in strings(rule, "text") {
        push(&format!("text {sentence}"), &|m| {
            m.body += &format!("<p>{}</p>", escape(&fill(&sentence)))
        });
    }
    for target in strings(rule, "refresh") {
        push(&format!("refresh {target}"), &|m| {
            m.head +=
                &format!("<meta http-equiv=\"refresh\" content=\"0; url=/x/{}\">", fill(&target));
        });
    }
    for test in strings(rule, "header") {
        push(&format!("header {test}"), &|m| {
            let (name, value) = test.split_once(": ").unwrap_or((&test, "1"));
            let name = if name.ends_with('-') { format!("{name}x") } else { name.to_owned() };
            m.headers.push(Header::new(name, value));
        });
    }
    for cookie in strings(rule, "cookie") {
        push(&format!("cookie {cookie}"), &|m| {
            m.headers.push(Header::new("Set-Cookie", format!("{cookie}=1; path=/")))
        });
    }
    for host in strings(rule, "host") {
        push(&format!("host {host}"), &|m| {
            m.final_url = Some(format!("https://{}/", host.replace('*', "a")))
        });
    }
    if rule.get("always").is_some() {
        push("always", &|_| {});
    }
    out
}

/// Returns whether the rule counted on the page: as a match, or as a present vendor.
fn counts(detector: &Detector, scratch: &mut Scratch, rule: &Table, made: &Made) -> bool {
    let html = made.html();
    let page = Page {
        url: Some("https://example.com/"),
        final_url: made.final_url.as_deref(),
        status: made.status,
        headers: &made.headers,
        body: html.as_bytes(),
    };
    let Explanation { verdict, matches, .. } = detector.explain(&page, scratch);
    if rule["grade"].as_str() == Some("presence") {
        return verdict.waf.contains(rule["vendor"].as_str().unwrap());
    }
    // Hints are not searched for on a block page.
    if rule["grade"].as_str() == Some("cue") && verdict.is_blocked {
        return true;
    }
    matches.iter().any(|m| *m.rule == *rule["id"].as_str().unwrap() && m.counted)
}

fn table() -> Vec<Table> {
    let file: Table = Detector::shipped_rules().parse().unwrap();
    let rules: Vec<Table> =
        file["rule"].as_array().unwrap().iter().map(|r| r.as_table().unwrap().clone()).collect();
    assert!(rules.len() > 100);
    rules
}

#[test]
fn a_content_rule_corrects_any_other_verdict() {
    let rules =
        "[[rule]]\nid = 'ours'\ngrade = 'content'\nfind = ['<main class=\"ours']\nnote = 'x'\n";
    let detector = Detector::with_rules(rules).unwrap();
    let headers = [Header::new("Content-Type", "text/html")];
    let main = "<main class=\"ours\">";
    for body in [
        "<title>Access denied</title>{}",
        "<div id=root></div>{}<script src=/app.js></script>",
        "<h1>Bad gateway</h1>{}",
    ] {
        let read = |detector: &Detector, body: &str| {
            let page =
                Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
            detector.inspect(&page, &mut Scratch::default()).is_content()
        };
        assert!(read(&detector, &body.replace("{}", main)), "{body}");
        assert!(!read(&detector, &body.replace("{}", "")), "{body}");
    }
}

#[test]
fn every_piece_of_evidence_makes_its_rule_count() {
    let detector = Detector::new().with_options(DetectorOptions::default().counting_all());
    let mut scratch = Scratch::default();
    let mut failed = Vec::new();
    let mut made = 0;
    for rule in table() {
        for (what, page) in pages(&rule) {
            made += 1;
            if !counts(&detector, &mut scratch, &rule, &page) {
                failed.push(format!("{}: {what}\n    {}", rule["id"], page.html()));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {made} pages:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_rule_does_not_count_with_more_text_than_it_allows() {
    let detector = Detector::new();
    let mut scratch = Scratch::default();
    let mut failed = Vec::new();
    for rule in table() {
        let unlimited = matches!(rule["grade"].as_str().unwrap(), "presence" | "refusal")
            || rule
                .get("max_visible_chars")
                .and_then(Value::as_integer)
                .is_some_and(|most| most >= 100_000);
        if unlimited {
            continue;
        }
        // No rule allows more than this, except the ones skipped here.
        let article =
            "<p>Plain words about nothing in particular, one after the other.</p>".repeat(200);
        for (what, mut page) in pages(&rule) {
            page.body = format!("{article}{}", page.body);
            if counts(&detector, &mut scratch, &rule, &page) {
                failed.push(format!("{}: {what}", rule["id"]));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_rule_does_not_count_if_a_condition_does_not_hold() {
    let cases = [
        ("status = [403, 429]", (403, "<p>x"), (404, "<p>x")),
        ("max_inputs = 1", (200, "<input><input type=hidden>"), (200, "<input><input>")),
        ("max_images = 0", (200, "<p>x"), (200, "<img src=x>")),
        ("max_frames = 1", (200, "<iframe></iframe>"), (200, "<iframe></iframe><iframe></iframe>")),
        ("max_links = 1", (200, "<a href=x>x</a>"), (200, "<a href=x>x</a><a href=y>y</a>")),
        ("max_bytes = 60", (200, "<p>x"), (200, "<p class=one-that-makes-it-long-enough>x")),
        ("max_visible_chars = 5", (200, "<p>x"), (200, "<p>six of them")),
        ("password = true", (200, "<input type=password>"), (200, "<input>")),
        ("password = false", (200, "<input>"), (200, "<input type=password>")),
        ("mount = true", (200, "<div id=a></div>"), (200, "<div></div>")),
        ("mount = false", (200, "<div></div>"), (200, "<div id=a></div>")),
        ("component = true", (200, "<my-app></my-app>"), (200, "<main></main>")),
        ("scripts = true", (200, "<script>x()</script>"), (200, "<p>x")),
        (
            "noindex = true",
            (200, "<meta name=robots content=noindex>"),
            (200, "<meta name=robots content=all>"),
        ),
        ("title_absent = true", (200, "<p>x"), (200, "<title>x</title>")),
    ];
    for (condition, held, broken) in cases {
        let toml = format!(
            "[[rule]]\nid='mine'\ngrade='strong'\nfind=['a-marker']\n{condition}\nnote='x'\n"
        );
        let detector = Detector::with_rules(&toml).unwrap();
        let headers = [Header::new("Content-Type", "text/html")];
        for ((status, page), wanted) in [(held, true), (broken, false)] {
            let html = format!("<body><i class=a-marker></i>{page}");
            let page = Page { status, headers: &headers, body: html.as_bytes(), ..Page::default() };
            let matches = detector.explain(&page, &mut Scratch::default()).matches;
            let counted = matches.iter().any(|m| &*m.rule == "mine" && m.counted);
            assert_eq!(counted, wanted, "{condition}: {html}");
        }
    }
}

#[test]
fn a_quoted_marker_in_visible_text_is_no_block() {
    let detector = Detector::new();
    let mut scratch = Scratch::default();
    let headers = [Header::new("Content-Type", "text/html")];
    let article =
        "<p>How the challenge pages of the large vendors are told from content, with examples.</p>"
            .repeat(6);
    let rules = table();
    let sentences: Vec<String> = rules.iter().flat_map(|r| strings(r, "text")).collect();
    for rule in &rules {
        let blocks = matches!(rule["grade"].as_str().unwrap(), "strong" | "weak" | "shell");
        if !blocks || strings(rule, "places").iter().any(|p| p == "text") {
            continue;
        }
        for pattern in strings(rule, "find") {
            // A sentence of a challenge counts wherever it stands.
            if sentences.iter().any(|s| pattern.contains(s) || s.contains(&pattern)) {
                continue;
            }
            let html = format!(
                "<html><body><h1>Notes</h1>{article}<pre>{}</pre></body></html>",
                escape(&fill(&pattern))
            );
            let page =
                Page { status: 200, headers: &headers, body: html.as_bytes(), ..Page::default() };
            let verdict = detector.inspect(&page, &mut scratch);
            assert!(!verdict.is_blocked, "{}: {pattern}: {}", rule["id"], verdict.reason());
        }
    }
}
