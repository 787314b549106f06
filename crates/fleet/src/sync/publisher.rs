//! The publisher: it turns the synced part of the node's own log into messages and evidence snapshots.
//!
//! Owns: how far publishing has come.
//!
//! Invariants: a position is published only when no power failure can take it back, and never with two contents.
//! Snapshot and stream together always cover everything. The log is the queue, so an unavailable broker costs no
//! memory.
//!
//! Must not know: what was received from peers.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetchwise::journal::Journal;
use fetchwise::journal::replication::{Place, Stones, facts};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::background::blocking;
use crate::error::FleetError;
use crate::failpoints;
use crate::model::codec::{Batch, Header};
use crate::model::intervals::Intervals;
use crate::model::node_id::Origin;
use crate::model::options::Options;
use crate::peer_store::node_state::{Fork, State};
use crate::sync::batching::{Made, MAX_POSITIONS, make};
use crate::sync::build_global_evidence::{Around, OwnGeneral};
use crate::sync::build_snapshot::{Job, Ready, noted};
use crate::sync::forget::tell_forgotten;
use crate::transport::{Bounds, Cell, Swapped, Table, Transport, TransportError, Want};

/// The maximum number of messages in flight.
const IN_FLIGHT: usize = 64;
/// The maximum time by which an attempt may be ahead of the broker's clock. Later ones are never published.
pub(crate) const MAX_AHEAD: Duration = Duration::from_secs(600);
/// The minimum difference between clock time and elapsed time that counts as a clock change.
const JUMP: Duration = Duration::from_secs(5);
/// The number of unpublished positions above which a snapshot comes first.
const FAR_BEHIND: u64 = 1_000_000;

/// The report of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) facts: u64,
    pub(crate) bytes: u64,
    pub(crate) withheld: u64,
    pub(crate) rewinds: u64,
}

/// The publisher.
pub(crate) struct Publisher {
    dir: PathBuf,
    journal: Arc<Journal>,
    selector: Arc<Selector>,
    transport: Arc<dyn Transport>,
    options: Options,
    pub(crate) state: State,
    saved: Option<State>,
    stones: Stones,
    answered: VecDeque<(Want, Instant)>,
    resent: u64,
    /// The time by which the node's clock is ahead of the broker's, if known.
    pub(crate) clock_ahead_ms: Option<i64>,
    /// The time of that comparison, by this node's clock and by the monotonic one.
    clock_seen: Option<(Timestamp, Instant)>,
    /// Whether an operator has excluded this node.
    pub(crate) is_excluded: bool,
    /// The tombstones of the log for the fleet, and those that the last snapshot covers.
    pub(crate) forgot: BTreeSet<u64>,
    shared_without: BTreeSet<u64>,
    /// The snapshot that is being built.
    sharing: Option<JoinHandle<Result<Option<Ready>, FleetError>>>,
    /// The global snapshot, in scope `own`.
    pub(crate) general: OwnGeneral,
}

impl Publisher {
    pub(crate) fn new(
        journal: Arc<Journal>,
        selector: Arc<Selector>,
        transport: Arc<dyn Transport>,
        options: Options,
        state: State,
    ) -> Self {
        let dir = journal.dir().to_owned();
        let general = OwnGeneral::new(&dir, &selector, &transport, &options);
        Self {
            dir,
            journal,
            selector,
            transport,
            options,
            saved: Some(state.clone()),
            state,
            stones: Stones::default(),
            answered: VecDeque::new(),
            resent: 0,
            clock_ahead_ms: None,
            clock_seen: None,
            is_excluded: false,
            forgot: BTreeSet::new(),
            shared_without: BTreeSet::new(),
            sharing: None,
            general,
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        self.state.origin
    }

    /// Returns the time by the broker's clock, as far as it is known.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.selector.now().as_millis();
        Timestamp::from_millis(now.saturating_sub(self.clock_ahead_ms.unwrap_or(0)))
    }

    /// Reads the broker's clock.
    pub(crate) async fn look_at_clock(&mut self) -> Result<(), FleetError> {
        if let Some(theirs) = self.transport.now().await? {
            let ours = self.selector.now();
            self.clock_ahead_ms = Some(ours.as_millis().saturating_sub(theirs.as_millis()));
            self.clock_seen = Some((ours, Instant::now()));
        }
        Ok(())
    }

    /// Reads the broker's clock again if this node's clock was set since the last reading. Otherwise a future time
    /// would pass for the present.
    async fn heed_jump(&mut self) -> Result<(), FleetError> {
        let Some((at, seen)) = self.clock_seen else { return Ok(()) };
        let (goes, went) = (self.selector.now().as_millis().saturating_sub(at.as_millis()), seen.elapsed());
        if goes.abs_diff(i64::try_from(went.as_millis()).unwrap_or(i64::MAX)) > JUMP.as_millis() as u64 {
            self.look_at_clock().await?;
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

    /// Checks whether the fleet knows more of this node than its log does. Then the directory was restored from a
    /// backup, and another epoch begins. Returns whether one did.
    pub(crate) async fn find_fork(&mut self) -> Result<bool, FleetError> {
        let origin = self.origin();
        let mut known = (0, 0);
        if let Some(body) = self.transport.newest(origin).await?
            && let Ok(batch) = Batch::decode(&body)
        {
            known = known.max((batch.header().epoch, batch.header().top));
        }
        let name = origin.to_string();
        if let Some(note) = noted(&*self.transport, origin).await? {
            known = known.max((note.epoch, note.position));
        }
        if let Some(cell) = self.transport.cells().get(Table::Nodes, &name).await?
            && let Some(presence) = crate::model::heartbeat::Presence::decode(&cell.value)
        {
            known = known.max((presence.epoch, presence.position));
        }
        let fork = self.state.fork();
        self.journal.flush().await.map_err(|error| FleetError::Record(error.to_string()))?;
        let last = self.journal.durable_seq();
        let is_restored =
            known.0 > fork.epoch || known.0 == fork.epoch && (known.1 > self.state.reserved || known.1 > last);
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
            // No other task requests the sync. A log that cannot be synced now has synced a part before.
            let _ = self.journal.flush().await;
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

    /// Publishes new positions. With `look` it first checks whether the stream is still the same and whether a snapshot
    /// is due.
    pub(crate) async fn turn(&mut self, look: bool) -> Result<Turn, FleetError> {
        let mut turn = Turn::default();
        if self.is_excluded || self.is_clock_wrong() {
            return Ok(turn);
        }
        if look {
            let bounds = self.transport.bounds().await?;
            turn.rewinds += u64::from(self.rewind(&bounds).await?);
            let has_forgotten = self.state.share_at > 0 && self.shared_without != self.forgot;
            let is_due = has_forgotten || self.is_share_due(&bounds);
            self.share_beside(is_due).await?;
        }
        let end = self.end().await?;
        if end.saturating_sub(self.state.acknowledged) > FAR_BEHIND {
            let covered = self.share().await?;
            self.state.acknowledged = self.state.acknowledged.max(covered);
        }
        while self.state.acknowledged < end {
            let from = self.state.acknowledged + 1;
            let made = self.make(self.state.fork(), (from, end), IN_FLIGHT).await?;
            turn.withheld += made.withheld.len() as u64;
            made.withheld.iter().for_each(|position| self.state.withheld.insert(*position, *position));
            self.tell_forgotten(&made.forgotten).await?;
            if made.messages.is_empty() {
                if !made.gone {
                    break;
                }
                // It was compacted before it could be published: its evidence is in a snapshot.
                let covered = self.share().await?;
                self.state.acknowledged = self.state.acknowledged.max(covered);
                continue;
            }
            self.state.reserved = made.messages.last().map_or(0, |(header, _)| header.last).max(self.state.reserved);
            self.save()?;
            failpoints::reached(failpoints::RESERVED);
            let sent = self.send(&made.messages, None).await?;
            failpoints::reached(failpoints::PUBLISHED);
            (turn.facts, turn.bytes) = (turn.facts + sent.0, turn.bytes + sent.1);
        }
        if look {
            self.say_general(false).await?;
        }
        self.save()?;
        Ok(turn)
    }

    /// In scope `own`, publishes the global snapshot when it is due, or at once with `now`.
    pub(crate) async fn say_general(&mut self, now: bool) -> Result<(), FleetError> {
        let latest = self.now().saturating_add(MAX_AHEAD);
        self.general.turn(&Around { state: &self.state, latest, forgot: &self.forgot }, now).await
    }

    /// Sends messages and advances past those that were stored; `again` for retransmissions.
    async fn send(&mut self, messages: &[(Header, Bytes)], again: Option<u64>) -> Result<(u64, u64), FleetError> {
        let origin = self.origin();
        let transport = Arc::clone(&self.transport);
        // Enough of the id to tell nodes apart. With a collision a message would be missing and requested again.
        let short = origin.to_string();
        let suffix = again.map(|n| format!(".r{n}")).unwrap_or_default();
        let mut done = FuturesOrdered::new();
        for (header, body) in messages {
            let id = format!("{short:.12}.{}.{}-{}{suffix}", header.epoch, header.first, header.last);
            let (transport, body, header) = (Arc::clone(&transport), body.clone(), *header);
            done.push_back(async move { (header, body.len() as u64, transport.publish(origin, &id, body).await) });
        }
        let mut sent = (0, 0);
        while let Some((header, len, published)) = done.next().await {
            published?;
            sent = (sent.0 + u64::from(header.count), sent.1 + len);
            if again.is_none() {
                self.state.acknowledged = header.last;
            }
        }
        Ok(sent)
    }

    /// Builds at most `most` messages from the positions `range.0` to `range.1`.
    async fn make(&mut self, fork: Fork, range: (u64, u64), most: usize) -> Result<Made, FleetError> {
        self.heed_jump().await?;
        let (dir, selector) = (self.dir.clone(), Arc::clone(&self.selector));
        let mut stones = std::mem::take(&mut self.stones);
        stones.none_from(self.journal.no_stones_from());
        let latest = self.now().saturating_add(MAX_AHEAD);
        let latest = Some(latest).filter(|_| self.options.safeguards.withhold);
        let withheld = self.state.withheld.clone();
        // No more is read than fits into that number of messages.
        let range = (range.0, range.1.min(range.0.saturating_add(MAX_POSITIONS * most as u64 - 1)));
        let top = if fork == self.state.fork() { self.state.reserved } else { 0 };
        let egress = self.options.egress_group.clone();
        let work = move || {
            let made = make(&dir, &selector, &mut stones, (fork, &egress), range, most, top, |seq, at| {
                withheld.contains(seq) || latest.is_some_and(|latest| at > latest)
            });
            (stones, made)
        };
        let (stones, made) = blocking(work).await?;
        self.stones = stones;
        made
    }

    /// Notifies the other nodes of domains that were forgotten on this node alone.
    async fn tell_forgotten(&self, forgotten: &[(String, Timestamp)]) -> Result<(), FleetError> {
        for (domain, at) in forgotten {
            match tell_forgotten(&*self.transport, domain, *at).await {
                // If only an operator may notify all nodes, this node forgets alone.
                Ok(()) | Err(TransportError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Goes back to the end of the last snapshot, if the stream is a different one.
    async fn rewind(&mut self, bounds: &Bounds) -> Result<bool, FleetError> {
        if bounds.incarnation == self.state.incarnation {
            return Ok(false);
        }
        let is_first = self.state.incarnation == 0;
        self.answered.clear();
        if !self.options.safeguards.rewind && !is_first {
            self.state.incarnation = bounds.incarnation;
            return Ok(true);
        }
        let epoch = self.state.fork().epoch;
        let covered = match noted(&*self.transport, self.origin()).await? {
            Some(note) if note.epoch == epoch && note.position <= self.durable() => note.position,
            _ if is_first && self.state.acknowledged == 0 && self.durable() < FAR_BEHIND => 0,
            _ => self.share().await?,
        };
        self.state.acknowledged = if is_first { self.state.acknowledged.max(covered) } else { covered };
        self.state.incarnation = bounds.incarnation;
        self.save()?;
        Ok(!is_first)
    }

    fn is_share_due(&self, bounds: &Bounds) -> bool {
        let timing = &self.options.timing;
        let behind = self.state.acknowledged.saturating_sub(self.state.share);
        let day = Duration::from_secs(86_400);
        let is_ageing = bounds.first_at.is_some_and(|first| {
            let age = self.now().since(first);
            age + day > self.options.max_age && self.now().since(self.state.shared_at()) > day / 2
        });
        let is_old = self.state.share_at == 0 || self.now().since(self.state.shared_at()) >= timing.share_every;
        behind > 0 && (is_old || behind >= timing.share_after || is_ageing)
    }

    /// Stores an evidence snapshot. Returns the position that it covers.
    pub(crate) async fn share(&mut self) -> Result<u64, FleetError> {
        // One that was started earlier covers less.
        self.sharing = None;
        loop {
            let job = self.share_job().await?;
            if let Some(ready) = blocking(move || job.run()).await?? {
                return self.put_share(ready).await;
            }
        }
    }

    /// Starts to build a snapshot, and stores the one that is ready.
    async fn share_beside(&mut self, is_due: bool) -> Result<(), FleetError> {
        match self.sharing.take() {
            Some(task) if task.is_finished() => {
                // Without a snapshot, one is due again.
                if let Some(ready) = task.await.map_err(|_| FleetError::Ended)?? {
                    self.put_share(ready).await?;
                }
            }
            Some(task) => self.sharing = Some(task),
            None if is_due => {
                let job = self.share_job().await?;
                self.sharing = Some(tokio::task::spawn_blocking(move || job.run()));
            }
            None => {}
        }
        Ok(())
    }

    async fn share_job(&mut self) -> Result<Job, FleetError> {
        let bounds = self.transport.bounds().await?;
        self.journal.flush().await.map_err(|error| FleetError::Record(error.to_string()))?;
        let upto = self.journal.durable_seq();
        self.heed_jump().await?;
        let latest = self.now().saturating_add(MAX_AHEAD);
        // Withheld positions must be decided before they are in a snapshot or not: by a later check the clock has moved
        // on.
        if self.options.safeguards.withhold && self.state.acknowledged < upto {
            let (dir, selector) = (self.dir.clone(), Arc::clone(&self.selector));
            let range = (self.state.acknowledged + 1, upto);
            let found = blocking(move || {
                let mut found = Intervals::default();
                let mut stones = Stones::default();
                let read = facts(&dir, range, &selector, &mut stones, |seq, place| {
                    if matches!(place, Place::Fact(fact, _) if fact.at > latest) {
                        found.insert(seq, seq);
                    }
                });
                read.map(|()| found)
            });
            self.state.withheld.extend(&found.await??);
        }
        // From here on the fleet may know positions up to this one.
        self.state.reserved = self.state.reserved.max(upto);
        self.save()?;
        let blank = self.selector.blank().map_err(|error| FleetError::Selector(error.to_string()))?;
        let (dir, state, forgot) = (self.dir.clone(), self.state.clone(), self.forgot.clone());
        // Smaller differences are within the accuracy of the comparison.
        let ahead = self.clock_ahead_ms.filter(|ms| *ms > 1000).map_or(0, i64::unsigned_abs);
        let (egress, ahead) = (self.options.egress_group.clone(), Duration::from_millis(ahead));
        Ok(Job { dir, state, blank, upto, bounds, latest, forgot, egress, ahead })
    }

    async fn put_share(&mut self, ready: Ready) -> Result<u64, FleetError> {
        self.transport.blobs().put(&self.origin().to_string(), &ready.note, ready.bytes).await?;
        failpoints::reached(failpoints::SHARED);
        self.shared_without = ready.forgot;
        (self.state.share, self.state.share_at) = (ready.upto, self.now().as_millis());
        self.save()?;
        Ok(ready.upto)
    }

    /// Answers a retransmit request.
    pub(crate) async fn answer(&mut self, want: Want) -> Result<u64, FleetError> {
        // A recent retransmission is not repeated for another node, but for the same node that asks again.
        let fresh = self.options.timing.hole / 2;
        self.answered.retain(|(_, at)| at.elapsed() < fresh);
        if self.is_excluded || self.answered.iter().any(|(known, _)| *known == want) {
            return Ok(0);
        }
        self.answered.push_back((want, Instant::now()));
        let Some(index) = self.state.forks.iter().position(|fork| fork.epoch == want.epoch) else {
            // This epoch was lost with its disk. A snapshot has what is left of it.
            self.share().await?;
            return Ok(0);
        };
        let fork = self.state.forks[index];
        let end = self.state.forks.get(index + 1).map_or(self.state.acknowledged, |next| next.base);
        let (first, last) = (want.first.max(fork.base + 1), want.last.min(end));
        if first > last {
            if want.first <= end || index + 1 < self.state.forks.len() {
                self.share().await?;
            }
            return Ok(0);
        }
        let made = self.make(fork, (first, last), IN_FLIGHT).await?;
        self.resent += 1;
        let again = Some(self.resent);
        let sent = self.send(&made.messages, again).await?;
        if made.gone {
            self.share().await?;
        }
        Ok(sent.0)
    }

    /// Replaces the last heartbeat of this process; returns none if another process has sent one since.
    pub(crate) async fn beat(
        &self,
        presence: &crate::model::heartbeat::Presence,
        seen: Option<u64>,
    ) -> Result<Result<u64, Option<Cell>>, TransportError> {
        let name = self.origin().to_string();
        match self.transport.cells().swap(Table::Nodes, &name, seen, presence.encode()).await? {
            Swapped::Done(revision) => Ok(Ok(revision)),
            Swapped::Lost(cell) => Ok(Err(cell)),
        }
    }

    /// Returns this node's heartbeat.
    pub(crate) fn presence(&self, holder: &str, directory: &str) -> crate::model::heartbeat::Presence {
        let fork = self.state.fork();
        crate::model::heartbeat::Presence {
            epoch: fork.epoch,
            base: fork.base,
            position: self.state.acknowledged.max(fork.base),
            share: self.state.share,
            version: self.options.version.clone(),
            scope: self.options.scope.name().into(),
            half_life_ms: self.selector.half_life_ms(),
            egress: self.options.egress_group.clone(),
            clock_ahead_ms: self.clock_ahead_ms.unwrap_or(0),
            holder: holder.to_owned(),
            directory: directory.to_owned(),
            place: self.options.place.clone(),
        }
    }
}
