//! Tests of the rules of pace through its public API, one per rule.

mod noise;

use std::time::Duration;

use super::*;
use fetchwise_types::registry::FetcherId;

const FETCHER: FetcherId = FetcherId(0);

/// A host under a pace, with a clock.
struct Crawl {
    pace: Pace,
    now: i64,
}

impl Crawl {
    fn new(settings: PaceSettings) -> Self {
        Self { pace: Pace::new(settings), now: 1_790_000_000_000 }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Waits until a request to `host` may go out.
    fn permit(&mut self, host: &str) -> Permit {
        loop {
            match self.pace.admit(Scope::host(host), Cost::Plain, self.at()) {
                Admit::Go(permit) => return permit,
                Admit::Wait(until) => {
                    assert!(until > self.at(), "a wait that is over");
                    self.now = until.as_millis();
                }
                Admit::AtCapacity => panic!("{host} is full"),
            }
        }
    }

    fn respond(&mut self, permit: Permit, response: Response) -> ResponseEffect {
        self.pace.record_response(permit, &response, self.at())
    }

    /// Sends `count` requests one after the other, each with a good response after 100 ms.
    fn good(&mut self, host: &str, count: usize) {
        for _ in 0..count {
            let permit = self.permit(host);
            self.now += 100;
            let response = Response {
                latency: Some(Duration::from_millis(100)),
                ..Response::new(Signal::Content, FETCHER)
            };
            assert_eq!(self.respond(permit, response), ResponseEffect::Nothing);
        }
    }

    fn explain(&self, host: &str) -> PaceExplanation {
        self.pace.explain(host, self.at()).unwrap()
    }
}

#[test]
fn a_host_starts_at_two_requests_per_second_and_doubles_in_ten_seconds() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let begin = crawl.now;
    while crawl.now < begin + 10_500 {
        crawl.good("a.org", 1);
    }
    let rate = crawl.explain("a.org").rate;
    assert!((3.3..4.3).contains(&rate), "{rate}");
}

#[test]
fn a_429_holds_the_host_and_sixteen_parallel_ones_are_one_limit_hit() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 100);
    let mut permits = Vec::new();
    while permits.len() < 3 {
        match crawl.pace.admit(Scope::host("a.org"), Cost::Plain, crawl.at()) {
            Admit::Go(permit) => permits.push(permit),
            Admit::Wait(until) => crawl.now = until.as_millis(),
            Admit::AtCapacity => break,
        }
    }
    assert!(permits.len() > 1);
    let limited = Response {
        retry_after: Some(Duration::from_secs(60)),
        ..Response::new(Signal::Limited, FETCHER)
    };
    let done: Vec<ResponseEffect> =
        permits.drain(..).map(|permit| crawl.respond(permit, limited)).collect();
    assert!(matches!(done[0], ResponseEffect::LimitHit { level: Level::Host, .. }), "{done:?}");
    assert!(
        done[1..].iter().all(|done| matches!(done, ResponseEffect::Refused { .. })),
        "{done:?}"
    );
    let limit_hit_at = crawl.now;
    let trial = crawl.permit("a.org");
    assert_eq!(crawl.now, limit_hit_at + 61_000, "the hold is what was asked for and a second");
    assert_eq!(
        crawl.pace.admit(
            Scope::host("a.org"),
            Cost::Plain,
            Timestamp::from_millis(crawl.now + 9000)
        ),
        Admit::AtCapacity
    );
    assert_eq!(
        crawl.respond(trial, Response::new(Signal::Content, FETCHER)),
        ResponseEffect::Nothing
    );
    crawl.good("a.org", 10);
}

#[test]
fn the_time_until_the_next_success_after_a_429_reveals_the_window() {
    for (blocked, window, held) in [(0, "10 s", 11_000), (1, "1 min", 30_000)] {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 40);
        let permit = crawl.permit("a.org");
        let begin = crawl.now;
        assert!(matches!(
            crawl.respond(permit, Response::new(Signal::Limited, FETCHER)),
            ResponseEffect::LimitHit { .. }
        ));
        for _ in 0..blocked {
            let trial = crawl.permit("a.org");
            assert!(matches!(
                crawl.respond(trial, Response::new(Signal::Limited, FETCHER)),
                ResponseEffect::LimitHit { .. }
            ));
        }
        let trial = crawl.permit("a.org");
        assert_eq!(crawl.now - begin, held);
        assert_eq!(
            crawl.respond(trial, Response::new(Signal::Content, FETCHER)),
            ResponseEffect::Nothing
        );
        assert_eq!(crawl.explain("a.org").ceiling.unwrap().1, window);
    }
}

#[test]
fn a_hold_lasts_as_long_as_the_host_refused_last_time() {
    let mut crawl = Crawl::new(PaceSettings::default());
    // A limit that closes for 200 s: when the trials went out after it had closed, in seconds.
    let mut closed = || {
        crawl.good("a.org", 60);
        let permit = crawl.permit("a.org");
        let begin = crawl.now;
        assert!(matches!(
            crawl.respond(permit, Response::new(Signal::Limited, FETCHER)),
            ResponseEffect::LimitHit { .. }
        ));
        let mut trials = Vec::new();
        loop {
            let trial = crawl.permit("a.org");
            trials.push((crawl.now - begin) / 1000);
            if crawl.now - begin >= 200_000 {
                assert_eq!(
                    crawl.respond(trial, Response::new(Signal::Content, FETCHER)),
                    ResponseEffect::Nothing
                );
                return trials;
            }
            assert!(matches!(
                crawl.respond(trial, Response::new(Signal::Limited, FETCHER)),
                ResponseEffect::LimitHit { .. }
            ));
        }
    };
    let (first, second) = (closed(), closed());
    let penalty = *first.last().unwrap();
    assert!(
        second.len() <= 2 && *second.last().unwrap() <= penalty + penalty / 40 + 1,
        "{first:?} {second:?}"
    );
}

#[test]
fn a_single_block_is_a_doubt_that_another_url_decides() {
    let block = Response::new(Signal::Block, FETCHER);
    for (second, verdict) in
        [(Signal::Content, DoubtVerdict::Page), (Signal::Block, DoubtVerdict::Pace)]
    {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 50);
        let permit = crawl.permit("a.org");
        let ResponseEffect::Doubt { hold_until, doubt } = crawl.respond(permit, block) else {
            panic!("no doubt")
        };
        assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), DoubtVerdict::Pending);
        let trial = crawl.permit("a.org");
        assert_eq!(crawl.at(), hold_until);
        let done = crawl.respond(trial, Response::new(second, FETCHER));
        assert_eq!(
            matches!(done, ResponseEffect::LimitHit { .. }),
            verdict == DoubtVerdict::Pace,
            "{done:?}"
        );
        assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), verdict);
    }
}

#[test]
fn a_block_of_a_fetcher_without_recent_success_concerns_that_fetcher() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 50);
    let permit = crawl.permit("a.org");
    assert_eq!(
        crawl.respond(permit, Response::new(Signal::Block, FetcherId(1))),
        ResponseEffect::Nothing
    );
}

#[test]
fn a_host_that_keeps_refusing_gets_ever_fewer_requests() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 100);
    let mut holds = Vec::new();
    for _ in 0..4 {
        let permit = crawl.permit("a.org");
        let begin = crawl.now;
        let ResponseEffect::LimitHit { hold_until, .. } =
            crawl.respond(permit, Response::new(Signal::Limited, FETCHER))
        else {
            panic!("no event")
        };
        holds.push((hold_until.as_millis() - begin) / 1000);
    }
    assert_eq!(holds, [11, 19, 28, 42]);
}

#[test]
fn occasional_errors_are_ignored_and_three_in_a_row_are_a_limit_hit() {
    let mut crawl = Crawl::new(PaceSettings::default());
    for _ in 0..40 {
        crawl.good("a.org", 25);
        let permit = crawl.permit("a.org");
        assert_eq!(
            crawl.respond(permit, Response::new(Signal::ServerError, FETCHER)),
            ResponseEffect::Nothing
        );
    }
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 25);
    let done: Vec<ResponseEffect> = (0..3)
        .map(|_| {
            let permit = crawl.permit("a.org");
            crawl.respond(permit, Response::new(Signal::Broken, FETCHER))
        })
        .collect();
    assert!(
        matches!(
            done[..],
            [ResponseEffect::Nothing, ResponseEffect::Nothing, ResponseEffect::LimitHit { .. }]
        ),
        "{done:?}"
    );
}

#[test]
fn a_limit_that_two_hosts_hit_in_turn_is_charged_to_their_site() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.example.org", 30);
    let permit = crawl.permit("a.example.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    assert!(
        matches!(done, ResponseEffect::LimitHit { level: Level::Host, .. }),
        "nobody else was asked: {done:?}"
    );
    let mut crawl = Crawl::new(PaceSettings::default());
    for _ in 0..30 {
        crawl.good("a.example.org", 1);
        crawl.good("b.example.org", 1);
    }
    let permit = crawl.permit("a.example.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    let ResponseEffect::LimitHit { hold_until, level: Level::Site } = done else {
        panic!("{done:?}")
    };
    assert_eq!(crawl.pace.hold(Scope::host("b.example.org"), crawl.at()), Some(hold_until));
    assert_eq!(crawl.pace.hold(Scope::host("b.example.com"), crawl.at()), None);
}

/// A site that had been blocked once counted every later block as one too soon after a hold: each
/// hold was half as long again as the last one.
#[test]
fn a_site_is_held_no_longer_when_it_is_blocked_again_later() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let mut holds = Vec::new();
    // A host that is blocked twice running would take the blame alone.
    for host in ["a.example.org", "b.example.org"].repeat(2) {
        for _ in 0..60 {
            crawl.good("a.example.org", 1);
            crawl.good("b.example.org", 1);
        }
        let permit = crawl.permit(host);
        crawl.now += 100;
        let begin = crawl.now;
        let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
        assert!(matches!(done, ResponseEffect::LimitHit { level: Level::Site, .. }), "{done:?}");
        let trial = crawl.permit("b.example.org");
        let _ = crawl.respond(trial, Response::new(Signal::Limited, FETCHER));
        crawl.good("b.example.org", 1);
        holds.push(crawl.now - begin);
    }
    assert!(holds.iter().all(|hold| *hold <= holds[0] * 11 / 10), "{holds:?}");
}

/// The doubt of the second host stayed open until the hold of the site was over. The page that came
/// then closed it as a block of that page, and later blocks of the site needed more proof.
#[test]
fn a_doubt_of_a_host_whose_site_is_blamed_meanwhile_is_about_the_pace() {
    let mut crawl = Crawl::new(PaceSettings::default());
    for _ in 0..30 {
        crawl.good("a.example.org", 1);
        crawl.good("b.example.org", 1);
    }
    let (a, b) = (crawl.permit("a.example.org"), crawl.permit("b.example.org"));
    let block = || Response::new(Signal::Block, FETCHER);
    let first = crawl.respond(a, block());
    assert!(matches!(first, ResponseEffect::Doubt { .. }), "{first:?}");
    let ResponseEffect::Doubt { doubt, .. } = crawl.respond(b, block()) else { panic!("no doubt") };
    let trial = crawl.permit("a.example.org");
    let done = crawl.respond(trial, block());
    assert!(matches!(done, ResponseEffect::LimitHit { level: Level::Site, .. }), "{done:?}");
    assert_eq!(crawl.pace.doubt_verdict("b.example.org", doubt, crawl.at()), DoubtVerdict::Pending);
    crawl.good("b.example.org", 1);
    assert_eq!(crawl.pace.doubt_verdict("b.example.org", doubt, crawl.at()), DoubtVerdict::Pace);
}

#[test]
fn sites_of_one_address_are_held_together_only_when_two_of_them_are_blocked() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let mut respond_at = |host: &'static str, signal: Signal| {
        let scope = Scope { address: Some("192.0.2.1"), ..Scope::host(host) };
        loop {
            match crawl.pace.admit(scope, Cost::Plain, crawl.at()) {
                Admit::Go(permit) => {
                    return crawl.pace.record_response(
                        permit,
                        &Response::new(signal, FETCHER),
                        crawl.at(),
                    );
                }
                Admit::Wait(until) => crawl.now = until.as_millis(),
                Admit::AtCapacity => panic!("full"),
            }
        }
    };
    for _ in 0..20 {
        for host in ["a.org", "b.org"] {
            assert_eq!(respond_at(host, Signal::Content), ResponseEffect::Nothing);
        }
    }
    let first = respond_at("a.org", Signal::Limited);
    assert!(matches!(first, ResponseEffect::LimitHit { level: Level::Host, .. }), "{first:?}");
    let second = respond_at("b.org", Signal::Limited);
    assert!(matches!(second, ResponseEffect::LimitHit { level: Level::Address, .. }), "{second:?}");
}

#[test]
fn a_crawl_delay_is_a_minimum_gap_unless_the_settings_say_otherwise() {
    let gaps = |settings: PaceSettings, delay: u64| {
        let mut crawl = Crawl::new(settings);
        let floor = crawl.pace.set_min_interval(
            Scope::host("a.org"),
            Duration::from_secs(delay),
            crawl.at(),
        );
        crawl.good("a.org", 1);
        let begin = crawl.now;
        crawl.good("a.org", 5);
        (floor, (crawl.now - begin) / 1000)
    };
    let (floor, seconds) = gaps(PaceSettings::default(), 10);
    assert_eq!((floor.applied, floor.is_shortened), (Some(Duration::from_secs(10)), false));
    assert!((44..=56).contains(&seconds), "{seconds}");
    let (floor, seconds) = gaps(PaceSettings::default(), 3600);
    assert_eq!((floor.applied, floor.is_shortened), (Some(Duration::from_secs(60)), true));
    assert!((270..=330).contains(&seconds), "{seconds}");
    assert!(floor.is_new);
    let start = PaceSettings { crawl_delay: CrawlDelay::Initial, ..PaceSettings::default() };
    assert!((20..50).contains(&gaps(start, 10).1));
    let ignore = PaceSettings { crawl_delay: CrawlDelay::Ignore, ..PaceSettings::default() };
    assert!(gaps(ignore, 10).1 < 4);
}

#[test]
fn a_shortened_crawl_delay_is_reported_once_and_persisted_as_declared() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 1);
    let floor = |seconds| {
        crawl.pace.set_min_interval(Scope::host("a.org"), Duration::from_secs(seconds), crawl.at())
    };
    assert_eq!(
        floor(180),
        MinInterval { applied: Some(Duration::from_secs(60)), is_shortened: true, is_new: true }
    );
    assert!(!floor(180).is_new, "the same of another origin of the host");
    assert!(floor(240).is_new);
    let explanation = crawl.pace.explain("a.org", crawl.at()).unwrap();
    let seconds = |span: Option<Duration>| span.map(|span| span.as_secs());
    assert_eq!(
        (seconds(explanation.min_gap), seconds(explanation.crawl_delay)),
        (Some(60), Some(240))
    );
    assert!(
        explanation
            .to_string()
            .contains("delay    its Crawl-delay is 4 min, of which 60 s are kept"),
        "{explanation}"
    );
    // The next process knows the declared gap, and keeps it only once it has read it itself.
    let next = Pace::default();
    next.restore(
        Level::Host,
        "a.org",
        &crawl.pace.state(Level::Host, "a.org").unwrap(),
        crawl.at(),
    );
    let explanation = next.explain("a.org", crawl.at()).unwrap();
    assert_eq!((explanation.min_gap, seconds(explanation.crawl_delay)), (None, Some(240)));
    assert_eq!(seconds(explanation.crawl_delay_cut), Some(60));
    assert!(
        next.set_min_interval(Scope::host("a.org"), Duration::from_secs(240), crawl.at()).is_new
    );
}

#[test]
fn a_declared_limit_is_respected_without_hitting_it() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let policy = RateLimit { quota: Some(60.0), window_s: Some(60.0), ..RateLimit::default() };
    for _ in 0..200 {
        let permit = crawl.permit("a.org");
        crawl.now += 50;
        let response = Response { policy: Some(policy), ..Response::new(Signal::Content, FETCHER) };
        assert_eq!(crawl.respond(permit, response), ResponseEffect::Nothing);
    }
    let explanation = crawl.explain("a.org");
    assert!((0.8..=0.9).contains(&explanation.rate), "{}", explanation.rate);
    assert_eq!(explanation.next_probe, None, "what the host says is not tried out");
    let permit = crawl.permit("a.org");
    let used_up = RateLimit { remaining: Some(0.0), reset_s: Some(90.0), ..RateLimit::default() };
    let begin = crawl.now;
    assert_eq!(
        crawl.respond(
            permit,
            Response { policy: Some(used_up), ..Response::new(Signal::Content, FETCHER) }
        ),
        ResponseEffect::Nothing
    );
    let _ = crawl.permit("a.org");
    assert_eq!(crawl.now, begin + 90_000);
}

#[test]
fn a_rendered_page_counts_as_many_requests_as_pages_of_the_host_have_made() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let render = |crawl: &mut Crawl, cost: u16| {
        loop {
            match crawl.pace.admit(Scope::host("a.org"), Cost::Rendered, crawl.at()) {
                Admit::Go(permit) => {
                    let response = Response {
                        cost: Some(cost),
                        renders: true,
                        ..Response::new(Signal::Content, FETCHER)
                    };
                    return crawl.respond(permit, response);
                }
                Admit::Wait(until) => crawl.now = until.as_millis(),
                Admit::AtCapacity => panic!("full"),
            }
        }
    };
    assert_eq!(render(&mut crawl, 12), ResponseEffect::Nothing);
    let begin = crawl.now;
    assert_eq!(render(&mut crawl, 12), ResponseEffect::Nothing);
    assert!(
        (5000..=6700).contains(&(crawl.now - begin)),
        "twelve requests at two a second: {}",
        crawl.now - begin
    );
    for _ in 0..30 {
        assert_eq!(render(&mut crawl, 4), ResponseEffect::Nothing);
    }
    let (begin, rate) = (crawl.now, crawl.explain("a.org").rate);
    assert_eq!(render(&mut crawl, 4), ResponseEffect::Nothing);
    let requests = (crawl.now - begin) as f64 / 1000.0 * rate;
    assert!((3.0..5.6).contains(&requests), "{requests}");
}

#[test]
fn a_rendered_page_with_fewer_requests_than_admitted_gives_the_rest_of_its_gap_back() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let begin = crawl.now;
    let admit = |crawl: &mut Crawl| loop {
        match crawl.pace.admit(Scope::host("a.org"), Cost::Rendered, crawl.at()) {
            Admit::Go(permit) => return permit,
            Admit::Wait(until) => crawl.now = until.as_millis(),
            Admit::AtCapacity => panic!("full"),
        }
    };
    let rendered = |cost| Response {
        cost: Some(cost),
        renders: true,
        ..Response::new(Signal::Content, FETCHER)
    };
    let permit = admit(&mut crawl);
    crawl.now += 1500;
    assert_eq!(crawl.respond(permit, rendered(4)), ResponseEffect::Nothing);
    let permit = admit(&mut crawl);
    let waited = crawl.now - begin;
    assert!((1700..=2700).contains(&waited), "four requests at two a second, not twelve: {waited}");
    // A page that takes longer than the gap of its requests frees the next one at once, and no more
    // than that.
    crawl.now += 4000;
    assert_eq!(crawl.respond(permit, rendered(4)), ResponseEffect::Nothing);
    let ended = crawl.now;
    let _permit = admit(&mut crawl);
    assert_eq!(crawl.now, ended);
    let _permit = admit(&mut crawl);
    assert!(crawl.now - ended >= 900, "{}", crawl.now - ended);
}

#[test]
fn a_host_whose_pages_are_rendered_doubles_in_ten_seconds_too() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let begin = crawl.now;
    while crawl.now < begin + 30_500 {
        match crawl.pace.admit(Scope::host("a.org"), Cost::Rendered, crawl.at()) {
            Admit::Go(permit) => {
                crawl.now += 100;
                let response = Response {
                    cost: Some(4),
                    renders: true,
                    ..Response::new(Signal::Content, FETCHER)
                };
                assert_eq!(crawl.respond(permit, response), ResponseEffect::Nothing);
            }
            Admit::Wait(until) => crawl.now = until.as_millis(),
            Admit::AtCapacity => panic!("full"),
        }
    }
    let rate = crawl.explain("a.org").rate;
    assert!((11.0..17.0).contains(&rate), "{rate}");
}

#[test]
fn a_configured_rate_is_not_learned_and_off_is_off() {
    let hosts =
        HashMap::from([("a.org".to_owned(), HostPace { rate: Some(5.0), parallel: Some(1) })]);
    let mut crawl = Crawl::new(PaceSettings { hosts, ..PaceSettings::default() });
    crawl.good("a.org", 100);
    let explanation = crawl.explain("a.org");
    assert_eq!((explanation.rate, explanation.parallel, explanation.is_fixed), (5.0, 1, true));
    let mut fixed = Crawl::new(PaceSettings {
        mode: PaceMode::Fixed,
        initial_rate: 3.0,
        ..PaceSettings::default()
    });
    fixed.good("a.org", 100);
    assert_eq!(fixed.explain("a.org").rate, 3.0);
    let permit = fixed.permit("a.org");
    assert!(
        matches!(
            fixed.respond(permit, Response::new(Signal::Limited, FETCHER)),
            ResponseEffect::LimitHit { .. }
        ),
        "holds are kept"
    );
    let off = Crawl::new(PaceSettings { mode: PaceMode::Off, ..PaceSettings::default() });
    for _ in 0..1000 {
        let Admit::Go(permit) = off.pace.admit(Scope::host("a.org"), Cost::Plain, off.at()) else {
            panic!("waits")
        };
        assert_eq!(
            off.pace.record_response(permit, &Response::new(Signal::Limited, FETCHER), off.at()),
            ResponseEffect::Nothing
        );
    }
}

#[test]
fn a_host_that_becomes_slow_gets_fewer_requests() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let mut under_way = std::collections::VecDeque::new();
    // The maximum of parallel requests, each with a response after `ms`.
    let mut respond_after = |ms: i64| {
        loop {
            match crawl.pace.admit(Scope::host("a.org"), Cost::Plain, crawl.at()) {
                Admit::Go(permit) => under_way.push_back((crawl.now, permit)),
                Admit::Wait(until)
                    if under_way.front().is_none_or(|(sent, _)| until.as_millis() < sent + ms) =>
                {
                    crawl.now = until.as_millis();
                }
                _ => break,
            }
        }
        let (sent, permit) = under_way.pop_front().unwrap();
        crawl.now = crawl.now.max(sent + ms);
        let latency = Some(Duration::from_millis(ms.unsigned_abs()));
        assert_eq!(
            crawl.respond(permit, Response { latency, ..Response::new(Signal::Content, FETCHER) }),
            ResponseEffect::Nothing
        );
        crawl.explain("a.org").rate
    };
    let quick = (0..400).map(|_| respond_after(200)).last().unwrap();
    let slow = (0..100).map(|_| respond_after(2000)).last().unwrap();
    assert!(slow < 0.7 * quick, "{slow} after {quick}");
}

#[test]
fn the_store_receives_limit_hits_and_the_final_state() {
    struct RecordingStore(std::sync::Mutex<Vec<(Level, String, Cause)>>);
    impl PaceStore for RecordingStore {
        fn keep(&self, note: &PaceRecord<'_>) {
            self.0.lock().unwrap().push((note.level, note.name.to_owned(), note.cause));
        }
    }
    let store = std::sync::Arc::new(RecordingStore(std::sync::Mutex::default()));
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.pace = Pace::default().with_store(Box::new(std::sync::Arc::clone(&store)));
    crawl.good("a.org", 30);
    let permit = crawl.permit("a.org");
    let _ = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    crawl.pace.close(crawl.at());
    let records = store.0.lock().unwrap();
    let of = |cause: Cause| (Level::Host, "a.org".to_owned(), cause);
    assert!(
        records.contains(&of(Cause::Limited)) && records.last() == Some(&of(Cause::Close)),
        "{records:?}"
    );
}

#[test]
fn the_next_process_continues_with_the_learned_state() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 100);
    let permit = crawl.permit("a.org");
    let ResponseEffect::LimitHit { hold_until, .. } =
        crawl.respond(permit, Response::new(Signal::Limited, FETCHER))
    else {
        panic!()
    };
    let state = crawl.pace.state(Level::Host, "a.org").unwrap();
    let mut next = Crawl::new(PaceSettings::default());
    next.now = crawl.now + 1000;
    next.pace.restore(Level::Host, "a.org", &state, next.at());
    let hold = next.pace.hold(Scope::host("a.org"), next.at()).unwrap();
    assert!(hold >= hold_until && hold.since(hold_until) <= Duration::from_secs(1), "holds go on");
    let ceiling = crawl.explain("a.org").ceiling.unwrap().0;
    assert_eq!(next.explain("a.org").ceiling.unwrap().0, ceiling);
    let trial = next.permit("a.org");
    assert_eq!(
        next.respond(trial, Response::new(Signal::Content, FETCHER)),
        ResponseEffect::Nothing
    );
    next.good("a.org", 3);
    let mut later = Crawl::new(PaceSettings::default());
    later.now = crawl.now + 91 * 86_400_000;
    later.pace.restore(Level::Host, "a.org", &state, later.at());
    assert_eq!(later.pace.state(Level::Host, "a.org"), None, "after ninety days it is forgotten");
}

#[test]
fn an_idle_host_is_kept_in_64_bytes_and_later_forgotten() {
    let crawl = Crawl::new(PaceSettings::default());
    let ask = |number: usize, ms: i64| {
        let host = format!("h{number}.org");
        let at = Timestamp::from_millis(crawl.now + ms);
        if let Admit::Go(permit) = crawl.pace.admit(Scope::host(&host), Cost::Plain, at) {
            let _ =
                crawl.pace.record_response(permit, &Response::new(Signal::Content, FETCHER), at);
        }
    };
    (0..5000).for_each(|number| ask(number, 0));
    (5000..15_000).for_each(|number| ask(number, 2 * 3_600_000));
    let mut active = 0;
    crawl.pace.hosts.for_each(|entry| active += usize::from(entry.active().is_some()));
    assert!(active <= 10_000 && crawl.pace.hosts.len() == 15_000, "{active}");
    (15_000..50_000).for_each(|number| ask(number, 100 * 86_400_000));
    assert!(crawl.pace.hosts.len() <= 40_000, "{}", crawl.pace.hosts.len());
}

#[test]
fn parallel_blocks_are_one_doubt_and_another_fetchers_page_does_not_decide_it() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 60);
    let mut permits = vec![crawl.permit("a.org")];
    while permits.len() < 2 {
        crawl.now += 20;
        if let Admit::Go(permit) = crawl.pace.admit(Scope::host("a.org"), Cost::Plain, crawl.at()) {
            permits.push(permit);
        }
    }
    let doubts: Vec<u32> = permits
        .into_iter()
        .map(|permit| match crawl.respond(permit, Response::new(Signal::Block, FETCHER)) {
            ResponseEffect::Doubt { doubt, .. } => doubt,
            other => panic!("no doubt: {other:?}"),
        })
        .collect();
    assert_eq!(doubts[0], doubts[1]);
    let verdict = |crawl: &Crawl| crawl.pace.doubt_verdict("a.org", doubts[0], crawl.at());
    let trial = crawl.permit("a.org");
    assert_eq!(
        crawl.respond(trial, Response::new(Signal::Content, FetcherId(1))),
        ResponseEffect::Nothing
    );
    assert_eq!(
        verdict(&crawl),
        DoubtVerdict::Pending,
        "a browser may pass where the plain fetcher is limited"
    );
    let trial = crawl.permit("a.org");
    assert!(matches!(
        crawl.respond(trial, Response::new(Signal::Block, FETCHER)),
        ResponseEffect::LimitHit { .. }
    ));
    assert_eq!(verdict(&crawl), DoubtVerdict::Pace);
}

#[test]
fn a_doubt_about_a_fetcher_without_further_requests_ends() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 60);
    let permit = crawl.permit("a.org");
    let ResponseEffect::Doubt { doubt, .. } =
        crawl.respond(permit, Response::new(Signal::Block, FETCHER))
    else {
        panic!("no doubt")
    };
    for _ in 0..5 {
        assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), DoubtVerdict::Pending);
        let trial = crawl.permit("a.org");
        let _ = crawl.respond(trial, Response::new(Signal::Content, FetcherId(1)));
    }
    assert_eq!(crawl.pace.doubt_verdict("a.org", doubt, crawl.at()), DoubtVerdict::Page);
}

#[test]
fn a_lone_host_shares_its_site_once_another_host_appears() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.site.org", 60);
    crawl.pace.hosts.for_each(|entry| assert!(entry.identity.is_alone(crawl.now)));
    let permit = crawl.permit("b.site.org");
    crawl.pace.hosts.for_each(|entry| assert!(!entry.identity.is_alone(crawl.now)));
    let _ = crawl.respond(permit, Response::new(Signal::Content, FETCHER));
    crawl.good("a.site.org", 1);
    let permit = crawl.permit("b.site.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    assert!(
        matches!(done, ResponseEffect::LimitHit { level: Level::Site, .. }),
        "the other was asked a moment ago: {done:?}"
    );
    assert!(matches!(
        crawl.pace.admit(Scope::host("a.site.org"), Cost::Plain, crawl.at()),
        Admit::Wait(_)
    ));
}

#[test]
fn a_limit_hit_by_the_first_request_of_a_second_host_holds_that_host() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.site.org", 60);
    let permit = crawl.permit("b.site.org");
    let done = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    assert!(matches!(done, ResponseEffect::LimitHit { level: Level::Host, .. }), "{done:?}");
    assert!(matches!(
        crawl.pace.admit(Scope::host("b.site.org"), Cost::Plain, crawl.at()),
        Admit::Wait(_)
    ));
}

#[test]
fn hosts_of_one_site_that_appear_concurrently_do_not_deadlock() {
    let pace = Pace::default();
    let at = Timestamp::from_millis(1_790_000_000_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pace = &pace;
            scope.spawn(move || {
                for site in 0..500 {
                    let host = format!("h{thread}.site{site}.org");
                    if let Admit::Go(permit) = pace.admit(Scope::host(&host), Cost::Plain, at) {
                        let _ = pace.record_response(
                            permit,
                            &Response::new(Signal::Content, FETCHER),
                            at,
                        );
                    }
                }
            });
        }
    });
    let mut alone = 0;
    pace.hosts.for_each(|entry| alone += usize::from(entry.identity.is_alone(at.as_millis())));
    assert_eq!((pace.hosts.len(), alone), (2000, 0), "four hosts a site, and each of them knows");
}

#[test]
fn a_forgotten_host_starts_again_and_its_requests_in_flight_still_count() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 40);
    let (fast, under_way) = (crawl.explain("a.org").rate, crawl.permit("a.org"));
    let limited = crawl.permit("a.org");
    let response = Response {
        retry_after: Some(Duration::from_secs(600)),
        ..Response::new(Signal::Limited, FETCHER)
    };
    assert!(matches!(crawl.respond(limited, response), ResponseEffect::LimitHit { .. }));
    assert!(crawl.explain("a.org").hold_until.is_some());
    crawl.pace.forget("a.org", crawl.at());
    let after = crawl.explain("a.org");
    assert!(fast > 3.0 && (after.rate - 2.0).abs() < 1e-6, "{fast}, then {}", after.rate);
    assert_eq!(
        (after.hold_until, after.last_limit_hit, after.limit, after.in_flight),
        (None, None, None, 1)
    );
    // Its response counts like any other.
    assert_eq!(
        crawl.respond(under_way, Response::new(Signal::Content, FETCHER)),
        ResponseEffect::Nothing
    );
    assert_eq!(crawl.explain("a.org").in_flight, 0);
    crawl.pace.forget("a.org", crawl.at());
    assert!(
        crawl.pace.explain("a.org", crawl.at()).is_none() && crawl.pace.active_states().is_empty()
    );
    crawl.pace.forget("never.org", crawl.at());
}

/// Returns a number in [0, 1) for the nth response under a seed.
fn luck(seed: u64, n: u64) -> f64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&n.to_le_bytes(), seed) as f64 / 2f64.powi(64)
}

/// Sends requests for `seconds` to a host that fails by `fails`, and returns the good pages and the
/// errors.
fn crawl_for(crawl: &mut Crawl, seconds: i64, mut fails: impl FnMut(i64) -> bool) -> (u32, u32) {
    crawl_with(crawl, seconds, |now| if fails(now) { Signal::Unavailable } else { Signal::Content })
}

/// Sends requests for `seconds` to a host that responds with `signal`, and returns the good pages
/// and the others.
fn crawl_with(
    crawl: &mut Crawl,
    seconds: i64,
    mut signal: impl FnMut(i64) -> Signal,
) -> (u32, u32) {
    let (end, mut counts) = (crawl.now + seconds * 1000, (0, 0));
    while crawl.now < end {
        let permit = crawl.permit("a.org");
        crawl.now += 30;
        let signal = signal(crawl.now);
        match signal {
            Signal::Content => counts.0 += 1,
            _ => counts.1 += 1,
        }
        let response =
            Response { latency: Some(Duration::from_millis(30)), ..Response::new(signal, FETCHER) };
        let _ = crawl.respond(permit, response);
    }
    counts
}

/// Crawls six hosts for two minutes and then for two more, with these latencies, in milliseconds.
/// Returns their rates after the first time, and the lowest ones since. `measured` is the part of
/// the later latency that the caller measured as its own.
fn rates_before_and_after(quiet: u64, late: [u64; 6], measured: u64) -> Vec<(f64, f64)> {
    let pace = Pace::new(PaceSettings { max_rate: 10.0, ..PaceSettings::default() });
    let names: Vec<String> = (0..6).map(|host| format!("h{host}.org")).collect();
    let rates =
        |now| names.iter().map(|name| pace.explain(name, now).unwrap().rate).collect::<Vec<_>>();
    let (mut before, mut least, mut under_way) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..24_000_i64 {
        let now = Timestamp::from_millis(10 * step);
        if step == 12_000 {
            (before, least) = (rates(now), rates(now));
        } else if step > 12_000 && step % 100 == 0 {
            least = least
                .into_iter()
                .zip(rates(now))
                .map(|(least, rate)| f64::min(least, rate))
                .collect();
        }
        for (host, name) in names.iter().enumerate() {
            let Admit::Go(permit) = pace.admit(Scope::host(name), Cost::Plain, now) else {
                continue;
            };
            let (latency, local) = if step < 12_000 { (quiet, 0) } else { (late[host], measured) };
            under_way.push((10 * step + latency.cast_signed(), latency, local, permit));
        }
        for (due, latency, local, permit) in std::mem::take(&mut under_way) {
            if due > 10 * step {
                under_way.push((due, latency, local, permit));
                continue;
            }
            let response = Response {
                latency: Some(Duration::from_millis(latency)),
                local_delay: Some(Duration::from_millis(local)),
                ..Response::new(Signal::Content, FETCHER)
            };
            let _ = pace.record_response(permit, &response, now);
        }
    }
    before.into_iter().zip(least).collect()
}

#[test]
fn one_slow_host_is_blamed_and_many_at_once_are_not() {
    let one = rates_before_and_after(100, [400, 100, 100, 100, 100, 100], 0);
    assert!(one[0].1 < 0.8 * one[0].0 && one[1].1 >= one[1].0, "{one:?}");
    let all = rates_before_and_after(100, [400; 6], 0);
    assert!(all.iter().all(|(before, after)| after >= before), "{all:?}");
}

#[test]
fn a_delay_that_the_caller_measured_is_not_the_hosts() {
    let measured = rates_before_and_after(100, [400, 100, 100, 100, 100, 100], 300);
    assert!(measured[0].1 >= measured[0].0, "{measured:?}");
}

#[test]
fn a_machine_that_is_busy_from_the_first_response_does_not_keep_a_host_from_growing() {
    let pace = Pace::new(PaceSettings::default());
    let mut now = Timestamp::from_millis(0);
    for _ in 0..30 {
        let permit = loop {
            match pace.admit(Scope::host("a.org"), Cost::Plain, now) {
                Admit::Go(permit) => break permit,
                Admit::Wait(until) => now = until,
                Admit::AtCapacity => unreachable!("one at a time"),
            }
        };
        let response = Response {
            latency: Some(Duration::from_millis(400)),
            local_delay: Some(Duration::from_millis(300)),
            ..Response::new(Signal::Content, FETCHER)
        };
        let _ =
            pace.record_response(permit, &response, now.saturating_add(Duration::from_millis(400)));
        let latency = pace.explain("a.org", now).unwrap().latency;
        assert!(latency.is_some_and(|(_, ratio)| ratio < 1.1), "{latency:?}");
    }
}

#[test]
fn a_quick_host_is_never_slow() {
    let quick = rates_before_and_after(4, [19, 4, 4, 4, 4, 4], 0);
    assert!(quick[0].1 >= quick[0].0, "{quick:?}");
}

/// A host that bans for ten minutes and counts over a window that nobody says. A wrong guess of the
/// window costs a ban, and a window that is too long costs most of the pages.
#[test]
fn the_window_of_a_host_that_bans_is_found_with_two_bans() {
    for window_s in [60, 120, 300, 600] {
        let (mut times, mut banned_until, mut bans) = (std::collections::VecDeque::new(), 0, 0);
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 1);
        let (good, blocks) = crawl_with(&mut crawl, 7200, |now| {
            if now < banned_until {
                return Signal::Block;
            }
            while times.front().is_some_and(|at| *at <= now - window_s * 1000) {
                times.pop_front();
            }
            times.push_back(now);
            if times.len() <= 200 {
                return Signal::Content;
            }
            times.clear();
            (banned_until, bans) = (now + 600_000, bans + 1);
            Signal::Block
        });
        let share = f64::from(good) / (7200.0 * 200.0 / window_s as f64);
        assert!(
            bans <= 2 && share >= 0.65,
            "{window_s} s: {share:.2} of the pages, {bans} bans, {blocks} blocks"
        );
    }
}

/// A host that allows one request per second, or one in two seconds, and says only 429. Its first
/// refusals come after so few requests that their count looks like a limit of one in ten seconds.
#[test]
fn a_slow_host_that_answers_429_is_asked_nearly_as_often_as_it_allows() {
    for (limit, burst, least) in
        [(1.0, 1.0, 0.7), (1.0, 2.0, 0.7), (0.5, 1.0, 0.35), (0.5, 2.0, 0.35)]
    {
        let mut rates: Vec<f64> = (0..11)
            .map(|seed| {
                let mut crawl = Crawl::new(PaceSettings { seed, ..PaceSettings::default() });
                let (mut tokens, mut last) = (burst * luck(seed, 0), crawl.now);
                let mut signal = |now| {
                    tokens = f64::min(tokens + limit * (now - last) as f64 / 1000.0, burst);
                    last = now;
                    let is_admitted = tokens >= 1.0;
                    tokens -= f64::from(u8::from(is_admitted));
                    if is_admitted { Signal::Content } else { Signal::Limited }
                };
                crawl_with(&mut crawl, 120, &mut signal);
                let (good, _) = crawl_with(&mut crawl, 480, &mut signal);
                f64::from(good) / 480.0
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        assert!(rates[5] >= least, "{limit} per second, burst {burst}: {rates:.2?}");
    }
}

/// A firewall says five seconds and means thirty: each trial met the next refusal, since the hold
/// was always what the host had asked for.
#[test]
fn a_retry_after_that_is_too_short_is_corrected_by_experience() {
    for (said, meant) in [(5, 30_000), (2, 200_000), (30, 90_000), (60, 61_000)] {
        let mut crawl = Crawl::new(PaceSettings::default());
        let said = Duration::from_secs(said);
        let limited =
            Response { retry_after: Some(said), ..Response::new(Signal::Limited, FETCHER) };
        let refused: Vec<u32> = (0..3)
            .map(|_| {
                crawl.good("a.org", 40);
                let permit = crawl.permit("a.org");
                let begin = crawl.now;
                let _ = crawl.respond(permit, limited);
                let mut refused = 0;
                loop {
                    let trial = crawl.permit("a.org");
                    assert!(crawl.now - begin >= said.as_millis() as i64, "asked before its time");
                    if crawl.now - begin >= meant {
                        let _ = crawl.respond(trial, Response::new(Signal::Content, FETCHER));
                        return refused;
                    }
                    refused += 1;
                    let _ = crawl.respond(trial, limited);
                }
            })
            .collect();
        assert!(
            refused[0] <= 9 && refused[1..].iter().all(|refused| *refused == 0),
            "{said:?} {meant}: {refused:?}"
        );
    }
}

/// A quota of a hundred in a quarter of an hour was a rate of one in ten seconds, though all of it
/// was free. Later its last tenth was, and a list of ninety links and robots.txt waited for it.
#[test]
fn a_budget_is_spent_to_its_end_at_the_hosts_own_pace() {
    for (quota, window_s) in [(100.0, 900), (200.0, 3600), (500.0, 86_400)] {
        let mut crawl = Crawl::new(PaceSettings::default());
        let begin = crawl.now;
        let (mut used, mut since, mut refused, mut times) = (0.0, crawl.now, 0, Vec::new());
        for _ in 0..(2.5 * quota) as usize {
            let permit = crawl.permit("a.org");
            crawl.now += 50;
            if crawl.now - since >= window_s * 1000 {
                (since, used) = (crawl.now, 0.0);
            }
            used += 1.0;
            refused += u32::from(used > quota);
            times.push((crawl.now - begin) as f64 / 1000.0);
            let policy = RateLimit {
                quota: Some(quota),
                window_s: Some(window_s as f64),
                remaining: Some(quota - used),
                reset_s: Some(window_s as f64 - (crawl.now - since) as f64 / 1000.0),
            };
            let signal = if used > quota { Signal::Limited } else { Signal::Content };
            let _ = crawl.respond(
                permit,
                Response { policy: Some(policy), ..Response::new(signal, FETCHER) },
            );
        }
        assert_eq!(refused, 0, "{quota} in {window_s} s");
        let at = |share: f64| times[(share * quota) as usize - 1];
        assert!(at(1.0) < 60.0, "{quota} in {window_s} s: {}", at(1.0));
        // The second quota is spent like the first one.
        assert!(at(2.0) < window_s as f64 + 60.0, "{quota} in {window_s} s: {}", at(2.0));
        assert!(at(2.4) < 2.0 * window_s as f64 + 60.0, "{quota} in {window_s} s: {}", at(2.4));
    }
}

#[test]
fn no_more_requests_are_in_flight_than_a_budget_has_left() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let answer = |crawl: &mut Crawl, permit, left: f64| {
        let policy = RateLimit {
            quota: Some(100.0),
            window_s: Some(900.0),
            remaining: Some(left),
            reset_s: Some(600.0),
        };
        let latency = Some(Duration::from_secs(2));
        let _ = crawl.respond(
            permit,
            Response { policy: Some(policy), latency, ..Response::new(Signal::Content, FETCHER) },
        );
    };
    for left in [60.0, 50.0, 40.0] {
        let permit = crawl.permit("a.org");
        answer(&mut crawl, permit, left);
    }
    for left in [3.0, 1.0] {
        let permit = crawl.permit("a.org");
        answer(&mut crawl, permit, left);
        let out: Vec<Permit> = (0..left as usize).map(|_| crawl.permit("a.org")).collect();
        crawl.now += 10_000;
        assert_eq!(
            crawl.pace.admit(Scope::host("a.org"), Cost::Plain, crawl.at()),
            Admit::AtCapacity,
            "{left}"
        );
        for permit in out {
            answer(&mut crawl, permit, left);
        }
    }
    // The next window is not this one.
    let permit = crawl.permit("a.org");
    answer(&mut crawl, permit, 99.0);
    let _ = (crawl.permit("a.org"), crawl.permit("a.org"));
}

/// A host that once asked for too little was held for as long as it had refused then, whatever it
/// asked for later.
#[test]
fn a_host_that_asks_for_enough_is_believed_again() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let limited = |seconds| Response {
        retry_after: Some(Duration::from_secs(seconds)),
        ..Response::new(Signal::Limited, FETCHER)
    };
    // It says `said` seconds and means `meant`. Returns the trials that it refuses, and the time
    // until it serves.
    let mut closed = |said: u64, meant: i64| {
        crawl.good("a.org", 40);
        let permit = crawl.permit("a.org");
        let (begin, mut refused) = (crawl.now, 0);
        let _ = crawl.respond(permit, limited(said));
        loop {
            let trial = crawl.permit("a.org");
            if crawl.now - begin >= 1000 * meant {
                let _ = crawl.respond(trial, Response::new(Signal::Content, FETCHER));
                return (refused, (crawl.now - begin) / 1000);
            }
            refused += 1;
            let _ = crawl.respond(trial, limited(said));
        }
    };
    let (refused, held) = closed(5, 120);
    assert!(refused > 0 && held >= 120, "{refused} {held}");
    assert_eq!(closed(5, 120).0, 0, "it is held for as long as it refused");
    assert_eq!(closed(300, 300), (0, 301), "it asks for more than that");
    assert_eq!(closed(10, 10), (0, 11), "it is believed");
}

/// Two pages that are not published, one after the other, held a host that served all others.
#[test]
fn a_few_unpublished_pages_hold_no_host_that_serves_the_others() {
    for (first, count) in (3..28).flat_map(|first| [(first, 1), (first, 2)]) {
        let (mut crawl, mut limit_hits) = (Crawl::new(PaceSettings::default()), 0);
        for page in 0..30 {
            let is_refused = (first..first + count).contains(&page);
            let permit = crawl.permit("a.org");
            crawl.now += 50;
            let signal = if is_refused { Signal::Block } else { Signal::Content };
            let effect = crawl.respond(permit, Response::new(signal, FETCHER));
            limit_hits += u32::from(matches!(effect, ResponseEffect::LimitHit { .. }));
        }
        assert_eq!(limit_hits, 0, "{count} from {first} on");
    }
}

/// A bucket of tokens that refuses what is too much, and its refusals.
fn bucket(rate: f64, size: f64, seed: u64) -> impl FnMut(i64) -> bool {
    let (mut tokens, mut last) = (size * luck(seed, 0), i64::MIN);
    move |now| {
        let passed = if last == i64::MIN { 0 } else { now - last };
        tokens = f64::min(tokens + rate * passed as f64 / 1000.0, size);
        last = now;
        let is_admitted = tokens >= 1.0;
        tokens -= f64::from(u8::from(is_admitted));
        !is_admitted
    }
}

/// A bucket that answers 403 refused half of all requests for good: between two refusals it served,
/// and so each refusal seemed to be one page's.
#[test]
fn a_limit_that_blocks_between_good_pages_is_a_limit() {
    for (rate, size, seed) in [(1.0, 5.0, 1), (3.0, 12.0, 2), (1.5, 20.0, 3), (6.0, 30.0, 4)] {
        let mut crawl = Crawl::new(PaceSettings::default());
        let mut is_refused = bucket(rate, size, seed);
        let mut block = |now| if is_refused(now) { Signal::Block } else { Signal::Content };
        crawl_with(&mut crawl, 900, &mut block);
        let (good, refused) = crawl_with(&mut crawl, 3600, &mut block);
        assert!(refused <= (good + refused) / 30, "{rate} {size}: {refused} of {}", good + refused);
        assert!(f64::from(good) >= 0.6 * rate * 3600.0, "{rate} {size}: {good}");
    }
}

/// Blocks that come at any rate are no limit.
#[test]
fn pages_that_are_blocked_at_any_rate_do_not_slow_a_host() {
    for share in [0.02, 0.07, 0.15, 0.3] {
        let mut rates: Vec<f64> = (0..15)
            .map(|seed| {
                let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
                crawl_with(&mut crawl, 600, |_| {
                    n += 1;
                    if luck(seed, n) < share { Signal::Block } else { Signal::Content }
                });
                crawl.explain("a.org").rate
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        assert!(rates[5] >= 10.0, "{share}: {rates:.1?}");
    }
}

/// A host that blocked some pages at any rate, and then every page, was asked on.
#[test]
fn a_host_that_blocks_some_pages_and_then_all_is_held() {
    for share in [0.03, 0.2] {
        let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
        crawl_with(&mut crawl, 400, |_| {
            n += 1;
            if luck(7, n) < share { Signal::Block } else { Signal::Content }
        });
        let (_, refused) = crawl_with(&mut crawl, 120, |_| Signal::Block);
        assert!(refused <= 15, "{share}: {refused}");
    }
}

/// Refusals that came after ten seconds, or not at all, counted no more than any error: three of
/// them between twenty pages never made a limit.
#[test]
fn errors_that_keep_the_crawler_waiting_weigh_more() {
    let hits = |latency_ms: u64| {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 60);
        let permits: Vec<Permit> = (0..2).map(|_| crawl.permit("a.org")).collect();
        crawl.now += latency_ms as i64;
        let response = Response {
            latency: Some(Duration::from_millis(latency_ms)),
            ..Response::new(Signal::ServerError, FETCHER)
        };
        let effects = permits.into_iter().map(|permit| crawl.respond(permit, response));
        effects.filter(|effect| matches!(effect, ResponseEffect::LimitHit { .. })).count()
    };
    assert_eq!([120, 2000, 10_000, 30_000].map(hits), [0, 0, 1, 1]);
}

#[test]
fn a_host_that_served_and_refuses_everything_is_refusing_for_a_limited_time() {
    for (signal, served, patience_s) in [
        (Signal::Limited, 40, Some(3600)),
        (Signal::Block, 40, Some(3600)),
        (Signal::Unavailable, 40, Some(900)),
        (Signal::Broken, 40, Some(900)),
        (Signal::Limited, 0, None),
        (Signal::ServerError, 0, None),
    ] {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", served);
        let mut begin = None;
        for _ in 0..60 {
            let permit = crawl.permit("a.org");
            let since = crawl.pace.refusing_since("a.org", crawl.at());
            let passed_s = begin.map_or(0, |begin: i64| (crawl.now - begin) / 1000);
            let is_expected =
                begin.is_some() && patience_s.is_some_and(|patience_s| passed_s <= patience_s);
            assert_eq!(since.is_some(), is_expected, "{signal:?} after {passed_s} s");
            crawl.now += 20;
            if let ResponseEffect::LimitHit { .. } =
                crawl.respond(permit, Response::new(signal, FETCHER))
            {
                begin.get_or_insert(crawl.now);
            }
        }
        let permit = crawl.permit("a.org");
        let _ = crawl.respond(permit, Response::new(Signal::Content, FETCHER));
        assert_eq!(crawl.pace.refusing_since("a.org", crawl.at()), None, "it serves again");
    }
}

#[test]
fn what_was_in_flight_at_a_limit_hit_was_refused_by_it() {
    for (signal, is_refused) in [
        (Signal::Limited, true),
        (Signal::Block, true),
        (Signal::ServerError, true),
        (Signal::Broken, true),
        (Signal::Content, false),
        (Signal::ClientError, false),
        (Signal::NotAsked, false),
    ] {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 40);
        let (first, second) = (crawl.permit("a.org"), crawl.permit("a.org"));
        let effect = crawl.respond(first, Response::new(Signal::Limited, FETCHER));
        let ResponseEffect::LimitHit { hold_until, .. } = effect else {
            panic!("a 429 is a limit hit")
        };
        let effect = crawl.respond(second, Response::new(signal, FETCHER));
        let expected = if is_refused {
            ResponseEffect::Refused { until: hold_until }
        } else {
            ResponseEffect::Nothing
        };
        assert_eq!(effect, expected, "{signal:?}");
    }
}

/// After a 429, each trial that got a 500 was followed by the next one at once.
#[test]
fn trials_that_fail_otherwise_than_the_limit_are_not_repeated_at_once() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 40);
    let permit = crawl.permit("a.org");
    let _ = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    let (begin, mut trials) = (crawl.now, 0);
    while crawl.now < begin + 300_000 {
        let permit = crawl.permit("a.org");
        crawl.now += 50;
        trials += 1;
        let _ = crawl.respond(permit, Response::new(Signal::ServerError, FETCHER));
    }
    assert!(trials <= 9, "{trials}");
}

#[test]
fn changed_settings_hold_at_once_for_hosts_in_use_and_for_new_ones() {
    let fixed = |rate: f64, hosts: &[(&str, f64)]| PaceSettings {
        mode: PaceMode::Fixed,
        initial_rate: rate,
        max_rate: 1000.0,
        hosts: hosts
            .iter()
            .map(|(n, r)| ((*n).to_owned(), HostPace { rate: Some(*r), parallel: None }))
            .collect(),
        ..PaceSettings::default()
    };
    let now = Timestamp::from_millis(1_000_000);
    let pace = Pace::new(fixed(0.01, &[]));
    let gap = |host: &str, now: Timestamp| match pace.admit(Scope::host(host), Cost::Plain, now) {
        Admit::Wait(until) => Some(until.since(now).as_millis()),
        _ => None,
    };
    assert_eq!((gap("a.org", now), gap("b.org", now)), (None, None));
    assert!(gap("a.org", now) > Some(80_000) && gap("b.org", now) > Some(80_000));
    let said = pace.set_settings(fixed(10.0, &[("b.org", 1.0)]), now);
    assert_eq!(said.initial_rate, 10.0);
    assert!(
        gap("a.org", now) <= Some(110),
        "the gap of the old rate is over: {:?}",
        gap("a.org", now)
    );
    assert!((900..=1100).contains(&gap("b.org", now).unwrap()), "{:?}", gap("b.org", now));
    pace.set_settings(fixed(0.01, &[]), now);
    let later = now.saturating_add(std::time::Duration::from_secs(2));
    assert_eq!((gap("a.org", later), gap("c.org", later)), (None, None));
    assert!(
        gap("a.org", later) > Some(80_000) && gap("c.org", later) > Some(80_000),
        "slower again"
    );
}

#[test]
fn a_pace_is_neither_turned_off_nor_on_and_keeps_its_seed() {
    let settings = |mode| PaceSettings { mode, seed: 7, ..PaceSettings::default() };
    let now = Timestamp::from_millis(0);
    for (begun, changed, then) in [
        (PaceMode::Learn, PaceMode::Off, PaceMode::Learn),
        (PaceMode::Fixed, PaceMode::Off, PaceMode::Fixed),
        (PaceMode::Off, PaceMode::Learn, PaceMode::Off),
        (PaceMode::Learn, PaceMode::Fixed, PaceMode::Fixed),
        (PaceMode::Fixed, PaceMode::Learn, PaceMode::Learn),
    ] {
        let pace = Pace::new(settings(begun));
        let said = pace.set_settings(PaceSettings { seed: 9, ..settings(changed) }, now);
        assert_eq!((said.mode, said.seed), (then, 7), "{begun:?} to {changed:?}");
    }
}
