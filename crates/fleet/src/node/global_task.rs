//! The read task in scope `own`: global snapshots instead of attempts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use tokio::task::JoinHandle;

use crate::error::FleetError;
use crate::node::read_task::Reads;

impl Reads {
    /// Reads until it has to start over.
    pub(super) async fn read_generals(&mut self, keeping: &mut Option<JoinHandle<()>>) -> Result<(), FleetError> {
        let transport = Arc::clone(&self.transport);
        // Exclusions and tombstones are read before any snapshot is applied.
        self.look().await?;
        let mut came = transport.generals();
        let mut stopped = self.stopped.clone();
        let mut look = tokio::time::interval(self.options.timing.look);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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
                    if std::mem::take(&mut self.consumer.has_learned_past) {
                        self.shared.past_is_known.store(true, Ordering::Relaxed);
                    }
                    self.keep(keeping);
                }
                came = came.next() => match came {
                    Some(came) => {
                        if self.consumer.general(came?).await? {
                            self.shared.general_is_wanted.store(true, Ordering::Relaxed);
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
