//! The publisher: it turns the synced part of the node's own log into messages and evidence
//! snapshots.
//!
//! Owns: how far publishing has come.
//!
//! Invariants: a position is published only when no power failure can take it back, and never with
//! two contents. Snapshot and stream together always cover everything. The log is the queue, so an
//! unavailable broker costs no memory.
//!
//! Must not know: what was received from peers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetchwise::journal::Journal;
use fetchwise::journal::replication::{PositionContent, Tombstones, read_positions};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::FleetError;
use crate::failpoints;
use crate::model::codec::{Batch, Header};
use crate::model::node_id::NodeId;
use crate::model::options::Options;
use crate::model::position_set::Intervals;
use crate::peer_store::own_state_file::{LogEpoch, NodeState};
use crate::sync::batching::{BuiltMessages, LogRange, MAX_POSITIONS, build_messages};
use crate::sync::build_snapshot::{BuiltSnapshot, SnapshotJob, stored_note};
use crate::sync::forget::notify_forgotten;
use crate::sync::global_publisher::{GlobalPublisher, NodeContext};
use crate::sync::retransmit_limit::RetransmitLimit;
use crate::sync::{run_blocking, synced};
use crate::transport::{
    Cell, RetransmitRequest, StreamBounds, SwapOutcome, Table, Transport, TransportError,
};

/// The maximum number of messages in flight.
const MAX_IN_FLIGHT: usize = 64;
/// The maximum time by which an attempt may be ahead of the broker's clock. Later ones are never
/// published.
pub(crate) const MAX_AHEAD: Duration = Duration::from_secs(600);
/// The minimum difference between clock time and elapsed time that counts as a clock change.
const CLOCK_JUMP: Duration = Duration::from_secs(5);
/// The number of unpublished positions above which a snapshot comes first.
const FAR_BEHIND: u64 = 1_000_000;

/// The report of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnReport {
    pub(crate) attempts: u64,
    pub(crate) bytes: u64,
    pub(crate) withheld: u64,
    pub(crate) stream_resets: u64,
}

/// The publisher.
pub(crate) struct Publisher {
    dir: PathBuf,
    journal: Arc<Journal>,
    selector: Arc<Selector>,
    transport: Arc<dyn Transport>,
    options: Options,
    pub(crate) state: NodeState,
    saved: Option<NodeState>,
    stones: Tombstones,
    retransmit_limit: RetransmitLimit,
    resent: u64,
    /// The time by which the node's clock is ahead of the broker's, if known.
    pub(crate) clock_ahead_ms: Option<i64>,
    /// The time of that comparison, by this node's clock and by the monotonic one.
    clock_seen: Option<(Timestamp, Instant)>,
    /// Whether an operator has excluded this node.
    pub(crate) is_excluded: bool,
    /// The tombstones of the log for the fleet, and those that the last snapshot covers.
    pub(crate) forgot: BTreeSet<u64>,
    snapshot_tombstones: BTreeSet<u64>,
    /// The snapshot that is being built.
    snapshot_task: Option<JoinHandle<Result<Option<BuiltSnapshot>, FleetError>>>,
    /// The global snapshot, in scope `own`.
    pub(crate) global: GlobalPublisher,
}

impl Publisher {
    pub(crate) fn new(
        journal: Arc<Journal>,
        selector: Arc<Selector>,
        transport: Arc<dyn Transport>,
        options: Options,
        state: NodeState,
    ) -> Self {
        let dir = journal.dir().to_owned();
        let global = GlobalPublisher::new(&dir, &selector, &transport, &options);
        Self {
            dir,
            journal,
            selector,
            transport,
            saved: Some(state.clone()),
            state,
            stones: Tombstones::default(),
            retransmit_limit: RetransmitLimit::new(options.timing.gap),
            resent: 0,
            clock_ahead_ms: None,
            clock_seen: None,
            is_excluded: false,
            forgot: BTreeSet::new(),
            snapshot_tombstones: BTreeSet::new(),
            snapshot_task: None,
            global,
            options,
        }
    }

    pub(crate) fn node_id(&self) -> NodeId {
        self.state.node_id
    }

    /// Returns the time by the broker's clock, as far as it is known.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.selector.clock().date().as_millis();
        Timestamp::from_millis(now.saturating_sub(self.clock_ahead_ms.unwrap_or(0)))
    }

    /// Reads the broker's clock.
    pub(crate) async fn read_clock(&mut self) -> Result<(), FleetError> {
        if let Some(theirs) = self.transport.now().await? {
            let ours = self.selector.clock().date();
            self.clock_ahead_ms = Some(ours.as_millis().saturating_sub(theirs.as_millis()));
            self.clock_seen = Some((ours, Instant::now()));
        }
        Ok(())
    }

    /// Reads the broker's clock again if this node's clock was set since the last reading.
    /// Otherwise a future time would pass for the present.
    async fn check_clock_jump(&mut self) -> Result<(), FleetError> {
        let Some((at, seen)) = self.clock_seen else { return Ok(()) };
        let (goes, went) = (
            self.selector.clock().date().as_millis().saturating_sub(at.as_millis()),
            seen.elapsed(),
        );
        if goes.abs_diff(i64::try_from(went.as_millis()).unwrap_or(i64::MAX))
            > CLOCK_JUMP.as_millis() as u64
        {
            self.read_clock().await?;
        }
        Ok(())
    }

    /// Returns whether the clock is too far off to publish.
    pub(crate) fn is_clock_wrong(&self) -> bool {
        self.clock_ahead_ms.is_some_and(|ms| ms.unsigned_abs() > MAX_AHEAD.as_millis() as u64)
    }

    fn save(&mut self) -> Result<(), FleetError> {
        if self.saved.as_ref() != Some(&self.state) {
            self.state.save(&self.dir)?;
            self.saved = Some(self.state.clone());
        }
        Ok(())
    }

    /// Checks whether the fleet knows more of this node than its log does. Then the directory was
    /// restored from a backup, and another epoch begins. Returns whether one did.
    pub(crate) async fn detect_restore(&mut self) -> Result<bool, FleetError> {
        let node_id = self.node_id();
        let mut known = (0, 0);
        if let Some(body) = self.transport.newest(node_id).await?
            && let Ok(batch) = Batch::decode(&body)
        {
            known = known.max((batch.header().epoch, batch.header().top));
        }
        let name = node_id.to_string();
        if let Some(note) = stored_note(&*self.transport, node_id).await? {
            known = known.max((note.epoch, note.position));
        }
        if let Some(cell) = self.transport.cells().get(Table::Nodes, &name).await?
            && let Some(heartbeat) = crate::model::heartbeat::Heartbeat::decode(&cell.value)
        {
            known = known.max((heartbeat.epoch, heartbeat.position));
        }
        let fork = self.state.log_epoch();
        synced(self.journal.flush()).await?;
        let last = self.journal.durable_seq();
        let is_restored = known.0 > fork.epoch
            || known.0 == fork.epoch && (known.1 > self.state.reserved || known.1 > last);
        if is_restored {
            self.state.begin_epoch(known.0, last);
            self.save()?;
        }
        Ok(is_restored)
    }

    /// Returns the last position that may be published now.
    async fn end(&self) -> Result<u64, FleetError> {
        use fetchwise::journal::Durability;
        if !self.options.safeguards.sync {
            return Ok(self.journal.next_seq().saturating_sub(1));
        }
        if matches!(self.journal.durability(), Durability::Memory | Durability::Os) {
            // No other task requests the sync. A log that cannot be synced now has synced a part
            // before.
            let _ = synced(self.journal.flush()).await;
        }
        Ok(self.journal.durable_seq())
    }

    /// Returns whether everything in the log is published.
    pub(crate) fn is_done(&self) -> bool {
        self.state.acknowledged >= self.journal.next_seq().saturating_sub(1)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.journal.durable_seq()
    }

    /// Publishes new positions. With `look` it first checks whether the stream is still the same
    /// and whether a snapshot is due.
    pub(crate) async fn turn(&mut self, look: bool) -> Result<TurnReport, FleetError> {
        let mut turn = TurnReport::default();
        if self.is_excluded || self.is_clock_wrong() {
            return Ok(turn);
        }
        if look {
            let bounds = self.transport.bounds().await?;
            turn.stream_resets += u64::from(self.follow_stream(&bounds).await?);
            let has_forgotten = self.state.share_at > 0 && self.snapshot_tombstones != self.forgot;
            let is_due = has_forgotten || self.is_snapshot_due(&bounds);
            self.drive_snapshot_task(is_due).await?;
        }
        let end = self.end().await?;
        if end.saturating_sub(self.state.acknowledged) > FAR_BEHIND {
            let covered = self.publish_snapshot().await?;
            self.state.acknowledged = self.state.acknowledged.max(covered);
        }
        while self.state.acknowledged < end {
            let from = self.state.acknowledged + 1;
            let made =
                self.build_messages(self.state.log_epoch(), (from, end), MAX_IN_FLIGHT).await?;
            turn.withheld += made.withheld.len() as u64;
            made.withheld
                .iter()
                .for_each(|position| self.state.withheld.insert(*position, *position));
            self.notify_forgotten(&made.forgotten).await?;
            if made.messages.is_empty() {
                if !made.gone {
                    break;
                }
                // It was compacted before it could be published: its evidence is in a snapshot.
                let covered = self.publish_snapshot().await?;
                self.state.acknowledged = self.state.acknowledged.max(covered);
                continue;
            }
            self.state.reserved =
                made.messages.last().map_or(0, |(header, _)| header.last).max(self.state.reserved);
            self.save()?;
            failpoints::reached(failpoints::RESERVED);
            let sent = self.send(&made.messages, None).await?;
            failpoints::reached(failpoints::PUBLISHED);
            (turn.attempts, turn.bytes) = (turn.attempts + sent.0, turn.bytes + sent.1);
        }
        if look {
            self.publish_global(false).await?;
        }
        self.save()?;
        Ok(turn)
    }

    /// In scope `own`, publishes the global snapshot when it is due, or at once with `now`.
    pub(crate) async fn publish_global(&mut self, now: bool) -> Result<(), FleetError> {
        let latest = self.now().saturating_add(MAX_AHEAD);
        self.global
            .turn(&NodeContext { state: &self.state, latest, forgot: &self.forgot }, now)
            .await
    }

    /// Sends messages and advances past those that were stored; `again` for retransmissions.
    async fn send(
        &mut self,
        messages: &[(Header, Bytes)],
        again: Option<u64>,
    ) -> Result<(u64, u64), FleetError> {
        let node_id = self.node_id();
        let transport = Arc::clone(&self.transport);
        // Enough of the id to tell nodes apart. With a collision a message would be missing and
        // requested again.
        let short = node_id.to_string();
        let suffix = again.map(|n| format!(".r{n}")).unwrap_or_default();
        let mut done = FuturesOrdered::new();
        for (header, body) in messages {
            let id =
                format!("{short:.12}.{}.{}-{}{suffix}", header.epoch, header.first, header.last);
            let (transport, body, header) = (Arc::clone(&transport), body.clone(), *header);
            done.push_back(async move {
                (header, body.len() as u64, transport.publish(node_id, &id, body).await)
            });
        }
        let mut sent = (0, 0);
        while let Some((header, len, published)) = done.next().await {
            published?;
            sent = (sent.0 + u64::from(header.count), sent.1 + len);
            if again.is_none() {
                debug_assert!(
                    self.state.acknowledged <= header.last,
                    "an acknowledgement takes back another"
                );
                self.state.acknowledged = header.last;
            }
        }
        Ok(sent)
    }

    /// Builds at most `most` messages from the positions `range.0` to `range.1`.
    async fn build_messages(
        &mut self,
        fork: LogEpoch,
        range: (u64, u64),
        most: usize,
    ) -> Result<BuiltMessages, FleetError> {
        self.check_clock_jump().await?;
        let selector = Arc::clone(&self.selector);
        let mut stones = std::mem::take(&mut self.stones);
        stones.none_from(self.journal.no_tombstones_from());
        let latest = self.now().saturating_add(MAX_AHEAD);
        let latest = Some(latest).filter(|_| self.options.safeguards.withhold);
        let withheld = self.state.withheld.clone();
        // No more is read than fits into that number of messages.
        let range = LogRange {
            dir: self.dir.clone(),
            fork,
            egress: self.options.egress_group.clone(),
            positions: (
                range.0,
                range.1.min(range.0.saturating_add(MAX_POSITIONS * most as u64 - 1)),
            ),
            most,
            top: if fork == self.state.log_epoch() { self.state.reserved } else { 0 },
        };
        let work = move || {
            let made = build_messages(&range, selector.learned(), &mut stones, |seq, at| {
                withheld.contains(seq) || latest.is_some_and(|latest| at > latest)
            });
            (stones, made)
        };
        let (stones, made) = run_blocking(work).await?;
        self.stones = stones;
        made
    }

    /// Notifies the other nodes of domains that were forgotten on this node alone.
    async fn notify_forgotten(&self, forgotten: &[(String, Timestamp)]) -> Result<(), FleetError> {
        for (domain, at) in forgotten {
            match notify_forgotten(&*self.transport, domain, *at).await {
                // If only an operator may notify all nodes, this node forgets alone.
                Ok(()) | Err(TransportError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Goes back to the end of the last snapshot, if the stream is a different one.
    async fn follow_stream(&mut self, bounds: &StreamBounds) -> Result<bool, FleetError> {
        if bounds.incarnation == self.state.incarnation {
            return Ok(false);
        }
        let is_first = self.state.incarnation == 0;
        self.retransmit_limit.clear();
        if !self.options.safeguards.rewind && !is_first {
            self.state.incarnation = bounds.incarnation;
            return Ok(true);
        }
        let epoch = self.state.log_epoch().epoch;
        let covered = match stored_note(&*self.transport, self.node_id()).await? {
            Some(note) if note.epoch == epoch && note.position <= self.durable() => note.position,
            _ if is_first && self.state.acknowledged == 0 && self.durable() < FAR_BEHIND => 0,
            _ => self.publish_snapshot().await?,
        };
        self.state.acknowledged =
            if is_first { self.state.acknowledged.max(covered) } else { covered };
        self.state.incarnation = bounds.incarnation;
        self.save()?;
        Ok(!is_first)
    }

    fn is_snapshot_due(&self, bounds: &StreamBounds) -> bool {
        let timing = &self.options.timing;
        let behind = self.state.acknowledged.saturating_sub(self.state.share);
        let day = Duration::from_secs(86_400);
        let is_aging = bounds.first_at.is_some_and(|first| {
            let age = self.now().since(first);
            age + day > self.options.max_age && self.now().since(self.state.shared_at()) > day / 2
        });
        let is_old = self.state.share_at == 0
            || self.now().since(self.state.shared_at()) >= timing.snapshot_interval;
        behind > 0 && (is_old || behind >= timing.snapshot_after || is_aging)
    }

    /// Stores an evidence snapshot. Returns the position that it covers.
    pub(crate) async fn publish_snapshot(&mut self) -> Result<u64, FleetError> {
        // One that was started earlier covers less.
        self.snapshot_task = None;
        loop {
            let job = self.snapshot_job().await?;
            if let Some(ready) = run_blocking(move || job.run()).await?? {
                return self.store_snapshot(ready).await;
            }
        }
    }

    /// Starts to build a snapshot, and stores the one that is ready.
    async fn drive_snapshot_task(&mut self, is_due: bool) -> Result<(), FleetError> {
        match self.snapshot_task.take() {
            Some(task) if task.is_finished() => {
                // Without a snapshot, one is due again.
                if let Some(ready) = task.await.map_err(|_| FleetError::Left)?? {
                    self.store_snapshot(ready).await?;
                }
            }
            Some(task) => self.snapshot_task = Some(task),
            None if is_due => {
                let job = self.snapshot_job().await?;
                self.snapshot_task = Some(tokio::task::spawn_blocking(move || job.run()));
            }
            None => {}
        }
        Ok(())
    }

    async fn snapshot_job(&mut self) -> Result<SnapshotJob, FleetError> {
        let bounds = self.transport.bounds().await?;
        synced(self.journal.flush()).await?;
        let upto = self.journal.durable_seq();
        self.check_clock_jump().await?;
        let latest = self.now().saturating_add(MAX_AHEAD);
        // Withheld positions must be decided before they are in a snapshot or not: by a later check
        // the clock has moved on.
        if self.options.safeguards.withhold && self.state.acknowledged < upto {
            let (dir, selector) = (self.dir.clone(), Arc::clone(&self.selector));
            let range = (self.state.acknowledged + 1, upto);
            let found = run_blocking(move || {
                let mut found = Intervals::default();
                let mut stones = Tombstones::default();
                let read = read_positions(
                    &dir,
                    range,
                    selector.learned(),
                    &mut stones,
                    |seq, place| {
                        if matches!(place, PositionContent::RemoteAttempt(fact, _) if fact.at > latest)
                        {
                            found.insert(seq, seq);
                        }
                    },
                );
                read.map(|()| found)
            });
            self.state.withheld.extend(&found.await??);
        }
        // From here on the fleet may know positions up to this one.
        self.state.reserved = self.state.reserved.max(upto);
        self.save()?;
        let blank = self
            .selector
            .learned()
            .empty_copy()
            .map_err(|error| FleetError::Selector(error.to_string()))?;
        let (dir, state, forgot) = (self.dir.clone(), self.state.clone(), self.forgot.clone());
        // Smaller differences are within the accuracy of the comparison.
        let ahead = self.clock_ahead_ms.filter(|ms| *ms > 1000).map_or(0, i64::unsigned_abs);
        let (egress, ahead) = (self.options.egress_group.clone(), Duration::from_millis(ahead));
        Ok(SnapshotJob { dir, state, blank, upto, bounds, latest, forgot, egress, ahead })
    }

    async fn store_snapshot(&mut self, ready: BuiltSnapshot) -> Result<u64, FleetError> {
        self.transport.blobs().put(&self.node_id().to_string(), &ready.note, ready.bytes).await?;
        failpoints::reached(failpoints::SHARED);
        self.snapshot_tombstones = ready.forgot;
        (self.state.share, self.state.share_at) = (ready.upto, self.now().as_millis());
        self.save()?;
        Ok(ready.upto)
    }

    /// Answers a retransmit request.
    pub(crate) async fn retransmit(&mut self, want: RetransmitRequest) -> Result<u64, FleetError> {
        if self.is_excluded {
            return Ok(0);
        }
        let Some(index) = self.state.forks.iter().position(|fork| fork.epoch == want.epoch) else {
            // This epoch was lost with its disk. A snapshot has what is left of it.
            return self.publish_requested_snapshot().await;
        };
        let fork = self.state.forks[index];
        let end = self.state.forks.get(index + 1).map_or(self.state.acknowledged, |next| next.base);
        let (first, last) = (want.first.max(fork.base + 1), want.last.min(end));
        if first > last {
            if want.first <= end || index + 1 < self.state.forks.len() {
                return self.publish_requested_snapshot().await;
            }
            return Ok(0);
        }
        let mut resent = 0;
        for range in self.retransmit_limit.admit(want.epoch, (first, last), Instant::now()) {
            let made = self.build_messages(fork, range, MAX_IN_FLIGHT).await?;
            self.resent += 1;
            let again = Some(self.resent);
            resent += self.send(&made.messages, again).await?.0;
            if made.gone {
                self.publish_requested_snapshot().await?;
                break;
            }
        }
        Ok(resent)
    }

    /// Publishes an evidence snapshot because a peer misses what only a snapshot still has; not too
    /// often.
    async fn publish_requested_snapshot(&mut self) -> Result<u64, FleetError> {
        if self.retransmit_limit.admits_snapshot(Instant::now()) {
            self.publish_snapshot().await?;
        }
        Ok(0)
    }

    /// Replaces the last heartbeat of this process; returns none if another process has sent one
    /// since.
    pub(crate) async fn beat(
        &self,
        heartbeat: &crate::model::heartbeat::Heartbeat,
        seen: Option<u64>,
    ) -> Result<Result<u64, Option<Cell>>, TransportError> {
        let name = self.node_id().to_string();
        match self.transport.cells().swap(Table::Nodes, &name, seen, heartbeat.encode()).await? {
            SwapOutcome::Done(revision) => Ok(Ok(revision)),
            SwapOutcome::Lost(cell) => Ok(Err(cell)),
        }
    }

    /// Makes further heartbeats name no queue.
    pub(crate) fn leave_queue(&mut self) {
        self.options.queue.clear();
    }

    /// Returns this node's heartbeat.
    pub(crate) fn heartbeat(
        &self,
        holder: &str,
        directory: &str,
    ) -> crate::model::heartbeat::Heartbeat {
        let fork = self.state.log_epoch();
        crate::model::heartbeat::Heartbeat {
            epoch: fork.epoch,
            base: fork.base,
            position: self.state.acknowledged.max(fork.base),
            share: self.state.share,
            version: self.options.version.clone(),
            scope: self.options.scope.name().into(),
            half_life_ms: self.selector.learned().half_life_ms(),
            egress: self.options.egress_group.clone(),
            clock_ahead_ms: self.clock_ahead_ms.unwrap_or(0),
            holder: holder.to_owned(),
            directory: directory.to_owned(),
            place: self.options.place.clone(),
            queue: self.options.queue.clone(),
        }
    }
}
