//! The task that takes sites of a work queue, delivers their links, and gives both back.
//!
//! Owns: which sites this node works on.
//!
//! Invariants: nothing is delivered and no site is taken when the last confirmed heartbeat is older
//! than two thirds of its lease. The crawl is told to stop then, and to abandon open requests a
//! little later, before another node may take the sites. A site is given back once the broker has
//! removed what is acknowledged; otherwise those links come again marked. At most `max_links` links
//! are given out. Nothing waits for a message that no node reads. A cell that names this process
//! without need is freed: the process lives on, so no other node would ever take that site. A crawl
//! that has no link left does not wait without end for requests that fail: it gets the error.
//!
//! Must not know: what a link is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::selector::Selector;
use futures_util::future::BoxFuture;
use futures_util::stream;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, timeout, timeout_at};

use super::held_site::HeldSite;
use super::pace_handover;
use super::site_lease::{LiveNodes, SiteLease};
use crate::model::heartbeat::Heartbeat;
use crate::model::lease_proof::LeaseProof;
use crate::model::node_id::NodeId;
use crate::model::rendezvous::owner;
use crate::transport::{
    QUEUE_SHARDS, QueueSites, QueuedMessage, SwapOutcome, Table, Transport, TransportError,
    WorkQueues,
};

/// The interval between two steps.
const STEP: Duration = Duration::from_millis(100);
/// The interval at which sites are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// The interval at which nodes are listed.
const LIST: Duration = Duration::from_secs(3);
/// The interval at which the paces of a site are written to its cell.
const PACE_INTERVAL: Duration = Duration::from_secs(20);
/// The number of cells that are written in one step.
const MAX_WRITTEN: usize = 256;
/// The interval at which a cell is written even if nothing has changed, because cells age out.
const CELL_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of concurrent requests.
const MAX_REQUESTS: usize = 32;
/// The number of sites up to which all of them are listed at once.
const MAX_LISTED: u64 = 5_000;
/// The number of sites that are taken in one step.
const MAX_TAKEN: usize = 64;
/// The number of links that each site may have, however many sites there are.
const MIN_SITE_LINKS: usize = 4;
/// The time for the last acknowledgements, and for giving the sites back.
const STOP_TIME: Duration = Duration::from_secs(5);
/// The time for the broker to remove what is acknowledged, before the site is given back anyway.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// The time for which a crawl without a link waits while requests about sites fail although its
/// lease is confirmed. Brokers elect their leaders within a fraction of it.
const STALL_TIME: Duration = Duration::from_secs(5 * 60);
/// The same if trying again does not help, as far as the error says.
const REFUSED_TIME: Duration = Duration::from_secs(10);
/// The number of tries to acknowledge a link of a site that this node no longer holds.
const LATE_TRIES: u32 = 20;

/// The options of a reader.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// The queue.
    pub queue: String,
    /// The maximum number of links that are given out.
    pub max_links: usize,
    /// The maximum number of sites that are held.
    pub max_sites: usize,
    /// The maximum number of links of one site that are given out.
    pub max_site_links: usize,
}

/// A link of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLink {
    /// Its position in the queue.
    pub seq: u64,
    /// The content, as it was enqueued.
    pub body: Bytes,
    /// Whether a result may have been written before, by a node that did not acknowledge it.
    pub is_redelivered: bool,
    holding: u64,
    receipt: String,
}

/// What a reader tells the crawl.
#[derive(Debug)]
pub enum QueueEvent {
    /// Links to fetch.
    Links(Arc<str>, Vec<QueueLink>),
    /// No further link of this site may be started: those that wait are to be
    /// [dropped](QueueReader::dropped).
    Withdrawn(Arc<str>),
    /// Nothing of this site may go on, not even open requests: another node may take the site.
    Revoked(Arc<str>),
    /// The queue has no links that a node could fetch, neither here nor at other nodes.
    Drained {
        /// The number of messages that stay in the queue because no node reads them: they belong to
        /// no site.
        unreadable: u64,
    },
    /// The queue cannot be read: trying again does not help, or has not helped for some minutes
    /// while there was nothing else to do.
    Failed(TransportError),
}

enum Command {
    Written(Unacknowledged),
    Dropped(Arc<str>, u64, u64),
    Host(Arc<str>, Box<str>),
    Stop(oneshot::Sender<()>),
}

/// A node's reader of a work queue. Dropping it stops it without giving its sites back.
#[derive(Debug)]
pub struct QueueReader {
    events: mpsc::UnboundedReceiver<QueueEvent>,
    commands: mpsc::UnboundedSender<Command>,
    left: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// The number of left links before the queue was first read.
const UNKNOWN: u64 = u64::MAX;

impl QueueReader {
    /// Starts to read a queue as the node `node_id`, whose [lease](crate::Fleet::lease) is given.
    /// Needs a tokio runtime.
    pub fn start(
        transport: Arc<dyn Transport>,
        selector: Arc<Selector>,
        node_id: NodeId,
        lease: (watch::Receiver<Option<LeaseProof>>, Duration),
        options: QueueOptions,
    ) -> Self {
        let (to, events) = mpsc::unbounded_channel();
        let (commands, from) = mpsc::unbounded_channel();
        let (proofs, lease) = lease;
        let left = Arc::new(AtomicU64::new(UNKNOWN));
        let reader = Reader {
            left: Arc::clone(&left),
            transport,
            selector,
            node_id,
            proofs,
            lease,
            options,
            events: to,
            held: HashMap::new(),
            holdings: 0,
            unreturned: HashMap::new(),
            unacknowledged: Vec::new(),
            nodes: LiveNodes::default(),
            looked: None,
            is_idle: false,
            listed: None,
            shard: node_id.as_bytes()[0] % QUEUE_SHARDS,
            stalled: None,
            refused: None,
        };
        Self { events, commands, left, task: tokio::spawn(reader.run(from)) }
    }

    /// Returns the next event; none after the end of the task. Cancel safe.
    pub async fn next(&mut self) -> Option<QueueEvent> {
        self.events.recv().await
    }

    /// Returns the next event if there is one now.
    pub fn try_next(&mut self) -> Option<QueueEvent> {
        self.events.try_recv().ok()
    }

    /// Returns the number of links of the queue without a result, at all nodes, as it was some
    /// seconds ago; none before the queue was read.
    pub fn left(&self) -> Option<u64> {
        let left = self.left.load(Ordering::Relaxed);
        (left != UNKNOWN).then_some(left)
    }

    /// Acknowledges a link: its result is written.
    pub fn written(&self, site: &Arc<str>, link: &QueueLink) {
        let message =
            QueuedMessage { seq: link.seq, body: Bytes::new(), receipt: link.receipt.clone() };
        let link =
            Unacknowledged { site: Arc::clone(site), holding: link.holding, message, tries: 0 };
        drop(self.commands.send(Command::Written(link)));
    }

    /// Gives a link back without a result.
    pub fn dropped(&self, site: &Arc<str>, link: &QueueLink) {
        drop(self.commands.send(Command::Dropped(Arc::clone(site), link.holding, link.seq)));
    }

    /// Names a host of a site, whose pace is handed over with the site.
    pub fn host(&self, site: &Arc<str>, host: &str) {
        drop(self.commands.send(Command::Host(Arc::clone(site), host.into())));
    }

    /// Acknowledges what was written, gives all sites back, and ends.
    pub async fn stop(mut self) {
        let (done, is_done) = oneshot::channel();
        if self.commands.send(Command::Stop(done)).is_ok() {
            let _ = is_done.await;
        }
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for QueueReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A link whose result is written, until the broker has removed it.
#[derive(Clone, Debug)]
struct Unacknowledged {
    site: Arc<str>,
    holding: u64,
    message: QueuedMessage,
    tries: u32,
}

/// What became of taking a site.
enum TakenSite {
    Held(Box<HeldSite>),
    /// Another process holds it.
    OfAnother,
    /// The cell has changed meanwhile.
    Contested,
}

/// What became of giving a site back.
enum ReleasedSite {
    Free(Arc<str>),
    /// The broker still has links of it that are acknowledged.
    Unsettled,
}

/// The failure of some requests: one for which trying again does not help, or the first one.
#[derive(Debug, Default)]
struct FirstFailure(Option<TransportError>);

impl FirstFailure {
    fn add(&mut self, result: Result<(), TransportError>) {
        if let Err(error) = result
            && self.0.as_ref().is_none_or(|known| error.is_lasting() && !known.is_lasting())
        {
            self.0 = Some(error);
        }
    }

    fn into_result(self) -> Result<(), TransportError> {
        self.0.map_or(Ok(()), Err)
    }
}

struct Reader {
    /// The number of links of the queue without a result, of all nodes.
    left: Arc<AtomicU64>,
    transport: Arc<dyn Transport>,
    selector: Arc<Selector>,
    node_id: NodeId,
    proofs: watch::Receiver<Option<LeaseProof>>,
    lease: Duration,
    options: QueueOptions,
    events: mpsc::UnboundedSender<QueueEvent>,
    held: HashMap<Arc<str>, HeldSite>,
    /// The number of sites that were taken so far.
    holdings: u64,
    /// The sites that this node does not work on although their cells may name it, and since when.
    unreturned: HashMap<Arc<str>, Instant>,
    unacknowledged: Vec<Unacknowledged>,
    nodes: LiveNodes,
    /// The time of the last look at sites.
    looked: Option<Instant>,
    /// Whether the last look found nothing to do.
    is_idle: bool,
    /// The time at which the nodes were listed.
    listed: Option<Instant>,
    /// The next shard to look for sites.
    shard: u8,
    /// The time since which requests have failed while the crawl has no link.
    stalled: Option<Instant>,
    /// The time since which they have been refused without a break.
    refused: Option<Instant>,
}

impl Reader {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut steps = tokio::time::interval(STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Stop(done)) => {
                        self.stop().await;
                        let _ = done.send(());
                        return;
                    }
                    Some(command) => self.take_command(command),
                    None => return,
                },
                _ = steps.tick() => {
                    let Some((work_until, holder)) = self.check_lease() else { continue };
                    // A step that takes longer is cut off: the crawl has to be told in time.
                    let step = timeout_at(work_until, self.step(&holder)).await;
                    if let Ok(Err(error)) = step {
                        drop(self.events.send(QueueEvent::Failed(error)));
                        return;
                    }
                }
            }
        }
    }

    fn take_command(&mut self, command: Command) {
        match command {
            Command::Written(link) => self.unacknowledged.push(link),
            Command::Dropped(site, holding, seq) => {
                if let Some(held) = self.held.get_mut(&site) {
                    held.take_back(holding, seq);
                }
            }
            Command::Host(site, host) => {
                if let Some(held) = self.held.get_mut(&site) {
                    held.add_host(host);
                }
            }
            Command::Stop(_) => {}
        }
    }

    /// Returns until when this node may work on its sites, and the name of its process. Otherwise
    /// tells the crawl to stop.
    fn check_lease(&mut self) -> Option<(Instant, String)> {
        let (proof, now) = (self.proofs.borrow().clone(), Instant::now());
        let since = |proof: &LeaseProof| now.saturating_duration_since(proof.sent);
        match proof {
            Some(proof) if since(&proof) < self.lease * 2 / 3 => {
                return Some((proof.sent + self.lease * 2 / 3, proof.holder));
            }
            Some(proof) if since(&proof) < self.lease * 5 / 6 => {
                let all: Vec<_> = self.held.keys().cloned().collect();
                all.iter().for_each(|site| self.withdraw(site));
            }
            _ => {
                for (site, _) in self.held.drain() {
                    self.unreturned.insert(Arc::clone(&site), now);
                    drop(self.events.send(QueueEvent::Revoked(site)));
                }
                (self.looked, self.listed) = (None, None);
                (self.stalled, self.refused) = (None, None);
            }
        }
        None
    }

    fn withdraw(&mut self, site: &Arc<str>) {
        if let Some(held) = self.held.get_mut(site)
            && !std::mem::replace(&mut held.is_withdrawn, true)
        {
            drop(self.events.send(QueueEvent::Withdrawn(Arc::clone(site))));
        }
    }

    /// Does all that is due.
    ///
    /// # Errors
    /// What keeps the crawl from going on.
    async fn step(&mut self, holder: &str) -> Result<(), TransportError> {
        let transport = Arc::clone(&self.transport);
        let queues = transport.work_queues().ok_or_else(no_queues)?;
        // A site whose requests fail does not keep this node from others.
        let mut failed = FirstFailure::default();
        failed.add(self.acknowledge(queues).await);
        failed.add(self.release_sites(queues, holder).await.1.into_result());
        let pulled = self.pull(queues).await;
        if pulled.as_ref().is_err_and(TransportError::is_lasting) {
            return pulled;
        }
        failed.add(pulled);
        let looks = self.looked.is_none_or(|at| at.elapsed() >= LOOK);
        if looks {
            match self.look(queues, holder).await {
                Err(error) if error.is_lasting() => return Err(error),
                looked => failed.add(looked.and_then(FirstFailure::into_result)),
            }
            self.write_paces(holder).await;
            self.looked = Some(Instant::now());
        }
        self.check_progress(failed, looks)
    }

    /// Returns the failure of requests about sites that ends the reading, if there is one.
    /// `is_whole` is whether a step without a failure has tried everything.
    fn check_progress(
        &mut self,
        FirstFailure(failed): FirstFailure,
        is_whole: bool,
    ) -> Result<(), TransportError> {
        let given: usize = self.held.values().map(|held| held.given.len()).sum();
        let is_given = |link: &&Unacknowledged| {
            let held = self.held.get(&link.site).filter(|held| held.holding == link.holding);
            held.is_some_and(|held| held.given.contains(&link.message.seq))
        };
        let has_links = given > self.unacknowledged.iter().filter(is_given).count();
        match failed {
            // The crawl goes on.
            _ if has_links => (self.stalled, self.refused) = (None, None),
            Some(error) => {
                let now = Instant::now();
                let stalled = *self.stalled.get_or_insert(now);
                // A refusal after a time away is a new fault.
                self.refused = if error.is_lasting() { self.refused.or(Some(now)) } else { None };
                let is_refused = self.refused.is_some_and(|since| since.elapsed() >= REFUSED_TIME);
                if is_refused || stalled.elapsed() >= STALL_TIME {
                    return Err(error);
                }
            }
            None if is_whole => (self.stalled, self.refused) = (None, None),
            None => {}
        }
        Ok(())
    }

    /// Acknowledges the links whose results are written.
    ///
    /// # Errors
    /// Those of links that are tried again.
    async fn acknowledge(&mut self, queues: &dyn WorkQueues) -> Result<(), TransportError> {
        let queue = self.options.queue.clone();
        let queue = queue.as_str();
        let ask = |link: Unacknowledged| {
            async move {
                let acknowledged = queues.acknowledge(queue, &link.message).await;
                (link, acknowledged)
            }
            .boxed()
        };
        let asked = self.unacknowledged.iter().cloned().map(ask).collect();
        let mut failed = FirstFailure::default();
        for (link, acknowledged) in all(asked).await {
            let is_done = acknowledged.is_ok();
            failed.add(acknowledged);
            let is_same = |other: &Unacknowledged| {
                other.holding == link.holding && other.message == link.message
            };
            let place = self.unacknowledged.iter().position(is_same);
            let is_given = |held: &&mut HeldSite| {
                held.holding == link.holding && held.given.contains(&link.message.seq)
            };
            let held = self.held.get_mut(&link.site).filter(is_given);
            let Some(place) = place else { continue };
            match held {
                Some(held) if is_done => {
                    held.acknowledge(link.holding, link.message.seq);
                    self.unacknowledged.swap_remove(place);
                }
                None if is_done || link.tries >= LATE_TRIES => {
                    drop(self.unacknowledged.swap_remove(place))
                }
                _ => self.unacknowledged[place].tries += 1,
            }
        }
        failed.into_result()
    }

    /// Gives back the sites without links. Returns whether some are left to a later step, because
    /// the broker has not yet removed what is acknowledged: another node could get it again.
    /// Returns the failure of others, too, which are given back later.
    async fn release_sites(
        &mut self,
        queues: &dyn WorkQueues,
        holder: &str,
    ) -> (bool, FirstFailure) {
        let now = Instant::now();
        let mut done = Vec::new();
        for (site, held) in self.held.iter_mut().filter(|(_, held)| held.is_done()).take(MAX_TAKEN)
        {
            held.settling.get_or_insert(now);
            done.push(Arc::clone(site));
        }
        let mut giving = Vec::new();
        for site in &done {
            giving.push(self.release_site(queues, site, holder).boxed());
        }
        let given: Vec<_> = all(giving).await;
        let (mut is_waiting, mut failed) = (false, FirstFailure::default());
        for released in given {
            match released {
                Ok(ReleasedSite::Free(site)) => drop(self.held.remove(&site)),
                Ok(ReleasedSite::Unsettled) => is_waiting = true,
                Err(error) => failed.add(Err(error)),
            }
        }
        (is_waiting, failed)
    }

    /// Gives a site back, unless the broker still has links of it that are acknowledged. If it
    /// keeps them for too long, they count as uncertain.
    async fn release_site(
        &self,
        queues: &dyn WorkQueues,
        site: &Arc<str>,
        holder: &str,
    ) -> Result<ReleasedSite, TransportError> {
        if let Some(held) = self.held.get(site) {
            let mut uncertain = self.uncertain(held);
            if held.acknowledged > 0
                && !queues.is_settled(&self.options.queue, site).await.unwrap_or(false)
            {
                if held.settling.is_none_or(|since| since.elapsed() < SETTLE_TIME) {
                    return Ok(ReleasedSite::Unsettled);
                }
                uncertain.insert(self.options.queue.clone(), held.uncertain.max(held.acknowledged));
            }
            queues.close(&self.options.queue, site).await?;
            let paces = pace_handover::paces(&self.selector, site, &held.hosts);
            let lease = SiteLease { paces, uncertain, ..SiteLease::default() }.encode();
            let cells = self.transport.cells();
            // If another node holds it, there is nothing to give back.
            if let SwapOutcome::Lost(Some(cell)) =
                cells.swap(Table::Sites, site, Some(held.revision), lease.clone()).await?
                && SiteLease::decode(&cell.value).is_of(self.node_id, holder)
            {
                // Its own write, whose response was lost.
                cells.swap(Table::Sites, site, Some(cell.revision), lease).await?;
            }
        }
        Ok(ReleasedSite::Free(Arc::clone(site)))
    }

    /// Frees the cells that name this process although it does not work on their sites: their
    /// leases were over, or the response to a write was lost. What was delivered before stays
    /// uncertain.
    async fn return_sites(&mut self, holder: &str) {
        // Open requests have ended by then, as before another node takes the sites of one that is
        // gone.
        let rest = self.lease / 3;
        let held = &self.held;
        self.unreturned.retain(|site, _| !held.contains_key(site));
        let due = self
            .unreturned
            .iter()
            .filter(|(_, since)| since.elapsed() >= rest)
            .map(|(site, _)| site);
        let due: Vec<_> = due.take(MAX_WRITTEN).cloned().collect();
        let (cells, node_id) = (self.transport.cells(), self.node_id);
        let mut returning = Vec::new();
        for site in due {
            let returned = async move {
                let Some(cell) = cells.get(Table::Sites, &site).await? else { return Ok(site) };
                let lease = SiteLease::decode(&cell.value);
                if lease.is_of(node_id, holder) {
                    let free = SiteLease { node: String::new(), holder: String::new(), ..lease };
                    if let SwapOutcome::Lost(_) =
                        cells.swap(Table::Sites, &site, Some(cell.revision), free.encode()).await?
                    {
                        return Err(TransportError::Away("the cell has changed".to_owned()));
                    }
                }
                Ok::<_, TransportError>(site)
            };
            returning.push(returned.boxed());
        }
        // Those that cannot be written now are tried again.
        for site in all(returning).await.into_iter().flatten() {
            self.unreturned.remove(&site);
        }
    }

    fn uncertain(&self, held: &HeldSite) -> BTreeMap<String, u64> {
        let of = |seq| (self.options.queue.clone(), seq);
        (held.uncertain > 0).then(|| of(held.uncertain)).into_iter().collect()
    }

    /// Delivers further links of the sites that have few.
    async fn pull(&mut self, queues: &dyn WorkQueues) -> Result<(), TransportError> {
        let now = Instant::now();
        let given: usize = self.held.values().map(|held| held.given.len()).sum();
        let mut room = self.options.max_links.saturating_sub(given);
        // Many sites share the room, so that none of them waits for links of slow ones.
        let share = self.options.max_links / self.held.len().max(1);
        let max = share.clamp(MIN_SITE_LINKS, self.options.max_site_links.max(MIN_SITE_LINKS));
        let mut wanted = Vec::new();
        for (site, held) in &self.held {
            if room > 0 && held.wants_links(max, now) {
                let count = max.saturating_sub(held.given.len()).min(room);
                room -= count;
                wanted.push((Arc::clone(site), count));
            }
        }
        let queue = self.options.queue.clone();
        let queue = queue.as_str();
        let mut pulling = Vec::new();
        for (site, count) in wanted {
            let links = async move {
                let links = match queues.pull(queue, &site, count).await {
                    // Somebody has closed it. What is given out comes again.
                    Err(TransportError::NoQueue(_)) => {
                        queues.open(queue, &site).await.map(|()| None)
                    }
                    links => links.map(Some),
                };
                (site, links)
            };
            pulling.push(links.boxed());
        }
        let mut failed = FirstFailure::default();
        for (site, links) in all(pulling).await {
            let Some(held) = self.held.get_mut(&site) else { continue };
            match links {
                Ok(None) => {}
                Ok(Some(links)) if links.is_empty() => held.empty_at = Some(now),
                Ok(Some(mut links)) => {
                    held.empty_at = None;
                    links.retain(|link| !held.given.contains(&link.seq));
                    held.given.extend(links.iter().map(|link| link.seq));
                    let (uncertain, holding) = (held.uncertain, held.holding);
                    let link = |QueuedMessage { seq, body, receipt }| QueueLink {
                        seq,
                        body,
                        receipt,
                        holding,
                        is_redelivered: seq <= uncertain,
                    };
                    let links: Vec<QueueLink> = links.into_iter().map(link).collect();
                    if !links.is_empty() {
                        drop(self.events.send(QueueEvent::Links(site, links)));
                    }
                }
                Err(error) => failed.add(Err(error)),
            }
        }
        failed.into_result()
    }

    /// Lists the nodes, gives up the sites that belong to another one, and takes free ones. Returns
    /// the failure of sites that cannot be taken now.
    async fn look(
        &mut self,
        queues: &dyn WorkQueues,
        holder: &str,
    ) -> Result<FirstFailure, TransportError> {
        if self.listed.is_none_or(|at| at.elapsed() >= LIST) {
            let away = || TransportError::Away("the broker does not report its time".to_owned());
            // The time first, so that no heartbeat looks older than it is.
            let now = self.transport.now().await?.ok_or_else(away)?;
            let mut beats = Vec::new();
            for (node, cell) in self.transport.cells().list(Table::Nodes).await? {
                beats.extend(Heartbeat::decode(&cell.value).map(|beat| (node, beat, cell.at)));
            }
            self.nodes = LiveNodes::new(beats, now);
            self.listed = Some(Instant::now());
        }
        let mut workers = self.nodes.workers(&self.options.queue, self.lease);
        if !workers.contains(&self.node_id) {
            workers.push(self.node_id);
        }
        let node_id = self.node_id;
        let is_own = |site: &str| owner(site, &workers) == Some(node_id);
        let moved: Vec<_> = self.held.keys().filter(|site| !is_own(site)).cloned().collect();
        moved.iter().for_each(|site| self.withdraw(site));
        self.return_sites(holder).await;
        let content = queues.content(&self.options.queue).await?;
        // Only shown: an old value misleads nobody for longer than a second.
        self.left.store(content.links, Ordering::Relaxed);
        if content.links == 0 {
            self.drained(0);
            return Ok(FirstFailure::default());
        }
        let room = self.options.max_sites.saturating_sub(self.held.len()).min(MAX_TAKEN);
        if room == 0 {
            return Ok(FirstFailure::default());
        }
        // Messages that no node reads are on subjects of any kind, and in no shard: an idle node
        // looks for them everywhere.
        let lists_all = content.sites <= MAX_LISTED || self.is_idle;
        let free = self.free_sites(queues, room, lists_all, is_own).await?;
        self.is_idle = free.is_empty() && self.held.is_empty();
        Ok(self.take_sites(queues, free, holder).await)
    }

    /// Takes sites. Returns the failure of those that cannot be taken now, which are tried again.
    async fn take_sites(
        &mut self,
        queues: &dyn WorkQueues,
        free: Vec<String>,
        holder: &str,
    ) -> FirstFailure {
        let now = Instant::now();
        let mut taking = Vec::new();
        for site in free {
            // Until it is known whether the cell was written.
            let site: Arc<str> = Arc::from(site);
            self.unreturned.entry(Arc::clone(&site)).or_insert(now);
            self.holdings += 1;
            taking.push((site, self.holdings));
        }
        let taken = all(taking
            .iter()
            .map(|(site, holding)| {
                let taken = self.take_site(queues, site, *holding, holder);
                async move { (Arc::clone(site), taken.await) }.boxed()
            })
            .collect())
        .await;
        let mut failed = FirstFailure::default();
        for (site, taken) in taken {
            match taken {
                Ok(TakenSite::Held(held)) => {
                    self.unreturned.remove(&site);
                    self.held.insert(site, *held);
                }
                Ok(TakenSite::OfAnother) => drop(self.unreturned.remove(&site)),
                Ok(TakenSite::Contested) => failed.add(Err(TransportError::Away(format!(
                    "the lease of {site} changes while this node takes it"
                )))),
                Err(error) => failed.add(Err(error)),
            }
        }
        failed
    }

    /// Returns sites of the queue that belong to this node, about `room` of them. `lists_all` is
    /// whether to ask for all sites at once.
    async fn free_sites(
        &mut self,
        queues: &dyn WorkQueues,
        room: usize,
        lists_all: bool,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, TransportError> {
        let mut free: Vec<String> = Vec::new();
        let shards = if lists_all { 1 } else { QUEUE_SHARDS };
        for _ in 0..shards {
            let shard = (!lists_all).then_some(self.shard);
            self.shard = (self.shard + 1) % QUEUE_SHARDS;
            let QueueSites { sites, unreadable } = queues.sites(&self.options.queue, shard).await?;
            if lists_all && sites.is_empty() && unreadable > 0 {
                self.drained(unreadable);
            }
            free.extend(
                sites
                    .into_iter()
                    .filter(|site| is_own(site) && !self.held.contains_key(site.as_str())),
            );
            if free.len() >= room {
                break;
            }
        }
        free.truncate(room);
        Ok(free)
    }

    /// Tells the crawl that the queue has nothing to fetch, unless this node still has something to
    /// give back.
    fn drained(&self, unreadable: u64) {
        if self.held.is_empty() && self.unacknowledged.is_empty() {
            drop(self.events.send(QueueEvent::Drained { unreadable }));
        }
    }

    /// Takes a site, unless another process holds it.
    async fn take_site(
        &self,
        queues: &dyn WorkQueues,
        site: &str,
        holding: u64,
        holder: &str,
    ) -> Result<TakenSite, TransportError> {
        let (queue, cells) = (&self.options.queue, self.transport.cells());
        let cell = cells.get(Table::Sites, site).await?;
        let before = cell.as_ref().map(|cell| SiteLease::decode(&cell.value)).unwrap_or_default();
        let own = self.node_id.to_string();
        let is_own = before.is_of(self.node_id, holder);
        if !is_own && self.nodes.is_held(&before, self.lease) {
            return Ok(TakenSite::OfAnother);
        }
        // What was delivered to a process that did not give the site back may have a result.
        let delivered = queues.delivered(queue, site).await?;
        let mut lease = SiteLease { node: own, holder: holder.to_owned(), ..before };
        let uncertain = lease.uncertain.get(queue).copied().unwrap_or(0).max(delivered);
        lease.uncertain.insert(queue.clone(), uncertain);
        let seen = cell.as_ref().map(|cell| cell.revision);
        let SwapOutcome::Done(revision) =
            cells.swap(Table::Sites, site, seen, lease.encode()).await?
        else {
            return Ok(TakenSite::Contested);
        };
        queues.open(queue, site).await?;
        let gap = if is_own {
            Duration::ZERO
        } else {
            pace_handover::restore(&self.selector, site, &lease.paces)
        };
        let hosts = lease
            .paces
            .iter()
            .filter(|pace| !pace.is_site)
            .map(|pace| pace.name.as_str().into())
            .collect();
        let now = Instant::now();
        let held = HeldSite {
            holding,
            revision,
            uncertain,
            given: std::collections::HashSet::new(),
            acknowledged: 0,
            settling: None,
            hosts,
            is_withdrawn: false,
            not_before: now + gap,
            empty_at: None,
            paces: lease.paces,
            written: now,
        };
        Ok(TakenSite::Held(Box::new(held)))
    }

    /// Writes the paces of sites to their cells, for the case that this node dies.
    async fn write_paces(&mut self, holder: &str) {
        let mut due = Vec::new();
        for (site, held) in &self.held {
            if held.written.elapsed() < PACE_INTERVAL || due.len() >= MAX_WRITTEN {
                continue;
            }
            let paces = pace_handover::paces(&self.selector, site, &held.hosts);
            if paces != held.paces || held.written.elapsed() >= CELL_INTERVAL {
                let (node, holder) = (self.node_id.to_string(), holder.to_owned());
                let lease = SiteLease { node, holder, uncertain: self.uncertain(held), paces };
                due.push((Arc::clone(site), held.revision, lease));
            }
        }
        let cells = self.transport.cells();
        let mut writing = Vec::new();
        for (site, revision, lease) in due {
            let written = async move {
                let swapped = cells.swap(Table::Sites, &site, Some(revision), lease.encode()).await;
                (site, lease, swapped)
            };
            writing.push(written.boxed());
        }
        let mut lost = Vec::new();
        for (site, lease, swapped) in all(writing).await {
            let Some(held) = self.held.get_mut(&site) else { continue };
            held.written = Instant::now();
            match swapped {
                Ok(SwapOutcome::Done(revision)) => {
                    (held.revision, held.paces) = (revision, lease.paces)
                }
                // Its own write, whose response was lost.
                Ok(SwapOutcome::Lost(Some(cell)))
                    if SiteLease::decode(&cell.value).holder == holder =>
                {
                    held.revision = cell.revision;
                }
                Ok(SwapOutcome::Lost(_)) => lost.push(site),
                Err(_) => {}
            }
        }
        for site in lost {
            self.held.remove(&site);
            drop(self.events.send(QueueEvent::Revoked(site)));
        }
    }

    /// Acknowledges what is written and gives the sites back, as far as this is possible in time.
    async fn stop(&mut self) {
        let transport = Arc::clone(&self.transport);
        let Some(queues) = transport.work_queues() else { return };
        let acknowledging = async {
            loop {
                // What is not acknowledged comes again.
                let _ = self.acknowledge(queues).await;
                if self.unacknowledged.is_empty() {
                    return;
                }
                // A broker that is away refuses at once, and without a pause this would never end.
                tokio::time::sleep(STEP).await;
            }
        };
        let _ = timeout(STOP_TIME, acknowledging).await;
        let Some((work_until, holder)) = self.check_lease() else { return };
        // A link that is written and not acknowledged has to be marked: its site is left to the end
        // of the lease.
        for link in &self.unacknowledged {
            self.held.remove(&link.site);
        }
        for held in self.held.values_mut() {
            held.given.clear();
            held.is_withdrawn = true;
        }
        let giving = async {
            while !self.held.is_empty() {
                let before = self.held.len();
                let (is_waiting, _) = self.release_sites(queues, &holder).await;
                match self.held.len() == before {
                    true if is_waiting => tokio::time::sleep(STEP).await,
                    true => return,
                    false => {}
                }
            }
        };
        let _ = timeout_at(work_until.min(Instant::now() + STOP_TIME), giving).await;
    }
}

/// Runs some requests, a few at a time.
async fn all<T: Send>(requests: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(requests).buffer_unordered(MAX_REQUESTS).collect().await
}

fn no_queues() -> TransportError {
    TransportError::Refused("this broker has no work queues".to_owned())
}
