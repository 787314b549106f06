//! Tests of slow hosts and of a busy machine.

use super::*;

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
