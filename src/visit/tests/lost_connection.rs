//! A connection of this machine that carries nothing: no site, fetcher or link has to pay for it.

use super::*;

const SITES: usize = 8;

fn page(world: &World, site: usize) -> Own {
    world.visit(&format!("https://site{site}.org/"))
}

fn silence() -> FetchResult {
    FetchResult::from(Outcome::Timeout)
}

fn answer() -> FetchResult {
    let mut result = FetchResult::from(Outcome::Content);
    result.status = Some(200);
    result
}

/// Sends a request of each site, as a crawl of several sites has them in flight.
fn send(world: &World) -> Vec<(Own, Fetch<Arc<Selector>>)> {
    let begin = |site| {
        let mut visit = page(world, site);
        let sent = fetch(&mut visit);
        (visit, sent)
    };
    (0..SITES).map(begin).collect()
}

fn wait_of(visit: &mut Own) -> Timestamp {
    match visit.next() {
        Step::Wait(wait) if wait.reason() == WaitReason::LocalFault => wait.until(),
        other => panic!("not a wait for the connection: {other:?}"),
    }
}

#[test]
fn what_no_site_answers_is_nobodys_fault_and_waits_until_one_does() {
    let world = World::new();
    for site in 0..SITES {
        assert!(page_is_delivered(&mut page(&world, site)));
    }
    let before = world.attempts().len();
    let mut visits = Vec::new();
    for (mut visit, sent) in send(&world) {
        visit.report(sent, silence());
        visits.push(visit);
    }
    assert_eq!(world.attempts().len(), before + 4, "those before the fifth are the sites'");
    assert_eq!(world.selector.connection_lost_since(), Some(world.clock.now()));
    // Those that are under way wait, and so does a visit that begins, whatever its site is.
    let next = world.clock.now().saturating_add(Duration::from_secs(5));
    assert!(visits[4..].iter_mut().all(|visit| wait_of(visit) == next));
    assert_eq!(wait_of(&mut page(&world, 99)), next);
    // One request goes out every five seconds, for as long as nothing comes.
    for _ in 0..100 {
        world.pass(Duration::from_secs(5));
        let sent = fetch(&mut visits[6]);
        let next = world.clock.now().saturating_add(Duration::from_secs(5));
        assert_eq!(wait_of(&mut visits[7]), next);
        visits[6].report(sent, silence());
        assert_eq!(wait_of(&mut visits[6]), next);
    }
    assert_eq!(world.attempts().len(), before + 4);
    // The first answer ends it for all.
    world.pass(Duration::from_secs(5));
    assert!(page_is_delivered(&mut visits.swap_remove(5)));
    assert_eq!(world.selector.connection_lost_since(), None);
    for visit in &mut visits {
        assert!(page_is_delivered(visit));
    }
}

/// Lets a visit have its page, if it may make a request.
fn page_is_delivered(visit: &mut Own) -> bool {
    let sent = fetch(visit);
    visit.report(sent, answer());
    matches!(visit.next(), Step::End(end) if end.how == VisitOutcome::Delivered)
}

#[test]
fn a_name_that_resolved_a_moment_ago_is_out_of_reach_and_another_one_is_wrong() {
    let unresolved = FetchResult::from(Outcome::Dns);
    let world = World::new();
    let (asked, end) = world.run("/", std::slice::from_ref(&unresolved));
    let unknown = ErrorType::Known(ErrorKind::DnsError);
    assert_eq!((asked.len(), end.how), (1, VisitOutcome::Failed(unknown)));
    let world = World::new();
    assert!(page_is_delivered(&mut page(&world, 0)));
    let mut visit = page(&world, 0);
    let sent = fetch(&mut visit);
    visit.report(sent, unresolved);
    assert!(page_is_delivered(&mut visit), "it passes");
    assert_eq!(world.attempts()[1].error_type, Some(ErrorType::Known(ErrorKind::NetworkError)));
}
