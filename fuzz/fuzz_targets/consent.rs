//! Any bytes as terms: headers, robots.txt and meta elements. Nothing panics, what is read is
//! bounded, and a crawl without purposes skips nothing.
#![no_main]

use fetchwise::detect::robots_meta;
use fetchwise_types::consent::{
    ConsentSettings, MAX_TERMS, Purpose, RobotsTerms, RslTerms, TermPlace, header_terms,
    robots_directives,
};
use fetchwise_types::response::Header;
use libfuzzer_sys::fuzz_target;

const AGENT: &str = "ExampleBot";

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (path, value) = text.split_once('\n').unwrap_or(("/", &text));
    let names = ["content-usage", "Content-Signal", "x-robots-tag", "link"];
    let headers: Vec<Header> = names.iter().map(|name| Header::new(*name, value)).collect();
    let mut terms = header_terms(&headers, AGENT);
    for directives in robots_meta(bytes, AGENT) {
        robots_directives(&directives, TermPlace::Meta, AGENT, &mut terms);
    }
    let groups = format!(
        "User-agent: *\nContent-Usage: {value}\nContent-Signal: /{path} {value}\nLicense: {value}"
    );
    for robots in [bytes, groups.as_bytes()] {
        let robots = RobotsTerms::read(robots, AGENT);
        assert!(!robots.is_empty() || robots.at(path).is_empty());
        terms.extend(robots.at(path));
    }
    let page = "https://e.org/a/b?c".parse().expect("a URL");
    let uses = format!(
        "<rsl><content url=\"/\"><license><prohibits type=\"usage\">{value}</prohibits></license></content></rsl>"
    );
    for file in [bytes, uses.as_bytes()] {
        terms.extend(RslTerms::read(file).at(&page, TermPlace::RobotsTxt));
    }
    let any = ConsentSettings::default();
    let training =
        ConsentSettings { purposes: vec![Purpose::TrainAi], ..ConsentSettings::default() };
    let is_reserved = terms
        .iter()
        .any(|term| term.purpose == Some(Purpose::TrainAi) && term.allowed == Some(false));
    if let Some(consent) = any.judge(terms.clone()) {
        assert!(!any.withholds(&consent));
        // What reserves is never dropped, and there are few different terms of that kind.
        assert!(consent.terms.len() <= MAX_TERMS + 48);
        assert!(!consent.terms_text().contains(['\r', '\n']));
    }
    let consent = training.judge(terms).expect("a crawl with purposes has a consent");
    assert_eq!(training.withholds(&consent), is_reserved);
});
