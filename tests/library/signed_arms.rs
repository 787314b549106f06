//! Fetchers that sign: their unsigned twins, hosts that refuse them, and registrations at vendors.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::backoff::LEFT_FOR;
use fetchwise::decision::Source;
use fetchwise::fetch_result::{Block, FetchResult, Outcome};
use fetchwise::heuristic::{ASKS_SIGNATURE, CHARGES, Heuristic};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::Header;
use fetchwise::selector::{
    AfterRefusal, SelectContext, Selector, SelectorBuilder, Sink, SinkError,
};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{Step, VisitOutcome};
use url::Url;

const LEARNED: [&str; 4] = ["direct_signed", "direct_access", "playwright", "playwright_stealth"];
const ALWAYS: [&str; 2] = ["direct_signed", "playwright"];

fn start() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000)
}

fn day(number: i64) -> Timestamp {
    Timestamp::from_millis(start().as_millis() + number * 86_400_000)
}

fn selector(names: &[&str], after: AfterRefusal) -> (Arc<Clock>, Selector) {
    let clock = Arc::new(Clock::fixed(start()));
    let builder = names.iter().fold(Selector::builder().without_pace(), |builder, name| {
        builder.fetcher(FetcherSpec::by_name(name))
    });
    let builder =
        builder.after_refusal(after).around(start()).clock(Arc::clone(&clock)).exact_estimates();
    (clock, builder.build().unwrap())
}

fn url(host: &str, number: u32) -> Url {
    format!("https://{host}/{number}").parse().unwrap()
}

/// Drives a visit, and returns the fetchers of its requests with its end.
fn visit(
    selector: &Selector,
    url: &Url,
    answer: impl Fn(&str) -> FetchResult,
) -> (Vec<String>, VisitOutcome) {
    let mut visit = selector.visit(url).unwrap();
    let mut requests = Vec::new();
    loop {
        match visit.next() {
            Step::Fetch(fetch) => {
                requests.push(fetch.fetcher().to_owned());
                let answer = answer(fetch.fetcher());
                visit.report(fetch, answer);
            }
            Step::End(end) => return (requests, end.how),
            step => panic!("{step:?}"),
        }
    }
}

fn block(vendor: &str) -> FetchResult {
    let mut block =
        FetchResult::from(Outcome::Blocked(Block::refusal().by(vendor))).with_status(403);
    block.heuristics.push(Heuristic::flag(format!("block_{vendor}")));
    block
}

/// A site that blocks everybody but stealth.
fn refuse_all(fetcher: &str) -> FetchResult {
    if fetcher == "playwright_stealth" { Outcome::Content.into() } else { block("stony") }
}

fn record(
    selector: &Selector,
    url: &Url,
    fetcher: &str,
    times: u32,
    result: Result<(), ErrorKind>,
) {
    for _ in 0..times {
        let mut attempt = Attempt::new(url, fetcher, selector.now()).unwrap();
        match result {
            Ok(()) => attempt = attempt.delivered(),
            Err(kind) => {
                attempt.is_banned = kind.is_banned();
                attempt.error_type = Some(fetchwise::attempt::ErrorType::Known(kind));
            }
        }
        selector.record(attempt, selector.now()).unwrap();
    }
}

fn first(selector: &Selector, url: &Url) -> (String, Source) {
    let context = SelectContext::first_attempt(selector.now());
    let selection = selector.select(url, &context).unwrap().selected().unwrap();
    (selector.fetcher_name(selection.fetcher).to_owned(), selection.source)
}

#[test]
fn a_signed_fetcher_comes_first_at_a_tie_and_probes() {
    let (_, selector) = selector(&LEARNED, AfterRefusal::Leave);
    let unknown = first(&selector, &url("new.example", 1));
    assert_eq!(unknown, ("direct_signed".to_owned(), Source::Probe));
    record(&selector, &url("open.example", 1), "direct_access", 8, Ok(()));
    assert_eq!(
        first(&selector, &url("open.example", 2)),
        ("direct_signed".to_owned(), Source::Learned)
    );
}

#[test]
fn a_twins_other_failures_count_for_the_signed_fetcher_and_its_blocks_do_not() {
    for names in [&LEARNED[..], &ALWAYS] {
        let (_, selector) = selector(names, AfterRefusal::Leave);
        let chance = |host: &str, fetcher: &str| {
            let explained =
                selector.explain(&url(host, 99), &SelectContext::first_attempt(start())).unwrap();
            explained.candidates.iter().find(|c| c.fetcher == fetcher).unwrap().success
        };
        record(&selector, &url("other.example", 1), "direct_access", 30, Ok(()));
        record(&selector, &url("shell.example", 1), "direct_access", 8, Err(ErrorKind::WrongTool));
        record(
            &selector,
            &url("blocks.example", 1),
            "direct_access",
            8,
            Err(ErrorKind::Blocked403),
        );
        let (shell, blocks) =
            (chance("shell.example", "direct_signed"), chance("blocks.example", "direct_signed"));
        assert!(shell < 0.3 && blocks > 0.5, "{names:?}: {shell} {blocks}");
        if names == LEARNED {
            assert!(chance("blocks.example", "direct_access") < 0.3);
        }
        // Its own evidence replaces the twin's.
        record(
            &selector,
            &url("blocks.example", 1),
            "direct_signed",
            8,
            Err(ErrorKind::Blocked403),
        );
        assert!(chance("blocks.example", "direct_signed") < 0.3);
    }
}

#[test]
fn a_host_that_blocks_signed_requests_is_left_without_an_undeclared_one() {
    let (clock, selector) = selector(&LEARNED, AfterRefusal::Leave);
    let mut requests = Vec::new();
    let mut left = 0;
    for number in 0..100 {
        let (made, how) = visit(&selector, &url("refuses.example", number), refuse_all);
        requests.extend(made);
        if matches!(&how, VisitOutcome::Failed(error) if error.kind() == Some(ErrorKind::LeftByPolicy))
        {
            left += 1;
        }
    }
    assert!((2..=10).contains(&requests.len()), "{requests:?}");
    assert!(requests.iter().all(|fetcher| fetcher.starts_with("direct")), "{requests:?}");
    assert!(left >= 97, "{left}");
    let link = selector.link_state(url("refuses.example", 50).as_str());
    assert_eq!((link.paused_until, link.risk_level), (Some(start().saturating_add(LEFT_FOR)), 0));
    // One try a day, still declared.
    clock.set(day(2));
    let (made, _) = visit(&selector, &url("refuses.example", 200), refuse_all);
    assert!((1..=2).contains(&made.len()) && made[0] == "direct_signed", "{made:?}");
    // Thirty days after its last refusal the host is like any other.
    clock.set(day(40));
    let (made, _) = visit(&selector, &url("refuses.example", 300), refuse_all);
    assert!(!made.is_empty());
    // Other hosts are not affected, and with `escalate` none is left.
    clock.set(start());
    let (clock, escalates) = self::selector(&LEARNED, AfterRefusal::Escalate);
    clock.set(day(1));
    let delivered = (0..20).filter(|number| {
        let (_, how) = visit(&escalates, &url("refuses.example", *number), refuse_all);
        how == VisitOutcome::Delivered
    });
    assert!(delivered.count() >= 15);
}

#[test]
fn a_site_that_admits_signed_requests_now_and_then_is_not_left() {
    let (clock, selector) = selector(&LEARNED, AfterRefusal::Leave);
    let page = url("admits.example", 0);
    record(&selector, &page, "direct_signed", 1, Ok(()));
    clock.set(day(1));
    record(&selector, &page, "direct_signed", 2, Err(ErrorKind::Blocked403));
    let (made, how) = visit(&selector, &url("admits.example", 1), refuse_all);
    assert!(
        how == VisitOutcome::Delivered && made.last().unwrap() == "playwright_stealth",
        "{made:?}"
    );
    // A success of long ago does not count.
    clock.set(day(50));
    record(&selector, &page, "direct_signed", 2, Err(ErrorKind::Blocked403));
    let (made, how) = visit(&selector, &url("admits.example", 2), refuse_all);
    assert!(
        matches!(how, VisitOutcome::Failed(_)) && !made.contains(&"playwright_stealth".to_owned()),
        "{made:?}"
    );
}

#[test]
fn with_always_a_site_that_refuses_is_left_after_a_few_requests() {
    let (_, selector) = selector(&ALWAYS, AfterRefusal::Leave);
    let visits: Vec<_> = (0..30)
        .map(|number| visit(&selector, &url("refuses.example", number), refuse_all))
        .collect();
    let requests: usize = visits.iter().map(|(made, _)| made.len()).sum();
    assert!(requests <= 16, "{requests}");
    let (_, last) = visits.last().unwrap();
    assert!(
        matches!(last, VisitOutcome::Failed(error) if error.kind() == Some(ErrorKind::LeftByPolicy)),
        "{last:?}"
    );
}

#[test]
fn after_a_registration_signed_requests_are_tried_again_behind_that_vendor() {
    let (clock, selector) = selector(&LEARNED, AfterRefusal::Escalate);
    (0..60).for_each(|host| {
        record(&selector, &url(&format!("open{host}.example"), 1), "direct_signed", 5, Ok(()))
    });
    for host in 0..40 {
        for number in 0..3 {
            let vendor = if host % 2 == 0 { "stony" } else { "flinty" };
            let page = url(&format!("h{host}.example"), number);
            visit(&selector, &page, |fetcher| {
                if fetcher == "playwright_stealth" {
                    Outcome::Content.into()
                } else {
                    block(vendor)
                }
            });
        }
    }
    clock.set(Timestamp::from_millis(
        start().as_millis() + Duration::from_secs(3600).as_millis() as i64,
    ));
    let takes = |host: u32| first(&selector, &url(&format!("h{host}.example"), 50)).0;
    assert_eq!(
        (takes(0), takes(1)),
        ("playwright_stealth".to_owned(), "playwright_stealth".to_owned())
    );
    assert!(selector.register_at_vendor("stony", selector.now()));
    assert_eq!((takes(0), takes(1)), ("direct_signed".to_owned(), "playwright_stealth".to_owned()));
    // What signed requests meet from then on counts.
    clock.set(day(1));
    for host in (0..40).step_by(2) {
        visit(&selector, &url(&format!("h{host}.example"), 60), |fetcher| {
            if fetcher == "direct_signed" { block("stony") } else { Outcome::Content.into() }
        });
    }
    clock.set(day(2));
    assert_ne!(takes(0), "direct_signed");
}

#[test]
fn the_vendor_of_a_hosts_blocks_is_known() {
    let (_, selector) = selector(&LEARNED, AfterRefusal::Leave);
    let answer = |_: &str| block("cloudflare");
    assert_eq!(selector.block_vendor(&url("shop.example", 1)), None);
    visit(&selector, &url("shop.example", 1), answer);
    assert_eq!(selector.block_vendor(&url("shop.example", 2)).as_deref(), Some("cloudflare"));
    visit(&selector, &url("open.example", 1), |_| Outcome::Content.into());
    assert_eq!(selector.block_vendor(&url("open.example", 2)), None);
}

/// Returns a block of `vendor` by a site that asks for a signature.
fn block_that_asks(vendor: &str) -> FetchResult {
    let mut block = block(vendor);
    block.headers.push(Header::new("Accept-Signature", "sig1=(\"@authority\")"));
    block
}

/// Behind one vendor, half of the hosts admit signed requests and ask for a signature. That tells
/// them apart once enough hosts have shown it.
#[test]
fn a_host_that_asks_for_a_signature_gets_one_where_others_that_asked_admitted_it() {
    const DAYS: i64 = 14;
    let (clock, selector) =
        selector(&["browser_signed", "playwright", "playwright_stealth"], AfterRefusal::Escalate);
    let fetchers = |page: &Url, first: &str, admits: bool| {
        let mut visit = selector.visit(page).unwrap().prefer(first).unwrap();
        let mut requests = Vec::new();
        while let Step::Fetch(fetch) = visit.next() {
            let answer = match fetch.fetcher() {
                "playwright_stealth" => Outcome::Content.into(),
                "browser_signed" if admits => Outcome::Content.into(),
                _ if admits => block_that_asks("stony"),
                _ => block("stony"),
            };
            requests.push(fetch.fetcher().to_owned());
            visit.report(fetch, answer);
        }
        requests
    };
    for number in 0..DAYS {
        clock.set(day(number));
        for host in 0..320 {
            for (page, first) in (0..).zip(["playwright", "browser_signed"]) {
                let page = url(&format!("h{host}.example"), number as u32 * 10 + page);
                fetchers(&page, first, host % 2 == 0);
            }
        }
    }
    clock.set(day(DAYS));
    let second = |host, admits| fetchers(&url(host, 1), "playwright", admits)[1].clone();
    assert_eq!(second("asks.example", true), "browser_signed");
    assert_eq!(second("does-not-ask.example", false), "playwright_stealth");
}

/// Keeps the heuristics of recorded attempts.
#[derive(Clone, Default)]
struct RecordedHeuristics(Arc<Mutex<Vec<Vec<Heuristic>>>>);

impl Sink for RecordedHeuristics {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.0
            .lock()
            .unwrap()
            .push(attempt.heuristics.iter().map(|tag| tag.heuristic.clone()).collect());
        Ok(())
    }
}

#[test]
fn attempts_of_a_crawler_that_signs_say_that_the_site_asks_for_a_signature_or_a_price() {
    for (names, signs) in [(&LEARNED[..], true), (&["direct_access", "playwright"][..], false)] {
        let sink = RecordedHeuristics::default();
        let builder = Selector::builder()
            .without_pace()
            .sink(sink.clone())
            .around(start())
            .clock(Arc::new(Clock::fixed(start())));
        let specs = names.iter().map(|name| FetcherSpec::by_name(name));
        let selector = specs.fold(builder, SelectorBuilder::fetcher).build().unwrap();
        visit(&selector, &url("asks.example", 1), |_| block_that_asks("stony"));
        visit(&selector, &url("charges.example", 1), |_| {
            FetchResult::from(Outcome::PaymentRequired).with_status(402)
        });
        visit(&selector, &url("open.example", 1), |_| Outcome::Content.into());
        let recorded = sink.0.lock().unwrap();
        for (kind, host) in [(ASKS_SIGNATURE, "asks.example"), (CHARGES, "charges.example")] {
            for of_attempt in recorded.iter() {
                let is_there = of_attempt.contains(&Heuristic::new("domain", host));
                assert_eq!(
                    of_attempt.contains(&Heuristic::flag(kind)),
                    signs && is_there,
                    "{names:?}: {of_attempt:?}"
                );
            }
        }
        assert!(recorded.len() >= 3);
    }
}
