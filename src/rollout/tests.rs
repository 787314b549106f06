//! The guard over a selector that records, with a clock that only tests advance, and across
//! restarts of the process.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::*;
use crate::ab_test::{GuardSettings, Window};
use crate::journal::{Journal, JournalOptions, load};
use crate::router::{Mode, RouteTable, Router};
use crate::selector::Selector;
use crate::visit::Step;
use fetchwise_types::attempt::Arm;
use fetchwise_types::fetch_result::Outcome;
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::time::{Clock, Timestamp};

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const HOSTS: usize = 60;

fn settings() -> GuardSettings {
    GuardSettings { visits_min: 20, hosts_min: 5, ..GuardSettings::default() }
}

/// A process that crawls with a journal and a guard.
struct Crawl {
    clock: Arc<Clock>,
    selector: Arc<Selector>,
    journal: Arc<Journal>,
    guard: Arc<Guard>,
    events: Vec<Event>,
    pages: usize,
}

impl Crawl {
    fn begin(dir: &std::path::Path, at: Timestamp, mode: Mode, settings: GuardSettings) -> Self {
        let clock = Arc::new(Clock::fixed(at));
        let mut table = RouteTable::default();
        (0..HOSTS).for_each(|n| table.insert(&format!("h{n}.org"), "renderer").unwrap());
        let router = Router { mode, table, split_share: 0.5 };
        let mut selector = Selector::builder()
            .without_pace()
            .fetcher(FetcherSpec::plain("direct_access"))
            .fetcher(FetcherSpec::rendering("renderer"))
            .router(router)
            .clock(Arc::clone(&clock))
            .around(at)
            .build()
            .unwrap();
        let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
        let journal = Arc::new(journal);
        load(dir, &selector, at).unwrap();
        let (guard, events) = Guard::open(dir, &selector, settings).unwrap();
        selector.set_sink(Box::new(guard.watched(Arc::clone(&journal))));
        Self { clock, selector: Arc::new(selector), journal, guard, events, pages: 0 }
    }

    /// Visits `many` pages of each host; with `is_worse`, learning's visits deliver nothing.
    fn visit(&mut self, many: usize, is_worse: bool) {
        for _ in 0..many {
            self.pages += 1;
            for n in 0..HOSTS {
                let url = Url::parse(&format!("https://h{n}.org/{}", self.pages)).unwrap();
                let mut visit = self.selector.visit(&url).unwrap();
                loop {
                    match visit.next() {
                        Step::Fetch(fetch) => {
                            let arm = self.selector.router().arm(&format!("h{n}.org"), None);
                            let is_lost = is_worse
                                && arm == Mode::Learning
                                && self.selector.fallen_back().is_none();
                            let outcome =
                                if is_lost { Outcome::Http(404) } else { Outcome::Content };
                            visit.report(fetch, outcome);
                        }
                        Step::End(_) => break,
                        Step::Wait(wait) => panic!("{wait:?}"),
                    }
                }
            }
            self.clock.set(self.clock.now().saturating_add(Duration::from_secs(60)));
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.events.extend(self.guard.tick(&self.selector));
    }

    fn end(self) -> Timestamp {
        self.journal.flush().wait().unwrap();
        self.clock.now()
    }

    fn fell(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::FellBack(_)))
    }
}

#[test]
fn a_restart_continues_the_looks_of_the_stage() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Crawl::begin(dir.path(), BEGIN, Mode::Split, settings());
    first.visit(3, false);
    let (kept, at) = (first.guard.state(), first.end());
    assert!(kept.looks.made > 0 && kept.fallen_back.is_none(), "{kept:?}");
    let mut second = Crawl::begin(dir.path(), at, Mode::Split, settings());
    assert_eq!(second.guard.state(), kept.clone());
    second.visit(4, false);
    let later = second.guard.state();
    // Without the earlier visits the next look would have waited for as many new ones.
    assert!(later.looks.made > kept.looks.made && later.stage == kept.stage, "{later:?}");
    let learning = later.last_look.unwrap().visits[0];
    assert!(learning > 4 * HOSTS as u64 / 3, "{learning} visits, of both processes");
}

#[test]
fn a_fallback_outlives_the_process_and_other_modes_until_an_operator_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Crawl::begin(dir.path(), BEGIN, Mode::Split, settings());
    first.visit(4, true);
    assert!(first.fell() && first.selector.fallen_back().is_some(), "{:?}", first.guard.state());
    let at = first.end().saturating_add(40 * DAY);
    let mut second = Crawl::begin(dir.path(), at, Mode::Learning, settings());
    assert!(matches!(second.events[..], [Event::StillFallen(_)]), "{:?}", second.events);
    second.visit(2, true);
    assert_eq!(second.events.len(), 1, "time alone does not resume it: {:?}", second.events);
    let mut kept = RolloutState::read(dir.path()).unwrap().unwrap();
    assert!(kept.resume(second.clock.now()).is_some());
    kept.write(dir.path()).unwrap();
    second.tick();
    assert_eq!(second.events.last(), Some(&Event::Resumed));
    assert!(second.selector.fallen_back().is_none() && second.guard.state().looks.made == 0);
}

#[test]
fn retries_come_after_the_configured_time_and_then_after_twice_as_long() {
    let dir = tempfile::tempdir().unwrap();
    let settings = GuardSettings { retry_after: Some(7 * DAY), ..settings() };
    let mut crawl = Crawl::begin(dir.path(), BEGIN, Mode::Split, settings);
    for rest in [7, 14] {
        crawl.events.clear();
        crawl.visit(6, true);
        assert!(crawl.fell());
        let fell = crawl.guard.state().fallen_back.unwrap().at;
        crawl.clock.set(fell.saturating_add(rest * DAY - Duration::from_secs(1)));
        crawl.tick();
        assert!(crawl.selector.fallen_back().is_some(), "not before {rest} days");
        crawl.clock.set(fell.saturating_add(rest * DAY));
        crawl.tick();
        assert!(crawl.selector.fallen_back().is_none());
        assert!(matches!(crawl.events.last(), Some(Event::Retried(_))), "{:?}", crawl.events);
    }
}

#[test]
fn another_mode_or_table_is_another_stage() {
    let dir = tempfile::tempdir().unwrap();
    let mut crawl = Crawl::begin(dir.path(), BEGIN, Mode::Split, settings());
    crawl.visit(2, false);
    let before = crawl.guard.state();
    crawl.selector.set_split_share(0.9).unwrap();
    crawl.visit(1, false);
    let after = crawl.guard.state();
    assert!(after.stage.unwrap().began > before.stage.unwrap().began && after.looks.made <= 1);
    // A manual fetch without a table does not belong to the rollout.
    let at = crawl.end();
    let selector = Selector::builder().clock(Arc::new(Clock::fixed(at))).build().unwrap();
    let (guard, _) = Guard::open(dir.path(), &selector, settings()).unwrap();
    guard.tick(&selector);
    assert_eq!(guard.state().stage.unwrap().split_share, 0.9);
}

#[test]
fn a_state_that_cannot_be_saved_is_reported_and_applies_anyway() {
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut crawl = Crawl::begin(dir.path(), BEGIN, Mode::Split, settings());
    let (guard, _) = Guard::open(&gone, &crawl.selector, settings()).unwrap();
    std::fs::remove_dir_all(&gone).unwrap();
    crawl.selector.set_split_share(0.9).unwrap();
    assert!(matches!(guard.tick(&crawl.selector)[..], [Event::NotSaved(_)]));
    crawl.tick();
}

#[test]
fn the_report_has_both_arms_and_what_learning_would_have_been_worth() {
    let dir = tempfile::tempdir().unwrap();
    let mut crawl = Crawl::begin(dir.path(), BEGIN, Mode::Shadow, settings());
    crawl.visit(5, false);
    let costs = costs_of(&crawl.selector);
    let at = crawl.end();
    let blank = Selector::builder()
        .fetcher(FetcherSpec::plain("direct_access"))
        .fetcher(FetcherSpec::rendering("renderer"))
        .around(at)
        .build()
        .unwrap();
    let rollout = read(dir.path(), None, costs, Some(blank)).unwrap();
    assert_eq!(
        (rollout.arm(Arm::Legacy).visits, rollout.arm(Arm::Learning).visits),
        (5 * HOSTS as u64, 0)
    );
    assert_eq!(rollout.stage.as_ref().unwrap().mode, "shadow");
    let shadow = rollout.shadow.unwrap();
    assert_eq!((shadow.visits, shadow.table.value), (5 * HOSTS as u64, 80.0));
    let differed = rollout.agreement.differed_share.unwrap();
    assert!((shadow.unsupported_share - differed).abs() < 1e-9, "the table always takes the same");
    assert!((shadow.learning.value - shadow.table.value - shadow.gain.value).abs() < 1e-9);
    let outside = Window { until: Some(BEGIN), ..Window::default() };
    assert_eq!(
        read(dir.path(), Some(outside), Vec::new(), None).unwrap().comparison.arms[1].visits,
        0
    );
}
