//! The publish task: when to publish, and the status of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fetchwise::journal::Journal;
use tokio::sync::{mpsc, watch};

use crate::error::FleetError;
use crate::model::intervals::count;
use crate::model::node_id::Origin;
use crate::model::options::Options;
use crate::sync::lease::Lease;
use crate::sync::publisher::{Publisher, Turn};
use crate::transport::{Table, Transport, TransportError};

use super::shared::{AGAIN, Ask, LAST_WORD, Shared, Stop, lock};

/// Checks what must be clear before anything is published: whether the directory was restored, which process holds it,
/// and whether the pool's settings agree.
pub(super) async fn greet(
    publisher: &mut Publisher,
    lease: &mut Lease,
    transport: &dyn Transport,
) -> Result<bool, FleetError> {
    publisher.look_at_clock().await?;
    let has_forked = publisher.find_fork().await?;
    let ours = publisher.presence(lease.holder(), lease.directory());
    let now = transport.now().await?;
    for (key, cell) in transport.cells().list(Table::Nodes).await? {
        let (Ok(by), Some(theirs)) = (key.parse::<Origin>(), crate::model::heartbeat::Presence::decode(&cell.value))
        else {
            continue;
        };
        // A node that has gone no longer defines the pool's settings.
        if now.is_some_and(|now| now.since(cell.at) > lease.gone_after()) {
            continue;
        }
        let days = |ms: u64| format!("{} days", ms as f64 / 86_400_000.0);
        if by != publisher.origin() && theirs.half_life_ms != ours.half_life_ms {
            let (theirs, ours) = (days(theirs.half_life_ms), days(ours.half_life_ms));
            return Err(FleetError::Differs { by, what: "a half-life of", theirs, ours });
        }
        if by != publisher.origin() && theirs.scope != ours.scope {
            return Err(FleetError::Differs { by, what: "the scope", theirs: theirs.scope, ours: ours.scope });
        }
    }
    lease.take(publisher, transport).await?;
    Ok(has_forked)
}

/// The publish task.
pub(super) struct Writes {
    pub(super) publisher: Publisher,
    pub(super) lease: Lease,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) journal: Arc<Journal>,
    pub(super) options: Options,
    pub(super) shared: Arc<Shared>,
    pub(super) asked: mpsc::Receiver<Ask>,
    pub(super) stopped: watch::Receiver<Stop>,
    pub(super) own: watch::Sender<std::collections::BTreeMap<u32, crate::model::intervals::Intervals>>,
    pub(super) is_excluded: watch::Receiver<bool>,
    pub(super) forgot: watch::Receiver<BTreeSet<u64>>,
    pub(super) is_greeted: bool,
}

impl Writes {
    pub(super) async fn run(mut self) {
        use futures_util::StreamExt;
        let timing = self.options.timing;
        let transport = Arc::clone(&self.transport);
        let origin = self.publisher.origin();
        let mut wants = transport.signals(origin);
        let mut stopped = self.stopped.clone();
        let mut urgent = tokio::time::interval(timing.urgent);
        urgent.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut blocks, mut next) = (self.journal.blocks(), tokio::time::Instant::now());
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => {
                    if *stopped.borrow() == Stop::Saying && self.is_greeted && lock(&self.shared.status).broker {
                        let _ = tokio::time::timeout(LAST_WORD, self.lease.end(&self.publisher)).await;
                    }
                    return;
                }
                ask = self.asked.recv() => {
                    match ask {
                        Some(Ask::Leave(answer)) => {
                            let _ = answer.send(self.leave().await);
                        }
                        Some(Ask::Hear(_, answer)) => drop(answer.send(Ok(()))),
                        None => return,
                    }
                }
                want = wants.next() => match want {
                    Some(Ok(want)) if self.is_greeted && !self.lease.is_lost() => {
                        let answered = self.publisher.answer(want).await;
                        self.note(answered.map(|facts| Turn { facts, ..Turn::default() }));
                    }
                    Some(Ok(_)) => {}
                    _ => {
                        tokio::time::sleep(AGAIN).await;
                        wants = transport.signals(origin);
                    }
                },
                _ = urgent.tick() => {
                    let blocked = self.journal.blocks();
                    let is_due = tokio::time::Instant::now() >= next;
                    if blocked == blocks && !is_due {
                        continue;
                    }
                    if blocked != blocks {
                        blocks = blocked;
                        // Records that are not synced would otherwise wait for the log's own interval.
                        let _ = self.journal.flush().await;
                    }
                    if is_due {
                        next = tokio::time::Instant::now() + timing.batch;
                    }
                    let turned = self.turn(is_due).await;
                    if turned.is_err() {
                        next = tokio::time::Instant::now() + AGAIN.max(timing.batch);
                    }
                    self.note(turned);
                }
            }
        }
    }

    async fn turn(&mut self, look: bool) -> Result<Turn, FleetError> {
        self.publisher.is_excluded = *self.is_excluded.borrow();
        self.publisher.forgot.clone_from(&self.forgot.borrow());
        self.publisher.general.is_wanted |= self.shared.general_is_wanted.swap(false, Ordering::Relaxed);
        if self.shared.past_is_known.swap(false, Ordering::Relaxed) {
            self.publisher.general.begin_anew();
        }
        if !self.is_greeted {
            greet(&mut self.publisher, &mut self.lease, &*self.transport).await?;
            self.is_greeted = true;
            let _ = self.own.send(self.publisher.state.own());
        }
        if look {
            self.publisher.look_at_clock().await?;
            self.lease.beat(&self.publisher).await?;
        }
        if self.lease.is_lost() {
            return Err(self.lease.held(self.publisher.origin()));
        }
        self.publisher.turn(look).await
    }

    async fn leave(&mut self) -> Result<(), FleetError> {
        let flushed = self.journal.flush().await;
        flushed.map_err(|error| FleetError::Record(error.to_string()))?;
        let turned = self.turn(true).await;
        self.note(turned.clone());
        turned?;
        if !self.publisher.is_excluded {
            self.publisher.share().await?;
            self.publisher.say_general(true).await?;
        }
        self.lease.leave(&self.publisher, &*self.transport).await
    }

    /// Records the result of a turn.
    fn note(&mut self, turned: Result<Turn, FleetError>) {
        let publisher = &self.publisher;
        {
            let mut counts = lock(&self.shared.published);
            if let Ok(turn) = &turned {
                counts.published += turn.facts;
                counts.bytes += turn.bytes;
                counts.withheld += turn.withheld;
                counts.stream_resets += turn.rewinds;
            } else {
                counts.failures += 1;
            }
            (counts.global_snapshots_published, counts.global_snapshot_bytes) = publisher.general.told;
        }
        let mut status = lock(&self.shared.status);
        status.epoch = publisher.state.fork().epoch;
        (status.position, status.published) = (publisher.durable(), publisher.state.acknowledged);
        status.snapshot_position = publisher.state.share;
        status.withheld = count(publisher.state.withheld.runs().iter().copied());
        status.clock_ahead_s = publisher.clock_ahead_ms.map(|ms| ms as f64 / 1000.0);
        status.broker = !matches!(turned, Err(FleetError::Transport(TransportError::Away(_))));
        status.stopped = match &turned {
            _ if publisher.is_excluded => Some("an operator has excluded this node".to_owned()),
            _ if publisher.is_clock_wrong() => Some("its clock is more than ten minutes off the broker's".to_owned()),
            Err(error) => Some(error.to_string()),
            Ok(_) => None,
        };
        if turned.is_err() || !publisher.is_done() {
            status.converged = false;
        }
    }
}
