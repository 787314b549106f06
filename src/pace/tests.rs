//! The rules of pace, one test each, by what a caller sees.

use std::time::Duration;

use super::*;
use crate::registry::FetcherId;

const FETCHER: FetcherId = FetcherId(0);

/// A host under a pace, and a clock.
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
                Admit::Full => panic!("{host} is full"),
            }
        }
    }

    fn say(&mut self, permit: Permit, answer: Answer) -> Done {
        self.pace.done(permit, &answer, self.at())
    }

    /// So many good answers, one after the other, each after 100 ms.
    fn good(&mut self, host: &str, count: usize) {
        for _ in 0..count {
            let permit = self.permit(host);
            self.now += 100;
            let answer = Answer { latency: Some(Duration::from_millis(100)), ..Answer::new(Heard::Content, FETCHER) };
            assert_eq!(self.say(permit, answer), Done::Nothing);
        }
    }

    fn explain(&self, host: &str) -> Explained {
        self.pace.explain(host, self.at()).unwrap()
    }
}

#[test]
fn a_host_starts_at_two_requests_a_second_and_doubles_in_ten() {
    let mut crawl = Crawl::new(PaceSettings::default());
    let begin = crawl.now;
    while crawl.now < begin + 10_500 {
        crawl.good("a.org", 1);
    }
    let rate = crawl.explain("a.org").rate;
    assert!((3.3..4.3).contains(&rate), "{rate}");
}

#[test]
fn a_429_holds_the_host_and_sixteen_at_once_are_one_event() {
    let mut crawl = Crawl::new(PaceSettings::default());
    crawl.good("a.org", 100);
    let mut permits = Vec::new();
    while permits.len() < 3 {
        match crawl.pace.admit(Scope::host("a.org"), Cost::Plain, crawl.at()) {
            Admit::Go(permit) => permits.push(permit),
            Admit::Wait(until) => crawl.now = until.as_millis(),
            Admit::Full => break,
        }
    }
    assert!(permits.len() > 1);
    let limited = Answer { retry_after: Some(Duration::from_secs(60)), ..Answer::new(Heard::Limited, FETCHER) };
    let done: Vec<Done> = permits.drain(..).map(|permit| crawl.say(permit, limited)).collect();
    assert!(matches!(done[0], Done::Event { level: Level::Host, .. }), "{done:?}");
    assert!(done[1..].iter().all(|done| *done == Done::Nothing), "{done:?}");
    let event = crawl.now;
    let trial = crawl.permit("a.org");
    assert_eq!(crawl.now, event + 61_000, "the hold is what was asked for and a second");
    assert_eq!(
        crawl.pace.admit(Scope::host("a.org"), Cost::Plain, Timestamp::from_millis(crawl.now + 9000)),
        Admit::Full
    );
    assert_eq!(crawl.say(trial, Answer::new(Heard::Content, FETCHER)), Done::Nothing);
    crawl.good("a.org", 10);
}
