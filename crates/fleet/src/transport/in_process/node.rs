//! The connection of one node to the in-process broker.
//!
//! Invariants: a disconnected node reaches nothing.
//!
//! Must not know: the content of messages.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::time::Timestamp;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use crate::model::node_id::NodeId;
use crate::transport::{
    BlobInfo, Blobs, Cell, Cells, Change, Delivery, GlobalDelivery, Position, RetransmitRequest,
    StreamBounds, SwapOutcome, Table, Transport, TransportError, WorkQueues,
};

use super::broker::{InProcessBroker, Signal, SiteCall, State, Stored};

/// The polling interval of a waiting reader. Messages come due by a clock that wakes no one.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The same limits as those of a real broker.
const MAX_MESSAGE: usize = 1 << 20;
const MAX_KEY: usize = 512;
const MAX_NOTE: usize = 1024;

fn check_len(what: &str, len: usize, max: usize) -> Result<(), TransportError> {
    if len > max { Err(TransportError::Invalid(format!("{what} of {len} bytes"))) } else { Ok(()) }
}

fn held(key: &str, cell: &Cell) -> Change {
    Change { key: key.to_owned(), cell: Some(cell.clone()), revision: cell.revision }
}

impl InProcessBroker {
    /// Returns the connection of a node.
    pub fn node(self: &Arc<Self>, node_id: NodeId) -> InProcessNode {
        InProcessNode { broker: Arc::clone(self), node_id }
    }
}

/// A node's connection to an [`InProcessBroker`].
#[derive(Clone, Debug)]
pub struct InProcessNode {
    broker: Arc<InProcessBroker>,
    node_id: NodeId,
}

impl InProcessNode {
    /// Returns the broker's state, if the node is connected.
    pub(super) fn reach(&self) -> Result<MutexGuard<'_, State>, TransportError> {
        let mut state = self.broker.state();
        if state.cut.contains(&self.node_id) {
            return Err(TransportError::Away("the node is disconnected".into()));
        }
        state.age(self.broker.clock.now());
        Ok(state)
    }

    /// Returns the value, or an error if the response is lost.
    pub(super) fn respond<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        value: T,
    ) -> Result<T, TransportError> {
        let chance = state.faults().lose_response;
        let is_lost = state.happens(chance);
        drop(state);
        self.broker.changed.notify_waiters();
        if is_lost { Err(TransportError::Away("the response was lost".into())) } else { Ok(value) }
    }

    /// Returns the broker's time.
    pub(super) fn broker_time(&self) -> Timestamp {
        self.broker.clock.now()
    }

    /// Waits for the response delay.
    async fn delay_response(&self) {
        let delay_response = self.broker.state().faults().response_delay;
        if delay_response > Duration::ZERO {
            tokio::time::sleep(delay_response).await;
        }
    }

    fn swap_now(
        &self,
        table: Table,
        key: &str,
        seen: Option<u64>,
        value: Option<Bytes>,
        any: bool,
    ) -> Result<SwapOutcome, TransportError> {
        let mut state = self.reach()?;
        if table == Table::Sites {
            state.check(SiteCall::WriteLease)?;
        }
        let held = state.cell(table, key);
        if !any && held.as_ref().map(|cell| cell.revision) != seen {
            return Ok(SwapOutcome::Lost(held));
        }
        let revision = match value {
            Some(value) => state.put(table, key, value, self.broker.clock.now()),
            None => {
                state.revision += 1;
                let revision = state.revision;
                if state.cells.entry(table).or_default().remove(key).is_some() {
                    let change = Change { key: key.to_owned(), cell: None, revision };
                    state.changes.entry(table).or_default().push(change);
                }
                revision
            }
        };
        self.respond(state, SwapOutcome::Done(revision))
    }
}

/// The position of a reader.
struct Cursor {
    node: InProcessNode,
    incarnation: u64,
    /// The next message, and the earlier ones that are still delayed.
    next: u64,
    held: BTreeSet<(u64, u64)>,
}

impl Cursor {
    /// Returns the next delivery; none if there is none now.
    fn step(&mut self) -> Result<Option<Delivery>, TransportError> {
        let state = self.node.reach()?;
        let now = self.node.broker.clock.now();
        let faults = state.faults();
        if state.incarnation != self.incarnation {
            (self.incarnation, self.next) = (state.incarnation, 1);
            self.held.clear();
            return Ok(Some(Delivery::Wiped(state.bounds())));
        }
        loop {
            let ready = self
                .held
                .first()
                .copied()
                .filter(|(after, _)| *after < self.next || self.next > state.last);
            if let Some((after, seq)) = ready {
                self.held.remove(&(after, seq));
                if let Some(stored) = state.messages.get(&seq) {
                    let position = Position { incarnation: state.incarnation, seq };
                    let Stored { node_id, at, body, .. } = stored.clone();
                    return Ok(Some(Delivery::Message { node_id, position, at, body }));
                }
                continue;
            }
            let Some((seq, stored)) = state.messages.range(self.next..).next() else {
                self.next = self.next.max(state.last + 1);
                if self.held.is_empty() {
                    return Ok(None);
                }
                continue;
            };
            if now.since(stored.at) < faults.delay {
                return Ok(None);
            }
            self.next = seq + 1;
            self.held.insert((stored.after, *seq));
        }
    }
}

impl Transport for InProcessNode {
    fn publish<'a>(
        &'a self,
        node_id: NodeId,
        _id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>> {
        async move {
            check_len("a message", body.len(), MAX_MESSAGE)?;
            let now = self.broker.clock.now();
            let mut state = self.reach()?;
            state.published += 1;
            state.bytes += body.len() as u64;
            let seq = state.store(node_id, &body, now);
            let twice = state.faults().double;
            if state.happens(twice) {
                state.store(node_id, &body, now);
            }
            let position = Position { incarnation: state.incarnation, seq };
            self.respond(state, position)
        }
        .boxed()
    }

    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>> {
        let first = Cursor {
            node: self.clone(),
            incarnation: from.incarnation,
            next: from.seq.max(1),
            held: BTreeSet::new(),
        };
        let first = match from.incarnation {
            // A reader that has never read begins with the oldest message.
            0 => Cursor { incarnation: self.broker.state().incarnation, next: 1, ..first },
            _ => first,
        };
        stream::unfold(Some(first), move |cursor| async move {
            let mut cursor = cursor?;
            loop {
                match cursor.step() {
                    Ok(Some(delivery)) => return Some((Ok(delivery), Some(cursor))),
                    Ok(None) => {
                        let _ = tokio::time::timeout(
                            POLL_INTERVAL,
                            cursor.node.broker.changed.notified(),
                        )
                        .await;
                    }
                    Err(error) => return Some((Err(error), None)),
                }
            }
        })
        .boxed()
    }

    fn bounds(&self) -> BoxFuture<'_, Result<StreamBounds, TransportError>> {
        async move { Ok(self.reach()?.bounds()) }.boxed()
    }

    fn newest(&self, node_id: NodeId) -> BoxFuture<'_, Result<Option<Bytes>, TransportError>> {
        async move {
            let state = self.reach()?;
            Ok(state
                .messages
                .values()
                .rev()
                .find(|stored| stored.node_id == node_id)
                .map(|stored| stored.body.clone()))
        }
        .boxed()
    }

    fn published_by(
        &self,
        node_id: NodeId,
        from: Position,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, TransportError>> {
        async move {
            let state = self.reach()?;
            let first = if from.incarnation == state.incarnation { from.seq } else { 0 };
            let said =
                state.messages.range(first..).filter(|(_, stored)| stored.node_id == node_id);
            Ok(said.map(|(_, stored)| stored.body.clone()).collect())
        }
        .boxed()
    }

    fn publish_global(
        &self,
        node_id: NodeId,
        body: Bytes,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        async move {
            check_len("a global snapshot", body.len(), MAX_MESSAGE)?;
            let now = self.broker.clock.now();
            let mut state = self.reach()?;
            state.global_snapshots.put(node_id, now, body);
            self.respond(state, ())
        }
        .boxed()
    }

    fn global_snapshots(&self) -> BoxStream<'_, Result<GlobalDelivery, TransportError>> {
        stream_global_snapshots(self)
    }

    fn now(&self) -> BoxFuture<'_, Result<Option<Timestamp>, TransportError>> {
        async move { self.reach().map(|_| Some(self.broker.clock.now())) }.boxed()
    }

    fn cells(&self) -> &dyn Cells {
        self
    }

    fn blobs(&self) -> &dyn Blobs {
        self
    }

    fn work_queues(&self) -> Option<&dyn WorkQueues> {
        Some(self)
    }

    fn signal(
        &self,
        to: NodeId,
        want: RetransmitRequest,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        async move {
            let mut state = self.reach()?;
            let chance = state.faults().lose_signal;
            if !state.happens(chance) {
                state.signals.push_back(Signal { to, want });
                if state.signals.len() > 10_000 {
                    state.signals.pop_front();
                    state.signals_gone += 1;
                }
            }
            drop(state);
            self.broker.changed.notify_waiters();
            Ok(())
        }
        .boxed()
    }

    fn signals(&self, own: NodeId) -> BoxStream<'_, Result<RetransmitRequest, TransportError>> {
        let next = {
            let state = self.broker.state();
            state.signals_gone + state.signals.len() as u64
        };
        stream::unfold(Some(next), move |next| async move {
            let mut next = next?;
            loop {
                let found = match self.reach() {
                    Err(error) => return Some((Err(error), None)),
                    Ok(state) => {
                        let skip = next.saturating_sub(state.signals_gone) as usize;
                        let found = state
                            .signals
                            .iter()
                            .enumerate()
                            .skip(skip)
                            .find(|(_, signal)| signal.to == own);
                        let found = found.map(|(index, signal)| {
                            (state.signals_gone + index as u64 + 1, signal.want)
                        });
                        next = found.map_or(
                            state.signals_gone + state.signals.len() as u64,
                            |(next, _)| next,
                        );
                        found
                    }
                };
                match found {
                    Some((_, want)) => return Some((Ok(want), Some(next))),
                    None => {
                        let _ = tokio::time::timeout(POLL_INTERVAL, self.broker.changed.notified())
                            .await;
                    }
                }
            }
        })
        .boxed()
    }

    fn is_up(&self) -> bool {
        !self.broker.state().cut.contains(&self.node_id)
    }
}

/// The position of a reader of global snapshots.
struct GlobalCursor {
    node: InProcessNode,
    wiped: u64,
    place: u64,
    /// Whether the reader was told that it has caught up.
    is_read: bool,
}

impl GlobalCursor {
    fn step(&mut self) -> Result<Option<GlobalDelivery>, TransportError> {
        let state = self.node.reach()?;
        let snapshots = &state.global_snapshots;
        if snapshots.wiped != self.wiped {
            (self.wiped, self.place, self.is_read) = (snapshots.wiped, 0, false);
            return Ok(Some(GlobalDelivery::Wiped));
        }
        if let Some((place, snapshot)) = snapshots.behind(self.place) {
            (self.place, self.is_read) = (place, false);
            return Ok(Some(snapshot));
        }
        let is_new = !std::mem::replace(&mut self.is_read, true);
        Ok(is_new.then_some(GlobalDelivery::CaughtUp))
    }
}

/// Streams the newest snapshot of each node, then new ones.
fn stream_global_snapshots(
    node: &InProcessNode,
) -> BoxStream<'_, Result<GlobalDelivery, TransportError>> {
    let wiped = node.broker.state().global_snapshots.wiped;
    let cursor = GlobalCursor { node: node.clone(), wiped, place: 0, is_read: false };
    stream::unfold(Some(cursor), |cursor| async move {
        let mut cursor = cursor?;
        loop {
            match cursor.step() {
                Ok(Some(came)) => return Some((Ok(came), Some(cursor))),
                Ok(None) => {
                    let _ =
                        tokio::time::timeout(POLL_INTERVAL, cursor.node.broker.changed.notified())
                            .await;
                }
                Err(error) => return Some((Err(error), None)),
            }
        }
    })
    .boxed()
}

impl Cells for InProcessNode {
    fn get<'a>(
        &'a self,
        table: Table,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Cell>, TransportError>> {
        async move { Ok(self.reach()?.cell(table, key)) }.boxed()
    }

    fn swap<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>> {
        async move {
            let swapped = self.swap_now(table, key, seen, Some(value), false);
            self.delay_response().await;
            swapped
        }
        .boxed()
    }

    fn put<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<u64, TransportError>> {
        async move {
            check_len("a key", key.len(), MAX_KEY)?;
            let mut state = self.reach()?;
            let revision = state.put(table, key, value, self.broker.clock.now());
            self.respond(state, revision)
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>> {
        async move {
            let swapped = self.swap_now(table, key, seen, None, seen.is_none());
            self.delay_response().await;
            swapped
        }
        .boxed()
    }

    fn watch(&self, table: Table) -> BoxStream<'_, Result<Change, TransportError>> {
        let (all, from) = {
            let state = self.broker.state();
            let cells = state.cells.get(&table).into_iter().flatten();
            let all: VecDeque<Change> = cells.map(|(key, (cell, _))| held(key, cell)).collect();
            (all, state.changes.get(&table).map_or(0, Vec::len))
        };
        stream::unfold(Some((all, from)), move |at| async move {
            let (mut all, mut from) = at?;
            loop {
                if let Some(change) = all.pop_front() {
                    return Some((Ok(change), Some((all, from))));
                }
                match self.reach() {
                    Err(error) => return Some((Err(error), None)),
                    Ok(state) => {
                        let changes = state.changes.get(&table).map_or(&[][..], Vec::as_slice);
                        all.extend(changes.iter().skip(from).cloned());
                        from = changes.len();
                    }
                }
                if all.is_empty() {
                    let _ =
                        tokio::time::timeout(POLL_INTERVAL, self.broker.changed.notified()).await;
                }
            }
        })
        .boxed()
    }

    fn list(&self, table: Table) -> BoxFuture<'_, Result<Vec<(String, Cell)>, TransportError>> {
        async move {
            let state = self.reach()?;
            let cells = state.cells.get(&table).into_iter().flatten();
            Ok(cells.map(|(key, (cell, _))| (key.clone(), cell.clone())).collect())
        }
        .boxed()
    }
}

impl Blobs for InProcessNode {
    fn put<'a>(
        &'a self,
        name: &'a str,
        note: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        async move {
            check_len("a note", note.len(), MAX_NOTE)?;
            let mut state = self.reach()?;
            state.blobs.insert(name.to_owned(), (note.to_owned(), body));
            self.respond(state, ())
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        name: &'a str,
        max: u64,
    ) -> BoxFuture<'a, Result<Option<Bytes>, TransportError>> {
        async move {
            let state = self.reach()?;
            let found = state.blobs.get(name).map(|(_, body)| body.clone());
            match found {
                Some(body) if body.len() as u64 > max => {
                    Err(TransportError::Invalid(format!("{name} is too large")))
                }
                found => Ok(found),
            }
        }
        .boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<BlobInfo>, TransportError>> {
        async move {
            let state = self.reach()?;
            let info = |(name, (note, body)): (&String, &(String, Bytes))| BlobInfo {
                name: name.clone(),
                note: note.clone(),
                len: body.len() as u64,
            };
            Ok(state.blobs.iter().map(info).collect())
        }
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TransportError>> {
        async move {
            let mut state = self.reach()?;
            state.blobs.remove(name);
            self.respond(state, ())
        }
        .boxed()
    }
}
