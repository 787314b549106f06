//! The crawl of one site, or of several unrelated hosts, by one pacer: an event queue under a
//! virtual clock, and its counters.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::server::{Reply, Server, Status};
use super::world::{Busy, PaceWorld};
use crate::pace::pacer::{Admission, NextStep, Pacer, Token};
use crate::rng::Stream;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: f64 = 3.6e6;

/// The counters of one site.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteCounters {
    pub(super) requests: u64,
    pub(super) good: u64,
    pub(super) blocked: u64,
    /// URLs that were given up.
    pub(super) lost: u64,
    pub(super) trips: u32,
    /// The duration in hours.
    pub(super) hours: f64,
    /// Good pages of the best pace in that time.
    pub(super) best: f64,
    /// The same for the first ten minutes.
    pub(super) early: f64,
    /// Minutes until a minute reached four fifths of the best pace; the whole time if none did.
    pub(super) converged_min: f64,
    /// The share of the time in which a sequential server was busy.
    pub(super) busy: f64,
    /// The mean latency as a multiple of the quiet host's.
    pub(super) slower: f64,
    /// Good pages, those of the best pace, and blocks, by minute.
    pub(super) minutes: Vec<[f32; 3]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    Wake(usize),
    Back(usize),
}

/// A request in flight.
struct InFlight {
    host: usize,
    url: u32,
    token: Token,
    reply: Reply,
    tries: u32,
    is_counted: bool,
}

/// The remaining URLs of one host.
#[derive(Default)]
struct Queue {
    next: u32,
    end: u32,
    again: VecDeque<(u32, u32)>,
    doubted: Vec<(u32, u32, u32)>,
    in_flight: u8,
    wake: i64,
}

pub(super) struct Crawl<'c> {
    world: &'c PaceWorld,
    /// That of the site, or one for each host.
    servers: &'c mut [Server],
    busy: Option<Busy>,
    pacer: &'c mut dyn Pacer,
    seed: u64,
    queues: Vec<Queue>,
    events: BinaryHeap<Reverse<(i64, u64, EventKind)>>,
    sent: u64,
    out: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// By server.
    counts: Vec<SiteCounters>,
    slowness: Vec<f64>,
    last: Vec<i64>,
    begin: i64,
    is_open: bool,
}

impl<'c> Crawl<'c> {
    pub(super) fn new(
        world: &'c PaceWorld,
        servers: &'c mut [Server],
        busy: Option<Busy>,
        pacer: &'c mut dyn Pacer,
        hosts: usize,
        seed: u64,
    ) -> Self {
        let each = world.urls / hosts as u32 * servers.len() as u32;
        let queues = (0..hosts as u32)
            .map(|host| Queue {
                next: host * each,
                end: (host + 1) * each,
                wake: i64::MAX,
                ..Queue::default()
            })
            .collect();
        let (events, out, free) = (BinaryHeap::new(), Vec::new(), Vec::new());
        let (counts, slowness) =
            (vec![SiteCounters::default(); servers.len()], vec![0.0; servers.len()]);
        let (last, sent, begin, is_open) = (vec![0; servers.len()], 0, 0, true);
        Self {
            world,
            servers,
            busy,
            pacer,
            seed,
            queues,
            events,
            sent,
            out,
            free,
            counts,
            slowness,
            last,
            begin,
            is_open,
        }
    }

    /// Returns the number of the server of `host`.
    fn server_of(&self, host: usize) -> usize {
        host.min(self.servers.len() - 1)
    }

    /// Crawls for the duration of the world, or until no URLs are left. Returns the counters of
    /// each server.
    pub(super) fn run(mut self) -> Vec<SiteCounters> {
        let mut begin = 0;
        if let Some(before) = self.world.before {
            let end = (before.hours * HOUR_MS) as i64;
            self.until(0, end);
            self.is_open = false;
            self.until(end, i64::MAX);
            begin = end + (before.pause_min * 60_000.0) as i64;
            self.is_open = true;
            self.pacer.restart(begin);
            // The measured crawl has different URLs: as many as before.
            let each = self.world.urls / self.queues.len() as u32 * self.servers.len() as u32;
            let last = self.queues.iter().map(|queue| queue.end).max().unwrap_or(0);
            for (host, queue) in self.queues.iter_mut().enumerate() {
                let next = last + host as u32 * each;
                *queue = Queue { next, end: next + each, wake: i64::MAX, ..Queue::default() };
            }
            for (count, server) in self.counts.iter_mut().zip(&*self.servers) {
                *count = SiteCounters {
                    trips: server.trips,
                    busy: server.busy_ms,
                    ..SiteCounters::default()
                };
            }
            self.slowness.fill(0.0);
        }
        let end = begin + (self.world.hours * HOUR_MS) as i64;
        self.begin = begin;
        let last = self.until(begin, end);
        (0..self.servers.len())
            .map(|server| self.sum_up(server, begin, self.last_of(server, last, end), end))
            .collect()
    }

    /// Returns the time of the last result of a server, or `end` if its URLs were not enough;
    /// `last` is that of the crawl.
    fn last_of(&self, server: usize, last: i64, end: i64) -> i64 {
        let left = |queue: &Queue| {
            queue.next < queue.end || !queue.again.is_empty() || queue.in_flight > 0
        };
        match self.servers.len() {
            1 => last,
            _ if left(&self.queues[server]) => end,
            _ => self.last[server],
        }
    }

    fn sum_up(&self, number: usize, begin: i64, last: i64, end: i64) -> SiteCounters {
        let (server, mut count) = (&self.servers[number], self.counts[number].clone());
        count.hours = (last - begin) as f64 / HOUR_MS;
        count.trips = server.trips - count.trips;
        count.busy = (server.busy_ms - count.busy) / (last - begin).max(1) as f64;
        count.slower = self.slowness[number] / count.good.max(1) as f64;
        let minutes = ((last - begin) as f64 / MINUTE_MS as f64).ceil() as usize;
        count.minutes.resize(minutes.max(count.minutes.len()), [0.0; 3]);
        let mut early = (0.0, 0.0);
        let mut converged = None;
        for (number, minute) in count.minutes.iter_mut().enumerate() {
            let at = begin + number as i64 * MINUTE_MS;
            let length = ((last - at) as f64 / MINUTE_MS as f64).clamp(0.0, 1.0);
            let middle = at + MINUTE_MS / 2;
            let best = server.best_delayed(middle, self.delay_ms(middle) / 1000.0) * 60.0 * length;
            minute[1] = best as f32;
            count.best += best;
            if number < 10 {
                early = (early.0 + f64::from(minute[0]), early.1 + best);
            }
            if converged.is_none() && f64::from(minute[0]) >= 0.8 * best && length > 0.5 {
                converged = Some(number as f64);
            }
        }
        count.early = early.0 / early.1.max(1e-9);
        count.converged_min = converged.unwrap_or((end - begin) as f64 / MINUTE_MS as f64);
        count
    }

    /// Returns the mean delay that the crawler's own load adds to each response at `now`, in
    /// milliseconds.
    fn delay_ms(&self, now: i64) -> f64 {
        self.busy.map_or(0.0, |busy| busy.mean_ms(self.seed, now))
    }

    /// Runs events up to `end`; returns the time of the last result, or `end`.
    fn until(&mut self, begin: i64, end: i64) -> i64 {
        if self.is_open {
            (0..self.queues.len()).for_each(|host| self.pump(host, begin));
        }
        let (mut last, is_shared) = (begin, self.servers.len() == 1);
        while let Some(Reverse((now, number, what))) = self.events.pop() {
            if now > end {
                self.events.push(Reverse((now, number, what)));
                return end;
            }
            match what {
                EventKind::Wake(host) => {
                    if self.queues[host].wake == now {
                        self.queues[host].wake = i64::MAX;
                        self.pump(host, now);
                    }
                }
                EventKind::Back(place) => {
                    let Some(back) = self.back(place, now) else { continue };
                    last = now;
                    // Each host gets its turn at the shared limit.
                    let count = self.queues.len();
                    for turn in 0..if is_shared { count } else { 1 } {
                        let host =
                            if is_shared { (turn + self.sent as usize) % count } else { back };
                        self.settle(host, now);
                        self.pump(host, now);
                    }
                }
            }
        }
        if self.is_open
            && self.queues.iter().all(|queue| queue.next >= queue.end && queue.again.is_empty())
        {
            last
        } else {
            end.min(i64::MAX / 2)
        }
    }

    /// Sends the requests that `host` admits now.
    fn pump(&mut self, host: usize, now: i64) {
        while self.is_open && self.queues[host].in_flight < self.world.parallel {
            let queue = &self.queues[host];
            if queue.again.is_empty() && queue.next >= queue.end {
                return;
            }
            match self.pacer.admit(host, now) {
                Admission::Go(token) => self.send(host, token, now),
                Admission::Full => return,
                Admission::Wait(until) => {
                    let until = until.max(now + 1);
                    if until < self.queues[host].wake {
                        self.queues[host].wake = until;
                        self.events.push(Reverse((until, self.sent, EventKind::Wake(host))));
                    }
                    return;
                }
            }
        }
    }

    fn send(&mut self, host: usize, token: Token, now: i64) {
        let (delay_ms, number) = (self.delay_ms(now), self.server_of(host));
        let server = &mut self.servers[number];
        let queue = &mut self.queues[host];
        queue.in_flight += 1;
        // New URLs go first: a blocked URL should not be retried at once.
        let (url, tries) = if queue.next < queue.end {
            queue.next += 1;
            (queue.next - 1, 0)
        } else {
            queue.again.pop_front().unwrap_or_default()
        };
        let mut chance =
            Stream::new(self.seed, u64::from(url) << 20 | u64::from(tries.min(0xf_ffff)));
        let mut reply = server.ask(now, &mut chance);
        let mut page = Stream::new(self.seed ^ 0x5bd1, u64::from(url));
        if reply.status == Status::Ok && page.happens(server.stray_403) {
            reply.status = Status::Forbidden;
        }
        if let Some(busy) = self.busy {
            let delay_ms = delay_ms * (0.5 + page.unit());
            reply.latency_ms += delay_ms as i64;
            reply.local_ms = (busy.measured * delay_ms) as i64;
        }
        let out =
            InFlight { host, url, token, reply, tries: tries + 1, is_counted: now >= self.begin };
        let place = self.free.pop().unwrap_or(self.out.len());
        if place == self.out.len() {
            self.out.push(None);
        }
        self.out[place] = Some(out);
        self.sent += 1;
        self.events.push(Reverse((now + reply.latency_ms, self.sent, EventKind::Back(place))));
    }

    /// Handles a response. Returns its host.
    fn back(&mut self, place: usize, now: i64) -> Option<usize> {
        let out = self.out[place].take()?;
        self.free.push(place);
        if out.reply.is_served {
            let number = self.server_of(out.host);
            self.servers[number].served();
        }
        self.queues[out.host].in_flight -= 1;
        let then = self.pacer.done(out.host, out.token, &out.reply, out.tries, now);
        if out.is_counted {
            self.tally(out.host, &out.reply, now);
        }
        if out.reply.status == Status::Ok {
            return Some(out.host);
        }
        let server = self.server_of(out.host);
        let queue = &mut self.queues[out.host];
        match then {
            NextStep::Retry => queue.again.push_back((out.url, out.tries)),
            NextStep::AwaitVerdict(doubt) => queue.doubted.push((out.url, out.tries, doubt)),
            NextStep::GiveUp => {
                self.counts[server].lost += u64::from(out.reply.status != Status::Forbidden)
            }
        }
        Some(out.host)
    }

    fn tally(&mut self, host: usize, reply: &Reply, now: i64) {
        let (server, number) =
            (self.server_of(host), ((now - self.begin) / MINUTE_MS).max(0) as usize);
        let count = &mut self.counts[server];
        self.last[server] = now;
        if count.minutes.len() <= number {
            count.minutes.resize(number + 1, [0.0; 3]);
        }
        let minute = &mut count.minutes[number];
        count.requests += 1;
        match reply.status {
            Status::Ok => {
                count.good += 1;
                minute[0] += 1.0;
                self.slowness[server] +=
                    reply.latency_ms as f64 / 1000.0 / self.servers[server].mean_latency();
            }
            _ if reply.is_refused => {
                count.blocked += 1;
                minute[2] += 1.0;
            }
            _ => {}
        }
    }

    /// Resolves the URLs that waited for a verdict.
    fn settle(&mut self, host: usize, now: i64) {
        let pacer = &mut self.pacer;
        let queue = &mut self.queues[host];
        let again = &mut queue.again;
        queue.doubted.retain(|(url, tries, doubt)| match pacer.verdict(host, *doubt, now) {
            None => true,
            Some(then) => {
                if then == NextStep::Retry {
                    again.push_back((*url, *tries));
                }
                false
            }
        });
    }
}
