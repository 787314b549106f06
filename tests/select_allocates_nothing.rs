//! The hot path asks the allocator for nothing, whatever a domain has been through.

use fetchwise::attempt::outcome::ErrorKind;
use fetchwise::attempt::{Attempt, Hint};
use fetchwise::selector::{Selector, Situation};
use fetchwise::time::Timestamp;
use url::Url;

#[test]
fn select_allocates_nothing() {
    let selector = Selector::builder().build().unwrap();
    let now = Timestamp::now();
    for n in 0..2000 {
        let url = Url::parse(&format!("https://www.site{}.co.uk/section{}/static/{n}.pdf", n % 50, n % 97)).unwrap();
        let fetcher = ["direct_access", "playwright", "playwright_stealth"][n % 3];
        let attempt = Attempt::new(&url, fetcher, now).unwrap();
        let attempt = if n % 4 == 0 { attempt.failed(ErrorKind::BlockedCaptcha) } else { attempt.delivered() };
        selector.record(attempt, now).unwrap();
    }
    let urls: Vec<Url> = [
        "https://www.site1.co.uk/section1/static/a.pdf?q=1",
        "https://unknown.org/",
        "https://e.org/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18",
    ]
    .map(|text| Url::parse(text).unwrap())
    .to_vec();
    let situations =
        [Situation::first(now), Situation { attempts: 1, hint: Some(Hint::Blocked), ..Situation::first(now) }];
    // The first look at the map from a thread sets that thread up for reading.
    let _ = selector.select(&urls[0], &situations[0]);
    for url in &urls {
        for situation in &situations {
            let counted = allocation_counter::measure(|| {
                let decision = selector.select(url, situation);
                assert!(decision.is_ok_and(|decision| decision.taken().is_some()));
            });
            assert_eq!(counted.count_total, 0, "{url}");
        }
    }
}
