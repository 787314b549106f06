//! The handle of a node, from joining to leaving.
//!
//! Invariants: whatever the broker does, the crawl goes on. Nothing waits for a task except a
//! caller that asks to.
//!
//! Must not know: the content of messages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fetchwise::heuristic::url::UrlError;
use fetchwise::journal::Journal;
use fetchwise::selector::Selector;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use url::Url;

use crate::error::FleetError;
use crate::model::lease_proof::LeaseProof;
use crate::model::node_id::NodeId;
use crate::model::options::{Options, Scope, Timing};
use crate::model::position_set::Intervals;
use crate::model::rendezvous::owner;
use crate::peer_store::PeerStore;
use crate::peer_store::own_state_file::NodeState;
use crate::sync::consumer::Consumer;
use crate::sync::node_id_lease::Lease;
use crate::sync::publisher::Publisher;
use crate::sync::run_blocking;
use crate::transport::{Transport, TransportError};
use fetchwise::fleet_status::FleetStatus;

use super::shared::{COMMAND_QUEUE_LEN, Command, SharedState, StopMode, lock};
use crate::node::publish_task::{PublishTask, check_pool};
use crate::node::read_task::ReadTask;

/// Opens what the node has received from peers and teaches it to `selector`. `own` has what the
/// node itself has published.
async fn open_peers(
    dir: PathBuf,
    own: (NodeId, BTreeMap<u32, Intervals>),
    selector: &Arc<Selector>,
    scope: Scope,
) -> Result<PeerStore, FleetError> {
    let learner = Arc::clone(selector);
    let peers = run_blocking(move || PeerStore::open(&dir, own, learner)).await??;
    match peers.states.matches_scope(scope) {
        true => Ok(peers),
        false => Err(FleetError::OtherScope { ours: scope.name() }),
    }
}

/// A node that may join, before its tasks run.
struct AdmittedNode {
    publisher: Publisher,
    lease: Lease,
    consumer: Consumer,
    /// Whether the broker has answered.
    is_checked: bool,
}

impl AdmittedNode {
    /// Starts the two tasks.
    fn start(
        self,
        journal: Arc<Journal>,
        selector: Arc<Selector>,
        transport: Arc<dyn Transport>,
        options: Options,
    ) -> Fleet {
        let Self { publisher, lease, consumer, is_checked } = self;
        let node_id = publisher.node_id();
        let (proofs, timing) = (lease.proofs(), options.timing);
        let (forgets, forgot) = watch::channel(publisher.forgot.clone());
        let shared = Arc::new(SharedState::joining(node_id, &options, is_checked));
        let (stop, stopped) = watch::channel(StopMode::No);
        let ((publish, publish_commands), (consume, read_commands)) =
            (mpsc::channel(COMMAND_QUEUE_LEN), mpsc::channel(COMMAND_QUEUE_LEN));
        let (own, owns) = watch::channel(publisher.state.own());
        let (excluded, is_excluded) = watch::channel(false);
        let writes = PublishTask {
            publisher,
            lease,
            transport: Arc::clone(&transport),
            journal: Arc::clone(&journal),
            options: options.clone(),
            shared: Arc::clone(&shared),
            commands: publish_commands,
            stopped: stopped.clone(),
            own,
            is_excluded,
            forgot,
            is_checked,
        };
        let reads = ReadTask {
            consumer,
            transport,
            journal,
            options,
            shared: Arc::clone(&shared),
            commands: read_commands,
            stopped,
            owns,
            excluded,
            forgets,
            tried: None,
            tables_at: None,
        };
        let tasks = vec![tokio::spawn(writes.run()), tokio::spawn(reads.run())];
        Fleet {
            node_id,
            selector,
            shared,
            publisher: publish,
            consumer: consume,
            stop,
            proofs,
            timing,
            tasks,
        }
    }
}

/// A running node of a fleet. Dropping it stops it; nothing is lost by that.
#[derive(Debug)]
pub struct Fleet {
    node_id: NodeId,
    selector: Arc<Selector>,
    shared: Arc<SharedState>,
    publisher: mpsc::Sender<Command>,
    consumer: mpsc::Sender<Command>,
    stop: watch::Sender<StopMode>,
    proofs: watch::Receiver<Option<LeaseProof>>,
    timing: Timing,
    tasks: Vec<JoinHandle<()>>,
}

impl Fleet {
    /// Joins a fleet: teaches `selector` what this node has received from peers before, and starts
    /// to share what `journal` has. While the broker is away, the node waits for it and the crawl
    /// goes on. Call it after the journal was [loaded](fetchwise::journal::load()).
    ///
    /// # Errors
    /// [`FleetError::Held`] or [`FleetError::Differs`] when the node may not join; other errors
    /// when its files cannot be read.
    pub async fn join(
        journal: Arc<Journal>,
        selector: Arc<Selector>,
        transport: Arc<dyn Transport>,
        options: Options,
    ) -> Result<Self, FleetError> {
        let dir = journal.dir().to_owned();
        let state = NodeState::load_or_create(&dir)?;
        let node_id = state.node_id;
        let mut publisher = Publisher::new(
            Arc::clone(&journal),
            Arc::clone(&selector),
            Arc::clone(&transport),
            options.clone(),
            state,
        );
        let mut lease = Lease::new(&dir, &options);
        let is_checked = match check_pool(&mut publisher, &mut lease, &*transport).await {
            Ok(_) => true,
            Err(FleetError::Transport(TransportError::Away(_))) => false,
            Err(error) => return Err(error),
        };
        let own = (node_id, publisher.state.own());
        let peers = open_peers(dir, own, &selector, options.scope).await?;
        let own_log = (Arc::clone(&journal), Arc::clone(&selector));
        let consumer =
            Consumer::new(node_id, peers, own_log, Arc::clone(&transport), options.clone());
        publisher.forgot = consumer.tombstones();
        let admitted = AdmittedNode { publisher, lease, consumer, is_checked };
        Ok(admitted.start(journal, selector, transport, options))
    }

    /// Returns the node's id.
    pub fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// Returns the proofs that this process holds the lease of the node's id, and the time for
    /// which each one counts.
    pub fn lease(&self) -> (watch::Receiver<Option<LeaseProof>>, Duration) {
        (self.proofs.clone(), self.timing.lease)
    }

    /// Makes further heartbeats say that this node no longer fetches the links of its queue.
    pub fn leave_queue(&self) {
        self.shared.has_left_queue.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the status of the node and its peers, as of the last check.
    pub fn status(&self) -> FleetStatus {
        let mut status = lock(&self.shared.status).clone();
        let published = lock(&self.shared.published).clone();
        (status.counts.published, status.counts.bytes) = (published.published, published.bytes);
        (status.counts.withheld, status.counts.stream_resets) =
            (published.withheld, published.stream_resets);
        status.counts.failures = published.failures;
        (status.counts.global_snapshots_published, status.counts.global_snapshot_bytes) =
            (published.global_snapshots_published, published.global_snapshot_bytes);
        status
    }

    /// Returns whether everything known was published, read and learned, as of the last check.
    pub fn is_converged(&self) -> bool {
        lock(&self.shared.status).converged
    }

    /// Returns the nodes that own sites: those seen in the last ten minutes, and this one.
    pub fn nodes(&self) -> Vec<NodeId> {
        lock(&self.shared.nodes).clone()
    }

    /// Returns the node that owns a URL's site, where a crawl is divided by site. All nodes that
    /// see the same nodes return the same owner.
    ///
    /// # Errors
    /// When the URL cannot be fetched.
    pub fn owner(&self, url: &Url) -> Result<NodeId, UrlError> {
        let heuristics = self.selector.heuristics(url)?;
        let of = |kind: &str| heuristics.iter().find(|h| &*h.kind == kind).map(|h| &*h.value);
        let site = of("site").or(of("domain")).unwrap_or_default();
        Ok(owner(site, &self.nodes()).unwrap_or(self.node_id))
    }

    /// Accepts a node again that was set aside because of its clock.
    ///
    /// # Errors
    /// When this node has left.
    pub async fn readmit(&self, node_id: NodeId) -> Result<(), FleetError> {
        let (answer, answered) = oneshot::channel();
        self.consumer
            .send(Command::Readmit(node_id, answer))
            .await
            .map_err(|_| FleetError::Left)?;
        answered.await.map_err(|_| FleetError::Left)?
    }

    /// Publishes what is left and a last evidence snapshot, then leaves.
    ///
    /// # Errors
    /// When the broker does not accept it. The rest is published when the node joins the next time.
    pub async fn leave(mut self) -> Result<(), FleetError> {
        let (answer, answered) = oneshot::channel();
        self.publisher.send(Command::Leave(answer)).await.map_err(|_| FleetError::Left)?;
        let left = answered.await.map_err(|_| FleetError::Left)?;
        self.end(StopMode::Now).await;
        left
    }

    /// Stops the node and waits until it has released its files. A last heartbeat is sent if the
    /// broker responds soon.
    pub async fn stop(mut self) {
        self.end(StopMode::WithHeartbeat).await;
    }

    /// Works like [`stop`](Self::stop), without a last heartbeat.
    #[doc(hidden)]
    pub async fn crash(mut self) {
        self.end(StopMode::Now).await;
    }

    async fn end(&mut self, how: StopMode) {
        let _ = self.stop.send(how);
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The tasks end at their next step, which loses nothing that is not on disk.
        let _ = self.stop.send(StopMode::Now);
    }
}
