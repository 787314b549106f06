//! Tests of what is kept: in memory, in the store, and for the next process.

use super::*;

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
