//! Crawlers that do not learn both: one fetcher at a constant pace, the next dearer fetcher after
//! each failure at an AIMD pace, and one that knows everything beforehand.
//!
//! Must not know: the world around it.

use std::collections::VecDeque;
use std::ops::Range;

use super::crawl::{Action, Crawler};
use super::site::{Page, PageKind, Truth};
use crate::pace::baseline::{Baseline, PacingMethod};
use crate::pace::pacer::{Admission, Pacer, Token};
use crate::pace::server::Status;

/// A URL is given up after this number of failures, apart from limits.
const FAILURES: u32 = 5;

/// The choice of the fetcher for a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetcherChoice {
    /// Always the same.
    Always(usize),
    /// The fetcher that delivered last, and after a failure the next one.
    Ladder(usize),
}

/// The pacing of requests.
pub(super) enum Pacing {
    /// One request per interval in milliseconds.
    Constant(f64),
    /// An interval for each counted request to the host. The cost of a page and its best fetcher
    /// are known.
    Known { gap: f64, truth: Truth, first: usize, second: usize },
    /// 0.2/s more each second, half after a block.
    Aimd(Baseline),
}

/// A crawler with a fixed strategy.
pub(super) struct FixedCrawler {
    choice: FetcherChoice,
    fetchers: usize,
    gap: Pacing,
    next: f64,
    fresh: Range<u32>,
    /// URLs to retry: with which fetcher, and after how many failures.
    again: VecDeque<(u32, usize, u32)>,
    out: Vec<Option<(u32, usize, u32, Token)>>,
    lost: u64,
}

impl FixedCrawler {
    pub(super) fn new(choice: FetcherChoice, fetchers: usize, gap: Pacing, urls: u32) -> Self {
        let (again, out) = (VecDeque::new(), Vec::new());
        Self { choice, fetchers, gap, next: 0.0, fresh: 0..urls, again, out, lost: 0 }
    }

    /// Returns the AIMD pacing of `fetchwise_simulate`'s pace worlds.
    pub(super) fn aimd(parallel: u8) -> Pacing {
        Pacing::Aimd(Baseline::new(PacingMethod::Aimd, 1, parallel))
    }

    fn peek(&self) -> Option<(u32, usize, u32)> {
        let first = match self.choice {
            FetcherChoice::Always(place) | FetcherChoice::Ladder(place) => place,
        };
        // The next rung of a ladder goes before new URLs; refused URLs go after them.
        let rung = self.again.front().filter(|(_, place, _)| *place != first).copied();
        let fresh = (self.fresh.start < self.fresh.end).then_some((self.fresh.start, first, 0));
        rung.or(fresh).or_else(|| self.again.front().copied())
    }

    fn take(&mut self, taken: (u32, usize, u32)) {
        if self.again.front() == Some(&taken) {
            self.again.pop_front();
        } else {
            self.fresh.next();
        }
    }
}

impl Crawler for FixedCrawler {
    fn turn(&mut self, free: &[u8], now: i64) -> Action {
        let Some(next) = self.peek() else { return Action::Idle };
        let (url, mut place, _) = next;
        if let Pacing::Known { truth, first, second, .. } = &self.gap {
            place =
                if truth.shown(url, *first, now) == PageKind::Content { *first } else { *second };
        }
        if free[place] == 0 {
            return Action::Idle;
        }
        let gap = match &self.gap {
            Pacing::Constant(gap) => *gap,
            Pacing::Known { gap, truth, .. } if truth.ways[place].is_limited() => {
                gap * f64::from(truth.requests(url, place))
            }
            _ => 0.0,
        };
        let token = match &mut self.gap {
            Pacing::Constant(_) | Pacing::Known { .. } if self.next > now as f64 => {
                return Action::Wait(self.next.ceil() as i64);
            }
            Pacing::Constant(_) | Pacing::Known { .. } => {
                // A late request catches up a little, and no more.
                self.next = self.next.max(now as f64 - gap / 5.0) + gap;
                Token::default()
            }
            Pacing::Aimd(pace) => match pace.admit(0, now) {
                Admission::Go(token) => token,
                Admission::Wait(until) => return Action::Wait(until),
                Admission::Full => return Action::Idle,
            },
        };
        self.take(next);
        let ticket = self.out.iter().position(Option::is_none).unwrap_or(self.out.len());
        if ticket == self.out.len() {
            self.out.push(None);
        }
        self.out[ticket] = Some((url, place, next.2, token));
        Action::Send { url, place, ticket }
    }

    fn back(&mut self, ticket: usize, page: &Page, now: i64) {
        let Some((url, place, failures, token)) = self.out.get_mut(ticket).and_then(Option::take)
        else {
            return;
        };
        if let Pacing::Aimd(pace) = &mut self.gap {
            let _ = pace.done(0, token, &page.reply, failures, now);
        }
        let limited = page.is_refused && page.reply.status != Status::Block;
        match self.choice {
            FetcherChoice::Ladder(_) if page.is_content() => {
                self.choice = FetcherChoice::Ladder(place)
            }
            _ if page.is_content() => {}
            // A refusal by the limiter says nothing about the fetcher; a block may.
            _ if limited => self.again.push_back((url, place, failures)),
            FetcherChoice::Always(_) if page.is_refused => {
                self.again.push_back((url, place, failures))
            }
            _ if failures + 1 >= FAILURES => self.lost += 1,
            FetcherChoice::Always(_) => self.again.push_back((url, place, failures + 1)),
            FetcherChoice::Ladder(_) => {
                self.again.push_front((url, (place + 1) % self.fetchers, failures + 1))
            }
        }
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
