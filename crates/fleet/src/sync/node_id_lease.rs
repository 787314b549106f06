//! The lease of a node id: at most one process publishes under it.
//!
//! Owns: which process that is.
//!
//! Invariants: a process that finds another one's heartbeat in the cell after its own publishes
//! nothing more. A start in the same directory takes over at once, because the directory's lock
//! admits one process only. Any other process waits to see whether the holder is alive.
//!
//! Must not know: what is published.

use std::path::Path;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::FleetError;
use crate::model::heartbeat::Heartbeat;
use crate::model::lease_proof::LeaseProof;
use crate::model::node_id::NodeId;
use crate::model::options::Options;
use crate::sync::publisher::Publisher;
use crate::transport::{Cell, Table, Transport};

/// The number of checks of a doubtful holder per lease.
const CHECKS_PER_LEASE: u32 = 30;

/// This process's claim to its node id.
#[derive(Debug)]
pub(crate) struct Lease {
    holder: String,
    directory: String,
    options: Options,
    revision: Option<u64>,
    sent_at: Option<Instant>,
    /// The last heartbeat of this process.
    last: Heartbeat,
    lost_to: Option<String>,
    /// The last heartbeat that the broker has confirmed, for leases that depend on it.
    proof: watch::Sender<Option<LeaseProof>>,
}

impl Lease {
    pub(crate) fn new(dir: &Path, options: &Options) -> Self {
        let holder = NodeId::random().to_string();
        let (directory, options, last) = (name_of(dir), options.clone(), Heartbeat::default());
        let proof = watch::Sender::new(None);
        Self {
            holder,
            directory,
            options,
            revision: None,
            sent_at: None,
            last,
            lost_to: None,
            proof,
        }
    }

    pub(crate) fn holder(&self) -> &str {
        &self.holder
    }

    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// Returns the time without a heartbeat after which a node counts as gone.
    pub(crate) fn gone_after(&self) -> std::time::Duration {
        self.options.timing.lease * 2
    }

    /// Returns the proofs that this process holds the lease.
    pub(crate) fn proofs(&self) -> watch::Receiver<Option<LeaseProof>> {
        self.proof.subscribe()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost_to.is_some()
    }

    /// Returns the error that names the holder.
    pub(crate) fn held(&self, node_id: NodeId) -> FleetError {
        FleetError::Held { node_id, place: self.lost_to.clone().unwrap_or_default() }
    }

    /// Takes the lease over from a process that is gone.
    pub(crate) async fn take(
        &mut self,
        publisher: &Publisher,
        transport: &dyn Transport,
    ) -> Result<(), FleetError> {
        let name = publisher.node_id().to_string();
        let begun = Instant::now();
        let mut before: Option<Cell> = None;
        loop {
            let cell = transport.cells().get(Table::Nodes, &name).await?;
            let holder = cell.as_ref().and_then(|cell| Heartbeat::decode(&cell.value));
            let is_ours = holder.as_ref().is_none_or(|other| other.directory == self.directory);
            let is_gone = before.is_some() && begun.elapsed() >= self.options.timing.lease;
            if is_ours || is_gone {
                let heartbeat = publisher.heartbeat(&self.holder, &self.directory);
                let sent = Instant::now();
                match publisher.beat(&heartbeat, cell.map(|cell| cell.revision)).await? {
                    Ok(revision) => {
                        self.record(revision, heartbeat, sent);
                        return Ok(());
                    }
                    // Another process was faster; check its heartbeat.
                    Err(_) => continue,
                }
            }
            let revision = cell.as_ref().map(|cell| cell.revision);
            if before.as_ref().is_some_and(|before| Some(before.revision) != revision) {
                self.lost_to = Some(holder.map(|other| other.place).unwrap_or_default());
                return Err(self.held(publisher.node_id()));
            }
            before = cell;
            tokio::time::sleep(self.options.timing.lease / CHECKS_PER_LEASE).await;
        }
    }

    /// Sends a heartbeat if one is due.
    pub(crate) async fn beat(&mut self, publisher: &Publisher) -> Result<(), FleetError> {
        match self.sent_at {
            Some(at) if at.elapsed() < self.options.timing.heartbeat => Ok(()),
            _ => self.send(publisher).await,
        }
    }

    /// Sends a last heartbeat if the position has changed, because the process ends.
    pub(crate) async fn end(&mut self, publisher: &Publisher) -> Result<(), FleetError> {
        match self.sent_at.is_none()
            || publisher.heartbeat(&self.holder, &self.directory) == self.last
        {
            true => Ok(()),
            false => self.send(publisher).await,
        }
    }

    async fn send(&mut self, publisher: &Publisher) -> Result<(), FleetError> {
        if self.is_lost() {
            return Ok(());
        }
        let heartbeat = publisher.heartbeat(&self.holder, &self.directory);
        let mut seen = self.revision;
        // Twice: the cell may hold this process's own heartbeat whose response was lost, or nothing
        // any more.
        for _ in 0..2 {
            let sent = Instant::now();
            match publisher.beat(&heartbeat, seen).await? {
                Ok(revision) => {
                    self.record(revision, heartbeat, sent);
                    return Ok(());
                }
                Err(None) => seen = None,
                Err(Some(cell)) => match Heartbeat::decode(&cell.value) {
                    Some(other) if other.holder != self.holder => {
                        self.lost_to = Some(other.place);
                        self.proof.send_replace(None);
                        return Ok(());
                    }
                    _ => seen = Some(cell.revision),
                },
            }
        }
        Ok(())
    }

    fn record(&mut self, revision: u64, heartbeat: Heartbeat, sent: Instant) {
        // Others count from the time at which the broker stored it, which is later.
        self.proof.send_replace(Some(LeaseProof { holder: self.holder.clone(), sent }));
        (self.revision, self.sent_at, self.last) =
            (Some(revision), Some(Instant::now()), heartbeat);
    }

    /// Releases the lease.
    pub(crate) async fn leave(
        &mut self,
        publisher: &Publisher,
        transport: &dyn Transport,
    ) -> Result<(), FleetError> {
        self.proof.send_replace(None);
        if let Some(revision) = self.revision.take() {
            transport
                .cells()
                .delete(Table::Nodes, &publisher.node_id().to_string(), Some(revision))
                .await?;
        }
        Ok(())
    }
}

/// Returns a unique name of the directory: machine, path and file system identity.
fn name_of(dir: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine =
        format!("{}{}", read("/etc/machine-id").trim(), read("/proc/sys/kernel/hostname").trim());
    let path = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    #[cfg(unix)]
    let place = {
        use std::os::unix::fs::MetadataExt;
        path.metadata().map_or((0, 0), |meta| (meta.dev(), meta.ino()))
    };
    #[cfg(not(unix))]
    let place = (0u64, 0u64);
    let text = format!("{machine}\n{}\n{place:?}", path.display());
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}
