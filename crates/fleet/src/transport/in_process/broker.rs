//! The state of the in-process broker and its faults.
//!
//! Owns: the faults, drawn from a seed.
//!
//! Invariants: the same seed and the same calls give the same result. Time is that of the given
//! clock.
//!
//! Must not know: the content of messages.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::time::{Clock, Timestamp};

use tokio::sync::Notify;

use crate::model::node_id::NodeId;
use crate::transport::in_process::global_evidence::GlobalSnapshots;
use crate::transport::in_process::work_queue::WorkQueue;
use crate::transport::{Cell, Change, RetransmitRequest, StreamBounds, Table, TransportError};

/// The faults of the broker. Probabilities are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The probability that a message is acknowledged and lost.
    pub lose: f64,
    /// The probability that a message is stored twice.
    pub double: f64,
    /// The maximum number of messages by which a delivery is delayed.
    pub shuffle: usize,
    /// The delay between storing and delivery.
    pub delay: Duration,
    /// The probability that a call fails although it was carried out.
    pub lose_response: f64,
    /// The delay between a change of a cell and the response. Watchers see the change at once.
    pub response_delay: Duration,
    /// The probability that a signal is lost.
    pub lose_signal: f64,
}

impl Default for Faults {
    fn default() -> Self {
        let (delay, response_delay) = (Duration::ZERO, Duration::ZERO);
        Self {
            lose: 0.0,
            double: 0.0,
            shuffle: 0,
            delay,
            lose_response: 0.0,
            response_delay,
            lose_signal: 0.0,
        }
    }
}

/// A call about a site of a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SiteCall {
    /// Writing the cell with its lease.
    WriteLease,
    /// Starting its delivery over.
    Open,
    /// Delivering links.
    Pull,
    /// Acknowledging a link.
    Acknowledge,
    /// Ending its delivery.
    Close,
}

#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) node_id: NodeId,
    pub(super) at: Timestamp,
    pub(super) body: Bytes,
    /// The message that a reader must have received, or found missing, before this one.
    pub(super) after: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Signal {
    pub(super) to: NodeId,
    pub(super) want: RetransmitRequest,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) incarnation: u64,
    pub(super) messages: BTreeMap<u64, Stored>,
    pub(super) last: u64,
    pub(super) cells: HashMap<Table, BTreeMap<String, (Cell, Timestamp)>>,
    pub(super) revision: u64,
    pub(super) changes: HashMap<Table, Vec<Change>>,
    pub(super) blobs: BTreeMap<String, (String, Bytes)>,
    pub(super) signals: VecDeque<Signal>,
    pub(super) signals_gone: u64,
    pub(super) cut: BTreeSet<NodeId>,
    pub(super) faults: Option<Faults>,
    pub(super) random: u64,
    pub(super) published: u64,
    pub(super) bytes: u64,
    pub(super) global_snapshots: GlobalSnapshots,
    pub(super) queues: BTreeMap<String, WorkQueue>,
    /// Whether acknowledged links stay in their queues.
    pub(super) holds_removals: bool,
    /// The errors of calls that fail.
    pub(super) failing: HashMap<SiteCall, TransportError>,
}

/// The broker. Nodes use it through [`InProcessBroker::node`].
#[derive(Debug)]
pub struct InProcessBroker {
    pub(super) clock: Arc<Clock>,
    pub(super) state: Mutex<State>,
    pub(super) changed: Notify,
}

impl InProcessBroker {
    /// Creates a broker without faults.
    pub fn new(clock: Arc<Clock>, seed: u64) -> Arc<Self> {
        let state = State { incarnation: 1, random: seed, ..State::default() };
        Arc::new(Self { clock, state: Mutex::new(state), changed: Notify::new() })
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = Some(faults);
    }

    /// Replaces the stream by an empty one.
    pub fn wipe_stream(&self) {
        let mut state = self.state();
        state.incarnation += 1;
        state.messages.clear();
        state.last = 0;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Empties all tables.
    pub fn wipe_cells(&self) {
        let mut state = self.state();
        for table in Table::ALL {
            let keys: Vec<String> =
                state.cells.remove(&table).unwrap_or_default().into_keys().collect();
            state.revision += 1;
            let revision = state.revision;
            let changes = state.changes.entry(table).or_default();
            changes.extend(keys.into_iter().map(|key| Change { key, cell: None, revision }));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Deletes all blobs.
    pub fn wipe_blobs(&self) {
        self.state().blobs.clear();
    }

    /// Drops the oldest messages up to a position, as if they aged out.
    pub fn age_out(&self, upto: u64) {
        self.state().messages.retain(|seq, _| *seq > upto);
    }

    /// Loses one message that was acknowledged before.
    pub fn lose(&self, seq: u64) -> bool {
        self.state().messages.remove(&seq).is_some()
    }

    /// Disconnects a node, or connects it again.
    pub fn cut(&self, node: NodeId, is_cut: bool) {
        let mut state = self.state();
        match is_cut {
            true => state.cut.insert(node),
            false => state.cut.remove(&node),
        };
        drop(state);
        self.changed.notify_waiters();
    }

    /// Holds the removal of links that are acknowledged from now on, as a slow cluster does, or
    /// removes them.
    pub fn hold_removals(&self, holds: bool) {
        let mut state = self.state();
        state.holds_removals = holds;
        if !holds {
            state.queues.values_mut().for_each(WorkQueue::remove_acknowledged);
        }
    }

    /// Lets a call fail from now on, without being carried out, or succeed again.
    pub fn fail(&self, call: SiteCall, error: Option<TransportError>) {
        let mut state = self.state();
        match error {
            Some(error) => drop(state.failing.insert(call, error)),
            None => drop(state.failing.remove(&call)),
        }
    }

    /// Returns the number of links that are acknowledged and not removed.
    pub fn held_removals(&self) -> usize {
        self.state().queues.values().map(|queue| queue.acknowledged.len()).sum()
    }

    /// Takes all undelivered signals, for tests that deliver them by hand.
    pub fn take_signals(&self) -> Vec<(NodeId, RetransmitRequest)> {
        self.state().signals.drain(..).map(|signal| (signal.to, signal.want)).collect()
    }

    /// Returns the number of published messages and their bytes.
    pub fn traffic(&self) -> (u64, u64) {
        let state = self.state();
        (state.published, state.bytes)
    }

    /// Deletes all global snapshots.
    pub fn wipe_global_snapshots(&self) {
        let mut state = self.state();
        state.global_snapshots.wipe();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Stores any bytes as a node's global snapshot.
    pub fn publish_global(&self, node_id: NodeId, body: Bytes) {
        let now = self.clock.now();
        self.state().global_snapshots.put(node_id, now, body);
        self.changed.notify_waiters();
    }

    /// Returns the number of published global snapshots and their bytes.
    pub fn global_traffic(&self) -> (u64, u64) {
        let state = self.state();
        (state.global_snapshots.said, state.global_snapshots.bytes)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns a reproducible pseudo-random number (SplitMix64).
    pub(super) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && (self.draw() >> 11) as f64 / (1u64 << 53) as f64 <= chance
    }

    /// Returns the error of a call that fails.
    pub(super) fn check(&self, call: SiteCall) -> Result<(), TransportError> {
        self.failing.get(&call).cloned().map_or(Ok(()), Err)
    }

    pub(super) fn faults(&self) -> Faults {
        self.faults.unwrap_or_default()
    }

    pub(super) fn store(&mut self, node_id: NodeId, body: &Bytes, at: Timestamp) -> u64 {
        let faults = self.faults();
        self.last += 1;
        let seq = self.last;
        let later = if faults.shuffle > 0 { self.draw() % (faults.shuffle as u64 + 1) } else { 0 };
        if !self.happens(faults.lose) {
            self.messages
                .insert(seq, Stored { node_id, at, body: body.clone(), after: seq + later });
        }
        seq
    }

    pub(super) fn bounds(&self) -> StreamBounds {
        let oldest = self.messages.iter().next();
        StreamBounds {
            incarnation: self.incarnation,
            first: oldest.map_or(self.last + 1, |(seq, _)| *seq),
            last: self.last,
            first_at: oldest.map(|(_, stored)| stored.at),
        }
    }

    pub(super) fn put(&mut self, table: Table, key: &str, value: Bytes, at: Timestamp) -> u64 {
        self.revision += 1;
        let cell = Cell { value, revision: self.revision, at };
        self.cells.entry(table).or_default().insert(key.to_owned(), (cell.clone(), at));
        let change = Change { key: key.to_owned(), cell: Some(cell), revision: self.revision };
        self.changes.entry(table).or_default().push(change);
        self.revision
    }

    pub(super) fn cell(&self, table: Table, key: &str) -> Option<Cell> {
        self.cells.get(&table)?.get(key).map(|(cell, _)| cell.clone())
    }

    /// Drops what has aged out.
    pub(super) fn age(&mut self, now: Timestamp) {
        for (table, kept) in
            [(Table::Nodes, 600), (Table::Hosts, 48 * 3600), (Table::Sites, 7 * 86_400)]
        {
            let is_old = |at: &Timestamp| now.since(*at) > Duration::from_secs(kept);
            let cells = self.cells.entry(table).or_default();
            let old: Vec<String> = cells
                .iter()
                .filter(|(_, (_, at))| is_old(at))
                .map(|(key, _)| key.clone())
                .collect();
            for key in old {
                let gone = self.cells.entry(table).or_default().remove(&key);
                let revision = gone.map_or(0, |(cell, _)| cell.revision);
                self.changes.entry(table).or_default().push(Change { key, cell: None, revision });
            }
        }
    }
}
