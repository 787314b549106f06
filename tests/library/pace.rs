//! The pace that visits keep by default: the loop of the first program in the README, with many
//! tasks, against a host that allows 60 pages in ten seconds; the longest wait; and the end of a
//! session. Time is the selector's clock almost everywhere.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use fetchwise::fetch_result::{Block, FetchResult, Outcome};
use fetchwise::pace::{Pace, PaceMode, PaceSettings};
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::{Selector, SelectorBuilder};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{End, Fetch, Step, Visit, VisitOutcome, WaitReason, WaitScope};
use url::Url;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const PAGES: usize = 200;
const TASKS: usize = 64;
/// The time of a response.
const LATENCY: Duration = Duration::from_millis(50);
/// The time after which a task asks again whether its wait is over.
const RETRY: Duration = Duration::from_millis(250);

const ALLOWED: usize = 60;
const WINDOW: Duration = Duration::from_secs(10);

/// A host that counts all requests, and refuses those beyond its limit.
#[derive(Default)]
struct LimitedHost {
    window_begins: Option<Timestamp>,
    in_window: usize,
    served: usize,
    refused: usize,
}

impl LimitedHost {
    fn answer(&mut self, now: Timestamp) -> FetchResult {
        let is_over = |begin: Timestamp| begin.saturating_add(WINDOW) <= now;
        if self.window_begins.is_none_or(is_over) {
            (self.window_begins, self.in_window) = (Some(now), 0);
        }
        self.in_window += 1;
        if self.in_window <= ALLOWED {
            self.served += 1;
            return FetchResult::from(Outcome::Content).with_status(200);
        }
        self.refused += 1;
        let end = self.window_begins.unwrap_or(now).saturating_add(WINDOW);
        FetchResult::from(Outcome::Blocked(Block::refusal()))
            .with_status(429)
            .with_retry_after(end.since(now))
    }
}

struct Task<'s> {
    visit: Option<Visit<&'s Selector, Url>>,
    in_flight: Option<(Fetch<&'s Selector>, FetchResult)>,
}

/// Fetches [`PAGES`] with [`TASKS`] tasks, and returns the host and the number of pages that were
/// delivered.
fn crawl(builder: SelectorBuilder) -> (LimitedHost, usize) {
    let clock = Arc::new(Clock::fixed(BEGIN));
    let builder = builder.around(BEGIN).clock(Arc::clone(&clock));
    let selector = builder.fetcher(FetcherSpec::plain("direct_access")).build().unwrap();
    let mut urls =
        (0..PAGES).map(|page| Url::parse(&format!("https://example.org/{page}")).unwrap());
    let mut tasks: Vec<Task<'_>> =
        (0..TASKS).map(|_| Task { visit: None, in_flight: None }).collect();
    let mut due: BinaryHeap<_> = (0..TASKS).map(|task| Reverse((BEGIN, task))).collect();
    let (mut host, mut delivered) = (LimitedHost::default(), 0);
    while let Some(Reverse((now, number))) = due.pop() {
        clock.set(now);
        let task = &mut tasks[number];
        if let (Some((fetch, result)), Some(visit)) = (task.in_flight.take(), &mut task.visit) {
            visit.report(fetch, result);
        }
        loop {
            let visit = match &mut task.visit {
                Some(visit) => visit,
                None => match urls.next() {
                    Some(url) => task.visit.insert(Visit::new(&selector, url).unwrap()),
                    None => break,
                },
            };
            match visit.next() {
                Step::Fetch(fetch) => {
                    task.in_flight = Some((fetch, host.answer(now)));
                    due.push(Reverse((now.saturating_add(LATENCY), number)));
                    break;
                }
                Step::Wait(wait) => {
                    let again = wait.until().since(now).clamp(Duration::from_millis(1), RETRY);
                    due.push(Reverse((now.saturating_add(again), number)));
                    break;
                }
                Step::End(end) => {
                    delivered += usize::from(end.is_delivered());
                    task.visit = None;
                }
            }
        }
    }
    (host, delivered)
}

#[test]
fn a_first_program_is_refused_a_few_times_and_without_a_pace_as_often_as_it_is_served() {
    let (host, delivered) = crawl(Selector::builder());
    assert!(host.refused <= 3, "{} of {PAGES} requests were refused", host.refused);
    assert!(delivered >= PAGES - 3, "{delivered} of {PAGES} pages were delivered");
    assert_eq!(host.served, delivered);
    let (host, delivered) = crawl(Selector::builder().without_pace());
    assert!(
        host.refused >= 40,
        "{} requests were refused, and {delivered} pages were delivered",
        host.refused
    );
}

fn selector(clock: &Arc<Clock>, settings: PaceSettings) -> Selector {
    let builder =
        Selector::builder().around(BEGIN).clock(Arc::clone(clock)).pace(Pace::new(settings));
    builder.fetcher(FetcherSpec::plain("direct_access")).build().unwrap()
}

fn url(page: &str) -> Url {
    Url::parse("https://example.org/").unwrap().join(page).unwrap()
}

/// Makes one request, and returns the end of its visit.
fn ask(selector: &Selector, page: &str, result: FetchResult) -> End {
    let page = url(page);
    let mut visit = selector.visit(&page).unwrap();
    let Step::Fetch(fetch) = visit.next() else { panic!("nothing holds the host") };
    visit.report(fetch, result);
    let Step::End(end) = visit.next() else { panic!("one request is enough") };
    end
}

#[test]
fn a_visit_waits_no_longer_for_its_host_than_it_may() {
    for (seconds, is_waited) in [(60, true), (600, false)] {
        let clock = Arc::new(Clock::fixed(BEGIN));
        let selector = selector(&clock, PaceSettings::default());
        let limited = FetchResult::from(Outcome::Blocked(Block::refusal())).with_status(429);
        ask(&selector, "/a", limited.with_retry_after(Duration::from_secs(seconds)));
        let until = BEGIN.saturating_add(Duration::from_secs(seconds + 1));
        let page = url("/b");
        let mut visit = selector.visit(&page).unwrap();
        match visit.next() {
            Step::Wait(wait) => {
                assert!(is_waited && wait.reason() == WaitReason::Pace && wait.until() == until)
            }
            Step::End(end) => {
                assert!(!is_waited && end.requests == 0, "{end:?}");
                assert_eq!(end.how, VisitOutcome::Paused { until, whom: WaitScope::Host });
                assert_eq!(end.paused_until, Some(until));
                assert!(matches!(visit.next(), Step::End(again) if again == end));
            }
            Step::Fetch(fetch) => panic!("the host is held: {fetch:?}"),
        }
        drop(visit);
        clock.set(until);
        assert!(ask(&selector, "/c", Outcome::Content.into()).is_delivered());
    }
}

#[test]
fn a_visit_does_not_wait_for_a_pace_that_is_too_slow_for_it() {
    let clock = Arc::new(Clock::fixed(BEGIN));
    let settings =
        PaceSettings { mode: PaceMode::Fixed, initial_rate: 0.001, ..PaceSettings::default() };
    let selector = selector(&clock, settings);
    assert!(ask(&selector, "/a", Outcome::Content.into()).is_delivered());
    let page = url("/b");
    let Step::End(end) = selector.visit(&page).unwrap().next() else { panic!("the visit waits") };
    let VisitOutcome::Paused { until, whom: WaitScope::Pace } = end.how else { panic!("{end:?}") };
    assert!(until.since(BEGIN) > Duration::from_secs(900) && end.requests == 0, "{end:?}");
}

/// If it blocked for the whole time, this test would not end.
#[test]
fn a_blocked_thread_continues_at_the_end_of_its_wait() {
    let settings =
        PaceSettings { mode: PaceMode::Fixed, initial_rate: 20.0, ..PaceSettings::default() };
    let selector = selector(&Arc::default(), settings);
    let pages = ["/a", "/b", "/c"].map(url);
    let mut waits = 0;
    for page in &pages {
        let mut visit = selector.visit(page).unwrap();
        loop {
            match visit.next() {
                Step::Fetch(fetch) => visit.report(fetch, Outcome::Content),
                Step::Wait(wait) => {
                    waits += 1;
                    wait.block(Duration::from_secs(86_400));
                }
                Step::End(end) => {
                    assert!(end.is_delivered());
                    break;
                }
            }
        }
    }
    assert!(waits > 0, "three pages at once are too many for this host");
}

#[cfg(feature = "journal")]
#[test]
fn the_end_of_a_session_writes_the_paces_of_hosts() {
    use fetchwise::pace::Level;

    for is_closed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let builder = Selector::builder().around(BEGIN).clock(Arc::new(Clock::fixed(BEGIN)));
            builder.journal(dir.path()).build().unwrap()
        };
        let selector = open();
        assert!(ask(&selector, "/a", Outcome::Content.into()).is_delivered());
        let state = selector.pace().unwrap().state(Level::Host, "example.org");
        assert!(state.is_some());
        if is_closed {
            selector.close().unwrap();
        } else {
            drop(selector);
        }
        assert_eq!(open().pace().unwrap().state(Level::Host, "example.org"), state);
    }
}
