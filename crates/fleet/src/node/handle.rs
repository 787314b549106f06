//! The handle of a node, from joining to leaving.
//!
//! Invariants: whatever the broker does, the crawl goes on. Nothing waits for a task except a caller that asks to.
//!
//! Must not know: the content of messages.

use std::sync::Arc;

use fetchwise::heuristic::url::UrlError;
use fetchwise::journal::Journal;
use fetchwise::selector::Selector;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use url::Url;

use crate::background::blocking;
use crate::error::FleetError;
use crate::model::node_id::Origin;
use crate::model::options::Options;
use crate::model::rendezvous::owner;
use crate::model::status::Status;
use crate::peer_store::Peers;
use crate::peer_store::node_state::State;
use crate::sync::consumer::Consumer;
use crate::sync::lease::Lease;
use crate::sync::publisher::Publisher;
use crate::transport::{Transport, TransportError};

use super::shared::{Ask, Shared, Stop, WAITING, lock};
use crate::node::publish_task::{Writes, greet};
use crate::node::read_task::Reads;

/// A running node of a fleet. Dropping it stops it; nothing is lost by that.
#[derive(Debug)]
pub struct Fleet {
    origin: Origin,
    selector: Arc<Selector>,
    shared: Arc<Shared>,
    publisher: mpsc::Sender<Ask>,
    consumer: mpsc::Sender<Ask>,
    stop: watch::Sender<Stop>,
    tasks: Vec<JoinHandle<()>>,
}

impl Fleet {
    /// Joins a fleet: teaches `selector` what this node has received from peers before, and starts to share what
    /// `journal` has. While the broker is away, the node waits for it and the crawl goes on. Call it after the journal
    /// was [loaded](fetchwise::journal::load()).
    ///
    /// # Errors
    /// [`FleetError::Held`] or [`FleetError::Differs`] when the node may not join; other errors when its files cannot
    /// be read.
    pub async fn join(
        journal: Arc<Journal>,
        selector: Arc<Selector>,
        transport: Arc<dyn Transport>,
        options: Options,
    ) -> Result<Self, FleetError> {
        let dir = journal.dir().to_owned();
        let state = match State::load(&dir)? {
            Some(state) => state,
            None => {
                let state = State::new(Origin::random());
                state.save(&dir)?;
                state
            }
        };
        let origin = state.origin;
        let clones = (Arc::clone(&journal), Arc::clone(&selector), Arc::clone(&transport), options.clone());
        let mut publisher = Publisher::new(clones.0, clones.1, clones.2, clones.3, state);
        let mut lease = Lease::new(&dir, &options);
        let greeted = match greet(&mut publisher, &mut lease, &*transport).await {
            Ok(_) => true,
            Err(FleetError::Transport(TransportError::Away(_))) => false,
            Err(error) => return Err(error),
        };
        let (own, learner) = ((origin, publisher.state.own()), Arc::clone(&selector));
        let peers = blocking(move || Peers::open(&dir, own, learner)).await??;
        if !peers.book.is_of(options.scope) {
            return Err(FleetError::OtherScope { ours: options.scope.name() });
        }
        let own_log = (Arc::clone(&journal), Arc::clone(&selector));
        let consumer = Consumer::new(origin, peers, own_log, Arc::clone(&transport), options.clone());
        publisher.forgot = consumer.forgot();
        let (forgets, forgot) = watch::channel(publisher.forgot.clone());
        let shared = Arc::new(Shared::default());
        {
            let mut status = lock(&shared.status);
            (status.node, status.pool) = (origin.to_string(), options.pool.clone());
            status.scope = options.scope.name().to_owned();
            (status.broker, status.syncing) = (greeted, true);
        }
        *lock(&shared.nodes) = vec![origin];
        let (stop, stopped) = watch::channel(Stop::No);
        let ((publish, asked), (consume, told)) = (mpsc::channel(WAITING), mpsc::channel(WAITING));
        let (own, owns) = watch::channel(publisher.state.own());
        let (excluded, is_excluded) = watch::channel(false);
        let writes = Writes {
            publisher,
            lease,
            transport: Arc::clone(&transport),
            journal: Arc::clone(&journal),
            options: options.clone(),
            shared: Arc::clone(&shared),
            asked,
            stopped: stopped.clone(),
            own,
            is_excluded,
            forgot,
            is_greeted: greeted,
        };
        let reads = Reads {
            consumer,
            transport,
            journal,
            options,
            shared: Arc::clone(&shared),
            told,
            stopped,
            owns,
            excluded,
            forgets,
            tried: None,
            tables_at: None,
        };
        let tasks = vec![tokio::spawn(writes.run()), tokio::spawn(reads.run())];
        Ok(Self { origin, selector, shared, publisher: publish, consumer: consume, stop, tasks })
    }

    /// Returns the node's id.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the status of the node and its peers, as of the last check.
    pub fn status(&self) -> Status {
        let mut status = lock(&self.shared.status).clone();
        let published = lock(&self.shared.published).clone();
        (status.counts.published, status.counts.bytes) = (published.published, published.bytes);
        (status.counts.withheld, status.counts.stream_resets) = (published.withheld, published.rewinds);
        status.counts.failures = published.failures;
        (status.counts.global_snapshots_published, status.counts.global_snapshot_bytes) = (published.generals_said, published.general_bytes);
        status
    }

    /// Returns whether everything known was published, read and learned, as of the last check.
    pub fn quiet(&self) -> bool {
        lock(&self.shared.status).converged
    }

    /// Returns the nodes that own sites: those seen in the last ten minutes, and this one.
    pub fn nodes(&self) -> Vec<Origin> {
        lock(&self.shared.nodes).clone()
    }

    /// Returns the node that owns a URL's site, where a crawl is divided by site. All nodes that see the same nodes
    /// return the same owner.
    ///
    /// # Errors
    /// When the URL cannot be fetched.
    pub fn owner(&self, url: &Url) -> Result<Origin, UrlError> {
        let heuristics = self.selector.heuristics(url)?;
        let of = |kind: &str| heuristics.iter().find(|h| &*h.kind == kind).map(|h| &*h.value);
        let site = of("site").or(of("domain")).unwrap_or_default();
        Ok(owner(site, &self.nodes()).unwrap_or(self.origin))
    }

    /// Accepts a node again that was set aside because of its clock.
    ///
    /// # Errors
    /// When this node has left.
    pub async fn hear(&self, origin: Origin) -> Result<(), FleetError> {
        let (answer, answered) = oneshot::channel();
        self.consumer.send(Ask::Hear(origin, answer)).await.map_err(|_| FleetError::Ended)?;
        answered.await.map_err(|_| FleetError::Ended)?
    }

    /// Publishes what is left and a last evidence snapshot, then leaves.
    ///
    /// # Errors
    /// When the broker does not accept it. The rest is published when the node joins the next time.
    pub async fn leave(mut self) -> Result<(), FleetError> {
        let (answer, answered) = oneshot::channel();
        self.publisher.send(Ask::Leave(answer)).await.map_err(|_| FleetError::Ended)?;
        let left = answered.await.map_err(|_| FleetError::Ended)?;
        self.end(Stop::Now).await;
        left
    }

    /// Stops the node and waits until it has released its files. A last heartbeat is sent if the broker responds soon.
    pub async fn stop(mut self) {
        self.end(Stop::Saying).await;
    }

    /// Works like [`stop`](Self::stop), without a last heartbeat.
    #[doc(hidden)]
    pub async fn crash(mut self) {
        self.end(Stop::Now).await;
    }

    async fn end(&mut self, how: Stop) {
        let _ = self.stop.send(how);
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The tasks end at their next step, which loses nothing that is not on disk.
        let _ = self.stop.send(Stop::Now);
    }
}
