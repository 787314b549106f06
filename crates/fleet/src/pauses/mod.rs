//! Host pauses shared by an egress group, and the single trial after each.
//!
//! Each node has a cell at the broker for each host that it pauses or tries. Its key holds the
//! node, so a broker with permissions lets no node speak for another. `state_machine` defines what
//! follows from the statements in these cells, `pause_view` holds this node's view and its pending
//! writes, and [`SharedHosts`] connects them to the broker and to the selector.
//!
//! Invariants: while the broker is available, one node makes the trial of a pause. Without a broker
//! the crawl goes on. No peer ends a pause that this node's own attempts have set.
//!
//! Must not know: which broker it is, or what is learned from a host.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::pause_coordination::{PauseCoordinator, Resolver, TrialPermission};
use fetchwise::time::Timestamp;
use futures_util::stream::{FuturesUnordered, StreamExt, select_all};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::model::node_id::NodeId;
use crate::transport::{Cell, Change, Table, Transport, TransportError, is_broker_response};

mod pause_view;
pub mod state_machine;

use crate::pauses::pause_view::{ClaimOutcome, LocalAction, PauseView, TrialReply};
use crate::pauses::state_machine::{HostState, MIN_SHARED_PAUSE, Phase};

/// The interval at which an unavailable broker is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The minimum interval between readings of all statements because of new nodes.
const REREAD_INTERVAL: Duration = Duration::from_secs(2);
/// The time within which a stored claim has to be delivered.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of concurrent requests.
const MAX_REQUESTS: usize = 32;
/// The maximum number of waiting updates. Beyond it, pauses stay local.
const MAX_WAITING: usize = 10_000;

/// The task that shares host pauses with the egress group. Dropping it stops it; pauses are local
/// then.
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
    /// Pauses and trials of other nodes that were rejected: there were too many, or the node has no
    /// heartbeat or is excluded.
    pub rejected: u64,
}

struct SharedState {
    own: NodeId,
    egress: String,
    view: Mutex<PauseView>,
    counts: Mutex<HostCounts>,
    resolver: Resolver,
    /// Notified after each change of the view.
    changed: Notify,
    update: mpsc::Sender<Update>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHosts")
            .field("own", &self.own)
            .field("egress", &self.egress)
            .finish_non_exhaustive()
    }
}

/// An update for the broker.
enum Update {
    Paused(String, Timestamp, Timestamp),
    Lifted(String),
    Claim(String),
    /// A statement that could not be written before.
    Pending(String),
}

impl SharedHosts {
    /// Starts to share pauses with all nodes of the same `egress` group, as the pause coordinator
    /// of `selector`. Returns none if the selector has a coordinator already. Needs a tokio
    /// runtime.
    pub fn share(
        selector: Arc<Selector>,
        transport: Arc<dyn Transport>,
        own: NodeId,
        egress: &str,
    ) -> Option<Self> {
        let (update, updates) = mpsc::channel(MAX_WAITING);
        let shared = Arc::new(SharedState {
            own,
            egress: egress.to_owned(),
            view: Mutex::new(PauseView::new(own)),
            counts: Mutex::default(),
            resolver: Resolver::default(),
            changed: Notify::new(),
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
        HostCounts {
            rejected: view.rejected,
            trials: view.trials,
            own_trials: view.own_trials,
            ..counts
        }
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
        self.view().record_own_pause(domain, until);
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
            TrialReply::Asking(true) => {
                match self.update.try_send(Update::Claim(domain.to_owned())) {
                    Ok(()) => TrialPermission::Pending(resolved),
                    Err(_) => {
                        let until = now.saturating_add(RETRY_INTERVAL);
                        self.view().hold(domain, until);
                        TrialPermission::NotBefore(until)
                    }
                }
            }
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
            let cells = self.transport.cells();
            let watch = |table| cells.watch(table).map(move |change| (table, change));
            let watch = select_all([Table::Hosts, Table::Nodes, Table::Excluded].map(watch));
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
            let (read_at, mut must_reread) = (tokio::time::Instant::now(), false);
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
                        Some((table, Ok(change))) => must_reread |= self.handle_change(table, change),
                        // The broker or a table has gone.
                        _ => break,
                    },
                    update = updates.recv(), if under_way.len() < MAX_REQUESTS => match update {
                        Some(update) => under_way.push(self.update(update)),
                        None => return,
                    },
                    Some(()) = under_way.next(), if !under_way.is_empty() => {}
                    _ = again.tick() => {
                        if watch.is_none() || must_reread && read_at.elapsed() >= REREAD_INTERVAL {
                            break;
                        }
                        let pending = self.shared.view().pending();
                        under_way.extend(pending.into_iter().take(MAX_REQUESTS).map(|domain| self.update(Update::Pending(domain))));
                    }
                }
            }
        }
    }

    /// Compares the known statements with the broker's, after a time without it.
    async fn resync(&self) -> Result<(), TransportError> {
        let cells = self.transport.cells();
        let table = cells.incarnation(Table::Hosts).await?;
        // The table was lost; that does not mean that the hosts are fine.
        let is_recreated = self.shared.view().is_recreated(table);
        if is_recreated {
            self.shared.view().apply_loss(self.selector.now());
        }
        let (present, excluded) =
            (cells.list(Table::Nodes).await?, cells.list(Table::Excluded).await?);
        let nodes = |listed: Vec<(String, Cell)>| {
            let node = |(key, cell): (String, Cell)| Some((key.parse().ok()?, cell.value));
            listed.into_iter().filter_map(node)
        };
        let present = nodes(present).map(|(node, _)| node);
        let actions = {
            let mut view = self.shared.view();
            // A response of the broker excludes nobody, and ends no exclusion in whose place it was
            // stored.
            let counts =
                |node: NodeId, value: &[u8]| !is_broker_response(value) || view.is_excluded(node);
            let excluded =
                nodes(excluded).filter(|(node, value)| counts(*node, value)).map(|(node, _)| node);
            let excluded: Vec<NodeId> = excluded.collect();
            view.set_nodes(present, excluded, self.selector.now())
        };
        actions.iter().for_each(|(domain, action)| self.apply(domain, *action));
        let known = self.shared.view().statements();
        let mut listed = cells.list(Table::Hosts).await?;
        // The order of the broker decides.
        listed.sort_by_key(|(_, cell)| cell.revision);
        let keys: HashSet<&str> = listed.iter().map(|(key, _)| key.as_str()).collect();
        for (domain, by, revision) in known {
            let key = state_machine::key(by, &self.shared.egress, &domain);
            if keys.contains(key.as_str()) {
                continue;
            }
            // The listing may come from a replica that is behind.
            let (cell, key) = (cells.get(Table::Hosts, &key).await?, key);
            let revision = cell.as_ref().map_or(revision, |cell| cell.revision);
            self.handle_change(Table::Hosts, Change { key, cell, revision });
        }
        for (key, cell) in listed {
            let revision = cell.revision;
            self.handle_change(Table::Hosts, Change { key, cell: Some(cell), revision });
        }
        Ok(())
    }

    /// Applies a change of a cell. Returns whether statements count now that did not before.
    fn handle_change(&self, table: Table, change: Change) -> bool {
        let now = self.selector.now();
        self.shared.view().record_response(true, now);
        match (table, change.key.parse::<NodeId>()) {
            (Table::Nodes, Ok(node)) => {
                return self.shared.view().set_present(node, change.cell.is_some());
            }
            (Table::Excluded, Ok(_))
                if change.cell.as_ref().is_some_and(|cell| is_broker_response(&cell.value)) =>
            {
                return false;
            }
            (Table::Excluded, Ok(node)) => {
                let actions = self.shared.view().exclude(node, change.cell.is_some(), now);
                actions.iter().for_each(|(domain, action)| self.apply(domain, *action));
                return change.cell.is_none();
            }
            (Table::Hosts, _) => {}
            _ => return false,
        }
        let Some((by, domain)) = state_machine::parse_key(&self.shared.egress, &change.key) else {
            return false;
        };
        let action = match change.cell {
            Some(cell) => match HostState::decode(&cell.value) {
                Some(state) => {
                    let to_time_ms = self.selector.clock().ahead_ms().saturating_neg();
                    let (state, stored) =
                        (state.moved_by(to_time_ms), cell.at.moved_by(to_time_ms));
                    self.shared.view().apply_statement(
                        domain,
                        by,
                        state,
                        (stored, cell.revision),
                        now,
                    )
                }
                // Not a statement of the node. It may have taken the place of one, which still
                // counts here.
                None => return false,
            },
            None => self.shared.view().apply_removal(domain, by, change.revision, now),
        };
        self.apply(domain, action);
        self.shared.changed.notify_waiters();
        self.shared.resolver.resolve();
        false
    }

    /// Performs the local action that follows from a statement.
    fn apply(&self, domain: &str, local: LocalAction) {
        let (here, now) = (self.selector.host_pause(domain), self.selector.now());
        match local {
            LocalAction::Nothing => {}
            LocalAction::Pause { until, ours, level } => {
                if let Some(own) =
                    here.filter(|here| *here > now && *here != until && !ours.has(*here))
                {
                    self.shared.view().record_own_pause(domain, own);
                }
                if here.is_none_or(|here| here < until || ours.has(here)) {
                    self.selector.set_host_pause(domain, Some(until));
                    self.shared.counts().received += 1;
                }
                self.selector.restore_host_levels([(domain.to_owned(), level)]);
            }
            LocalAction::Try { held, over } => {
                let _ = self.selector.claim_host_trial(domain, held, over);
            }
            LocalAction::Lift { ours, own_until } => {
                if here.is_some_and(|here| here <= now || ours.has(here)) {
                    self.selector.set_host_pause(domain, own_until);
                }
                if self.selector.host_pause(domain).is_none() {
                    self.selector.restore_host_levels([(domain.to_owned(), 0)]);
                }
            }
        }
    }

    async fn update(&self, update: Update) {
        match update {
            Update::Paused(domain, until, at) => {
                let is_stated = self.shared.view().state_pause(&domain, until, at);
                if is_stated {
                    self.write_pending(&domain).await;
                }
            }
            Update::Lifted(domain) => {
                let is_stated = self.shared.view().state_fine(&domain, self.selector.now());
                if is_stated {
                    self.write_pending(&domain).await;
                }
            }
            Update::Pending(domain) => self.write_pending(&domain).await,
            Update::Claim(domain) => {
                let answer = self.claim(&domain).await;
                self.shared.view().record_claim(&domain, answer, self.selector.now());
            }
        }
        self.shared.resolver.resolve();
    }

    /// Writes this node's statement about a host. Returns its revision; none without a response.
    async fn write(&self, domain: &str, state: HostState) -> Option<u64> {
        let key = state_machine::key(self.shared.own, &self.shared.egress, domain);
        let dated = state.moved_by(self.selector.clock().ahead_ms());
        let written = self.transport.cells().put(Table::Hosts, &key, dated.encode().into()).await;
        self.shared.view().record_response(written.is_ok(), self.selector.now());
        if written.is_ok() && state.phase == Phase::Paused {
            self.shared.counts().sent += 1;
        }
        written.ok()
    }

    /// Writes queued statements about a host, until none is left or the broker does not respond.
    async fn write_pending(&self, domain: &str) {
        loop {
            let Some(state) = self.shared.view().begin_write(domain, None, self.selector.now())
            else {
                return;
            };
            let is_written = self.write(domain, state).await.is_some();
            self.shared.view().end_write(domain, Some(state).filter(|_| !is_written));
            if !is_written {
                return;
            }
        }
    }

    /// Claims the trial of a host. The first claim in the broker's order counts, so the outcome is
    /// known when the watcher has delivered this one.
    async fn claim(&self, domain: &str) -> ClaimOutcome {
        let now = self.selector.now();
        let Some(claim) = self.shared.view().claim(domain, now) else { return ClaimOutcome::Known };
        let Some(state) = self.shared.view().begin_write(domain, Some(claim), now) else {
            // Another statement is on its way. The visits ask again after it.
            self.is_changed(RETRY_INTERVAL, || false).await;
            return ClaimOutcome::Known;
        };
        let revision = self.write(domain, state).await;
        self.shared.view().end_write(domain, None);
        self.write_pending(domain).await;
        let Some(revision) = revision else { return ClaimOutcome::Unanswered };
        if !self.is_changed(CLAIM_TIMEOUT, || self.shared.view().is_applied(domain, revision)).await
        {
            return ClaimOutcome::Unanswered;
        }
        if !self.shared.view().is_tried_here(domain, self.selector.now()) {
            self.shared.counts().lost += 1;
        }
        ClaimOutcome::Known
    }

    /// Waits until something is true that a change of the view makes true. Returns whether it is.
    async fn is_changed(&self, time: Duration, holds: impl Fn() -> bool) -> bool {
        let until = tokio::time::Instant::now() + time;
        loop {
            // Registered before the check, so that a change in between is not missed.
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds() {
                return true;
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                return holds();
            }
        }
    }
}
