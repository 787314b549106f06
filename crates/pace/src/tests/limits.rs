//! Tests of limits: how a refusal is read, how long a host is held, and which rate follows.

use super::*;

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
    // After forty pages a minute is as likely as ten seconds; after twenty, less.
    for (pages, blocked, window, held) in
        [(40, 0, "10 s", 11_000), (40, 1, "1 min", 31_500), (20, 0, "10 s", 11_000)]
    {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", pages);
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
    assert_eq!(holds, [11, 20, 30, 60]);
}

/// Half a minute, a minute and two are what people choose, and trials that grew by half missed the
/// end of such a time by seconds or by half of it.
#[test]
fn a_trial_comes_shortly_after_a_round_time() {
    for (closed_s, said) in
        [(30, None), (60, None), (120, None), (30, Some(5)), (60, Some(5)), (120, Some(5))]
    {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 60);
        let limited = Response {
            retry_after: said.map(Duration::from_secs),
            ..Response::new(Signal::Limited, FETCHER)
        };
        let permit = crawl.permit("a.org");
        let begin = crawl.now;
        let _ = crawl.respond(permit, limited);
        let passed = loop {
            let trial = crawl.permit("a.org");
            if crawl.now - begin >= closed_s * 1000 {
                break crawl.now - begin - closed_s * 1000;
            }
            let _ = crawl.respond(trial, limited);
        };
        assert!(passed <= 2000, "{closed_s} s, {said:?}: {passed} ms late");
    }
}

/// nginx refuses what is too fast, and fail2ban closes the host for a minute after the third
/// refusal within one. Three more refusals at nearly the same rate were the next ban.
#[test]
fn a_host_that_bans_after_a_few_refusals_bans_once() {
    for (limit, burst) in [(3.0, 5.0), (5.0, 10.0), (10.0, 20.0)] {
        let mut refuses = bucket(limit, burst, 1);
        let (mut refused, mut banned_until, mut bans) = (Vec::new(), 0, 0);
        let mut crawl = Crawl::new(PaceSettings::default());
        let (good, others) = crawl_with(&mut crawl, 300, |now| {
            if now < banned_until {
                return Signal::Block;
            }
            if !refuses(now) {
                return Signal::Content;
            }
            refused.retain(|at| *at > now - 60_000);
            refused.push(now);
            if refused.len() == 3 {
                (banned_until, bans) = (now + 60_000, bans + 1);
                refused.clear();
            }
            Signal::Unavailable
        });
        let share = f64::from(good) / (240.0 * limit);
        assert!(
            bans == 1 && others <= 8 && share >= 0.7,
            "{limit}: {bans} bans, {others} refused, {share:.2} of the pages"
        );
    }
}

/// A host that was asked faster than ever after a minute without requests was slowed to the count
/// of five minutes: a twentieth of the rate that it had allowed.
#[test]
fn a_refusal_after_an_idle_minute_blames_the_rate() {
    for signal in [Signal::Unavailable, Signal::Limited] {
        let mut crawl = Crawl::new(PaceSettings::default());
        crawl.good("a.org", 200);
        let before = crawl.explain("a.org").rate;
        crawl.now += 60_000;
        crawl.good("a.org", 45);
        while crawl.explain("a.org").hold_until.is_none() {
            let permit = crawl.permit("a.org");
            let _ = crawl.respond(permit, Response::new(signal, FETCHER));
        }
        let ceiling = crawl.explain("a.org").ceiling;
        assert!(
            ceiling.is_some_and(|(rate, _)| rate > before / 3.0),
            "{signal:?}: {before}, then {ceiling:?}"
        );
    }
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
