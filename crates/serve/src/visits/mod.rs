//! Visits that are under way for crawlers elsewhere: each is the library's visit, held between two requests.
//!
//! Owns how many there are, whose they are, and the end of those that nobody comes back to: they are dropped, which is as if their last
//! request had never been handed out. Must not know about HTTP, nor what an answer means: the visit does.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use url::Url;

use super::options::Options;
use crate::auth::Client;
use fetchwise::selector::Selector;
use fetchwise::visit::{End, Fetch, Step, Visit, Wait};

mod step;

pub(crate) use step::write;

/// A visit that outlives the request that began it.
pub(crate) type Way = Visit<Arc<Selector>, Url>;

/// The visits under way.
#[derive(Debug)]
pub(crate) struct Visits {
    table: DashMap<u128, Arc<Slot>>,
    count: AtomicUsize,
    shares: DashMap<Client, usize>,
    most: usize,
    /// Clients that are told apart by tokens may have this many each.
    share: usize,
    patience: Duration,
    begun: Instant,
    counts: Counts,
}

/// How many visits there were.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Begun.
    pub(crate) begun: AtomicU64,
    /// Ended as visits end.
    pub(crate) ended: AtomicU64,
    /// Ended by themselves, since nobody came back.
    pub(crate) abandoned: AtomicU64,
    /// Refused, since there were too many.
    pub(crate) refused: AtomicU64,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Slot {
    id: u128,
    client: Client,
    /// In milliseconds since the table was made.
    ends_at: AtomicU64,
    under_way: Mutex<UnderWay>,
}

/// A visit and where it stands.
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// The visit.
    pub(crate) way: Way,
    /// What it was handed out last and has not been reported.
    pub(crate) stands: Stands,
    /// Requests handed out so far.
    pub(crate) number: u32,
}

/// Where a visit stands.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly every visit that is kept has a request out")]
pub(crate) enum Stands {
    /// It has to be asked.
    Open,
    /// A request is out.
    Out(Fetch<Arc<Selector>>),
    /// There is something to wait for.
    Waits(Wait),
    /// It has ended.
    Ended(Box<End>),
}

/// There are as many visits as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Visits {
    pub(crate) fn new(options: &Options, has_tokens: bool) -> Self {
        let most = options.max_visits.max(1);
        Self {
            table: DashMap::new(),
            count: AtomicUsize::new(0),
            shares: DashMap::new(),
            most,
            // Nobody's visits take the room of all others'.
            share: if has_tokens { most.div_ceil(2) } else { most },
            patience: options.visit_timeout,
            begun: Instant::now(),
            counts: Counts::default(),
        }
    }

    /// Takes a visit in.
    ///
    /// # Errors
    /// [`TooMany`] when there is no room, or the client has its share.
    pub(crate) fn add(&self, id: u128, client: Client, way: Way) -> Result<Arc<Slot>, TooMany> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most || !self.take_share(client) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooMany);
        }
        let under_way = Mutex::new(UnderWay { way, stands: Stands::Open, number: 0 });
        let slot = Arc::new(Slot { id, client, ends_at: AtomicU64::new(self.in_ms(self.patience)), under_way });
        self.table.insert(id, Arc::clone(&slot));
        self.counts.begun.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    /// The visit with this id.
    pub(crate) fn get(&self, id: u128) -> Option<Arc<Slot>> {
        self.table.get(&id).map(|slot| Arc::clone(slot.value()))
    }

    /// Drops a visit. What it held is given back.
    pub(crate) fn remove(&self, slot: &Slot) {
        if self.table.remove(&slot.id).is_some() {
            self.left(slot.client);
        }
    }

    /// Goes on with a visit: asks it what comes next where that is not known, and says until when somebody should have come back.
    pub(crate) fn go_on(&self, slot: &Slot, under_way: &mut UnderWay, now: fetchwise::time::Timestamp) {
        if matches!(under_way.stands, Stands::Open | Stands::Waits(_)) {
            under_way.stands = match under_way.way.next() {
                Step::Fetch(fetch) => {
                    under_way.number += 1;
                    Stands::Out(fetch)
                }
                Step::Wait(wait) => Stands::Waits(wait),
                Step::End(end) => self.ended(end),
                // The library has no other steps; one that is new to this crate ends the visit.
                _ => Stands::Open,
            };
        }
        let time = match &under_way.stands {
            Stands::Out(fetch) => fetch.deadline(),
            Stands::Waits(wait) => wait.until().since(now),
            _ => Duration::ZERO,
        };
        slot.ends_at.store(self.in_ms(time + self.patience), Ordering::Relaxed);
    }

    /// How a visit stands that has ended.
    pub(crate) fn ended(&self, end: End) -> Stands {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        Stands::Ended(Box::new(end))
    }

    /// Drops the visits that nobody has come back to.
    pub(crate) fn sweep(&self) {
        let now = self.in_ms(Duration::ZERO);
        let is_over = |slot: &Slot| slot.ends_at.load(Ordering::Relaxed) <= now;
        let over: Vec<u128> = self.table.iter().filter(|slot| is_over(slot)).map(|slot| *slot.key()).collect();
        for id in over {
            if let Some((_, slot)) = self.table.remove_if(&id, |_, slot| is_over(slot)) {
                self.left(slot.client);
                if !matches!(slot.lock().stands, Stands::Ended(_)) {
                    self.counts.abandoned.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Drops all visits.
    pub(crate) fn clear(&self) {
        self.table.clear();
        self.shares.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many there were.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn take_share(&self, client: Client) -> bool {
        let mut has = self.shares.entry(client).or_default();
        let takes = *has < self.share;
        *has += usize::from(takes);
        takes
    }

    fn left(&self, client: Client) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.shares.remove_if_mut(&client, |_, has| {
            *has = has.saturating_sub(1);
            *has == 0
        });
    }

    fn in_ms(&self, time: Duration) -> u64 {
        u64::try_from((self.begun.elapsed() + time).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Slot {
    /// The visit's id.
    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    /// The visit. Held for as long as one of its steps takes, and never while something is waited for.
    pub(crate) fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
