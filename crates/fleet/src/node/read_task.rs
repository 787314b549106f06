//! The read task: where to read from, and when to start over.

use std::collections::BTreeSet;
use std::sync::Arc;

use fetchwise::journal::Journal;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::background::blocking;
use crate::error::FleetError;
use crate::model::options::Options;
use crate::sync::consumer::{Consumer, drop_shares};
use crate::transport::{Position, Transport};

use super::shared::{AGAIN, Ask, Shared, Stop, lock};

/// The read task.
pub(super) struct Reads {
    pub(super) consumer: Consumer,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) journal: Arc<Journal>,
    pub(super) options: Options,
    pub(super) shared: Arc<Shared>,
    pub(super) told: mpsc::Receiver<Ask>,
    pub(super) stopped: watch::Receiver<Stop>,
    pub(super) owns: watch::Receiver<std::collections::BTreeMap<u32, crate::model::intervals::Intervals>>,
    pub(super) excluded: watch::Sender<bool>,
    pub(super) forgets: watch::Sender<BTreeSet<u64>>,
    /// The end of the stream when a previous reader got nothing before it.
    pub(super) tried: Option<Position>,
    /// The time at which the tables were read.
    pub(super) tables_at: Option<tokio::time::Instant>,
}

impl Reads {
    pub(super) async fn run(mut self) {
        let mut keeping: Option<JoinHandle<()>> = None;
        while *self.stopped.borrow() == Stop::No {
            match self.read(&mut keeping).await {
                Ok(()) => {}
                Err(error) => {
                    self.failed(&error);
                    let mut stopped = self.stopped.clone();
                    tokio::select! { _ = tokio::time::sleep(AGAIN) => {}, _ = stopped.changed() => {} }
                }
            }
        }
        if let Some(task) = keeping {
            let _ = task.await;
        }
        if let Some(flushed) = self.consumer.flush() {
            let _ = flushed.await;
        }
    }

    fn failed(&self, error: &FleetError) {
        let mut status = lock(&self.shared.status);
        status.converged = false;
        if !matches!(error, FleetError::Transport(_)) {
            status.stopped = Some(error.to_string());
        }
    }

    /// Handles a command of the handle; returns false when no further command can come.
    pub(super) async fn answer(&mut self, ask: Option<Ask>) -> bool {
        match ask {
            Some(Ask::Hear(origin, answer)) => drop(answer.send(self.consumer.include(origin).await)),
            Some(Ask::Leave(answer)) => drop(answer.send(Ok(()))),
            None => return false,
        }
        true
    }

    /// Reads until it has to start over.
    async fn read(&mut self, keeping: &mut Option<JoinHandle<()>>) -> Result<(), FleetError> {
        use futures_util::StreamExt;
        if self.consumer.is_own() {
            return self.read_generals(keeping).await;
        }
        let timing = self.options.timing;
        let transport = Arc::clone(&self.transport);
        if self.consumer.is_starting {
            // Positions in snapshots need not be read message by message.
            self.look().await?;
        }
        let mut stream = transport.read(self.consumer.cursor());
        let mut stopped = self.stopped.clone();
        let mut look = tokio::time::interval(timing.look);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = tokio::time::Instant::now();
        self.consumer.must_reopen = false;
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => return Ok(()),
                ask = self.told.recv() => if !self.answer(ask).await {
                    return Ok(());
                },
                _ = look.tick() => {
                    self.heed_own()?;
                    self.look().await?;
                    self.keep(keeping);
                    // A reader that hangs shows by comparison with the stream's bounds.
                    if last.elapsed() >= timing.silence {
                        let bounds = transport.bounds().await?;
                        let cursor = self.consumer.cursor();
                        let end = Position { incarnation: bounds.incarnation, seq: bounds.last };
                        if end.incarnation != cursor.incarnation || end.seq >= cursor.seq.max(1) {
                            if self.tried != Some(end) {
                                self.tried = Some(end);
                                return Ok(());
                            }
                            // A second reader got nothing either: the messages have aged out or are lost. Missing
                            // positions will be requested.
                            self.consumer.pass(end)?;
                        }
                        last = tokio::time::Instant::now();
                    }
                }
                delivery = stream.next() => {
                    last = tokio::time::Instant::now();
                    match delivery {
                        Some(delivery) => self.consumer.deliver(delivery?).await?,
                        None => return Ok(()),
                    }
                }
            }
            if self.consumer.must_reopen {
                return Ok(());
            }
        }
    }

    /// Follows the node's own log into another epoch, which was found after the task began.
    pub(super) fn heed_own(&mut self) -> Result<(), FleetError> {
        if self.owns.has_changed().unwrap_or(false) {
            let own = self.owns.borrow_and_update().clone();
            self.consumer.set_own(own)?;
        }
        Ok(())
    }

    pub(super) async fn look(&mut self) -> Result<(), FleetError> {
        if self.tables_at.is_none_or(|at| at.elapsed() >= self.options.timing.tables) {
            self.consumer.look().await?;
            self.tables_at = Some(tokio::time::Instant::now());
        }
        self.consumer.mend().await?;
        let _ = self.excluded.send_replace(self.consumer.is_excluded);
        let forgot = self.consumer.forgot();
        let has_forgotten = self.forgets.send_replace(forgot.clone()) != forgot;
        *lock(&self.shared.nodes) = self.consumer.owners();
        let bounds = self.transport.bounds().await?;
        let cursor = self.consumer.cursor();
        let is_read = self.consumer.is_own()
            || bounds.last == 0
            || bounds.incarnation == cursor.incarnation && bounds.last < cursor.seq;
        let mut status = lock(&self.shared.status);
        status.forgot += u64::from(has_forgotten);
        status.peers = self.consumer.status();
        status.handover_pending = self.consumer.moving();
        (status.links, status.links_waiting) = self.consumer.links();
        (status.excluded, status.syncing) = (self.consumer.is_excluded, self.consumer.is_starting);
        let is_published = status.published + 1 >= self.journal.next_seq() || self.consumer.is_excluded;
        status.converged = status.broker && is_read && is_published && self.consumer.is_quiet();
        status.counts = self.consumer.counts.clone();
        Ok(())
    }

    /// Starts a snapshot of `peers/` in the background, if one is due.
    pub(super) fn keep(&mut self, keeping: &mut Option<JoinHandle<()>>) {
        if keeping.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Some(keeper) = self.consumer.keeper() {
            let ((now, own), flushed) = (self.consumer.own_time(), self.consumer.flush());
            let transport = Arc::clone(&self.transport);
            self.consumer.was_kept();
            *keeping = Some(tokio::spawn(async move {
                if let Some(flushed) = flushed {
                    let _ = flushed.await;
                }
                // A failed snapshot is tried again after the next interval.
                if let Ok(Ok((_, faded))) = blocking(move || keeper.keep(now)).await {
                    let _ = drop_shares(&*transport, own, faded).await;
                }
            }));
        }
    }
}
