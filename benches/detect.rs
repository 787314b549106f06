//! How fast a response is read, in bytes of page a second, beside two HTML parsers and beside the bare multi-pattern scan.
//!
//! The parsers do what a verdict needs of them (visible text counted, links counted) and are followed by a scan for markers,
//! which finds the words but weighs nothing: less than the whole job. `lol_html` and `html5ever` alone, without the scan, are
//! in the table too. All in one process, turn by turn, so that a busy machine slows all alike.
//!
//! Pages: the documentation that comes with Rust (real, ordinary pages; skipped when it is not installed), tiny pages, one
//! of 5 MB, and pages made to be slow. `FETCHWISE_CORPUS` adds the pages of a corpus. Criterion's report comes first, then a
//! table of the best time of each. Tiny pages are better judged by the nanoseconds a page than by GB/s.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "pages/mod.rs"]
mod pages;

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fetchwise::detect::{Detector, Scratch};
use fetchwise::response::{Header, Page};

use pages::{MARKERS, head, sets, with_html5ever, with_lol_html};

/// What is measured against what.
const WHO: [&str; 6] =
    ["detector", "lol_html and scan", "html5ever and scan", "lol_html alone", "html5ever alone", "aho-corasick alone"];

/// The best time of each, in seconds for one round over a set.
type Best = [f64; WHO.len()];

fn bench(c: &mut Criterion) {
    let detector = Detector::new();
    let bare = aho_corasick::AhoCorasick::builder().ascii_case_insensitive(true).build(MARKERS).unwrap();
    let headers = [Header::new("Content-Type", "text/html"), Header::new("Server", "nginx")];
    let scratch = RefCell::new(Scratch::default());
    let verdicts = |pages: &[Vec<u8>]| {
        for body in pages {
            let page = Page { status: 200, headers: &headers, body, ..Page::default() };
            black_box(detector.inspect(&page, &mut scratch.borrow_mut()));
        }
    };
    let markers = |page: &[u8]| bare.find_iter(head(page)).count();
    let mut table: Vec<(&str, usize, usize, Best)> = Vec::new();
    for (name, pages) in sets() {
        // As much as is looked at: nobody gets the bytes behind the first MiB for nothing.
        let bytes: usize = pages.iter().map(|p| head(p).len()).sum();
        let runs: [Box<dyn Fn()>; WHO.len()] = [
            Box::new(|| verdicts(&pages)),
            Box::new(|| pages.iter().for_each(|p| _ = black_box((with_lol_html(p), markers(p))))),
            Box::new(|| pages.iter().for_each(|p| _ = black_box((with_html5ever(p), markers(p))))),
            Box::new(|| pages.iter().for_each(|p| _ = black_box(with_lol_html(p)))),
            Box::new(|| pages.iter().for_each(|p| _ = black_box(with_html5ever(p)))),
            Box::new(|| pages.iter().for_each(|p| _ = black_box(markers(p)))),
        ];
        let mut group = c.benchmark_group(name);
        group.sample_size(10).warm_up_time(Duration::from_millis(50)).measurement_time(Duration::from_millis(300));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function("detector", |b| b.iter(&runs[0]));
        group.finish();
        let mut best = [f64::MAX; WHO.len()];
        let slow = name.starts_with("adv");
        for turn in 0..if slow { 3 } else { 8 } {
            for (who, run) in runs.iter().enumerate() {
                // The parsers are slow; a few turns tell as much.
                if turn > 2 && who > 0 && bytes > 2_000_000 {
                    continue;
                }
                let repeat = (200_000 / bytes.max(1)).max(1);
                let started = Instant::now();
                (0..repeat).for_each(|_| run());
                best[who] = best[who].min(started.elapsed().as_secs_f64() / repeat as f64);
            }
        }
        table.push((name, pages.len(), bytes, best));
    }
    print(&table);
}

fn print(table: &[(&str, usize, usize, Best)]) {
    println!("\n{:<30}{:>7}{:>10}{:>12}  GB/s:", "pages", "number", "bytes each", "ns a page");
    println!("{:<30}{:>29}{}", "", "", WHO.map(|who| format!("{who:>20}")).concat());
    for (name, pages, bytes, best) in table {
        let speeds = best.map(|seconds| format!("{:>20.3}", *bytes as f64 / seconds / 1e9));
        let each = best[0] * 1e9 / *pages as f64;
        println!("{name:<30}{pages:>7}{:>10}{each:>12.0}{}", bytes / pages, speeds.concat());
    }
    println!("\n{:<30}{}", "times as fast as", WHO[1..].iter().map(|who| format!("{who:>20}")).collect::<String>());
    for (name, _, _, best) in table {
        println!("{name:<30}{}", best[1..].iter().map(|b| format!("{:>20.1}", b / best[0])).collect::<String>());
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
