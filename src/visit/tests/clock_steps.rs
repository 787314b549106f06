//! Visits while somebody sets the system's clock, with a log: what is in memory, and what a later
//! process reads.

use std::sync::Arc;
use std::time::Duration;

use crate::journal::{Follower, Journal, JournalOptions, LoadReport, apply, load, replay};
use crate::selector::Selector;
use crate::visit::Step;
use fetchwise_pace::{Pace, PaceSettings, Scope};
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::{Clock, Timestamp};

/// The right time: in 2026.
const TRUTH: Timestamp = Timestamp::from_millis(1_795_000_000_000);
const DAY_MS: i64 = 86_400_000;

/// Returns a limit of the rate for an hour.
fn limited() -> FetchResult {
    FetchResult::from(Outcome::Http(429))
        .with_status(429)
        .with_retry_after(Duration::from_secs(3600))
}

/// Visits `url` once, with this result.
fn visit(selector: &Selector, url: &str, result: FetchResult) {
    let url = url::Url::parse(url).unwrap();
    let mut visit = selector.visit(&url).unwrap();
    let Step::Fetch(fetch) = visit.next() else { panic!("{url} has nothing to wait for") };
    visit.report(fetch, result);
}

fn at(clock: &Arc<Clock>) -> Selector {
    let builder = Selector::builder().around(clock.date()).clock(Arc::clone(clock));
    builder.pace(Pace::new(PaceSettings::default())).build().unwrap()
}

/// Returns the rests of the pauses of both hosts, in seconds, and of the first one's hold by its
/// pace.
fn rests(selector: &Selector) -> [Option<u64>; 3] {
    let now = selector.now();
    let rest = |until: Option<Timestamp>| until.map(|until| until.since(now).as_secs());
    let hold = selector.pace().and_then(|pace| pace.hold(Scope::host("before.org"), now));
    [rest(selector.host_pause("before.org")), rest(selector.host_pause("after.org")), rest(hold)]
}

/// The story: pauses and holds were dates of the system's clock. When somebody set it back by an
/// hour, nothing was fetched for an hour; when somebody set it ahead by a day, all pauses were
/// over.
#[test]
fn a_step_of_the_clock_changes_no_pause_and_the_log_gets_dates() {
    for step_ms in [
        -5_000,
        -3_600_000,
        -DAY_MS,
        -40 * 365 * DAY_MS,
        5_000,
        3_600_000,
        DAY_MS,
        40 * 365 * DAY_MS,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Clock::fixed(TRUTH));
        let journal = Arc::new(Journal::open(dir.path(), JournalOptions::default()).unwrap().0);
        let mut live = at(&clock);
        live.set_sink(Box::new(Arc::clone(&journal)));
        live.keep_paces(Box::new(Arc::clone(&journal)));
        visit(&live, "https://before.org/", limited());
        let before = rests(&live);
        let set_to = TRUTH.moved_by(step_ms);
        clock.set_date(set_to);
        assert_eq!(rests(&live), before, "in memory, after a step of {step_ms} ms");
        visit(&live, "https://after.org/", limited());
        visit(&live, "https://fine.org/", Outcome::Content.into());
        let rest = rests(&live)[1];
        assert_eq!(rest, before[0], "a pause that begins after a step of {step_ms} ms");
        let total = |domain, name| {
            live.weights(("domain", domain), ContentKind::Page, name, live.now()).total
        };
        let fetcher = live.fetcher_name(live.candidates().next().unwrap().0).to_owned();
        assert!(
            (total("fine.org", &fetcher) - 1.0).abs() < 1e-9,
            "an attempt counts as one of now"
        );
        live.pace().unwrap().close(clock.now());
        drop(live);
        Arc::into_inner(journal).unwrap().close().unwrap();

        let mut dates = Vec::new();
        let read = replay(dir.path(), |_, entry| dates.push(entry.at()));
        read.unwrap();
        assert!(
            dates.iter().all(|date| [TRUTH, set_to].contains(date)),
            "{dates:?} after a step of {step_ms} ms"
        );
        // A process that starts later has no time before the step.
        let restarted = at(&Arc::new(Clock::fixed(set_to)));
        load(dir.path(), &restarted, set_to).unwrap();
        assert_eq!(rests(&restarted)[1], rest, "after a step of {step_ms} ms and a restart");
        // Neither a process that started earlier and loads only now ...
        let late = at(&clock);
        load(dir.path(), &late, clock.now()).unwrap();
        assert_eq!(rests(&late)[1], rest, "after a step of {step_ms} ms, loaded late");
        // ... nor one that follows the log is misled.
        let following = at(&clock);
        let mut follower = Follower::after(dir.path(), &LoadReport::default());
        follower.read(|_, entry| apply(&entry, &following, clock.now())).unwrap();
        assert_eq!(rests(&following)[1], rest, "after a step of {step_ms} ms, followed");
    }
}
