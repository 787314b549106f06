//! Property tests against naive models, under any order of events: breakers with their half-open
//! trials, and link pauses with Retry-After. Concurrent claims are tested too. `state` has the
//! property tests of hosts and single flight.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::pauses::BreakerTrial;
use super::{DecisionInput, SelectContext, Selector};
use crate::backoff::{BackoffSettings, FetchEnd, LinkState, MAX_RISK_LEVEL, retry_after};
use crate::score::Scored;
use crate::score::estimate::{Candidates, NoTrace, Step, Trace};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Attempt, Hint};
use fetchwise_types::heuristic::url::UrlFeatures;
use fetchwise_types::time::Timestamp;
use proptest::prelude::*;
use url::Url;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const DOMAIN: &str = "e.org";
const FETCHERS: [&str; 3] = ["direct_access", "playwright", "playwright_stealth"];
const DAY_S: u64 = 86_400;

fn at(second: u64) -> Timestamp {
    BEGIN.saturating_add(Duration::from_secs(second))
}

fn selector() -> Selector {
    let builder = FETCHERS.iter().map(|name| fetchwise_types::registry::FetcherSpec::by_name(name));
    builder
        .fold(Selector::builder().around(BEGIN), |builder, spec| builder.fetcher(spec))
        .build()
        .unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Wait(u64),
    /// A fetcher's attempt ends: blocked, with content, or with a failure that is not a block.
    Blocked(usize),
    Delivered(usize),
    Empty(usize),
    /// A caller is about to use a fetcher and claims its half-open trial.
    Claim(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let seconds = prop_oneof![
        Just(0u64),
        Just(599),
        Just(600),
        Just(601),
        Just(1200),
        1..5000u64,
        Just(DAY_S)
    ];
    let fetcher = || 0..FETCHERS.len();
    prop_oneof![
        3 => seconds.prop_map(Event::Wait),
        5 => fetcher().prop_map(Event::Blocked),
        1 => fetcher().prop_map(Event::Delivered),
        1 => fetcher().prop_map(Event::Empty),
        3 => fetcher().prop_map(Event::Claim),
    ]
}

/// The naive model of a breaker.
#[derive(Clone, Copy, Default)]
struct Breaker {
    blocks: u32,
    last: u64,
}

impl Breaker {
    /// min(1 day, 10 min * 2^(n-3)) after the n-th block in a row, from the third on.
    fn is_open(self, now: u64) -> bool {
        self.blocks >= 3 && now < self.last + (600u64 << (self.blocks - 3).min(20)).min(DAY_S)
    }
}

fn check_breakers(events: &[Event]) -> Result<(), TestCaseError> {
    let selector = selector();
    let url = Url::parse("https://e.org/a/b").unwrap();
    let ids = FETCHERS.map(|name| selector.fetcher_id(name).unwrap());
    let (mut model, mut now) = ([Breaker::default(); 3], 0);
    let end = |fetcher: usize, now, error: Option<ErrorKind>| {
        let attempt = Attempt::new(&url, FETCHERS[fetcher], at(now)).unwrap();
        let attempt = error.map_or(attempt.clone().delivered(), |kind| attempt.failed(kind));
        selector.record(attempt, at(now)).unwrap();
    };
    for event in events {
        match *event {
            Event::Wait(seconds) => now += seconds,
            Event::Blocked(fetcher) => {
                end(fetcher, now, Some(ErrorKind::BlockedCaptcha));
                model[fetcher] =
                    Breaker { blocks: (model[fetcher].blocks + 1).min(255), last: now };
            }
            Event::Delivered(fetcher) => {
                end(fetcher, now, None);
                model[fetcher].blocks = 0;
            }
            Event::Empty(fetcher) => end(fetcher, now, Some(ErrorKind::EmptyContent)),
            Event::Claim(fetcher) => {
                let breaker = model[fetcher];
                let claimed = selector.claim_breaker_trial(DOMAIN, ids[fetcher], at(now))
                    != BreakerTrial::Taken;
                prop_assert_eq!(
                    claimed,
                    breaker.blocks < 3 || !breaker.is_open(now),
                    "{:?} at {}",
                    event,
                    now
                );
                if claimed && breaker.blocks >= 3 {
                    // Until the trial ends it is open for all others.
                    model[fetcher].last = now;
                }
            }
        }
        let explained = selector.explain(&url, &SelectContext::first_attempt(at(now))).unwrap();
        let open: Vec<bool> = explained.candidates.iter().map(|candidate| candidate.open).collect();
        let want = model.map(|breaker| breaker.is_open(now));
        prop_assert_eq!(&open[..], &want[..], "after {:?} at {}", event, now);
        let selection = explained.decision.selected();
        prop_assert!(selection.is_some(), "a first attempt is always made");
        if let Some(selection) = selection {
            prop_assert_eq!(selection.breaker_ignored, want[selection.fetcher.index()]);
            prop_assert!(
                !selection.breaker_ignored || want.iter().all(|open| *open),
                "ignored although another is closed"
            );
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct End {
    end: FetchEnd,
    wait_s: u64,
    asked_s: Option<u64>,
}

fn end() -> impl Strategy<Value = End> {
    let ends = vec![
        FetchEnd::Delivered,
        FetchEnd::Blocked,
        FetchEnd::Failed,
        FetchEnd::Queued,
        FetchEnd::Neutral,
        FetchEnd::Limited,
    ];
    let asked =
        prop_oneof![2 => Just(None), 1 => (0..3 * DAY_S).prop_map(Some), 1 => Just(Some(u64::MAX))];
    (prop::sample::select(ends), 0..20_000u64, asked).prop_map(|(end, wait_s, asked_s)| End {
        end,
        wait_s,
        asked_s,
    })
}

proptest! {
    #[test]
    fn breakers_open_and_close_as_the_model_says(events in prop::collection::vec(event(), 1..60)) {
        check_breakers(&events)?;
    }

    #[test]
    fn links_pause_as_the_table_says_and_a_longer_retry_after_wins(ends in prop::collection::vec(end(), 1..30)) {
        let settings = BackoffSettings::default();
        let (mut link, mut level, mut now) = (LinkState::default(), 0u8, 0u64);
        for End { end, wait_s, asked_s } in ends {
            now += wait_s;
            let before = link;
            link = link.after(end, asked_s.map(Duration::from_secs), &settings, at(now));
            let base_min = match end {
                FetchEnd::Delivered => {
                    prop_assert_eq!((link.paused_until, link.risk_level), (None, 0));
                    level = 0;
                    continue;
                }
                FetchEnd::Neutral => {
                    prop_assert_eq!(link, before);
                    continue;
                }
                FetchEnd::Left => {
                    prop_assert_eq!((link.pause_at(at(now)).is_some(), link.risk_level), (true, level));
                    continue;
                }
                FetchEnd::Limited => {
                    let hold = asked_s.map(|asked| at(now + asked.min(DAY_S)));
                    prop_assert_eq!((link.paused_until, link.risk_level), (hold.or(before.paused_until), level));
                    continue;
                }
                FetchEnd::Blocked => 10,
                FetchEnd::Failed | FetchEnd::Queued => 5,
            };
            let pause_s = ((base_min * 60u64) << level).max(asked_s.unwrap_or(0).min(DAY_S));
            prop_assert_eq!(link.pause_at(at(now)), Some(at(now + pause_s)));
            prop_assert_eq!(link.pause_at(at(now + pause_s)), None, "over when it is over");
            level = (level + 1).min(MAX_RISK_LEVEL);
            prop_assert_eq!(link.risk_level, level);
        }
    }

    #[test]
    fn retry_after_reads_back_as_written(seconds in 0..10_000_000u64, begin in 0..4_000_000_000u64) {
        let now = Timestamp::from_millis(begin as i64 * 1000);
        prop_assert_eq!(retry_after(&seconds.to_string(), now), Some(Duration::from_secs(seconds)));
        let date = httpdate_of(begin + seconds);
        let want = (seconds > 0).then(|| Duration::from_secs(seconds));
        prop_assert_eq!(retry_after(&date, now), want, "{}", date);
    }

    #[test]
    fn retry_after_never_panics(text in "\\PC{0,40}") {
        let _ = retry_after(&text, BEGIN);
    }
}

/// Formats an HTTP date by the civil calendar.
fn httpdate_of(second: u64) -> String {
    let (days, of_day) = (second / DAY_S, second % DAY_S);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    let name =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][month];
    let (hour, minute) = (of_day / 3600, of_day / 60 % 60);
    format!("{weekday}, {:02} {name} {year} {hour:02}:{minute:02}:{:02} GMT", left + 1, of_day % 60)
}

#[test]
fn one_of_several_threads_claims_a_breakers_trial() {
    let selector = selector();
    let id = selector.fetcher_id("direct_access").unwrap();
    let url = Url::parse("https://e.org/").unwrap();
    let mut now = 0;
    for _ in 0..100 {
        for _ in 0..3 {
            let attempt =
                Attempt::new(&url, "direct_access", at(now)).unwrap().failed(ErrorKind::Blocked403);
            selector.record(attempt, at(now)).unwrap();
        }
        now += DAY_S;
        let (claimed, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| match selector.claim_breaker_trial(DOMAIN, id, at(now)) {
                    BreakerTrial::Claimed { .. } => claimed.fetch_add(1, Ordering::Relaxed),
                    _ => lost.fetch_add(1, Ordering::Relaxed),
                });
            }
        });
        assert_eq!((claimed.into_inner(), lost.into_inner()), (1, 3));
    }
}

#[test]
fn an_unused_trial_is_returned() {
    let selector = selector();
    let id = selector.fetcher_id("direct_access").unwrap();
    let url = Url::parse("https://e.org/").unwrap();
    let block = |now| {
        let attempt =
            Attempt::new(&url, "direct_access", at(now)).unwrap().failed(ErrorKind::Blocked403);
        selector.record(attempt, at(now)).unwrap();
    };
    (0..3).for_each(|_| block(0));
    let claim = |now| selector.claim_breaker_trial(DOMAIN, id, at(now));
    let BreakerTrial::Claimed { seen, at: claimed } = claim(700) else {
        panic!("the breaker has run out")
    };
    assert_eq!(claim(701), BreakerTrial::Taken);
    selector.return_breaker_trial(DOMAIN, id, seen, claimed);
    let BreakerTrial::Claimed { seen, at: claimed } = claim(702) else { panic!("it was returned") };
    block(703);
    selector.return_breaker_trial(DOMAIN, id, seen, claimed);
    assert_eq!(claim(704), BreakerTrial::Taken, "a block that came meanwhile stays");
}

/// One attempt of a history whose confidence is checked.
#[derive(Clone, Debug)]
struct Past {
    path: usize,
    fetcher: usize,
    success: bool,
}

fn past() -> impl Strategy<Value = Past> {
    (0..8usize, 0..2usize, prop::bool::weighted(0.8)).prop_map(|(path, fetcher, success)| Past {
        path,
        fetcher,
        success,
    })
}

const PATHS: [&str; 8] = [
    "https://a.org/x/1",
    "https://a.org/y/2.pdf",
    "https://www2.a.org/x/3",
    "https://b.org/cdn/4.pdf",
    "https://b.org/x/5.pdf",
    "https://c.org/static/cdn/6",
    "https://d.org/y.pdf",
    "https://e.org/cdn/z/8.mp4",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    /// Regression: files of a new host were `learned` by their suffix, and fell back to a short
    /// probe at their fifth success. The host's own five attempts took over then, at a confidence
    /// of one half.
    #[test]
    fn a_success_never_lowers_confidence_and_never_turns_learned_into_a_probe(
        history in prop::collection::vec(past(), 0..60),
        at_path in 0..8usize,
        fetcher in 0..2usize,
    ) {
        let selector = selector();
        let record = |path: usize, fetcher: usize, success: bool| {
            let attempt = Attempt::new(&Url::parse(PATHS[path]).unwrap(), FETCHERS[fetcher], BEGIN).unwrap();
            let attempt = if success { attempt.delivered() } else { attempt.failed(ErrorKind::EmptyContent) };
            selector.record(attempt, BEGIN).unwrap();
        };
        for past in history {
            record(past.path, past.fetcher, past.success);
        }
        let url = Url::parse(PATHS[at_path]).unwrap();
        let id = selector.fetcher_id(FETCHERS[fetcher]).unwrap();
        let see = || {
            let preferred = SelectContext { prefer: Some(id), ..SelectContext::first_attempt(BEGIN) };
            let confidence = selector.select(&url, &preferred).unwrap().selected().unwrap().confidence;
            let explained = selector.explain(&url, &SelectContext::first_attempt(BEGIN)).unwrap();
            (confidence, explained.candidates[id.index()].confident, explained.decision.selected().unwrap())
        };
        let (before, after) = {
            let before = see();
            record(at_path, fetcher, true);
            (before, see())
        };
        prop_assert!(after.0 >= before.0 - 1e-9, "{} fell to {}", before.0, after.0);
        prop_assert!(after.1 || !before.1, "no longer confident: {:?} {:?}", before, after);
        let was_learned = before.2.fetcher == id && before.2.source.name() == "learned";
        if was_learned && after.2.fetcher == id && after.2.rule != fetchwise_types::decision::Rule::Explore {
            prop_assert_eq!(after.2.source.name(), "learned");
        }
    }
}

/// A change of the evidence.
#[derive(Clone, Debug)]
enum Change {
    /// A number of equal attempts at one URL.
    Record {
        url: usize,
        fetcher: usize,
        end: Option<ErrorKind>,
        times: u32,
    },
    Wait(u64),
    Forget(usize),
    Retract,
    Merge(usize),
}

const URLS: [&str; 6] = [
    "https://a.org/x",
    "https://b.org/y/z",
    "https://b.org/static/api/report.pdf",
    "https://shop.c.co.uk/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18",
    "https://c.co.uk/cdn/clip.mp4",
    "https://d.org/",
];

fn change() -> impl Strategy<Value = Change> {
    let end = prop_oneof![3 => Just(None), 1 => Just(Some(ErrorKind::BlockedCaptcha)), 1 => Just(Some(ErrorKind::EmptyContent))];
    let times = prop_oneof![3 => 1..4_u32, 1 => 50..400_u32];
    let record = (0..URLS.len(), 0..FETCHERS.len(), end, times)
        .prop_map(|(url, fetcher, end, times)| Change::Record { url, fetcher, end, times });
    let journal = prop_oneof![Just(Change::Retract), (0..URLS.len()).prop_map(Change::Merge)];
    prop_oneof![
        8 => record,
        2 => prop_oneof![0..3_u64, Just(59), Just(61), Just(86_400)].prop_map(Change::Wait),
        1 => (0..URLS.len()).prop_map(Change::Forget),
        1 => journal,
    ]
}

/// A trace that wants all steps, so that no estimate is taken from those that are kept.
struct EachStep;

impl Trace for EachStep {
    fn step(&mut self, _: Step<'_>) {}
}

/// Returns the numbers of each candidate: general success, success, block, index, confidence,
/// sample.
fn numbers(
    selector: &Selector,
    url: &Url,
    context: &SelectContext<'_>,
    trace: &mut impl Trace,
) -> Vec<[f64; 6]> {
    let mut candidates = Candidates::new();
    let features = UrlFeatures::extract(url).unwrap();
    selector.decide(DecisionInput { url, features: &features, context }, &mut candidates, trace);
    let of = |c: &Scored<'_>| {
        [c.general_success, c.success, c.block, c.index, c.confidence(), c.sample_size()]
    };
    candidates.iter().map(of).collect()
}

/// Kept estimates equal those made afresh: exactly if the selector is exact, else to 1/64.
fn check_kept_estimates(changes: &[Change]) -> Result<(), TestCaseError> {
    let build = |is_exact| {
        let builder = Selector::builder().around(BEGIN).max_keys(12);
        if is_exact { builder.exact_estimates() } else { builder }.build().unwrap()
    };
    let (exact, kept) = (build(true), build(false));
    let urls = URLS.map(|url| Url::parse(url).unwrap());
    let (mut now, mut last) = (0, None);
    for change in changes {
        for selector in [&exact, &kept] {
            match change {
                Change::Wait(_) => {}
                Change::Forget(url) => selector.forget_domain(urls[*url].host_str().unwrap()),
                Change::Record { url, fetcher, end, times } => {
                    let attempt = Attempt::new(&urls[*url], FETCHERS[*fetcher], at(now)).unwrap();
                    let attempt =
                        end.map_or(attempt.clone().delivered(), |kind| attempt.failed(kind));
                    (0..*times).for_each(|_| selector.observe(&attempt));
                    last = Some(attempt);
                }
                Change::Retract => {
                    if let Some(last) = &last {
                        selector.learned.evidence.retract(last, &selector.learned.registry, true);
                    }
                }
                Change::Merge(url) => {
                    let other = selector.learned.evidence.empty_like();
                    let attempt =
                        Attempt::new(&urls[*url], FETCHERS[0], at(now)).unwrap().delivered();
                    (0..30).for_each(|_| other.observe(&attempt, &selector.learned.registry));
                    selector.learned.evidence.merge(&other);
                }
            }
        }
        if let Change::Wait(seconds) = change {
            now += seconds;
        }
        for (url, hint) in
            urls.iter().flat_map(|url| [None, Some(Hint::Blocked)].map(|hint| (url, hint)))
        {
            let context = SelectContext { hint, ..SelectContext::first_attempt(at(now)) };
            let taken = numbers(&exact, url, &context, &mut NoTrace);
            let afresh = numbers(&exact, url, &context, &mut EachStep);
            prop_assert_eq!(&taken, &afresh, "{} after {:?}", url, change);
            let again = numbers(&exact, url, &context, &mut NoTrace);
            prop_assert_eq!(&again, &afresh, "an explanation keeps its estimates");
            for (kept, exact) in numbers(&kept, url, &context, &mut NoTrace).iter().zip(&afresh) {
                let is_near = |place: usize| (kept[place] - exact[place]).abs() < 1.0 / 64.0;
                prop_assert!(
                    (0..3).all(is_near),
                    "{:?} instead of {:?} after {:?}",
                    kept,
                    exact,
                    change
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(4), ..ProptestConfig::default() })]

    #[test]
    fn kept_estimates_are_those_made_afresh(changes in prop::collection::vec(change(), 1..24)) {
        check_kept_estimates(&changes)?;
    }
}
