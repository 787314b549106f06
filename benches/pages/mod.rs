//! The pages of the detector's measurements, and the two HTML parsers for comparison. Shared by the
//! `detect` bench and the report. Must not know: what is measured with them.

mod generators;
#[path = "../../crates/detect/tests/detector/html_files.rs"]
mod html_files;
mod parsers;

use std::path::{Path, PathBuf};

use generators::GENERATORS;
use html_files::html_files;
pub(crate) use parsers::{Markers, PageFacts, with_html5ever, with_lol_html};

fn documentation() -> Vec<Vec<u8>> {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = sysroot
        .map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim()))
        .unwrap_or_default();
    let mut files = Vec::new();
    html_files(&root.join("share/doc/rust/html/std"), &mut files);
    files.sort();
    files.iter().step_by(23).filter_map(|f| std::fs::read(f).ok()).collect()
}

/// Returns the sets of pages, by name. `FETCHWISE_CORPUS` adds the pages of a corpus.
pub(crate) fn sets() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let documentation = documentation();
    let between = |low: usize, high: usize, most: usize| -> Vec<Vec<u8>> {
        documentation
            .iter()
            .filter(|b| (low..high).contains(&b.len()))
            .take(most)
            .cloned()
            .collect()
    };
    let five = documentation.iter().cycle().take(4_000).scan(0, |sum, b| {
        *sum += b.len();
        (*sum < 5_000_000).then(|| b.clone())
    });
    // Pages of many makers, including the documentation if it is installed.
    let mixed = |low: usize, high: usize, each: usize| -> Vec<Vec<u8>> {
        let made = GENERATORS.iter().flat_map(|(_, make)| {
            (0..each).map(move |page| make(page, low + (high - low) * page / each).into_bytes())
        });
        made.chain(between(low, high, each)).collect()
    };
    let repeat = |unit: &str| vec![unit.repeat((1 << 20) / unit.len()).into_bytes()];
    let mut sets = vec![
        ("ordinary", mixed(20_000, 120_000, 8)),
        ("small", mixed(3_000, 20_000, 14)),
        ("documentation", between(20_000, 120_000, 60)),
        ("documentation, small", between(2_000, 20_000, 100)),
        ("tiny", between(0, 2_000, 100)),
        ("40 KB", vec![GENERATORS[0].1(0, 40_000).into_bytes()]),
        ("5 MB", vec![five.flatten().collect()]),
        ("adv: a million <", repeat("<")),
        ("adv: < and a blank", repeat("< ")),
        ("adv: tags", repeat("<a>")),
        ("adv: nested comments", repeat("<!-- <!-- ")),
        ("adv: comments that never end", repeat("<!-- > ")),
        ("adv: unclosed quotes", repeat("<a x=\"")),
        ("adv: stray quotes", repeat("<a \" ")),
        ("adv: entities", repeat("&amp;")),
        ("adv: hidden", repeat("<p style='display:none'>a")),
        ("adv: display:none", repeat("display:none ")),
        ("adv: empty scripts", repeat("<script></script>")),
        ("adv: meta", repeat("<meta name=a content=b>")),
        ("adv: text areas", repeat("<textarea></textarea>")),
        ("adv: weak markers", repeat("<div class=\"g-recaptcha\"></div>")),
        ("adv: parts of markers", repeat("<i grecaptcha.>")),
    ];
    sets.extend(
        GENERATORS.map(|(name, make)| {
            (name, (0..8).map(|page| make(page, 60_000).into_bytes()).collect())
        }),
    );
    if let Some(corpus) = std::env::var_os("FETCHWISE_CORPUS") {
        let mut files = Vec::new();
        html_files(&Path::new(&corpus).parent().unwrap().join("pages"), &mut files);
        files.sort();
        for (name, kind) in [
            ("corpus: ordinary", "ordinary"),
            ("corpus: ssr", "ssr"),
            ("corpus: shells", "spa"),
            ("corpus: blocks", "block"),
        ] {
            let is = |f: &&PathBuf| f.file_name().unwrap().to_string_lossy().starts_with(kind);
            sets.push((name, files.iter().filter(is).map(|f| std::fs::read(f).unwrap()).collect()));
        }
    }
    sets.retain(|(_, pages)| pages.iter().any(|p| !p.is_empty()));
    sets
}

/// Returns the first MiB, which the detector reads. The parsers get no more.
pub(crate) fn head(page: &[u8]) -> &[u8] {
    &page[..page.len().min(1 << 20)]
}
