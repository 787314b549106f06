//! Pages written for tests: block pages of vendors, and their near misses.
//!
//! Every block page is found, with its vendor if it can be determined; no other page counts as one.

mod blocks;
mod near_misses;
mod shells;

use fetchwise_detect::{Detector, Scratch, Verdict};
use fetchwise_types::response::{Header, Page};

/// A response and its class.
struct Case {
    name: &'static str,
    /// The required vendor; empty if any is right.
    vendor: &'static str,
    status: u16,
    headers: Vec<Header>,
    body: String,
}

impl Case {
    fn new(
        name: &'static str,
        vendor: &'static str,
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &str,
    ) -> Self {
        let headers = headers.iter().map(|(n, v)| Header::new(*n, *v)).collect();
        Self { name, vendor, status, headers, body: body.to_owned() }
    }

    fn read(&self, detector: &Detector) -> Verdict {
        let page = Page {
            status: self.status,
            headers: &self.headers,
            body: self.body.as_bytes(),
            ..Page::default()
        };
        detector.inspect(&page, &mut Scratch::default())
    }
}

/// Fails with the names of all wrong cases.
fn assert_none_wrong(cases: &[Case], wrong: impl Fn(&Case) -> Option<String>) {
    let wrong: Vec<_> =
        cases.iter().filter_map(|c| Some(format!("{}: {}", c.name, wrong(c)?))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn block_pages_are_found_and_named() {
    let detector = Detector::new();
    assert_none_wrong(&blocks::all(), |case| {
        let verdict = case.read(&detector);
        let named = case.vendor.is_empty() || verdict.vendor.as_deref() == Some(case.vendor);
        (!verdict.is_blocked || !named)
            .then(|| format!("{} ({:?}, wanted {})", verdict.reason(), verdict.vendor, case.vendor))
    });
}

#[test]
fn block_pages_with_status_200_are_found_by_their_page_alone() {
    let detector = Detector::new();
    let mut cases = blocks::all();
    // A refusal in plain words needs a status that says so.
    cases.retain(|case| !["plain nginx 403", "squid"].contains(&case.name));
    for case in &mut cases {
        // Error pages of the edge need a status that they can have.
        case.status = 200;
        case.headers.retain(|h| h.name == "Content-Type");
    }
    let missed: Vec<_> =
        cases.iter().filter(|c| !c.read(&detector).is_blocked).map(|c| c.name).collect();
    assert!(
        missed.len() * 20 <= cases.len(),
        "{} of {} missed: {missed:?}",
        missed.len(),
        cases.len()
    );
}

#[test]
fn block_pages_are_found_without_any_rule_that_names_a_vendor() {
    let detector = Detector::generic();
    let cases = blocks::all();
    let missed: Vec<_> =
        cases.iter().filter(|c| !c.read(&detector).is_blocked).map(|c| c.name).collect();
    assert!(
        missed.len() * 4 <= cases.len(),
        "{} of {} missed: {missed:?}",
        missed.len(),
        cases.len()
    );
}

#[test]
fn near_misses_are_no_blocks() {
    let detector = Detector::new();
    let cases: Vec<_> =
        near_misses::all().into_iter().chain(near_misses::in_other_words()).collect();
    assert_none_wrong(&cases, |case| {
        let verdict = case.read(&detector);
        (verdict.is_blocked || verdict.is_queued)
            .then(|| format!("{} [{:?}]", verdict.reason(), verdict.rule))
    });
}

#[test]
fn near_misses_with_enough_text_are_content() {
    let detector = Detector::new();
    let mut cases = near_misses::all();
    cases.retain(|case| case.body.matches("Gardens need").count() > 5);
    assert!(cases.len() > 30);
    assert_none_wrong(&cases, |case| {
        let verdict = case.read(&detector);
        (!verdict.is_content()).then(|| verdict.reason())
    });
}

#[test]
fn shells_are_found_and_lookalikes_are_not() {
    let detector = Detector::new();
    assert_none_wrong(&shells::all(), |case| {
        let verdict = case.read(&detector);
        (!verdict.has_spa).then(|| verdict.reason())
    });
    assert_none_wrong(&shells::near(), |case| {
        let verdict = case.read(&detector);
        (verdict.has_spa || verdict.is_blocked)
            .then(|| format!("{} [{:?}]", verdict.reason(), verdict.rule))
    });
}
