//! The read task: where to read from, and when to start over.

use std::collections::BTreeSet;
use std::sync::Arc;

use fetchwise::journal::Journal;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::error::FleetError;
use crate::model::options::Options;
use crate::sync::consumer::{Consumer, delete_faded_snapshots};
use crate::sync::{run_blocking, synced};
use crate::transport::{Position, Transport};

use super::shared::{Command, RETRY_INTERVAL, SharedState, StopMode, lock};

/// The read task.
pub(super) struct ReadTask {
    pub(super) consumer: Consumer,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) journal: Arc<Journal>,
    pub(super) options: Options,
    pub(super) shared: Arc<SharedState>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) stopped: watch::Receiver<StopMode>,
    pub(super) owns:
        watch::Receiver<std::collections::BTreeMap<u32, crate::model::position_set::Intervals>>,
    pub(super) excluded: watch::Sender<bool>,
    pub(super) forgets: watch::Sender<BTreeSet<u64>>,
    /// The end of the stream when a previous reader got nothing before it.
    pub(super) tried: Option<Position>,
    /// The time at which the tables were read.
    pub(super) tables_at: Option<tokio::time::Instant>,
}

impl ReadTask {
    pub(super) async fn run(mut self) {
        let mut snapshot_task: Option<JoinHandle<()>> = None;
        while *self.stopped.borrow() == StopMode::No {
            match self.read(&mut snapshot_task).await {
                Ok(()) => {}
                Err(error) => {
                    self.failed(&error);
                    let mut stopped = self.stopped.clone();
                    tokio::select! { _ = tokio::time::sleep(RETRY_INTERVAL) => {}, _ = stopped.changed() => {} }
                }
            }
        }
        if let Some(task) = snapshot_task {
            let _ = task.await;
        }
        if let Some(flushed) = self.consumer.flush() {
            let _ = synced(flushed).await;
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
    pub(super) async fn handle(&mut self, command: Option<Command>) -> bool {
        match command {
            Some(Command::Readmit(node_id, answer)) => {
                drop(answer.send(self.consumer.include(node_id).await))
            }
            Some(Command::Leave(answer)) => drop(answer.send(Ok(()))),
            None => return false,
        }
        true
    }

    /// Reads until it has to start over.
    async fn read(&mut self, snapshot_task: &mut Option<JoinHandle<()>>) -> Result<(), FleetError> {
        use futures_util::StreamExt;
        if self.consumer.is_own() {
            return self.read_global_snapshots(snapshot_task).await;
        }
        let timing = self.options.timing;
        let transport = Arc::clone(&self.transport);
        if self.consumer.is_starting {
            // Positions in snapshots need not be read message by message.
            self.check().await?;
        }
        let mut stream = transport.read(self.consumer.cursor());
        let mut stopped = self.stopped.clone();
        let mut look = tokio::time::interval(timing.check);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = tokio::time::Instant::now();
        self.consumer.must_reopen = false;
        loop {
            tokio::select! {
                biased;
                _ = stopped.changed() => return Ok(()),
                command = self.commands.recv() => if !self.handle(command).await {
                    return Ok(());
                },
                _ = look.tick() => {
                    self.follow_own_epoch()?;
                    self.check().await?;
                    self.start_snapshot(snapshot_task);
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
                            // A second reader got nothing either: the messages have aged out or are
                            // lost. Missing positions will be requested.
                            self.consumer.skip_to(end)?;
                        }
                        last = tokio::time::Instant::now();
                    }
                    // A check that takes longer than the interval leaves time to read.
                    look.reset();
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
    pub(super) fn follow_own_epoch(&mut self) -> Result<(), FleetError> {
        if self.owns.has_changed().unwrap_or(false) {
            let own = self.owns.borrow_and_update().clone();
            self.consumer.set_own(own)?;
        }
        Ok(())
    }

    pub(super) async fn check(&mut self) -> Result<(), FleetError> {
        if self.tables_at.is_none_or(|at| at.elapsed() >= self.options.timing.tables) {
            self.consumer.check_tables().await?;
            self.tables_at = Some(tokio::time::Instant::now());
        }
        self.consumer.repair_gaps().await?;
        let _ = self.excluded.send_replace(self.consumer.is_excluded);
        let forgot = self.consumer.tombstones();
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
        status.handover_pending = self.consumer.handover_pending();
        (status.links, status.links_waiting) = self.consumer.links();
        (status.excluded, status.syncing) = (self.consumer.is_excluded, self.consumer.is_starting);
        let is_published =
            status.published + 1 >= self.journal.next_seq() || self.consumer.is_excluded;
        status.converged = status.broker && is_read && is_published && self.consumer.is_converged();
        status.counts = self.consumer.counts.clone();
        Ok(())
    }

    /// Starts a snapshot of `peers/` in the background, if one is due.
    pub(super) fn start_snapshot(&mut self, snapshot_task: &mut Option<JoinHandle<()>>) {
        if snapshot_task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Some(snapshotter) = self.consumer.due_snapshotter() {
            let ((now, own), flushed) = (self.consumer.own_time(), self.consumer.flush());
            let transport = Arc::clone(&self.transport);
            self.consumer.record_snapshot();
            *snapshot_task = Some(tokio::spawn(async move {
                if let Some(flushed) = flushed {
                    let _ = synced(flushed).await;
                }
                // A failed snapshot is tried again after the next interval.
                if let Ok(Ok((_, faded))) =
                    run_blocking(move || snapshotter.take_snapshot(now)).await
                {
                    let _ = delete_faded_snapshots(&*transport, own, faded).await;
                }
            }));
        }
    }
}
