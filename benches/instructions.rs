//! Instruction counts: one small, constant piece of work per case.
//!
//! `.ci/instructions` (`make instructions`) runs each case under callgrind, which counts only
//! [`measured`], and compares with `benches/instructions.txt`. Nothing here may depend on the
//! clock, on random numbers or on the machine: times, URLs and pages are made from fixed numbers.
//! Without a case, the cases are listed. `sites` is for counting memory with dhat.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;

use fetchwise::attempt::Attempt;
use fetchwise::detect::{Detector, Scratch};
use fetchwise::response::{Header, Page};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::Step;
use url::Url;

/// Repetitions of the work: first to warm up, then to be counted.
const TIMES: usize = 100;
const DOMAINS: usize = 1_000;
/// Deliveries of one fetcher after which a host counts as learned.
const LEARNED: usize = 10;
/// The time of all attempts.
const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

const CASES: [(&str, fn()); 11] = [
    ("select_hit", select_hit),
    ("select_miss", select_miss),
    ("select_learned", select_learned),
    ("visit_begin", visit_begin),
    ("visit_next", visit_next),
    ("record", record),
    ("classify_ordinary", || classify(&ordinary(), 200, false)),
    ("classify_small", || classify(&small(), 200, false)),
    ("classify_block", || classify(&block(), 403, true)),
    (COMPILE_RULES, compile_rules),
    ("sites", sites),
];
/// The case that runs once: it takes as long as thousands of the others.
const COMPILE_RULES: &str = "compile_rules";

fn main() {
    let asked: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, run) in CASES {
        if asked.iter().any(|asked| asked == name) {
            run();
        } else if asked.is_empty() {
            println!("{name} {}", if name == COMPILE_RULES { 1 } else { TIMES });
        }
    }
}

/// The function that callgrind counts, by its name.
#[inline(never)]
fn measured(work: &mut dyn FnMut(usize)) {
    (0..TIMES).for_each(work);
}

fn twice(mut work: impl FnMut(usize)) {
    (0..TIMES).for_each(&mut work);
    measured(&mut work);
}

/// Returns a page of a site; every seventh site has the same section.
fn url(site: usize) -> Url {
    Url::parse(&format!("https://www.site{site}.org/section{}/page-{site}", site % 7)).unwrap()
}

/// Returns a selector with evidence of [`DOMAINS`] domains, each by two fetchers.
fn selector() -> Selector {
    let selector = Selector::builder().without_pace().around(NOW).build().unwrap();
    let names: Vec<String> =
        selector.candidates().take(2).map(|(_, spec)| spec.name.to_string()).collect();
    for site in 0..DOMAINS {
        for name in &names {
            selector.observe(&Attempt::new(&url(site), name, NOW).unwrap().delivered());
        }
    }
    selector
}

/// Returns one of this number of indexes, in a scattered order.
fn jump(turn: usize, of: usize) -> usize {
    turn * 7919 % of
}

/// For counting bytes with dhat: builds a selector with its sites inside the counted function and
/// keeps it to the end.
fn sites() {
    let mut kept = Vec::new();
    measured(&mut |turn| {
        if turn == 0 {
            kept.push(selector());
        }
    });
    black_box(kept);
}

fn select_hit() {
    let selector = selector();
    let urls: Vec<Url> = (0..TIMES).map(|turn| url(jump(turn, DOMAINS))).collect();
    twice(|turn| _ = black_box(selector.select(&urls[turn], &SelectContext::first_attempt(NOW))));
}

fn select_miss() {
    let selector = selector();
    let urls: Vec<Url> = (0..TIMES).map(|turn| url(DOMAINS + turn)).collect();
    twice(|turn| _ = black_box(selector.select(&urls[turn], &SelectContext::first_attempt(NOW))));
}

/// Returns a selector with so much evidence of [`DOMAINS`] domains that none is probed any more.
fn learned() -> Selector {
    let selector = Selector::builder()
        .without_pace()
        .around(NOW)
        .clock(Arc::new(Clock::fixed(NOW)))
        .build()
        .unwrap();
    for site in 0..DOMAINS {
        let attempt = Attempt::new(&url(site), "direct_access", NOW).unwrap().delivered();
        (0..LEARNED).for_each(|_| selector.observe(&attempt));
    }
    selector
}

fn learned_urls() -> Vec<Url> {
    (0..TIMES).map(|turn| url(jump(turn, DOMAINS))).collect()
}

/// The comparison for `visit_next`: the same decisions without a visit.
fn select_learned() {
    let (selector, urls) = (learned(), learned_urls());
    twice(|turn| _ = black_box(selector.select(&urls[turn], &SelectContext::first_attempt(NOW))));
}

fn visit_begin() {
    let (selector, urls) = (learned(), learned_urls());
    twice(|turn| _ = black_box(selector.visit(&urls[turn])));
}

/// The first `next` of a visit that does not wait.
fn visit_next() {
    let (selector, urls) = (learned(), learned_urls());
    // One visit per turn of the warm-up, and one per counted turn.
    let mut visits: Vec<_> =
        urls.iter().chain(&urls).map(|url| selector.visit(url).unwrap()).collect();
    let Step::Fetch(fetch) = visits[0].next() else { panic!("a learned host is asked at once") };
    assert_eq!(fetch.decision().source.name(), "learned");
    drop(fetch);
    let mut visits = visits.iter_mut();
    twice(|_| _ = black_box(visits.next().map(|visit| visit.next())));
}

fn record() {
    let selector = selector();
    let attempt =
        |turn| Attempt::new(&url(jump(turn, DOMAINS)), "direct_access", NOW).unwrap().delivered();
    let attempts: Vec<Attempt> = (0..TIMES).map(attempt).collect();
    twice(|turn| selector.observe(black_box(&attempts[turn])));
}

fn classify(body: &str, status: u16, blocked: bool) {
    let detector = Detector::new();
    let headers =
        [Header::new("Content-Type", "text/html; charset=utf-8"), Header::new("Server", "nginx")];
    let page = Page { status, headers: &headers, body: body.as_bytes(), ..Page::default() };
    let mut scratch = Scratch::default();
    let verdict = detector.inspect(&page, &mut scratch);
    assert_eq!((verdict.is_blocked, verdict.is_content()), (blocked, !blocked), "{verdict:?}");
    twice(|_| _ = black_box(detector.inspect(black_box(&page), &mut scratch)));
}

/// Every program that reads pages compiles the rules when it starts. The first call here also
/// parses their TOML, and is not counted. Hash tables have random keys, which changes the count by
/// less than a hundredth.
fn compile_rules() {
    let compile = || black_box(Detector::with_rules(black_box("")).unwrap());
    compile();
    measured(&mut |turn| {
        if turn == 0 {
            compile();
        }
    });
}

/// Appends words in rotation, so that no two paragraphs are alike.
fn words(from: usize, count: usize, out: &mut String) {
    const WORDS: [&str; 24] = [
        "iterator", "returns", "the", "value", "of", "a", "slice", "when", "it", "borrows", "from",
        "another", "one", "and", "panics", "if", "its", "length", "exceeds", "capacity", "in",
        "bytes", "unless", "reserved",
    ];
    (0..count)
        .for_each(|n| write!(out, "{} ", WORDS[(from * 5 + n * 7 + n / 5) % WORDS.len()]).unwrap());
}

fn head(title: &str) -> String {
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"description\" content=\"The pages of a library.\"><title>{title} - Library</title><link rel=\"stylesheet\" \
         href=\"../static/normalize-9960930a.css\"><link rel=\"stylesheet\" href=\"../static/theme-b7b9f40b.css\"><script \
         defer src=\"../static/main-5013f961.js\"></script><noscript><link rel=\"stylesheet\" href=\"../static/plain.css\">\
         </noscript></head><body class=\"page item\"><a class=\"skip\" href=\"#main\">Skip to main content</a>"
    )
}

fn links(count: usize, out: &mut String) {
    out.push_str(
        "<nav class=\"sidebar\"><h2><a href=\"../index.html\">library</a></h2><ul class=\"block\">",
    );
    for n in 0..count {
        let (module, item) = (n % 9, n * 3);
        write!(out, "<li><a href=\"../module{module}/item-{item}.html\" title=\"item {item}\">item_{item}</a></li>")
            .unwrap();
    }
    out.push_str("</ul></nav><main id=\"main\" class=\"content\">");
}

/// Returns forty kilobytes like documentation.
fn ordinary() -> String {
    let mut page = head("Slices");
    links(60, &mut page);
    for section in 0.. {
        if page.len() > 40_000 {
            break;
        }
        write!(
            page,
            "<section id=\"s{section}\"><h2 class=\"fn\">Section {section}<a href=\"#s{section}\">&sect;</a></h2><p>"
        )
        .unwrap();
        words(section, 45, &mut page);
        page.push_str("See <a class=\"struct\" href=\"struct.Slice.html\"><code>Slice</code></a>.</p>\n<pre class=\"code\"><code>");
        for line in 0..6 {
            writeln!(page, "<span class=\"kw\">let</span> value_{line} = slice.get({section})?; <i>// &lt;T&gt;</i>")
                .unwrap();
        }
        page.push_str("</code></pre><table><tr><th>name</th><td>cost</td></tr><tr><th>get</th><td>O(1)</td></tr></table></section>\n");
    }
    page + "</main></body></html>"
}

/// Returns five kilobytes, which are read to the end because they have so little text.
fn small() -> String {
    let mut page = head("get");
    links(30, &mut page);
    page.push_str(
        "<h1>Function <span class=\"fn\">get</span>&nbsp;<button id=\"copy\">Copy</button></h1><div class=\"docs\"><p>",
    );
    words(3, 60, &mut page);
    page + "</p></div></main><script>document.documentElement.className += ' ready';</script></body></html>"
}

/// Returns a challenge of five kilobytes.
fn block() -> String {
    let mut page = String::from(
        "<!DOCTYPE html><html lang=\"en-US\"><head><title>Just a moment...</title><meta name=\"robots\" content=\"noindex,nofollow\">\
         <meta http-equiv=\"refresh\" content=\"390\"><style>body{margin:0}.main{display:flex}</style></head><body class=\"no-js\">\
         <div class=\"main\" role=\"main\"><h1>shop.example</h1><p id=\"hint\">Checking whether the connection is secure.</p>\
         <noscript>Enable JavaScript and cookies to continue</noscript></div><script>(function(){window._cf_chl_opt={",
    );
    for n in 0..110u64 {
        write!(
            page,
            "k{n}:'{:016x}{:08x}',",
            (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            n * 2_654_435_761
        )
        .unwrap();
    }
    page + "};var s=document.createElement('script');s.src='/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1?ray=8c1f';\
            document.cookie='cf_chl_rc=1';document.getElementsByTagName('head')[0].appendChild(s);}());</script></body></html>"
}
