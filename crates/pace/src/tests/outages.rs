//! Tests of hosts that are down for a while.

use super::*;

const DOWN: [Signal; 3] = [Signal::Unavailable, Signal::ServerError, Signal::Broken];

/// Six errors made a ceiling of one request in two seconds, which lasted for hours.
#[test]
fn a_host_that_was_down_at_first_is_asked_as_any_other_later() {
    for signal in DOWN {
        let mut crawl = Crawl::new(PaceSettings::default());
        let begin = crawl.now;
        let _ = crawl_with(&mut crawl, 30, |_| signal);
        let held = crawl.explain("a.org");
        assert!(held.hold_until.is_some() && held.ceiling.is_none(), "{held}");
        let up = |now| if now < begin + 90_000 { signal } else { Signal::Content };
        let _ = crawl_with(&mut crawl, 180, up);
        let explanation = crawl.explain("a.org");
        assert!(explanation.rate > 8.0, "{signal:?}: {explanation}");
    }
}

/// Each outage lowered the ceiling, down to one request in forty seconds.
#[test]
fn outages_cost_their_own_time() {
    for signal in DOWN {
        let mut crawl = Crawl::new(PaceSettings::default());
        let begin = crawl.now;
        let hours = [0; 4].map(|_| {
            crawl_with(&mut crawl, 3600, |now| match (now - begin) % 3_600_000 {
                3_300_000.. => signal,
                _ => Signal::Content,
            })
        });
        let (good, failed) = hours[3];
        assert!(
            10 * good >= 9 * hours[0].0 && failed <= 12,
            "{signal:?}: pages and errors {hours:?}"
        );
    }
}

/// A quota answers as a host that is down does, but after as many requests each time.
#[test]
fn a_quota_that_answers_503_is_no_outage() {
    for (most, span_s) in [(600, 900), (2000, 900), (5000, 3600)] {
        let mut crawl = Crawl::new(PaceSettings::default());
        let (mut begin, mut count) = (0, 0);
        let mut refused = [0; 2];
        for refused in &mut refused {
            (_, *refused) = crawl_with(&mut crawl, 4 * span_s, |now| {
                if now > begin + span_s * 1000 {
                    (begin, count) = (now, 0);
                }
                count += 1;
                if count > most { Signal::Unavailable } else { Signal::Content }
            });
        }
        assert!(refused[1] <= 12, "{most} in {span_s} s: {refused:?} refused");
    }
}

/// One 503 with `Retry-After`, as servers send that warm up, made a ceiling of one page in three
/// minutes.
#[test]
fn a_first_refusal_that_says_for_how_long_is_no_limit() {
    for signal in [Signal::Unavailable, Signal::Limited] {
        let mut crawl = Crawl::new(PaceSettings::default());
        let permit = crawl.permit("a.org");
        let asked = Some(Duration::from_secs(30));
        let response = Response { retry_after: asked, ..Response::new(signal, FETCHER) };
        let _ = crawl.respond(permit, response);
        let (good, _) = crawl_with(&mut crawl, 90, |_| Signal::Content);
        let explanation = crawl.explain("a.org");
        assert!(good > 200 && explanation.ceiling.is_none(), "{signal:?}: {good}, {explanation}");
    }
}

/// A limit that says for how long counts from its second refusal on.
#[test]
fn a_limit_that_says_for_how_long_costs_one_refusal_more() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let (mut begin, mut count, mut refused) = (crawl.now, 0, 0);
    for _ in 0..300 {
        let permit = crawl.permit("a.org");
        if crawl.now >= begin + 60_000 {
            (begin, count) = (crawl.now, 0);
        }
        count += 1;
        let is_refused = count > 3;
        refused += u32::from(is_refused);
        let left_s = (begin + 60_000 - crawl.now).unsigned_abs().div_ceil(1000);
        let signal = if is_refused { Signal::Limited } else { Signal::Content };
        let retry_after = is_refused.then(|| Duration::from_secs(left_s));
        let _ = crawl.respond(permit, Response { retry_after, ..Response::new(signal, FETCHER) });
    }
    assert!(refused <= 12, "{refused} of 300 refused");
}
