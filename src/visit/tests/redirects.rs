//! Redirects to other hosts: the host at the end gets what its response says, and the one that
//! redirected does not.

use super::*;
use crate::selector::SelectContext;
use fetchwise_pace::{Pace, PaceMode, PaceSettings, Scope};
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::response::Header;

const TARGET: &str = "https://v.net/page";

fn target() -> Url {
    TARGET.parse().unwrap()
}

fn from_target(answer: impl Into<FetchResult>) -> FetchResult {
    answer.into().with_final_url(target())
}

fn limited() -> FetchResult {
    FetchResult::from(Outcome::Blocked(Block::refusal()))
        .with_status(429)
        .with_retry_after(Duration::from_secs(86_400))
}

fn block() -> FetchResult {
    FetchResult::from(Outcome::Blocked(Block::challenge())).with_status(403)
}

fn stub() -> FetchResult {
    FetchResult::from(Outcome::Redirect { to: TARGET.into() }).with_status(200)
}

/// Returns a redirect by status, as a client reports it that follows none.
fn unfollowed() -> FetchResult {
    let mut answer = FetchResult::from(Outcome::Http(302)).with_status(302);
    answer.headers = vec![Header::new("Location", TARGET)];
    answer
}

/// Returns the three ways in which a redirect reaches a visit, each ending with `answer`.
fn ways(answer: impl Into<FetchResult>) -> [(&'static str, Vec<FetchResult>); 3] {
    let answer = answer.into();
    [
        ("followed by the client", vec![from_target(answer.clone())]),
        ("in HTML", vec![stub(), answer.clone()]),
        ("by status, not followed", vec![unfollowed(), answer]),
    ]
}

fn weights(world: &World, domain: &str) -> (f64, f64) {
    let weights = world.selector.weights(
        ("domain", domain),
        ContentKind::Page,
        "direct_access",
        world.clock.now(),
    );
    (weights.total, weights.blocked)
}

#[test]
fn a_limit_at_the_end_of_a_redirect_pauses_the_host_that_set_it_and_the_link() {
    for (way, answers) in ways(limited()) {
        let world = World::new();
        let (_, end) = world.run("/a", &answers);
        let pause =
            |domain| world.selector.host_pause(domain).map(|until| until.since(BEGIN).as_secs());
        assert_eq!((pause("e.org"), pause("v.net")), (None, Some(86_400)), "{way}");
        assert!(end.paused_until.is_some(), "{way}: the link has its own pause");
        let (asked, _) = world.run("/b", &[FetchResult::from(Outcome::Content)]);
        assert_eq!(asked, ["direct_access"], "{way}: other links of the redirector go on");
        assert_eq!(world.sink.hosts.lock().unwrap().len(), 1, "{way}");
    }
}

#[test]
fn blocks_at_the_end_of_redirects_pause_and_teach_the_host_that_blocked() {
    for (way, answers) in ways(block()) {
        let world = World::with(|b| {
            b.visits(VisitSettings { escalate_after_block: false, ..VisitSettings::default() })
        });
        for path in ["/a", "/b", "/c"] {
            world.run(path, &answers);
        }
        assert_eq!(world.selector.host_pause("e.org"), None, "{way}");
        assert!(world.selector.host_pause("v.net").is_some(), "{way}");
        assert_eq!(
            weights(&world, "e.org"),
            (0.0, 0.0),
            "{way}: the redirector has blocked nothing"
        );
        assert!(weights(&world, "v.net").1 > 2.9, "{way}");
    }
}

#[test]
fn an_attempt_names_both_hosts() {
    for (way, answers) in ways(Outcome::Content) {
        let world = World::new();
        world.run("/a.pdf", &answers);
        let attempts = world.attempts();
        let [attempt] = attempts.as_slice() else { panic!("{way}: {attempts:?}") };
        let tag = |kind| attempt.heuristic(kind);
        assert_eq!(
            (attempt.url.as_str(), attempt.link.as_str()),
            ("https://e.org/a.pdf", "https://e.org/a.pdf")
        );
        assert_eq!(
            (tag("domain"), tag("site"), tag("suffix"), tag("domain_path"), tag("redirected_by")),
            (Some("v.net"), Some("v.net"), None, Some("v.net|page"), Some("e.org")),
            "{way}"
        );
        assert!(
            weights(&world, "v.net").0 > 0.9,
            "{way}: it counts as a page, as the URL that responded is"
        );
    }
}

#[test]
fn a_redirect_within_a_host_changes_nothing() {
    let world = World::new();
    let there: Url = "https://www.e.org/deeper/b".parse().unwrap();
    world.run("/a", &[FetchResult::from(Outcome::Content).with_final_url(there)]);
    let attempts = world.attempts();
    assert_eq!(
        (attempts[0].heuristic("domain"), attempts[0].heuristic("redirected_by")),
        (Some("e.org"), None)
    );
    assert_eq!(attempts[0].heuristic("domain_path"), Some("e.org|a"));
}

#[test]
fn a_failed_request_counts_at_the_host_where_it_stood() {
    let world = World::new();
    world.run("/a", &[from_target(ErrorKind::Timeout), from_target(ErrorKind::Timeout)]);
    assert_eq!(weights(&world, "e.org").0, 0.0);
    assert!(weights(&world, "v.net").0 > 0.0);
}

#[test]
fn a_redirect_to_a_paused_host_is_not_followed() {
    let world = World::new();
    world.selector.set_host_pause("v.net", Some(BEGIN.saturating_add(Duration::from_secs(600))));
    for answers in [[stub()], [unfollowed()]] {
        let (asked, end) = world.run("/a", &answers);
        assert_eq!(asked.len(), 1, "only the redirector was asked");
        assert!(matches!(end.how, VisitOutcome::Paused { whom: WaitScope::Host, .. }), "{end:?}");
        assert!(end.message.contains("v.net"), "{}", end.message);
        assert_eq!((end.requests, world.attempts().len()), (0, 0));
    }
}

#[test]
fn a_target_whose_pause_is_over_gets_one_trial_and_the_redirector_is_not_on_trial() {
    let world = World::new();
    world.selector.set_host_pause("v.net", Some(BEGIN));
    world.pass(Duration::from_secs(1));
    let (mut a, mut b) = (world.visit("/a"), world.visit("/b"));
    let fetch_a = fetch(&mut a);
    a.report(fetch_a, stub());
    let trial = fetch(&mut a);
    // The leader of the redirector's probe is still under way.
    assert_eq!(why(b.next()), WaitReason::Probe);
    a.report(trial, block());
    assert!(
        world.selector.host_pause("v.net").unwrap() > world.clock.now(),
        "the trial was blocked"
    );
    assert_eq!(world.selector.host_pause("e.org"), None);
}

#[test]
fn a_redirect_ends_the_trial_of_the_host_that_sent_it() {
    for (way, answers) in ways(limited()) {
        let world = World::new();
        world.selector.set_host_pause("e.org", Some(BEGIN));
        world.pass(Duration::from_secs(1));
        world.run("/a", &answers);
        assert_eq!(world.selector.host_pause("e.org"), None, "{way}: it serves again");
        assert!(world.selector.host_pause("v.net").is_some(), "{way}");
    }
}

#[test]
fn after_a_failure_behind_a_redirect_the_evidence_of_that_host_decides() {
    let world = World::new();
    let url = target();
    for _ in 0..8 {
        let attempt = Attempt::new(&url, "playwright_stealth", BEGIN).unwrap();
        world.selector.record(attempt.delivered(), BEGIN).unwrap();
        let attempt = Attempt::new(&url, "playwright", BEGIN).unwrap();
        world.selector.record(attempt.failed(ErrorKind::BlockedCaptcha), BEGIN).unwrap();
    }
    let (asked, end) = world.run("/a", &[from_target(block()), from_target(Outcome::Content)]);
    assert_eq!(asked, ["direct_access", "playwright_stealth"]);
    assert!(end.is_delivered());
}

#[test]
fn each_host_of_a_chain_has_its_own_pace() {
    let settings =
        PaceSettings { mode: PaceMode::Fixed, initial_rate: 1.0, ..PaceSettings::default() };
    for (way, answers) in ways(limited()) {
        let world = World::with(|builder| builder.pace(Pace::new(settings.clone())));
        world.run("/a", &answers);
        let pace = world.selector.pace().unwrap();
        let held = |host| pace.hold(Scope::host(host), world.clock.now()).is_some();
        assert_eq!((held("e.org"), held("v.net")), (false, true), "{way}");
        assert!(
            pace.has_delivered("e.org", None, world.clock.now()),
            "{way}: it has served the redirect"
        );
        assert!(!pace.has_delivered("v.net", None, world.clock.now()), "{way}");
        assert!(
            world
                .selector
                .select(&target(), &SelectContext::first_attempt(world.clock.now()))
                .is_ok()
        );
    }
}
