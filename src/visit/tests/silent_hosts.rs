//! A host that answers nothing: its links end without waiting for each other.

use super::*;
use fetchwise_pace::{Pace, PaceSettings};

fn world(more: &[&str]) -> World {
    World::with(|builder| {
        let more = more.iter().map(|name| FetcherSpec::by_name(name));
        more.fold(builder.pace(Pace::new(PaceSettings::default())), SelectorBuilder::fetcher)
    })
}

/// Runs a visit to its end, with `answer` to each request and the time of each wait. Returns the
/// fetchers that it asked.
fn run(world: &World, path: &str, answer: impl Fn(&str) -> FetchResult) -> (Vec<String>, End) {
    let (mut visit, mut asked) = (world.visit(path), Vec::new());
    loop {
        match visit.next() {
            Step::Fetch(fetch) => {
                let answer = answer(fetch.fetcher());
                asked.push(fetch.fetcher().to_owned());
                visit.report(fetch, answer);
            }
            Step::Wait(wait) => world.clock.set(wait.until()),
            Step::End(end) => return (asked, end),
        }
    }
}

fn refused(_: &str) -> FetchResult {
    let mut result = FetchResult::from(Outcome::Network);
    result.is_refused = true;
    result
}

fn page(_: &str) -> FetchResult {
    let mut result = FetchResult::from(Outcome::Content);
    result.status = Some(200);
    result
}

/// Forty links of a dead host took a quarter of an hour.
#[test]
fn links_of_a_host_that_nobody_has_heard_of_end_soon() {
    let world = world(&[]);
    let mut requests = 0;
    for link in 0..40 {
        let (asked, end) = run(&world, &format!("/{link}"), refused);
        assert_eq!(end.how, VisitOutcome::Failed(ErrorType::Known(ErrorKind::NetworkError)));
        requests += asked.len();
    }
    let took = world.clock.now().since(BEGIN);
    assert!(took < Duration::from_secs(60) && requests < 20, "{requests} requests in {took:?}");
    // Later it is asked again, and each link gets its page once it answers.
    world.pass(Duration::from_secs(300));
    for link in 0..9 {
        let (asked, end) = run(&world, &format!("/again/{link}"), page);
        assert_eq!((asked.len(), end.how), (1, VisitOutcome::Delivered), "{asked:?}");
    }
}

#[test]
fn an_archive_may_have_the_pages_of_a_host_that_is_gone() {
    let world = world(&["archive_proxy"]);
    let ask = |fetcher: &str| match fetcher {
        "archive_proxy" => FetchResult::from(Outcome::NotHeld),
        other => refused(other),
    };
    (0..10).for_each(|link| _ = run(&world, &format!("/{link}"), ask));
    let (asked, end) = run(&world, "/old", page);
    assert_eq!((asked, end.how), (vec!["archive_proxy".to_owned()], VisitOutcome::Delivered));
}

#[test]
fn a_host_that_answered_a_moment_ago_is_waited_for() {
    let world = world(&[]);
    assert_eq!(run(&world, "/", page).1.how, VisitOutcome::Delivered);
    for link in 0..9 {
        let (asked, end) = run(&world, &format!("/{link}"), refused);
        // Its pace, which grows slower, may end a visit.
        let is_paused = matches!(end.how, VisitOutcome::Paused { .. });
        assert!(!asked.is_empty() || is_paused, "{link}: {end:?}");
    }
}
