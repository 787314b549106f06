//! Any bytes as a URL: parsing, feature extraction and decisions never panic, and the features keep
//! their guarantees.
#![no_main]

use std::sync::LazyLock;

use fetchwise::Selector;
use fetchwise::decision::Decision;
use fetchwise::heuristic::url::{UrlFeatures, parse};
use fetchwise::selector::SelectContext;
use fetchwise::time::Timestamp;
use libfuzzer_sys::fuzz_target;
use url::Url;

static SELECTOR: LazyLock<Selector> = LazyLock::new(|| {
    Selector::builder().build().expect("the default half-life is one that is allowed")
});

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    // A caller may pass a URL that did not go through the library's parser.
    if let Ok(url) = Url::parse(&text) {
        let _ = UrlFeatures::extract(&url);
        let _ = SELECTOR.heuristics(&url);
    }
    let Ok(url) = parse(&text) else { return };
    assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
    assert_eq!(
        parse(url.as_str()).as_ref(),
        Ok(&url),
        "reading a URL that was read changes nothing"
    );

    let features = UrlFeatures::extract(&url).expect("what parse takes can be extracted from");
    assert!(features.domain.ends_with(features.site), "{features:?}");
    assert_eq!(features.domain, features.domain.to_ascii_lowercase());
    if let Some(suffix) = features.suffix {
        let suffix = suffix.as_str();
        assert!((2..=11).contains(&suffix.len()) && suffix.starts_with('.'), "{suffix:?}");
        assert!(
            suffix[1..].bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()),
            "{suffix:?}"
        );
    }
    for heuristic in features.heuristics() {
        assert!(!heuristic.kind.is_empty() && !heuristic.value.is_empty(), "{heuristic:?}");
    }
    let situation = SelectContext::first_attempt(Timestamp::from_millis(0));
    match SELECTOR.select(&url, &situation).expect("what parse takes can be decided on") {
        Decision::Selected(take) => assert!((0.0..=1.0).contains(&take.confidence), "{take:?}"),
        other => panic!("a first attempt is neither paused nor given up: {other:?}"),
    }
});
