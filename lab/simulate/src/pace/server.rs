//! The server side: a site with a limiter, and its latency.
//!
//! Owns: the limiters and the best constant pace that each of them allows.
//!
//! Must not know: who makes a request.

use std::collections::VecDeque;

use super::world::{Class, LimiterKind, PaceWorld, RefusalKind};
use crate::rng::Stream;

/// The crawler's deadline, after which a request returns at the latest.
const TIMEOUT_S: f64 = 30.0;
/// The interval at which a counting firewall checks its counters.
const LOOK_MS: i64 = 10_000;
/// The extension of an escalating ban by each try during the ban.
const TRY_MS: i64 = 10_000;
/// The maximum number of doublings of a ban.
const DOUBLINGS: u32 = 8;
/// A limiter that refuses single requests counts as closed until it has refused none for this time.
const TRIP_MS: i64 = 60_000;
/// The time until the answer of a tarpit.
const TARPIT_MS: i64 = 10_000;
/// The duration of a refusal, as a share of a response's.
const REFUSAL: f64 = 0.4;
/// The latency at the best pace may be at most this multiple of the quiet host's.
const SLOWER: f64 = 2.0;

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// 429, 503, 403 of a limiter.
    Limited,
    Unavailable,
    Block,
    /// A page that is blocked for everyone.
    Forbidden,
    /// 500.
    Error,
    /// A random 503.
    Flaky,
    /// A connection that is reset.
    Reset,
    /// No response in time.
    Timeout,
}

/// A quota that the host declares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    pub(super) quota: f64,
    pub(super) window_s: f64,
    pub(super) remaining: f64,
    pub(super) reset_s: f64,
}

/// A response in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) status: Status,
    /// The limiter refused it.
    pub(super) is_refused: bool,
    pub(super) retry_after_s: Option<f64>,
    pub(super) declared: Option<Declared>,
    pub(super) latency_ms: i64,
    /// The crawler's part of the latency, as far as it measures that.
    pub(super) local_ms: i64,
    /// It takes one of the parallel slots.
    pub(super) is_served: bool,
}

/// A site.
#[derive(Clone, Debug)]
pub(super) struct Server {
    kind: LimiterKind,
    n: f64,
    window_ms: f64,
    rate: f64,
    burst: f64,
    penalty_ms: f64,
    hard: f64,
    status: Status,
    refusal: Option<RefusalKind>,
    says_when: bool,
    /// What `Retry-After` states, as a multiple of the actual time.
    says_times: f64,
    declares: bool,
    day: Option<[f64; 2]>,
    change: Option<[f64; 2]>,
    stray_5xx: f64,
    stray_503: f64,
    pub(super) stray_403: f64,
    median_s: f64,
    sigma: f64,
    parallel: f64,
    /// The even pace of a quiet host without blocks, at factor 1.
    best: f64,
    // State.
    times: VecDeque<i64>,
    count: f64,
    at: i64,
    closed_until: i64,
    looked: i64,
    is_closed: bool,
    bans: u32,
    served: u32,
    queue_until: f64,
    last_block: i64,
    closed_at: i64,
    /// The last closure that refused a request.
    closure: i64,
    pub(super) trips: u32,
    pub(super) busy_ms: f64,
}

impl Server {
    pub(super) fn new(world: &PaceWorld, class: &Class, chance: &mut Stream) -> Self {
        let kind = class.limiter.draw(chance);
        let mut draw =
            |from: &Option<super::world::Draw>| from.as_ref().map_or(0.0, |draw| draw.draw(chance));
        let (n, window_s, rate, burst) =
            (draw(&class.n), draw(&class.window_s), draw(&class.rate), draw(&class.burst));
        let (penalty_s, capacity, status) =
            (draw(&class.penalty_s), draw(&class.capacity), draw(&class.status));
        let hard = draw(&class.hard);
        let (stray_5xx, stray_403) = (draw(&class.stray_5xx), draw(&class.stray_403));
        let stray_503 = draw(&class.stray_503);
        let [from, to] = class.latency.unwrap_or(world.latency);
        let median_s = from * (to / from).powf(chance.unit());
        let status = match (kind, status as u32) {
            (LimiterKind::Bucket | LimiterKind::Leaky, 503) | (LimiterKind::Parallel, _) => {
                Status::Unavailable
            }
            (
                LimiterKind::Bucket
                | LimiterKind::Leaky
                | LimiterKind::Window
                | LimiterKind::Mitigate,
                _,
            )
            | (LimiterKind::TwoThreshold, 429)
            | (LimiterKind::Quota, _) => Status::Limited,
            (LimiterKind::TwoThreshold, _) => Status::Ok,
            _ => Status::Block,
        };
        let says_when = chance.happens(class.retry_after);
        let says_times = class.retry_after_times.as_ref().map_or(1.0, |draw| draw.draw(chance));
        let refusal = class.refusal.get(chance.below(class.refusal.len().max(1))).copied();
        let declares = chance.happens(class.declared);
        let mut server = Self {
            kind,
            n: n.round(),
            window_ms: window_s * 1000.0,
            rate: if kind == LimiterKind::Queue { capacity } else { rate },
            burst: burst.round(),
            penalty_ms: penalty_s * 1000.0,
            hard,
            status: refusal.map_or(status, status_of),
            refusal,
            says_when,
            says_times,
            declares,
            day: class.day,
            change: class.change,
            stray_5xx,
            stray_503,
            stray_403,
            median_s,
            sigma: world.sigma,
            parallel: f64::from(world.parallel) * class.hosts_a_site as f64,
            best: 0.0,
            times: VecDeque::new(),
            count: 0.0,
            at: 0,
            closed_until: i64::MIN,
            looked: 0,
            is_closed: false,
            bans: 0,
            served: 0,
            queue_until: 0.0,
            last_block: i64::MIN / 2,
            closed_at: 0,
            closure: i64::MIN,
            trips: 0,
            busy_ms: 0.0,
        };
        server.best = server.find_best(world.hours * 3600.0, f64::from(world.urls));
        server
    }

    /// Returns the good pages per second of the best constant pace at `now`, if the limit does not
    /// change.
    pub(super) fn best(&self, now: i64) -> f64 {
        self.best_delayed(now, 0.0)
    }

    /// Returns the same for a crawler that is late for each response by `delay_s`: the request
    /// holds its place for so much longer.
    pub(super) fn best_delayed(&self, now: i64, delay_s: f64) -> f64 {
        let most = self.parallel / (self.mean_latency() + delay_s);
        let rate = match self.kind {
            LimiterKind::None | LimiterKind::Parallel => self.best,
            _ => self.best * self.factor(now),
        };
        rate.min(most) * (1.0 - self.stray_5xx) * (1.0 - self.stray_403) * (1.0 - self.stray_503)
    }

    /// Makes a request. `chance` is its random stream.
    pub(super) fn ask(&mut self, now: i64, chance: &mut Stream) -> Reply {
        let latency = (self.median_s * (self.sigma * normal(chance)).exp() * 1000.0)
            .clamp(1.0, TIMEOUT_S * 1000.0);
        let mut reply = Reply {
            status: Status::Ok,
            is_refused: false,
            retry_after_s: None,
            declared: None,
            latency_ms: latency as i64,
            local_ms: 0,
            is_served: false,
        };
        let refused = self.refuses(now);
        reply.declared = self.declared(now);
        if let Some(until) = refused {
            let is_banned = self.kind == LimiterKind::TwoThreshold && now < self.closed_until;
            reply.status =
                if is_banned && self.refusal.is_none() { Status::Block } else { self.status };
            reply.is_refused = true;
            let states = |until: i64| ((until - now) as f64 / 1000.0 * self.says_times).ceil();
            reply.retry_after_s = until.filter(|_| self.says_when).map(states);
            self.trips += u32::from(self.has_closed(now));
            self.last_block = now;
            // A refusal takes the round trip, and no work.
            reply.latency_ms = match self.refusal {
                Some(RefusalKind::Tarpit) => TARPIT_MS,
                Some(RefusalKind::Silence) => (TIMEOUT_S * 1000.0) as i64,
                _ => (reply.latency_ms as f64 * REFUSAL) as i64 + 1,
            };
            return reply;
        }
        if self.kind == LimiterKind::Parallel {
            self.served += 1;
            reply.is_served = true;
        }
        if self.kind == LimiterKind::Leaky {
            // Earlier requests have to leak out first.
            reply.latency_ms +=
                (1000.0 * (self.count - 1.0).max(0.0) / (self.rate * self.factor(now))) as i64;
        }
        if self.kind == LimiterKind::TwoThreshold {
            // Only the kind that delays lets requests above the lower threshold through.
            let above = self.times.len() as f64 - self.soft(self.factor(now));
            reply.latency_ms += (1000.0 * above.max(0.0) / self.rate) as i64;
        }
        if self.kind == LimiterKind::Queue {
            let service = -(1.0 - chance.unit()).ln() * 1000.0 / (self.rate * self.factor(now));
            let begin = self.queue_until.max(now as f64);
            self.queue_until = begin + service;
            self.busy_ms += service;
            let whole = self.queue_until - now as f64 + latency;
            reply.latency_ms = whole.min(TIMEOUT_S * 1000.0) as i64;
            if whole > TIMEOUT_S * 1000.0 {
                reply.status = Status::Timeout;
                return reply;
            }
        }
        if chance.happens(self.stray_5xx) {
            reply.status = Status::Error;
        }
        if self.stray_503 > 0.0 && chance.happens(self.stray_503) {
            reply.status = Status::Flaky;
        }
        reply
    }

    /// Returns whether the refusal at `now` is the first since the limiter closed.
    fn has_closed(&mut self, now: i64) -> bool {
        let closure = match self.kind {
            LimiterKind::Window | LimiterKind::Quota => self.at,
            LimiterKind::Mitigate | LimiterKind::Captcha | LimiterKind::Escalate => {
                i64::from(self.bans)
            }
            LimiterKind::TwoThreshold if now < self.closed_until => i64::from(self.bans),
            LimiterKind::Waf => self.closed_at,
            // These limiters refuse single requests; refusals in close succession belong to one
            // closure.
            _ if now - self.last_block > TRIP_MS => now,
            _ => self.closure,
        };
        std::mem::replace(&mut self.closure, closure) != closure
    }

    /// Ends a request that took a slot.
    pub(super) fn served(&mut self) {
        self.served = self.served.saturating_sub(1);
    }

    /// Returns whether a request is refused, and until when if that is known.
    fn refuses(&mut self, now: i64) -> Option<Option<i64>> {
        let factor = self.factor(now);
        match self.kind {
            LimiterKind::None | LimiterKind::Queue => None,
            LimiterKind::Window => {
                let window = now.div_euclid(self.window_ms as i64);
                if window != self.at {
                    (self.at, self.count) = (window, 0.0);
                }
                if self.count >= (self.n * factor).max(1.0).floor() {
                    return Some(Some((window + 1) * self.window_ms as i64));
                }
                self.count += 1.0;
                None
            }
            LimiterKind::Quota => {
                if self.count == 0.0 || now - self.at >= self.window_ms as i64 {
                    (self.at, self.count) = (now, 0.0);
                }
                if self.count >= (self.n * factor).max(1.0).floor() {
                    return Some(Some(self.at + self.window_ms as i64));
                }
                self.count += 1.0;
                None
            }
            LimiterKind::Mitigate | LimiterKind::Captcha => {
                if now < self.closed_until {
                    return Some(Some(self.closed_until));
                }
                self.counted_over(now, factor).then(|| {
                    self.times.clear();
                    self.closed_until = now + self.penalty_ms as i64;
                    self.bans += 1;
                    Some(self.closed_until)
                })
            }
            LimiterKind::Escalate => {
                if now < self.closed_until {
                    self.closed_until += TRY_MS;
                    return Some(Some(self.closed_until));
                }
                self.counted_over(now, factor).then(|| {
                    self.times.clear();
                    self.closed_until = now
                        + (self.penalty_ms * f64::from(1_u32 << self.bans.min(DOUBLINGS))) as i64;
                    self.bans += 1;
                    Some(self.closed_until)
                })
            }
            LimiterKind::TwoThreshold => {
                if now < self.closed_until {
                    return Some(Some(self.closed_until));
                }
                let (is_over, soft) = (self.counted_over(now, factor), self.soft(factor));
                if self.times.len() as f64 > self.hard * soft {
                    self.times.clear();
                    self.closed_until = now + self.penalty_ms as i64;
                    self.bans += 1;
                    return Some(Some(self.closed_until));
                }
                (is_over && self.status == Status::Limited).then_some(None)
            }
            LimiterKind::Bucket | LimiterKind::Leaky => {
                let leaked = (now - self.at) as f64 / 1000.0 * self.rate * factor;
                self.at = now;
                self.count = (self.count - leaked).max(0.0);
                if self.count + 1.0 > self.burst + 1.0 {
                    let wait = (self.count - self.burst).max(1.0) / (self.rate * factor);
                    return Some(Some(now + (wait * 1000.0) as i64));
                }
                self.count += 1.0;
                None
            }
            LimiterKind::Waf => {
                let is_over = self.counted_over(now, factor);
                if now - self.looked >= LOOK_MS {
                    if is_over && !self.is_closed {
                        self.closed_at = now;
                    }
                    (self.looked, self.is_closed) = (now, is_over);
                }
                self.is_closed.then_some(None)
            }
            LimiterKind::Parallel => (f64::from(self.served) >= self.n).then_some(None),
        }
    }

    /// Returns what the host declares with a response.
    fn declared(&self, now: i64) -> Option<Declared> {
        let remaining = (self.n * self.factor(now)).max(1.0).floor() - self.count;
        (self.declares && self.kind == LimiterKind::Quota).then_some(Declared {
            quota: self.n,
            window_s: self.window_ms / 1000.0,
            remaining,
            reset_s: ((self.at as f64 + self.window_ms - now as f64) / 1000.0).ceil(),
        })
    }

    /// Returns the requests that the lower of two thresholds allows in a window.
    fn soft(&self, factor: f64) -> f64 {
        (self.rate * self.window_ms / 1000.0 * factor).max(1.0)
    }

    /// Counts the request; returns whether the window has more than the limit.
    fn counted_over(&mut self, now: i64, factor: f64) -> bool {
        let from = now - self.window_ms as i64;
        while self.times.front().is_some_and(|at| *at <= from) {
            self.times.pop_front();
        }
        self.times.push_back(now);
        let most =
            if self.n > 0.0 { self.n } else { (self.rate * self.window_ms / 1000.0).max(1.0) };
        self.times.len() as f64 > (most * factor).max(1.0)
    }

    /// Returns the factor of the limit at this time.
    fn factor(&self, now: i64) -> f64 {
        let hours = now as f64 / 3.6e6;
        let day = self.day.map_or(1.0, |[depth, length]| {
            1.0 - depth * (1.0 - (2.0 * std::f64::consts::PI * hours / length).cos()) / 2.0
        });
        let change = self.change.map_or(1.0, |[at, factor]| if hours >= at { factor } else { 1.0 });
        day * change
    }

    pub(super) fn mean_latency(&self) -> f64 {
        self.median_s * (self.sigma * self.sigma / 2.0).exp()
    }

    /// Returns the best pace in a crawl of `seconds` of a list of `urls`.
    fn find_best(&self, seconds: f64, urls: f64) -> f64 {
        let counted = if self.n > 0.0 { self.n / (self.window_ms / 1000.0) } else { self.rate };
        match self.kind {
            LimiterKind::None => self.parallel / self.mean_latency(),
            LimiterKind::Window | LimiterKind::Mitigate | LimiterKind::Waf => counted,
            // It is no rate: each window may be used up at once.
            LimiterKind::Quota if urls <= self.n => self.parallel / self.mean_latency(),
            LimiterKind::Quota => self.n * (1000.0 * seconds / self.window_ms).ceil() / seconds,
            LimiterKind::Captcha
            | LimiterKind::Escalate
            | LimiterKind::Bucket
            | LimiterKind::Leaky => self.rate,
            LimiterKind::TwoThreshold => self.rate,
            // This is not a rate limit: the best throughput is that of all slots.
            LimiterKind::Parallel => self.n / self.mean_latency(),
            LimiterKind::Queue => self.rate * self.best_of_queue(),
        }
    }

    /// Returns the share of its capacity at which an evenly fed queue takes twice the time of a
    /// quiet one.
    fn best_of_queue(&self) -> f64 {
        let service = 1.0 / self.rate;
        let quiet = self.mean_latency() + service;
        bisect(0.05, 0.99, |load| {
            // The share of busy arrivals is the root of s = exp((s - 1) / load).
            let busy = (0..200).fold(0.5, |s: f64, _| ((s - 1.0) / load).exp());
            service * busy / (1.0 - busy) + quiet <= SLOWER * quiet
        })
    }
}

/// Returns the status of a refusal.
fn status_of(refusal: RefusalKind) -> Status {
    match refusal {
        RefusalKind::TooMany => Status::Limited,
        RefusalKind::Unavailable => Status::Unavailable,
        RefusalKind::Block => Status::Block,
        RefusalKind::Error | RefusalKind::Tarpit => Status::Error,
        RefusalKind::Reset => Status::Reset,
        RefusalKind::Silence => Status::Timeout,
    }
}

/// Returns the largest good number between `low` and `high`, if all smaller ones are good.
fn bisect(mut low: f64, mut high: f64, mut is_good: impl FnMut(f64) -> bool) -> f64 {
    for _ in 0..24 {
        let middle = (low + high) / 2.0;
        if is_good(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns a number from the normal distribution.
fn normal(chance: &mut Stream) -> f64 {
    let (radius, turn) =
        ((-2.0 * (1.0 - chance.unit()).ln()).sqrt(), 2.0 * std::f64::consts::PI * chance.unit());
    radius * turn.cos()
}
