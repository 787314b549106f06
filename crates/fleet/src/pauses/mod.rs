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
use fetchwise::pause_coordination::{MayTry, Neighbours, Settling};
use fetchwise::time::Timestamp;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::model::node_id::Origin;
use crate::transport::{Cell, Change, Swapped, Table, Transport, TransportError};

mod coordinator;
pub mod state_machine;

use crate::pauses::coordinator::{Answer, Board, Local, Owed, Turn};
use crate::pauses::state_machine::{Claim, HostState, SHARED_FROM, Seen};

/// The interval at which an unavailable broker is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// The maximum number of concurrent requests.
const AT_ONCE: usize = 32;
/// The maximum number of waiting updates. Beyond it, pauses stay local.
const WAITING: usize = 10_000;

/// The task that shares host pauses with the egress group. Dropping it stops it; pauses are local then.
pub struct SharedHosts {
    task: JoinHandle<()>,
    shared: Arc<Shared>,
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

struct Shared {
    own: Origin,
    egress: String,
    board: Mutex<Board>,
    counts: Mutex<HostCounts>,
    settling: Settling,
    say: mpsc::Sender<Say>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHosts").field("own", &self.own).field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// An update for the broker.
enum Say {
    Paused(String, Timestamp, Timestamp),
    Lifted(String),
    Claim(String),
    /// A pending write that failed before.
    Owed(String, Owed),
}

impl SharedHosts {
    /// Starts to share pauses with all nodes of the same `egress` group, as the pause coordinator of `selector`.
    /// Returns none if the selector has a coordinator already. Needs a tokio runtime.
    pub fn share(selector: Arc<Selector>, transport: Arc<dyn Transport>, own: Origin, egress: &str) -> Option<Self> {
        let (say, said) = mpsc::channel(WAITING);
        let shared = Arc::new(Shared {
            own,
            egress: egress.to_owned(),
            board: Mutex::new(Board::new(own)),
            counts: Mutex::default(),
            settling: Settling::default(),
            say,
        });
        if !selector.set_neighbours(Arc::clone(&shared) as Arc<dyn Neighbours>) {
            return None;
        }
        let driver = Driver { shared: Arc::clone(&shared), selector, transport };
        Some(Self { task: tokio::spawn(async move { driver.run(said).await }), shared })
    }

    /// Stops the task and waits until it has released the selector.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Returns the counters.
    pub fn counts(&self) -> HostCounts {
        let counts = *self.shared.counts();
        let board = self.shared.board();
        HostCounts { rejected: board.unbelieved, trials: board.trials, own_trials: board.own_trials, ..counts }
    }
}

impl Drop for SharedHosts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, HostCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Neighbours for Shared {
    fn paused(&self, domain: &str, until: Timestamp, at: Timestamp) {
        if until.since(at) > SHARED_FROM {
            drop(self.say.try_send(Say::Paused(domain.to_owned(), until, at)));
        }
    }

    fn lifted(&self, domain: &str) {
        drop(self.say.try_send(Say::Lifted(domain.to_owned())));
    }

    fn may_try(&self, domain: &str, ended: Timestamp, now: Timestamp) -> MayTry {
        // Registered before the check, so that a resolution in between is not missed.
        let settled = self.settling.wait();
        if self.say.is_closed() {
            return MayTry::Now;
        }
        let turn = self.board().turn(domain, ended, now);
        match turn {
            Turn::Now => MayTry::Now,
            Turn::NotBefore(until) => MayTry::NotBefore(until),
            Turn::Asking(false) => MayTry::Asking(settled),
            Turn::Asking(true) => match self.say.try_send(Say::Claim(domain.to_owned())) {
                Ok(()) => MayTry::Asking(settled),
                Err(_) => {
                    let until = now.saturating_add(AGAIN);
                    self.board().hold(domain, until);
                    MayTry::NotBefore(until)
                }
            },
        }
    }
}

struct Driver {
    shared: Arc<Shared>,
    selector: Arc<Selector>,
    transport: Arc<dyn Transport>,
}

impl Driver {
    async fn run(&self, mut said: mpsc::Receiver<Say>) {
        let mut under_way = FuturesUnordered::new();
        let mut again = tokio::time::interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Watched before the listing, so that no change in between is missed.
            let watch = self.transport.cells().watch(Table::Hosts);
            let stock = {
                let taking = self.take_stock();
                tokio::pin!(taking);
                loop {
                    tokio::select! {
                        taken = &mut taking => break taken,
                        Some(()) = under_way.next(), if !under_way.is_empty() => {}
                    }
                }
            };
            self.shared.board().heard(stock.is_ok(), self.selector.now());
            let mut watch = stock.is_ok().then_some(watch);
            // Waiting visits ask again.
            self.shared.settling.settled();
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
                        Some(Ok(change)) => self.heard(change),
                        // The broker or the table has gone.
                        _ => break,
                    },
                    say = said.recv(), if under_way.len() < AT_ONCE => match say {
                        Some(say) => under_way.push(self.say(say)),
                        None => return,
                    },
                    Some(()) = under_way.next(), if !under_way.is_empty() => {}
                    _ = again.tick() => {
                        if watch.is_none() {
                            break;
                        }
                        let owed = self.shared.board().settle();
                        under_way.extend(owed.into_iter().map(|(domain, owed)| self.say(Say::Owed(domain, owed))));
                    }
                }
            }
        }
    }

    /// Compares the known cells with the broker's, after a time without it.
    async fn take_stock(&self) -> Result<(), TransportError> {
        let cells = self.transport.cells();
        let table = cells.incarnation(Table::Hosts).await?;
        // The table was lost; that does not mean that the hosts are fine.
        if self.shared.board().is_another(table) {
            let known = self.shared.board().cells();
            known.iter().for_each(|(domain, _)| self.shared.board().lost(domain, self.selector.now()));
        }
        let known = self.shared.board().cells();
        let listed = cells.list(Table::Hosts).await?;
        let keys: HashSet<&str> = listed.iter().map(|(key, _)| key.as_str()).collect();
        for (domain, revision) in known {
            let key = crate::pauses::state_machine::key(&self.shared.egress, &domain);
            if keys.contains(key.as_str()) {
                continue;
            }
            // The listing may come from a replica that is behind.
            let (cell, key) = (cells.get(Table::Hosts, &key).await?, key);
            let revision = cell.as_ref().map_or(revision, |cell| cell.revision);
            self.heard(Change { key, cell, revision });
        }
        for (key, cell) in listed {
            let revision = cell.revision;
            self.heard(Change { key, cell: Some(cell), revision });
        }
        Ok(())
    }

    /// Applies a change of a cell.
    fn heard(&self, change: Change) {
        self.shared.board().heard(true, self.selector.now());
        let Some(domain) = crate::pauses::state_machine::domain_of(&self.shared.egress, &change.key) else { return };
        match change.cell {
            Some(cell) => drop(self.changed(domain, &cell)),
            None => self.gone(domain, change.revision),
        }
        self.shared.settling.settled();
    }

    /// Applies the deletion of a host's cell at that revision.
    fn gone(&self, domain: &str, revision: u64) {
        let local = self.shared.board().gone(domain, revision);
        self.apply(domain, local);
    }

    /// Applies a changed cell. Returns none if it is invalid.
    fn changed(&self, domain: &str, cell: &Cell) -> Option<Seen> {
        let seen = Seen { state: HostState::decode(&cell.value)?, stored: cell.at, revision: cell.revision };
        let local = self.shared.board().changed(domain, seen, self.selector.now());
        self.apply(domain, local);
        Some(seen)
    }

    /// Performs the local action that follows from another node's change.
    fn apply(&self, domain: &str, local: Local) {
        match local {
            Local::Nothing => {}
            Local::Pause { until, ours, level } => {
                let here = self.selector.host_pause(domain);
                if here.is_none_or(|here| here < until || ours.has(here)) {
                    self.selector.set_host_pause(domain, Some(until));
                    self.shared.counts().received += 1;
                }
                self.selector.restore_host_levels([(domain.to_owned(), level)]);
            }
            Local::Try { held, over } => drop(self.selector.claim_host_trial(domain, held, over)),
            Local::Lift(ours) => {
                if self.selector.host_pause(domain).is_some_and(|here| ours.has(here)) {
                    self.selector.set_host_pause(domain, None);
                }
                self.selector.restore_host_levels([(domain.to_owned(), 0)]);
            }
        }
    }

    async fn say(&self, say: Say) {
        match say {
            Say::Paused(domain, until, at) => {
                if self.shared.board().may_say(&domain, at) {
                    self.say_paused(&domain, until, at).await;
                }
            }
            Say::Owed(domain, Owed::Pause(until, at)) => self.say_paused(&domain, until, at).await,
            Say::Lifted(domain) | Say::Owed(domain, Owed::Lift(_)) => self.say_lifted(&domain).await,
            Say::Claim(domain) => {
                let answer = self.claim(&domain).await;
                self.shared.board().claimed(&domain, answer, self.selector.now());
            }
        }
        self.shared.settling.settled();
    }

    /// Swaps a cell if it is unchanged, and applies its current value. Returns none without a response.
    async fn swap(&self, domain: &str, seen: Option<u64>, state: HostState) -> Option<bool> {
        let key = crate::pauses::state_machine::key(&self.shared.egress, domain);
        let swapped = self.transport.cells().swap(Table::Hosts, &key, seen, state.encode().into()).await;
        let now = self.selector.now();
        self.shared.board().heard(swapped.is_ok(), now);
        match swapped {
            Ok(Swapped::Done(revision)) => {
                let seen = Seen { state, stored: now, revision };
                let local = self.shared.board().changed(domain, seen, now);
                self.apply(domain, local);
                Some(true)
            }
            Ok(Swapped::Lost(Some(cell))) => {
                self.changed(domain, &cell);
                // The cell holds this node's own value: an earlier response was lost.
                Some(HostState::decode(&cell.value) == Some(state))
            }
            Ok(Swapped::Lost(None)) => {
                // Changes that arrived since the request are newer.
                self.gone(domain, seen.unwrap_or(0));
                Some(false)
            }
            Err(_) => None,
        }
    }

    async fn say_paused(&self, domain: &str, until: Timestamp, at: Timestamp) {
        loop {
            let seen = self.shared.board().seen(domain);
            let Some(state) = crate::pauses::state_machine::paused(seen.as_ref(), until, at, self.shared.own) else {
                return;
            };
            match self.swap(domain, seen.map(|seen| seen.revision), state).await {
                Some(true) => {
                    self.shared.counts().sent += 1;
                    return;
                }
                Some(false) if self.shared.board().seen(domain) == seen => return,
                Some(false) => {}
                None => return self.shared.board().owe(domain, Owed::Pause(until, at)),
            }
        }
    }

    async fn say_lifted(&self, domain: &str) {
        let Some(mut seen) = self.shared.board().seen(domain) else { return };
        let key = crate::pauses::state_machine::key(&self.shared.egress, domain);
        loop {
            let deleted = self.transport.cells().delete(Table::Hosts, &key, Some(seen.revision)).await;
            self.shared.board().heard(deleted.is_ok(), self.selector.now());
            match deleted {
                Ok(Swapped::Done(revision)) => return self.gone(domain, revision),
                Ok(Swapped::Lost(None)) => return self.gone(domain, seen.revision),
                Ok(Swapped::Lost(Some(cell))) => {
                    self.changed(domain, &cell);
                    let Some(now) = self.shared.board().seen(domain) else { return };
                    // Only a trial of this node is meant, whose claim got no response. Another node's trial is left as
                    // it is.
                    let is_own = now.state.is_trial && now.state.by == self.shared.own;
                    if !is_own || now.revision == seen.revision {
                        return;
                    }
                    seen = now;
                }
                Err(_) => return self.shared.board().owe(domain, Owed::Lift(seen.revision)),
            }
        }
    }

    /// Claims the trial of a host.
    async fn claim(&self, domain: &str) -> Answer {
        let Some(seen) = self.shared.board().seen(domain) else { return Answer::Known };
        let Claim::Take(state) = crate::pauses::state_machine::claim(&seen, self.selector.now(), self.shared.own)
        else {
            return Answer::Known;
        };
        match self.swap(domain, Some(seen.revision), state).await {
            Some(true) => {}
            Some(false) if self.shared.board().seen(domain) == Some(seen) => return Answer::Barred,
            Some(false) => self.shared.counts().lost += 1,
            None => return Answer::Nothing,
        }
        Answer::Known
    }
}
