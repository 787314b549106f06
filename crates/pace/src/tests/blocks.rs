//! Tests of blocks: which are a doubt, which are a limit, and which are nobody's.

use super::*;

#[test]
fn a_single_block_is_a_doubt_that_another_url_decides() {
    let block = Response::new(Signal::Block, FETCHER);
    for (second, verdict) in
        [(Signal::Content, DoubtVerdict::Page), (Signal::Block, DoubtVerdict::Pace)]
    {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 50);
        let permit = crawl.permit("a.org");
        let ResponseEffect::Doubt { hold_until, doubt } = crawl.respond(permit, block) else {
            panic!("no doubt")
        };
        assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), DoubtVerdict::Pending);
        let trial = crawl.permit("a.org");
        assert_eq!(crawl.at(), hold_until);
        let done = crawl.respond(trial, Response::new(second, FETCHER));
        assert_eq!(
            matches!(done, ResponseEffect::LimitHit { .. }),
            verdict == DoubtVerdict::Pace,
            "{done:?}"
        );
        assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), verdict);
    }
}

#[test]
fn a_block_of_a_fetcher_without_recent_success_concerns_that_fetcher() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 50);
    let permit = crawl.permit("a.org");
    assert_eq!(
        crawl.respond(permit, Response::new(Signal::Block, FetcherId(1))),
        ResponseEffect::Nothing
    );
}

#[test]
fn parallel_blocks_are_one_doubt_and_another_fetchers_page_does_not_decide_it() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 60);
    let mut permits = vec![crawl.permit("a.org")];
    while permits.len() < 2 {
        crawl.now += 20;
        if let Admit::Go(permit) = crawl.pace.admit(Scope::host("a.org"), Cost::Plain, crawl.at()) {
            permits.push(permit);
        }
    }
    let doubts: Vec<u32> = permits
        .into_iter()
        .map(|permit| match crawl.respond(permit, Response::new(Signal::Block, FETCHER)) {
            ResponseEffect::Doubt { doubt, .. } => doubt,
            other => panic!("no doubt: {other:?}"),
        })
        .collect();
    assert_eq!(doubts[0], doubts[1]);
    let verdict = |crawl: &Crawl| crawl.pace.doubt_verdict("a.org", doubts[0], crawl.at());
    let trial = crawl.permit("a.org");
    assert_eq!(
        crawl.respond(trial, Response::new(Signal::Content, FetcherId(1))),
        ResponseEffect::Nothing
    );
    assert_eq!(
        verdict(&crawl),
        DoubtVerdict::Pending,
        "a browser may pass where the plain fetcher is limited"
    );
    let trial = crawl.permit("a.org");
    assert!(matches!(
        crawl.respond(trial, Response::new(Signal::Block, FETCHER)),
        ResponseEffect::LimitHit { .. }
    ));
    assert_eq!(verdict(&crawl), DoubtVerdict::Pace);
}

#[test]
fn a_doubt_about_a_fetcher_without_further_requests_ends() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 60);
    let permit = crawl.permit("a.org");
    let ResponseEffect::Doubt { doubt, .. } =
        crawl.respond(permit, Response::new(Signal::Block, FETCHER))
    else {
        panic!("no doubt")
    };
    for _ in 0..5 {
        assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), DoubtVerdict::Pending);
        let trial = crawl.permit("a.org");
        let _ = crawl.respond(trial, Response::new(Signal::Content, FetcherId(1)));
    }
    assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), DoubtVerdict::Page);
}

/// Two pages that are not published, one after the other, held a host that served all others.
#[test]
fn a_few_unpublished_pages_hold_no_host_that_serves_the_others() {
    for (first, count) in (3..28).flat_map(|first| [(first, 1), (first, 2)]) {
        let (mut crawl, mut limit_hits) = (Crawl::new(PaceSettings::default()), 0);
        for page in 0..30 {
            let is_refused = (first..first + count).contains(&page);
            let permit = crawl.permit("a.org");
            crawl.now += 50;
            let signal = if is_refused { Signal::Block } else { Signal::Content };
            let effect = crawl.respond(permit, Response::new(signal, FETCHER));
            limit_hits += u32::from(matches!(effect, ResponseEffect::LimitHit { .. }));
        }
        assert_eq!(limit_hits, 0, "{count} from {first} on");
    }
}

/// A bucket that answers 403 refused half of all requests for good: between two refusals it served,
/// and so each refusal seemed to be one page's.
#[test]
fn a_limit_that_blocks_between_good_pages_is_a_limit() {
    for (rate, size, seed) in [(1.0, 5.0, 1), (3.0, 12.0, 2), (1.5, 20.0, 3), (6.0, 30.0, 4)] {
        let mut crawl = Crawl::new(PaceSettings::default());
        let mut is_refused = bucket(rate, size, seed);
        let mut block = |now| if is_refused(now) { Signal::Block } else { Signal::Content };
        crawl_with(&mut crawl, 900, &mut block);
        let (good, refused) = crawl_with(&mut crawl, 3600, &mut block);
        assert!(refused <= (good + refused) / 30, "{rate} {size}: {refused} of {}", good + refused);
        assert!(f64::from(good) >= 0.6 * rate * 3600.0, "{rate} {size}: {good}");
    }
}

/// Blocks that come at any rate are no limit.
#[test]
fn pages_that_are_blocked_at_any_rate_do_not_slow_a_host() {
    for share in [0.02, 0.07, 0.15, 0.3] {
        let mut rates: Vec<f64> = (0..15)
            .map(|seed| {
                let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
                crawl_with(&mut crawl, 600, |_| {
                    n += 1;
                    if luck(seed, n) < share { Signal::Block } else { Signal::Content }
                });
                crawl.explain("a.org").rate
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        assert!(rates[5] >= 10.0, "{share}: {rates:.1?}");
    }
}

/// A host that blocked some pages at any rate, and then every page, was asked on.
#[test]
fn a_host_that_blocks_some_pages_and_then_all_is_held() {
    for share in [0.03, 0.2] {
        let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
        crawl_with(&mut crawl, 400, |_| {
            n += 1;
            if luck(7, n) < share { Signal::Block } else { Signal::Content }
        });
        let (_, refused) = crawl_with(&mut crawl, 120, |_| Signal::Block);
        assert!(refused <= 15, "{share}: {refused}");
    }
}

#[test]
fn a_host_that_served_and_refuses_everything_is_refusing_for_a_limited_time() {
    for (signal, served, patience_s) in [
        (Signal::Limited, 40, Some(3600)),
        (Signal::Block, 40, Some(3600)),
        (Signal::Unavailable, 40, Some(900)),
        (Signal::Broken, 40, Some(900)),
        (Signal::Limited, 0, None),
        (Signal::ServerError, 0, None),
    ] {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", served);
        let mut begin = None;
        for _ in 0..60 {
            let permit = crawl.permit("a.org");
            let since = crawl.pace.refusing_since("a.org", crawl.at());
            let passed_s = begin.map_or(0, |begin: i64| (crawl.now - begin) / 1000);
            let is_expected =
                begin.is_some() && patience_s.is_some_and(|patience_s| passed_s <= patience_s);
            assert_eq!(since.is_some(), is_expected, "{signal:?} after {passed_s} s");
            crawl.now += 20;
            if let ResponseEffect::LimitHit { .. } =
                crawl.respond(permit, Response::new(signal, FETCHER))
            {
                begin.get_or_insert(crawl.now);
            }
        }
        let permit = crawl.permit("a.org");
        let _ = crawl.respond(permit, Response::new(Signal::Content, FETCHER));
        assert_eq!(crawl.pace.refusing_since("a.org", crawl.at()), None, "it serves again");
    }
}
