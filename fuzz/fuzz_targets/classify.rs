//! Any status, headers and body: the detector never panics, never contradicts itself, and keeps no
//! state of the previous page.
//!
//! The input has two bytes of status, header lines up to an empty line, and the body.
#![no_main]

use std::cell::RefCell;
use std::sync::LazyLock;

use fetchwise::detect::{CONTENT_CHARS, Detector, DetectorOptions, Scratch, Verdict, heuristics};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::{Header, Page};
use libfuzzer_sys::fuzz_target;

static DETECTOR: LazyLock<Detector> = LazyLock::new(Detector::new);
static COUNTING: LazyLock<Detector> =
    LazyLock::new(|| Detector::new().with_options(DetectorOptions::default().counting_all()));
static GENERIC: LazyLock<Detector> = LazyLock::new(Detector::generic);
static KEYWORDS: LazyLock<Detector> = LazyLock::new(Detector::keywords);

thread_local! {
    /// Reused for all inputs, as in a crawler.
    static USED: RefCell<Scratch> = RefCell::default();
}

fuzz_target!(|bytes: &[u8]| {
    let Some((status, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (head, body) = match rest.windows(2).position(|window| window == b"\n\n") {
        Some(end) => (&rest[..end], &rest[end + 2..]),
        None => (&b"Content-Type: text/html"[..], rest),
    };
    let headers: Vec<Header> = String::from_utf8_lossy(head)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| Header::new(name.trim(), value.trim()))
        .collect();
    let status = u16::from_le_bytes(*status) % 1000;
    let page = Page {
        url: Some("http://example.org/a"),
        final_url: None,
        status,
        headers: &headers,
        body,
    };

    let verdict = USED.with_borrow_mut(|scratch| DETECTOR.inspect(&page, scratch));
    check(&page, &verdict);
    assert_eq!(
        verdict,
        DETECTOR.inspect(&page, &mut Scratch::default()),
        "a used scratch changes nothing"
    );
    let explained = USED.with_borrow_mut(|scratch| DETECTOR.explain(&page, scratch));
    assert_eq!(verdict, explained.verdict, "explaining changes nothing");
    let matches = &explained.matches;
    if verdict.rule.as_deref() == Some("cues") {
        let cues = explained.cues.as_ref();
        assert!(cues.is_some_and(|cues| cues.core && cues.sum >= cues.threshold), "{cues:?}");
    } else if let Some(rule) = &verdict.rule {
        assert!(
            matches.iter().any(|found| found.rule == *rule),
            "{rule} decided, and is not among {matches:?}"
        );
    }
    let counted = USED.with_borrow_mut(|scratch| COUNTING.inspect(&page, scratch));
    assert_eq!(decision(&verdict), decision(&counted), "counting to the end changes no decision");
    assert!(counted.text_chars >= verdict.text_chars);

    check(&page, &GENERIC.inspect(&page, &mut Scratch::default()));
    // The baseline may call a page blocked and empty at once, so the only check is that it does not
    // panic.
    let _ = KEYWORDS.inspect(&page, &mut Scratch::default());
});

fn decision(verdict: &Verdict) -> (bool, bool, bool, bool) {
    (verdict.is_blocked, verdict.is_queued, verdict.has_spa, verdict.is_empty)
}

fn check(page: &Page<'_>, verdict: &Verdict) {
    let (blocked, queued, spa, empty) = decision(verdict);
    let ends = usize::from(blocked) + usize::from(queued) + usize::from(spa) + usize::from(empty);
    assert!(ends <= 1, "one end at most: {verdict:?}");
    assert_eq!(blocked, verdict.block_type.is_some());
    assert!((0.0..=1.0).contains(&verdict.confidence), "{verdict:?}");
    assert!(!verdict.reason().is_empty());
    let outcome = verdict.outcome(page);
    for by in ["direct_access", "playwright"].map(FetcherSpec::by_name) {
        assert!(outcome.counts_as(&by).is_err() || verdict.is_content(), "{verdict:?}");
        assert!(outcome.clone().truncated().counts_as(&by).is_err(), "{verdict:?}");
    }
    let thin = verdict.text_complete && verdict.text_chars < CONTENT_CHARS;
    assert!(!verdict.block_cues || thin && !blocked && !verdict.is_queued, "{verdict:?}");
    assert!(
        verdict.redirect.as_ref().is_none_or(|target| empty && !target.is_empty()),
        "{verdict:?}"
    );
    let mut found = Vec::new();
    heuristics(page, verdict, &mut found);
    assert!(
        found.iter().all(|heuristic| !heuristic.kind.is_empty() && !heuristic.value.is_empty()),
        "{found:?}"
    );
}
