//! Tests of noise: errors that a host gives at any rate take none of its pace, and a limit is not
//! taken for them.

use super::*;

/// A host that answered every fourth request with 503 at any rate was slowed to one request in
/// fifty seconds.
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

/// A host with one or two failures in a hundred requests lost nine tenths of its pace, because each
/// of them lowered the ceiling.
#[test]
fn a_few_errors_cost_few_pages() {
    // In five minutes, the time until they are known as noise counts most. Chance decides it, so
    // there are more crawls.
    for (share, seconds, crawls, least) in
        [(0.01, 900, 10, 0.9), (0.02, 900, 10, 0.9), (0.02, 300, 40, 0.91)]
    {
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
    let (known, again) =
        (explained.error_noise.unwrap(), next.explain("a.org", crawl.at()).unwrap());
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
    assert!(
        explained.noise_text().unwrap().ends_with(" % of answers are errors at any rate"),
        "{explained}"
    );
    let next = Pace::new(PaceSettings::default());
    next.restore(
        Level::Host,
        "a.org",
        &crawl.pace.state(Level::Host, "a.org").unwrap(),
        crawl.at(),
    );
    let again = next.explain("a.org", crawl.at()).unwrap();
    let known = explained.error_noise.unwrap();
    assert!((again.error_noise.unwrap() - known).abs() < 0.001 && !again.is_noise_503, "{again}");
}

#[test]
fn a_limit_that_answers_503_is_not_taken_for_noise() {
    let mut mistaken = 0;
    for (limit, seed) in
        [0.5, 1.0, 4.0].into_iter().flat_map(|limit| (0..40).map(move |seed| (limit, seed)))
    {
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
    let limited = Response {
        retry_after: Some(Duration::from_secs(30)),
        ..Response::new(Signal::Limited, FETCHER)
    };
    let effect = crawl.respond(permit, limited);
    let ResponseEffect::LimitHit { hold_until, .. } = effect else { panic!("{effect:?}") };
    assert_eq!(crawl.pace.hold(Scope::host("a.org"), crawl.at()), Some(hold_until));
    let limit = crawl.explain("a.org").ceiling.unwrap().0;
    crawl_for(&mut crawl, 60, &mut every_third);
    assert!(
        crawl.explain("a.org").ceiling.is_some_and(|(ceiling, _)| ceiling <= 1.05 * limit),
        "{limit}"
    );
}

/// Runs of two or three errors were taken for a limit before the noise was known: a host that
/// failed one request in four by chance gave ten pages in its first minute.
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
            let few: Vec<u32> =
                seeds.clone().map(|seed| first_minute(seed, 0.02, signal)).collect();
            let part = f64::from(few.iter().sum::<u32>()) / (clean * few.len() as f64);
            assert!(part >= 0.9, "{signal:?}: {few:?} of {clean}");
            let many: Vec<u32> =
                seeds.clone().map(|seed| first_minute(seed, 0.25, signal)).collect();
            assert!(many.iter().all(|pages| *pages >= 72), "{signal:?} {seeds:?}: {many:?}");
        }
    }
}

/// A crawl of one host with several requests at once.
struct Crowd {
    crawl: Crawl,
    /// Requests in flight, with the times at which they end, and their responses.
    out: Vec<(i64, Permit, Response)>,
    sent: u64,
    refused: u32,
}

impl Crowd {
    fn new(crawl: Crawl) -> Self {
        Self { crawl, out: Vec::new(), sent: 0, refused: 0 }
    }

    /// Fetches `links` pages, or what comes in `most_s` seconds. `answer` is told the time and the
    /// number of each request; it returns the signal, and the time in milliseconds that the
    /// response takes. Returns the pages, and the seconds.
    fn fetch(
        &mut self,
        links: usize,
        most_s: i64,
        mut answer: impl FnMut(i64, u64) -> (Signal, i64),
    ) -> (usize, f64) {
        let (begin, mut pages) = (self.crawl.now, 0);
        while pages < links && self.crawl.now < begin + 1000 * most_s {
            let first = self.out.iter().map(|(end, ..)| *end).min();
            let is_wanted = pages + self.out.len() < links;
            let admit = is_wanted
                .then(|| self.crawl.pace.admit(Scope::host("a.org"), Cost::Plain, self.crawl.at()));
            match admit {
                Some(Admit::Go(permit)) => {
                    self.sent += 1;
                    let (signal, ms) = answer(self.crawl.now, self.sent);
                    let latency = Some(Duration::from_millis(ms.unsigned_abs()));
                    let response = Response { latency, ..Response::new(signal, FETCHER) };
                    self.out.push((self.crawl.now + ms, permit, response));
                }
                Some(Admit::Wait(until)) if first.is_none_or(|first| first > until.as_millis()) => {
                    self.crawl.now = until.as_millis();
                }
                _ => {
                    let at = (0..self.out.len())
                        .min_by_key(|at| self.out[*at].0)
                        .expect("a host without requests admits one");
                    let (end, permit, response) = self.out.remove(at);
                    self.crawl.now = self.crawl.now.max(end);
                    let is_page = response.signal == Signal::Content;
                    (pages, self.refused) =
                        (pages + usize::from(is_page), self.refused + u32::from(!is_page));
                    let _ = self.crawl.respond(permit, response);
                }
            }
        }
        (pages, (self.crawl.now - begin) as f64 / 1000.0)
    }
}

/// Answers as a limiter that admits `most` requests in ten seconds: requests of the ten seconds
/// before count by the part of them that is not over ten seconds old, as in HAProxy's tables.
fn stick_table(most: f64, refusal: (Signal, i64)) -> impl FnMut(i64, u64) -> (Signal, i64) {
    let (mut period, mut counts) = (0, [0.0, 0.0]);
    move |now, _| {
        counts = match now / 10_000 - period {
            0 => counts,
            1 => [0.0, counts[0]],
            _ => [0.0, 0.0],
        };
        period = now / 10_000;
        counts[0] += 1.0;
        let left = (10_000 - now % 10_000) as f64 / 10_000.0;
        if counts[0] + left * counts[1] > most { refusal } else { (Signal::Content, 6) }
    }
}

/// The pages between refusals looked like proof that the refusals came at any rate, and none of
/// them lowered it: a limiter that answers late lets pages through again by then.
#[test]
fn a_limit_that_keeps_requests_waiting_is_found_and_kept() {
    for most in [14.0, 20.0, 45.0] {
        for refusal in
            [(Signal::ServerError, 10_000), (Signal::Unavailable, 20_000), (Signal::Broken, 30_000)]
        {
            let links = 6 * most as usize;
            let mut crowd = Crowd::new(Crawl::new(PaceSettings::default()));
            let (pages, seconds) = crowd.fetch(links, 600, stick_table(most, refusal));
            let said = format!(
                "{most} {refusal:?}: {pages} of {links} in {seconds} s, {} refused",
                crowd.refused
            );
            assert!(pages == links && crowd.refused <= 4, "{said}");
            // The best constant rate takes a minute, and one silence has to be sat out.
            assert!(seconds - refusal.1 as f64 / 1000.0 <= 60.0 / 0.8, "{said}");
            let state = crowd.crawl.pace.state(Level::Host, "a.org").unwrap();
            let mut again = Crowd::new(Crawl {
                now: crowd.crawl.now + 20_000,
                ..Crawl::new(PaceSettings::default())
            });
            again.crawl.pace.restore(Level::Host, "a.org", &state, again.crawl.at());
            let (pages, seconds) = again.fetch(links, 600, stick_table(most, refusal));
            let said = format!(
                "again {most} {refusal:?}: {pages} of {links} in {seconds} s, {} refused",
                again.refused
            );
            assert!(pages == links && again.refused == 0 && seconds <= 60.0 / 0.85, "{said}");
        }
    }
}

/// Errors by chance come between pages, however long they take.
#[test]
fn late_errors_by_chance_are_no_limit() {
    let pages = |share: f64, ms: i64| {
        let one = |seed| {
            let mut crowd = Crowd::new(Crawl::new(PaceSettings::default()));
            let by_chance = |_: i64, n: u64| match luck(seed, n) < share {
                true => (Signal::Broken, ms),
                false => (Signal::Content, 6),
            };
            crowd.fetch(usize::MAX, 300, by_chance).0
        };
        (0..10).map(one).sum::<usize>() as f64
    };
    let clean = pages(0.0, 0);
    // The requests that wait leave room for few others.
    for (share, ms, least) in
        [(0.02, 10_000, 0.4), (0.02, 30_000, 0.18), (0.05, 10_000, 0.17), (0.1, 4000, 0.18)]
    {
        let part = pages(share, ms) / clean;
        assert!(part >= least, "{share}, {ms} ms: {part}");
    }
}
