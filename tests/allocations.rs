//! The hot path must not allocate, whatever state a domain is in.

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Attempt, Hint};
use fetchwise::fetch_result::Outcome;
use fetchwise::heuristic::Heuristic;
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use fetchwise::visit::Step;
use url::Url;

#[test]
fn select_allocates_nothing() {
    let selector = Selector::builder().build().unwrap();
    let now = Timestamp::now();
    for n in 0..2000 {
        let url = Url::parse(&format!(
            "https://www.site{}.co.uk/section{}/static/{n}.pdf",
            n % 50,
            n % 97
        ))
        .unwrap();
        let fetcher = ["direct_access", "playwright", "playwright_stealth"][n % 3];
        let attempt = Attempt::new(&url, fetcher, now).unwrap();
        // Host signals, a vendor and a framework, are part of it.
        let (mut attempt, shown) = match n % 4 {
            0 => (attempt.failed(ErrorKind::BlockedCaptcha), Heuristic::flag("block_datadome")),
            _ => (attempt.delivered(), Heuristic::new("spa_framework", "next")),
        };
        attempt.heuristics.push(shown.into());
        selector.record(attempt, now).unwrap();
    }
    let situation = SelectContext::first_attempt(now);
    let known = selector
        .explain(&Url::parse("https://www.site2.co.uk/").unwrap(), &situation)
        .unwrap()
        .shown;
    assert_eq!(known.len(), 2, "{known:?}");
    let urls: Vec<Url> = [
        "https://www.site2.co.uk/section1/static/a.pdf?q=1",
        "https://unknown.org/",
        "https://e.org/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18",
    ]
    .map(|text| Url::parse(text).unwrap())
    .to_vec();
    let situations = [
        SelectContext::first_attempt(now),
        SelectContext {
            attempts: 1,
            hint: Some(Hint::Blocked),
            ..SelectContext::first_attempt(now)
        },
    ];
    // The first read of the map from a thread prepares that thread.
    let _ = selector.select(&urls[0], &situations[0]);
    for url in &urls {
        for situation in &situations {
            let counted = allocation_counter::measure(|| {
                let decision = selector.select(url, situation);
                assert!(decision.is_ok_and(|decision| decision.selected().is_some()));
            });
            assert_eq!(counted.count_total, 0, "{url}");
        }
    }
    let many: Vec<Url> = urls.iter().cycle().take(60).cloned().collect();
    let mut decisions = Vec::with_capacity(60);
    let counted = allocation_counter::measure(|| {
        selector.prefetch(&many);
        selector.select_many(&many, &situations[0], &mut decisions);
    });
    assert_eq!((decisions.len(), counted.count_total), (60, 0));
}

#[test]
fn a_visit_of_a_learned_host_allocates_nothing_before_its_report() {
    let selector = Selector::builder().without_pace().build().unwrap();
    let now = Timestamp::now();
    let urls: Vec<Url> = (0..20)
        .map(|n| Url::parse(&format!("https://www.site.co.uk/section/{n}?q=1")).unwrap())
        .collect();
    for url in &urls {
        selector.record(Attempt::new(url, "direct_access", now).unwrap().delivered(), now).unwrap();
    }
    // The first read of a map from a thread prepares that thread.
    drop(selector.visit(&urls[0]).unwrap().next());
    for url in &urls {
        let mut step = None;
        let counted = allocation_counter::measure(|| {
            // Not dropped in here: dropping a fetch returns its claims.
            let mut visit = selector.visit(url).unwrap();
            step = Some(visit.next());
        });
        let Some(Step::Fetch(fetch)) = step else {
            panic!("the request to a learned host goes out at once: {step:?}")
        };
        assert_eq!(fetch.decision().source.name(), "learned");
        assert_eq!(counted.count_total, 0, "{url}");
    }
}

#[test]
fn a_visit_after_a_failure_decides_again_without_allocating() {
    let selector = Selector::builder().without_pace().build().unwrap();
    let now = Timestamp::now();
    let url = Url::parse("https://www.site.co.uk/section/page").unwrap();
    for fetcher in ["direct_access", "playwright"] {
        for _ in 0..20 {
            selector.record(Attempt::new(&url, fetcher, now).unwrap().delivered(), now).unwrap();
        }
    }
    let mut visit = selector.visit(&url).unwrap();
    let Step::Fetch(fetch) = visit.next() else {
        panic!("the request to a learned host goes out at once")
    };
    visit.report(fetch, Outcome::Empty);
    let mut step = None;
    let counted = allocation_counter::measure(|| step = Some(visit.next()));
    assert!(matches!(step, Some(Step::Fetch(_))), "{step:?}");
    assert_eq!(counted.count_total, 0);
}

#[cfg(feature = "metrics")]
#[test]
fn counting_allocates_nothing() {
    use fetchwise::metrics::Metrics;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    let selector = std::sync::Arc::new(Selector::builder().without_pace().build().unwrap());
    let now = Timestamp::now();
    let page = Url::parse("https://www.site.co.uk/section/page").unwrap();
    let attempt = || Attempt::new(&page, "direct_access", now).unwrap().delivered();
    (0..20).for_each(|_| selector.record(attempt(), now).unwrap());
    let situation = SelectContext::first_attempt(now);
    let _ = selector.select(&page, &situation);
    let counted = allocation_counter::measure(|| drop(selector.select(&page, &situation)));
    assert_eq!(counted.count_total, 0);
    let mut step = None;
    let counted =
        allocation_counter::measure(|| step = Some(selector.visit(&page).unwrap().next()));
    assert_eq!(counted.count_total, 0);
    drop(step);
    // All of it was counted.
    let (mut registry, mut metrics) = (Registry::default(), String::new());
    Metrics::new(selector).register(&mut registry);
    text::encode(&mut metrics, &registry).unwrap();
    let has = |sample: &str| metrics.lines().any(|line| line == sample);
    assert!(
        has(
            r#"fetchwise_decisions_total{via="select",source="learned",fetcher="direct_access"} 2"#
        ),
        "{metrics}"
    );
    let attempts = metrics.lines().filter(|line| line.starts_with("fetchwise_attempts_total{"));
    let attempts: f64 =
        attempts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!(attempts, 20.0);
}

/// With every feature on, metrics are counted too.
#[test]
fn recording_on_a_known_host_allocates_nothing() {
    let selector = Selector::builder().build().unwrap();
    let now = Timestamp::now();
    let attempt = |n: usize| {
        let url = Url::parse(&format!("https://www.site{}.co.uk/section/{n}?q=1", n % 5)).unwrap();
        let attempt = Attempt::new(&url, ["direct_access", "playwright"][n % 2], now).unwrap();
        let mut attempt = match n % 7 {
            0 => attempt.failed(ErrorKind::Timeout),
            1 => attempt.failed(ErrorKind::Blocked403),
            2 => attempt.failed(ErrorKind::EmptyContent),
            _ => attempt.delivered(),
        };
        (attempt.duration_ms, attempt.source) = (n as u64 * 37, Some("learned".into()));
        attempt
    };
    for n in 0..1000 {
        selector.record(attempt(n), now).unwrap();
    }
    for n in 1000..1200 {
        let attempt = attempt(n);
        let counted = allocation_counter::measure(|| selector.record(attempt, now).unwrap());
        assert_eq!(counted.count_total, 0, "attempt {n}");
    }
}
