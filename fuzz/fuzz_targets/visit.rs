//! Any script of steps over several visits of one host: answers of every kind, late ones among them, fetches and visits that are
//! dropped, and time that passes. Nothing panics, each report is one attempt unless it is a redirect that is followed or a local
//! fault, nobody waits for somebody who is gone, and a visit that goes on alone ends.
//!
//! Three bytes are one event: what happens and to which visit, the outcome, and an amount.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::answer::{Answer, Block, Outcome};
use fetchwise::attempt::Attempt;
use fetchwise::registry::{FetcherSet, FetcherSpec};
use fetchwise::response::Header;
use fetchwise::selector::{Sink, SinkError};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{Ended, Fetch, Step, Visit, Wait, Why};
use libfuzzer_sys::fuzz_target;
use url::Url;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const VISITS: usize = 4;
/// A visit that nobody disturbs takes no more steps than that: attempts, retries, redirects, waits.
const STEPS_MAX: usize = 100;

/// Counts what is recorded.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Sink for Count {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        assert!(attempt.propensity.is_some() && attempt.source.is_some(), "{attempt:?}");
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct World {
    selector: Arc<Selector>,
    clock: Arc<Clock>,
    recorded: Count,
    begun: usize,
}

/// One visit, and the fetches that it has handed out; the last one is the one that it waits for.
struct Place {
    visit: Visit<Arc<Selector>, Url>,
    out: Vec<(usize, Fetch<Arc<Selector>>)>,
    handed_out: usize,
    has_ended: bool,
}

impl World {
    fn new() -> Self {
        let (clock, recorded) = (Arc::new(Clock::fixed(BEGIN)), Count::default());
        let names = ["direct_access", "playwright", "playwright_stealth"];
        let builder = Selector::builder().around(BEGIN).clock(Arc::clone(&clock)).sink(recorded.clone());
        let builder = names.into_iter().fold(builder, |builder, name| builder.fetcher(FetcherSpec::by_name(name)));
        let selector = Arc::new(builder.build().expect("three fetchers are a selector"));
        Self { selector, clock, recorded, begun: 0 }
    }

    /// A new visit, sometimes of a link that was visited before.
    fn begin(&mut self) -> Place {
        self.begun += 1;
        let url = format!("https://e.org/section/{}", self.begun % 10);
        let url = Url::parse(&url).expect("an address and a number are a URL");
        let visit = Visit::new(Arc::clone(&self.selector), url).expect("it can be fetched");
        Place { visit, out: Vec::new(), handed_out: 0, has_ended: false }
    }

    fn recorded(&self) -> usize {
        self.recorded.0.load(Ordering::Relaxed)
    }

    fn pass(&self, span: Duration) {
        self.clock.set(self.clock.now().saturating_add(span));
    }
}

fn outcome(byte: u8) -> Outcome {
    match byte % 20 {
        0..=3 => Outcome::Content,
        4 => Outcome::Blocked(Block::challenge()),
        5 => Outcome::Blocked(Block::refusal()),
        6 => Outcome::Http(429),
        7 => Outcome::Http(503),
        8 => Outcome::Http(404),
        9 => Outcome::Http(u16::from(byte) * 4),
        10 => Outcome::Timeout,
        11 => Outcome::Network,
        12 => Outcome::Empty,
        13 => Outcome::Local,
        14 => Outcome::Redirect { to: format!("/elsewhere/{byte}").into() },
        15 => Outcome::Redirect { to: "mailto:nobody".into() },
        16 => Outcome::Queued,
        17 => Outcome::Shell { framework: None },
        18 => Outcome::Proxy,
        _ => Outcome::Other("of_its_own".into()),
    }
}

fn answer(byte: u8, amount: u8) -> Answer {
    let outcome = outcome(byte);
    let mut answer = Answer::from(outcome.clone());
    if let Outcome::Http(status) = outcome {
        answer.status = Some(status);
    }
    match amount {
        0..=199 => {}
        200..=229 => answer.retry_after = Some(Duration::from_secs(u64::from(amount) * 10)),
        _ => answer.headers = vec![Header::new("Retry-After", &amount.to_string())].into(),
    }
    answer
}

/// Seconds, minutes and hours.
fn span(amount: u8) -> Duration {
    Duration::from_secs(u64::from(amount % 64) * [1, 10, 60, 3600][usize::from(amount / 64)])
}

/// Asks a visit for its next step, and checks what it says.
fn next(world: &World, places: &mut [Place], n: usize) {
    let now = world.clock.now();
    let step = places[n].visit.next();
    match step {
        Step::Fetch(fetch) => {
            assert!(!fetch.deadline().is_zero() && fetch.at() == now);
            assert!((0.0..=1.0).contains(&fetch.decision().propensity), "{:?}", fetch.decision());
            let place = &mut places[n];
            place.handed_out += 1;
            place.out.push((place.handed_out, fetch));
        }
        Step::Wait(wait) => is_for_somebody(&wait, places, n, now),
        Step::End(end) => {
            if let Ended::Paused { until, .. } = end.how {
                assert!(until > now, "{end:?}");
            }
            places[n].has_ended = true;
        }
        _ => unreachable!("there are no other steps"),
    }
}

fn is_for_somebody(wait: &Wait, places: &[Place], n: usize, now: Timestamp) {
    assert!(wait.until() > now, "what is over is not waited for: {wait:?}");
    if wait.why() != Why::LocalFault {
        let mut others = places.iter().enumerate().filter(|(other, _)| *other != n);
        let is_there = others.any(|(_, other)| other.handed_out > 0) || !places[n].out.is_empty();
        assert!(is_there, "nobody has anything to be waited for: {wait:?}");
    }
}

fn report(world: &World, place: &mut Place, which: u8, answer: Answer) {
    if place.out.is_empty() {
        return;
    }
    let (number, fetch) = place.out.remove(usize::from(which) % place.out.len());
    let is_late = number != place.handed_out || place.has_ended;
    let is_local = answer.outcome == Outcome::Local;
    let (before, redirects) = (world.recorded(), place.visit.redirects());
    place.visit.report(fetch, answer);
    let is_followed = place.visit.redirects() > redirects;
    assert!(!is_late || !is_followed, "a late answer changes nothing");
    let expected = usize::from(!is_local && !is_followed);
    assert_eq!(world.recorded() - before, expected, "a report is an attempt");
}

/// One event. Only a report records anything.
fn happen(world: &mut World, places: &mut [Place], event: &[u8; 3]) {
    let [what, kind, amount] = *event;
    let n = usize::from(what) % VISITS;
    let before = world.recorded();
    match what / 16 {
        0..=5 => next(world, places, n),
        6..=10 => return report(world, &mut places[n], amount, answer(kind, amount)),
        11 => drop(places[n].out.pop()),
        12 => {
            if let Some((_, fetch)) = places[n].out.pop() {
                places[n].visit.unavailable(fetch, "it does not start");
            }
        }
        13 => places[n] = world.begin(),
        14 => {
            let mut place = world.begin();
            let mut without = FetcherSet::EMPTY;
            world.selector.candidates().nth(usize::from(kind) % 3).into_iter().for_each(|(id, _)| without.insert(id));
            place.visit = place.visit.without(without);
            places[n] = place;
        }
        _ if kind % 8 == 0 => places[n].visit.waited(),
        _ => world.pass(span(amount)),
    }
    assert_eq!(world.recorded(), before, "what nobody has reported is no attempt");
}

/// A visit alone, answered as `kind` says each time, comes to its end.
fn goes_on_alone(world: &World, place: &mut Place, kind: u8) {
    place.out.clear();
    for _ in 0..STEPS_MAX {
        match place.visit.next() {
            Step::Fetch(fetch) => place.visit.report(fetch, answer(kind, 0)),
            Step::Wait(wait) if wait.why() == Why::LocalFault => world.clock.set(wait.until()),
            Step::Wait(wait) => panic!("all others are gone: {wait:?}"),
            Step::End(_) => return,
            _ => unreachable!("there are no other steps"),
        }
    }
    panic!("no end after {STEPS_MAX} steps");
}

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new();
    let mut places: Vec<Place> = (0..VISITS).map(|_| world.begin()).collect();
    for event in bytes.as_chunks::<3>().0.iter().take(2_000) {
        happen(&mut world, &mut places, event);
    }
    let mut last = places.swap_remove(0);
    drop(places);
    goes_on_alone(&world, &mut last, bytes.first().copied().unwrap_or_default());
    drop(last);
    let mut after = world.begin();
    goes_on_alone(&world, &mut after, bytes.last().copied().unwrap_or_default());
});
