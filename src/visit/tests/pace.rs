//! The visit and its host's pace: its waits, its reports to the pace, its returned permits, and
//! holds as pauses of the host.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use url::Url;

use crate::selector::{Sink, SinkError, VisitSettings};
use crate::visit::*;
use fetchwise_pace::{Pace, PaceMode, PaceSettings};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::fetch_result::{Block, FetchResult, Outcome};
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::time::Clock;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

#[derive(Clone, Default)]
struct RecordingSink {
    attempts: Arc<Mutex<Vec<Attempt>>>,
    hosts: Arc<Mutex<Vec<Option<Timestamp>>>>,
}

impl Sink for RecordingSink {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.attempts.lock().unwrap().push(attempt.clone());
        Ok(())
    }

    fn host_pause(&self, _: &str, until: Option<Timestamp>, _: Timestamp) {
        self.hosts.lock().unwrap().push(until);
    }
}

struct World {
    selector: Arc<Selector>,
    clock: Arc<Clock>,
    sink: RecordingSink,
}

type Own = Visit<Arc<Selector>, Url>;

impl World {
    fn new(settings: PaceSettings) -> Self {
        let (clock, sink) = (Arc::new(Clock::fixed(BEGIN)), RecordingSink::default());
        let visits = VisitSettings { max_pace_wait: Duration::MAX, ..VisitSettings::default() };
        let builder = Selector::builder()
            .around(BEGIN)
            .clock(Arc::clone(&clock))
            .sink(sink.clone())
            .visits(visits);
        let builder = ["direct_access", "playwright"]
            .into_iter()
            .fold(builder, |b, n| b.fetcher(FetcherSpec::by_name(n)));
        Self { selector: Arc::new(builder.pace(Pace::new(settings)).build().unwrap()), clock, sink }
    }

    /// Returns a world at one request per second, with `n` good responses.
    fn known(n: u32) -> Self {
        let world = Self::new(PaceSettings {
            mode: PaceMode::Fixed,
            initial_rate: 1.0,
            ..PaceSettings::default()
        });
        for page in 0..n {
            assert!(world.run(&format!("/known/{page}"), Outcome::Content).is_delivered());
        }
        world
    }

    fn visit(&self, path: &str) -> Own {
        let url = Url::parse("https://e.org/").unwrap().join(path).unwrap();
        Visit::new(Arc::clone(&self.selector), url).unwrap()
    }

    fn wait_until(&self, until: Timestamp) {
        assert!(until > self.clock.now(), "no wait ends in the past");
        self.clock.set(until);
    }

    /// Returns its next fetch, after all waits.
    fn fetch(&self, visit: &mut Own) -> Fetch<Arc<Selector>> {
        loop {
            match visit.next() {
                Step::Fetch(fetch) => return fetch,
                Step::Wait(wait) => self.wait_until(wait.until()),
                Step::End(end) => panic!("an end: {end:?}"),
            }
        }
    }

    fn run(&self, path: &str, answer: impl Into<FetchResult>) -> End {
        let (mut visit, answer) = (self.visit(path), answer.into());
        loop {
            match visit.next() {
                Step::Fetch(fetch) => visit.report(fetch, answer.clone()),
                Step::Wait(wait) => self.wait_until(wait.until()),
                Step::End(end) => return end,
            }
        }
    }
}

fn limited(seconds: Option<u64>) -> FetchResult {
    let answer = FetchResult::from(Outcome::Blocked(Block::refusal())).with_status(429);
    seconds.map_or(answer.clone(), |seconds| answer.with_retry_after(Duration::from_secs(seconds)))
}

fn block() -> FetchResult {
    FetchResult::from(Outcome::Blocked(Block::challenge())).with_status(403)
}

fn waits(step: Step<Arc<Selector>>) -> (WaitReason, Timestamp) {
    match step {
        Step::Wait(wait) => (wait.reason(), wait.until()),
        other => panic!("not a wait: {other:?}"),
    }
}

#[test]
fn requests_of_a_host_go_out_evenly_and_others_do_not_wait_for_it() {
    let world = World::known(8);
    let (mut a, mut b) = (world.visit("/a"), world.visit("/b"));
    let first = world.fetch(&mut a);
    let (why, until) = waits(b.next());
    assert_eq!(why, WaitReason::Pace);
    assert!((900..=1100).contains(&until.since(world.clock.now()).as_millis()), "one a second");
    a.report(first, Outcome::Content);
    assert_eq!(
        waits(b.next()),
        (WaitReason::Pace, until),
        "a response does not make the next request earlier"
    );
    let other = Url::parse("https://f.org/").unwrap();
    assert!(matches!(
        Visit::new(Arc::clone(&world.selector), other).unwrap().next(),
        Step::Fetch(_)
    ));
    world.clock.set(until);
    assert!(matches!(b.next(), Step::Fetch(_)));
}

/// A crawl lost pages of a flaky host: the error that set off a hold was retried after the hold,
/// when another visit had taken the host's trial. For everybody else a host on trial is paused, so
/// the retry ended as a failure.
#[test]
fn a_retry_after_a_hold_waits_for_the_trial_of_another_visit() {
    let world = World::known(8);
    let (mut held, mut n) = (None, 0);
    while world.selector.host_pause("e.org").is_none_or(|until| until <= world.clock.now()) {
        n += 1;
        assert!(n < 10, "errors in a row hold the host");
        let mut visit = world.visit(&format!("/held/{n}"));
        let fetch = world.fetch(&mut visit);
        visit.report(fetch, FetchResult::from(Outcome::Http(503)).with_status(503));
        // The one that begins the hold is part of the limit; the one before it is a failure that
        // may pass.
        if world.selector.host_pause("e.org").is_none() {
            held = Some(visit);
        }
    }
    let mut held = held.expect("a single error holds nothing");
    let (why, until) = waits(held.next());
    assert_eq!(why, WaitReason::Pace);
    world.clock.set(until);
    let mut other = world.visit("/other");
    let trial = world.fetch(&mut other);
    assert_eq!(waits(held.next()).0, WaitReason::Trial);
    other.report(trial, Outcome::Content);
    let retry = world.fetch(&mut held);
    held.report(retry, Outcome::Content);
    assert!(matches!(held.next(), Step::End(end) if end.is_delivered()));
}

#[test]
fn a_page_of_a_host_with_errors_at_any_rate_is_retried_more_than_once() {
    let world = World::new(PaceSettings::default());
    let (error, mut pages) = (|| FetchResult::from(Outcome::Http(503)).with_status(503), 0);
    let noise = || world.selector.pace().unwrap().error_noise("e.org");
    // Four errors in a row before anything is known of the host: one retry.
    let failed = world.run("/first", error());
    assert!(!failed.is_delivered() && noise().is_none());
    assert_eq!(
        world.sink.attempts.lock().unwrap().iter().filter(|a| a.fetcher == "direct_access").count(),
        2
    );
    let mut requests = 0_u32;
    let mut fails = || {
        requests += 1;
        requests.wrapping_mul(2_654_435_761) >> 30 == 0
    };
    while noise().is_none() {
        pages += 1;
        assert!(pages < 4_000, "a quarter of errors at any rate is found");
        let mut visit = world.visit(&format!("/{pages}"));
        loop {
            match visit.next() {
                Step::Fetch(fetch) if fails() => visit.report(fetch, error()),
                Step::Fetch(fetch) => visit.report(fetch, Outcome::Content),
                Step::Wait(wait) => world.wait_until(wait.until()),
                Step::End(_) => break,
            }
        }
    }
    let mut visit = world.visit("/last");
    for _ in 0..3 {
        let fetch = world.fetch(&mut visit);
        visit.report(fetch, error());
    }
    let fetch = world.fetch(&mut visit);
    visit.report(fetch, Outcome::Content);
    assert!(matches!(visit.next(), Step::End(end) if end.is_delivered()));
}

#[test]
fn a_dropped_fetch_returns_its_permit_and_a_retry_takes_its_own() {
    let world = World::known(8);
    let mut a = world.visit("/a");
    let first = world.fetch(&mut a);
    assert_eq!(
        world.selector.pace().unwrap().explain("e.org", world.clock.now()).unwrap().in_flight,
        1
    );
    drop(first);
    assert_eq!(
        world.selector.pace().unwrap().explain("e.org", world.clock.now()).unwrap().in_flight,
        0
    );
    let second = world.fetch(&mut a);
    a.report(second, Outcome::Network);
    assert_eq!(waits(a.next()).0, WaitReason::Pace, "the retry waits for its turn");
    let retry = world.fetch(&mut a);
    a.report(retry, Outcome::Content);
    assert!(matches!(a.next(), Step::End(end) if end.is_delivered()));
    assert_eq!(world.sink.attempts.lock().unwrap().len(), 10);
}

#[test]
fn an_unavailable_fetcher_leaves_its_permit_to_the_next_one() {
    let world = World::new(PaceSettings::default());
    let mut visit = world.visit("/a").prefer("playwright").unwrap();
    let Step::Fetch(fetch) = visit.next() else {
        panic!("the first request of a host goes out at once")
    };
    assert_eq!(fetch.fetcher(), "playwright");
    visit.unavailable(fetch, "its program is not there");
    let Step::Fetch(fetch) = visit.next() else {
        panic!("no request was made, so there is nothing to wait for")
    };
    assert_eq!(fetch.fetcher(), "direct_access");
    visit.report(fetch, Outcome::Content);
    assert!(matches!(visit.next(), Step::End(end) if end.is_delivered()));
}

#[test]
fn a_limit_holds_the_host_ends_the_link_and_is_not_attributed_to_a_fetcher() {
    let world = World::known(8);
    let before = world.selector.link_state("https://e.org/a");
    let end = world.run("/a", limited(Some(60)));
    assert_eq!(end.how, VisitOutcome::Failed(ErrorType::Known(ErrorKind::RateLimited)));
    assert!(end.is_banned && end.requests == 1);
    let until = end.paused_until.unwrap();
    assert_eq!(until.since(world.clock.now()).as_secs(), 61, "Retry-After, and a second");
    assert_eq!(world.selector.host_pause("e.org"), Some(until), "a hold is the host's pause");
    assert_eq!(world.sink.hosts.lock().unwrap().last(), Some(&Some(until)), "and is in the log");
    let attempt = world.sink.attempts.lock().unwrap().last().unwrap().clone();
    assert_eq!((attempt.weight, attempt.is_banned), (0.0, true));
    assert_eq!(world.selector.link_state("https://e.org/a").risk_level, before.risk_level);
    // Others wait for the end of the hold, and then for the visit that tries out the host.
    let (mut b, mut c) = (world.visit("/b"), world.visit("/c"));
    assert_eq!(waits(b.next()), (WaitReason::Pace, until));
    world.clock.set(until);
    let trial = world.fetch(&mut b);
    assert_eq!(waits(c.next()).0, WaitReason::Trial);
    b.report(trial, Outcome::Content);
    assert_eq!(world.selector.host_pause("e.org"), None);
    assert!(world.run("/c", Outcome::Content).is_delivered());
}

/// Returns what a visit gets while every request is answered with `refusal`: its end, and the
/// fetchers that were used.
fn refused(world: &World, path: &str, refusal: &FetchResult) -> (End, Vec<String>) {
    let (mut visit, mut used) = (world.visit(path), Vec::new());
    loop {
        match visit.next() {
            Step::Fetch(fetch) => {
                used.push(fetch.fetcher().to_owned());
                visit.report(fetch, refusal.clone());
            }
            Step::Wait(wait) => world.wait_until(wait.until()),
            Step::End(end) => return (end, used),
        }
    }
}

/// Errors, cut connections and silence of a host that had just served ended links as failures of
/// the host and counted against the fetcher, though they were its way to refuse a crawl that was
/// too fast.
#[test]
fn a_limit_ends_no_link_and_blames_no_fetcher_whatever_it_answers() {
    let refusals = [
        limited(None),
        FetchResult::from(Outcome::Http(503)).with_status(503),
        FetchResult::from(Outcome::Http(500)).with_status(500),
        FetchResult::from(Outcome::Network),
        FetchResult::from(Outcome::Truncated).with_status(200),
    ];
    for refusal in refusals {
        let world = World::known(60);
        let before = world.sink.attempts.lock().unwrap().len();
        let mut ends = Vec::new();
        while ends.len() < 8 && !ends.last().is_some_and(|end: &End| end.was_trial) {
            ends.push(refused(&world, &format!("/refused/{}", ends.len()), &refusal).0);
        }
        let is_limit =
            |end: &End| end.how == VisitOutcome::Failed(ErrorType::Known(ErrorKind::RateLimited));
        let (last, hold) = (ends.last().unwrap(), world.selector.host_pause("e.org"));
        assert!(is_limit(last) && last.was_trial, "{refusal:?}: {ends:?}");
        assert_eq!(last.paused_until, hold, "{refusal:?}");
        let attempts = world.sink.attempts.lock().unwrap()[before..].to_vec();
        assert!(attempts.iter().all(|attempt| attempt.weight == 0.0), "{refusal:?}: {attempts:#?}");
        world.clock.set(hold.unwrap());
        assert!(world.run("/after", Outcome::Content).is_delivered());
        assert!(
            !world
                .run("/missing", FetchResult::from(Outcome::Http(404)).with_status(404))
                .was_trial
        );
    }
}

/// A time that was too short made the second refused trial count against the fetcher, and the next
/// trial, which came as the ban ended, went to a browser. From then on every page was rendered.
#[test]
fn trials_that_come_too_early_count_against_no_fetcher() {
    for (said, meant) in [(Some(5), 30), (None, 200), (Some(2), 500)] {
        let world = World::known(60);
        let (begin, mut trials) = (world.clock.now(), 0);
        let mut end = world.run("/first", limited(said));
        while world.selector.host_pause("e.org").unwrap().since(begin).as_secs() < meant {
            let used;
            (end, used) = refused(&world, &format!("/trial/{trials}"), &limited(said));
            assert_eq!(
                (used.len(), &*used[0], end.was_trial),
                (1, "direct_access", true),
                "{said:?} {trials}"
            );
            trials += 1;
        }
        assert!(trials > 1 && !end.is_delivered());
        world.clock.set(world.selector.host_pause("e.org").unwrap());
        let mut visit = world.visit("/last");
        let fetch = world.fetch(&mut visit);
        assert_eq!(fetch.fetcher(), "direct_access");
        assert!(
            world.sink.attempts.lock().unwrap()[60..].iter().all(|attempt| attempt.weight == 0.0)
        );
    }
}

#[test]
fn a_host_that_never_served_is_no_limit() {
    let world = World::new(PaceSettings::default());
    for n in 0..8 {
        let (end, _) = refused(
            &world,
            &format!("/{n}"),
            &FetchResult::from(Outcome::Http(500)).with_status(500),
        );
        assert_eq!(end.how, VisitOutcome::Failed(ErrorType::Known(ErrorKind::ServerError)), "{n}");
        assert!(!end.was_trial);
    }
}

/// A page was lost to two refusals within a third of a second, though the host served others
/// between them.
#[test]
fn a_failure_of_a_host_that_served_is_retried_once_more_a_little_later() {
    let world = World::known(40);
    let failed = || FetchResult::from(Outcome::Http(500)).with_status(500);
    let mut visit = world.visit("/a");
    for _ in 0..2 {
        let fetch = world.fetch(&mut visit);
        visit.report(fetch, failed());
        assert!(world.run("/other", Outcome::Content).is_delivered());
    }
    let before = world.clock.now();
    let fetch = world.fetch(&mut visit);
    assert!(world.clock.now().since(before) >= Duration::from_secs(1));
    visit.report(fetch, failed());
    let Step::End(end) = visit.next() else { panic!("it has failed three times") };
    assert_eq!(
        (end.how, end.requests),
        (VisitOutcome::Failed(ErrorType::Known(ErrorKind::ServerError)), 3)
    );
}

/// Three blocks in a row came by chance, and the fetcher that got the other pages was left out for
/// ten minutes.
#[test]
fn pages_that_a_host_blocks_at_any_rate_exclude_no_fetcher() {
    let world = World::new(PaceSettings::default());
    let mut random = 1_u64;
    let is_open = |world: &World, path: &str| {
        let mut visit = world.visit(path);
        let fetch = world.fetch(&mut visit);
        let is_plain = fetch.fetcher() == "direct_access";
        visit.report(fetch, Outcome::Content);
        is_plain
    };
    for page in 0..1200 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let is_blocked = random >> 62 == 0;
        let mut visit = world.visit(&format!("/{page}"));
        loop {
            match visit.next() {
                Step::Fetch(fetch) if is_blocked && fetch.fetcher() == "direct_access" => {
                    visit.report(fetch, block())
                }
                Step::Fetch(fetch) => visit.report(fetch, Outcome::Content),
                Step::Wait(wait) => world.wait_until(wait.until()),
                Step::End(_) => break,
            }
        }
    }
    assert!(world.selector.pace().unwrap().page_blocks("e.org").is_some());
    for n in 0..5 {
        let mut visit = world.visit(&format!("/blocked/{n}"));
        let fetch = world.fetch(&mut visit);
        visit.report(fetch, block());
    }
    assert!(is_open(&world, "/last"));
}

#[test]
fn a_trial_that_ends_meanwhile_rejects_no_visit() {
    for _ in 0..300 {
        let world = World::known(8);
        world.run("/a", limited(Some(60)));
        world.clock.set(world.selector.host_pause("e.org").unwrap());
        let (mut b, mut c) = (world.visit("/b"), world.visit("/c"));
        let trial = world.fetch(&mut b);
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                loop {
                    match c.next() {
                        Step::Wait(wait) if wait.reason() == WaitReason::Trial => {}
                        step => return matches!(step, Step::End(_)),
                    }
                }
            });
            b.report(trial, Outcome::Content);
            assert!(!other.join().unwrap(), "the host is open");
        });
    }
}

/// While the flight of an earlier trial was about to end, the next trial had none: a link that
/// asked later took its time limit, ten minutes, for a pause of the host.
#[test]
fn a_trial_whose_predecessor_is_about_to_end_pauses_no_link_for_its_time_limit() {
    let world = World::known(8);
    world.run("/a", limited(Some(60)));
    let now = world.selector.host_pause("e.org").unwrap();
    world.clock.set(now);
    let earlier = world.selector.state().trials.join(
        "e.org",
        now,
        now.saturating_add(Duration::from_secs(9)),
    );
    let (mut b, mut c) = (world.visit("/b"), world.visit("/c"));
    let first = b.next();
    drop(earlier);
    let trial = match first {
        Step::Wait(_) => b.next(),
        step => step,
    };
    assert!(matches!(trial, Step::Fetch(_)), "{trial:?}");
    let Step::Wait(wait) = c.next() else { panic!("the trial is not over") };
    assert_eq!(wait.reason(), WaitReason::Trial);
}

#[test]
fn requests_in_flight_at_a_limit_are_part_of_it() {
    let world = World::new(PaceSettings {
        mode: PaceMode::Fixed,
        initial_rate: 20.0,
        ..PaceSettings::default()
    });
    for page in 0..3 {
        world.run(&format!("/known/{page}"), Outcome::Content);
    }
    let mut visits: Vec<Own> = (0..3).map(|n| world.visit(&format!("/{n}"))).collect();
    let fetches: Vec<_> = visits.iter_mut().map(|visit| world.fetch(visit)).collect();
    for (visit, fetch) in visits.iter_mut().zip(fetches) {
        visit.report(fetch, limited(Some(30)));
    }
    let until = world.selector.host_pause("e.org").unwrap();
    for visit in &mut visits {
        let Step::End(end) = visit.next() else { panic!("it has ended") };
        assert_eq!(end.how, VisitOutcome::Failed(ErrorType::Known(ErrorKind::RateLimited)));
        assert_eq!(end.paused_until, Some(until));
    }
    assert_eq!(world.sink.hosts.lock().unwrap().len(), 1, "one event, one record");
}

/// Returns a host that delivers at its initial pace, and a visit of it that has just been blocked.
fn visit_in_doubt() -> (World, Own) {
    let world = World::new(PaceSettings::default());
    for page in 0..40 {
        world.run(&format!("/known/{page}"), Outcome::Content);
    }
    let mut blocked = world.visit("/blocked");
    let fetch = world.fetch(&mut blocked);
    blocked.report(fetch, block());
    assert_eq!(waits(blocked.next()).0, WaitReason::Doubt);
    assert_eq!(world.sink.attempts.lock().unwrap().last().unwrap().weight, 0.0);
    (world, blocked)
}

#[test]
fn a_block_of_one_url_only_concerns_the_page() {
    let (world, mut blocked) = visit_in_doubt();
    assert!(world.run("/other", Outcome::Content).is_delivered());
    let next = world.fetch(&mut blocked);
    assert_eq!(next.fetcher(), "playwright");
}

#[test]
fn a_block_of_two_urls_concerns_the_pace_and_ends_both() {
    let (world, mut blocked) = visit_in_doubt();
    let limited = VisitOutcome::Failed(ErrorType::Known(ErrorKind::RateLimited));
    assert_eq!(world.run("/other", block()).how, limited);
    let Step::End(end) = blocked.next() else { panic!("its doubt is settled") };
    assert_eq!((end.how, end.paused_until), (limited, world.selector.host_pause("e.org")));
    let left = world.selector.host_pause("e.org").unwrap().since(world.clock.now());
    assert!(left > Duration::from_secs(60), "{left:?}");
}

#[test]
fn a_doubt_without_a_verdict_ends_by_itself() {
    let (world, mut blocked) = visit_in_doubt();
    world.clock.set(waits(blocked.next()).1);
    assert_eq!(world.fetch(&mut blocked).fetcher(), "playwright");
}

#[test]
fn a_driver_that_does_not_wait_gets_the_time_and_leaves_no_state() {
    let world = World::known(8);
    let first = world.fetch(&mut world.visit("/a"));
    let mut b = world.visit("/b");
    let Step::Wait(wait) = b.next() else { panic!("the pace admits no request") };
    let end = b.give_up(&wait);
    assert_eq!(
        (end.how.clone(), end.requests),
        (VisitOutcome::Paused { until: wait.until(), whom: WaitScope::Pace }, 0)
    );
    assert!(matches!(b.next(), Step::End(again) if again == end));
    assert_eq!(world.sink.attempts.lock().unwrap().len(), 8);
    drop(first);
}

#[test]
fn without_a_pace_nothing_waits_and_a_limit_ends_the_visit() {
    for is_set_off in [false, true] {
        let clock = Arc::new(Clock::fixed(BEGIN));
        let builder = Selector::builder()
            .around(BEGIN)
            .clock(clock)
            .fetcher(FetcherSpec::by_name("direct_access"));
        let off = PaceSettings { mode: PaceMode::Off, ..PaceSettings::default() };
        let builder =
            if is_set_off { builder.pace(Pace::new(off)) } else { builder.without_pace() };
        let selector = builder.build().unwrap();
        assert!(selector.pace().is_none());
        let url = Url::parse("https://e.org/").unwrap();
        for _ in 0..50 {
            let mut visit = selector.visit(&url).unwrap();
            let Step::Fetch(fetch) = visit.next() else { panic!("nothing waits") };
            visit.report(fetch, Outcome::Content);
        }
        let mut visit = selector.visit(&url).unwrap();
        let Step::Fetch(fetch) = visit.next() else { panic!("nothing waits") };
        visit.report(fetch, limited(None));
        let Step::End(end) = visit.next() else { panic!("it has ended") };
        assert_eq!(end.how, VisitOutcome::Failed(ErrorType::Known(ErrorKind::RateLimited)));
    }
}

#[test]
fn a_host_that_blocks_one_fetcher_for_good_is_tried_with_another() {
    let world = World::new(PaceSettings::default());
    for page in 0..20 {
        world.run(&format!("/known/{page}"), Outcome::Content);
    }
    let (mut holds, mut is_past) = (Vec::new(), false);
    let mut pages = (0..400).map(|page| world.visit(&format!("/later/{page}")));
    let mut visits: Vec<Own> = pages.by_ref().take(4).collect();
    while !is_past && holds.len() < 8 {
        let mut earliest = Timestamp::from_millis(i64::MAX);
        for visit in &mut visits {
            match visit.next() {
                Step::Fetch(fetch) if fetch.fetcher() == "playwright" => {
                    visit.report(fetch, Outcome::Content)
                }
                Step::Fetch(fetch) => visit.report(fetch, block()),
                Step::Wait(wait) => {
                    earliest = earliest.min(wait.until());
                    continue;
                }
                Step::End(end) => {
                    is_past |= end.is_delivered();
                    *visit = pages.next().expect("another page");
                }
            }
            earliest = world.clock.now();
            let hold =
                world.selector.host_pause("e.org").filter(|until| *until > world.clock.now());
            if hold.is_some() && holds.last() != Some(&hold) {
                holds.push(hold);
            }
        }
        world.clock.set(earliest.max(world.clock.now()));
    }
    assert!(is_past && holds.len() <= 4, "{holds:?}");
}

#[test]
fn a_delay_of_this_machine_is_not_the_hosts() {
    let rates = |local_ms: u64| {
        let world = World::new(PaceSettings { max_rate: 10.0, ..PaceSettings::default() });
        let page = |duration| {
            FetchResult::from(Outcome::Content).with_duration(Duration::from_millis(duration))
        };
        let rate =
            || world.selector.pace().unwrap().explain("e.org", world.clock.now()).unwrap().rate;
        (0..60).for_each(|n| drop(world.run(&format!("/quick/{n}"), page(100))));
        let before = rate();
        let late = page(400).with_local_delay(Duration::from_millis(local_ms));
        // Three at a time: a response to a lone request is that of a quiet host, however slow it
        // is.
        let mut under_way = std::collections::VecDeque::new();
        for n in 0..90 {
            let mut visit = world.visit(&format!("/late/{n}"));
            let fetch = world.fetch(&mut visit);
            under_way.push_back((visit, fetch));
            if under_way.len() > 2
                && let Some((mut visit, fetch)) = under_way.pop_front()
            {
                visit.report(fetch, late.clone());
            }
        }
        (before, rate())
    };
    let (before, after) = rates(0);
    assert!(after < before, "a slow host: {before} {after}");
    let (before, after) = rates(300);
    assert!(after >= before, "a slow machine: {before} {after}");
}

#[test]
fn a_304_is_no_latency_sample() {
    let latency_after = |outcome: Outcome| {
        let world = World::new(PaceSettings { max_rate: 10.0, ..PaceSettings::default() });
        let known = || {
            let explanation =
                world.selector.pace().unwrap().explain("e.org", world.clock.now()).unwrap();
            explanation.latency.unwrap().0
        };
        let slow = |outcome: Outcome, ms| {
            FetchResult::from(outcome).with_duration(Duration::from_millis(ms))
        };
        (0..20).for_each(|n| drop(world.run(&format!("/page/{n}"), slow(Outcome::Content, 100))));
        let before = known();
        (0..20).for_each(|n| drop(world.run(&format!("/again/{n}"), slow(outcome.clone(), 5_000))));
        (before, known())
    };
    let (before, after) = latency_after(Outcome::NotModified);
    assert_eq!(before, after);
    let (before, after) = latency_after(Outcome::Content);
    assert!(after > before, "a page is one: {before:?} {after:?}");
}

#[test]
fn rendered_pages_do_not_make_a_quick_host_look_slow() {
    let world = World::new(PaceSettings { max_rate: 10.0, ..PaceSettings::default() });
    let page = |ms| FetchResult::from(Outcome::Content).with_duration(Duration::from_millis(ms));
    let explained = || world.selector.pace().unwrap().explain("e.org", world.clock.now()).unwrap();
    (0..20).for_each(|n| drop(world.run(&format!("/plain/{n}"), page(30))));
    let before = explained();
    // Three at a time: a response to a lone request is that of a quiet host, however slow it is.
    let mut under_way = std::collections::VecDeque::new();
    for n in 0..60 {
        let mut visit = world.visit(&format!("/rendered/{n}")).prefer("playwright").unwrap();
        let fetch = world.fetch(&mut visit);
        assert_eq!(fetch.fetcher(), "playwright");
        under_way.push_back((visit, fetch));
        if under_way.len() > 2
            && let Some((mut visit, fetch)) = under_way.pop_front()
        {
            visit.report(fetch, page(900));
        }
    }
    let after = explained();
    assert_eq!(before.latency, after.latency);
    assert!(after.rate >= before.rate, "{before:?} {after:?}");
}

/// Visits that waited for the hold of their host went on waiting after an operator had ended it.
#[test]
fn the_end_of_a_hold_wakes_the_visits_that_wait_for_it() {
    let world = World::known(8);
    let end = world.run("/limited", limited(Some(600)));
    assert!(!end.is_delivered());
    let mut visit = world.visit("/a");
    let Step::Wait(mut wait) = visit.next() else { panic!("the host is held") };
    assert_eq!(wait.reason(), WaitReason::Pace);
    assert!(wait.until().since(world.clock.now()) > Duration::from_secs(60), "{wait:?}");
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut is_woken = || std::pin::pin!(wait.notified()).poll(&mut context).is_ready();
    assert!(!is_woken());
    // Another host of the same address may have the hold.
    world
        .selector
        .set_host_pause("f.org", Some(world.clock.now().saturating_add(Duration::from_secs(60))));
    assert!(!is_woken());
    assert!(world.selector.unpause_host("e.org", world.clock.now()).is_some());
    assert!(is_woken());
    drop(world.fetch(&mut visit));
}
