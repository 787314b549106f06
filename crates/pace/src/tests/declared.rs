//! Tests of what a host or the caller declares: delays, limits, budgets and settings.

use super::*;

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

/// Gaps varied by a tenth both ways, and a late request was caught up with. A server that enforces
/// its delay refused those that came too soon.
#[test]
fn no_gap_is_shorter_than_a_delay_that_the_host_or_the_user_has_set() {
    let fixed = PaceSettings { mode: PaceMode::Fixed, max_rate: 0.5, ..PaceSettings::default() };
    for (settings, delay) in [(PaceSettings::default(), Some(2)), (fixed, None)] {
        let mut crawl = Crawl::new(settings);
        if let Some(delay) = delay {
            let delay = Duration::from_secs(delay);
            let _ = crawl.pace.set_min_interval(Scope::host("a.org"), delay, crawl.at());
        }
        crawl.good("a.org", 1);
        let mut sent = crawl.now - 100;
        for request in 0..50 {
            let permit = crawl.permit("a.org");
            let gap = crawl.now - sent;
            assert!((2_000..=2_600).contains(&gap) || request == 0, "{gap}");
            sent = crawl.now;
            // Every third request keeps the next one waiting.
            crawl.now += if request % 3 == 0 { 2_500 } else { 100 };
            let _ = crawl.respond(permit, Response::new(Signal::Content, FETCHER));
        }
    }
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
