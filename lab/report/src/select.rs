//! `select`: one decision about one URL, by the number of known sites, the source of the URL, the
//! number of heuristics and the number of fetchers. For comparison: the parse of the URL, and one
//! random read of memory.

use std::hint::black_box;
use std::time::Instant;

use fetchwise::registry::{Class, FetcherSpec};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use url::Url;

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::measure::{CELLS, Latency, Random, random_read};
use crate::text;
use crate::traffic::{self, Shape};

/// The maximum number of parsed URLs in memory.
const MAX_KEPT: usize = 1_000_000;

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("`select`: one decision");
    let sizes: &[usize] =
        scale.pick(&[1_000, 10_000], &[1_000, 10_000, 100_000, 1_000_000, 5_000_000]);
    section.text(
        "Each decision is timed alone, at a random known site, and includes one reading of the clock. *Just parsed*: \
         the URL was parsed right before, as in a crawler that reads links. *Parsed long ago*: the URL comes from \
         memory, among a million others. *At once*: `select_many` decides about URLs that were parsed right before, and its \
         time is divided by their number. *From text*: the time includes the parse. *Miss*: the site is unknown. \
         *Random read* is one dependent read of a buffer as large as the selector's evidence. Each decision about one \
         of that many sites needs a few such reads.",
    );
    let mut rows = Vec::new();
    for &sites in sizes {
        eprintln!("  {} sites", text::size(sites));
        rows.extend(at_size(&mut section, sites, scale));
    }
    let head: Vec<&str> = ["sites", "what"].into_iter().chain(CELLS).collect();
    section.table(&head, rows);
    let sites = scale.pick(2_000, 100_000);
    by_heuristics(&mut section, sites, scale);
    by_fetchers(&mut section, sites, scale);
    section
}

fn row(sites: usize, latency: &Latency, what: &str) -> Vec<String> {
    std::iter::once(text::size(sites)).chain(latency.row(what)).collect()
}

fn at_size(section: &mut Section, sites: usize, scale: Scale) -> Vec<Vec<String>> {
    let (now, count) = (Timestamp::now(), scale.pick(20_000, 1_000_000));
    let selector = Selector::builder().without_pace().build().unwrap();
    // Only this thread's allocations are counted.
    let held =
        allocation_counter::measure(|| traffic::teach(&selector, 0..sites, Shape::Plain, now))
            .bytes_current;
    let situation = SelectContext::first_attempt(now);
    let mut rows = Vec::new();
    let (mut random, mut text) = (Random(1), String::new());
    let mut fresh = |latency: &mut Latency, first: usize, random: &mut Random| {
        for page in 0..count {
            traffic::write_url(&mut text, first + random.below(sites), page, Shape::Plain);
            let url = Url::parse(&text).unwrap();
            latency.time(|| selector.select(&url, &situation));
        }
    };
    let (mut warmup, mut hit, mut miss) = (Latency::new(), Latency::new(), Latency::new());
    fresh(&mut warmup, 0, &mut random);
    fresh(&mut hit, 0, &mut random);
    fresh(&mut miss, sites, &mut random);
    rows.push(row(sites, &hit, "hit, just parsed"));
    rows.push(row(sites, &miss, "miss, just parsed"));

    let kept: Vec<Url> = (0..sites.min(MAX_KEPT))
        .map(|n| traffic::url(random.below(sites), n, Shape::Plain))
        .collect();
    let mut old = Latency::new();
    for _ in 0..count {
        let url = &kept[random.below(kept.len())];
        old.time(|| selector.select(url, &situation));
    }
    rows.push(row(sites, &old, "hit, parsed long ago"));
    drop(kept);

    let (mut at_once, mut decisions) = (Latency::new(), Vec::with_capacity(Selector::PREFETCHED));
    for group in 0..count / Selector::PREFETCHED {
        let page = |n: usize| {
            traffic::url(random.below(sites), group * Selector::PREFETCHED + n, Shape::Plain)
        };
        let urls: Vec<Url> = (0..Selector::PREFETCHED).map(page).collect();
        decisions.clear();
        let begun = Instant::now();
        selector.select_many(&urls, &situation, &mut decisions);
        at_once.add(begun.elapsed() / Selector::PREFETCHED as u32);
        black_box(&decisions);
    }
    rows.push(row(sites, &at_once, &format!("hit, {} at once, each", Selector::PREFETCHED)));

    let (mut from_text, mut parse) = (Latency::new(), Latency::new());
    for page in 0..count {
        traffic::write_url(&mut text, random.below(sites), page, Shape::Plain);
        from_text.time(|| selector.select(&Url::parse(black_box(&text)).unwrap(), &situation));
        traffic::write_url(&mut text, random.below(sites), page, Shape::Plain);
        parse.time(|| Url::parse(black_box(&text)));
    }
    rows.push(row(sites, &from_text, "hit, from text"));
    rows.push(row(sites, &parse, "the parse alone, by `url`"));

    let attempts = traffic::pool(scale.pick(5_000, 200_000), sites, now);
    let mut record = Latency::new();
    for attempt in &attempts {
        record.time(|| selector.observe(attempt));
    }
    rows.push(row(sites, &record, "observing an attempt (`observe`)"));
    drop((selector, attempts));
    let read = random_read(held as usize);
    let mut last = vec![
        text::size(sites),
        format!("random read of {} (batch)", text::bytes(held as f64)),
        text::ns(read),
    ];
    last.resize(2 + CELLS.len(), String::new());
    rows.push(last);

    let at = sites as f64;
    section.point("select p50", at, hit.p50());
    section.point("select p99", at, hit.at(99.0));
    section.point("select p99.9", at, hit.at(99.9));
    section.point("select at once p50", at, at_once.p50());
    section.point("url parse p50", at, parse.p50());
    section.point("random read", at, read);
    section.point("record p50", at, record.p50());
    section.point("record p99", at, record.at(99.0));
    if sites == scale.pick(10_000, 1_000_000) {
        section.limit(
            &format!("a decision, {} sites, p50", text::size(sites)),
            "`select`, just parsed",
            "the parse of the URL by `url`",
            parse.p50() / hit.p50(),
            "a crawler has to parse before it can select",
        );
        let size = text::size(sites);
        let in_parses = hit.p50() / parse.p50();
        section.goal(
            &format!("`select(&Url)` in parses of the URL, {size} sites, p50"),
            Unit::Times,
            in_parses,
            Bound::AtMost(2.0),
        );
        let what = format!("`select_many` of {}, {size} sites, each, p50", Selector::PREFETCHED);
        section.goal(&what, Unit::Ns, at_once.p50(), Bound::AtMost(600.0));
        section.figure("the parse of a URL by `url`, p50", Unit::Ns, parse.p50());
        section.limit(
            &format!("a decision, {} sites, p50", text::size(sites)),
            "`select`, just parsed",
            "one random read of memory",
            read / hit.p50(),
            "the physical limit",
        );
    }
    rows
}

fn by_heuristics(section: &mut Section, sites: usize, scale: Scale) {
    let (now, count) = (Timestamp::now(), scale.pick(10_000, 500_000));
    let selector = traffic::warm(sites, now);
    // Path and the heuristics besides domain and site.
    let shapes = [
        "",
        "section1/page",
        "section1/static/api/report-final.pdf",
        "section1/cdn/static/assets/api/clip.mp4",
    ];
    let mut rows = Vec::new();
    for path in shapes {
        let text = |n: usize| format!("https://www.site{n}.org/{path}");
        let shown = selector.heuristics(&Url::parse(&text(1)).unwrap()).unwrap();
        let (mut latency, mut random) = (Latency::new(), Random(2));
        for _ in 0..count {
            let url = Url::parse(&text(random.below(sites))).unwrap();
            latency.time(|| selector.select(&url, &SelectContext::first_attempt(now)));
        }
        rows.push(latency.row(format!("{} heuristics: `/{path}`", shown.len())));
    }
    section.text(format!(
        "By the heuristics of the URL (at least domain, site and depth), {} sites, just parsed:",
        text::size(sites)
    ));
    let head: Vec<&str> = std::iter::once("URL").chain(CELLS).collect();
    section.table(&head, rows);
}

fn by_fetchers(section: &mut Section, sites: usize, scale: Scale) {
    let (now, count) = (Timestamp::now(), scale.pick(10_000, 500_000));
    let mut rows = Vec::new();
    for fetchers in [2usize, 8, 32] {
        for seen in if fetchers == 2 { vec![2] } else { vec![2, fetchers] } {
            let selector = with_fetchers(fetchers, seen, sites / 10, now);
            let (mut latency, mut random, mut text) = (Latency::new(), Random(2), String::new());
            for page in 0..count {
                traffic::write_url(&mut text, random.below(sites / 10), page, Shape::Plain);
                let url = Url::parse(&text).unwrap();
                latency.time(|| selector.select(&url, &SelectContext::first_attempt(now)));
            }
            rows.push(latency.row(format!("{fetchers} candidates, {seen} seen at each site")));
        }
    }
    section
        .text(format!("By the number of fetchers, {} sites, just parsed:", text::size(sites / 10)));
    let head: Vec<&str> = std::iter::once("fetchers").chain(CELLS).collect();
    section.table(&head, rows);
}

fn with_fetchers(fetchers: usize, seen: usize, sites: usize, now: Timestamp) -> Selector {
    let classes = [
        Class::Plain,
        Class::Rendering,
        Class::Stealth,
        Class::Archive,
        Class::Special,
        Class::Unknown,
    ];
    let name = |n: usize| match traffic::FETCHERS.get(n) {
        Some(name) => (*name).to_owned(),
        None => format!("fetcher_{n}"),
    };
    let specs = (0..fetchers).map(|n| FetcherSpec::new(&name(n), classes[n % classes.len()]));
    let selector = specs
        .fold(Selector::builder().without_pace(), |builder, spec| builder.fetcher(spec))
        .build()
        .unwrap();
    for site in 0..sites {
        let mut attempt = traffic::attempt(site, site, 0, Shape::Plain, now);
        for n in 0..seen {
            attempt.fetcher = name(n);
            selector.observe(&attempt);
        }
    }
    selector
}
