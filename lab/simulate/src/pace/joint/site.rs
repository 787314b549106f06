//! A host as each fetcher sees it: its limiter, its pages by fetcher, and the best constant pace.
//!
//! Owns: the truth about the host.
//!
//! Must not know: who makes a request, and why.

use super::world::{ContentBlocked, JointClass, JointWorld};
use crate::pace::server::{Reply, Server, Status};
use crate::pace::world::PaceWorld;
use crate::rng::Stream;

/// The crawler's deadline, after which a request returns at the latest.
const TIMEOUT_MS: i64 = 30_000;
const HOUR_MS: f64 = 3.6e6;
/// The requests of a single rendered page as a multiple of the host's mean: from, to.
const UNEVEN: [f64; 2] = [0.7, 1.3];

/// The result of a page request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) reply: Reply,
    /// Whether it is the shell of an application.
    pub(super) is_shell: bool,
    /// Whether the limiter refused it.
    pub(super) is_refused: bool,
    /// The number of requests to the host.
    pub(super) requests: u16,
}

impl Page {
    /// Returns whether it delivered the page.
    pub(super) fn is_content(&self) -> bool {
        self.reply.status == Status::Ok && !self.is_shell
    }
}

/// The host's treatment of a fetcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetcherTreatment {
    pub(super) renders: bool,
    pub(super) places: u8,
    slower: f64,
    is_counted: bool,
    is_refused: bool,
    is_content_blocked: bool,
}

impl FetcherTreatment {
    /// Returns whether the limiter counts and refuses it.
    pub(super) fn is_limited(&self) -> bool {
        self.is_counted && self.is_refused
    }
}

/// A host.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) server: Server,
    pub(super) truth: Truth,
    sigma: f64,
}

/// The properties of the host's pages, at any pace.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub(super) ways: Vec<FetcherTreatment>,
    seed: u64,
    page_requests: f64,
    shells: f64,
    content_blocked: Option<ContentBlocked>,
}

/// The best way to fetch the host's pages: one fetcher for the pages that it delivers, and another
/// one for the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    pub(super) first: usize,
    pub(super) second: usize,
    /// Pages per second.
    pub(super) rate: f64,
}

impl Site {
    pub(super) fn new(
        world: &JointWorld,
        limits: &PaceWorld,
        class: &JointClass,
        seed: u64,
    ) -> Self {
        let mut chance = Stream::new(seed, 0);
        let server = Server::new(limits, &class.limit, &mut chance);
        let is_content_blocked = |name: &String| {
            class
                .content_blocked
                .as_ref()
                .is_some_and(|content_blocked| content_blocked.who.contains(name))
        };
        let way = |(place, fetcher): (usize, &super::world::JointFetcher)| FetcherTreatment {
            renders: world.spec(place).is_some_and(|spec| spec.renders),
            places: fetcher.places.min(world.parallel),
            slower: fetcher.slower,
            is_counted: class.counts.contains(&fetcher.name),
            is_refused: class.refuses.contains(&fetcher.name),
            is_content_blocked: is_content_blocked(&fetcher.name),
        };
        let truth = Truth {
            ways: world.fetchers.iter().enumerate().map(way).collect(),
            seed,
            page_requests: class.page_requests.draw(&mut chance).round().max(1.0),
            shells: class.shells,
            content_blocked: class.content_blocked.clone(),
        };
        Self { server, truth, sigma: world.sigma }
    }

    /// Requests a page at `now` with the fetcher at `place`, for the `tries`-th time. For a
    /// rendered page this is its document; its further requests are [`Site::part`]s.
    pub(super) fn ask(&mut self, url: u32, place: usize, tries: u32, now: i64) -> Page {
        let way = self.truth.ways[place];
        let name = u64::from(url) << 24 | (place as u64) << 20 | u64::from(tries.min(0xf_ffff));
        let mut chance = Stream::new(self.truth.seed, name);
        let latency = self.server.mean_latency()
            * (self.sigma * (chance.unit() + chance.unit() - 1.0) * 2.4).exp();
        let mut reply = Reply {
            status: Status::Ok,
            is_refused: false,
            retry_after_s: None,
            declared: None,
            latency_ms: 0,
            local_ms: 0,
            is_served: false,
        };
        if way.is_counted {
            reply = self.server.ask(now, &mut chance);
        }
        let mut is_refused = reply.is_refused;
        if is_refused && !way.is_refused {
            // The limiter is closed, and this fetcher gets past it.
            (is_refused, reply.is_refused, reply.status, reply.retry_after_s) =
                (false, false, Status::Ok, None);
        }
        if !is_refused {
            let rendering = (way.slower - 1.0) * latency;
            let answered =
                if reply.latency_ms == 0 { latency * 1000.0 } else { reply.latency_ms as f64 };
            reply.latency_ms = ((answered + rendering * 1000.0) as i64).clamp(1, TIMEOUT_MS);
        }
        let shown = self.truth.shown(url, place, now);
        if reply.status == Status::Ok && shown == PageKind::Block {
            reply.status = Status::Forbidden;
        }
        let is_whole = reply.status == Status::Ok;
        let requests = if is_whole { self.truth.requests(url, place) } else { 1 };
        Page { reply, is_shell: is_whole && shown == PageKind::Shell, is_refused, requests }
    }

    /// Makes one more request of a rendered page. The host counts it; a refusal does not change the
    /// page.
    pub(super) fn part(&mut self, place: usize, now: i64) {
        if self.truth.ways[place].is_counted {
            let reply = self
                .server
                .ask(now, &mut Stream::new(self.truth.seed ^ 0x9e37, now.cast_unsigned()));
            if reply.is_served {
                self.server.served();
            }
        }
    }

    /// Returns the good pages per second at `now` of one fetcher, and a second one for the pages
    /// that it does not deliver, with one request per page at a constant pace.
    pub(super) fn rate(&self, first: usize, second: usize, now: i64) -> f64 {
        let (by_first, by_second) = (self.truth.share(first, now), self.truth.share(second, now));
        let shares = if first == second {
            [(first, 1.0), (second, 0.0)]
        } else {
            [(first, by_first), (second, 1.0 - by_first)]
        };
        let mut rate = f64::INFINITY;
        let mut requests = 0.0;
        for (place, share) in shares.into_iter().filter(|(_, share)| *share > 0.0) {
            let way = self.truth.ways[place];
            rate =
                rate.min(f64::from(way.places) / (self.server.mean_latency() * way.slower) / share);
            if way.is_limited() {
                requests += share * self.truth.mean_requests(place);
            }
        }
        if requests > 0.0 {
            rate = rate.min(self.server.best(now) / requests);
        }
        rate * if first == second { by_first } else { by_first + (1.0 - by_first) * by_second }
    }

    /// Returns the best way to fetch the pages at `now`.
    pub(super) fn best(&self, now: i64) -> Best {
        let places = || 0..self.truth.ways.len();
        // The number of reachable pages goes before speed: a page that only the second fetcher
        // delivers counts, too.
        let reach = |best: &Best| {
            let (first, second) =
                (self.truth.share(best.first, now), self.truth.share(best.second, now));
            first.max(second).max(first + (1.0 - first) * second)
        };
        let all = places().flat_map(|first| places().map(move |second| (first, second)));
        let all =
            all.map(|(first, second)| Best { first, second, rate: self.rate(first, second, now) });
        let none = Best { first: 0, second: 0, rate: 0.0 };
        all.fold(none, |best, of| {
            let (known, new) = (if best.rate > 0.0 { reach(&best) } else { 0.0 }, reach(&of));
            if new > known + 1e-9 || new > known - 1e-9 && of.rate > best.rate { of } else { best }
        })
    }
}

/// The page that a fetcher gets if the limiter lets it through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Content,
    Shell,
    Block,
}

impl Truth {
    pub(super) fn shown(&self, url: u32, place: usize, now: i64) -> PageKind {
        let (way, [blocks, shells, _]) = (self.ways[place], self.luck(url));
        if way.is_content_blocked && blocks < self.content_block_share_at(now) {
            PageKind::Block
        } else if !way.renders && shells < self.shells {
            PageKind::Shell
        } else {
            PageKind::Content
        }
    }

    /// Returns the number of requests to the host for the page.
    pub(super) fn requests(&self, url: u32, place: usize) -> u16 {
        let uneven = UNEVEN[0] + (UNEVEN[1] - UNEVEN[0]) * self.luck(url)[2];
        if self.ways[place].renders {
            (self.page_requests * uneven).round().max(1.0) as u16
        } else {
            1
        }
    }

    fn mean_requests(&self, place: usize) -> f64 {
        if self.ways[place].renders { self.page_requests } else { 1.0 }
    }

    /// Returns the share of pages that the fetcher delivers.
    fn share(&self, place: usize, now: i64) -> f64 {
        let way = self.ways[place];
        let blocks = if way.is_content_blocked { self.content_block_share_at(now) } else { 0.0 };
        (1.0 - blocks) * (1.0 - if way.renders { 0.0 } else { self.shells })
    }

    fn content_block_share_at(&self, now: i64) -> f64 {
        self.content_blocked
            .as_ref()
            .filter(|content_blocked| now as f64 / HOUR_MS >= content_blocked.from_h)
            .map_or(0.0, |content_blocked| content_blocked.share)
    }

    fn luck(&self, url: u32) -> [f64; 3] {
        let mut page = Stream::new(self.seed ^ 0x5bd1, u64::from(url));
        [page.unit(), page.unit(), page.unit()]
    }
}
