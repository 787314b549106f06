//! The speed of reading a response, in bytes of page per second, compared with two HTML parsers and
//! with a bare multi-pattern scan.
//!
//! The parsers collect the facts behind a verdict, and are followed by a search for the markers of
//! the shipped rules (see `pages/parsers.rs`). The detector stops when the verdict is clear, so a
//! second measurement counts text to the end, as the parsers do. The table also has the parsers
//! without the search, and a search alone. All run in one process and take turns, so a busy machine
//! slows all alike. The number of pages that the parsers count alike is printed, as evidence that
//! they do the same work.
//!
//! Pages: those of a blog, a shop, a newspaper, a wiki, an application rendered by its server and a
//! forum, together and separately; the documentation that comes with Rust (skipped when it is not
//! installed), its stubs, one page of 5 MB, and adversarial pages. `FETCHWISE_CORPUS` adds the
//! pages of a corpus. Criterion's report comes first, then a table of the best times. For tiny
//! pages, nanoseconds per page are more meaningful than GB/s.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "pages/mod.rs"]
mod pages;

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fetchwise::detect::{Detector, DetectorOptions, Scratch};
use fetchwise::response::{Header, Page};

use pages::{Markers, PageFacts, head, sets, with_html5ever, with_lol_html};

/// The compared readers.
const WHO: [&str; 7] = [
    "detector",
    "detector to the end",
    "lol_html and search",
    "html5ever and search",
    "lol_html alone",
    "html5ever alone",
    "aho-corasick alone",
];

/// The best time of each, in seconds per round over a set.
type Best = [f64; WHO.len()];

/// Pages that each parser counts like the detector, to five in a hundred characters or a hundred of
/// them: the parsers do not separate blocks of text, and `lol_html` leaves entities unchanged.
#[derive(Default)]
struct Alike {
    pages: usize,
    lol_html: usize,
    html5ever: usize,
}

impl Alike {
    fn add(&mut self, page: &[u8], detector: &Detector) {
        let response = Page { status: 200, body: page, ..Page::default() };
        let wanted = detector.inspect(&response, &mut Scratch::default()).text_chars as usize;
        let near = |facts: PageFacts| {
            usize::from(facts.visible.chars.abs_diff(wanted) <= (wanted / 20).max(100))
        };
        self.pages += 1;
        self.lol_html += near(with_lol_html(page));
        self.html5ever += near(with_html5ever(page));
    }
}

struct Line {
    name: &'static str,
    pages: usize,
    bytes: usize,
    best: Best,
}

fn bench(c: &mut Criterion) {
    let detector = Detector::new();
    let to_the_end = Detector::new().with_options(DetectorOptions::default().counting_all());
    let all = Markers::new();
    let headers = [Header::new("Content-Type", "text/html"), Header::new("Server", "nginx")];
    let scratch = RefCell::new(Scratch::default());
    let verdicts = |detector: &Detector, pages: &[Vec<u8>]| {
        for body in pages {
            let page = Page { status: 200, headers: &headers, body, ..Page::default() };
            black_box(detector.inspect(&page, &mut scratch.borrow_mut()));
        }
    };
    let mut table = Vec::new();
    let mut alike = Alike::default();
    for (name, pages) in sets() {
        // Only the bytes that are read count, not those after the first MiB.
        let bytes: usize = pages.iter().map(|p| head(p).len()).sum();
        let each = |run: &dyn Fn(&[u8])| pages.iter().for_each(|page| run(page));
        let searched = |parse: fn(&[u8]) -> PageFacts, page: &[u8]| {
            let facts = parse(page);
            black_box((all.search(page, &facts), facts.title.len(), facts.links));
        };
        let runs: [Box<dyn Fn()>; WHO.len()] = [
            Box::new(|| verdicts(&detector, &pages)),
            Box::new(|| verdicts(&to_the_end, &pages)),
            Box::new(|| each(&|p| searched(with_lol_html, p))),
            Box::new(|| each(&|p| searched(with_html5ever, p))),
            Box::new(|| each(&|p| _ = black_box(with_lol_html(p)))),
            Box::new(|| each(&|p| _ = black_box(with_html5ever(p)))),
            Box::new(|| each(&|p| _ = black_box(all.early.find_iter(head(p)).count()))),
        ];
        let mut group = c.benchmark_group(name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(50))
            .measurement_time(Duration::from_millis(300));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function("detector", |b| b.iter(&runs[0]));
        group.finish();
        let mut best = [f64::MAX; WHO.len()];
        let slow = name.starts_with("adv");
        if !slow {
            pages.iter().for_each(|page| alike.add(page, &to_the_end));
        }
        for turn in 0..if slow { 3 } else { 8 } {
            for (who, run) in runs.iter().enumerate() {
                // The parsers are slow; a few turns are enough.
                if turn > 2 && who > 1 && bytes > 2_000_000 {
                    continue;
                }
                let repeat = (200_000 / bytes.max(1)).max(1);
                // Evicts the caches between turns, for all alike.
                if bytes < 2_000_000 {
                    run();
                }
                let started = Instant::now();
                (0..repeat).for_each(|_| run());
                best[who] = best[who].min(started.elapsed().as_secs_f64() / repeat as f64);
            }
        }
        table.push(Line { name, pages: pages.len(), bytes, best });
    }
    print(&table, &alike);
}

fn print(table: &[Line], alike: &Alike) {
    let columns = |of: &dyn Fn(usize) -> String| {
        (0..WHO.len()).map(|who| format!("{:>22}", of(who))).collect::<String>()
    };
    println!(
        "\n{:<30}{:>7}{:>10}{:>12}  GB/s, and how many times as fast the detector is:",
        "pages", "number", "bytes each", "ns a page"
    );
    println!("{:<59}{}", "", columns(&|who| WHO[who].to_owned()));
    let cell = |speed: f64, ratio: f64, who: usize| match who {
        0 => format!("{speed:.3}"),
        _ => format!("{speed:.3} ({ratio:>5.1})"),
    };
    let speed = |line: &Line, who: usize| line.bytes as f64 / line.best[who] / 1e9;
    for line in table {
        let each = line.best[0] * 1e9 / line.pages as f64;
        let cells = columns(&|who| cell(speed(line, who), line.best[who] / line.best[0], who));
        println!(
            "{:<30}{:>7}{:>10}{each:>12.0}{cells}",
            line.name,
            line.pages,
            line.bytes / line.pages
        );
    }
    let lowest = |of: &dyn Fn(&Line) -> f64| table.iter().map(of).fold(f64::MAX, f64::min);
    let worst = columns(&|who| {
        cell(lowest(&|line| speed(line, who)), lowest(&|line| line.best[who] / line.best[0]), who)
    });
    println!("{:<59}{worst}", "worst");
    println!(
        "\nOf {} pages that are not made to be slow, visible text is counted as the detector counts it (to 5 %, or 100 characters) in {} by lol_html, in {} by html5ever.",
        alike.pages, alike.lol_html, alike.html5ever
    );
}

criterion_group!(benches, bench);
criterion_main!(benches);
