//! Host pauses shared by an egress group, and the single trial after each.
//!
//! Each paused host has a cell at the broker. `state_machine` defines the transitions of a cell, `coordinator` holds
//! this node's view and its pending writes, and [`SharedHosts`] connects them to the broker and to the selector.
//!
//! Invariants: while the broker is available, one node makes the trial of a pause. Without a broker the crawl goes on.
//!
//! Must not know: which broker it is, or what is learned from a host.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::pause_coordination::{PauseCoordinator, Resolver, TrialPermission};
use fetchwise::time::Timestamp;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::model::node_id::NodeId;
use crate::transport::{Cell, Change, SwapOutcome, Table, Transport, TransportError};

mod coordinator;
pub mod state_machine;

use crate::pauses::coordinator::{ClaimOutcome, LocalAction, PauseView, PendingWrite, TrialReply};
use crate::pauses::state_machine::{CellVersion, Claim, HostState, MIN_SHARED_PAUSE};

/// The interval at which an unavailable broker is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of concurrent requests.
const MAX_REQUESTS: usize = 32;
/// The maximum number of waiting updates. Beyond it, pauses stay local.
const MAX_WAITING: usize = 10_000;

/// The task that shares host pauses with the egress group. Dropping it stops it; pauses are local then.
pub struct SharedHosts {
    task: JoinHandle<()>,
    shared: Arc<SharedState>,
}

/// Counters of shared pauses and trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Pauses of other nodes that were applied.
    pub received: u64,
    /// Pauses that were sent to the other nodes.
    pub sent: u64,
    /// Trials that this node has won.
    pub trials: u64,
    /// Trials that other nodes have won.
    pub lost: u64,
    /// Trials that were made without the broker.
    pub own_trials: u64,
    /// Pauses of other nodes that were rejected because there were too many.
    pub rejected: u64,
}

struct SharedState {
    own: NodeId,
    egress: String,
    view: Mutex<PauseView>,
    counts: Mutex<HostCounts>,
    resolver: Resolver,
    update: mpsc::Sender<Update>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHosts").field("own", &self.own).field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// An update for the broker.
enum Update {
    Paused(String, Timestamp, Timestamp),
    Lifted(String),
    Claim(String),
    /// A pending write that failed before.
    PendingWrite(String, PendingWrite),
}

impl SharedHosts {
    /// Starts to share pauses with all nodes of the same `egress` group, as the pause coordinator of `selector`.
    /// Returns none if the selector has a coordinator already. Needs a tokio runtime.
    pub fn share(selector: Arc<Selector>, transport: Arc<dyn Transport>, own: NodeId, egress: &str) -> Option<Self> {
        let (update, updates) = mpsc::channel(MAX_WAITING);
        let shared = Arc::new(SharedState {
            own,
            egress: egress.to_owned(),
            view: Mutex::new(PauseView::new(own)),
            counts: Mutex::default(),
            resolver: Resolver::default(),
            update,
        });
        if !selector.set_pause_coordinator(Arc::clone(&shared) as Arc<dyn PauseCoordinator>) {
            return None;
        }
        let driver = Driver { shared: Arc::clone(&shared), selector, transport };
        Some(Self { task: tokio::spawn(async move { driver.run(updates).await }), shared })
    }

    /// Stops the task and waits until it has released the selector.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Returns the counters.
    pub fn counts(&self) -> HostCounts {
        let counts = *self.shared.counts();
        let view = self.shared.view();
        HostCounts { rejected: view.rejected, trials: view.trials, own_trials: view.own_trials, ..counts }
    }
}

impl Drop for SharedHosts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SharedState {
    fn view(&self) -> MutexGuard<'_, PauseView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, HostCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PauseCoordinator for SharedState {
    fn paused(&self, domain: &str, until: Timestamp, at: Timestamp) {
        if until.since(at) > MIN_SHARED_PAUSE {
            drop(self.update.try_send(Update::Paused(domain.to_owned(), until, at)));
        }
    }

    fn lifted(&self, domain: &str) {
        drop(self.update.try_send(Update::Lifted(domain.to_owned())));
    }

    fn may_try(&self, domain: &str, ended: Timestamp, now: Timestamp) -> TrialPermission {
        // Registered before the check, so that a resolution in between is not missed.
        let resolved = self.resolver.wait();
        if self.update.is_closed() {
            return TrialPermission::Now;
        }
        let turn = self.view().request_trial(domain, ended, now);
        match turn {
            TrialReply::Now => TrialPermission::Now,
            TrialReply::NotBefore(until) => TrialPermission::NotBefore(until),
            TrialReply::Asking(false) => TrialPermission::Pending(resolved),
            TrialReply::Asking(true) => match self.update.try_send(Update::Claim(domain.to_owned())) {
                Ok(()) => TrialPermission::Pending(resolved),
                Err(_) => {
                    let until = now.saturating_add(RETRY_INTERVAL);
                    self.view().hold(domain, until);
                    TrialPermission::NotBefore(until)
                }
            },
        }
    }
}

struct Driver {
    shared: Arc<SharedState>,
    selector: Arc<Selector>,
    transport: Arc<dyn Transport>,
}

impl Driver {
    async fn run(&self, mut updates: mpsc::Receiver<Update>) {
        let mut under_way = FuturesUnordered::new();
        let mut again = tokio::time::interval(RETRY_INTERVAL);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Watched before the listing, so that no change in between is missed.
            let watch = self.transport.cells().watch(Table::Hosts);
            let stock = {
                let taking = self.resync();
                tokio::pin!(taking);
                loop {
                    tokio::select! {
                        taken = &mut taking => break taken,
                        Some(()) = under_way.next(), if !under_way.is_empty() => {}
                    }
                }
            };
            self.shared.view().record_response(stock.is_ok(), self.selector.now());
            let mut watch = stock.is_ok().then_some(watch);
            // Waiting visits ask again.
            self.shared.resolver.resolve();
            again.reset();
            loop {
                let change = async {
                    match &mut watch {
                        Some(watch) => watch.next().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    change = change => match change {
                        Some(Ok(change)) => self.handle_change(change),
                        // The broker or the table has gone.
                        _ => break,
                    },
                    update = updates.recv(), if under_way.len() < MAX_REQUESTS => match update {
                        Some(update) => under_way.push(self.update(update)),
                        None => return,
                    },
                    Some(()) = under_way.next(), if !under_way.is_empty() => {}
                    _ = again.tick() => {
                        if watch.is_none() {
                            break;
                        }
                        let pending = self.shared.view().take_pending();
                        under_way.extend(pending.into_iter().map(|(domain, pending)| self.update(Update::PendingWrite(domain, pending))));
                    }
                }
            }
        }
    }

    /// Compares the known cells with the broker's, after a time without it.
    async fn resync(&self) -> Result<(), TransportError> {
        let cells = self.transport.cells();
        let table = cells.incarnation(Table::Hosts).await?;
        // The table was lost; that does not mean that the hosts are fine.
        if self.shared.view().is_recreated(table) {
            let known = self.shared.view().cells();
            known.iter().for_each(|(domain, _)| self.shared.view().apply_loss(domain, self.selector.now()));
        }
        let known = self.shared.view().cells();
        let listed = cells.list(Table::Hosts).await?;
        let keys: HashSet<&str> = listed.iter().map(|(key, _)| key.as_str()).collect();
        for (domain, revision) in known {
            let key = state_machine::key(&self.shared.egress, &domain);
            if keys.contains(key.as_str()) {
                continue;
            }
            // The listing may come from a replica that is behind.
            let (cell, key) = (cells.get(Table::Hosts, &key).await?, key);
            let revision = cell.as_ref().map_or(revision, |cell| cell.revision);
            self.handle_change(Change { key, cell, revision });
        }
        for (key, cell) in listed {
            let revision = cell.revision;
            self.handle_change(Change { key, cell: Some(cell), revision });
        }
        Ok(())
    }

    /// Applies a change of a cell.
    fn handle_change(&self, change: Change) {
        self.shared.view().record_response(true, self.selector.now());
        let Some(domain) = state_machine::domain_of(&self.shared.egress, &change.key) else { return };
        match change.cell {
            Some(cell) => drop(self.handle_cell(domain, &cell)),
            None => self.handle_deletion(domain, change.revision),
        }
        self.shared.resolver.resolve();
    }

    /// Applies the deletion of a host's cell at that revision.
    fn handle_deletion(&self, domain: &str, revision: u64) {
        let local = self.shared.view().apply_deletion(domain, revision);
        self.apply(domain, local);
    }

    /// Applies a changed cell. Returns none if it is invalid.
    fn handle_cell(&self, domain: &str, cell: &Cell) -> Option<CellVersion> {
        let seen = CellVersion { state: HostState::decode(&cell.value)?, stored: cell.at, revision: cell.revision };
        let local = self.shared.view().apply_change(domain, seen, self.selector.now());
        self.apply(domain, local);
        Some(seen)
    }

    /// Performs the local action that follows from another node's change.
    fn apply(&self, domain: &str, local: LocalAction) {
        match local {
            LocalAction::Nothing => {}
            LocalAction::Pause { until, ours, level } => {
                let here = self.selector.host_pause(domain);
                if here.is_none_or(|here| here < until || ours.has(here)) {
                    self.selector.set_host_pause(domain, Some(until));
                    self.shared.counts().received += 1;
                }
                self.selector.restore_host_levels([(domain.to_owned(), level)]);
            }
            LocalAction::Try { held, over } => drop(self.selector.claim_host_trial(domain, held, over)),
            LocalAction::Lift(ours) => {
                if self.selector.host_pause(domain).is_some_and(|here| ours.has(here)) {
                    self.selector.set_host_pause(domain, None);
                }
                self.selector.restore_host_levels([(domain.to_owned(), 0)]);
            }
        }
    }

    async fn update(&self, update: Update) {
        match update {
            Update::Paused(domain, until, at) => {
                if self.shared.view().may_share(&domain, at) {
                    self.say_paused(&domain, until, at).await;
                }
            }
            Update::PendingWrite(domain, PendingWrite::Pause(until, at)) => self.say_paused(&domain, until, at).await,
            Update::Lifted(domain) | Update::PendingWrite(domain, PendingWrite::Lift(_)) => {
                self.say_lifted(&domain).await
            }
            Update::Claim(domain) => {
                let answer = self.claim(&domain).await;
                self.shared.view().record_claim(&domain, answer, self.selector.now());
            }
        }
        self.shared.resolver.resolve();
    }

    /// Swaps a cell if it is unchanged, and applies its current value. Returns none without a response.
    async fn swap(&self, domain: &str, seen: Option<u64>, state: HostState) -> Option<bool> {
        let key = state_machine::key(&self.shared.egress, domain);
        let swapped = self.transport.cells().swap(Table::Hosts, &key, seen, state.encode().into()).await;
        let now = self.selector.now();
        self.shared.view().record_response(swapped.is_ok(), now);
        match swapped {
            Ok(SwapOutcome::Done(revision)) => {
                let seen = CellVersion { state, stored: now, revision };
                let local = self.shared.view().apply_change(domain, seen, now);
                self.apply(domain, local);
                Some(true)
            }
            Ok(SwapOutcome::Lost(Some(cell))) => {
                self.handle_cell(domain, &cell);
                // The cell holds this node's own value: an earlier response was lost.
                Some(HostState::decode(&cell.value) == Some(state))
            }
            Ok(SwapOutcome::Lost(None)) => {
                // Changes that arrived since the request are newer.
                self.handle_deletion(domain, seen.unwrap_or(0));
                Some(false)
            }
            Err(_) => None,
        }
    }

    async fn say_paused(&self, domain: &str, until: Timestamp, at: Timestamp) {
        loop {
            let seen = self.shared.view().cell(domain);
            let Some(state) = state_machine::paused(seen.as_ref(), until, at, self.shared.own) else {
                return;
            };
            match self.swap(domain, seen.map(|seen| seen.revision), state).await {
                Some(true) => {
                    self.shared.counts().sent += 1;
                    return;
                }
                Some(false) if self.shared.view().cell(domain) == seen => return,
                Some(false) => {}
                None => return self.shared.view().add_pending(domain, PendingWrite::Pause(until, at)),
            }
        }
    }

    async fn say_lifted(&self, domain: &str) {
        let Some(mut seen) = self.shared.view().cell(domain) else { return };
        let key = state_machine::key(&self.shared.egress, domain);
        loop {
            let deleted = self.transport.cells().delete(Table::Hosts, &key, Some(seen.revision)).await;
            self.shared.view().record_response(deleted.is_ok(), self.selector.now());
            match deleted {
                Ok(SwapOutcome::Done(revision)) => return self.handle_deletion(domain, revision),
                Ok(SwapOutcome::Lost(None)) => return self.handle_deletion(domain, seen.revision),
                Ok(SwapOutcome::Lost(Some(cell))) => {
                    self.handle_cell(domain, &cell);
                    let Some(now) = self.shared.view().cell(domain) else { return };
                    // Only a trial of this node is meant, whose claim got no response. Another node's trial is left as
                    // it is.
                    let is_own = now.state.is_trial && now.state.by == self.shared.own;
                    if !is_own || now.revision == seen.revision {
                        return;
                    }
                    seen = now;
                }
                Err(_) => return self.shared.view().add_pending(domain, PendingWrite::Lift(seen.revision)),
            }
        }
    }

    /// Claims the trial of a host.
    async fn claim(&self, domain: &str) -> ClaimOutcome {
        let Some(seen) = self.shared.view().cell(domain) else { return ClaimOutcome::Known };
        let Claim::Swap(state) = state_machine::claim(&seen, self.selector.now(), self.shared.own) else {
            return ClaimOutcome::Known;
        };
        match self.swap(domain, Some(seen.revision), state).await {
            Some(true) => {}
            Some(false) if self.shared.view().cell(domain) == Some(seen) => return ClaimOutcome::Rejected,
            Some(false) => self.shared.counts().lost += 1,
            None => return ClaimOutcome::Unanswered,
        }
        ClaimOutcome::Known
    }
}
