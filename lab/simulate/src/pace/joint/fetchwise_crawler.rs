//! The project's crawler: visits of the real selector, with or without its pace, as many at a time
//! as `fetch` has in progress.
//!
//! Owns: the frontier: the order of URLs, and the retry time of URLs without content. The visits
//! choose each request and its time.
//!
//! Must not know: the world around it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::fetch_result::{Block, FetchResult, Outcome};
use fetchwise::pace::{Pace, PaceSettings};
use fetchwise::selector::VisitSettings;
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{End, Fetch, Step, Visit, VisitOutcome, Wait, WaitReason};
use url::Url;

use super::crawl::{Action, Crawler};
use super::site::Page;
use super::world::JointWorld;
use crate::error::SimulateError;
use crate::pace::server::Status;

/// The time at which worlds begin. It is arbitrary, but the same in each run.
const BEGIN_MS: i64 = 1_767_225_600_000;
/// The number of open visits: more than can have a request in flight, because some of them wait.
const OPEN: usize = 40;
/// A URL is given up after this number of failed visits.
const FAILURES: u32 = 5;
/// The time after which a URL that ended without a pause is retried.
const AGAIN_MS: i64 = 600_000;

type Own = Visit<Arc<Selector>, Url>;

#[derive(Debug)]
struct Slot {
    url: u32,
    failures: u32,
    visit: Own,
    state: State,
}

#[derive(Debug)]
enum State {
    Ready,
    InFlight(Box<Fetch<Arc<Selector>>>),
    Waits(Wait),
    /// Waits for a free slot of the fetcher at this index.
    Busy(usize),
}

/// A selector and the URLs that it has to fetch.
pub(super) struct FetchwiseCrawler {
    clock: Arc<Clock>,
    selector: Arc<Selector>,
    slots: Vec<Option<Slot>>,
    fresh: std::ops::Range<u32>,
    again: BinaryHeap<Reverse<(i64, u32, u32)>>,
    lost: u64,
}

fn time(now: i64) -> Timestamp {
    Timestamp::from_millis(BEGIN_MS + now)
}

fn domain() -> &'static str {
    "site.org"
}

impl FetchwiseCrawler {
    pub(super) fn new(world: &JointWorld, is_paced: bool) -> Result<Self, SimulateError> {
        let clock = Arc::new(Clock::fixed(time(0)));
        let specs = (0..world.fetchers.len()).filter_map(|place| world.spec(place));
        let mut builder =
            specs.fold(Selector::builder().without_pace(), |builder, spec| builder.fetcher(spec));
        if is_paced {
            // The crawler keeps its own list of waiting URLs.
            builder = builder
                .visits(VisitSettings { max_pace_wait: Duration::MAX, ..VisitSettings::default() });
            builder = builder.pace(Pace::new(PaceSettings {
                max_parallel: world.parallel,
                ..PaceSettings::default()
            }));
        }
        let selector = builder.around(time(0)).clock(Arc::clone(&clock)).build()?;
        let slots = (0..OPEN).map(|_| None).collect();
        Ok(Self {
            clock,
            selector: Arc::new(selector),
            slots,
            fresh: 0..world.urls,
            again: BinaryHeap::new(),
            lost: 0,
        })
    }

    /// Returns the next URL to visit: new URLs first, then those whose pause is over.
    fn next_url(&mut self, now: i64) -> Option<(u32, u32)> {
        if let Some(url) = self.fresh.next() {
            return Some((url, 0));
        }
        let Reverse((_, url, failures)) =
            *self.again.peek().filter(|Reverse((at, ..))| *at <= now)?;
        self.again.pop();
        Some((url, failures))
    }

    fn begin(&mut self, url: u32, failures: u32) -> Option<Slot> {
        let address = Url::parse(&format!("https://{}/pages/{url}", domain())).ok()?;
        let visit = Visit::new(Arc::clone(&self.selector), address).ok()?;
        Some(Slot { url, failures, visit, state: State::Ready })
    }

    /// Handles a visit that ended without content: its URL is retried, or given up.
    fn ended(&mut self, url: u32, failures: u32, end: &End, now: i64) {
        if end.is_delivered() {
            return;
        }
        let paused = match end.how {
            VisitOutcome::Paused { until, .. } => Some(until),
            _ => end.paused_until,
        };
        let is_own =
            end.requests > 0 && !matches!(end.how, VisitOutcome::Paused { .. }) && !is_refused(end);
        let failures = failures + u32::from(is_own);
        if failures >= FAILURES {
            self.lost += 1;
            return;
        }
        let until = paused.map_or(now + AGAIN_MS, |until| until.as_millis() - BEGIN_MS);
        self.again.push(Reverse((until.max(now + 1), url, failures)));
    }

    /// Returns whether a slot can act now.
    fn may_go(slot: &mut Slot, free: &[u8], now: i64) -> bool {
        match &mut slot.state {
            State::Ready => true,
            State::InFlight(_) => false,
            State::Busy(place) => free.get(*place).is_some_and(|free| *free > 0),
            State::Waits(wait) => wait.until() <= time(now) || was_notified(wait),
        }
    }

    /// Takes the next step of the visit in the slot at `at`; returns a request, if there is one.
    fn step(&mut self, at: usize, free: &[u8], now: i64) -> Option<Action> {
        let slot = self.slots[at].as_mut()?;
        match slot.visit.next() {
            Step::Fetch(fetch) => {
                let place = fetch.fetcher_id().index();
                if free.get(place).is_none_or(|free| *free == 0) {
                    slot.state = State::Busy(place);
                    return None;
                }
                let url = slot.url;
                slot.state = State::InFlight(Box::new(fetch));
                Some(Action::Send { url, place, ticket: at })
            }
            Step::Wait(wait) => {
                slot.state = State::Waits(wait);
                None
            }
            Step::End(end) => {
                let (url, failures) = (slot.url, slot.failures);
                self.slots[at] = None;
                self.ended(url, failures, &end, now);
                None
            }
        }
    }

    fn wake(&self) -> Option<i64> {
        let wait = |slot: &Slot| match &slot.state {
            State::Waits(wait) => Some(wait.until().as_millis() - BEGIN_MS),
            _ => None,
        };
        self.slots.iter().flatten().filter_map(wait).min()
    }
}

impl Crawler for FetchwiseCrawler {
    fn turn(&mut self, free: &[u8], now: i64) -> Action {
        self.clock.set(time(now));
        loop {
            let ready = self
                .slots
                .iter_mut()
                .position(|slot| slot.as_mut().is_some_and(|s| Self::may_go(s, free, now)));
            if let Some(at) = ready {
                if let Some(turn) = self.step(at, free, now) {
                    return turn;
                }
                continue;
            }
            // A slot that waits for the host's pace, or for a free fetcher, is next: those behind
            // it would wait, too.
            let queued = |slot: &Slot| match &slot.state {
                State::Waits(wait) => wait.reason() == WaitReason::Pace,
                State::Busy(_) => true,
                _ => false,
            };
            let vacant = self
                .slots
                .iter()
                .position(Option::is_none)
                .filter(|_| !self.slots.iter().flatten().any(queued));
            if let Some(at) = vacant
                && let Some((url, failures)) = self.next_url(now)
            {
                self.slots[at] = self.begin(url, failures);
                continue;
            }
            let again = self.again.peek().filter(|_| vacant.is_some()).map(|Reverse((at, ..))| *at);
            return self.wake().into_iter().chain(again).min().map_or(Action::Idle, Action::Wait);
        }
    }

    fn back(&mut self, ticket: usize, page: &Page, now: i64) {
        self.clock.set(time(now));
        let Some(Some(slot)) = self.slots.get_mut(ticket) else { return };
        if let State::InFlight(fetch) = std::mem::replace(&mut slot.state, State::Ready) {
            let renders =
                self.selector.fetcher(fetch.fetcher_id()).is_some_and(|spec| spec.renders);
            slot.visit.report(*fetch, answer(page, renders));
        }
    }

    fn held_to(&self, now: i64) -> Option<[f64; 2]> {
        let explained = self.selector.pace()?.explain(domain(), time(now))?;
        let rate = if explained.hold_until.is_some_and(|until| until > time(now)) {
            0.0
        } else {
            explained.rate
        };
        Some([rate, explained.ceiling.map_or(f64::NAN, |(ceiling, _)| ceiling)])
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// Returns whether the host's limiter caused the end, which says nothing about the URL.
fn is_refused(end: &End) -> bool {
    matches!(&end.how, VisitOutcome::Failed(error) if error.name() == "rate_limited")
}

/// Returns whether the event that is waited for has happened.
fn was_notified(wait: &mut Wait) -> bool {
    let notified = pin!(wait.notified());
    notified.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

/// Returns a page as the crawler sees it.
fn answer(page: &Page, renders: bool) -> FetchResult {
    let answer = match page.reply.status {
        Status::Ok if page.is_shell => {
            FetchResult::from(Outcome::Shell { framework: None }).with_status(200)
        }
        Status::Ok => FetchResult::from(Outcome::Content).with_status(200),
        Status::Limited => FetchResult::from(Outcome::Blocked(Block::refusal())).with_status(429),
        Status::Unavailable | Status::Flaky => {
            FetchResult::from(Outcome::Http(503)).with_status(503)
        }
        Status::Block | Status::Forbidden => {
            FetchResult::from(Outcome::Blocked(Block::challenge())).with_status(403)
        }
        Status::Error => FetchResult::from(Outcome::Http(500)).with_status(500),
        Status::Reset => FetchResult::from(Outcome::Network),
        Status::Timeout => FetchResult::from(Outcome::Timeout),
    };
    let mut answer =
        answer.with_duration(Duration::from_millis(page.reply.latency_ms.unsigned_abs()));
    answer.retry_after = page.reply.retry_after_s.map(Duration::from_secs_f64);
    answer.requests = renders.then_some(page.requests);
    answer
}
