//! A proxy that fails: a link without another fetcher waits for it.

use super::*;

/// A selector with fetchers, of which one has a proxy that is up from the given second on.
struct ProxyWorld(World);

impl ProxyWorld {
    fn new(fetchers: &[&str]) -> Self {
        let clock = Arc::new(Clock::fixed(BEGIN));
        let builder = Selector::builder().without_pace().around(BEGIN).clock(Arc::clone(&clock));
        let fetchers = fetchers.iter().map(|name| FetcherSpec::by_name(name));
        let builder = fetchers.fold(builder, SelectorBuilder::fetcher);
        let selector = Arc::new(builder.build().unwrap());
        Self(World { selector, clock, sink: RecordingSink::default() })
    }

    /// Runs a visit while the proxy is down until then. Returns its end, and the time it took.
    fn run(&self, path: &str, up_at: u64) -> (VisitOutcome, Duration) {
        let (mut visit, begun) = (self.0.visit(path), self.0.clock.now());
        loop {
            match visit.next() {
                Step::Fetch(fetch) => {
                    let is_up = self.0.clock.now().since(BEGIN).as_secs() >= up_at;
                    let mut result =
                        FetchResult::from(if is_up { Outcome::Content } else { Outcome::Proxy });
                    result.status = is_up.then_some(200);
                    visit.report(fetch, result);
                }
                Step::Wait(wait) => {
                    assert_eq!(wait.reason(), WaitReason::LocalFault);
                    self.0.clock.set(wait.until());
                }
                Step::End(end) => return (end.how, self.0.clock.now().since(begun)),
            }
        }
    }
}

/// A proxy that was down for twenty seconds cost every link that was left.
#[test]
fn a_link_waits_for_the_proxy_that_is_its_only_way() {
    let world = ProxyWorld::new(&["by_proxy"]);
    let failed = VisitOutcome::Failed(ErrorType::Known(ErrorKind::ProxyError));
    // One that never passed anything is likely a mistake.
    assert_eq!(world.run("/first", 1000), (failed.clone(), Duration::from_secs(21)));
    assert_eq!(world.run("/a", 30), (VisitOutcome::Delivered, Duration::from_secs(21)));
    assert_eq!(world.0.selector.connection_lost_since(), None);
    // One that has passed others is waited for longer.
    let (how, took) = world.run("/b", 300);
    assert!(how == VisitOutcome::Delivered && took > Duration::from_secs(250), "{how:?} {took:?}");
    let (how, took) = world.run("/c", 10_000);
    assert!(how == failed && took < Duration::from_secs(920), "{how:?} {took:?}");
}

#[test]
fn a_link_with_another_fetcher_waits_for_no_proxy() {
    let world = World::new();
    let proxy = FetchResult::from(Outcome::Proxy);
    let (asked, end) = world.run("/", &[proxy, FetchResult::from(Outcome::Content)]);
    assert_eq!((asked.len(), end.how), (2, VisitOutcome::Delivered), "{asked:?}");
}

/// A service that gets past the blocks of a site is waited for, if there ever was one.
#[test]
fn a_link_that_is_blocked_waits_for_the_service_that_has_passed_others() {
    let ProxyWorld(world) = ProxyWorld::new(&["direct_access", "playwright_stealth"]);
    let (blocked, down) =
        (FetchResult::from(Outcome::Http(403)), FetchResult::from(Outcome::Proxy));
    let mut page = FetchResult::from(Outcome::Content);
    page.status = Some(200);
    // The last fetcher of a visit is the service.
    let run = |path: &str, service: &[FetchResult]| {
        let (mut visit, mut turn) = (world.visit(path), 0);
        loop {
            match visit.next() {
                Step::Fetch(fetch) if fetch.fetcher() == "playwright_stealth" => {
                    visit.report(fetch, service[turn.min(service.len() - 1)].clone());
                    turn += 1;
                }
                Step::Fetch(fetch) => visit.report(fetch, blocked.clone()),
                Step::Wait(wait) => world.clock.set(wait.until()),
                Step::End(end) => return (end.how, turn),
            }
        }
    };
    let refused = VisitOutcome::Failed(ErrorType::Known(ErrorKind::Blocked403));
    assert_eq!(
        run("https://a.org/", std::slice::from_ref(&down)),
        (refused, 1),
        "there may be none"
    );
    assert_eq!(run("https://b.org/", std::slice::from_ref(&page)), (VisitOutcome::Delivered, 1));
    assert_eq!(run("https://c.org/", &[down.clone(), down, page]), (VisitOutcome::Delivered, 3));
}
