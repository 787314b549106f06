//! Reading a response: the detector, two HTML parsers, the bare search for markers, and a read of
//! the bytes.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use fetchwise::detect::{Detector, Scratch};
use fetchwise::response::{Header, Page};

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::measure::{CELLS, Latency, best};
use crate::page_sets::{Markers, PageFacts, head, sets, with_html5ever, with_lol_html};
use crate::text;

const WHO: [&str; 7] = [
    "detector",
    "lol_html and search",
    "html5ever and search",
    "lol_html alone",
    "html5ever alone",
    "aho-corasick alone",
    "every byte read",
];

/// The readers of one page.
type Runs<'a> = [Box<dyn Fn(&[u8]) + 'a>; WHO.len()];

/// The maximum number of pages read of a set: enough that none is hot by chance.
const MAX_PAGES: usize = 60;

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Reading a response");
    section.text(
        "The detector reads the first MiB of a page, and so do the others. The parsers collect the facts behind a verdict \
         (text, title, links, fields, scripts ...). They run alone, and followed by a search for the markers of the \
         shipped rules. The search does not weigh the markers, so this is a little less than the whole job. *Every byte \
         read* adds the bytes up, eight at a time, which is the limit of the memory. Ordinary and small pages are those of \
         seven makers: a blog, a shop, a newspaper, a wiki, an application rendered by its server, a forum, each also by \
         itself, and the documentation that comes with Rust. All take turns, so a busy machine slows all alike, and the \
         best of several rounds counts. Speeds are in GB/s.",
    );
    let detector = Detector::new();
    let markers = Markers::new();
    let headers = [Header::new("Content-Type", "text/html"), Header::new("Server", "nginx")];
    let scratch = RefCell::new(Scratch::default());
    let verdict = |body: &[u8]| {
        let page = Page { status: 200, headers: &headers, body, ..Page::default() };
        black_box(detector.inspect(&page, &mut scratch.borrow_mut()));
    };
    let searched = |parse: fn(&[u8]) -> PageFacts, page: &[u8]| {
        _ = black_box(markers.search(page, &parse(page)))
    };
    let (mut rows, mut latencies, mut slowest) = (Vec::new(), Vec::new(), None::<(&str, f64)>);
    for (name, mut pages) in sets().into_iter().chain(made()) {
        eprintln!("  {name}");
        pages.truncate(scale.pick(4, MAX_PAGES));
        pages.iter_mut().for_each(|page| page.truncate(scale.pick(1 << 16, 1 << 20)));
        let runs: Runs<'_> = [
            Box::new(verdict),
            Box::new(|page| searched(with_lol_html, page)),
            Box::new(|page| searched(with_html5ever, page)),
            Box::new(|page| _ = black_box(with_lol_html(page))),
            Box::new(|page| _ = black_box(with_html5ever(page))),
            Box::new(|page| _ = black_box(markers.early.find_iter(page).count())),
            Box::new(|page| _ = black_box(sum(page))),
        ];
        let bytes: usize = pages.iter().map(|page| head(page).len()).sum();
        let speeds = turns(&runs, &pages, scale).map(|seconds| bytes as f64 / seconds);
        let mut row =
            vec![name.to_owned(), pages.len().to_string(), (bytes / pages.len()).to_string()];
        row.extend(speeds.map(|speed| format!("{:.3}", speed / 1e9)));
        rows.push(row);
        match name {
            "ordinary" => section.goal(
                "detector, ordinary pages",
                Unit::Speed,
                speeds[0],
                Bound::AtLeast(2.5e9),
            ),
            REFUSAL => section.goal(
                "detector, block pages of 4 kB",
                Unit::Speed,
                speeds[0],
                Bound::AtLeast(0.6e9),
            ),
            "small" | "tiny" => {
                section.figure(&format!("detector, {name} pages"), Unit::Speed, speeds[0])
            }
            _ => {}
        }
        let latency = one_by_one(&pages, scale, verdict);
        let mut row = latency.row(name);
        row.insert(1, latency.count().to_string());
        latencies.push(row);
        if name.starts_with("adv") {
            let slower = if slowest.is_some_and(|(_, than)| than < speeds[0]) {
                slowest
            } else {
                Some((name, speeds[0]))
            };
            slowest = slower;
            continue;
        }
        for (peer, speed) in WHO.iter().zip(speeds).skip(1) {
            let (what, ratio) = (format!("pages: {name}"), speeds[0] / speed);
            let note = match *peer {
                "lol_html alone" | "html5ever alone" => continue,
                "every byte read" => {
                    section.limit(&what, "detector", peer, ratio, "a sum of cached bytes");
                    continue;
                }
                "aho-corasick alone" => "a search alone classifies nothing",
                _ => "the search does not weigh markers",
            };
            section.duel(&what, "detector", peer, ratio, note);
        }
    }
    let head: Vec<&str> = ["pages", "number", "bytes each"].into_iter().chain(WHO).collect();
    section.table(&head, rows);
    let bandwidth = bandwidth(scale);
    let slowest = slowest.map_or_else(String::new, |(name, speed)| {
        format!(
            "The detector reads the slowest of the adversarial pages ({:?}) at {}. ",
            name,
            text::speed(speed)
        )
    });
    section.text(format!(
        "{slowest}One core reads memory that is in no cache at {}. A page that has just come over a network is in a cache.",
        text::speed(bandwidth)
    ));
    section.text("Latency of a verdict on one page, by set:");
    let head: Vec<&str> = ["pages", "verdicts"].into_iter().chain(CELLS).collect();
    section.table(&head, latencies);
    section
}

/// Measures verdicts for a while, at least two, and enough for percentiles if pages are short.
fn one_by_one(pages: &[Vec<u8>], scale: Scale, verdict: impl Fn(&[u8])) -> Latency {
    let time = scale.pick(Duration::from_millis(5), Duration::from_millis(500));
    let (mut latency, begun) = (Latency::new(), Instant::now());
    for page in pages.iter().cycle() {
        latency.time(|| verdict(page));
        if begun.elapsed() > time && latency.count() >= 2 {
            break;
        }
    }
    latency
}

/// Returns the bytes per second of reads from a buffer larger than any cache.
fn bandwidth(scale: Scale) -> f64 {
    let buffer = vec![1u8; scale.pick(64 << 20, 2 << 30)];
    let seconds = best(3, || {
        let begun = Instant::now();
        black_box(sum(&buffer));
        begun.elapsed().as_secs_f64()
    });
    buffer.len() as f64 / seconds
}

/// Returns shells and block pages, which are short.
fn made() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let shell = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>App</title><script type=\"module\" \
        src=\"/assets/index-4f1c.js\"></script><link rel=\"stylesheet\" href=\"/assets/i.css\"></head><body><noscript>You \
        need to enable JavaScript to run this app.</noscript><div id=\"root\"></div></body></html>";
    let block = "<!DOCTYPE html><html lang=\"en-US\"><head><title>Just a moment...</title><meta name=\"robots\" \
        content=\"noindex,nofollow\"></head><body><div class=\"main-wrapper\"><noscript>Enable JavaScript and cookies to \
        continue</noscript></div><script>(function(){window._cf_chl_opt={cvId:'3',cType:'managed'};var a=document\
        .createElement('script');a.src='/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1';}())</script></body></html>";
    let mut all = [("shell", shell), ("block page", block)]
        .map(|(name, page)| (name, vec![page.as_bytes().to_vec()]))
        .to_vec();
    all.push((REFUSAL, (0..8).map(refusal).collect()));
    all
}

/// The set of block pages of about four kilobytes.
const REFUSAL: &str = "block page, 4 kB";

/// Returns a page that refuses a request, as vendors write them: styles, two explanations, an
/// incident number.
fn refusal(number: usize) -> Vec<u8> {
    let mut page = String::from(
        "<!DOCTYPE html><html lang=\"en-US\"><head><title>Access denied | the site is using a security service</title>\
         <meta charset=\"UTF-8\"><meta name=\"robots\" content=\"noindex, nofollow\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><style>",
    );
    for rule in 0..24 {
        page.push_str(&format!(
            ".part-{rule}{{margin:{rule}px auto;padding:0 {number}px;font-size:1.{rule}em;color:#40{rule:02}40}}"
        ));
    }
    page.push_str("</style></head><body><div id=\"wrapper\"><h1>Sorry, you have been blocked</h1>");
    for (title, text) in [
        (
            "You are unable to access this site",
            "The site owner has set access rules that apply to your request.",
        ),
        (
            "Why have I been blocked?",
            "This website is using a security service to protect itself from online attacks. The \
          action you just performed triggered the security solution. Several actions could trigger this block, including \
          submitting a certain word or phrase, a SQL command or malformed data.",
        ),
        (
            "What can I do to resolve this?",
            "You can email the site owner to let them know you were blocked. Please include \
          what you were doing when this page came up, and the incident number at the bottom of this page.",
        ),
    ] {
        page.push_str(&format!(
            "<section class=\"part-{number}\"><h2>{title}</h2><p>{text}</p></section>"
        ));
    }
    page.push_str(&format!(
        "<footer><p>Incident: <strong>8f{number:02}a1c7d3e5b9f0{number:02}</strong></p><p>Your IP: <span hidden>203.0.113.{number}</span></p>\
         </footer></div><script>(function(){{var d=document.getElementById('wrapper');d.className+=' ready';}})();</script></body></html>"
    ));
    page.into_bytes()
}

/// Returns the best time of each over all pages, in seconds.
fn turns(runs: &Runs<'_>, pages: &[Vec<u8>], scale: Scale) -> [f64; WHO.len()] {
    let mut best = [f64::MAX; WHO.len()];
    let bytes: usize = pages.iter().map(Vec::len).sum();
    let repeat = (200_000 / bytes.max(1)).max(1);
    let (begun, time) =
        (Instant::now(), scale.pick(Duration::from_millis(1), Duration::from_millis(800)));
    let mut turn = 0;
    while turn < 2 || begun.elapsed() < time && turn < 50 {
        for (best, run) in best.iter_mut().zip(runs) {
            let started = Instant::now();
            for _ in 0..repeat {
                pages.iter().for_each(|page| run(page));
            }
            *best = best.min(started.elapsed().as_secs_f64() / repeat as f64);
        }
        turn += 1;
    }
    best
}

fn sum(page: &[u8]) -> u64 {
    let (words, rest) = page.as_chunks::<8>();
    let words = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    rest.iter().fold(words, |sum, &byte| sum.wrapping_add(u64::from(byte)))
}
