//! The crawl of one host by one crawler: an event queue under a virtual clock, and its counters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::site::{Page, Site};
use super::world::JointWorld;
use crate::pace::server::Status;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: f64 = 3.6e6;

/// The next action of a crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Requests a page. The ticket comes back with the response.
    Send { url: u32, place: usize, ticket: usize },
    /// Does nothing before this time.
    Wait(i64),
    /// Does nothing before a response arrives.
    Idle,
}

/// A crawler of one host.
pub(super) trait Crawler {
    /// Returns its action at `now` (ms), with the number of free slots of each fetcher.
    fn turn(&mut self, free: &[u8], now: i64) -> Action;
    /// Reports the result of a request.
    fn back(&mut self, ticket: usize, page: &Page, now: i64);
    /// Returns the rate at which it holds the host, and the learned ceiling, in requests per
    /// second, if known.
    fn held_to(&self, _now: i64) -> Option<[f64; 2]> {
        None
    }
    /// Returns the number of URLs that were given up.
    fn lost(&self) -> u64;
}

/// One minute of a crawl.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Minute {
    pub(super) good: f32,
    pub(super) best: f32,
    pub(super) blocked: f32,
    /// Requests to the host, including those of rendered pages.
    pub(super) requests: f32,
    /// The rate and the learned ceiling at its end.
    pub(super) held_to: Option<[f32; 2]>,
}

/// The counters of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct HostCounters {
    pub(super) pages: u64,
    pub(super) good: u64,
    pub(super) blocked: u64,
    pub(super) content_blocked: u64,
    pub(super) rendered: u64,
    pub(super) cost: f64,
    pub(super) lost: u64,
    pub(super) trips: u32,
    /// The duration in hours.
    pub(super) hours: f64,
    /// Good pages of the best pace in that time.
    pub(super) best: f64,
    /// The share of the first ten minutes.
    pub(super) early: f64,
    pub(super) minutes: Vec<Minute>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    Wake,
    Back(usize),
    /// One more request of a page that the fetcher at this index renders.
    Part(usize),
}

struct InFlight {
    place: usize,
    ticket: usize,
    page: Page,
}

pub(super) struct Crawl<'c> {
    world: &'c JointWorld,
    site: &'c mut Site,
    crawler: &'c mut dyn Crawler,
    tries: Vec<u32>,
    events: BinaryHeap<Reverse<(i64, u64, EventKind)>>,
    number: u64,
    wake: i64,
    out: Vec<Option<InFlight>>,
    free: Vec<u8>,
    in_flight: u8,
    count: HostCounters,
}

impl<'c> Crawl<'c> {
    pub(super) fn new(
        world: &'c JointWorld,
        site: &'c mut Site,
        crawler: &'c mut dyn Crawler,
    ) -> Self {
        Self {
            world,
            tries: vec![0; world.urls as usize],
            events: BinaryHeap::new(),
            number: 0,
            wake: i64::MAX,
            out: Vec::new(),
            free: site.truth.ways.iter().map(|way| way.places).collect(),
            in_flight: 0,
            count: HostCounters::default(),
            site,
            crawler,
        }
    }

    /// Crawls for the duration of the world, or until nothing is left to do.
    pub(super) fn run(mut self) -> HostCounters {
        let end = (self.world.hours * HOUR_MS) as i64;
        let (mut last, mut sampled) = (0, 0);
        self.pump(0);
        while let Some(Reverse((now, _, what))) = self.events.pop() {
            if now > end {
                last = end;
                break;
            }
            while sampled + MINUTE_MS <= now {
                sampled += MINUTE_MS;
                let held_to =
                    self.crawler.held_to(sampled).map(|held| held.map(|rate| rate as f32));
                self.minute(sampled - 1).held_to = held_to;
            }
            match what {
                EventKind::Wake if self.wake == now => self.wake = i64::MAX,
                EventKind::Wake => continue,
                EventKind::Part(place) => {
                    self.site.part(place, now);
                    self.minute(now).requests += 1.0;
                    continue;
                }
                EventKind::Back(at) => {
                    self.back(at, now);
                    last = now;
                }
            }
            self.pump(now);
        }
        self.sum_up(last.max(1))
    }

    fn minute(&mut self, at: i64) -> &mut Minute {
        let number = (at / MINUTE_MS).max(0) as usize;
        if self.count.minutes.len() <= number {
            self.count.minutes.resize(number + 1, Minute::default());
        }
        &mut self.count.minutes[number]
    }

    /// Sends the requests that the crawler wants to make now.
    fn pump(&mut self, now: i64) {
        while self.in_flight < self.world.parallel {
            match self.crawler.turn(&self.free, now) {
                Action::Send { url, place, ticket } => self.send(url, place, ticket, now),
                Action::Idle => return,
                Action::Wait(until) => {
                    let until = until.max(now + 1);
                    if until < self.wake {
                        self.wake = until;
                        self.push(until, EventKind::Wake);
                    }
                    return;
                }
            }
        }
    }

    fn push(&mut self, at: i64, what: EventKind) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, what)));
    }

    fn send(&mut self, url: u32, place: usize, ticket: usize, now: i64) {
        let tries = &mut self.tries[url as usize];
        *tries += 1;
        let page = self.site.ask(url, place, *tries, now);
        let renders = self.site.truth.ways[place].renders;
        self.in_flight += 1;
        self.free[place] = self.free[place].saturating_sub(1);
        self.count.pages += 1;
        self.count.rendered += u64::from(renders);
        self.count.cost += self.world.spec(place).map_or(0.0, |spec| spec.cost);
        self.minute(now).requests += 1.0;
        // The requests of a page are spread evenly over its rendering.
        for part in 1..i64::from(page.requests) {
            self.push(
                now + page.reply.latency_ms * part / i64::from(page.requests),
                EventKind::Part(place),
            );
        }
        let at = self.out.iter().position(Option::is_none).unwrap_or(self.out.len());
        if at == self.out.len() {
            self.out.push(None);
        }
        self.out[at] = Some(InFlight { place, ticket, page });
        self.push(now + page.reply.latency_ms, EventKind::Back(at));
    }

    fn back(&mut self, at: usize, now: i64) {
        let Some(out) = self.out[at].take() else { return };
        if out.page.reply.is_served {
            self.site.server.served();
        }
        self.in_flight -= 1;
        self.free[out.place] += 1;
        let minute = self.minute(now);
        minute.good += f32::from(u8::from(out.page.is_content()));
        minute.blocked += f32::from(u8::from(out.page.is_refused));
        self.count.good += u64::from(out.page.is_content());
        self.count.blocked += u64::from(out.page.is_refused);
        self.count.content_blocked += u64::from(out.page.reply.status == Status::Forbidden);
        self.crawler.back(out.ticket, &out.page, now);
    }

    fn sum_up(mut self, last: i64) -> HostCounters {
        self.minute(last - 1);
        let mut count = self.count;
        count.lost = self.crawler.lost();
        count.trips = self.site.server.trips;
        count.hours = last as f64 / HOUR_MS;
        let mut early = (0.0, 0.0);
        for (number, minute) in count.minutes.iter_mut().enumerate() {
            let at = number as i64 * MINUTE_MS;
            let length = ((last - at) as f64 / MINUTE_MS as f64).clamp(0.0, 1.0);
            let best = self.site.best(at + MINUTE_MS / 2).rate * 60.0 * length;
            minute.best = best as f32;
            count.best += best;
            if number < 10 {
                early = (early.0 + f64::from(minute.good), early.1 + best);
            }
        }
        count.early = early.0 / f64::max(early.1, 1e-9);
        count
    }
}
