//! The visit against scripts: the effect of each result, the records, the returned claims, and any
//! interleaving of many visits of one host.

#[cfg(all(feature = "metrics", feature = "tracing"))]
mod announcements;
#[cfg(feature = "journal")]
mod clock_steps;
mod cross_site;
mod lost_connection;
#[cfg(test)]
pub(crate) mod pace;
mod proxies;
mod redirects;
mod silent_hosts;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use url::Url;

use super::*;
use crate::backoff::LinkState;
use crate::router::{Mode, Router};
use crate::selector::{SelectorBuilder, Sink, SinkError, VisitSettings};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Arm, Attempt, Tag};
use fetchwise_types::fetch_result::{Block, FetchResult, Outcome, ShortPage};
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::response::Header;
use fetchwise_types::time::Clock;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// A domain, and the end of its pause.
type HostPause = (String, Option<Timestamp>);

#[derive(Clone, Default)]
struct RecordingSink {
    attempts: Arc<Mutex<Vec<Attempt>>>,
    hosts: Arc<Mutex<Vec<HostPause>>>,
}

impl Sink for RecordingSink {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.attempts.lock().unwrap().push(attempt.clone());
        Ok(())
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, _: Timestamp) {
        self.hosts.lock().unwrap().push((domain.to_owned(), until));
    }
}

struct World {
    selector: Arc<Selector>,
    clock: Arc<Clock>,
    sink: RecordingSink,
}

type Own = Visit<Arc<Selector>, Url>;

impl World {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(more: impl FnOnce(SelectorBuilder) -> SelectorBuilder) -> Self {
        let (clock, sink) = (Arc::new(Clock::fixed(BEGIN)), RecordingSink::default());
        let names = ["direct_access", "playwright", "playwright_stealth"];
        let builder = Selector::builder()
            .without_pace()
            .around(BEGIN)
            .clock(Arc::clone(&clock))
            .sink(sink.clone());
        let builder = names
            .into_iter()
            .fold(builder, |builder, name| builder.fetcher(FetcherSpec::by_name(name)));
        Self { selector: Arc::new(more(builder).build().unwrap()), clock, sink }
    }

    fn visit(&self, path: &str) -> Own {
        let url = Url::parse("https://e.org/").unwrap().join(path).unwrap();
        Visit::new(Arc::clone(&self.selector), url).unwrap()
    }

    fn pass(&self, span: Duration) {
        self.clock.set(self.clock.now().saturating_add(span));
    }

    fn attempts(&self) -> Vec<Attempt> {
        self.sink.attempts.lock().unwrap().clone()
    }

    /// Visits `path` with `answers` in turn; the last one repeats.
    fn run(&self, path: &str, answers: &[FetchResult]) -> (Vec<String>, End) {
        drive(self.visit(path), answers)
    }
}

fn drive(mut visit: Own, answers: &[FetchResult]) -> (Vec<String>, End) {
    let (mut asked, mut turn) = (Vec::new(), 0);
    loop {
        match visit.next() {
            Step::Fetch(fetch) => {
                asked.push(fetch.fetcher().to_owned());
                let answer = answers[turn.min(answers.len() - 1)].clone();
                visit.report(fetch, answer);
                turn += 1;
            }
            Step::Wait(wait) => panic!("there is no other visit to wait for: {wait:?}"),
            Step::End(end) => return (asked, end),
        }
    }
}

fn fetch(visit: &mut Own) -> Fetch<Arc<Selector>> {
    match visit.next() {
        Step::Fetch(fetch) => fetch,
        other => panic!("not a fetch: {other:?}"),
    }
}

fn why(step: Step<Arc<Selector>>) -> WaitReason {
    match step {
        Step::Wait(wait) => wait.reason(),
        other => panic!("not a wait: {other:?}"),
    }
}

fn ended(step: Step<Arc<Selector>>) -> VisitOutcome {
    match step {
        Step::End(end) => end.how,
        other => panic!("not an end: {other:?}"),
    }
}

/// A host that said 413 or 420, and for how long, was asked again at full speed.
#[test]
fn an_error_of_the_client_that_says_for_how_long_is_a_limit() {
    let end = |status: u16, asked: Option<u64>| {
        let mut result = FetchResult::from(Outcome::Http(status));
        result.status = Some(status);
        result.headers.extend(asked.map(|s| Header::new("retry-after", s.to_string())));
        let world = World::new();
        let (_, end) = world.run("/", &[result]);
        (end.how, world.selector.host_pause("e.org").map(|until| until.since(BEGIN).as_secs()))
    };
    let failed = |kind| VisitOutcome::Failed(ErrorType::Known(kind));
    for status in [400, 409, 413, 418, 420, 429, 430] {
        let asked = Some(Duration::from_secs(200).as_secs());
        assert_eq!(end(status, asked), (failed(ErrorKind::RateLimited), asked), "{status}");
    }
    for status in [420, 430] {
        let (how, pause) = end(status, None);
        assert!(how == failed(ErrorKind::RateLimited) && pause.is_some(), "{status}");
    }
    assert_eq!(end(400, None), (failed(ErrorKind::ClientError), None));
    assert_eq!(end(404, Some(20)), (failed(ErrorKind::NotFound), None));
    assert_eq!(end(401, Some(20)), (failed(ErrorKind::AuthRequired), None));
}

#[test]
fn an_error_weighs_a_quarter_until_the_host_has_delivered() {
    for (error, full) in
        [(Outcome::Http(503), 1.0), (Outcome::Network, 1.0), (Outcome::Timeout, 0.5)]
    {
        let world = World::new();
        let weighed = |path: &str| -> Vec<f64> {
            let attempts =
                world.attempts().into_iter().filter(|attempt| attempt.url.ends_with(path));
            attempts.map(|attempt| attempt.weight).filter(|weight| *weight > 0.0).collect()
        };
        world.run("/down", &[error.clone().into()]);
        world.run("/up", &[Outcome::Content.into()]);
        world.run("/later", &[error.clone().into()]);
        let (down, later) = (weighed("/down"), weighed("/later"));
        assert!(
            !down.is_empty() && down.iter().all(|weight| *weight == 0.25),
            "{error:?}: {down:?}"
        );
        assert!(
            !later.is_empty() && later.iter().all(|weight| *weight == full),
            "{error:?}: {later:?}"
        );
    }
}

#[test]
fn a_date_in_a_header_counts_by_the_date_of_the_clock() {
    for step_ms in [-86_400_000, 86_400_000] {
        let world = World::new();
        world.clock.set_date(BEGIN.moved_by(step_ms));
        let ends = world.clock.date().saturating_add(Duration::from_secs(120)).as_millis();
        let ends = std::time::UNIX_EPOCH + Duration::from_millis(ends.cast_unsigned());
        let mut limited = FetchResult::from(Outcome::Http(429)).with_status(429);
        limited.headers = vec![Header::new("Retry-After", httpdate::fmt_http_date(ends))];
        world.run("/a", &[limited]);
        assert_eq!(
            world.selector.host_pause("e.org"),
            Some(BEGIN.saturating_add(Duration::from_secs(120)))
        );
    }
}

fn failed(kind: ErrorKind) -> VisitOutcome {
    VisitOutcome::Failed(ErrorType::Known(kind))
}

#[test]
fn each_attempt_is_recorded_with_everything_that_analysis_needs() {
    let world = World::new();
    let (asked, end) =
        world.run("/a", &[Outcome::Blocked(Block::challenge()).into(), Outcome::Content.into()]);
    assert_eq!(asked, ["direct_access", "playwright_stealth"]);
    assert!(end.is_delivered() && end.is_banned && end.requests == 2, "{end:?}");
    let made = world.attempts();
    assert_eq!(made.len(), 2);
    assert_eq!(
        (made[0].source.as_deref(), made[0].hint, made[0].try_no, made[0].weight),
        (Some("probe"), None, 1, 1.0)
    );
    assert_eq!(
        (made[1].source.as_deref(), made[1].hint, made[1].try_no),
        (Some("inferred"), Some(Hint::Blocked), 2)
    );
    assert!(made.iter().all(
        |attempt| attempt.propensity.is_some() && attempt.heuristic("domain") == Some("e.org")
    ));
    assert_eq!(
        made.iter().map(|attempt| attempt.rule.as_deref()).collect::<Vec<_>>(),
        [Some("index"), Some("index")]
    );
    assert_eq!(made[1].confidence, Some(end.confidence));
    assert!(
        made.iter()
            .all(|attempt| attempt.confidence.is_some_and(|share| (0.0..=1.0).contains(&share)))
    );
    assert!(made.iter().all(|attempt| attempt.arm.is_none()), "there was no choice of arm");
}

/// The log copied each attempt whose server names itself after the type of its page.
#[test]
fn an_attempt_is_recorded_in_the_form_of_the_log() {
    let world = World::new();
    let mut page = FetchResult::from(Outcome::Content).with_status(200);
    let headers = ["server", "via", "content-type", "date", "content-length"];
    page.headers = headers.map(|name| Header::new(name, "x")).to_vec();
    world.run("/a%20b", &[page]);
    let made = world.attempts().remove(0);
    assert!(matches!(made.bounded(), Ok(std::borrow::Cow::Borrowed(_))), "{made:?}");
    let names: Vec<&str> = made.response_headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["content-length", "content-type", "server", "via"]);
}

#[test]
fn the_serving_arm_is_recorded_if_there_was_a_choice() {
    let world = |mode, split_share| {
        World::with(|builder| {
            let mut router = Router { mode, split_share, ..Router::default() };
            router.table.insert("e.org", "playwright").unwrap();
            builder.router(router)
        })
    };
    let told = |world: &World| {
        let made = world.attempts().pop().unwrap();
        (made.arm, made.rule.unwrap().into_owned(), made.shadow_fetcher)
    };
    let table = (Some(Arm::Legacy), "router_table".to_owned());
    let cases = [
        (Mode::Legacy, 0.0, table.clone(), None),
        (Mode::Shadow, 0.0, table.clone(), Some("direct_access".to_owned())),
        (Mode::Split, 0.0, table, Some("direct_access".to_owned())),
        (
            Mode::Split,
            1.0,
            (Some(Arm::Learning), "index".to_owned()),
            Some("playwright".to_owned()),
        ),
    ];
    for (mode, share, (arm, rule), shadow) in cases {
        let world = world(mode, share);
        world.run("/a", &[Outcome::Content.into()]);
        assert_eq!(told(&world), (arm, rule, shadow), "{mode} {share}");
    }
    // A link's own mode is a choice too.
    let world = world(Mode::Learning, 0.0);
    drive(world.visit("/a").mode(Mode::Legacy), &[Outcome::Content.into()]);
    assert_eq!(told(&world), (Some(Arm::Legacy), "router_table".to_owned(), None));
}

#[test]
fn a_transient_failure_is_retried_once_with_the_full_time() {
    let world = World::new();
    let mut visit = world.visit("/a");
    let probe = fetch(&mut visit);
    assert!(probe.is_probe() && probe.deadline() == Duration::from_secs(3));
    visit.report(probe, Outcome::Network);
    let retry = fetch(&mut visit);
    assert_eq!(
        (retry.fetcher(), retry.is_probe(), retry.deadline()),
        ("direct_access", false, Duration::from_secs(30))
    );
    visit.report(retry, Outcome::Content);
    assert_eq!(ended(visit.next()), VisitOutcome::Delivered);
    let weights: Vec<f64> = world.attempts().iter().map(|attempt| attempt.weight).collect();
    assert_eq!(weights, [0.0, 1.0], "the first half of a retry has no weight");
}

#[test]
fn two_timeouts_of_any_fetchers_end_a_visit() {
    let (asked, end) = World::new().run("/a", &[Outcome::Timeout.into()]);
    assert_eq!(asked, ["direct_access"; 2]);
    assert_eq!(end.how, failed(ErrorKind::Timeout));
    let (asked, end) = World::new().run("/a", &[Outcome::Empty.into(), Outcome::Timeout.into()]);
    assert_eq!(asked, ["direct_access", "playwright", "playwright"]);
    assert_eq!(end.how, failed(ErrorKind::Timeout));
}

/// Each link of a host that the crawler's proxy refuses cost a request and two renders.
#[test]
fn a_host_that_the_network_refuses_to_a_browser_needs_no_more_renders() {
    let world = World::new();
    let asked = |path, outcome: Outcome| world.run(path, &[outcome.into()]).0;
    assert_eq!(asked("/a", Outcome::NetworkBlock), ["direct_access", "playwright"]);
    assert_eq!(asked("/b", Outcome::NetworkBlock), ["direct_access"]);
    assert_eq!(asked("/c", Outcome::Content), ["direct_access"]);
    assert_eq!(
        asked("/d", Outcome::Empty)[..2],
        ["direct_access", "playwright"],
        "a shell comes from the site"
    );
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(4000)));
    assert_eq!(
        asked("/f", Outcome::NetworkBlock),
        ["direct_access", "playwright"],
        "the network may have changed"
    );
}

#[test]
fn a_host_that_says_not_now_is_paused_from_its_first_response_on() {
    for (answer, asked_s, error) in [
        (
            FetchResult::from(Outcome::Http(429))
                .with_status(429)
                .with_retry_after(Duration::from_secs(3600)),
            3600,
            "rate_limited",
        ),
        (FetchResult::from(Outcome::Http(429)).with_status(429), 30, "rate_limited"),
        (
            FetchResult::from(Outcome::Http(503))
                .with_status(503)
                .with_retry_after(Duration::from_secs(50)),
            50,
            "paused",
        ),
        (
            FetchResult::from(Outcome::Blocked(Block::challenge()))
                .with_status(403)
                .with_retry_after(Duration::from_secs(70)),
            70,
            "blocked_captcha",
        ),
    ] {
        let world = World::new();
        let (asked, end) = world.run("/a", std::slice::from_ref(&answer));
        assert_eq!(
            asked,
            ["direct_access"],
            "no other fetcher is tried, and no retry made: {answer:?}"
        );
        let name = match &end.how {
            VisitOutcome::Failed(error) => error.name(),
            other => other.name(),
        };
        assert_eq!(name, error, "{end:?}");
        let until = BEGIN.saturating_add(Duration::from_secs(asked_s));
        assert_eq!(
            world.sink.hosts.lock().unwrap().as_slice(),
            [("e.org".to_owned(), Some(until))]
        );
        for path in ["/b", "/c.pdf"] {
            let paused = VisitOutcome::Paused { until, whom: WaitScope::Host };
            assert_eq!(ended(world.visit(path).next()), paused, "{answer:?}");
        }
        world.clock.set(until);
        let trial = fetch(&mut world.visit("/d"));
        drop(trial);
    }
}

#[test]
fn a_block_without_retry_after_goes_on_to_another_fetcher() {
    let world = World::new();
    let refusal = FetchResult::from(Outcome::Blocked(Block::refusal())).with_status(403);
    let (asked, _) = world.run("/a", &[refusal, Outcome::Content.into()]);
    assert_eq!(asked.len(), 2);
    assert!(world.sink.hosts.lock().unwrap().is_empty());
}

/// Returns an empty page with this short text.
fn with_short(page: ShortPage) -> FetchResult {
    let mut answer = FetchResult::from(Outcome::Empty);
    answer.short = Some(page);
    answer
}

/// Returns a page with content whose text has this SimHash.
fn content(sketch: Option<u64>) -> FetchResult {
    let mut answer = FetchResult::from(Outcome::Content);
    answer.simhash = sketch;
    answer
}

#[test]
fn a_short_page_is_content_if_its_rendering_shows_no_more() {
    let world = World::new();
    let short = |chars, hash| with_short(ShortPage::new(chars, hash));
    let (asked, end) = world.run("/a", &[short(40, 1), short(40, 1)]);
    assert_eq!(asked, ["direct_access", "playwright"]);
    assert!(end.is_delivered());
    let made = world.attempts();
    assert_eq!(made[1].heuristic("thin"), Some("direct_access"));
    let exact = |name| {
        world.selector.weights(
            ("domain", "e.org"),
            fetchwise_types::heuristic::url::ContentKind::Page,
            name,
            BEGIN,
        )
    };
    let plain = exact("direct_access");
    assert!(
        plain.success == plain.total && (plain.total - 1.0).abs() < 1e-9,
        "it gets the credit: {plain:?}"
    );
    // The host's other short pages cost one request each.
    for (n, path) in ["/b", "/c"].into_iter().enumerate() {
        let (asked, end) = world.run(path, &[short(30, 10 + n as u64)]);
        assert_eq!((asked, end.is_delivered()), (vec!["direct_access".to_owned()], true));
    }
    assert_eq!(world.attempts().last().unwrap().heuristic("thin"), Some("true"));
    // The same words under another address are a block's.
    let (asked, end) = world.run("/d", &[short(30, 10)]);
    assert!(!end.is_delivered() && asked.len() > 1, "{asked:?} {end:?}");
}

#[test]
fn a_short_page_is_not_content_if_it_hints_at_a_block_or_is_empty_or_its_rendering_shows_more() {
    let short = with_short;
    for (plain, rendered) in [
        (ShortPage::new(40, 1).suspect(), ShortPage::new(40, 1)),
        (ShortPage::new(40, 1), ShortPage::new(40, 1).suspect()),
        (ShortPage::new(0, 0), ShortPage::new(0, 0)),
        (ShortPage::new(40, 1), ShortPage::new(90, 2)),
    ] {
        let (_, end) = World::new().run("/a", &[short(plain), short(rendered)]);
        assert_eq!(end.how, failed(ErrorKind::EmptyContent), "{plain:?} {rendered:?}");
    }
}

#[test]
fn a_redirect_written_in_html_goes_on_at_its_target_within_the_attempt() {
    let world = World::new();
    let mut visit = world.visit("/old/page");
    let first = fetch(&mut visit);
    assert_eq!(visit.url().as_str(), "https://e.org/old/page");
    visit.report(first, Outcome::Redirect { to: " ../new#top ".into() });
    let second = fetch(&mut visit);
    assert_eq!(
        (visit.url().as_str(), second.redirects(), second.max_redirects()),
        ("https://e.org/new", 1, 9)
    );
    assert!(world.attempts().is_empty(), "it is one attempt, and has not ended");
    visit.report(second, Outcome::Content);
    assert_eq!(ended(visit.next()), VisitOutcome::Delivered);
    assert_eq!(
        (world.attempts().len(), world.attempts()[0].url.as_str()),
        (1, "https://e.org/old/page")
    );
    let to = |to: &str| FetchResult::from(Outcome::Redirect { to: to.into() });
    assert_eq!(
        world.run("/loop", &[to("/x"), to("/y"), to("/x")]).1.how,
        failed(ErrorKind::RedirectLoop)
    );
    // The server may know by the address that the client was sent back.
    assert_eq!(
        world.run("/self", &[to("/self"), Outcome::Content.into()]).1.how,
        VisitOutcome::Delivered
    );
    let (_, endless) = world.run("/ever", &vec![to("/ever"); 12]);
    assert_eq!((endless.how, endless.requests), (failed(ErrorKind::RedirectLoop), 1));
    let (asked, _) = world.run("/mail", &[to("mailto:a@b.c"), Outcome::Content.into()]);
    assert_eq!(asked[0], "direct_access");
    assert_eq!(
        world.attempts().iter().filter(|a| a.url.ends_with("/mail")).count(),
        2,
        "no target: an empty page"
    );
}

#[test]
fn a_local_fault_is_not_recorded_and_is_retried_until_the_limit() {
    let world = World::new();
    let mut visit = world.visit("/a");
    for _ in 0..6 {
        let held = fetch(&mut visit);
        visit.report(held, Outcome::Local);
        assert_eq!(why(visit.next()), WaitReason::LocalFault);
        drop(fetch(&mut world.visit("/b")));
        world.pass(Duration::from_secs(10));
    }
    let last = fetch(&mut visit);
    visit.report(last, Outcome::Local);
    assert_eq!(ended(visit.next()), failed(ErrorKind::LocalFault));
    assert!(world.attempts().is_empty());
    assert_eq!(
        world.selector.link_state("https://e.org/a"),
        LinkState::default(),
        "and no link is paused by it"
    );
}

#[test]
fn one_visit_probes_and_the_others_share_its_verdict() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.visit("/a"), world.visit("/b"), world.visit("/c"));
    let probe = fetch(&mut a);
    assert_eq!((why(b.next()), why(c.next())), (WaitReason::Probe, WaitReason::Probe));
    a.report(probe, Outcome::Content);
    let shared = fetch(&mut b);
    assert_eq!(
        (shared.decision().source.name(), shared.decision().rule.name()),
        ("inferred", "shared_probe")
    );
    drop(shared);
    assert_eq!(fetch(&mut c).decision().source.name(), "inferred");
}

#[test]
fn a_dropped_fetch_or_visit_returns_the_lead() {
    let world = World::new();
    let (mut a, mut b) = (world.visit("/a"), world.visit("/b"));
    drop(fetch(&mut a));
    let probe = fetch(&mut b);
    assert!(probe.is_probe());
    assert_eq!(why(a.next()), WaitReason::Probe);
    b.report(probe, Outcome::Network);
    assert_eq!(why(a.next()), WaitReason::Probe, "the lead is sink for the retry");
    drop(b);
    assert!(fetch(&mut a).is_probe());
}

#[test]
fn a_paused_host_is_tried_out_by_one_visit_and_the_others_wait_for_it() {
    let world = World::new();
    world.selector.set_host_pause("e.org", Some(BEGIN));
    let (mut a, mut b) = (world.visit("/a"), world.visit("/b"));
    let trial = fetch(&mut a);
    assert_eq!(why(b.next()), WaitReason::Trial);
    drop(trial);
    assert_eq!(why(b.next()), WaitReason::Trial, "the visit owns the trial, not the fetch");
    drop(a);
    let trial = fetch(&mut b);
    b.report(
        trial,
        FetchResult::from(Outcome::Blocked(Block::refusal()))
            .with_status(403)
            .with_retry_after(Duration::from_secs(9)),
    );
    let until = BEGIN.saturating_add(Duration::from_secs(9));
    assert_eq!(
        ended(world.visit("/c").next()),
        VisitOutcome::Paused { until, whom: WaitScope::Host }
    );
    world.clock.set(until);
    let (_, end) = world.run("/d", &[Outcome::Content.into()]);
    assert!(end.is_delivered());
    assert_eq!(world.selector.host_pause("e.org"), None);
    assert_eq!(world.sink.hosts.lock().unwrap().last(), Some(&("e.org".to_owned(), None)));
}

#[test]
fn an_unknown_fetcher_is_named_and_an_unavailable_one_skipped() {
    let world = World::new();
    let error = world.visit("/a").prefer("lynx").unwrap_err().to_string();
    assert!(error.contains("lynx") && error.contains("playwright_stealth"), "{error}");
    let mut visit = world.visit("/a").prefer("playwright").unwrap();
    let wanted = fetch(&mut visit);
    assert_eq!(wanted.decision().source.name(), "hinted");
    visit.unavailable(wanted, "it does not start");
    assert_ne!(fetch(&mut visit).fetcher(), "playwright");
    assert!(world.attempts().is_empty());
    let mut all = fetchwise_types::registry::FetcherSet::EMPTY;
    world.selector.candidates().for_each(|(id, _)| all.insert(id));
    assert_eq!(ended(world.visit("/a").without(all).next()), VisitOutcome::NoFetcher);
}

#[test]
fn an_older_fetch_that_is_reported_late_is_recorded_and_changes_nothing() {
    let world = World::new();
    let mut visit = world.visit("/a").prefer("playwright").unwrap();
    let first = fetch(&mut visit);
    let second = fetch(&mut visit);
    visit.report(first, Outcome::Http(404));
    assert_eq!(world.attempts().len(), 1);
    visit.report(second, Outcome::Content);
    assert_eq!(ended(visit.next()), VisitOutcome::Delivered);
    // A local fault is not recorded, however late it is reported.
    let mut visit = world.visit("/b").prefer("playwright").unwrap();
    let (first, second) = (fetch(&mut visit), fetch(&mut visit));
    visit.report(second, Outcome::Content);
    visit.report(first, Outcome::Local);
    assert_eq!(world.attempts().len(), 3);
}

/// An event of one of many visits of one host.
#[derive(Clone, Debug)]
enum VisitEvent {
    /// The n-th visit is asked for its next step.
    Next(usize),
    /// Its fetch in flight is reported.
    Report(usize, Outcome, Option<u64>),
    /// Its fetch in flight is dropped.
    DropFetch(usize),
    /// It is dropped with all its claims, and another one takes its place.
    Cancel(usize),
    Pass(u64),
}

const VISITS: usize = 6;

fn event() -> impl Strategy<Value = VisitEvent> {
    let visit = || 0..VISITS;
    let outcome = prop_oneof![
        4 => Just(Outcome::Content),
        2 => Just(Outcome::Blocked(Block::challenge())),
        1 => Just(Outcome::Blocked(Block::refusal())),
        1 => Just(Outcome::Http(429)),
        1 => Just(Outcome::Http(404)),
        1 => Just(Outcome::Http(500)),
        1 => Just(Outcome::Timeout),
        1 => Just(Outcome::Network),
        1 => Just(Outcome::Empty),
        1 => Just(Outcome::Local),
        1 => Just(Outcome::Redirect { to: "/elsewhere".into() }),
    ];
    let asked = prop_oneof![4 => Just(None), 1 => (1..5000u64).prop_map(Some)];
    prop_oneof![
        8 => visit().prop_map(VisitEvent::Next),
        6 => (visit(), outcome, asked).prop_map(|(n, outcome, asked)| VisitEvent::Report(n, outcome, asked)),
        1 => visit().prop_map(VisitEvent::DropFetch),
        1 => visit().prop_map(VisitEvent::Cancel),
        1 => prop_oneof![1..30u64, Just(600u64), 500..4000u64].prop_map(VisitEvent::Pass),
    ]
}

struct TrackedVisit {
    visit: Own,
    out: Option<Fetch<Arc<Selector>>>,
}

fn check(events: &[VisitEvent]) -> Result<(), TestCaseError> {
    let world = World::new();
    let mut begun = 0;
    let mut begin = || {
        begun += 1;
        TrackedVisit { visit: world.visit(&format!("/{}", begun % 40)), out: None }
    };
    let mut places: Vec<TrackedVisit> = (0..VISITS).map(|_| begin()).collect();
    for event in events {
        let before = world.attempts().len();
        match event {
            VisitEvent::Next(n) => {
                let now = world.clock.now();
                let paused = world.selector.host_pause("e.org").filter(|until| *until > now);
                let place = &mut places[*n];
                place.out = None;
                match place.visit.next() {
                    Step::Fetch(fetch) => {
                        let leads = fetch.is_probe();
                        place.out = Some(fetch);
                        let probing = places
                            .iter()
                            .filter(|p| p.out.as_ref().is_some_and(Fetch::is_probe))
                            .count();
                        prop_assert!(!leads || probing <= 1 || now > BEGIN, "one probe at a time");
                        let place = &places[*n];
                        if paused.is_some() && place.visit.tried.attempts == 0 {
                            prop_assert!(
                                place.visit.passage.host_trial.is_some()
                                    || place.visit.redirects.followed > 0,
                                "asked while paused"
                            );
                        }
                    }
                    Step::Wait(wait) => {
                        prop_assert!(wait.until() > now, "no wait ends in the past")
                    }
                    Step::End(end) => {
                        if let VisitOutcome::Paused { until, .. } = end.how {
                            prop_assert!(until > now);
                        }
                        places[*n] = begin();
                    }
                }
                prop_assert_eq!(world.attempts().len(), before);
            }
            VisitEvent::Report(n, outcome, asked) => {
                let Some(fetch) = places[*n].out.take() else { continue };
                let status = if let Outcome::Http(status) = outcome { Some(*status) } else { None };
                let mut answer = FetchResult::from(outcome.clone());
                (answer.status, answer.retry_after) = (status, asked.map(Duration::from_secs));
                let at = fetch.at();
                let hops = places[*n].visit.redirects();
                places[*n].visit.report(fetch, answer);
                let made = world.attempts();
                let goes_on = places[*n].visit.redirects() > hops;
                let want = if *outcome == Outcome::Local || goes_on { 0 } else { 1 };
                prop_assert_eq!(made.len() - before, want, "one attempt a report: {:?}", outcome);
                if want == 1 {
                    prop_assert_eq!(made[before].attempted_at, at);
                }
            }
            VisitEvent::DropFetch(n) => {
                places[*n].out = None;
                prop_assert_eq!(world.attempts().len(), before);
            }
            VisitEvent::Cancel(n) => {
                places[*n] = begin();
                prop_assert_eq!(world.attempts().len(), before);
            }
            VisitEvent::Pass(seconds) => world.pass(Duration::from_secs(*seconds)),
        }
        let trials = places.iter().filter(|place| place.visit.passage.host_trial.is_some()).count();
        let held: Vec<_> =
            places.iter().filter_map(|p| p.visit.passage.host_trial.as_ref()).collect();
        let current = held
            .iter()
            .filter(|t| Some(t.held_until) == world.selector.host_pause("e.org"))
            .count();
        prop_assert!(current <= 1, "{} trials, of which {} hold the pause", trials, current);
    }
    // Once everything in flight is dropped, no visit waits for it.
    drop(places);
    let mut visit = world.visit("/after");
    match visit.next() {
        Step::Fetch(_) | Step::End(_) => Ok(()),
        Step::Wait(wait) => Err(TestCaseError::fail(format!("waits for nobody: {wait:?}"))),
    }
}

proptest! {
    #[test]
    fn any_interleaving_of_visits_of_one_host_keeps_the_invariants(events in prop::collection::vec(event(), 1..150)) {
        check(&events)?;
    }

    #[test]
    fn the_same_answers_at_the_same_times_lead_to_the_same_steps(
        script in prop::collection::vec((0..9usize, 0..2000u64), 1..40),
    ) {
        let outcomes = [
            Outcome::Content,
            Outcome::Blocked(Block::challenge()),
            Outcome::Empty,
            Outcome::Timeout,
            Outcome::Network,
            Outcome::Http(404),
            Outcome::Http(429),
            Outcome::Http(500),
            Outcome::Shell { framework: None },
        ];
        let run = || {
            let world = World::new();
            let mut script = script.iter();
            for n in 0.. {
                let mut visit = world.visit(&format!("/{n}"));
                loop {
                    match visit.next() {
                        Step::Fetch(fetch) => {
                            let Some((outcome, seconds)) = script.next() else { return world.attempts() };
                            world.pass(Duration::from_secs(*seconds));
                            visit.report(fetch, outcomes[*outcome].clone());
                        }
                        Step::Wait(_) => unreachable!("there is one visit at a time"),
                        Step::End(end) => {
                            if let VisitOutcome::Paused { until, .. } = end.how {
                                world.clock.set(until);
                            }
                            break;
                        }
                    }
                }
            }
            unreachable!("the script ends")
        };
        let plain = |attempts: Vec<Attempt>| -> Vec<Attempt> {
            attempts.into_iter().map(|attempt| Attempt { id: uuid::Uuid::nil(), ..attempt }).collect()
        };
        prop_assert_eq!(plain(run()), plain(run()));
    }
}

#[test]
fn the_reach_of_a_block_is_a_setting() {
    let visits = VisitSettings { escalate_after_block: false, ..VisitSettings::default() };
    let world = World::with(|builder| builder.visits(visits));
    let (asked, end) = world.run("/a", &[Outcome::Blocked(Block::challenge()).into()]);
    assert_eq!((asked.len(), end.how), (1, failed(ErrorKind::BlockedCaptcha)));
}

/// Returns a block whose page shows this vendor.
fn blocked_by(vendor: &str) -> FetchResult {
    let mut answer = FetchResult::from(Outcome::Blocked(Block::challenge()));
    answer.heuristics.push(Heuristic::flag(format!("block_{vendor}")));
    answer
}

/// Records this vendor on sixty other hosts, and each fetcher there afterwards: those in `passes`
/// get past at one host in `one_in`.
fn block_other_hosts(world: &World, vendor: &str, passes: &[&str], one_in: usize) {
    for host in 0..60 {
        for (n, name) in ["direct_access", "direct_access", "playwright", "playwright_stealth"]
            .into_iter()
            .enumerate()
        {
            let url = Url::parse(&format!("https://{vendor}{host}.net/{n}")).unwrap();
            let attempt = Attempt::new(&url, name, BEGIN).unwrap();
            let attempt = match passes.contains(&name) && host % one_in == 0 {
                true => attempt.delivered(),
                false => {
                    let mut attempt = attempt.failed(ErrorKind::BlockedCaptcha);
                    attempt.heuristics.push(Heuristic::flag(format!("block_{vendor}")).into());
                    attempt
                }
            };
            world.selector.record(attempt, BEGIN).unwrap();
        }
    }
}

/// Records many hosts without a block, so that the plain fetcher goes first.
fn deliver_other_hosts(world: &World) {
    for n in 0..2000 {
        let url = Url::parse(&format!("https://open{}.net/{n}", n % 200)).unwrap();
        world
            .selector
            .record(Attempt::new(&url, "direct_access", BEGIN).unwrap().delivered(), BEGIN)
            .unwrap();
    }
}

fn signal_tags(attempt: &Attempt, kind: &str) -> Vec<String> {
    let tags = attempt.heuristics.iter().filter(|tag| tag.heuristic.kind == kind);
    tags.map(|tag| tag.heuristic.value.to_string()).collect()
}

#[test]
fn the_vendor_of_a_block_counts_for_the_next_step_of_the_same_visit() {
    let world = World::new();
    deliver_other_hosts(&world);
    block_other_hosts(&world, "tarpit", &["playwright"], 1);
    block_other_hosts(&world, "gate", &["playwright_stealth"], 1);
    let (asked, _) = world.run("/a", &[blocked_by("tarpit"), Outcome::Content.into()]);
    assert_eq!(
        asked,
        ["direct_access", "playwright"],
        "a browser gets past this vendor on other hosts"
    );
    let other =
        Visit::new(Arc::clone(&world.selector), Url::parse("https://f.org/").unwrap()).unwrap();
    let (asked, _) = drive(other, &[blocked_by("gate"), Outcome::Content.into()]);
    assert_eq!(asked, ["direct_access", "playwright_stealth"], "and stealth gets past that one");
}

#[test]
fn an_attempt_has_the_earlier_signals_of_its_host_and_the_new_ones() {
    let world = World::new();
    world.run("/a", &[blocked_by("gate"), Outcome::Content.into()]);
    world.run("/b", &[blocked_by("shield"), Outcome::Content.into()]);
    let made = world.attempts();
    let of = |kind| made.iter().map(|attempt| signal_tags(attempt, kind)).collect::<Vec<_>>();
    assert_eq!(of("host_shows")[0], ["block_gate"]);
    let showed = of("host_showed");
    assert!(
        showed[0].is_empty(),
        "the attempt that shows the signal does not have it as an earlier one"
    );
    assert!(showed[1..].iter().all(|names| !names.is_empty()));
    assert!(showed[1] == ["block_gate"], "{showed:?}");
    let url = Url::parse("https://www.app.e.org/").unwrap();
    let context = crate::selector::SelectContext::first_attempt(world.clock.now());
    let shown = world.selector.explain(&url, &context).unwrap().shown;
    assert_eq!(shown.len(), 1, "a host without a vendor signal has that of its site: {shown:?}");
}

#[test]
fn no_request_is_made_and_the_link_pauses_if_no_fetcher_gets_past_a_vendor() {
    let world = World::new();
    block_other_hosts(&world, "fortress", &[], 1);
    world.run("/first", &[blocked_by("fortress")]);
    world.pass(Duration::from_secs(86_400));
    let visit = |n| {
        world.pass(Duration::from_secs(7200));
        world.run(&format!("/p{n}"), &[blocked_by("fortress")]).1
    };
    let ends: Vec<End> = (0..200).map(visit).collect();
    let given_up: Vec<&End> =
        ends.iter().filter(|end| matches!(end.how, VisitOutcome::NoViableFetcher { .. })).collect();
    assert!(
        (150..200).contains(&given_up.len()),
        "one in twenty is tried anyway: {}",
        given_up.len()
    );
    for end in given_up {
        assert_eq!(end.how, VisitOutcome::NoViableFetcher { vendor: "block_fortress".to_owned() });
        assert_eq!(end.requests, 0);
        assert!(end.paused_until.is_some(), "{end:?}");
        assert!(
            end.message.contains("fortress") && end.message.contains("one URL in 20"),
            "{}",
            end.message
        );
    }
    let tried = world
        .attempts()
        .into_iter()
        .filter(|attempt| attempt.rule.as_deref() == Some("impassable_try"));
    assert!(tried.inspect(|attempt| assert_eq!(attempt.propensity, Some(0.05))).count() > 0);
}

#[test]
fn a_block_by_an_unknown_or_passable_vendor_always_gets_a_request() {
    let world = World::new();
    block_other_hosts(&world, "mixed", &["playwright_stealth"], 2);
    let nameless = FetchResult::from(Outcome::Blocked(Block::challenge()));
    for (place, answer) in [blocked_by("mixed"), nameless].into_iter().enumerate() {
        for host in 0..30 {
            let url = Url::parse(&format!("https://new{place}-{host}.org/")).unwrap();
            let mut seen = Attempt::new(&url, "direct_access", BEGIN)
                .unwrap()
                .failed(ErrorKind::BlockedCaptcha);
            seen.heuristics.extend(answer.heuristics.iter().cloned().map(Tag::from));
            world.selector.record(seen, BEGIN).unwrap();
            let visit = Visit::new(Arc::clone(&world.selector), url).unwrap();
            let (asked, end) = drive(visit, std::slice::from_ref(&answer));
            assert!(!asked.is_empty() && end.how == failed(ErrorKind::BlockedCaptcha), "{end:?}");
        }
    }
}

/// Visits `path`. The plain fetcher gets a page with the SimHash `plain`, or fails if `None`; those
/// that render get another page.
fn run_by_fetcher(world: &World, path: &str, plain: Option<u64>, rendered: Option<u64>) -> End {
    let mut visit = world.visit(path);
    loop {
        match visit.next() {
            Step::Fetch(fetch) => {
                let answer = match (fetch.fetcher(), plain) {
                    ("direct_access", Some(_)) => content(plain),
                    ("direct_access", None) => Outcome::Blocked(Block::refusal()).into(),
                    _ => content(rendered),
                };
                visit.report(fetch, answer);
            }
            Step::Wait(wait) => panic!("there is no other visit to wait for: {wait:?}"),
            Step::End(end) => return end,
        }
    }
}

/// Returns the repeated-page tags of the plain fetcher's attempts, by URL.
fn repeated_page_tags(world: &World) -> Vec<(String, String, Option<String>)> {
    let of_plain =
        world.attempts().into_iter().filter(|attempt| attempt.fetcher == "direct_access");
    let said = of_plain.filter_map(|attempt| {
        let tag = attempt
            .heuristics
            .iter()
            .find(|tag| tag.heuristic.kind == fetchwise_types::heuristic::SAME_PAGE_AGAIN)?;
        let error = attempt.error_type.as_ref().map(|error| error.name().to_owned());
        Some((attempt.url.clone(), tag.heuristic.value.to_string(), error))
    });
    said.collect()
}

const SKETCH: u64 = 0x5555_3333_0f0f_00ff;

#[test]
fn a_page_for_several_addresses_is_a_block_once_another_fetcher_got_a_different_one() {
    let world = World::new();
    run_by_fetcher(&world, "/1", Some(SKETCH), None);
    run_by_fetcher(&world, "/2", Some(SKETCH), None);
    assert!(repeated_page_tags(&world).is_empty(), "two addresses are not a pattern");
    // The plain fetcher fails for an address for which it got the page, and a browser gets
    // something else.
    run_by_fetcher(&world, "/2", None, None);
    run_by_fetcher(&world, "/3", Some(SKETCH ^ 1), None);
    let said = repeated_page_tags(&world);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].0.ends_with("/3") && said[0].1 == "blocked", "{said:?}");
    assert_eq!(said[0].2.as_deref(), Some("blocked_403"));
    let last = world.attempts().pop().unwrap();
    assert!(
        last.fetcher != "direct_access" && last.success,
        "another fetcher got the page: {last:?}"
    );
}

#[test]
fn a_stub_that_every_fetcher_gets_stays_content() {
    let world = World::new();
    for n in 0..6 {
        run_by_fetcher(&world, &format!("/{n}"), Some(SKETCH), Some(SKETCH));
    }
    // Fetchers agree on one address; on another one, a browser has reached a page that the plain
    // fetcher has not.
    run_by_fetcher(&world, "/2", None, Some(SKETCH));
    run_by_fetcher(&world, "/far", None, None);
    run_by_fetcher(&world, "/7", Some(SKETCH), Some(SKETCH));
    let said = repeated_page_tags(&world);
    assert!(
        said.len() >= 4 && said.iter().all(|(_, value, error)| value == "true" && error.is_none()),
        "{said:?}"
    );
}

#[test]
fn a_refused_connection_is_not_tried_by_a_browser() {
    let world = World::new();
    let mut refused = FetchResult::from(Outcome::Network);
    refused.is_refused = true;
    let (asked, end) = world.run("/a", &[refused.clone(), refused]);
    assert_eq!(
        (asked, end.how),
        (vec!["direct_access".to_owned(); 2], failed(ErrorKind::NetworkError))
    );
    let (asked, _) = World::new()
        .run("/a", &[Outcome::Network.into(), Outcome::Network.into(), Outcome::Content.into()]);
    assert_eq!(
        asked,
        ["direct_access", "direct_access", "playwright"],
        "a broken connection may be about the fetcher"
    );
}

#[test]
fn an_error_of_tls_that_another_client_may_not_have_goes_to_another_fetcher() {
    let of_client = || {
        let mut failed = FetchResult::from(Outcome::Tls);
        failed.is_of_client = true;
        failed
    };
    let world = World::new();
    let (asked, end) = world.run("/a", &[of_client(), Outcome::Content.into()]);
    assert_eq!(
        (&*asked, end.how),
        (&["direct_access".to_owned(), "playwright".to_owned()][..], VisitOutcome::Delivered)
    );
    let failures: f64 = world
        .attempts()
        .iter()
        .filter(|attempt| !attempt.success)
        .map(|attempt| attempt.weight)
        .sum();
    assert_eq!(failures, 0.0, "the plain fetcher is not to blame, on no site");
    // The browser's own word on the certificate is final.
    let (asked, end) = World::new().run("/a", &[of_client(), Outcome::Tls.into()]);
    assert_eq!((asked.len(), end.how), (2, failed(ErrorKind::TlsError)));
    let (asked, end) = World::new().run("/a", &[Outcome::Tls.into()]);
    assert_eq!(
        (asked.len(), end.how),
        (1, failed(ErrorKind::TlsError)),
        "over, or another host's: so for all clients"
    );
}

#[test]
fn a_page_that_a_browser_does_not_wait_for_is_followed_once() {
    let to = |to: &str| FetchResult::from(Outcome::Redirect { to: to.into() });
    let world = World::new();
    let mut visit = world.visit("/a").prefer("playwright").unwrap();
    let first = fetch(&mut visit);
    assert_eq!(first.fetcher(), "playwright");
    visit.report(first, to("/next"));
    let second = fetch(&mut visit);
    assert_eq!((second.fetcher(), visit.url().path()), ("playwright", "/next"));
    visit.report(second, to("/again"));
    assert!(
        !matches!(visit.next(), Step::Fetch(fetch) if fetch.redirected_to().is_some()),
        "it may come each time"
    );
}

#[test]
fn a_probe_that_hangs_holds_back_no_other_visit() {
    let world = World::new();
    let (mut a, mut b) = (world.visit("/a"), world.visit("/b"));
    let probe = fetch(&mut a);
    assert_eq!(why(b.next()), WaitReason::Probe);
    a.report(probe, Outcome::Timeout);
    let retry = fetch(&mut a);
    assert!(!retry.is_probe());
    let other = fetch(&mut b);
    assert!(other.is_probe(), "the next visit probes while the retry is in flight");
    b.report(other, Outcome::Content);
    assert_eq!(ended(b.next()), VisitOutcome::Delivered);
}

#[test]
#[cfg(feature = "journal")]
fn complete_short_pages_of_a_host_outlive_the_process() {
    let short = |hash| with_short(ShortPage::new(40, hash));
    let world = World::new();
    assert!(world.run("/a", &[short(1), short(1)]).1.is_delivered());
    let next = World::new();
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) =
        crate::journal::Journal::open(dir.path(), crate::journal::JournalOptions::default())
            .unwrap();
    for attempt in world.attempts() {
        journal.append_attempt(&attempt).unwrap();
    }
    journal.close().unwrap();
    crate::journal::load(dir.path(), &next.selector, BEGIN).unwrap();
    let (asked, end) = next.run("/b", &[short(2)]);
    assert_eq!((asked, end.is_delivered()), (vec!["direct_access".to_owned()], true));
}

#[test]
fn a_304_moves_no_measured_cost() {
    let costs_after = |outcome: Outcome| {
        let measured =
            |name: &str| FetcherSpec { measures_cost: true, ..FetcherSpec::by_name(name) };
        let builder =
            Selector::builder().without_pace().around(BEGIN).clock(Arc::new(Clock::fixed(BEGIN)));
        let builder = builder.fetcher(measured("direct_access")).fetcher(measured("playwright"));
        let selector = Arc::new(builder.build().unwrap());
        // A host each: one alone has little say in what is common to all.
        let run = |name: &str, host: usize, outcome: &Outcome, ms| {
            let url = Url::parse(&format!("https://h{host}.org/a")).unwrap();
            let visit = Visit::new(Arc::clone(&selector), url).unwrap().prefer(name).unwrap();
            drive(
                visit,
                &[FetchResult::from(outcome.clone()).with_duration(Duration::from_millis(ms))],
            )
        };
        let costs = || {
            let url = Url::parse("https://h0.org/b").unwrap();
            let context = crate::selector::SelectContext {
                now: BEGIN,
                ..crate::selector::SelectContext::default()
            };
            let candidates = selector.explain(&url, &context).unwrap().candidates;
            candidates
                .into_iter()
                .map(|candidate| (candidate.fetcher.clone(), candidate.cost))
                .collect::<Vec<_>>()
        };
        for n in 0..20 {
            run("direct_access", n, &Outcome::Content, 100);
            run("playwright", n, &Outcome::Content, 1_000);
        }
        let before = costs();
        assert_ne!(before[1].1, 20.0, "it is measured: {before:?}");
        (0..20).for_each(|n| drop(run("direct_access", n, &outcome, 1)));
        (before, costs())
    };
    let (before, after) = costs_after(Outcome::NotModified);
    assert_eq!(before, after);
    let (before, after) = costs_after(Outcome::Content);
    assert_ne!(before, after, "a page does");
}
