//! Tests of rendered pages, which make many requests each.

use super::*;

#[test]
fn a_rendered_page_counts_as_many_requests_as_pages_of_the_host_have_made() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let render = |crawl: &mut Crawl, cost: u16| {
        loop {
            match crawl.pace.admit(Scope::host("a.org"), Cost::Rendered, crawl.at()) {
                Admit::Go(permit) => {
                    let response = Response {
                        cost: Some(cost),
                        renders: true,
                        ..Response::new(Signal::Content, FETCHER)
                    };
                    return crawl.respond(permit, response);
                }
                Admit::Wait(until) => crawl.now = until.as_millis(),
                Admit::AtCapacity => panic!("full"),
            }
        }
    };
    assert_eq!(render(&mut crawl, 12), ResponseEffect::Nothing);
    let begin = crawl.now;
    assert_eq!(render(&mut crawl, 12), ResponseEffect::Nothing);
    assert!(
        (5000..=6700).contains(&(crawl.now - begin)),
        "twelve requests at two a second: {}",
        crawl.now - begin
    );
    for _ in 0..30 {
        assert_eq!(render(&mut crawl, 4), ResponseEffect::Nothing);
    }
    let (begin, rate) = (crawl.now, crawl.explain("a.org").rate);
    assert_eq!(render(&mut crawl, 4), ResponseEffect::Nothing);
    let requests = (crawl.now - begin) as f64 / 1000.0 * rate;
    assert!((3.0..5.6).contains(&requests), "{requests}");
}

#[test]
fn a_rendered_page_with_fewer_requests_than_admitted_gives_the_rest_of_its_gap_back() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let begin = crawl.now;
    let admit = |crawl: &mut Crawl| loop {
        match crawl.pace.admit(Scope::host("a.org"), Cost::Rendered, crawl.at()) {
            Admit::Go(permit) => return permit,
            Admit::Wait(until) => crawl.now = until.as_millis(),
            Admit::AtCapacity => panic!("full"),
        }
    };
    let rendered = |cost| Response {
        cost: Some(cost),
        renders: true,
        ..Response::new(Signal::Content, FETCHER)
    };
    let permit = admit(&mut crawl);
    crawl.now += 1500;
    assert_eq!(crawl.respond(permit, rendered(4)), ResponseEffect::Nothing);
    let permit = admit(&mut crawl);
    let waited = crawl.now - begin;
    assert!((1700..=2700).contains(&waited), "four requests at two a second, not twelve: {waited}");
    // A page that takes longer than the gap of its requests frees the next one at once, and no more
    // than that.
    crawl.now += 4000;
    assert_eq!(crawl.respond(permit, rendered(4)), ResponseEffect::Nothing);
    let ended = crawl.now;
    let _permit = admit(&mut crawl);
    assert_eq!(crawl.now, ended);
    let _permit = admit(&mut crawl);
    assert!(crawl.now - ended >= 900, "{}", crawl.now - ended);
}

#[test]
fn a_host_whose_pages_are_rendered_doubles_in_ten_seconds_too() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let begin = crawl.now;
    while crawl.now < begin + 30_500 {
        match crawl.pace.admit(Scope::host("a.org"), Cost::Rendered, crawl.at()) {
            Admit::Go(permit) => {
                crawl.now += 100;
                let response = Response {
                    cost: Some(4),
                    renders: true,
                    ..Response::new(Signal::Content, FETCHER)
                };
                assert_eq!(crawl.respond(permit, response), ResponseEffect::Nothing);
            }
            Admit::Wait(until) => crawl.now = until.as_millis(),
            Admit::AtCapacity => panic!("full"),
        }
    }
    let rate = crawl.explain("a.org").rate;
    assert!((11.0..17.0).contains(&rate), "{rate}");
}
