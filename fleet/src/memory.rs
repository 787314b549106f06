//! A broker within the process, with every fault that a real one can have: for tests and simulations.
//!
//! Owns: what goes wrong, drawn from a seed. Invariant: with the same seed and the same calls the same happens; time is that of the clock
//! it is given. Must not know what a message says.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::time::{Clock, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;

use crate::origin::Origin;
use crate::transport::{
    BlobInfo, Blobs, Bounds, Cell, Cells, Change, Delivery, Position, Swapped, Table, Transport, TransportError, Want,
};

/// A reader that waits looks again after so long: messages come of age by a clock that tells nobody.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What goes wrong. Chances are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// A message is acknowledged and gone.
    pub lose: f64,
    /// A message is stored twice.
    pub double: f64,
    /// A message is delivered up to so many messages later.
    pub shuffle: usize,
    /// It is delivered so long after it was stored.
    pub delay: Duration,
    /// A call fails although it was carried out.
    pub forget_answer: f64,
    /// A signal is lost.
    pub lose_signal: f64,
}

impl Default for Faults {
    fn default() -> Self {
        let delay = Duration::ZERO;
        Self { lose: 0.0, double: 0.0, shuffle: 0, delay, forget_answer: 0.0, lose_signal: 0.0 }
    }
}

#[derive(Clone, Debug)]
struct Stored {
    origin: Origin,
    at: Timestamp,
    body: Bytes,
    /// Not to be delivered to a reader before it has got this message, or sees that there is none.
    after: u64,
}

#[derive(Clone, Debug)]
struct Signal {
    to: Origin,
    want: Want,
}

#[derive(Debug, Default)]
struct State {
    incarnation: u64,
    messages: BTreeMap<u64, Stored>,
    last: u64,
    cells: HashMap<Table, BTreeMap<String, (Cell, Timestamp)>>,
    revision: u64,
    changes: HashMap<Table, Vec<Change>>,
    blobs: BTreeMap<String, (String, Bytes)>,
    signals: VecDeque<Signal>,
    signals_gone: u64,
    cut: BTreeSet<Origin>,
    faults: Option<Faults>,
    random: u64,
    published: u64,
    bytes: u64,
}

/// The broker. Nodes talk to it by [`Memory::node`].
#[derive(Debug)]
pub struct Memory {
    clock: Arc<Clock>,
    state: Mutex<State>,
    changed: Notify,
}

impl Memory {
    /// One without faults.
    pub fn new(clock: Arc<Clock>, seed: u64) -> Arc<Self> {
        let state = State { incarnation: 1, random: seed, ..State::default() };
        Arc::new(Self { clock, state: Mutex::new(state), changed: Notify::new() })
    }

    /// What one node has in its hands.
    pub fn node(self: &Arc<Self>, origin: Origin) -> Node {
        Node { broker: Arc::clone(self), origin }
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = Some(faults);
    }

    /// Deletes the stream; an empty one takes its place.
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
            let keys: Vec<String> = state.cells.remove(&table).unwrap_or_default().into_keys().collect();
            let changes = state.changes.entry(table).or_default();
            changes.extend(keys.into_iter().map(|key| Change { key, cell: None }));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Deletes all blobs.
    pub fn wipe_blobs(&self) {
        self.state().blobs.clear();
    }

    /// Drops the oldest messages up to a position, as they age out.
    pub fn age_out(&self, upto: u64) {
        self.state().messages.retain(|seq, _| *seq > upto);
    }

    /// Loses one message that was acknowledged long ago.
    pub fn lose(&self, seq: u64) -> bool {
        self.state().messages.remove(&seq).is_some()
    }

    /// Cuts a node off, or joins it again.
    pub fn cut(&self, node: Origin, is_cut: bool) {
        let mut state = self.state();
        match is_cut {
            true => state.cut.insert(node),
            false => state.cut.remove(&node),
        };
        drop(state);
        self.changed.notify_waiters();
    }

    /// Takes the signals that nobody has been given yet, for whoever delivers them by hand.
    pub fn take_signals(&self) -> Vec<(Origin, Want)> {
        self.state().signals.drain(..).map(|signal| (signal.to, signal.want)).collect()
    }

    /// Messages and bytes that were published.
    pub fn traffic(&self) -> (u64, u64) {
        let state = self.state();
        (state.published, state.bytes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A number that nobody foresees, and everybody gets again (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && (self.draw() >> 11) as f64 / (1u64 << 53) as f64 <= chance
    }

    fn faults(&self) -> Faults {
        self.faults.unwrap_or_default()
    }

    fn store(&mut self, origin: Origin, body: &Bytes, at: Timestamp) -> u64 {
        let faults = self.faults();
        self.last += 1;
        let seq = self.last;
        let later = if faults.shuffle > 0 { self.draw() % (faults.shuffle as u64 + 1) } else { 0 };
        if !self.happens(faults.lose) {
            self.messages.insert(seq, Stored { origin, at, body: body.clone(), after: seq + later });
        }
        seq
    }

    fn bounds(&self) -> Bounds {
        let oldest = self.messages.iter().next();
        Bounds {
            incarnation: self.incarnation,
            first: oldest.map_or(self.last + 1, |(seq, _)| *seq),
            last: self.last,
            first_at: oldest.map(|(_, stored)| stored.at),
        }
    }

    fn put(&mut self, table: Table, key: &str, value: Bytes, at: Timestamp) -> u64 {
        self.revision += 1;
        let cell = Cell { value, revision: self.revision, at };
        self.cells.entry(table).or_default().insert(key.to_owned(), (cell.clone(), at));
        self.changes.entry(table).or_default().push(Change { key: key.to_owned(), cell: Some(cell) });
        self.revision
    }

    fn cell(&self, table: Table, key: &str) -> Option<Cell> {
        self.cells.get(&table)?.get(key).map(|(cell, _)| cell.clone())
    }

    /// What has aged out goes.
    fn age(&mut self, now: Timestamp) {
        for (table, kept) in [(Table::Nodes, 60), (Table::Hosts, 48 * 3600)] {
            let is_old = |at: &Timestamp| now.since(*at) > Duration::from_secs(kept);
            let cells = self.cells.entry(table).or_default();
            let old: Vec<String> = cells.iter().filter(|(_, (_, at))| is_old(at)).map(|(key, _)| key.clone()).collect();
            for key in old {
                self.cells.entry(table).or_default().remove(&key);
                self.changes.entry(table).or_default().push(Change { key, cell: None });
            }
        }
    }
}

/// The same limits as a real broker's.
const MESSAGE_MAX: usize = 1 << 20;
const KEY_MAX: usize = 512;
const NOTE_MAX: usize = 1024;

fn at_most(what: &str, len: usize, max: usize) -> Result<(), TransportError> {
    if len > max { Err(TransportError::Invalid(format!("{what} of {len} bytes"))) } else { Ok(()) }
}

/// A node's side of a [`Memory`].
#[derive(Clone, Debug)]
pub struct Node {
    broker: Arc<Memory>,
    origin: Origin,
}

impl Node {
    /// The broker's state, where it can be reached.
    fn reach(&self) -> Result<MutexGuard<'_, State>, TransportError> {
        let mut state = self.broker.state();
        if state.cut.contains(&self.origin) {
            return Err(TransportError::Away("the node is cut off".into()));
        }
        state.age(self.broker.clock.now());
        Ok(state)
    }

    /// Whether an answer gets lost.
    fn answer<T>(&self, mut state: MutexGuard<'_, State>, value: T) -> Result<T, TransportError> {
        let chance = state.faults().forget_answer;
        let is_lost = state.happens(chance);
        drop(state);
        self.broker.changed.notify_waiters();
        if is_lost { Err(TransportError::Away("the answer was lost".into())) } else { Ok(value) }
    }

    fn swap_now(
        &self,
        table: Table,
        key: &str,
        seen: Option<u64>,
        value: Option<Bytes>,
        any: bool,
    ) -> Result<Swapped, TransportError> {
        let mut state = self.reach()?;
        let held = state.cell(table, key);
        if !any && held.as_ref().map(|cell| cell.revision) != seen {
            return Ok(Swapped::Lost(held));
        }
        let revision = match value {
            Some(value) => state.put(table, key, value, self.broker.clock.now()),
            None => {
                state.revision += 1;
                if state.cells.entry(table).or_default().remove(key).is_some() {
                    state.changes.entry(table).or_default().push(Change { key: key.to_owned(), cell: None });
                }
                state.revision
            }
        };
        self.answer(state, Swapped::Done(revision))
    }
}

/// Where a reader stands.
struct Cursor {
    node: Node,
    incarnation: u64,
    /// The next message to look at, and those before it that are held back.
    next: u64,
    held: BTreeSet<(u64, u64)>,
}

impl Cursor {
    /// The next delivery, or none where there is none now.
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
            let ready = self.held.first().copied().filter(|(after, _)| *after < self.next || self.next > state.last);
            if let Some((after, seq)) = ready {
                self.held.remove(&(after, seq));
                if let Some(stored) = state.messages.get(&seq) {
                    let position = Position { incarnation: state.incarnation, seq };
                    let Stored { origin, at, body, .. } = stored.clone();
                    return Ok(Some(Delivery::Message { origin, position, at, body }));
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

impl Transport for Node {
    fn publish<'a>(
        &'a self,
        origin: Origin,
        _id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>> {
        async move {
            at_most("a message", body.len(), MESSAGE_MAX)?;
            let now = self.broker.clock.now();
            let mut state = self.reach()?;
            state.published += 1;
            state.bytes += body.len() as u64;
            let seq = state.store(origin, &body, now);
            let twice = state.faults().double;
            if state.happens(twice) {
                state.store(origin, &body, now);
            }
            let position = Position { incarnation: state.incarnation, seq };
            self.answer(state, position)
        }
        .boxed()
    }

    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>> {
        let first =
            Cursor { node: self.clone(), incarnation: from.incarnation, next: from.seq.max(1), held: BTreeSet::new() };
        let first = match from.incarnation {
            // Who has never read begins with what there is.
            0 => Cursor { incarnation: self.broker.state().incarnation, next: 1, ..first },
            _ => first,
        };
        stream::unfold(Some(first), move |cursor| async move {
            let mut cursor = cursor?;
            loop {
                match cursor.step() {
                    Ok(Some(delivery)) => return Some((Ok(delivery), Some(cursor))),
                    Ok(None) => {
                        let _ = tokio::time::timeout(LOOK_EVERY, cursor.node.broker.changed.notified()).await;
                    }
                    Err(error) => return Some((Err(error), None)),
                }
            }
        })
        .boxed()
    }

    fn bounds(&self) -> BoxFuture<'_, Result<Bounds, TransportError>> {
        async move { Ok(self.reach()?.bounds()) }.boxed()
    }

    fn newest(&self, origin: Origin) -> BoxFuture<'_, Result<Option<Bytes>, TransportError>> {
        async move {
            let state = self.reach()?;
            Ok(state.messages.values().rev().find(|stored| stored.origin == origin).map(|stored| stored.body.clone()))
        }
        .boxed()
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

    fn signal(&self, to: Origin, want: Want) -> BoxFuture<'_, Result<(), TransportError>> {
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

    fn signals(&self, own: Origin) -> BoxStream<'_, Result<Want, TransportError>> {
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
                        let found = state.signals.iter().enumerate().skip(skip).find(|(_, signal)| signal.to == own);
                        let found = found.map(|(index, signal)| (state.signals_gone + index as u64 + 1, signal.want));
                        next = found.map_or(state.signals_gone + state.signals.len() as u64, |(next, _)| next);
                        found
                    }
                };
                match found {
                    Some((_, want)) => return Some((Ok(want), Some(next))),
                    None => {
                        let _ = tokio::time::timeout(LOOK_EVERY, self.broker.changed.notified()).await;
                    }
                }
            }
        })
        .boxed()
    }

    fn is_up(&self) -> bool {
        !self.broker.state().cut.contains(&self.origin)
    }
}

impl Cells for Node {
    fn get<'a>(&'a self, table: Table, key: &'a str) -> BoxFuture<'a, Result<Option<Cell>, TransportError>> {
        async move { Ok(self.reach()?.cell(table, key)) }.boxed()
    }

    fn swap<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<Swapped, TransportError>> {
        async move { self.swap_now(table, key, seen, Some(value), false) }.boxed()
    }

    fn put<'a>(&'a self, table: Table, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<u64, TransportError>> {
        async move {
            at_most("a key", key.len(), KEY_MAX)?;
            let mut state = self.reach()?;
            let revision = state.put(table, key, value, self.broker.clock.now());
            self.answer(state, revision)
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
    ) -> BoxFuture<'a, Result<Swapped, TransportError>> {
        async move { self.swap_now(table, key, seen, None, seen.is_none()) }.boxed()
    }

    fn watch(&self, table: Table) -> BoxStream<'_, Result<Change, TransportError>> {
        let (all, from) = {
            let state = self.broker.state();
            let cells = state.cells.get(&table).into_iter().flatten();
            let all: VecDeque<Change> =
                cells.map(|(key, (cell, _))| Change { key: key.clone(), cell: Some(cell.clone()) }).collect();
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
                    let _ = tokio::time::timeout(LOOK_EVERY, self.broker.changed.notified()).await;
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

impl Blobs for Node {
    fn put<'a>(&'a self, name: &'a str, note: &'a str, body: Bytes) -> BoxFuture<'a, Result<(), TransportError>> {
        async move {
            at_most("a note", note.len(), NOTE_MAX)?;
            let mut state = self.reach()?;
            state.blobs.insert(name.to_owned(), (note.to_owned(), body));
            self.answer(state, ())
        }
        .boxed()
    }

    fn get<'a>(&'a self, name: &'a str, max: u64) -> BoxFuture<'a, Result<Option<Bytes>, TransportError>> {
        async move {
            let state = self.reach()?;
            let found = state.blobs.get(name).map(|(_, body)| body.clone());
            match found {
                Some(body) if body.len() as u64 > max => Err(TransportError::Invalid(format!("{name} is too large"))),
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
            self.answer(state, ())
        }
        .boxed()
    }
}
