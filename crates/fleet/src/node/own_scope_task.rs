//! The read task in scope `own`: global snapshots instead of attempts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use tokio::task::JoinHandle;

use crate::error::FleetError;
use crate::node::read_task::ReadTask;

impl ReadTask {
    /// Reads until it has to start over.
    pub(super) async fn read_global_snapshots(
        &mut self,
        snapshot_task: &mut Option<JoinHandle<()>>,
    ) -> Result<(), FleetError> {
        let transport = Arc::clone(&self.transport);
        // Exclusions and tombstones are read before any snapshot is applied.
        self.check().await?;
        let mut came = transport.global_snapshots();
        let mut stopped = self.stopped.clone();
        let mut look = tokio::time::interval(self.options.timing.check);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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
                    if std::mem::take(&mut self.consumer.has_learned_past) {
                        self.shared.has_learned_past.store(true, Ordering::Relaxed);
                    }
                    self.start_snapshot(snapshot_task);
                    // A check that takes longer than the interval leaves time to read.
                    look.reset();
                }
                came = came.next() => match came {
                    Some(came) => {
                        if self.consumer.apply_global(came?).await? {
                            self.shared.global_is_lost.store(true, Ordering::Relaxed);
                        }
                    }
                    None => return Ok(()),
                }
            }
            if self.consumer.must_reopen {
                return Ok(());
            }
        }
    }
}
