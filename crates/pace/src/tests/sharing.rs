//! Tests of what hosts of one site and sites of one address share.

use super::*;

#[test]
fn a_limit_that_two_hosts_hit_in_turn_is_charged_to_their_site() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.example.org", 30);
    let permit = crawl.permit("a.example.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    assert!(
        matches!(done, ResponseEffect::LimitHit { level: Level::Host, .. }),
        "nobody else was asked: {done:?}"
    );
    let mut crawl = Crawl::new(PaceSettings::default());
    for _ in 0..30 {
        crawl.good("a.example.org", 1);
        crawl.good("b.example.org", 1);
    }
    let permit = crawl.permit("a.example.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    let ResponseEffect::LimitHit { hold_until, level: Level::Site } = done else {
        panic!("{done:?}")
    };
    assert_eq!(crawl.pace.hold(Scope::host("b.example.org"), crawl.at()), Some(hold_until));
    assert_eq!(crawl.pace.hold(Scope::host("b.example.com"), crawl.at()), None);
}

/// A site that had been blocked once counted every later block as one too soon after a hold: each
/// hold was half as long again as the last one.
#[test]
fn a_site_is_held_no_longer_when_it_is_blocked_again_later() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let mut holds = Vec::new();
    // A host that is blocked twice running would take the blame alone.
    for host in ["a.example.org", "b.example.org"].repeat(2) {
        for _ in 0..60 {
            crawl.good("a.example.org", 1);
            crawl.good("b.example.org", 1);
        }
        let permit = crawl.permit(host);
        crawl.now += 100;
        let begin = crawl.now;
        let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
        assert!(matches!(done, ResponseEffect::LimitHit { level: Level::Site, .. }), "{done:?}");
        let trial = crawl.permit("b.example.org");
        let _ = crawl.respond(trial, Response::new(Signal::Limited, FETCHER));
        crawl.good("b.example.org", 1);
        holds.push(crawl.now - begin);
    }
    assert!(holds.iter().all(|hold| *hold <= holds[0] * 11 / 10), "{holds:?}");
}

/// The doubt of the second host stayed open until the hold of the site was over. The page that came
/// then closed it as a block of that page, and later blocks of the site needed more proof.
#[test]
fn a_doubt_of_a_host_whose_site_is_blamed_meanwhile_is_about_the_pace() {
    let mut crawl = Crawl::new(PaceSettings::default());
    for _ in 0..30 {
        crawl.good("a.example.org", 1);
        crawl.good("b.example.org", 1);
    }
    let (a, b) = (crawl.permit("a.example.org"), crawl.permit("b.example.org"));
    let block = || Response::new(Signal::Block, FETCHER);
    let first = crawl.respond(a, block());
    assert!(matches!(first, ResponseEffect::Doubt { .. }), "{first:?}");
    let ResponseEffect::Doubt { doubt, .. } = crawl.respond(b, block()) else { panic!("no doubt") };
    let trial = crawl.permit("a.example.org");
    let done = crawl.respond(trial, block());
    assert!(matches!(done, ResponseEffect::LimitHit { level: Level::Site, .. }), "{done:?}");
    assert_eq!(crawl.pace.doubt_verdict("b.example.org", doubt, crawl.at()), DoubtVerdict::Pending);
    crawl.good("b.example.org", 1);
    assert_eq!(crawl.pace.doubt_verdict("b.example.org", doubt, crawl.at()), DoubtVerdict::Pace);
}

#[test]
fn sites_of_one_address_are_held_together_only_when_two_of_them_are_blocked() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let mut respond_at = |host: &'static str, signal: Signal| {
        let scope = Scope { address: Some("192.0.2.1"), ..Scope::host(host) };
        loop {
            match crawl.pace.admit(scope, Cost::Plain, crawl.at()) {
                Admit::Go(permit) => {
                    return crawl.pace.record_response(
                        permit,
                        &Response::new(signal, FETCHER),
                        crawl.at(),
                    );
                }
                Admit::Wait(until) => crawl.now = until.as_millis(),
                Admit::AtCapacity => panic!("full"),
            }
        }
    };
    for _ in 0..20 {
        for host in ["a.org", "b.org"] {
            assert_eq!(respond_at(host, Signal::Content), ResponseEffect::Nothing);
        }
    }
    let first = respond_at("a.org", Signal::Limited);
    assert!(matches!(first, ResponseEffect::LimitHit { level: Level::Host, .. }), "{first:?}");
    let second = respond_at("b.org", Signal::Limited);
    assert!(matches!(second, ResponseEffect::LimitHit { level: Level::Address, .. }), "{second:?}");
}

#[test]
fn a_lone_host_shares_its_site_once_another_host_appears() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.site.org", 60);
    crawl.pace.hosts.for_each(|entry| assert!(entry.identity.is_alone(crawl.now)));
    let permit = crawl.permit("b.site.org");
    crawl.pace.hosts.for_each(|entry| assert!(!entry.identity.is_alone(crawl.now)));
    let _ = crawl.respond(permit, Response::new(Signal::Content, FETCHER));
    crawl.good("a.site.org", 1);
    let permit = crawl.permit("b.site.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    assert!(
        matches!(done, ResponseEffect::LimitHit { level: Level::Site, .. }),
        "the other was asked a moment ago: {done:?}"
    );
    assert!(matches!(
        crawl.pace.admit(Scope::host("a.site.org"), Cost::Plain, crawl.at()),
        Admit::Wait(_)
    ));
}

#[test]
fn a_limit_hit_by_the_first_request_of_a_second_host_holds_that_host() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.site.org", 60);
    let permit = crawl.permit("b.site.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    assert!(matches!(done, ResponseEffect::LimitHit { level: Level::Host, .. }), "{done:?}");
    assert!(matches!(
        crawl.pace.admit(Scope::host("b.site.org"), Cost::Plain, crawl.at()),
        Admit::Wait(_)
    ));
}

#[test]
fn hosts_of_one_site_that_appear_concurrently_do_not_deadlock() {
    let pace = Pace::default();
    let at = Timestamp::from_millis(1_790_000_000_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pace = &pace;
            scope.spawn(move || {
                for site in 0..500 {
                    let host = format!("h{thread}.site{site}.org");
                    if let Admit::Go(permit) = pace.admit(Scope::host(&host), Cost::Plain, at) {
                        let _ = pace.record_response(
                            permit,
                            &Response::new(Signal::Content, FETCHER),
                            at,
                        );
                    }
                }
            });
        }
    });
    let mut alone = 0;
    pace.hosts.for_each(|entry| alone += usize::from(entry.identity.is_alone(at.as_millis())));
    assert_eq!((pace.hosts.len(), alone), (2000, 0), "four hosts a site, and each of them knows");
}
