//! Active visits of remote crawlers: each is a visit of the library, kept between two requests.
//!
//! Owns: their number, their clients, and the expiry of abandoned ones. An overdue visit returns
//! what it holds of its host, and can still be reported. An abandoned visit is dropped, and its
//! last request counts as never handed out.
//!
//! Must not know: HTTP, the meaning of responses.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use url::Url;

use super::options::Options;
use crate::auth::Client;
use crate::signing::{SignatureHeaders, StepSigner};
use crate::visits::host_clients::HostClients;
use fetchwise::heuristic::url::domain_of;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise::visit::{End, Fetch, Step, Visit, Wait};

mod host_clients;
mod step_json;

/// The time after the deadline of its request, or after the end of its wait, from which a visit
/// holds nobody back.
const OVERDUE_AFTER: Duration = Duration::from_secs(2);
/// The time after which a visit asks again whose client owes a report about its host.
const HELD_FOR: Duration = Duration::from_secs(1);

pub(crate) use step_json::write;
#[cfg(test)]
pub(crate) use step_json::{StepJson, VisitStepJson};

/// A visit that outlives the request that began it.
pub(crate) type OwnedVisit = Visit<Arc<Selector>, Url>;

/// The table of active visits.
#[derive(Debug)]
pub(crate) struct Visits {
    table: DashMap<u128, Arc<VisitSlot>>,
    count: AtomicUsize,
    shares: DashMap<Client, usize>,
    hosts: HostClients,
    most: usize,
    /// Maximum number of visits per client, if tokens distinguish clients.
    share: usize,
    patience: Duration,
    /// [`OVERDUE_AFTER`], except in tests.
    overdue_after: Duration,
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
    host: Box<str>,
    /// The expiry, in milliseconds since the table was created.
    ends_at: AtomicU64,
    /// The time, as above, from which it holds nothing of its host; `u64::MAX` if it holds nothing.
    overdue_at: AtomicU64,
    /// Whether its client owes the report of an overdue request. Changed under the lock of the
    /// visit.
    is_owed: AtomicBool,
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
    /// How the reported requests ended: their numbers, with hashes.
    pub(crate) ends: Vec<(u32, u64)>,
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
    /// The visit waits until then, because its client owes a report about the host.
    Held(Timestamp),
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
            hosts: HostClients::default(),
            most,
            // No client can occupy the whole table.
            share: if has_tokens { most.div_ceil(2) } else { most },
            patience: options.visit_timeout,
            overdue_after: OVERDUE_AFTER,
            begun: Instant::now(),
            counts: Counts::default(),
            signer: OnceLock::new(),
        }
    }

    /// Sets the signer of requests that clients with a token get; only the first call has an
    /// effect.
    pub(crate) fn sign_with(&self, signer: StepSigner) {
        let _ = self.signer.set(signer);
    }

    /// Adds a visit.
    ///
    /// # Errors
    /// [`TooMany`] if the table is full, or the client has reached its quota.
    pub(crate) fn add(
        &self,
        id: u128,
        client: Client,
        visit: OwnedVisit,
    ) -> Result<Arc<VisitSlot>, TooMany> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most || !self.take_share(client) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooMany);
        }
        let host = visit.url().host_str().map(domain_of).unwrap_or_default().to_owned();
        let active = Mutex::new(ActiveVisit {
            visit,
            state: VisitState::Open,
            number: 0,
            signature: None,
            ends: Vec::new(),
        });
        let (ends_at, overdue_at) =
            (AtomicU64::new(self.in_ms(self.patience)), AtomicU64::new(u64::MAX));
        let host = Box::from(host);
        let slot = Arc::new(VisitSlot {
            id,
            client,
            host,
            ends_at,
            overdue_at,
            is_owed: AtomicBool::new(false),
            active,
        });
        self.hosts.enter(&slot.host, client);
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
            self.left(slot);
        }
    }

    /// Advances a visit: takes its next step if that is not known, signs its request, and sets its
    /// expiry.
    pub(crate) fn advance(&self, slot: &VisitSlot, active: &mut ActiveVisit, now: Timestamp) {
        if matches!(active.state, VisitState::Open | VisitState::Waits(_) | VisitState::Held(_)) {
            // Its request, if there was one, is reported.
            if slot.is_owed.swap(false, Ordering::Relaxed) {
                self.hosts.reported(&slot.host, slot.client);
            }
            active.state = match self.hosts.is_held(&slot.host, slot.client) {
                true => {
                    active.visit.release();
                    VisitState::Held(now.saturating_add(HELD_FOR))
                }
                false => self.next(active),
            };
            // A client that only looks at its request does not extend it.
            let holds = match &active.state {
                VisitState::Out(fetch) => Some(fetch.deadline()),
                VisitState::Waits(wait) => Some(wait.until().since(now)),
                _ => None,
            };
            let overdue_at = holds.map_or(u64::MAX, |time| self.in_ms(time + self.overdue_after));
            slot.overdue_at.store(overdue_at, Ordering::Relaxed);
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
            VisitState::Held(until) => until.since(now),
            _ => Duration::ZERO,
        };
        slot.ends_at.store(self.in_ms(time + self.patience), Ordering::Relaxed);
    }

    fn next(&self, active: &mut ActiveVisit) -> VisitState {
        match active.visit.next() {
            Step::Fetch(fetch) => {
                active.number += 1;
                VisitState::Out(fetch)
            }
            Step::Wait(wait) => VisitState::Waits(wait),
            Step::End(end) => self.ended(end),
        }
    }

    /// Returns the state of a visit that has ended.
    pub(crate) fn ended(&self, end: End) -> VisitState {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        VisitState::Ended(Box::new(end))
    }

    /// Returns what overdue visits hold of their hosts, and drops the abandoned ones.
    pub(crate) fn sweep(&self) {
        let now = self.in_ms(Duration::ZERO);
        let is_overdue = |slot: &VisitSlot| slot.overdue_at.load(Ordering::Relaxed) <= now;
        let overdue: Vec<_> = self
            .table
            .iter()
            .filter(|slot| is_overdue(slot))
            .map(|slot| Arc::clone(&slot))
            .collect();
        for slot in overdue {
            let mut active = slot.lock();
            // Under the lock, so that no later request is meant.
            if is_overdue(&slot) {
                slot.overdue_at.store(u64::MAX, Ordering::Relaxed);
                active.release();
                if matches!(active.state, VisitState::Out(_))
                    && !slot.is_owed.swap(true, Ordering::Relaxed)
                {
                    self.hosts.overdue(&slot.host, slot.client);
                }
            }
        }
        let is_over = |slot: &VisitSlot| slot.ends_at.load(Ordering::Relaxed) <= now;
        let over: Vec<u128> =
            self.table.iter().filter(|slot| is_over(slot)).map(|slot| *slot.key()).collect();
        for id in over {
            if let Some((_, slot)) = self.table.remove_if(&id, |_, slot| is_over(slot)) {
                self.left(&slot);
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
        self.hosts.clear();
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

    fn left(&self, slot: &VisitSlot) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.hosts.leave(&slot.host, slot.client, slot.is_owed.swap(false, Ordering::Relaxed));
        self.shares.remove_if_mut(&slot.client, |_, has| {
            *has = has.saturating_sub(1);
            *has == 0
        });
    }

    fn in_ms(&self, time: Duration) -> u64 {
        u64::try_from((self.begun.elapsed() + time).as_millis()).unwrap_or(u64::MAX)
    }
}

impl ActiveVisit {
    /// Returns how a request ended, if it was reported.
    pub(crate) fn reported_end(&self, number: u32) -> Option<u64> {
        self.ends.iter().find(|(reported, _)| *reported == number).map(|(_, end)| *end)
    }

    /// Returns what it holds of its host. It can still be reported.
    fn release(&mut self) {
        self.visit.release();
        if let VisitState::Out(fetch) = &mut self.state {
            fetch.release();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::fetch_result::{FetchResult, Outcome};
    use fetchwise::selector::VisitSettings;
    use std::net::{IpAddr, Ipv4Addr};

    const CLIENTS: [Client; 2] =
        [Client::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)), Client::Token(1)];

    fn visits() -> Visits {
        Visits { overdue_after: Duration::ZERO, ..Visits::new(&Options::default(), true) }
    }

    fn selector() -> Arc<Selector> {
        let settings = VisitSettings {
            probe_deadline: Duration::ZERO,
            deadline: Duration::ZERO,
            ..Default::default()
        };
        Arc::new(Selector::builder().visits(settings).build().unwrap())
    }

    fn begin(
        visits: &Visits,
        selector: &Arc<Selector>,
        client: Client,
        number: u128,
    ) -> Arc<VisitSlot> {
        let url = Url::parse(&format!("https://e.org/{number}")).unwrap();
        let slot =
            visits.add(number, client, Visit::new(Arc::clone(selector), url).unwrap()).unwrap();
        visits.advance(&slot, &mut slot.lock(), selector.now());
        slot
    }

    fn is_out(slot: &VisitSlot) -> bool {
        matches!(slot.lock().state, VisitState::Out(_))
    }

    /// The other client waited for 43 seconds for the probe, and then for the next visit of the
    /// same client.
    #[test]
    fn a_client_that_never_reports_holds_no_other_off_a_host() {
        let (visits, selector) = (visits(), selector());
        let silent: Vec<_> = (0..9).map(|n| begin(&visits, &selector, CLIENTS[0], n)).collect();
        let other = begin(&visits, &selector, CLIENTS[1], 100);
        assert!(is_out(&silent[0]) && !is_out(&silent[1]) && !is_out(&other), "one probes");
        let advance = |slot: &VisitSlot| visits.advance(slot, &mut slot.lock(), selector.now());
        advance(&silent[0]);
        visits.sweep();
        // The silent client is first each time.
        silent.iter().for_each(|slot| advance(slot));
        advance(&other);
        assert!(is_out(&other));
        assert_eq!(
            silent.iter().filter(|slot| is_out(slot)).count(),
            1,
            "its client owes a report"
        );
        // A late report counts, and ends the visit.
        let mut active = silent[0].lock();
        let VisitState::Out(fetch) = std::mem::replace(&mut active.state, VisitState::Open) else {
            panic!("it is out")
        };
        active.visit.report(fetch, FetchResult::from(Outcome::Content));
        drop(active);
        advance(&silent[0]);
        assert!(
            matches!(&silent[0].lock().state, VisitState::Ended(end) if end.is_delivered() && end.requests == 1)
        );
        advance(&silent[1]);
        assert!(!matches!(silent[1].lock().state, VisitState::Held(_)), "it owes none now");
    }

    #[test]
    fn a_client_alone_at_a_host_is_not_held_up_and_nothing_is_left_over() {
        let (visits, selector) = (visits(), selector());
        let slots: Vec<_> = (0..3).map(|n| begin(&visits, &selector, CLIENTS[0], n)).collect();
        visits.sweep();
        let advance = |slot: &VisitSlot| visits.advance(slot, &mut slot.lock(), selector.now());
        advance(&slots[1]);
        assert!(!matches!(slots[1].lock().state, VisitState::Held(_)));
        let other = begin(&visits, &selector, CLIENTS[1], 9);
        advance(&slots[2]);
        assert!(matches!(slots[2].lock().state, VisitState::Held(_)));
        visits.remove(&slots[0]);
        advance(&slots[2]);
        assert!(
            !matches!(slots[2].lock().state, VisitState::Held(_)),
            "the visit that owed was given up"
        );
        slots.iter().chain([&other]).for_each(|slot| visits.remove(slot));
        assert!(!visits.hosts.is_held("e.org", CLIENTS[0]) && visits.len() == 0);
    }
}
