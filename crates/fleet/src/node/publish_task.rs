//! The publish task: when to publish, and the status of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fetchwise::journal::Journal;
use tokio::sync::{mpsc, watch};

use crate::error::FleetError;
use crate::model::node_id::NodeId;
use crate::model::options::Options;
use crate::model::position_set::count;
use crate::sync::node_id_lease::Lease;
use crate::sync::publisher::{Publisher, TurnReport};
use crate::sync::synced;
use crate::transport::{Table, Transport, TransportError};

use super::shared::{Command, LAST_HEARTBEAT_TIMEOUT, RETRY_INTERVAL, SharedState, StopMode, lock};

/// Checks what must be clear before anything is published: whether the directory was restored,
/// which process holds it, and whether the pool's settings agree.
pub(super) async fn check_pool(
    publisher: &mut Publisher,
    lease: &mut Lease,
    transport: &dyn Transport,
) -> Result<bool, FleetError> {
    publisher.read_clock().await?;
    let is_restored = publisher.detect_restore().await?;
    let ours = publisher.heartbeat(lease.holder(), lease.directory());
    let now = transport.now().await?;
    for (key, cell) in transport.cells().list(Table::Nodes).await? {
        let (Ok(by), Some(theirs)) =
            (key.parse::<NodeId>(), crate::model::heartbeat::Heartbeat::decode(&cell.value))
        else {
            continue;
        };
        // A node that has gone no longer defines the pool's settings.
        if now.is_some_and(|now| now.since(cell.at) > lease.gone_after()) {
            continue;
        }
        let days = |ms: u64| format!("{} days", ms as f64 / 86_400_000.0);
        if by != publisher.node_id() && theirs.half_life_ms != ours.half_life_ms {
            let (theirs, ours) = (days(theirs.half_life_ms), days(ours.half_life_ms));
            return Err(FleetError::Differs { by, what: "a half-life of", theirs, ours });
        }
        if by != publisher.node_id() && theirs.scope != ours.scope {
            return Err(FleetError::Differs {
                by,
                what: "the scope",
                theirs: theirs.scope,
                ours: ours.scope,
            });
        }
    }
    lease.take(publisher, transport).await?;
    Ok(is_restored)
}

/// The publish task.
pub(super) struct PublishTask {
    pub(super) publisher: Publisher,
    pub(super) lease: Lease,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) journal: Arc<Journal>,
    pub(super) options: Options,
    pub(super) shared: Arc<SharedState>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) stopped: watch::Receiver<StopMode>,
    pub(super) own:
        watch::Sender<std::collections::BTreeMap<u32, crate::model::position_set::Intervals>>,
    pub(super) is_excluded: watch::Receiver<bool>,
    pub(super) forgot: watch::Receiver<BTreeSet<u64>>,
    pub(super) is_checked: bool,
}

impl PublishTask {
    pub(super) async fn run(mut self) {
        use futures_util::StreamExt;
        let timing = self.options.timing;
        let transport = Arc::clone(&self.transport);
        let node_id = self.publisher.node_id();
        let mut wants = transport.signals(node_id);
        let mut stopped = self.stopped.clone();
        let mut urgent = tokio::time::interval(timing.urgent);
        urgent.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut blocks, mut next) = (self.journal.blocks(), tokio::time::Instant::now());
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => {
                    self.update_queue();
                    if *stopped.borrow() == StopMode::WithHeartbeat && self.is_checked && lock(&self.shared.status).broker {
                        let _ = tokio::time::timeout(LAST_HEARTBEAT_TIMEOUT, self.lease.end(&self.publisher)).await;
                    }
                    return;
                }
                command = self.commands.recv() => {
                    match command {
                        Some(Command::Leave(answer)) => {
                            let _ = answer.send(self.leave().await);
                        }
                        Some(Command::Readmit(_, answer)) => drop(answer.send(Ok(()))),
                        None => return,
                    }
                }
                _ = urgent.tick() => {
                    let blocked = self.journal.blocks();
                    let is_due = tokio::time::Instant::now() >= next;
                    if blocked == blocks && !is_due {
                        continue;
                    }
                    if blocked != blocks {
                        blocks = blocked;
                        // Records that are not synced would otherwise wait for the log's own
                        // interval.
                        let _ = synced(self.journal.flush()).await;
                    }
                    let turned = self.turn(is_due).await;
                    // A turn that takes longer than the interval leaves time for requests of peers.
                    if is_due {
                        next = tokio::time::Instant::now() + timing.batch;
                    }
                    if turned.is_err() {
                        next = tokio::time::Instant::now() + RETRY_INTERVAL.max(timing.batch);
                    }
                    self.note(turned);
                }
                // Last, so that requests of peers do not keep this node from publishing.
                want = wants.next() => match want {
                    Some(Ok(want)) if self.is_checked && !self.lease.is_lost() => {
                        let answered = self.publisher.retransmit(want).await;
                        self.note(answered.map(|attempts| TurnReport { attempts, ..TurnReport::default() }));
                    }
                    Some(Ok(_)) => {}
                    _ => {
                        tokio::time::sleep(RETRY_INTERVAL).await;
                        wants = transport.signals(node_id);
                    }
                },
            }
        }
    }

    async fn turn(&mut self, look: bool) -> Result<TurnReport, FleetError> {
        self.update_queue();
        self.publisher.is_excluded = *self.is_excluded.borrow();
        self.publisher.forgot.clone_from(&self.forgot.borrow());
        self.publisher.global.is_lost |= self.shared.global_is_lost.swap(false, Ordering::Relaxed);
        if self.shared.has_learned_past.swap(false, Ordering::Relaxed) {
            self.publisher.global.start_over();
        }
        if !self.is_checked {
            check_pool(&mut self.publisher, &mut self.lease, &*self.transport).await?;
            self.is_checked = true;
            let _ = self.own.send(self.publisher.state.own());
        }
        if look {
            self.publisher.read_clock().await?;
            self.lease.beat(&self.publisher).await?;
        }
        if self.lease.is_lost() {
            return Err(self.lease.held(self.publisher.node_id()));
        }
        self.publisher.turn(look).await
    }

    /// Makes further heartbeats say that the node has left its queue.
    fn update_queue(&mut self) {
        if self.shared.has_left_queue.load(Ordering::Relaxed) {
            self.publisher.leave_queue();
        }
    }

    async fn leave(&mut self) -> Result<(), FleetError> {
        synced(self.journal.flush()).await?;
        let turned = self.turn(true).await;
        self.note(turned.clone());
        turned?;
        if !self.publisher.is_excluded {
            self.publisher.publish_snapshot().await?;
            self.publisher.publish_global(true).await?;
        }
        self.lease.leave(&self.publisher, &*self.transport).await
    }

    /// Records the result of a turn.
    fn note(&mut self, turned: Result<TurnReport, FleetError>) {
        let publisher = &self.publisher;
        {
            let mut counts = lock(&self.shared.published);
            if let Ok(turn) = &turned {
                counts.published += turn.attempts;
                counts.bytes += turn.bytes;
                counts.withheld += turn.withheld;
                counts.stream_resets += turn.stream_resets;
            } else {
                counts.failures += 1;
            }
            (counts.global_snapshots_published, counts.global_snapshot_bytes) =
                publisher.global.published;
        }
        let mut status = lock(&self.shared.status);
        status.epoch = publisher.state.log_epoch().epoch;
        (status.position, status.published) = (publisher.durable(), publisher.state.acknowledged);
        status.snapshot_position = publisher.state.share;
        status.withheld = count(publisher.state.withheld.runs().iter().copied());
        status.clock_ahead_s = publisher.clock_ahead_ms.map(|ms| ms as f64 / 1000.0);
        status.broker = !matches!(turned, Err(FleetError::Transport(TransportError::Away(_))));
        status.stopped = match &turned {
            _ if publisher.is_excluded => Some("an operator has excluded this node".to_owned()),
            _ if publisher.is_clock_wrong() => {
                Some("its clock is more than ten minutes off the broker's".to_owned())
            }
            Err(error) => Some(error.to_string()),
            Ok(_) => None,
        };
        if turned.is_err() || !publisher.is_done() {
            status.converged = false;
        }
    }
}
