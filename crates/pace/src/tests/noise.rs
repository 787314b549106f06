//! Tests of noise: errors that a host gives at any rate take none of its pace, and a limit is not taken for them.

use super::*;

/// A host that answered every fourth request with 503 at any rate was slowed to one request in fifty seconds.
#[test]
fn errors_at_any_rate_do_not_slow_a_host_for_good() {
    for share in [0.02, 0.05, 0.1, 0.25, 0.5] {
        let mut parts: Vec<f64> = (0..20)
            .map(|seed| {
                let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
                let (good, _) = crawl_for(&mut crawl, 600, |_| {
                    n += 1;
                    luck(seed, n) < share
                });
                // Compared with a fixed rate of two requests per second.
                f64::from(good) / (2.0 * 600.0 * (1.0 - share))
            })
            .collect();
        parts.sort_by(f64::total_cmp);
        // Now and then errors come together by chance, and the host looks as if it were down.
        assert!(parts[3] >= 0.6, "{share}: {parts:.2?}");
        assert!(parts[10] >= 0.95, "{share}: {parts:.2?}");
    }
}

/// A host with one or two failures in a hundred requests lost nine tenths of its pace, because each of them lowered the
/// ceiling.
#[test]
fn a_few_errors_cost_few_pages() {
    // In five minutes, the time until they are known as noise counts most. Chance decides it, so there are more crawls.
    for (share, seconds, crawls, least) in [(0.01, 900, 10, 0.9), (0.02, 900, 10, 0.9), (0.02, 300, 40, 0.91)] {
        let pages = |share: f64| -> f64 {
            let crawl_one = |seed| {
                let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
                let (good, _) = crawl_for(&mut crawl, seconds, |_| {
                    n += 1;
                    luck(seed, n) < share
                });
                f64::from(good)
            };
            (0..crawls).map(crawl_one).sum()
        };
        let part = pages(share) / pages(0.0);
        assert!(part >= least, "{share} in {seconds} s: {part}");
    }
}

/// Errors say little about the rate; a 429 does.
#[test]
fn errors_alone_lower_no_rate_below_the_minimum() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl_for(&mut crawl, 30, |_| false);
    crawl_for(&mut crawl, 600, |_| true);
    let min_rate = crawl.pace.settings().min_rate;
    assert!(crawl.explain("a.org").rate >= 0.99 * min_rate, "{}", crawl.explain("a.org"));
}

#[test]
fn a_flaky_host_says_so() {
    let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
    crawl_for(&mut crawl, 600, |_| {
        n += 1;
        n % 4 == 0
    });
    let explained = crawl.explain("a.org");
    assert!((0.2..0.3).contains(&explained.error_noise.unwrap()), "{explained:?}");
    let noise = explained.noise_text().unwrap();
    assert!(noise.ends_with(" % of answers are 503 at any rate"), "{noise}");
    assert!(explained.to_string().contains(&format!("\nflaky    {noise}\n")), "{explained}");
    assert!(explained.rate >= 2.0, "{explained}");
    // The next process knows it, and so does a host that was idle.
    let state = crawl.pace.state(Level::Host, "a.org").unwrap();
    let next = Pace::new(PaceSettings::default());
    next.restore(Level::Host, "a.org", &state, crawl.at());
    let (known, again) = (explained.error_noise.unwrap(), next.explain("a.org", crawl.at()).unwrap());
    assert!((again.error_noise.unwrap() - known).abs() < 0.001 && again.is_noise_503, "{again}");
    let later = Timestamp::from_millis(crawl.now + 2 * 3_600_000);
    assert!((next.explain("a.org", later).unwrap().error_noise.unwrap() - known).abs() < 0.001);
    // A 429 is a limit as ever.
    let permit = crawl.permit("a.org");
    let effect = crawl.respond(permit, Response::new(Signal::Limited, FETCHER));
    assert!(matches!(effect, ResponseEffect::LimitHit { .. }), "{effect:?}");
    // Errors that end are forgotten.
    crawl_for(&mut crawl, 1800, |_| false);
    assert_eq!(crawl.explain("a.org").error_noise, None);
}

#[test]
fn a_flaky_host_with_other_errors_than_503_is_not_said_to_give_503() {
    let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
    crawl_with(&mut crawl, 600, |_| {
        n += 1;
        if n % 4 == 0 { Signal::Broken } else { Signal::Content }
    });
    let explained = crawl.explain("a.org");
    assert!(explained.noise_text().unwrap().ends_with(" % of answers are errors at any rate"), "{explained}");
    let next = Pace::new(PaceSettings::default());
    next.restore(Level::Host, "a.org", &crawl.pace.state(Level::Host, "a.org").unwrap(), crawl.at());
    let again = next.explain("a.org", crawl.at()).unwrap();
    let known = explained.error_noise.unwrap();
    assert!((again.error_noise.unwrap() - known).abs() < 0.001 && !again.is_noise_503, "{again}");
}

#[test]
fn a_limit_that_answers_503_is_not_taken_for_noise() {
    let mut mistaken = 0;
    for (limit, seed) in [0.5, 1.0, 4.0].into_iter().flat_map(|limit| (0..40).map(move |seed| (limit, seed))) {
        let mut crawl = Crawl::new(PaceSettings::default());
        // A bucket of tokens, as nginx has it.
        let (mut tokens, mut last) = (5.0 * luck(seed, 0), crawl.now);
        let (good, errors) = crawl_for(&mut crawl, 7200, |now| {
            tokens = f64::min(tokens + limit * (now - last) as f64 / 1000.0, 5.0);
            last = now;
            let is_admitted = tokens >= 1.0;
            tokens -= f64::from(u8::from(is_admitted));
            !is_admitted
        });
        mistaken += u32::from(crawl.explain("a.org").error_noise.is_some());
        assert!(f64::from(good) >= 0.7 * limit * 7200.0, "{limit} {seed}: {good}");
        assert!(f64::from(errors) < 0.01 * f64::from(good), "{limit} {seed}: {good} and {errors}");
    }
    // The test decides at odds of 99 to 1, and each of these hosts has several.
    assert!(mistaken <= 3, "{mistaken} of 120");
}

#[test]
fn stray_errors_do_not_make_a_limit_noise() {
    let (mut served, mut refused, mut mistaken) = (0, 0, 0);
    for seed in 0..20 {
        let mut crawl = Crawl::new(PaceSettings::default());
        let (mut tokens, mut last, mut n) = (1.0, crawl.now, 0);
        let (good, _) = crawl_with(&mut crawl, 3600, |now| {
            n += 1;
            tokens = f64::min(tokens + 0.45 * (now - last) as f64 / 1000.0, 1.0);
            last = now;
            if tokens < 1.0 {
                refused += 1;
                return Signal::Unavailable;
            }
            tokens -= 1.0;
            if luck(seed, n) < 0.03 { Signal::ServerError } else { Signal::Content }
        });
        served += good;
        mistaken += u32::from(crawl.explain("a.org").error_noise.is_some());
    }
    assert!(refused * 50 < served, "{refused} of {served}, {mistaken} mistaken");
}

#[test]
fn noise_gives_back_nothing_that_a_429_has_taken() {
    let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
    let mut every_third = |_: i64| {
        n += 1;
        n % 3 == 0
    };
    crawl_for(&mut crawl, 20, &mut every_third);
    let permit = crawl.permit("a.org");
    // Without a time, a good trial would show a shorter window.
    let limited = Response { retry_after: Some(Duration::from_secs(30)), ..Response::new(Signal::Limited, FETCHER) };
    let effect = crawl.respond(permit, limited);
    let ResponseEffect::LimitHit { hold_until, .. } = effect else { panic!("{effect:?}") };
    assert_eq!(crawl.pace.hold(Scope::host("a.org"), crawl.at()), Some(hold_until));
    let limit = crawl.explain("a.org").ceiling.unwrap().0;
    crawl_for(&mut crawl, 60, &mut every_third);
    assert!(crawl.explain("a.org").ceiling.is_some_and(|(ceiling, _)| ceiling <= 1.05 * limit), "{limit}");
}

/// Runs of two or three errors were taken for a limit before the noise was known: a host that failed one request in four
/// by chance gave ten pages in its first minute.
#[test]
fn errors_by_chance_cost_little_of_the_first_minute() {
    let first_minute = |seed: u64, share: f64, signal: Signal| {
        let (mut crawl, mut n) = (Crawl::new(PaceSettings::default()), 0);
        let by_chance = |_: i64| {
            n += 1;
            if luck(seed, n) < share { signal } else { Signal::Content }
        };
        crawl_with(&mut crawl, 60, by_chance).0
    };
    let clean = f64::from(first_minute(0, 0.0, Signal::Content));
    for signal in [Signal::Unavailable, Signal::ServerError, Signal::Broken] {
        for seeds in [0..20_u64, 100..120] {
            let few: Vec<u32> = seeds.clone().map(|seed| first_minute(seed, 0.02, signal)).collect();
            let part = f64::from(few.iter().sum::<u32>()) / (clean * few.len() as f64);
            assert!(part >= 0.9, "{signal:?}: {few:?} of {clean}");
            let many: Vec<u32> = seeds.clone().map(|seed| first_minute(seed, 0.25, signal)).collect();
            assert!(many.iter().all(|pages| *pages >= 72), "{signal:?} {seeds:?}: {many:?}");
        }
    }
}
