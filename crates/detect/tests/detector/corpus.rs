//! Accuracy on real pages: the labelled corpora in `FETCHWISE_CORPUS`, `FETCHWISE_CORPUS2` and so
//! on to `FETCHWISE_CORPUS4`, and the documentation that comes with Rust. None of them is part of
//! the project; without them these tests say so and pass.

use std::path::PathBuf;

use serde_json::Value;

use fetchwise_detect::{Detector, EvaluationRun, Explanation, Scratch, Verdict, evaluate};
use fetchwise_types::response::{Header, Page};

use crate::html_files::html_files;

/// Returns the path of the labelled corpus in an environment variable.
fn corpus(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {variable} does not point to a corpus.jsonl");
    }
    path
}

#[test]
fn all_blocks_and_shells_of_the_corpus_are_found_without_a_false_alarm() {
    let Some(path) = corpus("FETCHWISE_CORPUS") else { return };
    let report = evaluate(&Detector::new(), &path).unwrap();
    println!("{report}");
    let EvaluationRun { block, shell, .. } = report.given;
    assert_eq!((block.misses, block.false_alarms), (0, 0));
    assert_eq!((shell.misses, shell.false_alarms), (0, 0));
}

#[test]
fn the_bodies_alone_reveal_the_blocks_of_the_corpora_without_a_false_alarm() {
    for (variable, blocks, empties) in [
        ("FETCHWISE_CORPUS", 0.97, 0),
        ("FETCHWISE_CORPUS2", 0.90, 0),
        ("FETCHWISE_CORPUS3", 0.85, 2),
        // Pages that only redirect are empty, too.
        ("FETCHWISE_CORPUS4", 0.80, 8),
    ] {
        let Some(path) = corpus(variable) else { continue };
        let report = evaluate(&Detector::new(), &path).unwrap();
        println!("{report}");
        let EvaluationRun { block, shell, empty, .. } = report.at_200;
        assert!(block.recall().unwrap() >= blocks, "{variable}: {block:?}");
        assert_eq!(block.false_alarms, 0, "{variable}");
        assert!(shell.recall().unwrap() >= 0.95, "{variable}: {shell:?}");
        // A block and a shell of the third corpus say nothing that a rule knows.
        assert!(empty.false_alarms <= empties, "{variable}: {empty:?}");
    }
}

#[test]
fn rules_that_name_no_vendor_find_three_quarters_of_the_blocks() {
    let Some(path) = corpus("FETCHWISE_CORPUS") else { return };
    let report = evaluate(&Detector::generic(), &path).unwrap();
    println!("{report}");
    assert!(report.given.block.recall().unwrap() >= 0.75);
    assert!(report.given.block.false_alarm_rate().unwrap() <= 0.001);
}

#[test]
fn the_keyword_baseline_is_as_bad_as_expected() {
    let Some(path) = corpus("FETCHWISE_CORPUS") else { return };
    let report = evaluate(&Detector::keywords(), &path).unwrap();
    println!("{report}");
    assert!(report.given.block.false_alarms > 20, "keywords take widgets for blocks");
}

/// Reworded blocks in eighteen languages, pages of networks, and short pages of content that use
/// the same words. They were written before the words of the concepts that recognise them.
const REWORDED: &str = include_str!("pages/reworded.jsonl");

#[test]
fn reworded_blocks_are_found_and_short_pages_of_content_are_not_empty() {
    let detector = Detector::new();
    let mut scratch = Scratch::default();
    let headers = [Header::new("Content-Type", "text/html")];
    let (mut blocks, mut networks, mut content) = ((0, 0), (0, 0), (0, 0));
    for line in REWORDED.lines() {
        let page: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| page[key].as_str().unwrap_or_default();
        let response = Page {
            status: 200,
            headers: &headers,
            body: text("html").as_bytes(),
            ..Page::default()
        };
        let verdict = detector.inspect(&response, &mut scratch);
        let (right, counts) = match text("label") {
            "block" => (verdict.is_blocked || verdict.is_queued, &mut blocks),
            "network" => (verdict.is_blocked && verdict.network_block, &mut networks),
            _ => (verdict.is_content(), &mut content),
        };
        *counts = (counts.0 + usize::from(right), counts.1 + 1);
        if !right {
            println!(
                "{} ({}, {}): {}",
                text("note"),
                text("label"),
                text("lang"),
                verdict.reason()
            );
        }
    }
    println!("blocks {blocks:?}, pages of networks {networks:?}, content {content:?}");
    assert!(blocks.0 * 100 >= blocks.1 * 90, "{blocks:?}");
    assert!(networks.0 * 100 >= networks.1 * 75, "{networks:?}");
    assert!(content.0 * 100 >= content.1 * 75, "{content:?}");
}

/// Rewordings that were committed before the rules were read, each of another imagined site: four
/// blocks and four ordinary pages in each of ten languages. docs/reports/detection.md has the first
/// figures and those since the rules know the pages.
#[test]
fn rewordings_are_found_without_a_false_alarm() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/detector/pages/rewordings/corpus.jsonl");
    let report = evaluate(&Detector::new(), &path).unwrap();
    println!("{report}");
    let EvaluationRun { table, block, empty, .. } = report.at_200;
    // A queue is a block that a site built, and the verdict says so.
    let [blocked, queued, ..] = table["block"];
    assert!(blocked + queued >= 38, "{table:?}");
    assert_eq!(block.false_alarms, 0);
    assert!(empty.false_alarms <= 3, "{empty:?}");
}

#[test]
fn the_confidence_of_cues_is_reliable_on_the_samples_that_it_was_fitted_to() {
    let samples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("calibration/first-sight.tsv");
    let samples = std::fs::read_to_string(samples).unwrap();
    let mut bands = [(0, 0, 0.0); 4];
    for line in samples.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let Ok(margin) = fields[3].parse() else { continue };
        let mut cues = fetchwise_detect::CueSum::default();
        (cues.core, cues.sum) = (true, margin);
        let confidence = cues.confidence();
        let band = [0.5, 0.8, 0.9, 1.1].iter().position(|to| confidence < *to).unwrap();
        bands[band].0 += usize::from(fields[2] == "block");
        bands[band].1 += 1;
        bands[band].2 += f64::from(confidence);
    }
    for (blocks, pages, sum) in bands {
        let (low, high) = fetchwise_detect::wilson(blocks, pages).unwrap();
        let claimed = sum / pages as f64;
        assert!((low..=high).contains(&claimed), "{blocks} of {pages}, claimed {claimed}");
    }
}

#[test]
fn pages_of_networks_among_the_rewordings_are_known_as_such() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/detector/pages/rewordings");
    let headers = [Header::new("Content-Type", "text/html; charset=utf-8")];
    for line in std::fs::read_to_string(folder.join("corpus.jsonl")).unwrap().lines() {
        let page: Value = serde_json::from_str(line).unwrap();
        let body = std::fs::read(folder.join(page["body_path"].as_str().unwrap())).unwrap();
        let response = Page { status: 200, headers: &headers, body: &body, ..Page::default() };
        let verdict = Detector::new().inspect(&response, &mut Scratch::default());
        assert_eq!(
            verdict.network_block,
            page["detail"].as_str().unwrap().starts_with("net_"),
            "{page}: {}",
            verdict.reason()
        );
    }
}

#[test]
fn no_page_of_the_rust_documentation_is_taken_for_a_block_or_a_shell() {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = match sysroot {
        Ok(out) => {
            PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()).join("share/doc/rust/html")
        }
        Err(_) => PathBuf::new(),
    };
    let mut files = Vec::new();
    html_files(&root, &mut files);
    if files.is_empty() {
        println!("skipped: the Rust documentation is not installed");
        return;
    }
    files.sort();
    // Every page in a release build; a sample in a debug build, which takes seconds.
    let step = if cfg!(debug_assertions) { 25 } else { 1 };
    let detector = Detector::new();
    let mut scratch = Scratch::default();
    let headers = [Header::new("Content-Type", "text/html")];
    let mut wrong: Vec<(PathBuf, Verdict)> = Vec::new();
    let mut thin = 0;
    for path in files.iter().step_by(step) {
        let body = std::fs::read(path).unwrap();
        let page = Page { status: 200, headers: &headers, body: &body, ..Page::default() };
        let verdict = detector.inspect(&page, &mut scratch);
        thin += usize::from(verdict.is_empty);
        if verdict.is_blocked || verdict.is_queued || verdict.has_spa {
            wrong.push((path.clone(), verdict));
        }
    }
    println!("{} pages, {} of them with next to no text", files.len().div_ceil(step), thin);
    for (path, verdict) in wrong.iter().take(20) {
        println!("{}: {}", path.display(), verdict.reason());
    }
    assert!(wrong.is_empty(), "{} false alarms", wrong.len());
}

/// Pages of networks, failures, log-ins, manuals and small sites in many languages. The first set
/// was written before the words and rules that know it, the second after them and before those that
/// know it. docs/reports/detection.md has the figures of both at first sight.
const FOURTH: &str = include_str!("pages/fourth.jsonl");
const FIFTH: &str = include_str!("pages/fifth.jsonl");
/// Pages of networks with the URL that was asked for, each set written after the rules that it
/// measures.
const NINTH: &str = include_str!("pages/ninth.jsonl");
const TENTH: &str = include_str!("pages/tenth.jsonl");

#[test]
fn networks_failures_and_log_ins_are_named_and_manuals_are_content() {
    let detector = Detector::new();
    let mut scratch = Scratch::default();
    let headers = [Header::new("Content-Type", "text/html; charset=utf-8")];
    let mut counts = std::collections::BTreeMap::<String, (usize, usize)>::new();
    for line in [FOURTH, FIFTH, NINTH, TENTH].into_iter().flat_map(str::lines) {
        let page: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| page[key].as_str().unwrap_or_default();
        let (url, final_url) = (page["url"].as_str(), page["final_url"].as_str());
        let response =
            Page { status: 200, headers: &headers, body: text("html").as_bytes(), url, final_url };
        let verdict = detector.inspect(&response, &mut scratch);
        check_cues(&detector, &response, &mut scratch);
        let right = match text("label") {
            "network" => verdict.is_blocked && verdict.network_block,
            "failure" => verdict.is_server_error && !verdict.is_blocked,
            "gate" => verdict.has_login_wall && !verdict.is_blocked && !verdict.is_thin(),
            "block" => verdict.is_blocked && !verdict.network_block,
            _ => verdict.is_content(),
        };
        let entry = counts.entry(text("label").to_owned()).or_default();
        *entry = (entry.0 + usize::from(right), entry.1 + 1);
        if !right {
            println!(
                "{} ({}, {}): {}",
                text("note"),
                text("label"),
                text("lang"),
                verdict.reason()
            );
        }
    }
    println!("{counts:?}");
    for (label, (right, all)) in counts {
        assert!(right * 100 >= all * 75, "{label}: {right} of {all}");
    }
}

/// Checks that a verdict by cues names the strongest of those that an explanation lists, and that
/// no other names any.
fn check_cues(detector: &Detector, page: &Page<'_>, scratch: &mut Scratch) {
    let explained = detector.explain(page, scratch);
    let verdict = &explained.verdict;
    let weights: Vec<i32> = verdict.cues.iter().map(|id| weight_of(&explained, id)).collect();
    assert_eq!(verdict.cues.is_empty(), verdict.rule.as_deref() != Some("cues"), "{verdict:?}");
    assert!(weights.is_sorted_by(|a, b| a >= b) && weights.len() <= 6, "{weights:?}");
    let least = weights.last().copied().unwrap_or(i32::MAX);
    let named = |id: &str| verdict.cues.iter().any(|cue| &**cue == id);
    let others = explained.cues.iter().flat_map(|sum| &sum.cues).filter(|cue| !named(&cue.id));
    for other in others.filter(|_| !weights.is_empty()) {
        assert!(
            other.weight <= 0 || weights.len() == 6 && other.weight <= least,
            "{other:?} {weights:?}"
        );
    }
}

fn weight_of(explained: &Explanation, id: &str) -> i32 {
    let mut all = explained.cues.iter().flat_map(|sum| &sum.cues);
    all.find(|cue| &*cue.id == id).unwrap_or_else(|| panic!("{id} is not explained")).weight
}
