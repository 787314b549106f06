//! Active visits of remote crawlers: each is a visit of the library, kept between two requests.
//!
//! Owns: their number, their clients, and the expiry of abandoned ones. An abandoned visit is dropped, and its last
//! request counts as never handed out.
//!
//! Must not know: HTTP, the meaning of responses.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use url::Url;

use super::options::Options;
use crate::auth::Client;
use crate::signing::{SignatureHeaders, StepSigner};
use fetchwise::selector::Selector;
use fetchwise::visit::{End, Fetch, Step, Visit, Wait};

mod step_json;

pub(crate) use step_json::write;

/// A visit that outlives the request that began it.
pub(crate) type OwnedVisit = Visit<Arc<Selector>, Url>;

/// The table of active visits.
#[derive(Debug)]
pub(crate) struct Visits {
    table: DashMap<u128, Arc<VisitSlot>>,
    count: AtomicUsize,
    shares: DashMap<Client, usize>,
    most: usize,
    /// Maximum number of visits per client, if tokens distinguish clients.
    share: usize,
    patience: Duration,
    begun: Instant,
    counts: Counts,
    /// The signer of requests that are handed out, if there is one.
    signer: OnceLock<StepSigner>,
}

/// The counts of visits.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Begun.
    pub(crate) begun: AtomicU64,
    /// Completed.
    pub(crate) ended: AtomicU64,
    /// Dropped because the client did not return.
    pub(crate) abandoned: AtomicU64,
    /// Refused because there were too many.
    pub(crate) refused: AtomicU64,
}

/// An entry of the table.
#[derive(Debug)]
pub(crate) struct VisitSlot {
    id: u128,
    client: Client,
    /// The expiry, in milliseconds since the table was created.
    ends_at: AtomicU64,
    active: Mutex<ActiveVisit>,
}

/// A visit and its state.
#[derive(Debug)]
pub(crate) struct ActiveVisit {
    /// The visit.
    pub(crate) visit: OwnedVisit,
    /// The state of the visit.
    pub(crate) state: VisitState,
    /// Requests handed out so far.
    pub(crate) number: u32,
    /// The signature of the request that was handed out, if it is signed.
    pub(crate) signature: Option<SignatureHeaders>,
}

/// The state of a visit.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly every kept visit has an unreported request")]
pub(crate) enum VisitState {
    /// The next step is not known yet.
    Open,
    /// A request was handed out and not reported.
    Out(Fetch<Arc<Selector>>),
    /// The visit waits.
    Waits(Wait),
    /// The visit has ended.
    Ended(Box<End>),
}

/// The error for a visit above the limit.
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
            // No client can occupy the whole table.
            share: if has_tokens { most.div_ceil(2) } else { most },
            patience: options.visit_timeout,
            begun: Instant::now(),
            counts: Counts::default(),
            signer: OnceLock::new(),
        }
    }

    /// Sets the signer of requests that clients with a token get; only the first call has an effect.
    pub(crate) fn sign_with(&self, signer: StepSigner) {
        let _ = self.signer.set(signer);
    }

    /// Adds a visit.
    ///
    /// # Errors
    /// [`TooMany`] if the table is full, or the client has reached its quota.
    pub(crate) fn add(&self, id: u128, client: Client, visit: OwnedVisit) -> Result<Arc<VisitSlot>, TooMany> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most || !self.take_share(client) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooMany);
        }
        let active = Mutex::new(ActiveVisit { visit, state: VisitState::Open, number: 0, signature: None });
        let slot = Arc::new(VisitSlot { id, client, ends_at: AtomicU64::new(self.in_ms(self.patience)), active });
        self.table.insert(id, Arc::clone(&slot));
        self.counts.begun.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    /// Returns the visit with this id.
    pub(crate) fn get(&self, id: u128) -> Option<Arc<VisitSlot>> {
        self.table.get(&id).map(|slot| Arc::clone(slot.value()))
    }

    /// Drops a visit, which releases its permits.
    pub(crate) fn remove(&self, slot: &VisitSlot) {
        if self.table.remove(&slot.id).is_some() {
            self.left(slot.client);
        }
    }

    /// Advances a visit: takes its next step if that is not known, signs its request, and sets its expiry.
    pub(crate) fn advance(&self, slot: &VisitSlot, active: &mut ActiveVisit, now: fetchwise::time::Timestamp) {
        if matches!(active.state, VisitState::Open | VisitState::Waits(_)) {
            active.state = match active.visit.next() {
                Step::Fetch(fetch) => {
                    active.number += 1;
                    VisitState::Out(fetch)
                }
                Step::Wait(wait) => VisitState::Waits(wait),
                Step::End(end) => self.ended(end),
            };
        }
        active.signature = match (&active.state, self.signer.get(), slot.client) {
            (VisitState::Out(fetch), Some(signer), Client::Token(_)) => {
                signer.sign(fetch.fetcher(), active.visit.url())
            }
            _ => None,
        };
        let time = match &active.state {
            VisitState::Out(fetch) => fetch.deadline(),
            VisitState::Waits(wait) => wait.until().since(now),
            _ => Duration::ZERO,
        };
        slot.ends_at.store(self.in_ms(time + self.patience), Ordering::Relaxed);
    }

    /// Returns the state of a visit that has ended.
    pub(crate) fn ended(&self, end: End) -> VisitState {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        VisitState::Ended(Box::new(end))
    }

    /// Drops the abandoned visits.
    pub(crate) fn sweep(&self) {
        let now = self.in_ms(Duration::ZERO);
        let is_over = |slot: &VisitSlot| slot.ends_at.load(Ordering::Relaxed) <= now;
        let over: Vec<u128> = self.table.iter().filter(|slot| is_over(slot)).map(|slot| *slot.key()).collect();
        for id in over {
            if let Some((_, slot)) = self.table.remove_if(&id, |_, slot| is_over(slot)) {
                self.left(slot.client);
                if !matches!(slot.lock().state, VisitState::Ended(_)) {
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

    /// Returns the number of active visits.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the counts of visits.
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

impl VisitSlot {
    /// Returns the visit's id.
    pub(crate) fn id(&self) -> u128 {
        self.id
    }

    /// Locks the visit. Callers hold the lock during one step and never while they wait.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ActiveVisit> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
