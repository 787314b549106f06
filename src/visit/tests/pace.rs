//! The visit and its host's pace: when it waits, what it tells the pace, what it gives back, and that holds are the host's pauses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use url::Url;

use crate::selector::{Sink, SinkError};
use crate::visit::*;
use fetchwise_pace::{Pace, PaceMode, PaceSettings};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::fetch_result::{FetchResult, Block, Outcome};
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::time::Clock;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

#[derive(Clone, Default)]
struct Kept {
    attempts: Arc<Mutex<Vec<Attempt>>>,
    hosts: Arc<Mutex<Vec<Option<Timestamp>>>>,
}

impl Sink for Kept {
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
    kept: Kept,
}

type Own = Visit<Arc<Selector>, Url>;

impl World {
    fn new(settings: PaceSettings) -> Self {
        let (clock, kept) = (Arc::new(Clock::fixed(BEGIN)), Kept::default());
        let builder = Selector::builder().around(BEGIN).clock(Arc::clone(&clock)).sink(kept.clone());
        let builder =
            ["direct_access", "playwright"].into_iter().fold(builder, |b, n| b.fetcher(FetcherSpec::by_name(n)));
        Self { selector: Arc::new(builder.pace(Pace::new(settings)).build().unwrap()), clock, kept }
    }

    /// At one request a second, of which `n` have been answered well.
    fn known(n: u32) -> Self {
        let world = Self::new(PaceSettings { mode: PaceMode::Fixed, start: 1.0, ..PaceSettings::default() });
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
        assert!(until > self.clock.now(), "nobody waits for what is over");
        self.clock.set(until);
    }

    /// Its next fetch, whatever has to be waited for.
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

fn wall() -> FetchResult {
    FetchResult::from(Outcome::Blocked(Block::challenge())).with_status(403)
}

fn waits(step: Step<Arc<Selector>>) -> (Why, Timestamp) {
    match step {
        Step::Wait(wait) => (wait.why(), wait.until()),
        other => panic!("not a wait: {other:?}"),
    }
}

#[test]
fn requests_of_a_host_go_out_evenly_and_others_do_not_wait_for_it() {
    let world = World::known(8);
    let (mut a, mut b) = (world.visit("/a"), world.visit("/b"));
    let first = world.fetch(&mut a);
    let (why, until) = waits(b.next());
    assert_eq!(why, Why::Pace);
    assert!((900..=1100).contains(&until.since(world.clock.now()).as_millis()), "one a second");
    a.report(first, Outcome::Content);
    assert_eq!(waits(b.next()), (Why::Pace, until), "an answer does not make the next one earlier");
    let other = Url::parse("https://f.org/").unwrap();
    assert!(matches!(Visit::new(Arc::clone(&world.selector), other).unwrap().next(), Step::Fetch(_)));
    world.clock.set(until);
    assert!(matches!(b.next(), Step::Fetch(_)));
}

#[test]
fn a_dropped_fetch_gives_its_place_back_and_a_retry_takes_one_of_its_own() {
    let world = World::known(8);
    let mut a = world.visit("/a");
    let first = world.fetch(&mut a);
    assert_eq!(world.selector.pace().unwrap().explain("e.org", world.clock.now()).unwrap().in_flight, 1);
    drop(first);
    assert_eq!(world.selector.pace().unwrap().explain("e.org", world.clock.now()).unwrap().in_flight, 0);
    let second = world.fetch(&mut a);
    a.report(second, Outcome::Network);
    assert_eq!(waits(a.next()).0, Why::Pace, "the retry waits for its turn");
    let retry = world.fetch(&mut a);
    a.report(retry, Outcome::Content);
    assert!(matches!(a.next(), Step::End(end) if end.is_delivered()));
    assert_eq!(world.kept.attempts.lock().unwrap().len(), 10);
}

#[test]
fn a_fetcher_that_is_not_to_be_had_leaves_the_next_one_its_turn() {
    let world = World::new(PaceSettings::default());
    let mut visit = world.visit("/a").prefer("playwright").unwrap();
    let Step::Fetch(fetch) = visit.next() else { panic!("the first request of a host goes out at once") };
    assert_eq!(fetch.fetcher(), "playwright");
    visit.unavailable(fetch, "its program is not there");
    let Step::Fetch(fetch) = visit.next() else { panic!("nobody was asked, so there is nothing to wait for") };
    assert_eq!(fetch.fetcher(), "direct_access");
    visit.report(fetch, Outcome::Content);
    assert!(matches!(visit.next(), Step::End(end) if end.is_delivered()));
}

#[test]
fn a_limit_holds_the_host_ends_the_link_and_is_held_against_nobody() {
    let world = World::known(8);
    let before = world.selector.link_state("https://e.org/a");
    let end = world.run("/a", limited(Some(60)));
    assert_eq!(end.how, Ended::Failed(ErrorType::Known(ErrorKind::RateLimited)));
    assert!(end.is_banned && end.requests == 1);
    let until = end.paused_until.unwrap();
    assert_eq!(until.since(world.clock.now()).as_secs(), 61, "Retry-After, and a second");
    assert_eq!(world.selector.host_pause("e.org"), Some(until), "a hold is the host's pause");
    assert_eq!(world.kept.hosts.lock().unwrap().last(), Some(&Some(until)), "and is in the log");
    let attempt = world.kept.attempts.lock().unwrap().last().unwrap().clone();
    assert_eq!((attempt.weight, attempt.is_banned), (0.0, true));
    assert_eq!(world.selector.link_state("https://e.org/a").risk_level, before.risk_level);
    // Others wait for the end of the hold, and then for the one that tries the host out.
    let (mut b, mut c) = (world.visit("/b"), world.visit("/c"));
    assert_eq!(waits(b.next()), (Why::Pace, until));
    world.clock.set(until);
    let trial = world.fetch(&mut b);
    assert_eq!(waits(c.next()).0, Why::Trial);
    b.report(trial, Outcome::Content);
    assert_eq!(world.selector.host_pause("e.org"), None);
    assert!(world.run("/c", Outcome::Content).is_delivered());
}

#[test]
fn nobody_is_turned_away_by_a_trial_that_ends_meanwhile() {
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
                        Step::Wait(wait) if wait.why() == Why::Trial => {}
                        step => return matches!(step, Step::End(_)),
                    }
                }
            });
            b.report(trial, Outcome::Content);
            assert!(!other.join().unwrap(), "the host is open");
        });
    }
}

#[test]
fn requests_that_were_under_way_at_a_limit_are_part_of_it() {
    let world = World::new(PaceSettings { mode: PaceMode::Fixed, start: 20.0, ..PaceSettings::default() });
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
        assert_eq!(end.how, Ended::Failed(ErrorType::Known(ErrorKind::RateLimited)));
        assert_eq!(end.paused_until, Some(until));
    }
    assert_eq!(world.kept.hosts.lock().unwrap().len(), 1, "one event, one record");
}

/// A host that delivers at its first pace, and a visit of it that has just met a wall.
fn walled() -> (World, Own) {
    let world = World::new(PaceSettings::default());
    for page in 0..20 {
        world.run(&format!("/known/{page}"), Outcome::Content);
    }
    let mut walled = world.visit("/walled");
    let fetch = world.fetch(&mut walled);
    walled.report(fetch, wall());
    assert_eq!(waits(walled.next()).0, Why::Doubt);
    assert_eq!(world.kept.attempts.lock().unwrap().last().unwrap().weight, 0.0);
    (world, walled)
}

#[test]
fn a_wall_that_another_url_does_not_meet_is_the_pages() {
    let (world, mut walled) = walled();
    assert!(world.run("/other", Outcome::Content).is_delivered());
    let next = world.fetch(&mut walled);
    assert_eq!(next.fetcher(), "playwright");
}

#[test]
fn a_wall_that_another_url_meets_too_is_the_paces_and_ends_both() {
    let (world, mut walled) = walled();
    let limited = Ended::Failed(ErrorType::Known(ErrorKind::RateLimited));
    assert_eq!(world.run("/other", wall()).how, limited);
    let Step::End(end) = walled.next() else { panic!("its doubt is settled") };
    assert_eq!((end.how, end.paused_until), (limited, world.selector.host_pause("e.org")));
    let left = world.selector.host_pause("e.org").unwrap().since(world.clock.now());
    assert!(left > Duration::from_secs(60), "{left:?}");
}

#[test]
fn a_doubt_that_nobody_settles_ends_by_itself() {
    let (world, mut walled) = walled();
    world.clock.set(waits(walled.next()).1);
    assert_eq!(world.fetch(&mut walled).fetcher(), "playwright");
}

#[test]
fn whoever_does_not_wait_gets_the_time_back_and_leaves_nothing_behind() {
    let world = World::known(8);
    let first = world.fetch(&mut world.visit("/a"));
    let mut b = world.visit("/b");
    let Step::Wait(wait) = b.next() else { panic!("the host has no place") };
    let end = b.give_up(&wait);
    assert_eq!((end.how.clone(), end.requests), (Ended::Paused { until: wait.until(), whom: Whom::Pace }, 0));
    assert!(matches!(b.next(), Step::End(again) if again == end));
    assert_eq!(world.kept.attempts.lock().unwrap().len(), 8);
    drop(first);
}

#[test]
fn without_a_pace_nothing_waits_and_a_limit_is_a_block_as_ever() {
    for mode in [None, Some(PaceMode::Off)] {
        let clock = Arc::new(Clock::fixed(BEGIN));
        let mut builder = Selector::builder().around(BEGIN).clock(clock).fetcher(FetcherSpec::by_name("direct_access"));
        if let Some(mode) = mode {
            builder = builder.pace(Pace::new(PaceSettings { mode, ..PaceSettings::default() }));
        }
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
        assert_eq!(end.how, Ended::Failed(ErrorType::Known(ErrorKind::Blocked403)));
    }
}

#[test]
fn a_wall_for_one_fetcher_only_counts_against_it_from_the_second_blocked_trial_on() {
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
                Step::Fetch(fetch) if fetch.fetcher() == "playwright" => visit.report(fetch, Outcome::Content),
                Step::Fetch(fetch) => visit.report(fetch, wall()),
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
            let hold = world.selector.host_pause("e.org").filter(|until| *until > world.clock.now());
            if hold.is_some() && holds.last() != Some(&hold) {
                holds.push(hold);
            }
        }
        world.clock.set(earliest.max(world.clock.now()));
    }
    assert!(is_past && holds.len() <= 4, "{holds:?}");
}
